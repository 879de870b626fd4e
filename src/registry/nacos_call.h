/* SPDX-License-Identifier: Apache-2.0 */
/** @file One call of the Nacos API: its parameters, its answers. A function that answered says so with false. */
#ifndef WEIR_REGISTRY_NACOS_CALL_H
#define WEIR_REGISTRY_NACOS_CALL_H

#include "registry/nacos_codec.h"
#include "registry/registry_priv.h"

/** Result codes of v2 and v3. */
enum {
    V3_MISSING = 10000,
    V3_DENIED = 10001,
    V3_INVALID = 20002,
    V3_WEIGHT = 21001,
    V3_NOT_FOUND = 21003,
    V3_SERVER = 30000,
};

extern const char nacos_json_type[];
extern const char nacos_text_type[];

struct nacos_call {
    struct call *c;
    struct nacos_params params;
    bool wrapped; /**< v2, v3: answers stand in code, message, data */
    bool v3;
};

/* --- answers: each ends the call --- */

/** v1: the words as text with this status; v2 and v3: JSON with this code. */
void nacos_fail(struct nacos_call *n, unsigned status, unsigned code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** A write that worked. */
void nacos_ok(struct nacos_call *n);
/** The store or the fleet refused w with rc. */
void nacos_refused(struct nacos_call *n, const struct nacos_write *w, int rc);

/* --- parameters --- */

/** A parameter, or the absent slice. */
struct slice nacos_text(const struct nacos_call *n, const char *name);
/** The one, else the other. */
struct slice nacos_text_or(const struct nacos_call *n, const char *name, const char *other);

/* The following answer with an error and return false when the call cannot go on. */

bool nacos_need(struct nacos_call *n, const char *name, struct slice *out);
bool nacos_read_namespace(struct nacos_call *n, struct slice *out);
/** Namespace and grouped name. */
bool nacos_read_service(struct nacos_call *n, struct nacos_write *w);
bool nacos_read_address(struct nacos_call *n,
                        struct slice ip,
                        struct slice port,
                        struct nacos_write *w);
bool nacos_read_cluster(struct nacos_call *n, struct nacos_write *w);
/** @param text absent: nothing is read. */
bool nacos_read_metadata(struct nacos_call *n, struct slice text, struct nacos_write *w);
/** Everything an instance call may carry. */
bool nacos_read_instance(struct nacos_call *n, struct nacos_write *w);

/** The record w names, or NULL. */
struct record *nacos_find(struct nacos_call *n, const struct nacos_write *w);

/* --- handlers about instances --- */

void nacos_post_instance(struct nacos_call *n);
void nacos_delete_instance(struct nacos_call *n);
/** PUT and PATCH: what is given changes, and outlives what the client registers again. */
void nacos_edit_instance(struct nacos_call *n);
void nacos_get_instance(struct nacos_call *n);
void nacos_get_list(struct nacos_call *n);
void nacos_put_beat(struct nacos_call *n);
void nacos_put_batch(struct nacos_call *n);
void nacos_delete_batch(struct nacos_call *n);
void nacos_any_statuses(struct nacos_call *n);

#endif /* WEIR_REGISTRY_NACOS_CALL_H */
