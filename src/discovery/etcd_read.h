/* SPDX-License-Identifier: Apache-2.0 */
/** @file Reading what etcd's JSON gateway answers, and what it is sent. Asks nothing, keeps nothing. */
#ifndef WEIR_DISCOVERY_ETCD_READ_H
#define WEIR_DISCOVERY_ETCD_READ_H

#include "base/arena.h"
#include "base/buf.h"
#include "model/update_t.h"

struct etcd_kv {
    struct slice key;   /**< decoded */
    struct slice value; /**< decoded; absent when deleted */
    bool deleted;
    bool leased;
    uint64_t created; /**< revision */
};

/** An answer of range, or one line of a watch. */
struct etcd_answer {
    uint64_t revision; /**< of the header */
    struct etcd_kv *kvs;
    uint32_t n;
    bool canceled;    /**< the watch is over */
    bool compacted;   /**< because what it asked for is not kept any more */
    struct slice why; /**< of canceled, or of an error; absent: none was told */
};

/** @param out borrowed from the arena. @return 0; WEIR_E_INVALID: no such answer; WEIR_E_NOMEM (also at the arena's cap). */
int etcd_read_range(struct arena *a, struct slice body, struct etcd_answer *out) MUST_CHECK;
int etcd_read_watch(struct arena *a, struct slice line, struct etcd_answer *out) MUST_CHECK;
/** {"token"}; results as above. */
int etcd_read_token(struct arena *a, struct slice body, struct slice *out) MUST_CHECK;

/**
 * The endpoint of one key: a document of the native API. Its key is that behind the prefix; a lease vouches for it; without
 * an epoch of its own the revision that made the key is one.
 * @param why out: what is wrong with it. @return 0, WEIR_E_INVALID, WEIR_E_NOMEM.
 */
int etcd_read_endpoint(struct arena *a,
                       const struct etcd_kv *kv,
                       struct slice prefix,
                       struct instance *out,
                       char why[640]) MUST_CHECK;

/** {"key","range_end"} of all keys below the prefix, as members without braces. @return 0, or the buffer's sticky error. */
int etcd_write_keys(struct buf *out, struct slice prefix) MUST_CHECK;
int etcd_write_login(struct buf *out, struct slice name, struct slice password) MUST_CHECK;

#endif /* WEIR_DISCOVERY_ETCD_READ_H */
