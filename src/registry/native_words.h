/* SPDX-License-Identifier: Apache-2.0 */
/** @file The words of the native API for the enums of model/. Tables end with a NULL name. */
#ifndef WEIR_REGISTRY_NATIVE_WORDS_H
#define WEIR_REGISTRY_NATIVE_WORDS_H

/** The first word for a value is the one that is written; later ones are only read. */
struct native_word {
    const char *name;
    int value;
};

extern const struct native_word native_tasks[];
extern const struct native_word native_engines[];
extern const struct native_word native_roles[];
extern const struct native_word native_states[];

/** The word, or NULL. */
const char *native_word_of(const struct native_word *words, int value);

#endif /* WEIR_REGISTRY_NATIVE_WORDS_H */
