/* SPDX-License-Identifier: Apache-2.0 */
/** @file Panic mode seen from the control side: which models use their red endpoints too, said once when it begins and ends. */
#ifndef WEIR_APPS_SERVE_PANIC_H
#define WEIR_APPS_SERVE_PANIC_H

#include "model/snapshot_t.h"

/** How the endpoints of one model stand. */
struct panic_model {
    uint32_t usable; /**< may be chosen as they are */
    uint32_t red;    /**< down by probes or with an open breaker, but up once */
    bool panic;      /**< too many are red: all of both are used */
};

/** Look at all models of a snapshot. @param out as many as it has models. Cost: O(members of all models). */
void panic_look(const struct snapshot *s,
                uint32_t percent,
                uint64_t now_ns,
                struct panic_model *out);

/** Remembers for which models panic was announced. Zeroed = none. */
struct panic_watch {
    struct panic_name *known;
};

/** Look and log what changed. Out of memory: looks again the next time. */
void panic_watch(struct panic_watch *w,
                 const struct snapshot *s,
                 uint32_t percent,
                 uint64_t now_ns);
void panic_watch_fini(struct panic_watch *w);

#endif /* WEIR_APPS_SERVE_PANIC_H */
