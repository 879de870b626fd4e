/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What conf reads: a configuration file as a flat list of nodes in document order, each with its place (confio
 * makes it from YAML; a test can write one by hand), and the values from the command line.
 */
#ifndef WEIR_CONF_NODE_H
#define WEIR_CONF_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum conf_kind { CONF_NODE_SCALAR, CONF_NODE_MAP, CONF_NODE_SEQ };

/**
 * Children follow their parent: the first is i + 1, the next sibling of c is nodes[c].end.
 * Node 0 is the root. A path is the chain of parents.
 */
struct conf_node {
    enum conf_kind kind;
    bool quoted;                   /**< a scalar in quotes: text even when it looks empty */
    struct slice key;              /**< present when the parent is a map */
    struct slice text;             /**< of a scalar */
    uint32_t key_line, key_column; /**< of the key; of the value when there is no key. 1 = first */
    uint32_t line, column;         /**< of the value */
    uint32_t end;                  /**< index of the first node after this one and all below it */
};

enum {
    CONF_NODES_MAX = 100000,
    CONF_DEPTH_MAX = 32,
};

/** A value from the command line: the same option, the same checks, and it beats the file. */
struct conf_override {
    const char *origin; /**< the flag, for errors: "--port" */
    /** "health.interval"; "listeners.address" sets the first listener, "routes.queue.size" every route;
     * "+discovery" adds a static endpoint whose URL is `text`. */
    const char *path;
    enum conf_part { CONF_PART_WHOLE, CONF_PART_HOST, CONF_PART_PORT } part; /**< of an address */
    struct slice text;
};

/** All borrowed for the length of the call. */
struct conf_input {
    struct slice file;             /**< name for errors */
    const struct conf_node *nodes; /**< may be none: defaults */
    uint32_t n_nodes;
    const struct conf_override *overrides; /**< in order; later ones win */
    uint32_t n_overrides;
    uint64_t generation; /**< goes to routing.generation */
    /** The file is {endpoints: [...]} alone: a static source, which becomes sources[0]; all else has its default. */
    bool endpoints_only;
};

#endif /* WEIR_CONF_NODE_H */
