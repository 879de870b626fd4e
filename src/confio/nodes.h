/* SPDX-License-Identifier: Apache-2.0 */
/** @file YAML text to conf's nodes. Internal to confio. */
#ifndef WEIR_CONFIO_NODES_H
#define WEIR_CONFIO_NODES_H

#include "base/arena.h"
#include "conf/error.h"
#include "conf/node.h"

/** Nodes with their text in one arena. */
struct confio_nodes {
    struct arena arena;
    struct conf_node *list; /**< owned */
    uint32_t n;
    uint32_t cap;
};

void confio_nodes_init(struct confio_nodes *n, const struct mem *mem);
void confio_nodes_fini(struct confio_nodes *n);

/**
 * One document at most; none gives no nodes.
 * @return 0; WEIR_E_INVALID with an error; WEIR_E_NOMEM.
 */
int confio_yaml_parse(struct slice file,
                      struct slice text,
                      struct confio_nodes *out,
                      struct conf_errors *errors) MUST_CHECK;

#endif /* WEIR_CONFIO_NODES_H */
