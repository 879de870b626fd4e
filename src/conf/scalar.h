/* SPDX-License-Identifier: Apache-2.0 */
/** @file One value from text to memory and back, as its option says. Internal to conf. */
#ifndef WEIR_CONF_SCALAR_H
#define WEIR_CONF_SCALAR_H

#include "base/arena.h"
#include "base/buf.h"
#include "conf/option.h"
#include "conf/raw.h"

enum { CONF_NUMBER_TEXT = 32, CONF_WHY_PARTS = 32 };

/** Why a value was refused: pieces of one sentence, borrowed from the value, the table and the text here. */
struct conf_why {
    struct slice parts[CONF_WHY_PARTS];
    uint32_t n;
    char number[CONF_NUMBER_TEXT];
};

static inline void conf_why_put(struct conf_why *w, struct slice s)
{
    if (w->n < CONF_WHY_PARTS)
        w->parts[w->n++] = s;
}

/**
 * @param at where to write; untouched on failure.
 * @return 0; WEIR_E_INVALID with `why`; WEIR_E_NOMEM.
 */
int conf_scalar_parse(const struct conf_option *o,
                      struct slice text,
                      struct arena *a,
                      void *at,
                      struct conf_why *why) MUST_CHECK;

/** "header:Name" and the like. */
int conf_hash_on_parse(struct slice text,
                       struct arena *a,
                       struct hash_on *out,
                       struct conf_why *why) MUST_CHECK;

/** The bit of one word of a CONF_T_WORDS option. */
int conf_word_parse(const struct conf_option *o,
                    struct slice text,
                    uint32_t *out,
                    struct conf_why *why) MUST_CHECK;

/** A text of at most max bytes without control characters, copied. */
int conf_text_parse(struct slice text,
                    uint64_t max,
                    struct arena *a,
                    struct slice *out,
                    struct conf_why *why) MUST_CHECK;

/** A number as it would be written, exact. @return the part of `out` that was used. */
struct slice conf_number_text(enum conf_type type, uint64_t v, char out[CONF_NUMBER_TEXT]);

/** Does the value stand for nothing, so that it is not printed? */
bool conf_scalar_absent(const struct conf_option *o, const void *at);

/** The value as YAML and JSON both read it. */
void conf_scalar_print(const struct conf_option *o, const void *at, struct buf *out);

/** "header:Name" as a JSON string. */
void conf_hash_on_print(const struct hash_on *h, struct buf *out);

#endif /* WEIR_CONF_SCALAR_H */
