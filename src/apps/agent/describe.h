/* SPDX-License-Identifier: Apache-2.0 */
/** @file What the agent registers, put together from its options, the engine's models, and the devices. */
#ifndef WEIR_APPS_AGENT_DESCRIBE_H
#define WEIR_APPS_AGENT_DESCRIBE_H

#include "apps/agent/options.h"
#include "base/arena.h"
#include "gpu/sample_codec.h"
#include "model/update_t.h"

/** The instance and the memory of what it points to. */
struct description {
    struct instance instance;
    struct slice service;
    struct arena arena;
    /* what it was made from, to see whether it still holds */
    enum membw_basis basis;
    unsigned n_gpus;
    uint64_t memory_total_bytes;
};

/** What is known of the engine and the devices. Borrowed for the length of the call. */
struct description_source {
    const struct agent_options *options;
    enum engine_kind kind;
    const struct model_ref *models; /* used when options name none */
    uint32_t n_models;
    const struct gpu_reading *gpus;
    unsigned n_gpus;
    enum membw_basis basis;
    uint64_t epoch;
};

void description_init(struct description *d);
void description_fini(struct description *d);
/** Do the devices still look as in d? */
bool description_holds(const struct description *d, const struct description_source *s);
/** Make it anew, in place. @return 0; WEIR_E_NOMEM: d is as before. */
int description_make(struct description *d, const struct description_source *s) MUST_CHECK;

#endif /* WEIR_APPS_AGENT_DESCRIBE_H */
