/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stable Diffusion webui goes on painting when its client leaves, and has one job at a time. So it is told to stop: on
 * the control loop, which has the HTTP client. Its call stops whatever runs, and must not hit another request of ours.
 * Therefore the one that was left keeps its reservation until the webui has answered, and only where one request is all
 * that the endpoint takes: nobody else's is sent there meanwhile. Whose job runs is told by its name, as far as a name
 * tells it.
 */
#include "base/num.h"
#include "loop/log.h"
#include "net/fetch.h"
#include "proxy/exchange.h"
#include "wire/json_tree.h"

enum { URL_MAX = 1024, ANSWER_MAX = 256 << 10, TREE_MAX = 1 << 20 };
#define TIMEOUT_NS (10 * NS_PER_S)

struct interrupt {
    struct list node; /* proxy.interrupts */
    struct loop_job job;
    struct proxy *proxy;
    struct reservation reservation;
    struct fetch *fetch;   /* NULL = none under way */
    const char *unix_path; /* in text; NULL = none */
    struct buf url;        /* of the endpoint, without a path */
    struct buf text;
};

static void free_one(struct interrupt *i)
{
    buf_fini(&i->url);
    buf_fini(&i->text);
    mem_free(loop_mem(), i);
}

/* ---- on the control loop ---- */

static void end(struct interrupt *i, const char *what, const char *more)
{
    struct proxy *p = i->proxy;

    if (what)
        log_debug("proxy", "endpoint=%s: %s%s%s", i->url.p, what, more ? ": " : "",
                  more ? more : "");
    pthread_mutex_lock(&p->interrupts_lock);
    list_del(&i->node);
    pthread_mutex_unlock(&p->interrupts_lock);
    offer_release(&p->control_asker, &i->reservation);
    free_one(i);
}

static int ask(struct interrupt *i, const char *method, const char *path, fetch_done_fn done)
{
    struct buf url;

    buf_init(&url, loop_mem(), URL_MAX);
    buf_put_str(&url, i->url.p);
    buf_put_str(&url, path);
    buf_put_char(&url, '\0');
    struct fetch_options o = {.method = method,
                              .url = url.p,
                              .unix_path = i->unix_path,
                              .tls = i->proxy->fetch_tls,
                              .timeout_ns = TIMEOUT_NS,
                              .body_max = ANSWER_MAX,
                              .done = done,
                              .ctx = i};
    int rc = url.err ? url.err : fetch_start(i->proxy->fetcher, &o, &i->fetch);
    buf_fini(&url);
    return rc;
}

static void on_interrupted(void *ctx, const struct fetch_result *r)
{
    struct interrupt *i = ctx;

    i->fetch = NULL;
    if (r->error || r->status != 200)
        end(i, "a job whose client left could not be interrupted", r->message);
    else
        end(i, "a job whose client left was interrupted", NULL);
}

/* Is what runs there a job of an API request? That of another program cannot be told from ours. Several batches of one
 * job have a name of their own, which says nothing of who asked. */
static bool may_be_ours(struct slice body)
{
    const struct json_node *root;
    struct arena a;
    double jobs = 0;

    arena_init(&a, loop_mem(), TREE_MAX);
    bool ok = wire_json_tree(&a, body, &root) == 0;
    const struct json_node *state = ok ? wire_json_get(root, "state") : NULL;
    struct slice job = wire_json_text(wire_json_get(state, "job"));
    ok = wire_json_number(wire_json_get(state, "job_count"), &jobs) && jobs != 0 &&
         (slice_eq(job, SLICE("scripts_txt2img")) || slice_eq(job, SLICE("scripts_img2img")));
    arena_fini(&a);
    return ok;
}

static void on_progress(void *ctx, const struct fetch_result *r)
{
    struct interrupt *i = ctx;
    int rc = 0;

    i->fetch = NULL;
    if (r->error || r->status != 200)
        end(i, "what runs there is not known", r->message);
    else if (!may_be_ours(r->body) || atomic_load(&i->reservation.cell->address->inflight) != 1)
        end(i, "no job of ours runs there", NULL);
    else if ((rc = ask(i, "POST", "/sdapi/v1/interrupt", on_interrupted)) != 0)
        end(i, "a job whose client left could not be interrupted", err_text(rc));
}

static void on_posted(struct loop_job *j)
{
    struct interrupt *i = container_of(j, struct interrupt, job);

    int rc = ask(i, "GET", "/sdapi/v1/progress?skip_current_image=true", on_progress);
    if (rc)
        end(i, "what runs there is not known", err_text(rc));
}

void interrupts_free(struct proxy *p)
{
    weir_list_foreach_safe (n, &p->interrupts) {
        struct interrupt *i = container_of(n, struct interrupt, node);
        if (i->fetch)
            fetch_cancel(i->fetch);
        end(i, NULL, NULL);
    }
}

/* ---- on a lane ---- */

static bool paints(const struct exchange *x)
{
    struct slice path = exchange_path(x);

    path.n = slice_find(path, '?');
    return slice_eq(exchange_method(x), SLICE("POST")) &&
           (slice_ends(path, SLICE("/sdapi/v1/txt2img")) ||
            slice_ends(path, SLICE("/sdapi/v1/img2img")));
}

/* A webui that takes one request at a time? Then where it is. */
static int locate(struct interrupt *i, const struct endpoint *e)
{
    bool local = e->host.n && e->host.p[0] == '/';

    if (e->engine != ENGINE_SDWEBUI || e->max_concurrency != 1)
        return WEIR_E_UNSUPPORTED;
    if (local) {
        buf_put_slice(&i->text, e->host);
        buf_put_char(&i->text, '\0');
        i->unix_path = i->text.p;
    }
    buf_put_str(&i->url, e->tls ? "https://" : "http://");
    buf_put_slice(&i->url, local ? SLICE("localhost") : e->authority);
    buf_put_char(&i->url, '\0');
    return i->url.err ? i->url.err : i->text.err;
}

struct interrupt *interrupt_for(struct exchange *x)
{
    struct asker *a = &x->lane->asker;
    const struct cell *cell = x->reservation.cell;

    if (x->state != X_AWAIT || !x->request_sent || x->rsp_started || !x->up || !cell ||
        !paints(x) || net_conn_queued(&x->up->conn) || !x->lane->proxy->fetcher ||
        x->lane->proxy->closing || atomic_load(&cell->address->inflight) != 1)
        return NULL;
    struct interrupt *i = mem_zalloc(loop_mem(), sizeof(*i));
    if (!i)
        return NULL;
    buf_init(&i->url, loop_mem(), URL_MAX);
    buf_init(&i->text, loop_mem(), URL_MAX);
    const struct member *m = upstream_member(a, cell);
    int rc = m ? locate(i, m->endpoint) : WEIR_E_NOTFOUND;
    asker_done(a);
    if (rc) {
        free_one(i);
        return NULL;
    }
    i->proxy = x->lane->proxy;
    i->job.run = on_posted;
    return i;
}

void interrupt_post(struct interrupt *i, struct reservation *r)
{
    struct proxy *p = i->proxy;

    i->reservation = *r;
    *r = (struct reservation){0};
    pthread_mutex_lock(&p->interrupts_lock);
    list_add(&p->interrupts, &i->node);
    pthread_mutex_unlock(&p->interrupts_lock);
    loop_post(p->control, &i->job);
}
