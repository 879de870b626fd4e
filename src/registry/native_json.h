/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The JSON of the native API: documents in (jansson), strict, with errors that name the field; views out.
 * docs/registry.md is the description for users.
 */
#ifndef WEIR_REGISTRY_NATIVE_JSON_H
#define WEIR_REGISTRY_NATIVE_JSON_H

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "registry/store.h"

/** Why a document was refused. */
struct native_error {
    const char *code; /**< "invalid_json", "unknown_field", "missing_field", "invalid_field" */
    char field[128];  /**< path of the field, "" when it is the document */
    char message[384];
};

/** An endpoint document; everything borrowed from the arena it was read into. */
struct native_doc {
    struct instance instance;
    uint64_t ttl_ns;
    bool has_epoch;
};

/** @return NULL with error filled, or a reference the caller owns. */
json_t *native_load_json(struct slice text, struct native_error *error);

/** @return 0, WEIR_E_INVALID (error filled), WEIR_E_NOMEM. */
int native_read_endpoint(struct arena *a,
                         const json_t *doc,
                         struct native_doc *out,
                         struct native_error *error) MUST_CHECK;

/** A load report; received_ns is the caller's to set. Results as above. */
int native_read_load(const json_t *doc, struct sample *out, struct native_error *error) MUST_CHECK;

/** An object of strings; results as above. */
int native_read_map(struct arena *a,
                    const json_t *doc,
                    const char *field,
                    const struct kv **kv,
                    uint32_t *n,
                    struct native_error *error) MUST_CHECK;

/** What an API reader sees beside the registration. */
struct native_view {
    uint64_t now_ns;
    bool has_requests;
    uint32_t requests; /**< in flight now, as the gateway counts */
};

/** The document of one instance, without a lease. */
void native_write_instance(struct buf *out, const struct instance *i);
/** The document that would register this record again. */
void native_write_doc(struct buf *out, const struct record *r);
/** The document and all that is known of the record. */
void native_write_view(struct buf *out, const struct record *r, const struct native_view *v);
/** The members of a load report without braces. */
void native_write_load(struct buf *out, const struct sample *load);

/** {"error": {...}} */
void native_write_error(struct buf *out, const char *code, const char *field, const char *message);

/** Does it serve this model, by its typed models or the metadata key model_id? */
bool native_has_model(const struct record *r, struct slice model);

/** The word for an engine kind. */
const char *native_engine_word(enum engine_kind kind);
/** The word for a reported state. */
const char *native_state_word(enum reported_state state);

#endif /* WEIR_REGISTRY_NATIVE_JSON_H */
