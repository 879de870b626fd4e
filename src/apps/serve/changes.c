/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/changes.h"

#include "base/num.h"
#include "loop/alloc.h"
#include "sched/breaker.h"

enum { EVENT_MAX = 4096 };

struct changes_seen {
    uint32_t generation;
    bool there;
    bool draining;
    bool ejected;
    int health;
    char *id; /* for when it has left */
};

static void
tell(struct admin *admin, const char *type, const char *id, uint32_t generation, const char *health)
{
    struct buf b;

    buf_init(&b, loop_mem(), EVENT_MAX);
    buf_put_str(&b, "{\"endpoint\":");
    buf_put_json(&b, slice_str(id));
    buf_put_str(&b, ",\"generation\":");
    buf_put_u64(&b, generation);
    if (health) {
        buf_put_str(&b, ",\"health\":");
        buf_put_json(&b, slice_str(health));
    }
    buf_put_char(&b, '}');
    if (!b.err)
        admin_event(admin, type, buf_slice(&b));
    buf_fini(&b);
}

static bool room_for(struct changes *c, uint32_t slot)
{
    if (slot < c->n)
        return true;
    uint32_t n = MAX(slot + 1, c->n * 2);
    struct changes_seen *more = mem_resize(loop_mem(), c->seen, n, sizeof(*more));
    if (!more)
        return false;
    memset(more + c->n, 0, (n - c->n) * sizeof(*more));
    c->seen = more;
    c->n = n;
    return true;
}

static void gone(struct changes *c, struct changes_seen *seen, struct admin *admin)
{
    c->n_there--;
    tell(admin, "endpoint_left", seen->id, seen->generation, NULL);
    mem_free(loop_mem(), seen->id);
    *seen = (struct changes_seen){0};
}

static bool ejected(struct cell *cell, uint64_t now_ns)
{
    return (atomic_load_explicit(&cell->gate, memory_order_relaxed) & GATE_BREAKER) &&
           sched_breaker_look(cell, now_ns).state != BREAKER_CLOSED;
}

static void look(struct changes *c, const struct member *m, uint64_t now_ns, struct admin *admin)
{
    static const char *const words[] = {"unknown", "up", "down"};
    const struct endpoint *e = m->endpoint;
    if (!room_for(c, e->slot))
        return;
    struct changes_seen *seen = &c->seen[e->slot];
    int health = atomic_load_explicit(&m->cell->health, memory_order_relaxed);
    bool out = ejected(m->cell, now_ns);

    if (seen->there && seen->generation != e->generation)
        gone(c, seen, admin);
    if (!seen->there) {
        char *id = mem_strdup(loop_mem(), e->id);
        if (!id)
            return;
        *seen = (struct changes_seen){.generation = e->generation, .there = true, .id = id};
        c->n_there++;
        tell(admin, "endpoint_joined", id, e->generation, words[health]);
        seen->health = health;
    }
    if (health != seen->health && health != HEALTH_UNKNOWN)
        tell(admin, health == HEALTH_UP ? "endpoint_up" : "endpoint_down", seen->id, e->generation,
             NULL);
    if (out != seen->ejected)
        tell(admin, out ? "endpoint_ejected" : "endpoint_readmitted", seen->id, e->generation,
             NULL);
    if (e->draining != seen->draining)
        tell(admin, e->draining ? "endpoint_draining" : "endpoint_undrained", seen->id,
             e->generation, NULL);
    seen->health = health;
    seen->ejected = out;
    seen->draining = e->draining;
}

/* Both are in order of slots. */
static void tell_gone(struct changes *c, const struct snapshot *s, struct admin *admin)
{
    uint32_t m = 0;

    for (uint32_t slot = 0; slot < c->n && c->n_there > s->n_members; slot++) {
        while (m < s->n_members && s->members[m].endpoint->slot < slot)
            m++;
        if (c->seen[slot].there && (m == s->n_members || s->members[m].endpoint->slot != slot))
            gone(c, &c->seen[slot], admin);
    }
}

void changes_look(struct changes *c, const struct snapshot *s, uint64_t now_ns, struct admin *admin)
{
    for (uint32_t i = 0; i < s->n_members; i++)
        look(c, &s->members[i], now_ns, admin);
    tell_gone(c, s, admin);
}

void changes_follow(struct changes *c,
                    const struct snapshot *s,
                    uint64_t now_ns,
                    struct admin *admin)
{
    for (uint32_t i = 0; i < s->n_members; i++)
        if (s->members[i].endpoint->seq > c->seq)
            look(c, &s->members[i], now_ns, admin);
    tell_gone(c, s, admin);
    c->seq = s->seq;
}

void changes_of(struct changes *c, const struct member *m, uint64_t now_ns, struct admin *admin)
{
    look(c, m, now_ns, admin);
}

void changes_fini(struct changes *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        mem_free(loop_mem(), c->seen[i].id);
    mem_free(loop_mem(), c->seen);
    *c = (struct changes){0};
}
