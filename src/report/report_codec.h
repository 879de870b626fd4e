/* SPDX-License-Identifier: Apache-2.0 */
/** @file The JSON bodies of the native registry API, written from the nouns. What is unknown is left out, never 0. */
#ifndef WEIR_REPORT_REPORT_CODEC_H
#define WEIR_REPORT_REPORT_CODEC_H

#include <stdint.h>

#include "base/buf.h"
#include "model/update_t.h"

/** "vllm", "llamacpp", ...; NULL for ENGINE_UNKNOWN. */
const char *report_engine_name(enum engine_kind kind);

/** "SCHEME://authority rest" or "SCHEME+https://authority rest", borrowed. WEIR_E_INVALID. */
int report_split_url(struct slice text,
                     const char *scheme,
                     bool *tls,
                     struct slice *authority,
                     struct slice *rest) MUST_CHECK;

/**
 * Body of PUT /v1/endpoints/{id}.
 * @param s NULL; or what goes into the metadata, where a registry has no load reports. @return 0, or the buffer's sticky error.
 */
int report_write_instance(struct buf *out,
                          const struct instance *in,
                          const struct sample *s,
                          uint64_t ttl_ms) MUST_CHECK;

/** Body of POST /v1/endpoints/{id}/load, from the known fields of s with its epoch and seq. */
int report_write_sample(struct buf *out, const struct sample *s, uint64_t interval_ms) MUST_CHECK;

/** "{base}/v1/endpoints/{id}{suffix}" with the id percent-encoded; one trailing slash of base is dropped. */
int report_write_url(struct buf *out, struct slice base, struct slice id, const char *suffix)
    MUST_CHECK;

#endif /* WEIR_REPORT_REPORT_CODEC_H */
