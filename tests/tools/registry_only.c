/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded registry alone, for black-box tests: prints "ready registry=HOST:PORT", then every word to the sink as one
 * line, until SIGTERM or SIGINT.
 * usage: registry_only [--port N] [--token T] [--state-file F] [--max N] [--requests N]
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loop/alloc.h"
#include "loop/loop.h"
#include "registry/registry.h"

static struct loop *loop;
static uint32_t requests = REGISTRY_REQUESTS_UNKNOWN;

static int on_upsert(void *ctx, uint16_t source, const struct instance *i)
{
    (void)ctx;
    printf("upsert source=%u key=%.*s id=%.*s address=%.*s:%u weight=%u enabled=%d healthy=%d "
           "draining=%d probation=%d "
           "epoch=%llu models=%u metadata=",
           source, SLICE_ARG(i->key), SLICE_ARG(i->id), SLICE_ARG(i->host), i->port, i->weight,
           i->enabled, i->healthy, i->draining, i->probation, (unsigned long long)i->epoch,
           i->n_models);
    for (uint32_t m = 0; m < i->n_metadata; m++)
        printf("%s%.*s=%.*s", m ? ";" : "", SLICE_ARG(i->metadata[m].key),
               SLICE_ARG(i->metadata[m].value));
    printf("\n");
    return 0;
}

static void on_remove(void *ctx, uint16_t source, struct slice key)
{
    (void)ctx;
    printf("remove source=%u key=%.*s\n", source, SLICE_ARG(key));
}

static int on_sample(void *ctx, uint16_t source, struct slice key, const struct sample *s)
{
    (void)ctx;
    printf("sample source=%u key=%.*s epoch=%llu seq=%llu known=%x gpu_util_bp=%u memory_free=%llu "
           "running=%u fresh_ms=%llu\n",
           source, SLICE_ARG(key), (unsigned long long)s->epoch, (unsigned long long)s->seq,
           s->known, s->gpu_util_bp, (unsigned long long)s->memory_free_bytes, s->running,
           (unsigned long long)(s->fresh_for_ns / 1000000));
    return 0;
}

static void on_synced(void *ctx, uint16_t source)
{
    (void)ctx;
    printf("synced source=%u\n", source);
}

static void on_signal(void *ctx, int signal)
{
    (void)ctx;
    (void)signal;
    loop_stop(loop);
}

static uint32_t current_requests(void *ctx, struct slice host, uint16_t port)
{
    (void)ctx;
    (void)host;
    (void)port;
    return requests;
}

static unsigned long number(const char *text)
{
    char *end;

    errno = 0;
    unsigned long v = strtoul(text, &end, 10);
    if (errno || *end || end == text || v > UINT32_MAX) {
        fprintf(stderr, "not a number: %s\n", text);
        exit(2);
    }
    return v;
}

int main(int argc, char **argv)
{
    struct registry_options o = {
        .source = 7,
        .sink = {.upsert = on_upsert,
                 .remove = on_remove,
                 .sample = on_sample,
                 .synced = on_synced},
        .current_requests = current_requests,
    };
    const int signals[] = {SIGINT, SIGTERM};
    unsigned long port = 0;
    struct registry *registry;
    struct net_addr bound;
    char text[NET_ADDR_TEXT];

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--port") == 0)
            port = number(argv[i + 1]);
        else if (strcmp(argv[i], "--token") == 0)
            o.token = argv[i + 1];
        else if (strcmp(argv[i], "--state-file") == 0)
            o.state_file = argv[i + 1];
        else if (strcmp(argv[i], "--max") == 0)
            o.instances_max = (uint32_t)number(argv[i + 1]);
        else if (strcmp(argv[i], "--requests") == 0)
            requests = (uint32_t)number(argv[i + 1]);
        else
            return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (net_addr_literal(SLICE("127.0.0.1"), (uint16_t)port, &o.addr) || loop_new(&loop) ||
        loop_signals(loop, signals, 2, on_signal, NULL) ||
        registry_start(loop, &o, &registry, &bound)) {
        fprintf(stderr, "cannot start\n");
        return 1;
    }
    printf("ready registry=%s\n", net_addr_text(&bound, text));
    loop_run(loop);
    registry_stop(registry);
    loop_free(loop);
    return 0;
}
