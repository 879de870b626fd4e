/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Who an endpoint is: the slow, immutable identity. How it is lives in model/cell_t.h.
 * All text is borrowed from the snapshot that holds the endpoint.
 */
#ifndef WEIR_MODEL_ENDPOINT_T_H
#define WEIR_MODEL_ENDPOINT_T_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/** One key with its text; metadata and labels as they came. */
struct kv {
    struct slice key;
    struct slice value;
};

/** What an endpoint can do; a bit set. */
enum task {
    TASK_CHAT = 1 << 0,
    TASK_COMPLETION = 1 << 1,
    TASK_EMBEDDING = 1 << 2,
    TASK_RERANK = 1 << 3,
    TASK_AUDIO = 1 << 4,
    TASK_IMAGE = 1 << 5,
    TASK_OTHER = 1 << 6,
};

/** Which number says what fits (design section 3, Memory). */
enum engine_kind {
    ENGINE_UNKNOWN = 0, /**< device bytes, when known */
    ENGINE_VLLM,        /**< preallocates: free KV tokens decide */
    ENGINE_SGLANG,      /**< as vLLM */
    ENGINE_TGI,
    ENGINE_TEI,
    ENGINE_LLAMACPP, /**< device bytes */
    ENGINE_TRITON,   /**< device bytes */
    ENGINE_OLLAMA,
    ENGINE_WEIR_WORKER, /**< the emulated worker: as vLLM */
    ENGINE_TRTLLM,      /**< trtllm-serve: as vLLM */
    ENGINE_FASTCHAT,    /**< a FastChat model worker: device bytes */
    ENGINE_TFSERVING,   /**< TensorFlow Serving */
    ENGINE_SDWEBUI,     /**< Stable Diffusion webui: one job at a time */
    ENGINE_OIP,         /**< any other server of the Open Inference Protocol (KServe v2) */
    ENGINE_GENERIC,
};

/** Does it take nearly the whole device at its start, so that free KV tokens say what fits? */
bool model_preallocates(enum engine_kind kind);

enum endpoint_role {
    ROLE_UNIFIED = 0,
    ROLE_PREFILL,
    ROLE_DECODE,
    ROLE_GROUP_HEAD,
    ROLE_GROUP_MEMBER
};

/** One model an endpoint serves. */
struct model_ref {
    struct slice id;
    struct slice version;   /**< absent: unknown */
    struct slice lora_base; /**< present: this is a LoRA of that base model */
    uint32_t max_model_len; /**< tokens; 0 = unknown */
    bool loading;           /**< listed, but its engine says that it is still being loaded */
};

/** One GPU. */
struct device {
    struct slice uuid;           /**< absent: unknown */
    struct slice type;           /**< "A100"; absent: unknown */
    uint64_t memory_total_bytes; /**< 0 = unknown */
};

/** Most entries a single endpoint may carry; a registration above is refused with a clear error. */
enum {
    ENDPOINT_SERVICES_MAX = 16,
    ENDPOINT_MODELS_MAX = 256,
    ENDPOINT_DEVICES_MAX = 64,
    ENDPOINT_KV_MAX = 256,
    ENDPOINT_TEXT_MAX = 512, /**< bytes of any single id, name or address */
};

/** Weights are thousandths: 1000 is weight 1; range 0 .. 10,000,000. */
enum { WEIGHT_ONE = 1000, WEIGHT_MAX = 10000000 };

/** Identity of one endpoint: one (scheme, host, port). */
struct endpoint {
    uint32_t slot;        /**< index in the fleet table; reused after the endpoint is gone */
    uint32_t generation;  /**< tells users of one slot apart; starts at 1 */
    uint64_t seq;         /**< of the first snapshot that shows it as it is here */
    struct slice id;      /**< what people and metrics call it: its own id, else host:port */
    struct slice service; /**< the first of services */
    const struct slice *services;
    uint32_t n_services;
    bool tls;          /**< scheme https */
    struct slice host; /**< name or literal address, IPv6 without brackets */
    uint16_t port;
    struct slice authority; /**< host:port as it stands in URLs and Host */
    const struct model_ref *models;
    uint32_t n_models;
    bool models_probed; /**< models were learned by asking the endpoint; no source tells them */
    uint32_t tasks;     /**< enum task bits; 0 = not told, so any */
    const struct device *devices;
    uint32_t n_devices;
    bool devices_probed;         /**< found out by an exporter of its host; no source tells any */
    struct slice gpu_type;       /**< of the first device, or from metadata; absent: unknown */
    uint64_t memory_total_bytes; /**< of all its devices; 0 = unknown */
    uint32_t weight;             /**< thousandths, from the registry */
    bool enabled;
    bool draining;
    bool registry_healthy; /**< what its registry says; false keeps it out */
    /**
     * A live lease speaks for it, so it is used before our first probe: some source that describes it set
     * instance.vouched and not instance.probation. A static URL, or one from saved state, is not vouched for.
     */
    bool vouched;
    enum endpoint_role role;
    enum engine_kind engine;
    bool engine_probed;                 /**< engine was found out by asking; no source tells it */
    uint32_t max_concurrency;           /**< 0 = unlimited */
    struct slice region, zone, cluster; /**< absent: unknown */
    const struct kv *labels;
    uint32_t n_labels;
    const struct kv *metadata; /**< all of it, as it came */
    uint32_t n_metadata;
    uint16_t source; /**< index of the first source that describes it */
};

/** Does it have all of these labels? Cost: n x its labels. */
bool model_labelled(const struct endpoint *e, const struct kv *labels, uint32_t n);

#endif /* WEIR_MODEL_ENDPOINT_T_H */
