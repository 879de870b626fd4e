/* SPDX-License-Identifier: Apache-2.0 */
/** @file Several devices as one endpoint's numbers. */
#ifndef WEIR_GPU_SAMPLE_CODEC_H
#define WEIR_GPU_SAMPLE_CODEC_H

#include "gpu/reading_codec.h"
#include "model/sample_t.h"

/** What a memory bandwidth figure stands on. */
enum membw_basis {
    MEMBW_UNKNOWN,
    MEMBW_TIME_BUSY,      /**< share of time in which the memory controller was busy */
    MEMBW_DRAM_BANDWIDTH, /**< share of the device's bandwidth */
};

/**
 * Into s, with its known bits. A request needs its share on every device of a tensor-parallel engine, so memory is the
 * number of devices times the least of them; shares are those of the busiest device. What one device does not tell is
 * not known of all. @return the basis of membw_util.
 */
enum membw_basis gpu_sample(struct sample *s, const struct gpu_reading *gpus, unsigned n);

#endif /* WEIR_GPU_SAMPLE_CODEC_H */
