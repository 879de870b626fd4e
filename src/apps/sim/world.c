/* SPDX-License-Identifier: Apache-2.0 */
/* What a run stands on: workers with their engines, the fleet that knows them, the pool, and when requests come. */
#include "apps/sim/world.h"

#include "base/bug.h"
#include "base/num.h"

enum { PORT = 8000, ID_DIGITS = 5, LORE_BYTES = 64 << 20 };

static void put_decimal(char *out, uint32_t v, uint32_t digits)
{
    for (uint32_t i = digits; i-- > 0; v /= 10)
        out[i] = (char)('0' + v % 10);
}

/* "a100-0007" */
static void name_worker(struct sim_worker_result *r, const struct sim_group *g, uint32_t index)
{
    size_t n = MIN(strlen(g->gpu), sizeof(r->id) - ID_DIGITS - 2);

    memcpy(r->id, g->gpu, n);
    r->id[n] = '-';
    put_decimal(r->id + n + 1, index, ID_DIGITS - 1);
}

static int add_worker(struct sim_world *w, const struct sim_group *g, uint32_t index)
{
    struct sim_worker *k = &w->workers[index];
    const struct engine_config config = {
        .profile = g->profile,
        .kv_tokens = (uint64_t)g->kv_blocks * ENGINE_BLOCK_TOKENS,
        .max_num_seqs = g->max_num_seqs,
        .max_batched_tokens = g->max_batched_tokens,
        .start_ns = SIM_EPOCH + g->join_ns,
        .load_ns = g->load_ns,
        .quiet = true,
    };

    k->group = g;
    k->result = &w->result->workers[index];
    k->result->group = g;
    list_init(&k->jobs);
    name_worker(k->result, g, index);
    k->engine_event.kind = EVENT_ENGINE;
    k->report_event.kind = EVENT_REPORT;
    k->arrival_event.kind = EVENT_ARRIVAL;
    k->join_event.kind = EVENT_JOIN;
    int rc = engine_new(w->mem, &config, &k->engine);
    if (rc)
        return rc;
    if (g->speed < 1 || g->speed > 1)
        engine_set_slowdown(k->engine, 1 / g->speed);
    return sim_signal_init(w, k);
}

static int add_workers(struct sim_world *w)
{
    uint32_t index = 0;
    int rc = 0;

    w->n_workers = w->o->fleet->n_workers;
    w->workers = mem_array(w->mem, w->n_workers, sizeof(*w->workers));
    w->result->workers = mem_array(w->mem, w->n_workers, sizeof(*w->result->workers));
    w->result->n_workers = w->n_workers;
    if (!w->workers || !w->result->workers)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; rc == 0 && i < w->o->fleet->n_groups; i++)
        for (uint32_t k = 0; rc == 0 && k < w->o->fleet->groups[i].count; k++)
            rc = add_worker(w, &w->o->fleet->groups[i], index++);
    return rc;
}

/* --- when requests come --- */

static void sift(uint32_t *order, const uint64_t *at, uint32_t i, uint32_t n)
{
    for (;;) {
        uint32_t big = i;
        for (uint32_t c = 2 * i + 1; c <= 2 * i + 2 && c < n; c++)
            if (at[order[c]] > at[order[big]] ||
                (at[order[c]] == at[order[big]] && order[c] > order[big]))
                big = c;
        if (big == i)
            return;
        uint32_t swap = order[i];
        order[i] = order[big];
        order[big] = swap;
        i = big;
    }
}

static void sort_order(uint32_t *order, const uint64_t *at, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(order, at, i, n);
    for (uint32_t end = n; end-- > 1;) {
        uint32_t swap = order[0];
        order[0] = order[end];
        order[end] = swap;
        sift(order, at, 0, end);
    }
}

static int plan_arrivals(struct sim_world *w)
{
    const struct sim_trace *t = w->o->trace;
    struct prng jitter = des_stream(w->o->seed, STREAM_JITTER);
    uint64_t slot = w->o->jitter && t->slot_ns > 1 ? t->slot_ns : 0;

    w->arrivals = mem_array(w->mem, t->n, sizeof(*w->arrivals));
    w->order = mem_array(w->mem, t->n, sizeof(*w->order));
    if (!w->arrivals || !w->order)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t at = t->requests[i].at_ns + (slot ? prng_below(&jitter, slot) : 0);
        w->arrivals[i] = SIM_EPOCH + (uint64_t)((double)at / w->o->rate_scale);
        w->order[i] = i;
    }
    if (slot)
        sort_order(w->order, w->arrivals, t->n);
    return 0;
}

/* --- who is in the fleet --- */

static int describe(struct sim_world *w, struct sim_worker *k)
{
    const struct sim_group *g = k->group;
    struct slice service = SLICE("default");
    char host[] = "10.0.0000";
    struct model_ref model = {.id = slice_str(w->o->fleet->model),
                              .max_model_len = engine_max_model_len(k->engine)};
    struct device device = {.type = slice_str(g->profile.gpu_type),
                            .memory_total_bytes = g->profile.memory_total_bytes};

    put_decimal(host + 5, (uint32_t)(k - w->workers), 4);
    struct instance i = {
        .key = slice_str(k->result->id),
        .id = slice_str(k->result->id),
        .services = &service,
        .n_services = 1,
        .host = slice_str(host),
        .port = PORT,
        .models = &model,
        .n_models = 1,
        .tasks = g->tasks,
        .devices = &device,
        .n_devices = 1,
        .weight = g->weight,
        .enabled = true,
        .healthy = true,
        .vouched = true,
        .engine = ENGINE_WEIR_WORKER,
        /* As weir worker registers; a server of fixed costs has a queue of its own. */
        .max_concurrency = g->max_concurrency ? g->max_concurrency
                           : g->fixed_ns      ? 0
                                              : g->max_num_seqs,
        .epoch = 1,
    };
    return fleet_upsert(w->fleet, 0, &i, w->queue.now_ns);
}

static struct sim_worker *find_worker(struct sim_world *w, struct slice id)
{
    uint64_t index = 0;

    /* The digits at the end of the id. */
    BUG_ON(id.n < ID_DIGITS - 1 || num_u64(slice_from(id, id.n - (ID_DIGITS - 1)), &index) != 0 ||
           index >= w->n_workers);
    return &w->workers[index];
}

static int build(struct sim_world *w)
{
    int rc = fleet_build(w->fleet, w->queue.now_ns, &w->snapshot);

    if (rc)
        return rc;
    uint32_t slots = w->snapshot->n_members
                         ? w->snapshot->members[w->snapshot->n_members - 1].endpoint->slot + 1
                         : 0;
    if (slots > w->n_slots) {
        struct sim_worker **more =
            mem_resize(w->mem, w->by_slot, slots, sizeof(struct sim_worker *));
        if (!more)
            return WEIR_E_NOMEM;
        w->by_slot = more;
        w->n_slots = slots;
    }
    for (uint32_t i = 0; i < w->snapshot->n_members; i++) {
        const struct member *m = &w->snapshot->members[i];
        struct sim_worker *k = find_worker(w, m->endpoint->id);
        w->by_slot[m->endpoint->slot] = k;
        k->cell = m->cell;
    }
    rc = sched_pool_refresh(w->pool, w->snapshot, slice_str(w->o->fleet->model));
    if (rc == 0)
        rc = sched_scratch_reserve(&w->scratch, w->mem, sched_pool_members(w->pool));
    return rc;
}

void sim_world_refresh(struct sim_world *w)
{
    if (w->rc == 0)
        w->rc = build(w);
}

void sim_world_join(struct sim_world *w, struct sim_worker *k)
{
    if (w->rc == 0)
        w->rc = describe(w, k);
    k->joined = true;
    /* Not all at the same instant: each has a phase of its own. */
    des_set(&w->queue, &k->report_event,
            w->queue.now_ns + prng_below(&w->signal_prng, w->o->report_ns));
}

/* What the scheduler learns; of the prefix index as much as a gateway has by default. */
static int lore_init(struct sim_world *w)
{
    enum { ALIGN = 64 };

    w->lore_memory = mem_zalloc(w->mem, LORE_BYTES + ALIGN);
    if (!w->lore_memory)
        return WEIR_E_NOMEM;
    uintptr_t at = ((uintptr_t)w->lore_memory + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
    return sched_lore_new(w->mem, (char *)w->lore_memory + (at - (uintptr_t)w->lore_memory),
                          LORE_BYTES, &w->lore);
}

static int start(struct sim_world *w)
{
    const struct sim_options *o = w->o;
    const struct fleet_options fleet = {.mem = o->mem, .n_sources = 1};
    const struct route_queue queue = {.size = o->queue_size,
                                      .timeout_ns = o->queue_timeout_ns,
                                      .age_ns = 10 * NS_PER_S,
                                      .by_tenant = o->trace->n_tenants > 0 && !o->one_tenant};

    /* Four events of each worker and the tick; jobs add theirs as they are made. */
    int rc = des_queue_reserve(&w->queue, 4 * w->n_workers + 1);
    if (rc == 0)
        rc = fleet_new(&fleet, &w->fleet);
    if (rc == 0)
        rc = lore_init(w);
    const struct sched_pool_options pool = {
        .mem = o->mem, .policy = o->policy, .queue = &queue, .lore = w->lore};
    if (rc == 0)
        rc = sched_pool_new(&pool, &w->pool);
    if (rc)
        return rc;
    fleet_synced(w->fleet, 0);
    w->queue.now_ns = SIM_EPOCH;
    for (uint32_t i = 0; i < w->n_workers; i++) {
        struct sim_worker *k = &w->workers[i];
        if (k->group->join_ns == 0)
            sim_world_join(w, k);
        else
            des_set(&w->queue, &k->join_event, SIM_EPOCH + k->group->join_ns);
    }
    sim_world_refresh(w);
    for (uint32_t i = 0; w->rc == 0 && i < w->n_workers; i++)
        if (w->workers[i].joined)
            sim_signal_first(w, &w->workers[i]);
    return w->rc;
}

int sim_world_init(struct sim_world *w, const struct sim_options *o, struct sim_result *r)
{
    *w = (struct sim_world){.o = o, .mem = o->mem, .result = r};
    *r = (struct sim_result){.mem = o->mem, .n = o->trace->n};
    list_init(&w->spare);
    des_queue_init(&w->queue, o->mem);
    w->pick_prng = des_stream(o->seed, STREAM_PICK);
    w->signal_prng = des_stream(o->seed, STREAM_SIGNAL);
    r->outcomes = mem_array(o->mem, o->trace->n, sizeof(*r->outcomes));
    if (o->clock)
        r->decision_ns = mem_array(o->mem, o->trace->n, sizeof(*r->decision_ns));
    if (!r->outcomes || (o->clock && !r->decision_ns))
        return WEIR_E_NOMEM;
    int rc = plan_arrivals(w);
    if (rc == 0)
        rc = add_workers(w);
    if (rc == 0)
        rc = start(w);
    return rc;
}

void sim_world_fini(struct sim_world *w)
{
    for (uint32_t i = 0; w->workers && i < w->n_workers; i++) {
        engine_free(w->workers[i].engine);
        mem_free(w->mem, w->workers[i].travelling);
        mem_free(w->mem, w->workers[i].arrives);
    }
    sched_pool_free(w->pool);
    sched_lore_free(w->lore);
    mem_free(w->mem, w->lore_memory);
    if (w->fleet)
        fleet_free(w->fleet);
    sched_scratch_fini(&w->scratch, w->mem);
    for (uint32_t i = 0; i < w->n_slabs; i++)
        mem_free(w->mem, w->slabs[i]);
    mem_free(w->mem, w->slabs);
    mem_free(w->mem, w->workers);
    mem_free(w->mem, w->by_slot);
    mem_free(w->mem, w->arrivals);
    mem_free(w->mem, w->order);
    des_queue_fini(&w->queue);
}
