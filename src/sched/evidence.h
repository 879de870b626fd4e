/* SPDX-License-Identifier: Apache-2.0 */
/** @file What real traffic says about an endpoint's health; what probes say is in fleet/health.h. Any thread. */
#ifndef WEIR_SCHED_EVIDENCE_H
#define WEIR_SCHED_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cell_t.h"

/** Connect failures in a row that take an endpoint out of use until a probe succeeds. */
enum { SCHED_REFUSED_AFTER = 5 };

/**
 * Bytes came from the endpoint. It lives: failures are forgotten and one that no probe has seen yet is up.
 * Cheap enough for every read; one that is down stays so until a probe succeeds.
 */
void sched_saw_progress(struct cell *c, uint64_t now_ns);

/** A connection to it failed (refused, unreachable, timed out). @return true when this one took it out of use. */
bool sched_saw_connect_failure(struct cell *c);

/** An answer broke off, never began, or is a 5xx. Counted, for metrics; what follows is the breaker's (sched/breaker.h). */
void sched_saw_failure(struct cell *c);

#endif /* WEIR_SCHED_EVIDENCE_H */
