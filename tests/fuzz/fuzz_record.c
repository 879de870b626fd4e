/* SPDX-License-Identifier: Apache-2.0 */
/* A line of a decision log: whatever is read can be decided again, by its own policy and by any other. */
#include "fuzz.h"

#include "apps/sim/record_read.h"
#include "loop/alloc.h"

static void decide(struct sched_record *k, const struct policy *p)
{
    struct decision d;

    k->policy = p;
    int rc = sched_replay(k, loop_mem(), &d, k->why);
    FUZZ_CHECK(rc == 0 || (rc == WEIR_E_UNSUPPORTED && !sched_record_whole(k)));
    FUZZ_CHECK(rc != 0 || d.row == DECISION_NOBODY || d.row < k->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *o = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    struct read_record r = {.record = NULL};

    if (json_is_object(o) && record_read(o, loop_mem(), &r) == 0 && !r.wrong) {
        const char *name;
        decide(r.record, &r.policy);
        for (uint32_t i = 0; (name = sched_policy_name(i)) != NULL; i++) {
            struct policy p;
            FUZZ_CHECK(sched_policy_named(slice_str(name), &p) == 0);
            decide(r.record, &p);
        }
    }
    sched_record_free(r.record);
    json_decref(o);
    return 0;
}
