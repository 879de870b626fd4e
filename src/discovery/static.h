/* SPDX-License-Identifier: Apache-2.0 */
/** @file The static source: endpoints written in the config or given by --worker-urls. */
#ifndef WEIR_DISCOVERY_STATIC_H
#define WEIR_DISCOVERY_STATIC_H

#include "conf/conf.h"
#include "model/update_t.h"

/**
 * Tell every endpoint of one config source, then that it has synced. Endpoints that the sink refuses are logged and
 * left out. Thread: the control loop. @return number of endpoints told.
 */
uint32_t discovery_static_start(const struct conf_source *source,
                                uint16_t index,
                                const struct update_sink *sink);

/**
 * Tell that what `before` had and `now` has not is gone; of either NULL is a source without endpoints.
 * Cost: O(endpoints of both).
 */
void discovery_static_drop(const struct conf_source *before,
                           const struct conf_source *now,
                           uint16_t index,
                           const struct update_sink *sink);

#endif /* WEIR_DISCOVERY_STATIC_H */
