/* SPDX-License-Identifier: Apache-2.0 */
/** @file Probe results to health. What traffic says is in sched/evidence.h. Thread: the control loop. */
#ifndef WEIR_FLEET_HEALTH_H
#define WEIR_FLEET_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "model/cell_t.h"

struct health_rules {
    uint32_t down_after; /**< red probes in a row; default 3 */
    uint32_t up_after;   /**< green probes in a row for one that was down by probes; default 2 */
    uint64_t
        progress_ns; /**< a red probe is ignored while traffic made progress this recently; default 5 s */
};

/** Zeros become defaults. */
struct health_rules fleet_health_rules(const struct health_rules *r);

/** Probe results in a row, of one endpoint generation. Zeroed = none yet. */
struct health_track {
    uint32_t reds, greens;
};

/**
 * One probe result. The first green one brings up an endpoint never probed, or one whose connections failed;
 * one that probes took down needs up_after of them.
 * @return the health from now on.
 */
enum health fleet_health_probe(struct cell *c,
                               struct health_track *t,
                               const struct health_rules *r,
                               bool green,
                               uint64_t now_ns);

#endif /* WEIR_FLEET_HEALTH_H */
