/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/serve/panic.h"

#include "loop/alloc.h"
#include "loop/log.h"
#include "sched/breaker.h"
#include "sched/row.h"

/* A model in panic. There are few of them, and most of the time none. */
struct panic_name {
    struct panic_name *next;
    bool seen; /* in this look */
    size_t n;
    char text[];
};

/* The verdict that a pick would have on one endpoint. */
static uint16_t flags_of(const struct member *m, uint64_t now_ns)
{
    static const struct policy plain;
    struct sched_candidate c;
    struct sched_row row;

    sched_candidate_fill(m, &plain, (struct slice){NULL, 0}, &c);
    sched_rows_fill(&c, 1, now_ns, &row);
    return row.flags;
}

void panic_look(const struct snapshot *s,
                uint32_t percent,
                uint64_t now_ns,
                struct panic_model *out)
{
    for (uint32_t i = 0; i < s->n_models; i++) {
        out[i] = (struct panic_model){0};
        for (uint32_t k = 0; k < s->models[i].n_members; k++) {
            uint16_t flags = flags_of(&s->members[s->models[i].members[k]], now_ns);
            out[i].usable += (flags & SCHED_USABLE) != 0;
            out[i].red += (flags & SCHED_LAST_RESORT) != 0;
        }
        out[i].panic = sched_panic(out[i].usable, out[i].red, percent);
    }
}

static struct panic_name *find(const struct panic_watch *w, struct slice model)
{
    for (struct panic_name *p = w->known; p; p = p->next)
        if (slice_eq(slice_of(p->text, p->n), model))
            return p;
    return NULL;
}

static struct panic_name *add(struct panic_watch *w, struct slice model)
{
    struct panic_name *p = mem_zalloc(loop_mem(), sizeof(*p) + model.n);

    if (!p)
        return NULL;
    p->n = model.n;
    if (model.n)
        memcpy(p->text, model.p, model.n);
    p->next = w->known;
    w->known = p;
    return p;
}

void panic_watch(struct panic_watch *w, const struct snapshot *s, uint32_t percent, uint64_t now_ns)
{
    struct panic_model *look = mem_array(loop_mem(), s->n_models + 1, sizeof(*look));

    if (!look)
        return;
    panic_look(s, percent, now_ns, look);
    for (uint32_t i = 0; i < s->n_models; i++) {
        if (!look[i].panic)
            continue;
        struct panic_name *p = find(w, s->models[i].id);
        if (!p) {
            p = add(w, s->models[i].id);
            if (p)
                log_warn("control",
                         "model %.*s: panic, %u of %u endpoints are red (down, or breaker open): "
                         "all of them are used",
                         SLICE_ARG(s->models[i].id), look[i].red, look[i].red + look[i].usable);
        }
        if (p)
            p->seen = true;
    }
    for (struct panic_name **at = &w->known; *at;) {
        struct panic_name *p = *at;
        if (p->seen) {
            p->seen = false;
            at = &p->next;
            continue;
        }
        log_info("control", "model %.*s: panic is over", (int)p->n, p->text);
        *at = p->next;
        mem_free(loop_mem(), p);
    }
    mem_free(loop_mem(), look);
}

void panic_watch_fini(struct panic_watch *w)
{
    while (w->known) {
        struct panic_name *next = w->known->next;
        mem_free(loop_mem(), w->known);
        w->known = next;
    }
}
