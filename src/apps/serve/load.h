/* SPDX-License-Identifier: Apache-2.0 */
/** @file Command line and file to one configuration, with every error printed. */
#ifndef WEIR_APPS_SERVE_LOAD_H
#define WEIR_APPS_SERVE_LOAD_H

#include <stdbool.h>

#include "apps/serve/flags.h"
#include "conf/conf.h"

/**
 * @param flags what the command line says, for loading again; serve_flags_fini() also on failure.
 * @param out owned by the caller: conf_free().
 * @param status the exit status when the result is false: 0 after --help, 2 for a bad command line or file.
 * @return true: go on with *out. Prints help on stdout, errors on stderr.
 */
bool load_configuration(
    int argc, char **argv, struct serve_flags *flags, struct conf **out, int *status);

#endif /* WEIR_APPS_SERVE_LOAD_H */
