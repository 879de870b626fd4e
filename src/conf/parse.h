/* SPDX-License-Identifier: Apache-2.0 */
/** @file Nodes and overrides to struct conf_raw, and what the later steps share with it. Internal to conf. */
#ifndef WEIR_CONF_PARSE_H
#define WEIR_CONF_PARSE_H

#include "base/map.h"
#include "conf/option.h"
#include "conf/raw.h"
#include "conf/scalar.h"

/** One run of conf_build(). */
struct build {
    const struct mem *mem; /**< for work space that is freed before the end */
    const struct conf_input *in;
    struct arena *arena; /**< of the conf that is being built */
    struct conf_errors *errors;
    struct conf_raw *raw;
    struct policy *policies; /**< what c->policies points to, while it is filled */
    bool nomem;              /**< memory ran out: the errors found so far do not matter */
};

/** Where in the tree: a chain of frames on the stack, so that an error can name the whole path. */
struct conf_path {
    const struct conf_path *up;
    struct slice key; /**< absent: an index */
    uint32_t index;
};

/** Add "path: parts" at a place. @param path NULL: no path. */
void conf_fail_parts(struct build *b,
                     const struct conf_place *at,
                     const struct conf_path *path,
                     const struct slice *parts,
                     uint32_t n);
#define CONF_FAIL(b, at, path, ...)                                                                \
    conf_fail_parts(                                                                               \
        b, at, path, (const struct slice[]){__VA_ARGS__},                                          \
        (uint32_t)(sizeof((const struct slice[]){__VA_ARGS__}) / sizeof(struct slice)))

/** Place of a node's value, or of its key. */
struct conf_place conf_place_value(const struct build *b, uint32_t node);
struct conf_place conf_place_key(const struct build *b, uint32_t node);

/** The child with that key, or the n-th of a list; 0 when there is none. `node` may be 0 only for the root map. */
uint32_t conf_child(const struct build *b, uint32_t node, const char *key);
uint32_t conf_nth(const struct build *b, uint32_t node, uint32_t n);

/** Where option `key` of the map `node` was set: by the override `path` (may be NULL), in the file, or by neither. */
struct conf_place
conf_place_option(const struct build *b, uint32_t node, const char *key, const char *path);

/** Fill a section's struct with the defaults. */
void conf_defaults(struct build *b, const struct conf_section *s, void *base);

/** The whole file. Errors are added to b->errors. */
void conf_parse(struct build *b);

/** Lists that must not be empty get their one default item. */
void conf_parse_absent(struct build *b);

/** The overrides, in order. */
void conf_parse_overrides(struct build *b);

/** `policies` to c->policies. */
void conf_policies_compile(struct build *b, struct conf *c);

/** The policy of that name, the user's or a built-in one; NULL with an error. @param path NULL: not shown. */
const struct policy *conf_policy_find(struct build *b,
                                      struct conf *c,
                                      struct slice name,
                                      const struct conf_place *at,
                                      const struct conf_path *path);

/** `routes` to c->routing.routes. @param names model ids and aliases to their raw_model. */
void conf_routes_compile(struct build *b, struct conf *c, const struct map *names);

/** TLS of a place that listens; plain when it was not written. @param node, path of that place; node 0: not written. */
void conf_tls_compile(struct build *b,
                      const struct raw_tls *raw,
                      uint32_t node,
                      const struct conf_path *path,
                      struct conf_tls *out);
/** The rights of listeners[i]'s socket, and its TLS. */
void conf_listener_compile(struct build *b,
                           const struct raw_listener *raw,
                           uint32_t i,
                           const struct conf_path *path,
                           struct conf_listener *out);
/** `upstream_tls` to c. */
void conf_upstream_tls_compile(struct build *b, struct conf *c);

/** Cross-checks, then the model's structs. Only when no error was found so far are all checks meaningful. */
void conf_compile(struct build *b, struct conf *c);

#endif /* WEIR_CONF_PARSE_H */
