/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reads a decision as docs/decisions.md describes it, so that it can be decided again. */
#ifndef WEIR_APPS_SIM_RECORD_READ_H
#define WEIR_APPS_SIM_RECORD_READ_H

#include <jansson.h>

#include "sched/record.h"

/** A record that was read. Texts are borrowed from the JSON, which must stay. */
struct read_record {
    struct sched_record *record; /**< owned: sched_record_free() */
    struct policy policy;
    struct decision logged;
    const char *wrong; /**< what could not be read; NULL = nothing */
};

/** @return 0 or WEIR_E_NOMEM; out->wrong says what could not be read, whatever it was. Cost: O(rows). */
int record_read(const json_t *o, const struct mem *mem, struct read_record *out) MUST_CHECK;

/** Did both come out the same? */
bool record_same(const struct decision *a, const struct decision *b);

#endif /* WEIR_APPS_SIM_RECORD_READ_H */
