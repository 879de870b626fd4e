/* SPDX-License-Identifier: Apache-2.0 */
/** @file Entries, their addresses and cells: made, given a new generation, and taken down. */
#include "base/bug.h"
#include "fleet/shown.h"

enum { FIRST_SLOTS = 64 };

static struct fleet_address *address_get(struct fleet *f, struct slice key)
{
    struct fleet_address *a = map_get(&f->addresses, key);

    if (!a) {
        a = fleet_slab_get(&f->address_slab);
        if (!a)
            return NULL;
        a->key = mem_strdup(f->mem, key);
        a->key_n = (uint32_t)key.n;
        if (!a->key || map_put(&f->addresses, slice_of(a->key, a->key_n), a)) {
            mem_free(f->mem, a->key);
            fleet_slab_put(&f->address_slab, a);
            return NULL;
        }
    }
    atomic_fetch_add(&a->count.refs, 1);
    return a;
}

static void address_put(struct fleet *f, struct fleet_address *a)
{
    if (atomic_fetch_sub(&a->count.refs, 1) != 1)
        return;
    map_del(&f->addresses, slice_of(a->key, a->key_n));
    mem_free(f->mem, a->key);
    fleet_slab_put(&f->address_slab, a);
}

struct cell *
fleet_cell_new(struct fleet *f, struct fleet_address *a, uint32_t slot, uint32_t generation)
{
    struct cell *c = fleet_slab_get(&f->cells);

    if (!c)
        return NULL;
    atomic_store(&c->refs, 1);
    atomic_store(&c->gate, GATE_YOUNG);
    c->slot = slot;
    c->generation = generation;
    c->home = &f->home;
    c->address = &a->count;
    atomic_fetch_add(&a->count.refs, 1);
    return c;
}

static void cell_free(struct fleet *f, struct cell *c)
{
    fleet_unbind_devices(f, c);
    address_put(f, container_of(c->address, struct fleet_address, count));
    fleet_slab_put(&f->cells, c);
}

void fleet_cell_drop(struct fleet *f, struct cell *c)
{
    if (atomic_fetch_sub(&c->refs, 1) == 1)
        cell_free(f, c);
}

void fleet_sweep(struct fleet *f)
{
    struct cell *c = atomic_exchange(&f->home.dead, NULL);

    while (c) {
        struct cell *next = c->next_dead;
        cell_free(f, c);
        c = next;
    }
}

static int grow_slots(struct fleet *f)
{
    uint32_t n = f->n_slots ? f->n_slots * 2 : FIRST_SLOTS;

    n = MIN(n, f->options.endpoints_max);
    if (n == f->n_slots)
        return WEIR_E_FULL;
    struct slot *slots = mem_resize(f->mem, f->slots, n, sizeof(*slots));
    if (!slots)
        return WEIR_E_NOMEM;
    f->slots = slots;
    uint32_t *free_slots = mem_resize(f->mem, f->free_slots, n, sizeof(*free_slots));
    if (!free_slots)
        return WEIR_E_NOMEM;
    f->free_slots = free_slots;
    for (uint32_t i = n; i-- > f->n_slots;) {
        f->slots[i] = (struct slot){0};
        f->free_slots[f->n_free++] = i;
    }
    f->n_slots = n;
    return 0;
}

void fleet_entry_forget_models(struct fleet *f, struct entry *e)
{
    if (!e->probed)
        return;
    arena_fini(&e->probed->arena);
    mem_free(f->mem, e->probed);
    e->probed = NULL;
}

static void entry_free(struct fleet *f, struct entry *e)
{
    if (e->cell)
        fleet_cell_drop(f, e->cell);
    if (e->address)
        address_put(f, e->address);
    fleet_entry_forget_models(f, e);
    fleet_entry_forget_devices(f, e);
    mem_free(f->mem, e);
}

int fleet_entry_new(struct fleet *f, struct slice key, struct entry **out)
{
    if (f->n_free == 0) {
        int rc = grow_slots(f);
        if (rc)
            return rc;
    }
    struct entry *e = mem_zalloc(f->mem, sizeof(*e));
    if (!e)
        return WEIR_E_NOMEM;
    list_init(&e->records);
    list_init(&e->stale);
    e->slot = f->free_slots[f->n_free - 1];
    e->generation = f->slots[e->slot].generation + 1;
    e->address = address_get(f, key);
    if (e->address) {
        e->address_key = slice_of(e->address->key, e->address->key_n);
        e->cell = fleet_cell_new(f, e->address, e->slot, e->generation);
    }
    if (!e->cell || map_put(&f->entries, e->address_key, e)) {
        entry_free(f, e);
        return WEIR_E_NOMEM;
    }
    f->n_free--;
    f->slots[e->slot] = (struct slot){.entry = e, .generation = e->generation};
    *out = e;
    return 0;
}

void fleet_entry_stale(struct fleet *f, struct entry *e)
{
    if (list_empty(&e->stale))
        list_add(&f->stale, &e->stale);
}

void fleet_entry_changed(struct fleet *f, struct entry *e)
{
    fleet_entry_stale(f, e);
    f->dirty = true;
}

void fleet_entry_remove(struct fleet *f, struct entry *e)
{
    BUG_ON(!list_empty(&e->records));
    map_del(&f->entries, e->address_key);
    list_del(&e->stale);
    if (f->slots[e->slot].shown)
        fleet_shown_retire(f, f->slots[e->slot].shown);
    f->slots[e->slot].shown = NULL;
    f->slots[e->slot].entry = NULL;
    f->free_slots[f->n_free++] = e->slot;
    entry_free(f, e);
}

void fleet_entry_renew(struct fleet *f, struct entry *e, struct cell *fresh)
{
    e->generation = ++f->slots[e->slot].generation;
    fresh->generation = e->generation;
    fleet_cell_drop(f, e->cell);
    e->cell = fresh;
    e->track = (struct health_track){0};
    e->has_sample = false;
    e->probed_engine = ENGINE_UNKNOWN;
    fleet_entry_forget_models(f, e);
    fleet_entry_forget_devices(f, e);
    fleet_entry_changed(f, e);
}
