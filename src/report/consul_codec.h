/* SPDX-License-Identifier: Apache-2.0 */
/** @file What a Consul agent is sent. Pure. */
#ifndef WEIR_REPORT_CONSUL_CODEC_H
#define WEIR_REPORT_CONSUL_CODEC_H

#include "base/buf.h"
#include "model/update_t.h"

/** What Consul takes in Meta. */
enum { CONSUL_META_KEYS = 64, CONSUL_KEY_MAX = 128, CONSUL_VALUE_MAX = 512 };

/**
 * Body of PUT /v1/agent/service/register with a TTL check "service:ID": Meta has the mark, the contract's keys for identity
 * and for the sample's known values, then the instance's own metadata; labels are tags "k=v".
 * @param left_out keys that Consul would refuse, or that found no room. @return 0, or the buffer's sticky error.
 */
int report_consul_write_service(struct buf *out,
                                const struct instance *in,
                                const struct sample *s,
                                uint64_t ttl_ms,
                                uint32_t *left_out) MUST_CHECK;

/** Body of PUT /v1/agent/check/update/service:ID. Loading and unhealthy are critical. */
int report_consul_write_check(struct buf *out, const struct sample *s) MUST_CHECK;

#endif /* WEIR_REPORT_CONSUL_CODEC_H */
