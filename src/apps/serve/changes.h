/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What changes about endpoints, as events for those who follow (GET /api/v1/events): joined, left, up, down,
 * ejected, readmitted, draining, undrained. Found by looking: lanes change health and breakers too, and none of them
 * waits for us. What comes and goes between two looks is not told.
 */
#ifndef WEIR_APPS_SERVE_CHANGES_H
#define WEIR_APPS_SERVE_CHANGES_H

#include "admin/admin.h"
#include "model/snapshot_t.h"

struct changes_seen;

/** Zeroed = nothing seen yet. */
struct changes {
    struct changes_seen *seen; /**< by slot */
    uint32_t n;
    uint32_t n_there;
    uint64_t seq; /**< of the snapshot that was followed last */
};

/** Tell what is not as it was at the last look. Without memory, later. Cost: O(slots). Thread: control. */
void changes_look(struct changes *c,
                  const struct snapshot *s,
                  uint64_t now_ns,
                  struct admin *admin);
/** The same of a new snapshot: only those that it shows otherwise than the last one. Cost: a glance at the others. */
void changes_follow(struct changes *c,
                    const struct snapshot *s,
                    uint64_t now_ns,
                    struct admin *admin);
/** The same of one endpoint of the snapshot that was followed last. Cost: constant. */
void changes_of(struct changes *c, const struct member *m, uint64_t now_ns, struct admin *admin);
void changes_fini(struct changes *c);

#endif /* WEIR_APPS_SERVE_CHANGES_H */
