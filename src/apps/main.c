/* SPDX-License-Identifier: Apache-2.0 */
/* One binary, many commands: dispatches, nothing else. */
#include <stdio.h>
#include <string.h>

#include "apps/agent/agent.h"
#include "apps/check/check.h"
#include "apps/explain/explain.h"
#include "apps/serve/serve.h"
#include "apps/sim/sim.h"
#include "apps/worker/worker.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"serve", serve_main, "the gateway, with its embedded registry and admin API"},
    {"agent", agent_main, "beside an inference server: registers it, reports its GPUs and load"},
    {"worker", worker_main, "an emulated inference server"},
    {"sim", sim_main, "replay a trace through the scheduler onto emulated servers"},
    {"explain", explain_main, "ask a running gateway who would get a request, and why"},
    {"check", check_main, "check a configuration file"},
};

enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void usage(FILE *to)
{
    fprintf(to, "usage: weir COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].what);
    fprintf(to, "\n`weir COMMAND --help` says more; `weir --version` prints the version.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0) {
        printf("weir " WEIR_VERSION "\n");
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    fprintf(stderr, "weir: unknown command \"%s\"\n", argv[1]);
    usage(stderr);
    return 2;
}
