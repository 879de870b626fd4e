/* SPDX-License-Identifier: Apache-2.0 */
/** @file `weir sim`: replay of traces through the scheduler. */
#ifndef WEIR_APPS_SIM_SIM_H
#define WEIR_APPS_SIM_SIM_H

/** @return the exit status: 0, 1 (something failed), 2 (wrong arguments or files). */
int sim_main(int argc, char **argv);

#endif /* WEIR_APPS_SIM_SIM_H */
