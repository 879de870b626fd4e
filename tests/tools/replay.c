/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions from stdin, one JSON object a line as GET /api/v1/decisions?format=jsonl gives them, decided again from
 * nothing but themselves. Prints {"replayed": n, "different": n, "truncated": n, "unreadable": n}; exit 1 unless all
 * that are whole come out the same.
 */
#include <stdio.h>
#include <stdlib.h>

#include "apps/sim/record_read.h"
#include "base/buf.h"
#include "loop/alloc.h"

enum { LINE_MAX_BYTES = 1 << 20 };

static struct {
    unsigned replayed, different, truncated, unreadable;
} count;

static void replay(const char *line)
{
    json_error_t error;
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    struct read_record r = {0};
    struct decision d;
    int rc = o ? record_read(o, loop_mem(), &r) : WEIR_E_INVALID;

    if (rc != 0 || r.wrong ||
        json_integer_value(json_object_get(o, "format")) != SCHED_RECORD_FORMAT) {
        count.unreadable++;
        fprintf(stderr, "replay: unreadable (%s): %s\n",
                r.wrong ? r.wrong
                : o     ? "format"
                        : error.text,
                line);
    } else if (json_is_true(json_object_get(o, "truncated"))) {
        count.truncated++;
    } else if (sched_replay(r.record, loop_mem(), &d, NULL) != 0) {
        count.unreadable++;
    } else if (record_same(&d, &r.logged)) {
        count.replayed++;
    } else {
        count.different++;
        fprintf(stderr, "replay: row %u, logged %u: %s\n", d.row, r.logged.row, line);
    }
    sched_record_free(r.record);
    json_decref(o);
}

int main(void)
{
    static char line[LINE_MAX_BYTES];

    while (fgets(line, sizeof(line), stdin))
        replay(line);
    printf("{\"replayed\": %u, \"different\": %u, \"truncated\": %u, \"unreadable\": %u}\n",
           count.replayed, count.different, count.truncated, count.unreadable);
    return count.different || count.unreadable ? 1 : 0;
}
