/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file A small JSON document as a tree in an arena, for documents that have to be read in their own order. What may
 * be large is scanned (wire/json_scan.h) instead.
 */
#ifndef WEIR_WIRE_JSON_TREE_H
#define WEIR_WIRE_JSON_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

enum json_node_kind {
    JSON_NODE_NULL,
    JSON_NODE_FALSE,
    JSON_NODE_TRUE,
    JSON_NODE_NUMBER,
    JSON_NODE_STRING,
    JSON_NODE_ARRAY,
    JSON_NODE_OBJECT,
};

struct json_node {
    enum json_node_kind kind;
    struct slice key;        /**< of a member of an object, unescaped */
    struct slice text;       /**< string: unescaped; number: as written */
    struct json_node *first; /**< of an array or object, in order */
    struct json_node *next;
    uint32_t n; /**< children */
};

/**
 * @param a all of it lives there; its cap is the cap on the tree.
 * @return 0; WEIR_E_PROTO: not one JSON value; WEIR_E_FULL: too deep, or a text too long; WEIR_E_NOMEM.
 */
int wire_json_tree(struct arena *a, struct slice text, const struct json_node **root) MUST_CHECK;

/** The last member of that name, as Python and JavaScript have it; NULL: none, not an object, or o is NULL. */
const struct json_node *wire_json_get(const struct json_node *o, const char *key);

static inline bool wire_json_is(const struct json_node *n, enum json_node_kind kind)
{
    return n && n->kind == kind;
}

/** The text of a string; absent for anything else, and for NULL. */
struct slice wire_json_text(const struct json_node *n);

/** A number; false for anything else. */
bool wire_json_number(const struct json_node *n, double *out);

#endif /* WEIR_WIRE_JSON_TREE_H */
