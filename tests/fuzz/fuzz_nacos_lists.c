/* SPDX-License-Identifier: Apache-2.0 */
/* What a foreign Nacos may answer or push, and messages of its gRPC: nothing is read past its end, all in bounds. */
#include "fuzz.h"

#include "base/arena.h"
#include "discovery/nacos_list_codec.h"
#include "heap_mem.h"
#include "registry/nacos_payload_codec.h"

static void check_list(const struct mem *mem, struct slice text)
{
    struct nacos_answer answer;
    struct arena a;
    uint32_t n = 0;

    arena_init(&a, mem, 1 << 20);
    if (nacos_list_read(&a, text, &answer) == 0) {
        for (const struct nacos_listed *l = answer.first; l; l = l->next) {
            FUZZ_CHECK(l->instance.host.n > 0 && l->instance.port > 0 && l->instance.key.n > 0);
            FUZZ_CHECK(l->instance.weight <= WEIGHT_MAX);
            FUZZ_CHECK(l->instance.n_metadata <= ENDPOINT_KV_MAX);
            FUZZ_CHECK(!l->instance.vouched || (l->instance.healthy && !answer.protected_));
            n++;
        }
        FUZZ_CHECK(n == answer.n && (n == 0 || answer.has_hosts));
    }
    arena_fini(&a);
    (void)nacos_list_hash(text);
}

static void check_payload(const struct mem *mem, struct slice text)
{
    struct nacos_payload p;
    struct nacos_payload again;
    struct buf out;

    if (nacos_payload_read(text, &p))
        return;
    buf_init(&out, mem, text.n + 64);
    FUZZ_CHECK(nacos_payload_write(&out, &p) == 0);
    FUZZ_CHECK(nacos_payload_read(buf_slice(&out), &again) == 0);
    FUZZ_CHECK(slice_eq(p.type, again.type) && slice_eq(p.token, again.token) &&
               slice_eq(p.body, again.body));
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    const struct slice text = slice_of((const char *)data, size);

    check_list(&mem, text);
    check_payload(&mem, text);
    FUZZ_CHECK(heap.live == 0);
    return 0;
}
