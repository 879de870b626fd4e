/* SPDX-License-Identifier: Apache-2.0 */
/** @file What Nacos (HTTP, v1 API) is sent and what it answers. Pure. */
#ifndef WEIR_REPORT_NACOS_CODEC_H
#define WEIR_REPORT_NACOS_CODEC_H

#include <stdint.h>

#include "base/buf.h"
#include "model/update_t.h"

/** Metadata in whole, keys and values: servers of 2.x refuse more. */
enum { NACOS_METADATA_MAX = 1024 };

/** Where in Nacos an instance lives. */
struct nacos_place {
    struct slice namespace_id; /**< absent: the default one */
    struct slice group;        /**< absent: DEFAULT_GROUP */
    struct slice cluster;      /**< absent: DEFAULT */
};

/** "nacos://host:8848/nacos?namespace=N&group=G&cluster=C", also nacos+https. */
struct nacos_url {
    bool tls;
    struct slice authority;
    struct slice path; /**< "/nacos" when none is given; no slash at its end */
    struct nacos_place place;
};

/** WEIR_E_INVALID: not such a URL, an unknown or empty parameter, or a name that Nacos would refuse. Borrowed. */
int report_nacos_url(struct slice text, struct nacos_url *out) MUST_CHECK;

/** "name=value" with value percent-encoded, and "&" before it unless out is empty. */
void report_nacos_put_pair(struct buf *out, const char *name, struct slice value);

/** serviceName, ip, port, cluster, group, namespace as a query or form. */
int report_nacos_write_place(struct buf *out,
                             const struct instance *in,
                             const struct nacos_place *p) MUST_CHECK;
/**
 * The form of a registration: place, weight, and the metadata as a whole: the mark, the contract's keys for identity and
 * for the sample's known values, then the instance's own metadata.
 * @param left_out keys that found no room within NACOS_METADATA_MAX.
 */
int report_nacos_write_instance(struct buf *out,
                                const struct instance *in,
                                const struct nacos_place *p,
                                const struct sample *s,
                                uint32_t *left_out) MUST_CHECK;
/** username and password as a form. */
int report_nacos_write_login(struct buf *out,
                             struct slice username,
                             struct slice password) MUST_CHECK;

/** Who holds the address, by the answer of instance/list. */
enum nacos_holder { NACOS_FREE, NACOS_OURS, NACOS_ANOTHERS };
/** WEIR_E_INVALID: no such answer. */
int report_nacos_read_list(struct slice body,
                           const struct instance *in,
                           struct slice cluster,
                           enum nacos_holder *out) MUST_CHECK;
/** Beat's {"code","clientBeatInterval"}; interval_ms is 0 when not told. WEIR_E_INVALID. */
int report_nacos_read_beat(struct slice body, uint64_t *code, uint64_t *interval_ms) MUST_CHECK;
/** Login's {"accessToken","tokenTtl"}; the token is appended to out. WEIR_E_INVALID. */
int report_nacos_read_login(struct slice body, struct buf *token, uint64_t *ttl_s) MUST_CHECK;

#endif /* WEIR_REPORT_NACOS_CODEC_H */
