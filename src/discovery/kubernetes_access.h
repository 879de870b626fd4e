/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file How the API server is reached: by a kubeconfig, by what the configuration says of servers, or as every pod may. All
 * of it can change on disk, and a pod's token does each hour. Internal to discovery. Thread: the control loop.
 */
#ifndef WEIR_DISCOVERY_KUBERNETES_ACCESS_H
#define WEIR_DISCOVERY_KUBERNETES_ACCESS_H

#include "confio/kubeconfig.h"
#include "discovery/remote.h"

struct kube_access {
    struct kubeconfig file; /**< empty without one */
    struct arena arena;     /**< of what is made up here */
    struct fetch_tls tls;
    const struct slice *servers;
    uint32_t n_servers;
    struct slice ns; /**< never absent */
    char *token;     /**< NULL: none */
};

/**
 * Read it, blocking on small files.
 * @param out owned by the caller: kube_access_fini(); borrows from conf. @return 0, or an error that was said in the log.
 */
int kube_access_read(const struct remote *r,
                     const struct conf_source *conf,
                     struct kube_access *out) MUST_CHECK;
/** Wipes what is secret. Harmless when zeroed. */
void kube_access_fini(struct kube_access *a);

#endif /* WEIR_DISCOVERY_KUBERNETES_ACCESS_H */
