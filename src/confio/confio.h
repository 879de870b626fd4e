/* SPDX-License-Identifier: Apache-2.0 */
/** @file Configuration from a YAML file: read, parse with hard limits, hand the nodes to conf. */
#ifndef WEIR_CONFIO_CONFIO_H
#define WEIR_CONFIO_CONFIO_H

#include "base/mem.h"
#include "conf/conf.h"

enum {
    CONFIO_FILE_MAX = 1 << 20, /**< bytes of a configuration file */
    CONFIO_SECRET_MAX = 4096,  /**< bytes of a secret */
};

/** What is loaded besides the text. All borrowed for the length of the call. */
struct confio_options {
    const struct mem *mem;
    const struct conf_override *overrides;
    uint32_t n_overrides;
    uint64_t generation;
    bool endpoints_only; /**< as in struct conf_input */
};

/**
 * @param path NULL: no file, defaults and overrides alone.
 * @param out owned by the caller (conf_free); NULL on failure.
 * @return 0; WEIR_E_INVALID or WEIR_E_IO with at least one error; WEIR_E_NOMEM. Blocks on the file.
 */
int confio_load(const struct confio_options *o,
                const char *path,
                struct conf **out,
                struct conf_errors *errors) MUST_CHECK;

/** The same from memory. @param file name for errors. */
int confio_load_text(const struct confio_options *o,
                     struct slice file,
                     struct slice text,
                     struct conf **out,
                     struct conf_errors *errors) MUST_CHECK;

/**
 * Read a secret: the file's content without trailing newlines, or the variable's value.
 * @param out terminated, owned by the caller: confio_secret_free(). NULL when kind is NONE.
 * @return 0; WEIR_E_INVALID or WEIR_E_IO with one error that names the place and never the content; WEIR_E_NOMEM.
 */
int confio_secret(const struct mem *mem,
                  const struct conf_secret *s,
                  char **out,
                  struct conf_errors *errors) MUST_CHECK;
/** Wipes it first. NULL is fine. */
void confio_secret_free(const struct mem *mem, char *secret);

#endif /* WEIR_CONFIO_CONFIO_H */
