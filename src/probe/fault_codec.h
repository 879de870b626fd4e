/* SPDX-License-Identifier: Apache-2.0 */
/** @file What an error answer of an inference server means: too busy, still loading, a bad request, or broken. */
#ifndef WEIR_PROBE_FAULT_CODEC_H
#define WEIR_PROBE_FAULT_CODEC_H

#include "base/slice.h"
#include "model/endpoint_t.h"

enum engine_fault {
    ENGINE_FAULT_NONE = 0, /**< it worked */
    ENGINE_FAULT_CLIENT,   /**< the request's own mistake: says nothing about the server */
    ENGINE_FAULT_BUSY,     /**< it works, but takes no more now */
    ENGINE_FAULT_LOADING,  /**< its model is not ready yet */
    ENGINE_FAULT_BROKEN,   /**< it failed */
};

/** One rule; a table ends with status 0. The first that matches counts, then the rules for all. */
struct engine_fault_rule {
    unsigned status;
    const char *says; /**< somewhere in the body; NULL = whatever it says */
    enum engine_fault means;
};

/** @param body of the answer, its beginning is enough. */
enum engine_fault engine_fault_of(enum engine_kind kind, unsigned status, struct slice body);
/** The same by a table; NULL = only the rules for all. */
enum engine_fault
engine_fault_by(const struct engine_fault_rule *rules, unsigned status, struct slice body);

/** Do these words stand anywhere in it? */
bool engine_says(struct slice body, const char *words);

#endif /* WEIR_PROBE_FAULT_CODEC_H */
