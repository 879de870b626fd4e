/* SPDX-License-Identifier: Apache-2.0 */
/** @file Command line of `weir worker`. */
#ifndef WEIR_APPS_WORKER_OPTIONS_H
#define WEIR_APPS_WORKER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "apps/worker/fault.h"
#include "base/slice.h"
#include "confio/secret.h"
#include "engine/profile.h"
#include "model/endpoint_t.h"

enum { WORKER_MODELS_MAX = 64, WORKER_METADATA_MAX = 64 };

/** Texts are borrowed from argv. */
struct worker_options {
    const char *host;
    uint16_t port;
    const struct engine_profile *gpu;
    struct slice models[WORKER_MODELS_MAX];
    uint32_t n_models;
    struct slice model_version; /**< absent: not told */
    double time_scale;
    struct fault fault;
    struct slice fault_text;
    const char *registry; /**< NULL = none */
    const char *service;
    uint64_t report_ns;
    uint64_t ttl_ns;
    uint64_t timeout_ns; /**< of an exchange with the registry */
    uint64_t kv_tokens;
    uint32_t max_num_seqs;
    uint32_t max_model_len;
    uint32_t weight; /**< thousandths */
    uint64_t load_ns;
    uint64_t drain_ns;
    struct slice advertise; /**< absent: the bound address */
    struct slice name;      /**< absent: the advertised address */
    struct kv metadata[WORKER_METADATA_MAX];
    uint32_t n_metadata;
    uint64_t seed;
    bool early_headers;
    char token[CONFIO_TOKEN_SIZE]; /**< of the registry; empty = none */
};

/**
 * Says on stderr what is wrong, on stdout what --help asks for.
 * @return -1 to go on, else the exit status.
 */
int worker_options_parse(int argc, char **argv, struct worker_options *o);

#endif /* WEIR_APPS_WORKER_OPTIONS_H */
