/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request in a run is that in the gateway: it arrives, the pool picks and reserves or lets it wait, the
 * worker computes, the first byte drops the prefill from the ledger, the end releases the reservation and offers its
 * place to those who wait. Only what lies between Weir and its workers, the network, takes no time here.
 */
#include "apps/sim/run.h"

#include "apps/sim/world.h"
#include "base/bug.h"

enum { SLAB = 256, PROGRESS_EVERY = 4096 };

/* ------------------------------------------------------------------------------------------------- jobs */

static bool more_jobs(struct sim_world *w)
{
    struct sim_job **slabs = mem_resize(w->mem, w->slabs, w->n_slabs + 1, sizeof(struct sim_job *));

    if (!slabs)
        return false;
    w->slabs = slabs;
    struct sim_job *slab = mem_array(w->mem, SLAB, sizeof(*slab));
    if (!slab)
        return false;
    w->slabs[w->n_slabs++] = slab;
    for (uint32_t i = 0; i < SLAB; i++) {
        list_init(&slab[i].node);
        list_add(&w->spare, &slab[i].node);
    }
    w->n_jobs += SLAB;
    return des_queue_reserve(&w->queue, 4 * w->n_workers + 1 + w->n_jobs) == 0;
}

struct sim_job *sim_run_job(struct sim_world *w, uint32_t index)
{
    const struct sim_request *r = &w->o->trace->requests[index];

    if (list_empty(&w->spare) && !more_jobs(w)) {
        w->rc = WEIR_E_NOMEM;
        return NULL;
    }
    /* The one used last, which is still in the cache. */
    struct sim_job *j = container_of(w->spare.prev, struct sim_job, node);
    list_del(&j->node);
    const uint64_t *blocks = w->o->trace->blocks + r->first_block;
    *j = (struct sim_job){.index = index, .timeout = {.kind = EVENT_TIMEOUT}};
    list_init(&j->node);
    j->request.prompt_tokens = r->prompt_tokens;
    j->request.output_tokens = r->output_tokens;
    j->request.n_blocks = r->n_blocks;
    j->request.blocks = blocks;
    j->request.extra_ns = r->extra_ns;
    j->features = (struct features){
        .model = slice_str(w->o->fleet->model),
        .task = r->task,
        .stream = r->output_tokens > 0,
        .prompt_complete = true,
        .prompt_tokens = r->prompt_tokens,
        .prompt_bytes = (uint64_t)r->prompt_tokens * 4,
        .body_bytes = (uint64_t)r->prompt_tokens * 4,
        .output_tokens = w->o->oracle ? r->output_tokens : r->limit,
        .n_images = r->n_images,
        .session = r->session,
        .has_session = r->session != 0,
        .tenant = r->tenant < w->o->trace->n_tenants ? slice_str(w->o->trace->tenants[r->tenant])
                                                     : slice_of(NULL, 0),
        .priority = r->priority ? r->priority : PRIORITY_DEFAULT,
        .slo_ttft_ns = w->o->slo_ttft_ns,
        .slo_by_ns = w->o->slo_ttft_ns ? w->queue.now_ns + w->o->slo_ttft_ns : 0,
        .slo_tpot_ns = w->o->slo_tpot_ns,
        .blocks = blocks,
        /* Weir names whole blocks only. */
        .n_blocks = MIN(r->n_blocks, r->prompt_tokens / ENGINE_BLOCK_TOKENS),
        /* Whoever shares the first block shares its first characters. */
        .prefix_key = r->n_blocks ? blocks[0] : 0,
    };
    return j;
}

/* Over, whatever happened; its reservation is released. */
static void job_over(struct sim_world *w, struct sim_job *j, enum sim_end end)
{
    struct sim_outcome *o = &w->result->outcomes[j->index];

    des_cancel(&w->queue, &j->timeout);
    o->end = (uint8_t)end;
    o->end_ns = w->queue.now_ns - SIM_EPOCH;
    list_del(&j->node);
    list_add(&w->spare, &j->node);
    w->live--;
    if (++w->done % PROGRESS_EVERY == 0 && w->o->progress)
        w->o->progress(w->o->ctx, w->done, w->o->trace->n);
}

/* @param input, output as used. */
static void release(struct sim_world *w, struct sim_job *j, uint64_t input, uint64_t output)
{
    sched_pool_settle(w->pool, &j->reservation, input, output);
    struct cell *c = sched_release(&j->reservation);

    BUG_ON(!c);
    sched_cell_put(c);
    sim_run_offer(w);
}

static void rejected(struct sim_world *w, struct sim_job *j, enum rejection why)
{
    w->result->outcomes[j->index].rejection = (uint8_t)why;
    job_over(w, j, SIM_REJECTED);
}

/* --------------------------------------------------------------------------------------------- engines */

static void on_progress(void *ctx, struct engine_request *r, uint64_t at_ns, bool finished)
{
    struct sim_world *w = ctx;
    struct sim_job *j = container_of(r, struct sim_job, request);
    struct sim_outcome *o = &w->result->outcomes[j->index];

    if (o->first_ns == 0) {
        o->first_ns = at_ns - SIM_EPOCH;
        sched_work_first_byte(&j->reservation, at_ns);
    }
    if (!finished)
        return;
    const struct usage usage = {.prompt_tokens = r->prompt_tokens,
                                .completion_tokens = r->output_tokens,
                                .cached_tokens = r->cached_tokens,
                                .known = USAGE_PROMPT | USAGE_COMPLETION | USAGE_CACHED};
    sched_work_end(w->lore, &j->reservation, &j->features, &usage, at_ns);
    struct sim_worker_result *k = j->worker->result;
    o->cached_tokens = r->cached_tokens;
    k->requests++;
    k->prompt_tokens += r->prompt_tokens;
    k->cached_tokens += r->cached_tokens;
    k->preemptions += r->preemptions;
    job_over(w, j, SIM_OK);
    /* job_over() gave j back, but nobody takes it before the engine is done: arrivals are events of their own. */
    release(w, j, r->prompt_tokens, r->output_tokens);
}

void sim_run_engine(struct sim_world *w, struct sim_worker *k)
{
    if (k->advancing)
        return; /* a request that ends there makes room for one that goes there */
    k->advancing = true;
    engine_advance(k->engine, w->queue.now_ns, on_progress, w);
    k->advancing = false;
    uint64_t next = engine_next_event(k->engine);
    des_set(&w->queue, &k->engine_event, next == ENGINE_NEVER ? DES_NEVER : next);
}

static void send(struct sim_world *w, struct sim_job *j, uint32_t slot)
{
    struct sim_worker *k = w->by_slot[slot];
    struct sim_outcome *o = &w->result->outcomes[j->index];

    BUG_ON(slot >= w->n_slots || !k);
    sched_work_note(w->lore, &j->reservation, &j->features);
    des_cancel(&w->queue, &j->timeout);
    j->worker = k;
    o->worker = (uint16_t)(k - w->workers);
    o->sent_ns = w->queue.now_ns - SIM_EPOCH;
    sim_run_engine(w, k);
    list_add(&k->jobs, &j->node);
    int rc = engine_submit(k->engine, w->queue.now_ns, &j->request);
    if (rc) {
        job_over(w, j, SIM_MEMORY);
        release(w, j, 0, 0);
        return;
    }
    if (!k->advancing)
        des_set(&w->queue, &k->engine_event, engine_next_event(k->engine));
}

/* -------------------------------------------------------------------------------------------- decisions */

void sim_run_offer(struct sim_world *w)
{
    struct member chosen;
    struct sched_waiter *waiter;

    /* An offer's own consequences are served by it. */
    if (w->offering || sched_pool_waiting(w->pool) == 0)
        return;
    w->offering = true;
    while ((waiter = sched_pool_offer(w->pool, w->queue.now_ns, prng_next(&w->pick_prng),
                                      &w->scratch, &chosen)) != NULL) {
        struct sim_job *j = container_of(waiter, struct sim_job, waiter);
        if (waiter->rejection)
            rejected(w, j, waiter->rejection);
        else
            send(w, j, chosen.endpoint->slot);
    }
    w->offering = false;
}

static int admit(struct sim_world *w, struct sim_job *j, struct member *chosen, struct decision *d)
{
    uint64_t began = w->o->clock ? w->o->clock() : 0;
    int rc = sched_pool_admit(w->pool, &j->features, NULL, w->queue.now_ns,
                              prng_next(&w->pick_prng), &w->scratch, &j->reservation, chosen, d);

    if (w->o->clock)
        w->result->decision_ns[w->result->n_decisions++] = (uint32_t)(w->o->clock() - began);
    return rc;
}

static void arrive(struct sim_world *w, uint32_t index)
{
    struct sim_job *j = sim_run_job(w, index);
    struct member chosen;
    struct decision d;

    if (!j)
        return;
    w->live++;
    sched_lore_prepare(w->lore, &j->features);
    w->result->outcomes[index].at_ns = w->queue.now_ns - SIM_EPOCH;
    int rc = admit(w, j, &chosen, &d);
    if (rc == 0) {
        send(w, j, chosen.endpoint->slot);
        return;
    }
    if (rc != WEIR_E_AGAIN) {
        rejected(w, j, d.rejection ? d.rejection : REJECT_NO_ENDPOINT);
        return;
    }
    j->waiter.features = &j->features;
    j->waiter.reservation = &j->reservation;
    j->waiter.prefill_us = d.prefill_us;
    rc = sched_pool_enqueue(w->pool, &j->waiter, w->queue.now_ns);
    if (rc) {
        rejected(w, j, rc == WEIR_E_TIMEOUT ? j->waiter.rejection : REJECT_QUEUE_FULL);
        return;
    }
    if (w->o->queue_timeout_ns)
        des_set(&w->queue, &j->timeout, w->queue.now_ns + w->o->queue_timeout_ns);
    sim_run_offer(w);
}

/* ------------------------------------------------------------------------------------------------ clock */

static uint64_t next_arrival(const struct sim_world *w)
{
    if (w->next == w->o->trace->n)
        return DES_NEVER;
    if (w->o->closed)
        return w->live < w->o->closed ? w->queue.now_ns : DES_NEVER;
    return w->arrivals[w->order[w->next]];
}

static void arrivals_over(struct sim_world *w)
{
    uint64_t now = w->queue.now_ns;

    w->arrivals_over = true;
    w->result->arrivals_ns = now - SIM_EPOCH;
    for (uint32_t i = 0; i < w->n_workers; i++) {
        struct sim_worker *k = &w->workers[i];
        struct engine_stats s;
        sim_run_engine(w, k);
        engine_read_stats(k->engine, now, &s);
        k->result->busy_ns = s.busy_ns;
        if (now > SIM_EPOCH + k->group->join_ns)
            k->result->present_ns = now - SIM_EPOCH - k->group->join_ns;
    }
}

static void arrive_next(struct sim_world *w)
{
    uint32_t index = w->order[w->next++];

    arrive(w, index);
    if (w->next == w->o->trace->n)
        arrivals_over(w);
}

/* The load map keeps its size: when it is full, two ticks become one, and looks half as frequent. */
static void fold_ticks(struct sim_result *r)
{
    for (uint32_t k = 0; k < r->n_workers; k++)
        for (uint32_t i = 0; i < SIM_TICKS / 2; i++)
            r->workers[k].load[i] = (r->workers[k].load[2 * i] + r->workers[k].load[2 * i + 1]) / 2;
    for (uint32_t k = 0; k < r->n_workers; k++)
        memset(&r->workers[k].load[SIM_TICKS / 2], 0, SIM_TICKS / 2 * sizeof(uint32_t));
    r->n_ticks = SIM_TICKS / 2;
    r->tick_ns *= 2;
}

static void tick(struct sim_world *w)
{
    struct sim_result *r = w->result;
    uint64_t at = (w->queue.now_ns - SIM_EPOCH) / r->tick_ns;

    if (at >= SIM_TICKS) {
        fold_ticks(r);
        at = (w->queue.now_ns - SIM_EPOCH) / r->tick_ns;
    }
    r->n_ticks = MAX(r->n_ticks, (uint32_t)at + 1);
    for (uint32_t i = 0; i < w->n_workers; i++) {
        struct engine_stats s;
        engine_read_stats(w->workers[i].engine, w->queue.now_ns, &s);
        r->workers[i].load[at] += s.running + s.waiting;
    }
    if (!w->arrivals_over || w->live)
        des_set(&w->queue, &w->tick, w->queue.now_ns + r->tick_ns / SIM_LOOKS);
}

static void happen(struct sim_world *w, struct des_event *e)
{
    switch (e->kind) {
    case EVENT_ENGINE:
        sim_run_engine(w, container_of(e, struct sim_worker, engine_event));
        return;
    case EVENT_REPORT:
        sim_signal_report(w, container_of(e, struct sim_worker, report_event));
        return;
    case EVENT_ARRIVAL:
        sim_signal_arrive(w, container_of(e, struct sim_worker, arrival_event));
        return;
    case EVENT_JOIN: {
        struct sim_worker *k = container_of(e, struct sim_worker, join_event);
        sim_world_join(w, k);
        sim_world_refresh(w);
        if (w->rc == 0)
            sim_signal_first(w, k);
        return;
    }
    case EVENT_TIMEOUT: {
        struct sim_job *j = container_of(e, struct sim_job, timeout);
        sched_pool_cancel(w->pool, &j->waiter);
        rejected(w, j, REJECT_QUEUE_TIMEOUT);
        return;
    }
    case EVENT_TICK:
        tick(w);
        return;
    default:
        BUG_ON(true);
    }
}

/* Engines before arrivals at the same instant: what ended makes room for what comes. */
static void live(struct sim_world *w)
{
    w->tick.kind = EVENT_TICK;
    w->result->tick_ns = UINT64_C(1000000000);
    des_set(&w->queue, &w->tick, SIM_EPOCH);
    while (w->rc == 0 && (w->next < w->o->trace->n || w->live)) {
        uint64_t at = des_next_at(&w->queue);
        uint64_t arrival = next_arrival(w);
        BUG_ON(at == DES_NEVER && arrival == DES_NEVER);
        w->result->events++;
        if (arrival < at) {
            w->queue.now_ns = MAX(w->queue.now_ns, arrival);
            arrive_next(w);
        } else {
            struct des_event *e = des_take(&w->queue);
            happen(w, e);
        }
    }
    w->result->end_ns = w->queue.now_ns - SIM_EPOCH;
}

static void sort_u32(uint32_t *v, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < n; i++) {
            uint32_t x = v[i];
            uint32_t k = i;
            for (; k >= gap && v[k - gap] > x; k -= gap)
                v[k] = v[k - gap];
            v[k] = x;
        }
}

int sim_run(const struct sim_options *o, struct sim_result *out)
{
    struct sim_world *w = mem_zalloc(o->mem, sizeof(*w));

    *out = (struct sim_result){.mem = o->mem};
    if (!w)
        return WEIR_E_NOMEM;
    int rc = sim_world_init(w, o, out);
    if (rc == 0) {
        live(w);
        rc = w->rc;
    }
    sim_world_fini(w);
    mem_free(o->mem, w);
    if (rc)
        sim_result_fini(out);
    else if (out->decision_ns)
        sort_u32(out->decision_ns, out->n_decisions);
    return rc;
}

void sim_result_fini(struct sim_result *r)
{
    if (!r->mem)
        return;
    mem_free(r->mem, r->outcomes);
    mem_free(r->mem, r->workers);
    mem_free(r->mem, r->decision_ns);
    *r = (struct sim_result){.mem = r->mem};
}
