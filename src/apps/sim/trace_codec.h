/* SPDX-License-Identifier: Apache-2.0 */
/** @file Traces of requests: who came when and wanted what. Made from a file (trace_codec.c) or drawn (workload.c). */
#ifndef WEIR_APPS_SIM_TRACE_CODEC_H
#define WEIR_APPS_SIM_TRACE_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "model/prefix.h"

enum {
    SIM_REQUESTS_MAX = 20000000,
    SIM_BLOCKS_MAX = 1 << 28, /**< over all requests */
    SIM_TENANTS_MAX = 64,
    SIM_NO_TENANT = UINT16_MAX,
};

/** One request of a trace. */
struct sim_request {
    uint64_t at_ns; /**< since the start of the trace */
    uint64_t
        extra_ns; /**< fixed work at speed 1: an image, or all of a job for servers of fixed costs */
    uint64_t session;     /**< hash; 0 = none */
    uint64_t first_block; /**< index in sim_trace.blocks */
    uint32_t n_blocks;
    uint32_t prompt_tokens; /**< at least 1 */
    uint32_t output_tokens; /**< 0: the answer is no text */
    uint32_t limit;         /**< of the answer, as the client told it; 0 = not told */
    uint32_t task;          /**< enum task bit; 0 = any */
    uint16_t tenant;        /**< index in sim_trace.tenants, or SIM_NO_TENANT */
    uint8_t priority;
    uint8_t n_images;
};

/** Owns its arrays; sim_trace_fini(). Zeroed = empty. */
struct sim_trace {
    const struct mem *mem;
    struct sim_request *requests; /**< by at_ns once sim_trace_finish() was called */
    uint32_t n;
    uint32_t cap;
    uint64_t *
        blocks; /**< prefix chain names (model/prefix.h), the last of a request perhaps of a partial block */
    uint64_t n_blocks;
    uint64_t cap_blocks;
    uint64_t
        slot_ns; /**< greatest common divisor of the times: how coarse they are; 0 = all are equal */
    uint64_t guessed; /**< requests whose answer's length is not in the file */
    char tenants[SIM_TENANTS_MAX][32];
    uint32_t n_tenants; /**< 0: there are none */
};

void sim_trace_init(struct sim_trace *t, const struct mem *mem);
void sim_trace_fini(struct sim_trace *t);

/** Add one request and its blocks' names. WEIR_E_FULL, WEIR_E_NOMEM. */
int sim_trace_add(struct sim_trace *t,
                  const struct sim_request *r,
                  const uint64_t *names,
                  uint32_t n) MUST_CHECK;

/** Index of a tenant, added when it is new. WEIR_E_FULL. */
int sim_trace_tenant(struct sim_trace *t, struct slice name, uint16_t *out) MUST_CHECK;

/** All are there: sort by time, keeping the order within an instant; let the first come at 0; find the slot. */
int sim_trace_finish(struct sim_trace *t) MUST_CHECK;

/** Keep what comes in [from, to) and at most `limit` of it; times are counted from `from` on. UINT64_MAX, 0 = all. */
void sim_trace_cut(struct sim_trace *t, uint64_t from_ns, uint64_t to_ns, uint32_t limit);

/** The whole trace `times` in a row. @param span_ns from one start to the next. */
int sim_trace_repeat(struct sim_trace *t, uint32_t times) MUST_CHECK;

/** Write the text of the block that a trace calls `id`: deterministic, PREFIX_BLOCK_BYTES bytes of hex digits. */
void sim_block_text(uint64_t id, char out[PREFIX_BLOCK_BYTES]);

enum sim_format { SIM_MOONCAKE, SIM_AZURE, SIM_BURSTGPT, SIM_DECISIONS };

/** What the first line says it is. WEIR_E_UNSUPPORTED. */
int sim_format_of(struct slice text, enum sim_format *out) MUST_CHECK;

/**
 * Read a whole file's text.
 * @param line out: where it failed, 1 = first.
 * @param root where prefix chains begin (model_prefix_root()).
 * @return 0; WEIR_E_PROTO: that line is not of this format; WEIR_E_FULL; WEIR_E_NOMEM.
 */
int sim_trace_read(struct sim_trace *t,
                   enum sim_format format,
                   uint64_t root,
                   struct slice text,
                   uint64_t *line) MUST_CHECK;

#endif /* WEIR_APPS_SIM_TRACE_CODEC_H */
