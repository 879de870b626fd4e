/* SPDX-License-Identifier: Apache-2.0 */
/** @file `weir agent`: beside an inference server: registers it, and reports how it and its GPUs are. */
#ifndef WEIR_APPS_AGENT_AGENT_H
#define WEIR_APPS_AGENT_AGENT_H

/** @return the exit status: with a command, the command's. */
int agent_main(int argc, char **argv);

#endif /* WEIR_APPS_AGENT_AGENT_H */
