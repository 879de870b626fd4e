/* SPDX-License-Identifier: Apache-2.0 */
/** @file Lines of tenants, ordered by their first waiters. */
#include "sched/queue.h"

#include "base/bug.h"
#include "base/num.h"

enum { CLASS_AGED = 0 /* above all classes: who has aged through them */ };

static const struct sched_waiter *waiter_of(const struct pairing_node *node)
{
    return container_of(node, struct sched_waiter, node);
}

static struct sched_waiter *front_of(const struct sched_tenant *who)
{
    return container_of(who->waiters.top, struct sched_waiter, node);
}

static uint8_t class_of(const struct features *f)
{
    return f->priority ? (uint8_t)MIN(f->priority, PRIORITY_LOWEST) : PRIORITY_DEFAULT;
}

/* Of a tenant among others. */
static uint32_t line_class(const struct sched_tenant *who)
{
    uint32_t class = class_of(front_of(who)->features);

    return class > who->risen ? class - who->risen : CLASS_AGED;
}

/* Of one class and tenant. No deadline is later than any. */
static bool sooner(const struct sched_waiter *a, const struct sched_waiter *b)
{
    uint64_t a_deadline = a->features->deadline_ns - 1;
    uint64_t b_deadline = b->features->deadline_ns - 1;

    return a_deadline != b_deadline ? a_deadline < b_deadline : a->order < b->order;
}

/* Within a line. */
static bool before(const struct pairing_node *x, const struct pairing_node *y)
{
    const struct sched_waiter *a = waiter_of(x);
    const struct sched_waiter *b = waiter_of(y);

    if (a->class_now != b->class_now)
        return a->class_now < b->class_now;
    /* Nothing that comes later stands before these, so each is served after those that came before it. */
    return a->class_now == CLASS_AGED ? a->order < b->order : sooner(a, b);
}

static bool line_before(const struct heap_node *x, const struct heap_node *y)
{
    const struct sched_tenant *s = container_of(x, struct sched_tenant, line);
    const struct sched_tenant *t = container_of(y, struct sched_tenant, line);
    uint32_t s_class = line_class(s);
    uint32_t t_class = line_class(t);

    if (s_class != t_class)
        return s_class < t_class;
    if (s_class != CLASS_AGED && s->counter != t->counter)
        return sched_tenant_less(s, t);
    if (s_class == CLASS_AGED && s->since_ns != t->since_ns)
        return s->since_ns < t->since_ns;
    return sooner(front_of(s), front_of(t));
}

static bool line_rises_before(const struct heap_node *x, const struct heap_node *y)
{
    return container_of(x, struct sched_tenant, rise)->rise_ns <
           container_of(y, struct sched_tenant, rise)->rise_ns;
}

static bool rises_before(const struct heap_node *x, const struct heap_node *y)
{
    return container_of(x, struct sched_waiter, rise)->rise_ns <
           container_of(y, struct sched_waiter, rise)->rise_ns;
}

int sched_queue_init(struct sched_queue *q, const struct mem *mem)
{
    *q = (struct sched_queue){0};
    heap_init(&q->lines, mem, line_before);
    heap_init(&q->risers, mem, rises_before);
    heap_init(&q->line_risers, mem, line_rises_before);
    list_init(&q->all);
    return sched_tenants_init(&q->tenants, mem);
}

void sched_queue_fini(struct sched_queue *q)
{
    heap_fini(&q->lines);
    heap_fini(&q->risers);
    heap_fini(&q->line_risers);
    sched_tenants_fini(&q->tenants);
}

int sched_queue_reserve(struct sched_queue *q, uint32_t size, bool tenants)
{
    int rc = heap_reserve(&q->risers, size);

    if (rc == 0)
        rc = heap_reserve(&q->lines, tenants ? SCHED_TENANTS_MAX + 1 : 1);
    if (rc == 0)
        rc = heap_reserve(&q->line_risers, tenants ? SCHED_TENANTS_MAX + 1 : 1);
    return rc || !tenants ? rc : sched_tenants_reserve(&q->tenants);
}

/* --- lines --- */

static void line_in(struct sched_queue *q, struct sched_waiter *w)
{
    struct sched_tenant *who = w->tenant;
    bool first = !who->waiters.top;

    pairing_push(&who->waiters, &w->node, before);
    if (first)
        BUG_ON(heap_push(&q->lines, &who->line) != 0);
    else
        heap_update(&q->lines, &who->line);
}

static void line_out(struct sched_queue *q, struct sched_waiter *w)
{
    struct sched_tenant *who = w->tenant;

    /* While its front is named, for the heap compares by it. */
    if (who->waiters.top == &w->node)
        heap_remove(&q->lines, &who->line);
    pairing_remove(&who->waiters, &w->node, before);
    if (who->waiters.top && who->line.at == 0)
        BUG_ON(heap_push(&q->lines, &who->line) != 0);
}

void sched_queue_prepare(struct sched_queue *q, struct sched_waiter *w, uint64_t now_ns)
{
    BUG_ON(w->queued || w->rise.at != 0);
    w->class_now = class_of(w->features);
    w->arrived_ns = now_ns;
    w->order = q->arrivals++;
    w->rise_ns = now_ns + q->age_ns;
    w->tenant = sched_tenants_find(&q->tenants, w->features);
    list_init(&w->all);
}

bool sched_queue_has_place(const struct sched_queue *q, const struct sched_waiter *w, uint32_t size)
{
    if (q->n >= size)
        return false;
    return !q->tenants.on || w->tenant->waiting < (uint64_t)QUEUE_SHARE * (size - q->n);
}

static void line_ages_from(struct sched_queue *q, struct sched_tenant *who, uint64_t now_ns)
{
    who->risen = 0;
    who->since_ns = now_ns;
    who->rise_ns = now_ns + q->age_ns;
    if (who->rise.at)
        heap_update(&q->line_risers, &who->rise);
    else if (q->age_ns)
        BUG_ON(heap_push(&q->line_risers, &who->rise) != 0);
}

/* Lifts the counter before the line stands in the order. */
static void came(struct sched_queue *q, struct sched_waiter *w)
{
    if (w->tenant->waiting == 0)
        line_ages_from(q, w->tenant, w->arrived_ns);
    sched_tenants_wait(&q->tenants, w->tenant);
}

static void left(struct sched_queue *q, struct sched_waiter *w)
{
    sched_tenants_leave(&q->tenants, w->tenant);
    if (w->tenant->waiting == 0 && w->tenant->rise.at)
        heap_remove(&q->line_risers, &w->tenant->rise);
}

void sched_queue_put(struct sched_queue *q, struct sched_waiter *w)
{
    came(q, w);
    line_in(q, w);
    if (q->age_ns != 0)
        BUG_ON(heap_push(&q->risers, &w->rise) != 0);
    list_add(&q->all, &w->all);
    w->queued = true;
    q->n++;
}

void sched_queue_take(struct sched_queue *q, struct sched_waiter *w, bool served, uint64_t now_ns)
{
    BUG_ON(!w->queued);
    line_out(q, w);
    if (w->rise.at != 0)
        heap_remove(&q->risers, &w->rise);
    list_del(&w->all);
    left(q, w);
    if (served && w->tenant->waiting) {
        line_ages_from(q, w->tenant, now_ns);
        sched_queue_moved(q, w->tenant);
    }
    w->queued = false;
    q->n--;
}

struct sched_waiter *sched_queue_first(const struct sched_queue *q)
{
    struct heap_node *top = heap_top(&q->lines);

    return top ? front_of(container_of(top, struct sched_tenant, line)) : NULL;
}

void sched_queue_aside(struct sched_queue *q, struct sched_waiter *w)
{
    line_out(q, w);
}

void sched_queue_back(struct sched_queue *q, struct sched_waiter *w)
{
    line_in(q, w);
}

void sched_queue_moved(struct sched_queue *q, struct sched_tenant *who)
{
    if (who->line.at != 0)
        heap_update(&q->lines, &who->line);
}

void sched_queue_turn(struct sched_queue *q, bool tenants)
{
    if (q->tenants.on == tenants)
        return;
    q->tenants.on = tenants;
    /* By arrival: a line is as old as its first one. */
    weir_list_foreach (at, &q->all) {
        struct sched_waiter *w = container_of(at, struct sched_waiter, all);
        struct sched_tenant *to = sched_tenants_find(&q->tenants, w->features);
        if (to == w->tenant)
            continue;
        line_out(q, w);
        left(q, w);
        w->tenant = to;
        came(q, w);
        line_in(q, w);
    }
}

/* --- ageing --- */

static uint64_t later(uint64_t at, uint64_t by)
{
    return at > UINT64_MAX - by ? UINT64_MAX : at + by;
}

static void age_lines(struct sched_queue *q, uint64_t now_ns)
{
    for (;;) {
        struct heap_node *top = heap_top(&q->line_risers);
        struct sched_tenant *who = top ? container_of(top, struct sched_tenant, rise) : NULL;
        if (!who || who->rise_ns > now_ns)
            return;
        who->rise_ns = later(who->rise_ns, q->age_ns);
        if (++who->risen == PRIORITY_LOWEST)
            heap_remove(&q->line_risers, &who->rise); /* above all others, whatever its class */
        else
            heap_update(&q->line_risers, &who->rise);
        sched_queue_moved(q, who);
    }
}

void sched_queue_age(struct sched_queue *q, uint64_t now_ns)
{
    for (;;) {
        struct heap_node *top = heap_top(&q->risers);
        struct sched_waiter *w = top ? container_of(top, struct sched_waiter, rise) : NULL;
        if (!w || w->rise_ns > now_ns)
            break;
        line_out(q, w);
        w->class_now--;
        line_in(q, w);
        w->rise_ns = later(w->rise_ns, q->age_ns);
        if (w->class_now == CLASS_AGED)
            heap_remove(&q->risers, &w->rise);
        else
            heap_update(&q->risers, &w->rise);
    }
    if (q->tenants.on)
        age_lines(q, now_ns);
}

/* How many classes this line will have risen then, if nobody of it is served. */
static uint64_t risen_then(const struct sched_queue *q, const struct sched_waiter *w, uint64_t then)
{
    const struct sched_tenant *who = w->tenant;
    uint64_t risen = who->waiting ? who->risen : 0;
    uint64_t next = who->waiting ? who->rise_ns : w->rise_ns;

    if (q->age_ns && then >= next)
        risen += 1 + (then - next) / q->age_ns;
    return risen;
}

bool sched_queue_surely_before(const struct sched_queue *q,
                               const struct sched_waiter *x,
                               const struct sched_waiter *y,
                               uint64_t then_ns)
{
    if (x->tenant == y->tenant)
        return before(&x->node, &y->node);
    /* A line stands in the class of its first one, which may be there by its age. */
    uint64_t class = MAX(class_of(x->features), class_of(front_of(x->tenant)->features));
    return class + risen_then(q, y, then_ns) < class_of(y->features);
}
