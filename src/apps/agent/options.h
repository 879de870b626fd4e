/* SPDX-License-Identifier: Apache-2.0 */
/** @file Command line of `weir agent`. */
#ifndef WEIR_APPS_AGENT_OPTIONS_H
#define WEIR_APPS_AGENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "confio/secret.h"
#include "model/endpoint_t.h"
#include "net/fetch.h"

enum { AGENT_MODELS_MAX = 64, AGENT_PAIRS_MAX = 64 };

/** Texts are borrowed from argv and the environment. */
struct agent_options {
    const char *registry;
    struct slice service;
    struct slice advertise;
    struct slice host; /**< of advertise */
    uint16_t port;     /**< of advertise */
    struct slice id;
    enum engine_kind engine; /**< ENGINE_UNKNOWN = find out */
    const char *engine_url;  /**< without a slash at its end */
    const char *gpus;
    bool gpus_by_cuda; /**< gpus is CUDA_VISIBLE_DEVICES */
    struct slice gpu_type;
    struct slice models[AGENT_MODELS_MAX];
    uint32_t n_models;
    struct slice model_version;
    uint64_t interval_ns;
    uint64_t ttl_ns;
    uint64_t timeout_ns; /**< of one question to registry, engine or exporter */
    uint64_t drain_ns;
    uint64_t kill_ns;
    uint32_t weight;
    uint32_t max_concurrency;
    struct slice region, zone, cluster;
    struct kv metadata[AGENT_PAIRS_MAX];
    uint32_t n_metadata;
    struct kv labels[AGENT_PAIRS_MAX];
    uint32_t n_labels;
    const char *dcgm;              /**< URL of an exporter's page; NULL = the drivers are asked */
    struct fetch_tls tls;          /**< for https, of all three */
    const char *nvml;              /**< NULL = the usual library */
    const char *sysfs;             /**< NULL = /sys */
    bool devices;                  /**< print the devices and end */
    char **command;                /**< NULL-terminated; NULL = none */
    const char *username;          /**< WEIR_NACOS_USERNAME, WEIR_ETCD_USERNAME */
    const char *password;          /**< likewise */
    char url_room[256];            /**< behind engine_url */
    char token[CONFIO_TOKEN_SIZE]; /**< empty = none */
};

/**
 * Says on stderr what is wrong, on stdout what --help asks for.
 * @return -1 to go on, else the exit status.
 */
int agent_options_parse(int argc, char **argv, struct agent_options *o);

#endif /* WEIR_APPS_AGENT_OPTIONS_H */
