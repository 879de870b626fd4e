/* SPDX-License-Identifier: Apache-2.0 */
/** @file Virtual token counters; see the header. */
#include "sched/tenants.h"

#include "base/bug.h"
#include "base/hash.h"
#include "base/num.h"
#include "sched/work.h"

static bool less(const struct heap_node *x, const struct heap_node *y)
{
    return sched_tenant_less(container_of(x, struct sched_tenant, active),
                             container_of(y, struct sched_tenant, active));
}

int sched_tenants_init(struct sched_tenants *t, const struct mem *mem)
{
    *t = (struct sched_tenants){.mem = mem, .shared = {.weight = TENANT_WEIGHT_ONE}};
    list_init(&t->shared.idle);
    list_init(&t->idle);
    heap_init(&t->active, mem, less);
    return heap_reserve(&t->active, 1);
}

void sched_tenants_fini(struct sched_tenants *t)
{
    heap_fini(&t->active);
    mem_free(t->mem, t->places);
    mem_free(t->mem, t->heads);
    t->places = NULL;
    t->heads = NULL;
}

int sched_tenants_reserve(struct sched_tenants *t)
{
    if (t->places)
        return 0;
    struct sched_tenant *places = mem_array(t->mem, SCHED_TENANTS_MAX, sizeof(*places));
    uint32_t *heads = mem_array(t->mem, SCHED_TENANTS_MAX, sizeof(*heads));
    if (!places || !heads || heap_reserve(&t->active, SCHED_TENANTS_MAX + 1)) {
        mem_free(t->mem, places);
        mem_free(t->mem, heads);
        return WEIR_E_NOMEM;
    }
    for (uint32_t i = 0; i < SCHED_TENANTS_MAX; i++)
        list_add(&t->idle, &places[i].idle);
    t->places = places;
    t->heads = heads;
    return 0;
}

/* Nobody who was away is behind this. */
static uint64_t floor_of(const struct sched_tenants *t)
{
    const struct heap_node *top = heap_top(&t->active);

    return (top ? container_of(top, struct sched_tenant, active)->counter : t->last) - t->under_way;
}

/* --- places --- */

static uint32_t *link_of(struct sched_tenants *t, uint64_t key)
{
    uint32_t *link = &t->heads[key % SCHED_TENANTS_MAX];

    while (*link && t->places[*link - 1].key != key)
        link = &t->places[*link - 1].chain;
    return link;
}

static struct sched_tenant *place_for(struct sched_tenants *t, uint64_t key)
{
    if (list_empty(&t->idle))
        return &t->shared;
    struct sched_tenant *who = container_of(t->idle.next, struct sched_tenant, idle);
    if (who->key) {
        uint32_t *link = link_of(t, who->key);
        *link = who->chain;
    }
    uint32_t *link = link_of(t, key);
    BUG_ON(*link);
    list_del(&who->idle);
    *who = (struct sched_tenant){.key = key};
    list_init(&who->idle);
    list_add(&t->idle, &who->idle);
    *link = (uint32_t)(who - t->places) + 1;
    who->counter = floor_of(t); /* new here: as one that was away */
    return who;
}

struct sched_tenant *sched_tenants_find(struct sched_tenants *t, const struct features *f)
{
    struct sched_tenant *who = &t->shared;

    if (t->on && f->tenant.n) {
        uint64_t key = hash_slice(f->tenant, 0) | 1;
        uint32_t at = *link_of(t, key);
        who = at ? &t->places[at - 1] : place_for(t, key);
    }
    who->weight = f->tenant_weight && who != &t->shared ? f->tenant_weight : TENANT_WEIGHT_ONE;
    return who;
}

/* Something refers to it, or does not any more. */
static void note_use(struct sched_tenants *t, struct sched_tenant *who)
{
    if (who == &t->shared)
        return;
    list_del(&who->idle);
    if (who->waiting == 0 && who->inflight == 0)
        list_add(&t->idle, &who->idle);
}

/* --- counters --- */

static uint64_t virtual_of(uint64_t input, uint64_t output, uint32_t weight)
{
    uint64_t tokens = MIN(input, SCHED_TOKENS_MOST) * TENANT_INPUT +
                      MIN(output, SCHED_TOKENS_MOST) * TENANT_OUTPUT;

    return tokens * TENANT_WEIGHT_ONE * TENANT_WEIGHT_ONE / weight;
}

static void lift(const struct sched_tenants *t, struct sched_tenant *who)
{
    uint64_t floor = floor_of(t);

    if ((int64_t)(floor - who->counter) > 0)
        who->counter = floor;
}

void sched_tenants_wait(struct sched_tenants *t, struct sched_tenant *who)
{
    if (who->waiting == 0) {
        lift(t, who);
        BUG_ON(heap_push(&t->active, &who->active) != 0);
    }
    who->waiting++;
    note_use(t, who);
}

void sched_tenants_leave(struct sched_tenants *t, struct sched_tenant *who)
{
    BUG_ON(who->waiting == 0);
    who->waiting--;
    if (who->waiting == 0)
        heap_remove(&t->active, &who->active);
    note_use(t, who);
}

static void moved(struct sched_tenants *t, struct sched_tenant *who)
{
    if (who->waiting)
        heap_update(&t->active, &who->active);
}

void sched_tenants_charge(struct sched_tenants *t,
                          struct sched_tenant *who,
                          const struct features *f,
                          struct sched_charge *c)
{
    struct sched_question q = sched_work_question(f);

    if (!t->on)
        return;
    if (who->waiting == 0)
        lift(t, who);
    *c = (struct sched_charge){.tenant = who,
                               .input = MAX(q.prompt, UINT64_C(1)),
                               .output = q.by_tokens ? q.output : 0,
                               .weight = who->weight};
    uint64_t v = virtual_of(c->input, c->output, c->weight);
    t->last = who->counter;
    t->under_way += v;
    who->counter += v;
    who->inflight++;
    note_use(t, who);
    moved(t, who);
}

void sched_tenants_settle(struct sched_tenants *t,
                          struct sched_charge *c,
                          uint64_t input,
                          uint64_t output)
{
    struct sched_tenant *who = c->tenant;

    if (!who)
        return;
    uint64_t charged = virtual_of(c->input, c->output, c->weight);
    uint64_t used = virtual_of(input == UINT64_MAX ? c->input : input,
                               output == UINT64_MAX ? c->output : output, c->weight);
    BUG_ON(t->under_way < charged || who->inflight == 0);
    t->under_way -= charged;
    who->counter += used - charged;
    who->inflight--;
    *c = (struct sched_charge){0};
    note_use(t, who);
    moved(t, who);
}
