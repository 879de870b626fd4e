/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Building snapshots: who changed is merged anew, the others are those of the snapshot before; models are indexed.
 */
#include "base/bug.h"
#include "fleet/shown.h"

enum { PURGE_AT_ONCE = 64 };

/* Their members, counted; then with `fill` written down. */
static void walk_members(struct fleet *f, bool fill, uint64_t now_ns)
{
    uint32_t member = 0;

    map_foreach(at, &f->models)
    {
        struct known_model *k = at->value;
        k->n = k->last = 0;
    }
    for (uint32_t i = 0; i < f->n_slots; i++) {
        const struct shown *s = f->slots[i].shown;
        if (!s)
            continue;
        member++;
        for (uint32_t m = 0; m < s->n_known; m++) {
            struct known_model *k = s->known[m];
            if (k->last == member)
                continue;
            k->last = member;
            if (fill)
                k->members[k->n] = member - 1;
            k->n++;
            k->seen = true;
            k->seen_ns = now_ns;
        }
    }
}

static bool still_known(const struct fleet *f, const struct known_model *k, uint64_t now_ns)
{
    return k->configured || k->n > 0 || (k->seen && now_ns - k->seen_ns < f->options.remember_ns);
}

static void sift(struct snapshot_model *m, uint32_t at, uint32_t n)
{
    for (;;) {
        uint32_t kid = 2 * at + 1;
        if (kid >= n)
            return;
        if (kid + 1 < n && slice_cmp(m[kid].id, m[kid + 1].id) < 0)
            kid++;
        if (slice_cmp(m[at].id, m[kid].id) >= 0)
            return;
        struct snapshot_model t = m[at];
        m[at] = m[kid];
        m[kid] = t;
        at = kid;
    }
}

static void sort_models(struct snapshot_model *m, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift(m, i, n);
    for (uint32_t i = n; i-- > 1;) {
        struct snapshot_model t = m[0];
        m[0] = m[i];
        m[i] = t;
        sift(m, 0, i);
    }
}

static int index_models(struct fleet *f, struct built *b, uint64_t now_ns)
{
    uint32_t n = 0;

    walk_members(f, false, now_ns);
    struct snapshot_model *models = arena_array(&b->arena, f->models.n, sizeof(*models));
    if (!models)
        return WEIR_E_NOMEM;
    map_foreach(at, &f->models)
    {
        struct known_model *k = at->value;
        if (!still_known(f, k, now_ns))
            continue;
        k->members = arena_array(&b->arena, k->n, sizeof(*k->members));
        if (!k->members || arena_slice(&b->arena, k->id, &models[n].id))
            return WEIR_E_NOMEM;
        models[n].members = k->members;
        models[n].n_members = k->n;
        b->s.n_live_models += k->n > 0;
        n++;
    }
    walk_members(f, true, now_ns);
    sort_models(models, n);
    b->s.models = models;
    b->s.n_models = n;
    return 0;
}

static void purge_models(struct fleet *f, uint64_t now_ns)
{
    struct known_model *old[PURGE_AT_ONCE];
    uint32_t n = 0;

    map_foreach(at, &f->models) if (n < PURGE_AT_ONCE && !still_known(f, at->value, now_ns))
        old[n++] = at->value;
    while (n > 0) {
        map_del(&f->models, old[--n]->id);
        mem_free(f->mem, old[n]);
    }
}

/* Until the build is done, what is shown anew remembers what it stands for. @return with `f->slots` as they will be. */
static int show_changed(struct fleet *f, uint64_t seq, struct shown **fresh)
{
    bool bound = false;

    weir_list_foreach (at, &f->stale) {
        const struct entry *e = container_of(at, const struct entry, stale);
        struct shown *s;
        int rc = fleet_shown_new(f, e, &s);
        if (rc)
            return rc;
        s->endpoint.seq = seq;
        s->before = f->slots[e->slot].shown;
        s->next = *fresh;
        *fresh = s;
        f->slots[e->slot].shown = s;
        bound = bound || s->endpoint.n_devices;
    }
    if (bound)
        fleet_mark_all_shared(f);
    return 0;
}

static void take_back(struct fleet *f, struct shown *fresh)
{
    while (fresh) {
        struct shown *s = fresh;
        fresh = s->next;
        f->slots[s->endpoint.slot].shown = s->before;
        fleet_shown_free(f, s);
    }
}

static void settle(struct fleet *f, struct shown *fresh)
{
    while (fresh) {
        struct shown *s = fresh;
        fresh = s->next;
        if (s->before)
            fleet_shown_retire(f, s->before);
        s->before = s->next = NULL;
    }
    while (!list_empty(&f->stale))
        list_del(f->stale.next);
}

static int build(struct fleet *f, struct built *b, uint64_t now_ns)
{
    struct member *members = arena_array(&b->arena, f->entries.n, sizeof(*members));

    if (!members)
        return WEIR_E_NOMEM;
    for (uint32_t i = 0; i < f->n_slots; i++) {
        const struct shown *s = f->slots[i].shown;
        if (s)
            members[b->s.n_members++] = (struct member){&s->endpoint, s->cell};
    }
    b->s.members = members;
    b->s.synced = true;
    for (uint16_t i = 0; i < f->options.n_sources; i++)
        b->s.synced = b->s.synced && f->synced[i];
    return index_models(f, b, now_ns);
}

int fleet_build(struct fleet *f, uint64_t now_ns, const struct snapshot **out)
{
    struct shown *fresh = NULL;

    fleet_sweep(f);
    if (!f->dirty && f->newest) {
        *out = &f->newest->s;
        return 0;
    }
    struct built *b = mem_zalloc(f->mem, sizeof(*b));
    if (!b)
        return WEIR_E_NOMEM;
    arena_init(&b->arena, f->mem, SIZE_MAX / 2);
    b->s.seq = f->newest ? f->newest->s.seq + 1 : 1;
    int rc = show_changed(f, b->s.seq, &fresh);
    if (rc == 0)
        rc = build(f, b, now_ns);
    if (rc) {
        take_back(f, fresh);
        fleet_free_built(f, b);
        return rc;
    }
    settle(f, fresh);
    b->older = f->newest;
    f->newest = b;
    f->dirty = false;
    purge_models(f, now_ns);
    *out = &b->s;
    return 0;
}

void fleet_free_built(struct fleet *f, struct built *b)
{
    arena_fini(&b->arena);
    mem_free(f->mem, b);
}

void fleet_reclaim(struct fleet *f, bool (*in_use)(void *ctx, const struct snapshot *s), void *ctx)
{
    for (struct built **at = f->newest ? &f->newest->older : NULL; at && *at;) {
        struct built *b = *at;
        if (in_use(ctx, &b->s)) {
            at = &b->older;
            continue;
        }
        *at = b->older;
        fleet_free_built(f, b);
    }
    const struct built *oldest = f->newest;
    while (oldest && oldest->older)
        oldest = oldest->older;
    fleet_shown_reclaim(f, oldest ? oldest->s.seq : UINT64_MAX);
    fleet_sweep(f);
}
