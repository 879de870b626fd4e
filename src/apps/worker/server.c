/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoints around the jobs, and the start and end of it all. */
#include "apps/worker/server.h"

#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "apps/worker/answer.h"
#include "apps/worker/jobs.h"
#include "base/bug.h"
#include "loop/alloc.h"
#include "wire/prom.h"

enum { BODY_MAX = 64 << 20, CONNECTIONS_MAX = 16384 };

static const uint64_t idle_default = 75 * NS_PER_S;

static void chat(struct worker_server *w, struct http_request *r)
{
    jobs_infer(w, r, ASK_CHAT);
}

static void complete(struct worker_server *w, struct http_request *r)
{
    jobs_infer(w, r, ASK_COMPLETION);
}

static void embed(struct worker_server *w, struct http_request *r)
{
    jobs_infer(w, r, ASK_EMBEDDING);
}

static struct engine_stats read_stats(struct worker_server *w)
{
    struct engine_stats s;

    jobs_advance(w);
    engine_read_stats(w->engine, jobs_engine_now(w), &s);
    s.running += w->n_parked; /* to whoever looks, a hung request runs */
    s.tokens_per_s *= w->o->time_scale;
    return s;
}

static void health(struct worker_server *w, struct http_request *r)
{
    struct engine_stats s = read_stats(w);

    if (w->fault.health_hang)
        return; /* until its client goes */
    if (w->fault.health)
        jobs_reply(w, r, w->fault.health, NULL, SLICE(""), "");
    else if (s.loading || w->draining)
        jobs_reply(w, r, 503, NULL, SLICE(""), "Retry-After: 1\r\n");
    else
        jobs_reply(w, r, 200, NULL, SLICE(""), "");
}

static void list_models(struct worker_server *w, struct http_request *r)
{
    struct buf body;

    buf_init(&body, loop_mem(), 1 << 20);
    buf_put_str(&body, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < w->o->n_models; i++) {
        buf_put_str(&body, i ? ",{\"id\":" : "{\"id\":");
        buf_put_json(&body, w->o->models[i]);
        buf_put_str(&body, ",\"object\":\"model\",\"created\":");
        buf_put_u64(&body, loop_wall_clock() / NS_PER_S);
        buf_put_str(&body, ",\"owned_by\":\"weir\",\"root\":");
        buf_put_json(&body, w->o->models[i]);
        buf_put_str(&body, ",\"parent\":null,\"max_model_len\":");
        buf_put_u64(&body, engine_max_model_len(w->engine));
        buf_put_str(&body, ",\"permission\":[]}");
    }
    buf_put_str(&body, "]}");
    jobs_reply_json(w, r, &body);
    buf_fini(&body);
}

static void version(struct worker_server *w, struct http_request *r)
{
    jobs_reply(w, r, 200, "application/json",
               SLICE("{\"version\":\"" WEIR_VERSION "+weir.worker\"}"), "");
}

static uint64_t memory_free(const struct worker_server *w, const struct engine_stats *s)
{
    const struct engine_profile *gpu = w->o->gpu;
    uint64_t bytes =
        gpu->memory_total_bytes / 10 + (s->kv_capacity - s->kv_used) * gpu->kv_bytes_per_token;

    return MIN(bytes, gpu->memory_total_bytes);
}

static void metrics(struct worker_server *w, struct http_request *r)
{
    struct engine_stats s = read_stats(w);
    struct buf body;

    if (w->fault.metrics_garbage) {
        jobs_reply(w, r, 200, PROM_CONTENT_TYPE,
                   SLICE("<html>} 17 \x01 {{{\nvllm:num_requests_running{ NaN of\n"), "");
        return;
    }
    buf_init(&body, loop_mem(), 1 << 20);
    metrics_write(&body, &w->metrics, &s, w->o->models[0], memory_free(w, &s));
    jobs_reply(w, r, body.err ? 500 : 200, PROM_CONTENT_TYPE, buf_slice(&body), "");
    buf_fini(&body);
}

static void show_fault(struct worker_server *w, struct http_request *r)
{
    struct buf body;

    buf_init(&body, loop_mem(), 65536);
    buf_put_str(&body, "{\"fault\":");
    buf_put_json(&body, buf_slice(&w->fault_text));
    buf_put_char(&body, '}');
    jobs_reply_json(w, r, &body);
    buf_fini(&body);
}

static int set_fault(struct worker_server *w, struct slice spec, const struct fault *f)
{
    buf_clear(&w->fault_text);
    if (buf_put_slice(&w->fault_text, slice_trim(spec)) != 0)
        return WEIR_E_RANGE;
    w->fault = *f;
    w->n_answered = 0;
    engine_set_slowdown(w->engine, f->slow);
    return 0;
}

static void change_fault(struct worker_server *w, struct http_request *r)
{
    struct slice bad = r->body;
    struct fault f;
    int rc = fault_parse(r->body, &f, &bad);

    if (rc == 0 && f.close_idle_ns) {
        bad = SLICE("close_idle");
        rc = WEIR_E_INVALID; /* the server has it from its start on */
    }
    if (rc == 0)
        rc = set_fault(w, r->body, &f);
    if (rc == 0) {
        show_fault(w, r);
        return;
    }
    char text[256];
    int n = snprintf(text, sizeof(text),
                     "\"%.*s\" is no fault that can be set now; see weir worker --help",
                     (int)MIN(bad.n, (size_t)100), bad.p ? bad.p : "");
    jobs_reply_error(w, r, 400, NULL, slice_of(text, (size_t)n));
}

static const struct {
    const char *method;
    const char *path;
    void (*handle)(struct worker_server *w, struct http_request *r);
} routes[] = {
    {"POST", "/v1/chat/completions", chat},
    {"POST", "/v1/completions", complete},
    {"POST", "/v1/embeddings", embed},
    {"GET", "/health", health},
    {"GET", "/ping", health},
    {"GET", "/v1/models", list_models},
    {"GET", "/version", version},
    {"GET", "/metrics", metrics},
    {"GET", "/fault", show_fault},
    {"POST", "/fault", change_fault},
};

static void handle(void *ctx, struct http_request *r)
{
    struct worker_server *w = ctx;
    bool known = false;

    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!slice_eq(r->path, slice_str(routes[i].path)))
            continue;
        known = true;
        if (slice_eq(r->method, slice_str(routes[i].method))) {
            routes[i].handle(w, r);
            return;
        }
    }
    if (known)
        jobs_reply_error(w, r, 405, NULL, SLICE("Method Not Allowed"));
    else
        jobs_reply_error(w, r, 404, NULL, SLICE("Not Found"));
}

/* -------------------------------------------------------------------------------------------- start and end */

void worker_server_name(struct worker_server *w, struct slice name)
{
    w->name = name;
}

void worker_server_drain(struct worker_server *w, void (*on_idle)(void *ctx), void *ctx)
{
    w->draining = true;
    w->on_idle = on_idle;
    w->on_idle_ctx = ctx;
    jobs_look_whether_idle(w);
}

void worker_server_sample(struct worker_server *w, struct sample *s)
{
    struct engine_stats e = read_stats(w);

    s->known = 1u << SAMPLE_GPU_UTIL | 1u << SAMPLE_MEMORY_FREE | 1u << SAMPLE_MEMORY_TOTAL |
               1u << SAMPLE_KV_CAPACITY | 1u << SAMPLE_KV_USED | 1u << SAMPLE_RUNNING |
               1u << SAMPLE_WAITING | 1u << SAMPLE_BATCH | 1u << SAMPLE_TOKENS_PER_S |
               1u << SAMPLE_STATE;
    s->gpu_util_bp = (uint32_t)(e.utilization * 10000 + 0.5);
    s->memory_free_bytes = memory_free(w, &e);
    s->memory_total_bytes = w->o->gpu->memory_total_bytes;
    s->kv_capacity_tokens = e.kv_capacity;
    s->kv_used_tokens = e.kv_used;
    s->running = e.running;
    s->waiting = e.waiting;
    s->batch = e.batch;
    s->tokens_per_s = (uint32_t)MIN(e.tokens_per_s + 0.5, (double)UINT32_MAX);
    s->state = REPORTED_HEALTHY;
    if (w->fault.health >= 400 || w->fault.health_hang)
        s->state = REPORTED_UNHEALTHY;
    if (e.loading)
        s->state = REPORTED_LOADING;
    if (w->draining)
        s->state = REPORTED_DRAINING;
}

uint32_t worker_server_max_model_len(const struct worker_server *w)
{
    return engine_max_model_len(w->engine);
}

static int start_engine(struct worker_server *w)
{
    const struct engine_config config = {
        .profile = *w->o->gpu,
        .kv_tokens = w->o->kv_tokens,
        .max_num_seqs = w->o->max_num_seqs,
        .max_model_len = w->o->max_model_len,
        .start_ns = JOBS_ENGINE_EPOCH,
        .load_ns = w->o->load_ns,
        .window_ns = (uint64_t)((double)NS_PER_S * w->o->time_scale), /* one second of real time */
    };

    return engine_new(loop_mem(), &config, &w->engine);
}

int worker_server_start(struct loop *loop,
                        const struct worker_options *o,
                        struct worker_server **out,
                        struct net_addr *bound)
{
    struct worker_server *w = mem_zalloc(loop_mem(), sizeof(*w));
    struct http_server_options http = {
        .body_max = BODY_MAX,
        .connections_max = CONNECTIONS_MAX,
        .idle_ns = o->fault.close_idle_ns ? o->fault.close_idle_ns : idle_default,
        .handler = handle,
        .ctx = w,
    };

    if (!w)
        return WEIR_E_NOMEM;
    w->loop = loop;
    w->o = o;
    w->start_ns = loop_clock();
    w->rnd.state = o->seed;
    w->timer.fd = -1;
    w->timer.on_event = jobs_on_timerfd;
    w->idle_timer.on_timer = jobs_on_idle_timer;
    list_init(&w->jobs);
    buf_init(&w->fault_text, loop_mem(), 4096);
    buf_init(&w->event, loop_mem(), 65536);
    int rc = net_addr_literal(slice_str(o->host), o->port, &http.addr);
    if (rc == 0)
        rc = start_engine(w);
    if (rc == 0)
        rc = set_fault(w, o->fault_text, &o->fault);
    if (rc == 0) {
        w->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        rc = w->timer.fd < 0 ? WEIR_E_IO : loop_watch(loop, &w->timer, EPOLLIN);
    }
    if (rc == 0)
        rc = http_server_start(loop, &http, &w->http, bound);
    if (rc) {
        worker_server_stop(w);
        return rc;
    }
    *out = w;
    return 0;
}

void worker_server_stop(struct worker_server *w)
{
    if (!w)
        return;
    w->draining = false;
    http_server_stop(w->http);
    BUG_ON(!list_empty(&w->jobs));
    loop_timer_cancel(&w->idle_timer);
    loop_unwatch(&w->timer);
    if (w->timer.fd >= 0)
        close(w->timer.fd);
    engine_free(w->engine);
    buf_fini(&w->fault_text);
    buf_fini(&w->event);
    mem_free(loop_mem(), w);
}
