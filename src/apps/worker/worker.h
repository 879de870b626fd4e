/* SPDX-License-Identifier: Apache-2.0 */
/** @file `weir worker`: an emulated inference server over real HTTP. */
#ifndef WEIR_APPS_WORKER_WORKER_H
#define WEIR_APPS_WORKER_WORKER_H

/** Runs until SIGINT or SIGTERM. @param argv argv[0] is "worker". @return the exit status. */
int worker_main(int argc, char **argv);

#endif /* WEIR_APPS_WORKER_WORKER_H */
