/* SPDX-License-Identifier: Apache-2.0 */
/** @file The contract's metadata keys as an agent writes them, for registries that have no load reports. Pure. */
#ifndef WEIR_REPORT_METADATA_CODEC_H
#define WEIR_REPORT_METADATA_CODEC_H

#include "base/buf.h"
#include "model/update_t.h"

/** The key by which an agent knows its own instance again; its value is "weir-agent". */
#define REPORT_MARK_KEY   "registered_by"
#define REPORT_MARK_VALUE "weir-agent"

typedef void (*report_put_fn)(void *ctx, struct slice key, struct slice value);

/** A small number as text, for as long as this lives. */
struct report_number {
    struct buf b;
    char room[64];
};
struct slice report_number(struct report_number *t, double v, unsigned decimals);

/** "healthy", "busy", ... */
const char *report_state_name(enum reported_state state);

/** What the sample knows; a value is valid until put returns. */
void report_put_sample(const struct sample *s, report_put_fn put, void *ctx);
/** Is it a key of report_put_sample()? */
bool report_sample_key(struct slice key);
/**
 * Who it is, most important keys first, then its own metadata but for the keys of samples. Empty values are not put.
 * @param mem for one list, until it returns. @return 0, WEIR_E_NOMEM, WEIR_E_FULL.
 */
int report_put_identity(const struct instance *in,
                        const struct mem *mem,
                        report_put_fn put,
                        void *ctx) MUST_CHECK;

#endif /* WEIR_REPORT_METADATA_CODEC_H */
