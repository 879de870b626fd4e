/* SPDX-License-Identifier: Apache-2.0 */
/** @file What store.c and store_lease.c share. */
#ifndef WEIR_REGISTRY_STORE_PRIV_H
#define WEIR_REGISTRY_STORE_PRIV_H

#include "registry/store.h"

static inline void store_event(struct store *s,
                               enum store_event event,
                               const struct record *r,
                               enum store_reason reason)
{
    if (s->o.on_event)
        s->o.on_event(s->o.ctx, event, r, reason);
}

static inline int sink_upsert(struct store *s, const struct instance *i)
{
    return s->o.sink.upsert ? s->o.sink.upsert(s->o.sink.ctx, s->o.source, i) : 0;
}

/** DEFAULT says nothing about where an instance is. */
static inline struct slice record_cluster(const char *cluster)
{
    struct slice s = slice_str(cluster);

    return slice_eq(s, SLICE(NACOS_CLUSTER)) ? (struct slice){NULL, 0} : s;
}

/* --- lookup keys, put together on the stack --- */

enum { KEY_MAX = 2048 };

/** Text of a lookup key, put together on the stack. */
struct key_text {
    char p[KEY_MAX];
    size_t n;
    bool over;
};

void key_add(struct key_text *k, struct slice s);
struct slice key_slice(const struct key_text *k);
/** namespace LF grouped */
void service_key(struct key_text *k, struct slice ns, struct slice grouped);
/** namespace LF grouped LF address */
void nacos_key(struct key_text *k, struct slice ns, struct slice grouped, struct slice address);

/* --- services --- */

/** The service, made when there is none. */
int service_get(struct store *s, struct slice ns, struct slice grouped, struct service **out)
    MUST_CHECK;
/** It lost a link: gone when that was the last and nobody keeps it. */
void service_release(struct store *s, struct service *v);

/* --- records --- */

/** A record outside of every table. */
int record_new(struct store *s,
               enum record_kind kind,
               const struct instance *in,
               struct record **out) MUST_CHECK;
void record_free(struct store *s, struct record *r);
/** The parts as one text in the record's memory. */
int record_join(struct arena *a, const struct slice *parts, unsigned n, struct slice *out)
    MUST_CHECK;
/** Set instance.key: the parts joined, or their begin and a hash when that is too long for a key. */
int record_join_key(struct record *r, const struct slice *parts, unsigned n) MUST_CHECK;
int record_set_cluster(struct store *s, struct record *r, struct slice cluster) MUST_CHECK;

/** A new Nacos instance; the caller has looked that there is none. */
int nacos_create(struct store *s, const struct nacos_write *w, uint64_t now_ns, struct record **out)
    MUST_CHECK;

/** Read the preserved.* keys into r. WEIR_E_RANGE (r unchanged) when a timeout is below the interval. */
int beat_rules(struct record *r, const struct kv *metadata, uint32_t n) MUST_CHECK;

/** When the lease of r next does something, given its alive_ns. */
uint64_t lease_due(const struct record *r, bool healthy);

#endif /* WEIR_REGISTRY_STORE_PRIV_H */
