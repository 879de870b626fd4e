/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file A thread that reads the devices every interval. A driver that hangs (a reset, a dying board) stops this thread
 * alone: whoever asks sees readings grow old, and goes on renewing and reporting.
 */
#ifndef WEIR_GPU_WATCH_H
#define WEIR_GPU_WATCH_H

#include "gpu/gpu.h"

struct gpu_watch;

/** Takes g, also when it fails. The first reading begins at once. @return 0, WEIR_E_NOMEM, WEIR_E_IO (no thread). */
int gpu_watch_start(struct gpus *g, uint64_t interval_ns, struct gpu_watch **out) MUST_CHECK;
/** Ends the thread; one that hangs in the driver for 1 s more is left behind, with what it uses. */
void gpu_watch_stop(struct gpu_watch *w);

/** The last readings. @param out room for GPU_DEVICES_MAX. @param read_ns when, monotonic; 0 = never. Cost: a lock that is held for a copy. */
unsigned gpu_watch_copy(struct gpu_watch *w, struct gpu_reading *out, uint64_t *read_ns);

#endif /* WEIR_GPU_WATCH_H */
