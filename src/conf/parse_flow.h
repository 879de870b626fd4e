/* SPDX-License-Identifier: Apache-2.0 */
/** @file Small lists and maps, and the checks that they share with conf/parse.c. Internal to conf. */
#ifndef WEIR_CONF_PARSE_FLOW_H
#define WEIR_CONF_PARSE_FLOW_H

#include "conf/parse.h"

/** Nothing written, or ~ or null. */
bool conf_node_null(const struct conf_node *n);

/** Number of children of a map or list. */
uint32_t conf_children(const struct build *b, uint32_t node);

/** May the children be walked? If not, that is told, except that an empty value where a list or map belongs sets nothing. */
bool conf_want_kind(struct build *b,
                    uint32_t node,
                    enum conf_kind kind,
                    uint64_t max,
                    const struct conf_path *path);

/** Is it a single value? If not, that is told. */
bool conf_want_scalar(struct build *b, uint32_t node, const struct conf_path *path);

/** Zeroed, from the arena; NULL with b->nomem set. */
void *conf_array(struct build *b, uint32_t n, size_t size);

/** A name that the user gives: the key of a node. Told when it is none. */
bool conf_parse_name(struct build *b,
                     uint32_t node,
                     const struct conf_path *path,
                     struct slice *out);

/** Key of `node` was there before, at `first`. */
void conf_fail_twice(struct build *b, uint32_t node, uint32_t first, const struct conf_path *path);

/** What a conf_*_parse() of conf/scalar.h returned. */
void conf_fail_why(struct build *b,
                   const struct conf_place *at,
                   const struct conf_path *path,
                   int rc,
                   const struct conf_why *why);

/** Each one type of the option table; errors are told and what is right is kept. */
void conf_parse_words(struct build *b,
                      const struct conf_option *o,
                      uint32_t node,
                      uint32_t *out,
                      const struct conf_path *path);
void conf_parse_texts(struct build *b,
                      const struct conf_option *o,
                      uint32_t node,
                      struct raw_texts *out,
                      const struct conf_path *path);
void conf_parse_hash_on(struct build *b,
                        const struct conf_option *o,
                        uint32_t node,
                        struct raw_hash_on *out,
                        const struct conf_path *path);
void conf_parse_labels(struct build *b,
                       const struct conf_option *o,
                       uint32_t node,
                       struct raw_labels *out,
                       const struct conf_path *path);
void conf_parse_gpu_weights(struct build *b,
                            const struct conf_option *o,
                            uint32_t node,
                            struct raw_gpu_weights *out,
                            const struct conf_path *path);
void conf_parse_curve(struct build *b,
                      const struct conf_option *o,
                      uint32_t node,
                      struct raw_curve *out,
                      const struct conf_path *path);

#endif /* WEIR_CONF_PARSE_FLOW_H */
