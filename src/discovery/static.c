/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/static.h"

#include "base/map.h"
#include "loop/alloc.h"
#include "loop/log.h"

uint32_t discovery_static_start(const struct conf_source *source,
                                uint16_t index,
                                const struct update_sink *sink)
{
    uint32_t told = 0;

    for (uint32_t i = 0; i < source->n_endpoints; i++) {
        const struct conf_endpoint *e = &source->endpoints[i];
        int rc = sink->upsert(sink->ctx, index, &e->instance);
        if (rc)
            log_error("discovery", "static endpoint %.*s is left out: %s", SLICE_ARG(e->url),
                      err_text(rc));
        told += rc == 0;
    }
    sink->synced(sink->ctx, index);
    return told;
}

void discovery_static_drop(const struct conf_source *before,
                           const struct conf_source *now,
                           uint16_t index,
                           const struct update_sink *sink)
{
    struct map kept;
    bool whole = true; /* everything that stays is in the map */

    map_init(&kept, loop_mem());
    for (uint32_t i = 0; now && i < now->n_endpoints && whole; i++)
        whole = map_put(&kept, now->endpoints[i].instance.key, &now->endpoints[i]) == 0;
    if (!whole)
        log_error("discovery", "out of memory: static endpoints that are gone stay");
    for (uint32_t i = 0; before && i < before->n_endpoints && whole; i++)
        if (!map_get(&kept, before->endpoints[i].instance.key))
            sink->remove(sink->ctx, index, before->endpoints[i].instance.key);
    map_fini(&kept);
}
