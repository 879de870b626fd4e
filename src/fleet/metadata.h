/* SPDX-License-Identifier: Apache-2.0 */
/** @file The registry metadata keys that Weir understands, as typed fields. All others are kept, not read. */
#ifndef WEIR_FLEET_METADATA_H
#define WEIR_FLEET_METADATA_H

#include "model/endpoint_t.h"
#include "model/sample_t.h"

/** Absent, 0 or a clear bit where the key is missing or its value cannot be read. Slices borrowed. */
struct fleet_metadata {
    struct slice gpu_type;
    struct slice model_ids; /**< comma list, as it came */
    struct slice model_version;
    struct slice region, zone, cluster;
    uint32_t tasks; /**< enum task bits */
    uint32_t max_concurrency;
    uint32_t max_model_len;
    enum engine_kind engine;
    struct sample sample;    /**< known, and the numbers of the fast keys; nothing else is set */
    uint64_t report_time_ms; /**< of the reporter's clock; 0 = not told */
};

/**
 * Read the contract's keys. A value that cannot be read counts as unknown and spoils nothing else.
 * The first of equal keys counts. Cost: O(n).
 */
void fleet_metadata_read(const struct kv *kv, uint32_t n, struct fleet_metadata *out);

/** Is it one of the fast keys, which change with every report and say nothing about who the endpoint is? */
bool fleet_metadata_fast(struct slice key);

/** "vllm" and the like; ENGINE_UNKNOWN when empty, ENGINE_GENERIC for words we do not know. */
enum engine_kind fleet_engine_named(struct slice name);

/** One of supported_tasks; 0 for words we do not know. */
uint32_t fleet_task_named(struct slice name);

#endif /* WEIR_FLEET_METADATA_H */
