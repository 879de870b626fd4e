/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/agent/devices.h"

#include <poll.h>
#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/log.h"

static const uint64_t gpu_retry_ns = 120 * NS_PER_S;
static const uint64_t EXPORTER_NS = NS_PER_S; /* it collects no more often */

int devices_open(const struct agent_options *a, struct gpus **out)
{
    const struct gpu_options o = {
        .nvml = a->nvml,
        .sysfs = a->sysfs,
        .select = a->gpus,
        .cuda = a->gpus_by_cuda,
        .retry_ns = gpu_retry_ns,
    };
    struct slice bad;

    *out = NULL;
    if (a->dcgm)
        return -1;
    int rc = gpus_open(&o, out, &bad);
    if (rc == 0)
        return -1;
    if (!bad.p)
        fprintf(stderr, "weir agent: --gpus %s: %s\n", a->gpus, err_text(rc));
    else
        fprintf(stderr, "weir agent: --gpus %s: \"%.*s\" %s\n", a->gpus, SLICE_ARG(bad),
                rc == WEIR_E_INVALID ? "is neither the index nor the UUID of one more device"
                : rc == WEIR_E_FULL  ? "is one device too many"
                                     : "is no device here");
    return 2;
}

static void print_share(const char *name, uint32_t known, uint32_t bit, uint32_t bp)
{
    if (known & bit)
        printf(" %s=%u.%02u", name, bp / 100, bp % 100);
}

static void print_all(const struct gpu_reading *readings, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const struct gpu_reading *r = &readings[i];
        printf("%u uuid=%s type=%.*s name=\"%s\"", i, r->uuid,
               SLICE_ARG(gpu_type_of(slice_str(r->name))), r->name);
        if (r->known & GPU_MEMORY)
            printf(" memory_total_bytes=%llu memory_free_bytes=%llu",
                   (unsigned long long)r->memory_total_bytes,
                   (unsigned long long)r->memory_free_bytes);
        print_share("gpu_util_percent", r->known, GPU_UTIL, r->util_bp);
        print_share("memory_busy_percent", r->known, GPU_MEM_BUSY, r->mem_busy_bp);
        print_share("sm_active_percent", r->known, GPU_SM_ACTIVE, r->sm_active_bp);
        print_share("dram_bandwidth_percent", r->known, GPU_DRAM_BW, r->dram_bw_bp);
        if (r->known & GPU_POWER)
            printf(" power_watts=%u.%03u", r->power_mw / 1000, r->power_mw % 1000);
        printf("%s%s\n", r->mig ? " mig" : "", r->lost ? " lost" : "");
    }
    if (n == 0)
        printf("no GPU\n");
}

/* One look at an exporter. */
static int print_exported(const struct agent_options *o)
{
    struct agent_devices d = {.read_ns = 0};
    struct loop *loop;
    struct fetcher *fetcher = NULL;
    int rc = loop_new(&loop);

    if (rc == 0)
        rc = fetcher_new(loop, &fetcher);
    if (rc == 0)
        rc = devices_start(&d, o, loop, fetcher, NULL);
    if (rc == 0) {
        d.once = loop;
        loop_run(loop);
        if (d.read_ns)
            print_all(d.readings, d.n);
    } else {
        fprintf(stderr, "weir agent: %s\n", err_text(rc));
    }
    rc = rc || !d.read_ns;
    devices_stop(&d);
    fetcher_free(fetcher);
    loop_free(loop);
    return rc;
}

/* One line each, twice read, so that GPM has its two samples. */
int devices_print(const struct agent_options *o)
{
    struct gpu_reading readings[GPU_DEVICES_MAX];
    struct gpus *g;

    if (o->dcgm)
        return print_exported(o);
    int rc = devices_open(o, &g);
    if (rc >= 0)
        return rc;
    (void)gpus_read(g, loop_clock(), readings);
    (void)poll(NULL, 0, 120);
    print_all(readings, gpus_read(g, loop_clock(), readings));
    gpus_close(g);
    return 0;
}

/* --- followed --- */

static void on_page(void *ctx, const struct gpu_exported *rows, uint32_t n, const char *why)
{
    struct agent_devices *d = ctx;
    int chosen = why ? -1 : gpu_exported_choose(rows, n, slice_str(d->select), d->readings);
    const char *trouble = why                         ? why
                          : chosen == WEIR_E_NOTFOUND ? "has not all devices of --gpus"
                          : chosen < 0                ? "has one device too many"
                                                      : NULL;

    if (chosen >= 0) {
        d->n = (unsigned)chosen;
        d->read_ns = loop_clock();
    }
    if (trouble && !d->said)
        log_warn("gpu", "exporter %s: %s", d->url, trouble);
    else if (!trouble && d->said)
        log_info("gpu", "exporter %s: tells of %d devices again", d->url, chosen);
    d->said = trouble != NULL;
    if (d->once)
        loop_stop(d->once);
}

int devices_start(struct agent_devices *d,
                  const struct agent_options *o,
                  struct loop *loop,
                  struct fetcher *fetcher,
                  struct gpus *gpus)
{
    const struct gpu_exporter_options e = {
        .loop = loop,
        .fetcher = fetcher,
        .url = o->dcgm,
        .tls = &o->tls,
        .interval_ns = MAX(o->interval_ns, EXPORTER_NS),
        .timeout_ns = o->timeout_ns,
        .on_page = on_page,
        .ctx = d,
    };

    d->interval_ns = o->dcgm ? e.interval_ns : o->interval_ns;
    if (strcmp(o->gpus, "none") == 0) {
        gpus_close(gpus);
        return 0;
    }
    if (!o->dcgm)
        return gpu_watch_start(gpus, o->interval_ns, &d->watch);
    d->url = o->dcgm;
    d->select = o->gpus;
    return gpu_exporter_new(&e, &d->exporter);
}

void devices_stop(struct agent_devices *d)
{
    gpu_watch_stop(d->watch);
    gpu_exporter_free(d->exporter);
    d->watch = NULL;
    d->exporter = NULL;
}

bool devices_any(const struct agent_devices *d)
{
    return d->watch || d->exporter;
}

unsigned devices_read(struct agent_devices *d, struct gpu_reading *out, bool *fresh)
{
    uint64_t read_ns = d->read_ns;
    unsigned n = d->watch ? gpu_watch_copy(d->watch, out, &read_ns) : d->n;

    if (!d->watch)
        memcpy(out, d->readings, n * sizeof(*out));
    *fresh = read_ns != 0 && loop_clock() - read_ns < 3 * d->interval_ns + NS_PER_S;
    return n;
}
