/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file dcgm-exporters on the hosts of endpoints: which there are, and whose devices are whose. For hosts where no agent
 * can run. Thread: the control loop.
 *
 * An endpoint's devices are, the first of these that tells: those it is registered with; what its label or metadata key
 * `gpus` chooses; those of its Kubernetes pod (metadata `pod`); all of its host, where nobody else on that host is left
 * or the host has but one.
 */
#ifndef WEIR_APPS_SERVE_EXPORTERS_H
#define WEIR_APPS_SERVE_EXPORTERS_H

#include "base/err.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include "model/snapshot_t.h"
#include "net/fetch.h"

struct exporters_options {
    struct loop *loop;
    struct fetcher *fetcher;
    const struct fetch_tls *tls;           /**< borrowed */
    const struct conf_gpu_exporters *conf; /**< borrowed until the next exporters_reconfigure() */
    /** Numbers of an endpoint's devices. known == 0: nothing is known of them any more. */
    void (*on_sample)(void *ctx, const struct member *m, const struct sample *s);
    /** Which those are, where the endpoint is registered without any. */
    void (*on_devices)(void *ctx, const struct member *m, const struct device *devices, uint32_t n);
    void *ctx;
};

struct exporters;

int exporters_new(const struct exporters_options *o, struct exporters **out) MUST_CHECK;
void exporters_free(struct exporters *x);

/**
 * Follow a snapshot, borrowed until the next one: exporters of new hosts are asked at once, those of nobody no more.
 * Cost: O(endpoints x URLs); nothing when there are no URLs. WEIR_E_NOMEM: some are not asked.
 */
int exporters_sync(struct exporters *x, const struct snapshot *s) MUST_CHECK;

/** Another configuration. WEIR_E_NOMEM: some are not asked. */
int exporters_reconfigure(struct exporters *x,
                          const struct conf_gpu_exporters *conf,
                          const struct snapshot *s) MUST_CHECK;

#endif /* WEIR_APPS_SERVE_EXPORTERS_H */
