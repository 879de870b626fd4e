/* SPDX-License-Identifier: Apache-2.0 */
/** @file POST /api/v1/explain: the question as JSON, the answer from the data plane. */
#ifndef WEIR_APPS_SERVE_EXPLAIN_H
#define WEIR_APPS_SERVE_EXPLAIN_H

#include "proxy/decisions.h"

/**
 * @param json a description {"model", "path", ...} or a pasted request {"request": {...}}; docs/explain.md.
 * @return as proxy_explain(). Thread: control.
 */
int explain_question(struct proxy *p, struct slice json, struct buf *out) MUST_CHECK;

#endif /* WEIR_APPS_SERVE_EXPLAIN_H */
