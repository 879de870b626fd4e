/* SPDX-License-Identifier: Apache-2.0 */
/** @file `weir serve`: gateway, embedded registry and admin API in one process. */
#ifndef WEIR_APPS_SERVE_SERVE_H
#define WEIR_APPS_SERVE_SERVE_H

/** argv[0] is "serve". @return the process' exit status. */
int serve_main(int argc, char **argv);

#endif /* WEIR_APPS_SERVE_SERVE_H */
