/* SPDX-License-Identifier: Apache-2.0 */
#include "discovery/static.h"

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
