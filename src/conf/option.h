/* SPDX-License-Identifier: Apache-2.0 */
/** @file The option table: what every key is. Internal to conf, except that tests walk it. */
#ifndef WEIR_CONF_OPTION_H
#define WEIR_CONF_OPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/** What a value is in the text, and in memory at its offset. */
enum conf_type {
    CONF_T_BOOL,        /**< true or false: bool */
    CONF_T_COUNT,       /**< digits: uint32_t */
    CONF_T_RATE,        /**< "100/s": uint32_t */
    CONF_T_WEIGHT,      /**< "0.5": uint32_t, thousandths */
    CONF_T_FACTOR,      /**< "1.25": uint32_t, Q16.16 */
    CONF_T_DURATION,    /**< "10ms": uint64_t, ns */
    CONF_T_SIZE,        /**< "64KiB": uint64_t, bytes */
    CONF_T_WORD,        /**< one of words: an enum whose values are their positions */
    CONF_T_TEXT,        /**< struct slice, max bytes */
    CONF_T_ADDRESS,     /**< "127.0.0.1:80" or the zero word: struct conf_address */
    CONF_T_SECRET,      /**< "file:PATH" or "env:NAME": struct conf_secret */
    CONF_T_FILE,        /**< "file:PATH" or the zero word: struct slice, the path */
    CONF_T_WORDS,       /**< list of words: uint32_t, a bit for each position */
    CONF_T_TEXTS,       /**< list of texts: struct raw_texts */
    CONF_T_HASH_ON,     /**< list: struct raw_hash_on */
    CONF_T_LABELS,      /**< map of texts: struct raw_labels */
    CONF_T_GPU_WEIGHTS, /**< map of weights: struct raw_gpu_weights */
    CONF_T_CURVE,       /**< map of percent to factor: struct raw_curve */
    CONF_T_SECTION,     /**< map with the keys of child: its struct, in place */
    CONF_T_LIST,        /**< list of such maps: struct raw_list of child's items */
    CONF_T_MAP,         /**< the same, each under a name of the user's */
    CONF_T_LATER,       /**< known, but not in this version */
};

enum {
    CONF_REQUIRED = 1,
    /**< must be given */ CONF_LIVE = 2 /**< can change without a restart */
};

struct conf_section;

struct conf_option {
    const char *key;
    enum conf_type type;
    uint32_t flags;
    uint32_t offset;
    uint64_t min,
        max; /**< of numbers, in memory units; for text, lists and maps max is the most bytes or entries */
    const char *fallback; /**< as it would be written; NULL: absent or empty */
    const char
        *zero; /**< the word for 0 or absent; NULL: none. 0 itself is then taken too, below min */
    const char *const *words; /**< NULL at the end */
    const char *const *later; /**< words of versions to come; NULL: none */
    const struct conf_section *child;
    /** Bits of positions in the words of the section's "type": only with one of those may it be given; 0 = with any. */
    uint32_t only;
    const char *
        with; /**< a text beside it without which it does not count, and is not printed; NULL: none */
    const char *doc; /**< one sentence */
};

struct conf_section {
    const char *name; /**< "routes[]": for the reference */
    uint32_t size;    /**< bytes of one item in a raw_list */
    const struct conf_option *options;
    uint32_t n_options;
};

/** The top level. */
extern const struct conf_section conf_root;
/** The top level of a file of endpoints: what it fills is a raw_source. */
extern const struct conf_section conf_endpoints_root;

/** Does the option count with the "type" that stands in base? */
bool conf_option_counts(const struct conf_section *s,
                        const struct conf_option *o,
                        const void *base);

/** NULL when there is none. */
const struct conf_option *conf_option_find(const struct conf_section *s, struct slice key);

#endif /* WEIR_CONF_OPTION_H */
