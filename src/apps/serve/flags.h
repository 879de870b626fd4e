/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The command line of `weir serve`: flags become overrides of configuration options, so both have the same
 * ranges. Names of the SGLang and vLLM router family are taken where they mean the same.
 */
#ifndef WEIR_APPS_SERVE_FLAGS_H
#define WEIR_APPS_SERVE_FLAGS_H

#include "base/arena.h"
#include "base/buf.h"
#include "conf/conf.h"

/** Texts are borrowed from argv or owned by the arena. Zeroed = none. */
struct serve_flags {
    struct arena arena;
    const char *config;              /**< NULL: no file */
    bool help;                       /**< print serve_flags_help() and end */
    bool reference;                  /**< print serve_flags_reference() and end */
    struct conf_override *overrides; /**< in order, for confio_options */
    uint32_t n_overrides;
};

/**
 * @param argv argv[0] is the subcommand.
 * @param out to be freed with serve_flags_fini(), also on failure.
 * @return 0; WEIR_E_INVALID with at least one error; WEIR_E_NOMEM.
 */
int serve_flags_parse(const struct mem *mem,
                      int argc,
                      char **argv,
                      struct serve_flags *out,
                      struct conf_errors *errors) MUST_CHECK;
void serve_flags_fini(struct serve_flags *f);

/** The text of --help. */
int serve_flags_help(struct buf *out) MUST_CHECK;

/** docs/cli.md. */
int serve_flags_reference(struct buf *out) MUST_CHECK;

#endif /* WEIR_APPS_SERVE_FLAGS_H */
