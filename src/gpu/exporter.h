/* SPDX-License-Identifier: Apache-2.0 */
/** @file Asks one dcgm-exporter for its page, again and again. One loop, one thread. */
#ifndef WEIR_GPU_EXPORTER_H
#define WEIR_GPU_EXPORTER_H

#include "gpu/dcgm_codec.h"
#include "loop/loop.h"
#include "net/fetch.h"

struct gpu_exporter_options {
    struct loop *loop;
    struct fetcher *fetcher;
    const char *url; /**< copied */
    const struct fetch_tls
        *tls; /**< for https; borrowed for the exporter's life; NULL = what the system trusts */
    uint64_t interval_ns, timeout_ns;
    uint64_t shift_ns; /**< the second question comes so much earlier: spreads many exporters */
    /**
     * It answered, or not. Must not free the exporter. @param why NULL: it answered with n devices; else words for a log
     * line, and n is 0. All borrowed.
     */
    void (*on_page)(void *ctx, const struct gpu_exported *rows, uint32_t n, const char *why);
    void *ctx;
};

struct gpu_exporter;

/** The first question is asked at once. WEIR_E_NOMEM. */
int gpu_exporter_new(const struct gpu_exporter_options *o, struct gpu_exporter **out) MUST_CHECK;
void gpu_exporter_free(struct gpu_exporter *e);

#endif /* WEIR_GPU_EXPORTER_H */
