/* SPDX-License-Identifier: Apache-2.0 */
/** @file `weir check`: says everything that is wrong with a configuration file, or what it comes to. */
#ifndef WEIR_APPS_CHECK_CHECK_H
#define WEIR_APPS_CHECK_CHECK_H

/** @param argv argv[0] is the subcommand. @return the exit status: 0 fine, 1 the file is not, 2 the command line is not. */
int check_main(int argc, char **argv);

#endif /* WEIR_APPS_CHECK_CHECK_H */
