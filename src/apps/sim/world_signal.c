/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load reports as they are in life: seen at one time, known at a later, some lost, numbers not quite right. What arrives
 * goes the way of any report: into the cell, where the ledger of then is noted beside it.
 */
#include "apps/sim/world.h"
#include "base/bug.h"
#include "base/num.h"
#include "fleet/cell.h"

static uint64_t blurred(struct sim_world *w, uint64_t v)
{
    if (!(w->o->noise > 0))
        return v;
    double x = (double)v * (1 + w->o->noise * des_normal(&w->signal_prng));
    return x > 0 ? (uint64_t)(x + 0.5) : 0;
}

static void look(struct sim_world *w, struct sim_worker *k, struct sample *s)
{
    struct engine_stats e;
    uint64_t now = w->queue.now_ns;

    engine_read_stats(k->engine, now, &e);
    *s = (struct sample){
        .known = 1u << SAMPLE_GPU_UTIL | 1u << SAMPLE_MEMORY_FREE | 1u << SAMPLE_MEMORY_TOTAL |
                 1u << SAMPLE_KV_CAPACITY | 1u << SAMPLE_KV_USED | 1u << SAMPLE_RUNNING |
                 1u << SAMPLE_WAITING | 1u << SAMPLE_BATCH | 1u << SAMPLE_TOKENS_PER_S |
                 1u << SAMPLE_STATE,
        .epoch = 1,
        .seq = ++k->seq,
        .fresh_for_ns = MAX(3 * w->o->report_ns, NS_PER_S),
        .gpu_util_bp = (uint32_t)MIN(blurred(w, (uint64_t)(e.utilization * 10000 + 0.5)), 10000),
        .memory_total_bytes = k->group->profile.memory_total_bytes,
        .memory_free_bytes = k->group->profile.memory_total_bytes / 10,
        .kv_capacity_tokens = e.kv_capacity,
        .kv_used_tokens = MIN(blurred(w, e.kv_used), e.kv_capacity),
        .running = (uint32_t)blurred(w, e.running),
        .waiting = (uint32_t)blurred(w, e.waiting),
        .batch = e.batch,
        .tokens_per_s = (uint32_t)blurred(w, (uint64_t)(e.tokens_per_s + 0.5)),
        .state = e.loading ? REPORTED_LOADING : REPORTED_HEALTHY,
    };
}

static void arrived(struct sim_world *w, struct sim_worker *k, struct sample *s)
{
    s->received_ns = w->queue.now_ns;
    fleet_cell_publish(k->cell, s);
    weir_list_foreach (at, &k->jobs) {
        struct sim_job *j = container_of(at, struct sim_job, node);
        sched_settle(&j->reservation);
    }
    sim_run_offer(w);
}

void sim_signal_first(struct sim_world *w, struct sim_worker *k)
{
    struct sample s;

    look(w, k, &s);
    arrived(w, k, &s);
}

void sim_signal_report(struct sim_world *w, struct sim_worker *k)
{
    struct sample s;
    uint64_t now = w->queue.now_ns;

    if (w->arrivals_over && w->live == 0)
        return;
    des_set(&w->queue, &k->report_event, now + w->o->report_ns);
    sim_run_engine(w, k);
    look(w, k, &s);
    if (w->o->loss > 0 && prng_unit(&w->signal_prng) < w->o->loss)
        return;
    if (w->o->stale_ns == 0) {
        arrived(w, k, &s);
        return;
    }
    BUG_ON(k->n_travelling == k->ring);
    uint32_t at = (k->first + k->n_travelling++) % k->ring;
    k->travelling[at] = s;
    k->arrives[at] = now + w->o->stale_ns;
    if (k->n_travelling == 1)
        des_set(&w->queue, &k->arrival_event, k->arrives[at]);
}

void sim_signal_arrive(struct sim_world *w, struct sim_worker *k)
{
    BUG_ON(k->n_travelling == 0);
    struct sample s = k->travelling[k->first];
    k->first = (k->first + 1) % k->ring;
    k->n_travelling--;
    if (k->n_travelling)
        des_set(&w->queue, &k->arrival_event, k->arrives[k->first]);
    arrived(w, k, &s);
}

int sim_signal_init(struct sim_world *w, struct sim_worker *k)
{
    k->ring = w->o->stale_ns ? (uint32_t)(w->o->stale_ns / w->o->report_ns) + 2 : 0;
    if (k->ring == 0)
        return 0;
    k->travelling = mem_array(w->mem, k->ring, sizeof(*k->travelling));
    k->arrives = mem_array(w->mem, k->ring, sizeof(*k->arrives));
    return k->travelling && k->arrives ? 0 : WEIR_E_NOMEM;
}
