/* SPDX-License-Identifier: Apache-2.0 */
/** @file Endpoints as JSON, for the admin API. */
#ifndef WEIR_APPS_SERVE_DESCRIBE_H
#define WEIR_APPS_SERVE_DESCRIBE_H

#include "base/buf.h"
#include "model/snapshot_t.h"

/**
 * One endpoint as an object: identity, state, last sample, ledger. Unknown values are left out.
 * @param why the reason its last check failed; absent when it passed.
 */
void describe_endpoint(const struct member *m,
                       struct slice source,
                       struct slice why,
                       uint64_t now_ns,
                       struct buf *out);

/** One endpoint as the router family's worker object: id, url, model_id, healthy, load, weight. */
void describe_worker(const struct member *m, struct buf *out);

/** "up", "down" or "unknown". */
const char *describe_health(const struct member *m);

#endif /* WEIR_APPS_SERVE_DESCRIBE_H */
