/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Long lists of JSON of which nearly all elements are as they were: cut into elements, without reading those that are
 * known. What is inside of one is looked at by whoever reads it. Keeps nothing.
 */
#ifndef WEIR_DISCOVERY_JSON_CUT_H
#define WEIR_DISCOVERY_JSON_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/err.h"
#include "base/slice.h"

/**
 * The text of an element, to be recognised: by its hash alone, so the hash has a seed that nobody outside knows. Whoever
 * could write two texts of one hash might hide a neighbour in the list. Zeroed: no element.
 */
struct json_seen {
    uint64_t hash;
    uint32_t n; /**< bytes */
};

static inline bool json_seen_same(struct json_seen a, struct json_seen b)
{
    return a.n == b.n && a.hash == b.hash;
}

struct json_list {
    uint64_t seed;
    struct slice rest; /**< behind the bracket; at the end of the list behind the other one */
    bool begun;
};

struct json_element {
    struct slice text;
    struct json_seen seen;
};

/** The list that a text begins with. @param seed as for those that were seen. @return false: it does not. */
bool json_list_open(struct slice text, uint64_t seed, struct json_list *out);
/** At its end: is there nothing behind it? */
bool json_list_alone(const struct json_list *l);

/**
 * The next element.
 * @param guess what may stand here, as it was seen whole; NULL or zeroed: no idea.
 * @return 1, 0 at the end of the list, or WEIR_E_INVALID. Cost: O(text), less by the factor ten where the guess is right.
 */
int json_list_next(struct json_list *l,
                   const struct json_seen *guess,
                   struct json_element *out) MUST_CHECK;

/** Read it. @return owned by the caller; NULL: it is not JSON, or no memory. */
json_t *json_element_load(const struct json_element *e);

/**
 * Walk into objects.
 * @param path keys, as written without escapes.
 * @param out the text from the value on. @return false: it is not there. Cost: O(text up to it).
 */
bool json_find(struct slice text, const struct slice *path, unsigned n, struct slice *out);

#endif /* WEIR_DISCOVERY_JSON_CUT_H */
