/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four questions, each with at most one request under way: is it healthy, what does it serve, how busy is it, and, while
 * its kind is not sure, is it one of those. A reader that has to find out starts with the generic adapter; the answers
 * to its first questions are the first signs, and only when they tell nothing are others asked for, one after the other.
 * The callback may free the reader, so nothing is touched after emit().
 */
#include "probe/engine.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "probe/adapters_codec.h"

enum {
    ANSWER_MAX = 8 << 20,
    HEALTH_ANSWER_MAX = 1 << 20,
    URL_MAX = 2048,
    WHY_MAX = 96,
    MODELS_MEMORY = 1 << 20,
    MODELS_EVERY = 6, /* health checks: the list changes rarely (a LoRA loaded) */
    QUIET_AFTER = 3,  /* scrapes without any series, then ... */
    QUIET_EVERY = 30, /* ... only one of so many intervals is used */
    RESTART_LEAST_S =
        2, /* the clock that start times are reckoned from is adjusted by a second now and then */
};

/* What it told that it serves. */
struct model_list {
    struct arena arena;
    struct engine_models models;
};

struct engine_reader {
    struct engine_options o; /* its texts are behind the reader */
    const struct engine_adapter *adapter;
    struct loop_timer health_timer, scrape_timer;
    struct fetch *health, *models, *numbers, *sign;

    /* finding out */
    bool detected;
    bool looked_models, looked_metrics; /* their first answers came, or did not */
    bool sign_posted;
    uint32_t sign_at; /* adapter whose sign is looked for next */
    bool held;        /* a model list that failed is not told yet: another kind may have one */

    /* health */
    unsigned health_step; /* which of the adapter's paths */
    uint32_t rounds;
    bool reachable, ever_ready;
    enum engine_state state;
    char why[WHY_MAX];

    /* models */
    bool want_models, more_models, else_models;
    bool ask_again; /* it could not be asked for its models: with the next check, not the sixth */
    struct model_list *list, *next; /* NULL: none; most of a fleet is told by its sources */
    bool models_known;

    /* numbers */
    bool use_slots;
    uint32_t quiet, skipped;
    double start_s;                 /* of the engine's process; 0 = never told */
    struct engine_metrics *last;    /* NULL: none were read; most of a fleet reports itself */
    struct sample *sample;          /* as told last; NULL: nothing is known */
    struct engine_metrics *partial; /* while its memory is asked for */
    uint64_t last_ns;
    double ratio;
};

static void ask_models(struct engine_reader *r, const char *path, const char *post);
static void look(struct engine_reader *r, uint32_t *news);

/* --- telling --- */

static void emit(struct engine_reader *r, uint32_t news)
{
    struct engine_reading out = {
        .news = news,
        .reachable = r->reachable,
        .detected = r->detected,
        .models_known = r->models_known,
        .state = r->state,
        .kind = r->detected || r->adapter != &engine_generic ? r->adapter->kind : ENGINE_UNKNOWN,
        .models = r->list ? r->list->models.list : NULL,
        .n_models = r->list ? r->list->models.n : 0,
        .sample = r->sample ? *r->sample : (struct sample){0},
        .prefix_hit_ratio = r->ratio,
        .why = r->why,
    };

    if (r->state == ENGINE_STATE_LOADING) {
        out.sample.state = REPORTED_LOADING;
        out.sample.known |= 1U << SAMPLE_STATE;
    }
    if (news)
        r->o.on_reading(r->o.ctx, &out);
}

/* --- asking --- */

static int ask(struct engine_reader *r,
               const char *base,
               const char *path,
               const char *post,
               size_t answer_max,
               fetch_done_fn done,
               struct fetch **out)
{
    struct buf url;

    buf_init(&url, loop_mem(), URL_MAX);
    buf_put_str(&url, base);
    buf_put_str(&url, path);
    buf_put_char(&url, '\0');
    int rc = url.err;
    if (rc == 0) {
        struct fetch_options o = {.method = post ? "POST" : "GET",
                                  .url = buf_slice(&url).p,
                                  .unix_path = r->o.unix_path,
                                  .tls = r->o.tls,
                                  .body = slice_str(post),
                                  .content_type = post ? "application/json" : NULL,
                                  .timeout_ns = r->o.timeout_ns,
                                  .body_max = answer_max,
                                  .brief = answer_max == HEALTH_ANSWER_MAX,
                                  .done = done,
                                  .ctx = r};
        rc = fetch_start(r->o.fetcher, &o, out);
    }
    buf_fini(&url);
    if (rc)
        log_warn("probe", "cannot ask %s%s: %s", base, path, err_text(rc));
    return rc;
}

static void cancel(struct fetch **f)
{
    if (*f)
        fetch_cancel(*f);
    *f = NULL;
}

/* --- which kind --- */

static bool is_auto(const struct engine_reader *r)
{
    return r->o.kind == ENGINE_UNKNOWN;
}

static void forget_last(struct engine_reader *r)
{
    mem_free(loop_mem(), r->last);
    r->last = NULL;
}

static void forget_numbers(struct engine_reader *r)
{
    forget_last(r);
    mem_free(loop_mem(), r->sample);
    r->sample = NULL;
    r->ratio = -1;
}

static void adopt(struct engine_reader *r, const struct engine_adapter *a, uint32_t *news)
{
    bool same = r->adapter == a;

    cancel(&r->sign);
    r->detected = true;
    if (same) {
        *news |= r->held ? ENGINE_NEWS_MODELS : 0;
        r->held = false;
    } else {
        log_info("probe", "%s is %s", r->o.base_url, a->name);
        bool other_list = strcmp(r->adapter->models_path, a->models_path) != 0;
        r->adapter = a;
        r->health_step = 0;
        r->use_slots = false;
        r->quiet = r->skipped = 0;
        forget_numbers(r);
        if (other_list && r->want_models) {
            cancel(&r->models);
            r->more_models = r->else_models = false;
            ask_models(r, a->models_path, a->models_post);
        }
        if (!r->models) {
            *news |= r->held ? ENGINE_NEWS_MODELS : 0;
            r->held = false;
        }
    }
    /* What its own health path says may differ; and a last path of the generic one waits for this. */
    if (!r->o.health_path && (!same || r->state == ENGINE_STATE_UNKNOWN)) {
        cancel(&r->health);
        loop_timer_set(r->o.loop, &r->health_timer, 0);
    }
}

static void on_sign(void *ctx, const struct fetch_result *f)
{
    struct engine_reader *r = ctx;
    const struct engine_adapter *a = engine_adapters[r->sign_at];
    uint32_t news = 0;

    r->sign = NULL;
    /* The path is there, for another method: only now is anything posted to a server that nobody knows yet. */
    if (!f->error && f->status == 405 && a->sign_post && !r->sign_posted) {
        r->sign_posted = true;
        if (ask(r, r->o.base_url, a->sign_path, a->sign_post, HEALTH_ANSWER_MAX, on_sign,
                &r->sign) == 0)
            return;
        r->sign = NULL;
    }
    r->sign_posted = false;
    r->sign_at++;
    if (!f->error && f->status == 200 && a->is_it(f->body))
        adopt(r, a, &news);
    else
        look(r, &news);
    emit(r, news);
}

/* Go on finding out, once the first answers told nothing. */
static void look(struct engine_reader *r, uint32_t *news)
{
    bool answered =
        (r->looked_models || !r->want_models) && (r->looked_metrics || !r->o.interval_ns);

    if (r->detected || r->sign || !r->reachable || !answered)
        return;
    while (r->sign_at < engine_n_adapters && !engine_adapters[r->sign_at]->is_it)
        r->sign_at++;
    if (r->sign_at == engine_n_adapters)
        adopt(r, &engine_generic, news);
    else if (ask(r, r->o.base_url, engine_adapters[r->sign_at]->sign_path, NULL, HEALTH_ANSWER_MAX,
                 on_sign, &r->sign) != 0)
        r->sign = NULL;
}

static void look_again(struct engine_reader *r)
{
    cancel(&r->sign);
    r->detected = false;
    r->looked_models = r->looked_metrics = false;
    r->sign_at = 0;
    r->sign_posted = false;
    r->quiet = r->skipped = 0;
    r->use_slots = false;
}

/* --- what it serves --- */

static void list_free(struct model_list *l)
{
    if (!l)
        return;
    arena_fini(&l->arena);
    mem_free(loop_mem(), l);
}

static void take_list(struct engine_reader *r)
{
    list_free(r->list);
    r->list = r->next;
    r->next = NULL;
    r->models_known = true;
}

/* A second list of the same engine: what the first did not have. */
static int add_list(struct engine_reader *r, const struct engine_models *more)
{
    struct engine_models *to = &r->next->models;
    struct arena *a = &r->next->arena;

    for (uint32_t i = 0; i < more->n && to->n < ENDPOINT_MODELS_MAX; i++) {
        bool known = false;
        for (uint32_t k = 0; k < to->n && !known; k++)
            known = slice_eq(to->list[k].id, more->list[i].id);
        if (known)
            continue;
        struct model_ref *out = &to->list[to->n];
        *out = more->list[i];
        if (arena_slice(a, more->list[i].id, &out->id) ||
            arena_slice(a, more->list[i].version, &out->version) ||
            arena_slice(a, more->list[i].lora_base, &out->lora_base))
            return WEIR_E_NOMEM;
        to->n++;
    }
    return 0;
}

static int read_more(struct engine_reader *r, struct slice body)
{
    struct arena a;
    struct engine_models more;

    arena_init(&a, loop_mem(), MODELS_MEMORY);
    int rc = engine_models_list(body, &a, &more);
    if (rc == 0)
        rc = add_list(r, &more);
    arena_fini(&a);
    return rc;
}

static int read_models(struct engine_reader *r, struct slice body)
{
    struct model_list *l = mem_zalloc(loop_mem(), sizeof(*l));

    if (!l)
        return WEIR_E_NOMEM;
    list_free(r->next);
    r->next = l;
    arena_init(&l->arena, loop_mem(), MODELS_MEMORY);
    int rc = r->adapter->models(body, &l->arena, &l->models);

    if (rc && r->adapter->models == engine_models_info) /* a proxy in front may show OpenAI's */
        rc = engine_models_list(body, &l->arena, &l->models);
    if (rc == 0 && l->models.left_out)
        log_warn("probe", "%s lists %u models too many, or without a usable name", r->o.base_url,
                 l->models.left_out);
    /* A list of nothing but nonsense is not an empty one. */
    return rc == 0 && l->models.n == 0 && l->models.left_out ? WEIR_E_INVALID : rc;
}

static bool missing(const struct fetch_result *f)
{
    return !f->error && (f->status == 404 || f->status == 405 || f->status == 501);
}

static void on_models(void *ctx, const struct fetch_result *f)
{
    struct engine_reader *r = ctx;
    bool more = r->more_models;
    uint32_t news = ENGINE_NEWS_MODELS;
    int rc = f->error ? f->error : f->status != 200 ? WEIR_E_NOTFOUND : 0;

    r->models = NULL;
    r->looked_models = true;
    r->more_models = false;
    r->ask_again = f->error || f->status >= 500;
    if (rc == 0) {
        rc = more ? read_more(r, f->body) : read_models(r, f->body);
        if (rc)
            log_warn("probe", "%s gives no model list that can be read: %s", r->o.base_url,
                     err_text(rc));
    }
    if (missing(f) && !more && !r->else_models && r->adapter->else_models_path) {
        r->else_models = true;
        ask_models(r, r->adapter->else_models_path, NULL);
        if (r->models)
            return;
    }
    r->else_models = false;
    if (rc == 0 && !more && r->adapter->more_models_path) {
        r->more_models = true;
        ask_models(r, r->adapter->more_models_path, NULL);
        if (r->models)
            return;
        r->more_models = false;
    }
    if (rc == 0 || more) /* the second list may be missing, what the first said counts */
        take_list(r);
    const struct engine_adapter *by_owner =
        rc == 0 && is_auto(r) ? engine_adapter_owner(r->list->models.owner) : NULL;
    if (by_owner && by_owner != r->adapter)
        adopt(r, by_owner, &news);
    else if (by_owner)
        r->detected = true;
    look(r, &news);
    /* No list of this kind, but its kind is not known yet: the next question decides. */
    if (rc && !more && !f->error && !r->detected) {
        r->held = true;
        news &= ~(uint32_t)ENGINE_NEWS_MODELS;
    } else if (rc && !more) {
        list_free(r->list);
        r->list = NULL;
        r->models_known = false;
    }
    emit(r, news);
}

static void ask_models(struct engine_reader *r, const char *path, const char *post)
{
    if (!r->models && ask(r, r->o.base_url, path, post, ANSWER_MAX, on_models, &r->models) != 0)
        r->models = NULL;
}

/* --- how busy it is --- */

/* Only a later start counts: several processes behind one address tell several, by turns. */
static void
look_whether_restarted(struct engine_reader *r, const struct engine_metrics *now, uint32_t *news)
{
    if (now->start_s < r->start_s + RESTART_LEAST_S)
        return;
    if (r->start_s > 0)
        *news |= ENGINE_NEWS_RESTART;
    r->start_s = now->start_s;
}

/* Read: the numbers of one moment. */
static bool take_numbers(struct engine_reader *r, const struct engine_metrics *now)
{
    if (now->known == 0)
        return false;
    uint64_t at = loop_clock();
    if (!r->sample)
        r->sample = mem_zalloc(loop_mem(), sizeof(*r->sample));
    if (!r->sample)
        return false;
    engine_metrics_sample(now, r->last, at - r->last_ns, r->sample, &r->ratio);
    if (!r->last)
        r->last = mem_alloc(loop_mem(), sizeof(*r->last));
    if (r->last)
        *r->last = *now;
    r->last_ns = at;
    return true;
}

/* Its memory may stay unknown. */
static void on_memory(void *ctx, const struct fetch_result *f)
{
    struct engine_reader *r = ctx;

    r->numbers = NULL;
    if (!f->error && f->status == 200)
        (void)r->adapter->memory(f->body, r->partial);
    if (!take_numbers(r, r->partial))
        forget_numbers(r);
    mem_free(loop_mem(), r->partial);
    r->partial = NULL;
    emit(r, ENGINE_NEWS_SAMPLE);
}

static bool read_numbers(struct engine_reader *r, struct slice body, uint32_t *news)
{
    struct engine_metrics now;

    if (r->use_slots) {
        if (!r->adapter->slots || !r->adapter->slots(body, &now))
            return false;
    } else {
        const struct engine_adapter *found = r->detected ? NULL : engine_adapter_series(body);
        if (found)
            adopt(r, found, news);
        if (!r->adapter->metrics)
            return false;
        engine_metrics_read(body, r->adapter->metrics, &now);
        look_whether_restarted(r, &now, news);
    }
    if (now.known && r->adapter->memory_path) {
        if (!r->partial)
            r->partial = mem_alloc(loop_mem(), sizeof(*r->partial));
        if (!r->partial)
            return take_numbers(r, &now);
        *r->partial = now;
        if (ask(r, r->o.base_url, r->adapter->memory_path, NULL, HEALTH_ANSWER_MAX, on_memory,
                &r->numbers) == 0)
            return true;
        r->numbers = NULL;
    }
    return take_numbers(r, &now);
}

static void on_numbers(void *ctx, const struct fetch_result *f)
{
    struct engine_reader *r = ctx;
    uint32_t news = ENGINE_NEWS_SAMPLE;

    r->numbers = NULL;
    r->looked_metrics = true;
    if (!f->error && f->status == 200 && read_numbers(r, f->body, &news)) {
        r->quiet = 0;
        if (r->numbers) /* its memory is asked for first */
            news &= ~(uint32_t)ENGINE_NEWS_SAMPLE;
    } else {
        forget_numbers(r);
        if (missing(f) && !r->use_slots && r->adapter->slots_path)
            r->use_slots = true;
        else if (!f->error && r->quiet < QUIET_AFTER)
            r->quiet++;
    }
    look(r, &news);
    emit(r, news);
}

/* @return the metrics URL's base where it differs from the API's: the same host, a port further up; NULL: no memory. */
static int shifted_base(const struct engine_reader *r, struct buf *out)
{
    struct slice base = slice_str(r->o.base_url);
    size_t colon = base.n;
    uint64_t port;

    while (colon > 0 && base.p[colon - 1] != ':')
        colon--;
    if (colon == 0 || num_u64(slice_from(base, colon), &port) != 0)
        return buf_put_slice(out, base);
    buf_put_slice(out, slice_of(base.p, colon));
    return buf_put_u64(out, port + r->adapter->metrics_port_shift);
}

static void scrape(struct engine_reader *r)
{
    const struct engine_adapter *a = r->adapter;
    struct buf base;

    if (r->numbers)
        return;
    if (!a->metrics && a->slots_path)
        r->use_slots = true;
    if (!a->metrics && !a->slots_path && !r->o.metrics_url) {
        r->looked_metrics = true;
        return;
    }
    if (r->o.metrics_url && !r->use_slots) {
        if (ask(r, r->o.metrics_url, "", NULL, ANSWER_MAX, on_numbers, &r->numbers) != 0)
            r->numbers = NULL;
        return;
    }
    buf_init(&base, loop_mem(), URL_MAX);
    if (shifted_base(r, &base) == 0)
        buf_put_char(&base, '\0');
    const char *from = r->use_slots ? r->o.base_url : base.err ? NULL : buf_slice(&base).p;
    if (!from || ask(r, from, r->use_slots ? a->slots_path : a->metrics_path,
                     r->use_slots ? a->slots_post : NULL, ANSWER_MAX, on_numbers, &r->numbers) != 0)
        r->numbers = NULL;
    buf_fini(&base);
}

static void on_scrape(struct loop_timer *t)
{
    struct engine_reader *r = container_of(t, struct engine_reader, scrape_timer);
    uint32_t news = 0;

    loop_timer_set(r->o.loop, t, loop_now(r->o.loop) + r->o.interval_ns);
    if (r->o.wants_sample && !r->o.wants_sample(r->o.ctx)) {
        forget_last(r);
        r->looked_metrics = true;
        look(r, &news);
        emit(r, news);
        return;
    }
    /* It has no numbers to tell: look seldom whether that changed. */
    if (r->quiet == QUIET_AFTER && ++r->skipped % QUIET_EVERY != 0)
        return;
    scrape(r);
}

/* --- is it healthy --- */

static bool asks_for_model(const struct engine_reader *r)
{
    return !r->o.health_path && r->adapter->health_of_model && r->o.model.n;
}

static const char *health_path(const struct engine_reader *r)
{
    return r->o.health_path ? r->o.health_path : r->adapter->health_paths[r->health_step];
}

static enum engine_state judge(const struct engine_reader *r, const struct fetch_result *f)
{
    const struct engine_adapter *a = r->adapter;
    bool last = !r->o.health_path && !a->health_paths[r->health_step + 1];

    if (f->status >= 200 && f->status < 300 && asks_for_model(r) && a->healthy) {
        enum engine_fault fault = a->healthy(f->body);
        return fault == ENGINE_FAULT_NONE      ? ENGINE_STATE_READY
               : fault == ENGINE_FAULT_LOADING ? ENGINE_STATE_LOADING
                                               : ENGINE_STATE_DEAD;
    }
    if (f->status >= 200 && f->status < 300)
        return ENGINE_STATE_READY;
    if (engine_fault_by(a->faults, f->status, f->body) == ENGINE_FAULT_LOADING ||
        (a->loading_status && f->status == a->loading_status))
        return ENGINE_STATE_LOADING;
    if (a->silent_503 && f->status == 503 && !r->ever_ready)
        return ENGINE_STATE_LOADING;
    if (last && a->any_answer && r->health_step > 0 && f->status < 500)
        return ENGINE_STATE_READY;
    return ENGINE_STATE_DEAD;
}

static void ask_health(struct engine_reader *r);

static void on_health(void *ctx, const struct fetch_result *f)
{
    struct engine_reader *r = ctx;
    bool was_reachable = r->reachable;
    uint32_t news = ENGINE_NEWS_HEALTH;

    r->health = NULL;
    if (!f->error && (f->status == 404 || f->status == 405) && !r->o.health_path &&
        !asks_for_model(r) && r->adapter->health_paths[r->health_step + 1]) {
        r->health_step++;
        r->reachable = true;
        ask_health(r);
        return;
    }
    enum engine_state before = r->state;
    r->reachable = !f->error;
    r->state = f->error ? ENGINE_STATE_DEAD : judge(r, f);
    if (f->error)
        snprintf(r->why, sizeof(r->why), "%s", f->message);
    else
        snprintf(r->why, sizeof(r->why), "status %u", f->status);
    if (r->state == ENGINE_STATE_READY)
        r->ever_ready = true;
    if (!r->reachable) {
        r->ever_ready = false;
        forget_last(r);
    }
    bool returned = r->reachable && !was_reachable && before != ENGINE_STATE_UNKNOWN;
    bool woke = r->state == ENGINE_STATE_READY && before != ENGINE_STATE_READY &&
                before != ENGINE_STATE_UNKNOWN;
    /* While it loads an engine may refuse every path, and so look like none that we know. */
    if (is_auto(r) && (returned || (woke && r->adapter == &engine_generic)))
        look_again(r);
    if (woke)
        r->quiet = r->skipped = 0;
    if (r->want_models && r->state == ENGINE_STATE_READY && before != ENGINE_STATE_READY &&
        (before != ENGINE_STATE_UNKNOWN || returned))
        ask_models(r, r->adapter->models_path, r->adapter->models_post);
    look(r, &news);
    /* That anything at all answers at "/" means little while it may be an engine with a health path of its own. */
    if (!r->detected && r->adapter->any_answer && r->health_step > 1 && !r->o.health_path) {
        r->state = ENGINE_STATE_UNKNOWN;
        news &= ~(uint32_t)ENGINE_NEWS_HEALTH;
    }
    emit(r, news);
}

static void ask_health(struct engine_reader *r)
{
    struct buf path;

    if (r->health)
        return;
    buf_init(&path, loop_mem(), URL_MAX);
    if (asks_for_model(r)) {
        buf_put_str(&path, r->adapter->health_of_model);
        buf_put_slice(&path, r->o.model);
    } else {
        buf_put_str(&path, health_path(r));
    }
    buf_put_char(&path, '\0');
    const char *post = r->o.health_path ? NULL : r->adapter->health_post;
    if (path.err || ask(r, r->o.base_url, buf_slice(&path).p, post, HEALTH_ANSWER_MAX, on_health,
                        &r->health) != 0)
        r->health = NULL;
    buf_fini(&path);
}

static void on_check(struct loop_timer *t)
{
    struct engine_reader *r = container_of(t, struct engine_reader, health_timer);
    uint64_t every = MAX(r->o.health_ns, r->o.health_path ? 0 : r->adapter->health_least_ns);

    ask_health(r);
    if (r->want_models && (r->ask_again || r->rounds % MODELS_EVERY == 0))
        ask_models(r, r->adapter->models_path, r->adapter->models_post);
    r->rounds++;
    loop_timer_set(r->o.loop, t,
                   loop_now(r->o.loop) + every - (r->rounds == 1 ? MIN(r->o.shift_ns, every) : 0));
}

/* --- life --- */

static size_t room_of(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static const char *put_text(char **to, const char *text)
{
    const char *at = text ? *to : NULL;

    if (text)
        memcpy(*to, text, room_of(text));
    *to += room_of(text);
    return at;
}

int engine_reader_new(const struct engine_options *o, struct engine_reader **out)
{
    size_t room = room_of(o->base_url) + room_of(o->health_path) + room_of(o->unix_path) +
                  room_of(o->metrics_url) + o->model.n + 1;
    struct engine_reader *r = mem_zalloc(loop_mem(), sizeof(*r) + room);
    char *text = (char *)(r + 1);

    if (!r)
        return WEIR_E_NOMEM;
    r->o = *o;
    if (r->o.health_ns == 0)
        r->o.health_ns = o->interval_ns ? o->interval_ns : 5 * NS_PER_S;
    r->o.base_url = put_text(&text, o->base_url);
    r->o.health_path = put_text(&text, o->health_path);
    r->o.unix_path = put_text(&text, o->unix_path);
    r->o.metrics_url = put_text(&text, o->metrics_url);
    if (o->model.n)
        memcpy(text, o->model.p, o->model.n);
    r->o.model = slice_of(text, o->model.n);
    r->adapter = engine_adapter_of(o->kind);
    r->detected = !is_auto(r);
    r->want_models = !o->no_models;
    r->ratio = -1;
    snprintf(r->why, sizeof(r->why), "not asked yet");
    r->health_timer.on_timer = on_check;
    r->scrape_timer.on_timer = on_scrape;
    loop_timer_set(o->loop, &r->health_timer, 0);
    if (o->interval_ns)
        loop_timer_set(o->loop, &r->scrape_timer, 0);
    *out = r;
    return 0;
}

void engine_reader_free(struct engine_reader *r)
{
    if (!r)
        return;
    cancel(&r->health);
    cancel(&r->models);
    cancel(&r->numbers);
    cancel(&r->sign);
    loop_timer_cancel(&r->health_timer);
    loop_timer_cancel(&r->scrape_timer);
    forget_numbers(r);
    mem_free(loop_mem(), r->partial);
    list_free(r->list);
    list_free(r->next);
    mem_free(loop_mem(), r);
}

void engine_reader_want_models(struct engine_reader *r, bool want)
{
    if (want && !r->want_models) {
        r->want_models = true;
        ask_models(r, r->adapter->models_path, r->adapter->models_post);
    }
    r->want_models = want;
}
