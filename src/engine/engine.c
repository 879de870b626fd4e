/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler of one emulated engine. KV accounting: kv_held is what requests hold outside the prefix cache; blocks in
 * use and idle blocks come on top, 512 tokens each. A block that two requests computed at the same time is kept once,
 * as SGLang's radix tree does.
 */
#include "engine/engine.h"

#include "engine/meter.h"
#include "engine/prefix.h"

enum {
    FREE_TOKENS =
        128, /* new tokens that ride along with the weights: measured knees lie at 22..177 */
    DEFAULT_SEQS = 256,
    DEFAULT_BATCHED = 8192,
};

struct engine {
    const struct mem *mem;
    struct engine_profile profile;
    uint64_t kv_capacity;
    uint32_t max_num_seqs;
    uint32_t max_batched_tokens;
    uint32_t max_model_len;
    uint64_t ready_ns;
    uint64_t now_ns;
    double slowdown;

    struct list waiting;
    struct list running; /* oldest admission first */
    uint32_t n_waiting;
    uint32_t n_running;
    uint64_t kv_held;
    struct engine_prefix prefix;

    bool in_step;
    bool advancing;
    uint64_t step_start_ns;
    uint64_t step_end_ns;
    uint64_t kick_ns; /* idle, and work arrived: begin a step then */
    uint32_t step_batch;

    /* Quiet mode: the step under way and `ahead` more are nothing but one token for each of the same requests, and
     * nobody ends before the last. `behind` of them are over and not yet written into the requests. */
    bool quiet;
    uint32_t ahead;
    uint32_t behind;
    uint64_t context; /* of the step under way */

    struct engine_meter busy;
    struct engine_meter tokens;
    struct engine_stats totals;
};

uint64_t engine_step_ns(const struct engine_profile *p,
                        uint64_t new_tokens,
                        uint64_t context_tokens,
                        uint64_t batch)
{
    uint64_t paid = new_tokens > FREE_TOKENS ? new_tokens - FREE_TOKENS : 0;
    double ms = p->floor_ms + p->b_ms * (double)paid + p->k_us * (double)context_tokens / 1000.0 +
                p->c_ms * (double)batch;

    return (uint64_t)(ms * 1e6 + 0.5);
}

int engine_new(const struct mem *mem, const struct engine_config *config, struct engine **out)
{
    const struct engine_profile *p = &config->profile;
    uint64_t capacity = config->kv_tokens ? config->kv_tokens : p->kv_tokens;
    uint32_t len = config->max_model_len ? config->max_model_len : p->max_model_len;

    if (capacity == 0 || capacity > UINT32_MAX || len == 0 || !(p->floor_ms > 0) ||
        !(p->b_ms >= 0) || !(p->k_us >= 0) || !(p->c_ms >= 0))
        return WEIR_E_INVALID;
    struct engine *e = mem_zalloc(mem, sizeof(*e));
    if (!e)
        return WEIR_E_NOMEM;
    e->mem = mem;
    e->profile = *p;
    e->kv_capacity = capacity;
    e->max_num_seqs = config->max_num_seqs ? config->max_num_seqs : DEFAULT_SEQS;
    e->max_batched_tokens =
        config->max_batched_tokens ? config->max_batched_tokens : DEFAULT_BATCHED;
    e->max_model_len = (uint32_t)MIN(len, capacity);
    e->now_ns = config->start_ns;
    e->ready_ns = config->start_ns + config->load_ns;
    e->slowdown = 1;
    e->quiet = config->quiet;
    e->kick_ns = ENGINE_NEVER;
    list_init(&e->waiting);
    list_init(&e->running);
    uint64_t window = config->window_ns ? config->window_ns : UINT64_C(1000000000);
    engine_meter_init(&e->busy, window, config->start_ns);
    engine_meter_init(&e->tokens, window, config->start_ns);
    int rc = engine_prefix_init(&e->prefix, mem, (uint32_t)(capacity / ENGINE_BLOCK_TOKENS));
    if (rc) {
        mem_free(mem, e);
        return rc;
    }
    *out = e;
    return 0;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    engine_prefix_fini(&e->prefix);
    mem_free(e->mem, e);
}

uint32_t engine_max_model_len(const struct engine *e)
{
    return e->max_model_len;
}

void engine_set_slowdown(struct engine *e, double factor)
{
    BUG_ON(!(factor > 0));
    e->slowdown = factor;
}

static uint64_t kv_used(const struct engine *e)
{
    return e->kv_held + (uint64_t)e->prefix.n_used * ENGINE_BLOCK_TOKENS;
}

/* Make idle blocks leave until everything resident fits. */
static void kv_settle(struct engine *e)
{
    while (kv_used(e) + (uint64_t)e->prefix.n_idle * ENGINE_BLOCK_TOKENS > e->kv_capacity)
        BUG_ON(!engine_prefix_evict(&e->prefix));
}

static bool kv_take(struct engine *e, struct engine_request *r, uint32_t n)
{
    if (kv_used(e) + n > e->kv_capacity)
        return false;
    e->kv_held += n;
    r->held += n;
    kv_settle(e);
    return true;
}

static void kv_release(struct engine *e, struct engine_request *r)
{
    /* Last block first: it then leaves first, and what stays is still a usable prefix. */
    while (r->shared)
        engine_prefix_release(&e->prefix, r->blocks[--r->shared]);
    e->kv_held -= r->held;
    r->held = 0;
    r->computed = 0;
    r->step_tokens = 0;
}

static void kick(struct engine *e, uint64_t at_ns)
{
    at_ns = MAX(at_ns, e->ready_ns);
    if (!e->in_step && at_ns < e->kick_ns)
        e->kick_ns = at_ns;
}

int engine_submit(struct engine *e, uint64_t now_ns, struct engine_request *r)
{
    BUG_ON(r->place != ENGINE_OUT);
    if (r->prompt_tokens == 0)
        return WEIR_E_INVALID;
    if ((uint64_t)r->prompt_tokens + r->output_tokens > e->max_model_len)
        return WEIR_E_RANGE;
    e->now_ns = MAX(e->now_ns, now_ns);
    r->generated = r->cached_tokens = r->preemptions = 0;
    r->computed = r->held = r->shared = r->step_tokens = 0;
    r->submitted_ns = e->now_ns;
    r->admitted_ns = r->first_token_ns = 0;
    r->place = ENGINE_WAITING;
    list_init(&r->node);
    list_add(&e->waiting, &r->node);
    e->n_waiting++;
    e->ahead = 0; /* the next step may have it */
    kick(e, e->now_ns);
    return 0;
}

static void leave(struct engine *e, struct engine_request *r)
{
    list_del(&r->node);
    if (r->place == ENGINE_RUNNING)
        e->n_running--;
    else
        e->n_waiting--;
    kv_release(e, r);
    r->place = ENGINE_OUT;
}

/* What the steps that were run through at once did to the requests. */
static void catch_up(struct engine *e)
{
    if (e->behind == 0)
        return;
    for (struct list *at = e->running.next; at != &e->running; at = at->next) {
        struct engine_request *r = container_of(at, struct engine_request, node);
        r->generated += e->behind;
        r->computed += e->behind;
        r->held += e->behind;
    }
    e->behind = 0;
}

void engine_cancel(struct engine *e, struct engine_request *r)
{
    if (r->place == ENGINE_OUT)
        return;
    catch_up(e);
    e->ahead = 0;
    leave(e, r);
}

/* Blocks that lie wholly in the prompt; a caller may name more than it has tokens for. */
static uint32_t blocks_of(const struct engine_request *r)
{
    return MIN(r->n_blocks, r->prompt_tokens / ENGINE_BLOCK_TOKENS);
}

/* Tokens whose KV must be there before the next one can be generated. */
static uint32_t target_of(const struct engine_request *r)
{
    return r->prompt_tokens + r->generated;
}

static void preempt(struct engine *e, struct engine_request *r)
{
    leave(e, r);
    r->place = ENGINE_WAITING;
    list_add(e->waiting.next, &r->node); /* before the first: at the head */
    e->n_waiting++;
    r->preemptions++;
    e->totals.preemptions++;
}

static struct engine_request *first_of(struct list *head)
{
    return container_of(head->next, struct engine_request, node);
}

/* What a step is made of while it is put together. */
struct batch {
    uint32_t budget;
    uint64_t new_tokens;
    uint64_t context;
    uint64_t extra_ns;
    uint32_t n;
    uint32_t n_decoding;
    uint32_t shortest; /* tokens to go of the decoding one that ends first, this step's included */
};

static void schedule(struct batch *b, struct engine_request *r)
{
    uint32_t need = target_of(r) - r->computed;

    r->step_tokens = MIN(need, b->budget);
    b->budget -= r->step_tokens;
    b->new_tokens += r->step_tokens;
    b->n += r->step_tokens > 0;
    if (r->generated && need == 1 && r->step_tokens) {
        b->context += target_of(r);
        b->n_decoding++;
        b->shortest = MIN(b->shortest, r->output_tokens - r->generated);
    }
}

/* KV for the next token, at the cost of the newest if need be. @return false when r itself had to go. */
static bool grow(struct engine *e, struct engine_request *r)
{
    while ((uint64_t)r->shared * ENGINE_BLOCK_TOKENS + r->held < target_of(r)) {
        if (kv_take(e, r, 1))
            continue;
        struct engine_request *newest = container_of(e->running.prev, struct engine_request, node);
        preempt(e, newest);
        if (newest == r)
            return false;
    }
    return true;
}

static bool admit(struct engine *e, struct engine_request *r, uint64_t now_ns)
{
    uint32_t target = target_of(r);
    /* At least one token is computed anew, or there would be nothing to sample from. */
    uint32_t usable = MIN(blocks_of(r), (target - 1) / ENGINE_BLOCK_TOKENS);
    uint32_t idle;
    uint32_t hits = engine_prefix_probe(&e->prefix, r->blocks, usable, &idle);
    uint32_t need = target - hits * ENGINE_BLOCK_TOKENS;

    if (kv_used(e) + (uint64_t)idle * ENGINE_BLOCK_TOKENS + need > e->kv_capacity)
        return false;
    for (uint32_t i = 0; i < hits; i++) {
        bool was_idle;
        BUG_ON(!engine_prefix_use(&e->prefix, r->blocks[i], &was_idle));
    }
    r->shared = hits;
    r->computed = hits * ENGINE_BLOCK_TOKENS;
    BUG_ON(!kv_take(e, r, need));
    list_del(&r->node);
    list_add(&e->running, &r->node);
    e->n_waiting--;
    e->n_running++;
    r->place = ENGINE_RUNNING;
    if (r->preemptions == 0) {
        r->admitted_ns = now_ns;
        r->cached_tokens = r->computed;
        e->totals.prefix_queries += r->prompt_tokens;
        e->totals.prefix_hits += r->cached_tokens;
    }
    return true;
}

static uint64_t slowed(const struct engine *e, uint64_t length)
{
    if (e->slowdown < 1 || e->slowdown > 1)
        length = (uint64_t)((double)length * e->slowdown + 0.5);
    return MAX(length, 1);
}

/* Length of the step after the one under way, when that is one more token for the same. */
static uint64_t next_length(const struct engine *e)
{
    return slowed(
        e, engine_step_ns(&e->profile, e->step_batch, e->context + e->step_batch, e->step_batch));
}

static void begin_step(struct engine *e, uint64_t now_ns)
{
    struct batch b = {.budget = e->max_batched_tokens, .shortest = UINT32_MAX};

    e->kick_ns = ENGINE_NEVER;
    /* A preemption takes from the end only, never what was scheduled before. */
    for (struct list *at = e->running.next; at != &e->running; at = at->next) {
        struct engine_request *r = container_of(at, struct engine_request, node);
        if (!grow(e, r))
            break;
        schedule(&b, r);
    }
    /* What was just thrown back needs more than it gave, so it does not come back in the same step. */
    while (b.budget > 0 && e->n_waiting > 0 && e->n_running < e->max_num_seqs) {
        struct engine_request *r = first_of(&e->waiting);
        if (!admit(e, r, now_ns))
            break;
        schedule(&b, r);
        if (r->preemptions == 0)
            b.extra_ns += r->extra_ns;
    }
    if (b.n == 0) {
        BUG_ON(e->n_waiting + e->n_running > 0);
        return;
    }
    uint64_t length =
        slowed(e, engine_step_ns(&e->profile, b.new_tokens, b.context, b.n) + b.extra_ns);
    e->in_step = true;
    e->step_start_ns = now_ns;
    e->step_end_ns = now_ns + length;
    e->step_batch = b.n;
    e->context = b.context;
    e->totals.steps++;
    /* Who could not be admitted now cannot be while memory only gets scarcer. */
    if (e->quiet && b.n == b.n_decoding && b.n == e->n_running) {
        uint64_t room = (e->kv_capacity - kv_used(e)) / b.n;
        e->ahead = (uint32_t)MIN(b.shortest - 1, room);
    }
}

/* Prompt blocks that are whole now become common property. */
static void share_blocks(struct engine *e, struct engine_request *r)
{
    uint32_t whole = MIN(blocks_of(r), r->computed / ENGINE_BLOCK_TOKENS);

    while (r->shared < whole) {
        bool was_idle;
        uint64_t hash = r->blocks[r->shared];
        if (!engine_prefix_use(&e->prefix, hash, &was_idle) && engine_prefix_add(&e->prefix, hash))
            return; /* no place: it stays private */
        r->shared++;
        r->held -= ENGINE_BLOCK_TOKENS;
        e->kv_held -= ENGINE_BLOCK_TOKENS;
    }
}

static void progress_one(struct engine *e,
                         struct engine_request *r,
                         uint64_t at_ns,
                         engine_progress_fn progress,
                         void *ctx)
{
    r->computed += r->step_tokens;
    r->step_tokens = 0;
    share_blocks(e, r);
    if (r->computed < target_of(r))
        return;
    if (r->first_token_ns == 0) {
        r->first_token_ns = at_ns;
        e->totals.prompt_tokens += r->prompt_tokens;
    }
    if (r->output_tokens > 0) {
        r->generated++;
        e->totals.generation_tokens++;
        engine_meter_add(&e->tokens, at_ns, 1);
    }
    bool finished = r->generated >= r->output_tokens;
    if (finished)
        leave(e, r);
    if (!e->quiet || finished || r->generated == 1)
        progress(ctx, r, at_ns, finished);
}

/* Statistics of a step that is over. */
static void account(struct engine *e)
{
    e->totals.busy_ns += e->step_end_ns - e->step_start_ns;
    engine_meter_add_interval(&e->busy, e->step_start_ns, e->step_end_ns);
}

/* The steps up to now in which nothing but one token for everybody happens; the last of them stays under way. */
static void run_through(struct engine *e, uint64_t now_ns)
{
    uint32_t n = e->step_batch;

    while (e->ahead > 0 && e->step_end_ns <= now_ns) {
        account(e);
        e->totals.generation_tokens += n;
        engine_meter_add(&e->tokens, e->step_end_ns, n);
        uint64_t length = next_length(e);
        e->kv_held += n;
        kv_settle(e);
        e->context += n;
        e->step_start_ns = e->step_end_ns;
        e->step_end_ns += length;
        e->totals.steps++;
        e->ahead--;
        e->behind++;
    }
}

static void end_step(struct engine *e, engine_progress_fn progress, void *ctx)
{
    uint64_t at_ns = e->step_end_ns;
    struct list todo;

    account(e);
    catch_up(e);
    e->in_step = false;
    e->step_batch = 0;
    /* Taken one by one off a list of their own, so that a callback may cancel any of them. */
    list_init(&todo);
    list_add(&e->running, &todo);
    list_del(&e->running);
    while (!list_empty(&todo)) {
        struct engine_request *r = first_of(&todo);
        list_del(&r->node);
        list_add(&e->running, &r->node);
        if (r->step_tokens > 0)
            progress_one(e, r, at_ns, progress, ctx);
    }
}

uint64_t engine_next_event(const struct engine *e)
{
    if (!e->in_step)
        return e->kick_ns;
    /* Steps get no shorter while contexts grow. */
    return e->step_end_ns + (e->ahead ? e->ahead * next_length(e) : 0);
}

void engine_advance(struct engine *e, uint64_t now_ns, engine_progress_fn progress, void *ctx)
{
    BUG_ON(e->advancing);
    e->advancing = true;
    for (;;) {
        run_through(e, now_ns);
        uint64_t at_ns = e->in_step ? e->step_end_ns : e->kick_ns;
        if (at_ns > now_ns || at_ns == ENGINE_NEVER)
            break;
        e->now_ns = MAX(e->now_ns, at_ns);
        if (e->in_step)
            end_step(e, progress, ctx);
        begin_step(e, at_ns);
    }
    e->now_ns = MAX(e->now_ns, now_ns);
    e->advancing = false;
}

void engine_read_stats(const struct engine *e, uint64_t now_ns, struct engine_stats *out)
{
    struct engine_meter busy = e->busy;

    *out = e->totals;
    if (e->in_step && now_ns > e->step_start_ns) {
        uint64_t until = MIN(now_ns, e->step_end_ns);
        engine_meter_add_interval(&busy, e->step_start_ns, until);
        out->busy_ns += until - e->step_start_ns;
    }
    out->running = e->n_running;
    out->waiting = e->n_waiting;
    out->batch = e->step_batch;
    out->kv_capacity = e->kv_capacity;
    out->kv_used = kv_used(e);
    out->kv_cached = (uint64_t)e->prefix.n_idle * ENGINE_BLOCK_TOKENS;
    out->utilization = engine_meter_rate(&busy, now_ns);
    out->tokens_per_s = engine_meter_rate(&e->tokens, now_ns) * 1e9;
    out->loading = now_ns < e->ready_ns;
}
