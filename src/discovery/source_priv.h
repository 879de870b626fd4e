/* SPDX-License-Identifier: Apache-2.0 */
/** @file What source.c and source_state.c share. */
#ifndef WEIR_DISCOVERY_SOURCE_PRIV_H
#define WEIR_DISCOVERY_SOURCE_PRIV_H

#include "discovery/source.h"

/** All of an instance, for the state file and for writing back. */
struct kept {
    struct arena arena; /**< its text */
    struct instance instance;
};

/** One instance of a list, as last told to the sink. */
struct held {
    struct kept *kept;     /**< NULL: nobody wanted it when it was told */
    struct slice sink_key; /**< as the sink knows it, in text */
    struct slice key;      /**< the adapter's; the end of sink_key */
    struct slice host;     /**< in text */
    uint16_t port;
    bool tls, described; /**< it has metadata */
    uint32_t round;      /**< of the last answer that had it */
    uint64_t hash;
    struct list going; /**< while those that are let go are gathered */
    uint64_t
        leaving_ns; /**< when it is let go though it passes, UINT64_MAX = never; 0 = it is listed */
    char text[];
};

/** Append the text of the state file. @param ctx a struct source. */
void source_state_write(void *ctx, struct buf *out);
/** Put back what the state file has, in probation. @return number of instances. */
uint32_t source_state_load(struct source *s);

#endif /* WEIR_DISCOVERY_SOURCE_PRIV_H */
