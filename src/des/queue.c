/* SPDX-License-Identifier: Apache-2.0 */
#include "des/queue.h"

#include "base/bug.h"

enum { CHILDREN = 4 };

void des_queue_init(struct des_queue *q, const struct mem *mem)
{
    *q = (struct des_queue){.mem = mem};
}

void des_queue_fini(struct des_queue *q)
{
    mem_free(q->mem, q->slots);
    *q = (struct des_queue){.mem = q->mem};
}

int des_queue_reserve(struct des_queue *q, uint32_t n)
{
    if (n <= q->cap)
        return 0;
    struct des_slot *more = mem_resize(q->mem, q->slots, n, sizeof(*more));
    if (!more)
        return WEIR_E_NOMEM;
    q->slots = more;
    q->cap = n;
    return 0;
}

static bool before(const struct des_slot *a, const struct des_slot *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void put(struct des_queue *q, uint32_t i, struct des_slot s)
{
    q->slots[i] = s;
    s.event->place = i + 1;
}

static void sift_up(struct des_queue *q, uint32_t i, struct des_slot s)
{
    while (i > 0) {
        uint32_t parent = (i - 1) / CHILDREN;
        if (!before(&s, &q->slots[parent]))
            break;
        put(q, i, q->slots[parent]);
        i = parent;
    }
    put(q, i, s);
}

static void sift_down(struct des_queue *q, uint32_t i, struct des_slot s)
{
    for (;;) {
        uint32_t first = i * CHILDREN + 1;
        uint32_t end = MIN(first + CHILDREN, q->n);
        uint32_t best = first;
        if (first >= q->n)
            break;
        for (uint32_t c = first + 1; c < end; c++)
            if (before(&q->slots[c], &q->slots[best]))
                best = c;
        if (!before(&q->slots[best], &s))
            break;
        put(q, i, q->slots[best]);
        i = best;
    }
    put(q, i, s);
}

static void settle(struct des_queue *q, uint32_t i, struct des_slot s)
{
    if (i > 0 && before(&s, &q->slots[(i - 1) / CHILDREN]))
        sift_up(q, i, s);
    else
        sift_down(q, i, s);
}

void des_cancel(struct des_queue *q, struct des_event *e)
{
    if (e->place == 0)
        return;
    uint32_t i = e->place - 1;
    BUG_ON(i >= q->n || q->slots[i].event != e);
    e->place = 0;
    struct des_slot last = q->slots[--q->n];
    if (i < q->n)
        settle(q, i, last);
}

void des_set(struct des_queue *q, struct des_event *e, uint64_t at_ns)
{
    if (at_ns == DES_NEVER) {
        des_cancel(q, e);
        return;
    }
    at_ns = MAX(at_ns, q->now_ns);
    if (e->place != 0 && e->at_ns == at_ns)
        return;
    struct des_slot s = {at_ns, q->orders++, e};
    e->at_ns = at_ns;
    e->order = s.order;
    if (e->place != 0) {
        settle(q, e->place - 1, s);
        return;
    }
    BUG_ON(q->n == q->cap);
    sift_up(q, q->n++, s);
}

struct des_event *des_take(struct des_queue *q)
{
    if (q->n == 0)
        return NULL;
    struct des_event *e = q->slots[0].event;
    q->now_ns = q->slots[0].at_ns;
    des_cancel(q, e);
    return e;
}
