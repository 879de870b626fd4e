/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Lists of instances as Nacos answers and pushes them: v1 of 1.4 and 2.x, v2, v3 client, SubscribeServiceResponse
 * and NotifySubscriberRequest of gRPC. Pure.
 */
#ifndef WEIR_DISCOVERY_NACOS_LIST_CODEC_H
#define WEIR_DISCOVERY_NACOS_LIST_CODEC_H

#include "base/arena.h"
#include "model/update_t.h"

struct nacos_listed {
    struct nacos_listed *next;
    struct instance instance; /**< key: "host:port#cluster"; services are not set */
};

/** All text in the arena. Fields that were not told are absent or 0. */
struct nacos_answer {
    uint64_t code;           /**< resultCode, errorCode or code */
    bool coded;              /**< one of them was there */
    uint64_t error;          /**< errorCode of gRPC; 0 = none */
    struct slice message;    /**< words of an error */
    struct slice request_id; /**< of a pushed request */
    struct slice name, group;
    bool has_hosts;  /**< there was a list, maybe an empty one */
    bool protected_; /**< reachProtectionThreshold: "healthy" says nothing */
    struct nacos_listed *first;
    uint32_t n;
    uint32_t bad; /**< instances that could not be read */
};

/**
 * Read an answer. In a protected list nobody is vouched for.
 * @param a holds what out points to; its cap is that of the list.
 * @return 0; WEIR_E_INVALID: not JSON, or cut short; WEIR_E_NOMEM. Cost: O(n).
 */
int nacos_list_read(struct arena *a, struct slice body, struct nacos_answer *out) MUST_CHECK;

/** Digest of an answer but for the time in it (lastRefTime), which some servers renew each time. Cost: O(n). */
uint64_t nacos_list_hash(struct slice body);

#endif /* WEIR_DISCOVERY_NACOS_LIST_CODEC_H */
