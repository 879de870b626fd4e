/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What readers of native documents share. One table per object: a field is a row, and the nearest known key to an
 * unknown one is found in the same table. Every reader returns 0, WEIR_E_INVALID (error filled) or WEIR_E_NOMEM.
 */
#ifndef WEIR_REGISTRY_NATIVE_READ_H
#define WEIR_REGISTRY_NATIVE_READ_H

#include "registry/native_json.h"
#include "registry/native_words.h"

/** One document being read. */
struct reader {
    struct arena *a; /**< where copies go; not used for load reports */
    struct native_error *error;
    struct native_doc *doc; /**< endpoint documents */
    struct sample *load;    /**< load reports */
    struct slice host;
    bool has_url, has_host, has_port, has_epoch, has_seq;
    uint64_t interval_ms;
};

/** @param field path of the value, for errors. */
typedef int (*read_fn)(struct reader *r, const char *field, const json_t *v);

struct field {
    const char *name;
    read_fn read; /**< NULL: the field is only shown, never taken */
};

int read_fail(struct reader *r, const char *code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define BAD(r, field, ...) read_fail(r, "invalid_field", field, __VA_ARGS__)

/** Every member by its row; null counts as not given. @param prefix path of the object, "" at the top. */
int read_object(struct reader *r,
                const char *prefix,
                const json_t *v,
                const struct field *fields,
                size_t n) MUST_CHECK;

/** 1 to max bytes without control characters. */
int read_text(struct reader *r, const char *field, const json_t *v, size_t max, struct slice *out)
    MUST_CHECK;
int read_u64(struct reader *r,
             const char *field,
             const json_t *v,
             uint64_t min,
             uint64_t max,
             uint64_t *out) MUST_CHECK;
int read_u32(struct reader *r,
             const char *field,
             const json_t *v,
             uint64_t min,
             uint32_t max,
             uint32_t *out) MUST_CHECK;
/** A decimal 0..max, in 1/unit steps; what is above 0 stays above 0. */
int read_decimal(struct reader *r,
                 const char *field,
                 const json_t *v,
                 double max,
                 double unit,
                 uint32_t *out) MUST_CHECK;
int read_bool(struct reader *r, const char *field, const json_t *v, bool *out) MUST_CHECK;
int read_word(struct reader *r,
              const char *field,
              const json_t *v,
              const struct native_word *words,
              int *out) MUST_CHECK;
/** Is it an array of at most max? */
int read_array_size(struct reader *r, const char *field, const json_t *v, uint32_t max, uint32_t *n)
    MUST_CHECK;
/** An object of strings. */
int read_kv(struct reader *r,
            const char *field,
            const json_t *v,
            const struct kv **out,
            uint32_t *n) MUST_CHECK;

#endif /* WEIR_REGISTRY_NATIVE_READ_H */
