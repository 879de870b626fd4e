/* SPDX-License-Identifier: Apache-2.0 */
/** @file A kubeconfig: how its current context reaches the API server. */
#ifndef WEIR_CONFIO_KUBECONFIG_H
#define WEIR_CONFIO_KUBECONFIG_H

#include "base/arena.h"
#include "conf/error.h"

enum { KUBECONFIG_FILE_MAX = 1 << 20 };

/** All text is terminated and borrowed from the arena; absent: not given. PEM text beats the path beside it. */
struct kubeconfig {
    struct arena arena;
    struct slice server; /**< never absent */
    struct slice ns;
    struct slice server_name;
    bool insecure;                          /**< insecure-skip-tls-verify */
    struct slice ca, cert, key, token_file; /**< paths; relative ones are the file's folder's */
    struct slice ca_pem, cert_pem, key_pem;
    struct slice token;
};

/**
 * Reads the file. What cannot be done (plugins, passwords, proxies, acting as somebody else) is an error, not ignored.
 * @param out owned by the caller (confio_kubeconfig_fini), also after an error.
 * @return 0; WEIR_E_INVALID or WEIR_E_IO with an error; WEIR_E_NOMEM. Blocks on the file.
 */
int confio_kubeconfig(const struct mem *mem,
                      const char *path,
                      struct kubeconfig *out,
                      struct conf_errors *errors) MUST_CHECK;

/** The same from memory. @param path of the file: for errors and relative paths. */
int confio_kubeconfig_text(const struct mem *mem,
                           const char *path,
                           struct slice text,
                           struct kubeconfig *out,
                           struct conf_errors *errors) MUST_CHECK;

/** Wipes what is secret. */
void confio_kubeconfig_fini(struct kubeconfig *k);

#endif /* WEIR_CONFIO_KUBECONFIG_H */
