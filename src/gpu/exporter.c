/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/exporter.h"

#include <stdio.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"

enum { PAGE_MAX = 4 << 20, WHY_MAX = 160 };

struct gpu_exporter {
    struct gpu_exporter_options o;
    char *url;
    struct fetch *fetch;
    struct loop_timer timer;
    bool asked; /* at least once */
    char why[WHY_MAX];
    struct gpu_exported rows[GPU_EXPORTED_MAX];
};

static void on_answer(void *ctx, const struct fetch_result *r)
{
    struct gpu_exporter *e = ctx;
    uint32_t n = 0;

    e->fetch = NULL;
    if (!r->error && r->status == 200)
        n = gpu_dcgm_read(r->body, e->rows);
    if (r->error)
        snprintf(e->why, sizeof(e->why), "%s", r->message);
    else if (r->status != 200)
        snprintf(e->why, sizeof(e->why), "status %u", r->status);
    else
        snprintf(e->why, sizeof(e->why), "no DCGM_FI_ series of a device on the page");
    e->o.on_page(e->o.ctx, e->rows, n, n ? NULL : e->why);
}

static void on_timer(struct loop_timer *t)
{
    struct gpu_exporter *e = container_of(t, struct gpu_exporter, timer);
    const struct fetch_options o = {
        .method = "GET",
        .url = e->url,
        .tls = e->o.tls,
        .timeout_ns = e->o.timeout_ns,
        .body_max = PAGE_MAX,
        .done = on_answer,
        .ctx = e,
    };
    uint64_t wait = e->o.interval_ns;

    if (!e->asked)
        wait -= MIN(e->o.shift_ns, wait / 2);
    e->asked = true;
    loop_timer_set(e->o.loop, t, loop_now(e->o.loop) + wait);
    if (e->fetch)
        return;
    int rc = fetch_start(e->o.fetcher, &o, &e->fetch);
    if (rc) {
        e->fetch = NULL;
        e->o.on_page(e->o.ctx, e->rows, 0, err_text(rc));
    }
}

int gpu_exporter_new(const struct gpu_exporter_options *o, struct gpu_exporter **out)
{
    struct gpu_exporter *e = mem_zalloc(loop_mem(), sizeof(*e));

    if (!e)
        return WEIR_E_NOMEM;
    e->o = *o;
    e->url = mem_strdup(loop_mem(), slice_str(o->url));
    if (!e->url) {
        mem_free(loop_mem(), e);
        return WEIR_E_NOMEM;
    }
    e->timer.on_timer = on_timer;
    loop_timer_set(o->loop, &e->timer, 0);
    *out = e;
    return 0;
}

void gpu_exporter_free(struct gpu_exporter *e)
{
    if (!e)
        return;
    if (e->fetch)
        fetch_cancel(e->fetch);
    loop_timer_cancel(&e->timer);
    mem_free(loop_mem(), e->url);
    mem_free(loop_mem(), e);
}
