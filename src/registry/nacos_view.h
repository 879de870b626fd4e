/* SPDX-License-Identifier: Apache-2.0 */
/** @file Records as Nacos clients see them: live numbers in the metadata, protection threshold, pages of services. */
#ifndef WEIR_REGISTRY_NACOS_VIEW_H
#define WEIR_REGISTRY_NACOS_VIEW_H

#include "registry/nacos_codec.h"
#include "registry/registry_priv.h"

/**
 * One record in one service. A native endpoint's typed fields and last load appear under the contract's metadata keys,
 * unless it has such a key itself; current_requests is the live number where it is known.
 * @param out borrowed from r and the arena. @return 0 or WEIR_E_NOMEM.
 */
int nacos_view(const struct registry *registry,
               struct arena *a,
               const struct record *r,
               struct slice grouped,
               struct nacos_host_view *out) MUST_CHECK;

/** The instances of a service (NULL: none) that a list shows. @param bare an array of them, nothing around it (v3). */
int nacos_write_service(const struct registry *registry,
                        struct arena *a,
                        const struct service *service,
                        struct nacos_list_view *v,
                        bool healthy_only,
                        bool bare,
                        struct buf *out) MUST_CHECK;

/** The service itself. */
void nacos_write_service_info(struct buf *out, const struct service *service);

/** One page of the names of a group, sorted; in the arena. */
struct nacos_names {
    uint32_t count; /**< of all */
    const struct slice *list;
    uint32_t n;
};
/** @param page from 1. @return 0 or WEIR_E_NOMEM. */
int nacos_find_services(const struct store *store,
                        struct arena *a,
                        struct slice ns,
                        struct slice group,
                        uint64_t page,
                        uint64_t size,
                        struct nacos_names *out) MUST_CHECK;
/** {"count","doms"}. */
void nacos_write_services(const struct nacos_names *names, struct buf *out);

#endif /* WEIR_REGISTRY_NACOS_VIEW_H */
