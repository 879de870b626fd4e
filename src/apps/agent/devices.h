/* SPDX-License-Identifier: Apache-2.0 */
/** @file The devices of this machine for the agent: from their drivers, or from a dcgm-exporter. Thread: its loop. */
#ifndef WEIR_APPS_AGENT_DEVICES_H
#define WEIR_APPS_AGENT_DEVICES_H

#include "apps/agent/options.h"
#include "gpu/exporter.h"
#include "gpu/watch.h"

/** Embed it zeroed; must not move once it runs. */
struct agent_devices {
    struct gpu_watch *watch;
    struct gpu_exporter *exporter;
    const char *url, *select;
    uint64_t interval_ns;
    bool said;         /**< that the exporter is in trouble */
    struct loop *once; /**< stopped after the first page; NULL = go on */
    /* of the exporter's last good page */
    uint64_t read_ns; /**< 0 = none yet */
    unsigned n;
    struct gpu_reading readings[GPU_DEVICES_MAX];
};

/** Find the devices of the options; says on stderr what is wrong. @return -1 to go on, else the exit status. */
int devices_open(const struct agent_options *o, struct gpus **out);
/** --devices: one line each on stdout. @return the exit status. */
int devices_print(const struct agent_options *o);
/** Takes gpus (NULL with --dcgm), also when it fails. o is borrowed. WEIR_E_NOMEM, WEIR_E_IO. */
int devices_start(struct agent_devices *d,
                  const struct agent_options *o,
                  struct loop *loop,
                  struct fetcher *fetcher,
                  struct gpus *gpus) MUST_CHECK;
void devices_stop(struct agent_devices *d);
/** Are there any to follow? */
bool devices_any(const struct agent_devices *d);
/** The last readings. @param out room for GPU_DEVICES_MAX. @param fresh false: too old to say how they are, or none yet. */
unsigned devices_read(struct agent_devices *d, struct gpu_reading *out, bool *fresh);

#endif /* WEIR_APPS_AGENT_DEVICES_H */
