/* SPDX-License-Identifier: Apache-2.0 */
/* What prefix caches would hold if requests took no time: the routing's share of a hit rate, without any queueing. */
#include "apps/sim/world.h"
#include "base/bug.h"
#include "engine/prefix.h"

struct caches {
    const struct mem *mem;
    struct engine_prefix *list;
    uint32_t n;
};

static int caches_init(struct caches *c, const struct sim_world *w)
{
    *c = (struct caches){.mem = w->mem};
    c->list = mem_array(w->mem, w->n_workers, sizeof(*c->list));
    if (!c->list)
        return WEIR_E_NOMEM;
    for (; c->n < w->n_workers; c->n++) {
        uint32_t blocks = w->workers[c->n].group->kv_blocks;
        uint64_t all = MAX(w->o->trace->n_blocks, 1);
        int rc = engine_prefix_init(&c->list[c->n], w->mem,
                                    blocks ? blocks : (uint32_t)MIN(all, UINT32_MAX));
        if (rc)
            return rc;
    }
    return 0;
}

static void caches_fini(struct caches *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        engine_prefix_fini(&c->list[i]);
    mem_free(c->mem, c->list);
}

/* @return blocks found. The last ones are given back first, so that they go first. */
static uint32_t visit(struct engine_prefix *c, const uint64_t *names, uint32_t n)
{
    uint32_t idle;
    uint32_t hits = engine_prefix_probe(c, names, n, &idle);
    uint32_t used = 0;
    bool was_idle;

    for (; used < hits; used++)
        BUG_ON(!engine_prefix_use(c, names[used], &was_idle));
    for (; used < n; used++) {
        /* A block behind a gap is still there. */
        if (engine_prefix_use(c, names[used], &was_idle))
            continue;
        int rc = engine_prefix_add(c, names[used]);
        if (rc == WEIR_E_FULL && engine_prefix_evict(c))
            rc = engine_prefix_add(c, names[used]);
        if (rc)
            break;
    }
    while (used > 0)
        engine_prefix_release(c, names[--used]);
    return hits;
}

static void replay(struct sim_world *w, struct caches *c)
{
    const struct sim_trace *t = w->o->trace;

    for (uint32_t i = 0; i < t->n && w->rc == 0; i++) {
        const struct sim_request *q = &t->requests[w->order[i]];
        struct sim_outcome *o = &w->result->outcomes[w->order[i]];
        struct sim_job *j = sim_run_job(w, w->order[i]);
        struct member chosen;
        struct decision d;
        if (!j)
            return;
        w->queue.now_ns = MAX(w->queue.now_ns, w->arrivals[w->order[i]]);
        o->at_ns = o->sent_ns = o->first_ns = o->end_ns = w->queue.now_ns - SIM_EPOCH;
        o->end = SIM_REJECTED;
        if (sched_pool_admit(w->pool, &j->features, NULL, w->queue.now_ns, prng_next(&w->pick_prng),
                             &w->scratch, &j->reservation, &chosen, &d) == 0) {
            struct sim_worker *k = w->by_slot[chosen.endpoint->slot];
            uint32_t hits =
                visit(&c->list[k - w->workers], t->blocks + q->first_block, q->n_blocks);
            k->result->requests++;
            k->result->prompt_tokens += (uint64_t)q->n_blocks * ENGINE_BLOCK_TOKENS;
            k->result->cached_tokens += (uint64_t)hits * ENGINE_BLOCK_TOKENS;
            o->worker = (uint16_t)(k - w->workers);
            o->cached_tokens = hits * ENGINE_BLOCK_TOKENS;
            o->end = SIM_OK;
            sched_work_note(w->lore, &j->reservation, &j->features);
            sched_first_byte(&j->reservation);
            sched_cell_put(sched_release(&j->reservation));
        }
        list_add(&w->spare, &j->node);
    }
    w->result->arrivals_ns = w->result->end_ns = w->queue.now_ns - SIM_EPOCH;
}

int sim_run_untimed(const struct sim_options *o, struct sim_result *out)
{
    struct sim_world *w = mem_zalloc(o->mem, sizeof(*w));
    struct sim_options open = *o;
    struct caches caches = {.mem = o->mem};

    *out = (struct sim_result){.mem = o->mem};
    if (!w)
        return WEIR_E_NOMEM;
    open.closed = 0;
    open.clock = NULL;
    int rc = sim_world_init(w, &open, out);
    if (rc == 0)
        rc = caches_init(&caches, w);
    if (rc == 0) {
        replay(w, &caches);
        rc = w->rc;
    }
    caches_fini(&caches);
    sim_world_fini(w);
    mem_free(o->mem, w);
    if (rc)
        sim_result_fini(out);
    return rc;
}
