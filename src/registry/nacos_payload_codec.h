/* SPDX-License-Identifier: Apache-2.0 */
/** @file The one message of Nacos' gRPC: a type's name, headers, and a body of JSON. Pure. */
#ifndef WEIR_REGISTRY_NACOS_PAYLOAD_CODEC_H
#define WEIR_REGISTRY_NACOS_PAYLOAD_CODEC_H

#include "base/buf.h"

/** The paths of its two methods. */
#define NACOS_GRPC_REQUEST "/Request/request"
#define NACOS_GRPC_STREAM  "/BiRequestStream/requestBiStream"
/** Its port stands this far above that of HTTP. */
enum { NACOS_GRPC_OFFSET = 1000 };

/** Payload{Metadata metadata=2; Any body=3}; Metadata{string type=3; string clientIp=8; map headers=7}. Borrowed. */
struct nacos_payload {
    struct slice type;  /**< Java's simple class name */
    struct slice token; /**< header accessToken; absent: none */
    struct slice body;  /**< JSON */
};

/** WEIR_E_PROTO: not such a message. Unknown fields are skipped. Cost: O(fields). */
int nacos_payload_read(struct slice message, struct nacos_payload *out) MUST_CHECK;
/** Append the message to out. @return out's error. */
int nacos_payload_write(struct buf *out, const struct nacos_payload *p) MUST_CHECK;

#endif /* WEIR_REGISTRY_NACOS_PAYLOAD_CODEC_H */
