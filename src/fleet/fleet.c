/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The fleet table: records by source and key, entries by address, cells by generation.
 * Everything that can fail happens before the first change, so a failed update leaves what was there.
 */
#include "fleet/fleet.h"

#include "base/bug.h"
#include "fleet/cell.h"
#include "fleet/shown.h"
#include "model/instance.h"

enum { KNOWN_MODELS_MAX = 65536 };

#define DEFAULT_FRESH_NS  UINT64_C(15000000000)
#define INTERVAL_LEAST_NS UINT64_C(100000000)
#define INTERVAL_MOST_NS  UINT64_C(300000000000)
#define DAY_NS            (UINT64_C(86400) * 1000000000)

/* --- models --- */

int fleet_note_models(struct fleet *f, const struct model_ref *models, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct slice id = models[i].id;
        if (map_get(&f->models, id))
            continue;
        if (f->models.n >= KNOWN_MODELS_MAX)
            return WEIR_E_FULL;
        struct known_model *k = mem_zalloc(f->mem, sizeof(*k) + id.n + 1);
        if (!k)
            return WEIR_E_NOMEM;
        memcpy(k + 1, id.p, id.n);
        k->id = slice_of((const char *)(k + 1), id.n);
        if (map_put(&f->models, k->id, k)) {
            mem_free(f->mem, k);
            return WEIR_E_NOMEM;
        }
    }
    return 0;
}

static void saw_models(struct fleet *f, const struct model_ref *models, uint32_t n, uint64_t now_ns)
{
    for (uint32_t i = 0; i < n; i++) {
        struct known_model *k = map_get(&f->models, models[i].id);
        if (k) {
            k->seen = true;
            k->seen_ns = now_ns;
        }
    }
}

static void saw_probed(struct fleet *f, const struct entry *e, uint64_t now_ns)
{
    if (e->probed)
        saw_models(f, e->probed->list, e->probed->n, now_ns);
}

int fleet_set_known_models(struct fleet *f, const struct slice *models, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct model_ref m = {.id = models[i]};
        if (m.id.n == 0 || m.id.n > ENDPOINT_TEXT_MAX)
            return WEIR_E_INVALID;
        int rc = fleet_note_models(f, &m, 1);
        if (rc)
            return rc;
    }
    map_foreach(e, &f->models)((struct known_model *)e->value)->configured = false;
    for (uint32_t i = 0; i < n; i++)
        ((struct known_model *)map_get(&f->models, models[i]))->configured = true;
    f->dirty = true;
    return 0;
}

/* --- samples --- */

/* One sample counts per endpoint: a typed report before metadata before what we scraped, then the first source in config
 * order, unless what it said last is no longer fresh. `newer`: it tells something that was not known before. */
static void offer_sample(struct entry *e,
                         uint16_t source,
                         enum sample_rank rank,
                         const struct sample *s,
                         bool newer,
                         uint64_t now_ns)
{
    bool better = rank != e->sample_rank ? rank > e->sample_rank : source <= e->sample_source;

    if (e->has_sample && now_ns < e->sample_until_ns && !better)
        return;
    e->has_sample = true;
    e->sample_rank = rank;
    e->sample_source = source;
    e->sample_until_ns = s->while_leased || s->fresh_for_ns > UINT64_MAX - s->received_ns
                             ? UINT64_MAX
                             : s->received_ns + s->fresh_for_ns;
    e->base = *s;
    e->base.inflight_then = atomic_load(&e->cell->address->inflight);
    fleet_entry_publish(e, newer, now_ns);
}

static bool tells(const struct record *r)
{
    return r->told && r->told->known != 0;
}

static void offer_metadata(
    const struct fleet *f, struct entry *e, const struct record *r, bool newer, uint64_t now_ns)
{
    if (!tells(r) || (f->silent[r->source] && r->report_time_ms == 0))
        return;
    struct sample s = *r->told;
    s.source = r->source;
    s.received_ns = now_ns;
    s.while_leased = r->report_time_ms == 0;
    s.fresh_for_ns = r->report_interval_ns ? 3 * r->report_interval_ns : DEFAULT_FRESH_NS;
    offer_sample(e, r->source, SAMPLE_METADATA, &s, newer, now_ns);
}

static void forget_sample(const struct fleet *f, struct entry *e, uint64_t now_ns)
{
    e->has_sample = false;
    fleet_entry_publish(e, true, now_ns);
    weir_list_foreach (at, &e->records)
        offer_metadata(f, e, container_of(at, struct record, in_entry), true, now_ns);
}

/* --- records --- */

static void place_record(struct entry *e, struct record *r)
{
    struct list *at = e->records.next;

    while (at != &e->records && container_of(at, struct record, in_entry)->source <= r->source)
        at = at->next;
    list_add(at, &r->in_entry);
    r->entry = e;
}

static void remove_record(struct fleet *f, struct record *r, uint64_t now_ns)
{
    struct entry *e = r->entry;

    saw_models(f, r->i.models, r->i.n_models, now_ns);
    saw_probed(f, e, now_ns);
    list_del(&r->in_entry);
    f->dirty = true;
    if (list_empty(&e->records)) {
        fleet_entry_remove(f, e);
    } else {
        fleet_entry_changed(f, e);
        if (e->has_sample && e->sample_rank != SAMPLE_SCRAPED && e->sample_source == r->source)
            forget_sample(f, e, now_ns);
    }
    fleet_record_put(r);
}

/* Reports go on where the last record of this key stood. */
static void carry_over(struct record *r, const struct record *old)
{
    r->reported = old->reported;
    r->epoch = old->epoch;
    r->seq = old->seq;
    r->report_interval_ns = old->report_interval_ns;
    if (r->report_time_ms > old->report_time_ms && old->report_time_ms != 0) {
        uint64_t ms = MIN(r->report_time_ms - old->report_time_ms, INTERVAL_MOST_NS / 1000000);
        r->report_interval_ns = MAX(ms * 1000000, INTERVAL_LEAST_NS);
    }
}

static void replace_record(
    struct fleet *f, struct record *old, struct record *r, struct cell *fresh, uint64_t now_ns)
{
    struct entry *e = old->entry;
    bool newer = r->fast != old->fast || fresh;
    bool same_report = !fresh && r->report_time_ms != 0 && r->report_time_ms <= old->report_time_ms;

    if (fresh)
        fleet_entry_renew(f, e, fresh);
    else
        carry_over(r, old);
    if (r->identity != old->identity) {
        saw_models(f, old->i.models, old->i.n_models, now_ns);
        fleet_entry_changed(f, e);
    } else if (r->fast != old->fast) {
        fleet_entry_stale(f, e);
    }
    r->entry = e;
    list_add(&old->in_entry, &r->in_entry);
    list_del(&old->in_entry);
    if (same_report) {
        r->report_time_ms = old->report_time_ms;
        r->fast = old->fast;
        *r->told = *old->told; /* both have a report's time */
    } else if (!tells(r) && e->has_sample && e->sample_rank == SAMPLE_METADATA &&
               e->sample_source == r->source) {
        forget_sample(f, e, now_ns);
    } else {
        offer_metadata(f, e, r, newer, now_ns);
    }
    fleet_record_put(old);
}

int fleet_upsert(struct fleet *f, uint16_t source, const struct instance *i, uint64_t now_ns)
{
    struct record *r;
    struct entry *made = NULL;
    struct cell *fresh = NULL;

    BUG_ON(source >= f->options.n_sources);
    fleet_sweep(f);
    int rc = fleet_record_new(f->mem, source, i, &r);
    if (rc)
        return rc;
    struct record *old = map_get(&f->records[source], r->i.key);
    bool moved = old && !slice_eq(old->address, r->address);
    rc = fleet_note_models(f, r->i.models, r->i.n_models);
    if (rc)
        goto out;
    struct entry *e = old && !moved ? old->entry : map_get(&f->entries, r->address);
    if (!e) {
        rc = fleet_entry_new(f, r->address, &made);
        e = made;
    } else if (old && !moved && old->i.epoch != r->i.epoch) {
        fresh = fleet_cell_new(f, e->address, e->slot, 0);
        rc = fresh ? 0 : WEIR_E_NOMEM;
    }
    if (rc == 0)
        rc = map_put(&f->records[source], r->i.key, r);
    if (rc)
        goto out;

    /* Nothing below can fail. */
    saw_models(f, r->i.models, r->i.n_models, now_ns);
    if (old && !moved) {
        replace_record(f, old, r, fresh, now_ns);
        return 0;
    }
    place_record(e, r);
    offer_metadata(f, e, r, true, now_ns);
    fleet_entry_changed(f, e);
    if (old)
        remove_record(f, old, now_ns);
    return 0;
out:
    if (made)
        fleet_entry_remove(f, made);
    if (fresh)
        fleet_cell_drop(f, fresh);
    fleet_record_put(r);
    return rc;
}

void fleet_remove(struct fleet *f, uint16_t source, struct slice key, uint64_t now_ns)
{
    BUG_ON(source >= f->options.n_sources);
    struct record *r = map_del(&f->records[source], key);

    if (r)
        remove_record(f, r, now_ns);
    fleet_sweep(f);
}

int fleet_sample(
    struct fleet *f, uint16_t source, struct slice key, const struct sample *s, uint64_t now_ns)
{
    BUG_ON(source >= f->options.n_sources);
    struct record *r = map_get(&f->records[source], key);

    if (!r)
        return WEIR_E_NOTFOUND;
    bool ordered = s->epoch != 0 || s->seq != 0;
    if (ordered && r->reported &&
        (s->epoch < r->epoch || (s->epoch == r->epoch && s->seq <= r->seq)))
        return WEIR_E_STALE;
    struct entry *e = r->entry;
    if (ordered && r->reported && s->epoch > r->epoch) {
        /* The reporter started anew, and with it, as far as we can know, what it reports on. */
        struct cell *fresh = fleet_cell_new(f, e->address, e->slot, 0);
        if (!fresh)
            return WEIR_E_NOMEM;
        fleet_entry_renew(f, e, fresh);
    }
    if (ordered) {
        r->reported = true;
        r->epoch = s->epoch;
        r->seq = s->seq;
    }
    struct sample copy = *s;
    copy.source = source;
    copy.received_ns = now_ns;
    offer_sample(e, source, SAMPLE_TYPED, &copy, true, now_ns);
    return 0;
}

struct cell *fleet_cell_of(const struct fleet *f, uint16_t source, struct slice key)
{
    BUG_ON(source >= f->options.n_sources);
    const struct record *r = map_get(&f->records[source], key);

    return r ? r->entry->cell : NULL;
}

void fleet_synced(struct fleet *f, uint16_t source)
{
    BUG_ON(source >= f->options.n_sources);
    if (!f->synced[source]) {
        f->synced[source] = true;
        f->dirty = true;
    }
}

void fleet_silent(struct fleet *f, uint16_t source, bool silent, uint64_t now_ns)
{
    BUG_ON(source >= f->options.n_sources);
    if (f->silent[source] == silent)
        return;
    f->silent[source] = silent;
    map_foreach(at, &f->records[source])
    {
        const struct record *r = at->value;
        struct entry *e = r->entry;
        if (!silent)
            offer_metadata(f, e, r, true, now_ns);
        else if (e->has_sample && e->sample_rank == SAMPLE_METADATA && e->sample_source == source &&
                 r->report_time_ms == 0)
            forget_sample(f, e, now_ns);
    }
}

/* --- what operators and probes say --- */

struct entry *fleet_entry_at(const struct fleet *f, uint32_t slot, uint32_t generation)
{
    struct entry *e = slot < f->n_slots ? f->slots[slot].entry : NULL;

    return e && e->generation == generation ? e : NULL;
}

static bool has_id(const struct entry *e, struct slice id)
{
    const struct record *first = container_of(e->records.next, const struct record, in_entry);

    weir_list_foreach (at, &e->records) {
        const struct record *r = container_of(at, const struct record, in_entry);
        if (r->i.id.n)
            return slice_eq(r->i.id, id);
    }
    return slice_eq(first->authority, id);
}

int fleet_set_drain(struct fleet *f, struct slice id, bool drain)
{
    bool found = false;

    for (uint32_t i = 0; i < f->n_slots; i++) {
        struct entry *e = f->slots[i].entry;
        if (!e || !has_id(e, id))
            continue;
        found = true;
        if (e->operator_drain != drain) {
            e->operator_drain = drain;
            fleet_entry_changed(f, e);
        }
    }
    return found ? 0 : WEIR_E_NOTFOUND;
}

static bool same_models(const struct entry *e, const struct model_ref *models, uint32_t n)
{
    const struct probed_models *p = e->probed;

    if (n != (p ? p->n : 0))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!slice_eq(p->list[i].id, models[i].id) ||
            !slice_eq(p->list[i].version, models[i].version) ||
            !slice_eq(p->list[i].lora_base, models[i].lora_base) ||
            p->list[i].max_model_len != models[i].max_model_len ||
            p->list[i].loading != models[i].loading)
            return false;
    return true;
}

int fleet_set_models(
    struct fleet *f, uint32_t slot, uint32_t generation, const struct model_ref *models, uint32_t n)
{
    struct entry *e = fleet_entry_at(f, slot, generation);

    if (!e)
        return WEIR_E_STALE;
    if (n > ENDPOINT_MODELS_MAX)
        return WEIR_E_FULL;
    for (uint32_t i = 0; i < n; i++)
        if (models[i].id.n == 0 || models[i].id.n > ENDPOINT_TEXT_MAX ||
            models[i].version.n > ENDPOINT_TEXT_MAX || models[i].lora_base.n > ENDPOINT_TEXT_MAX)
            return WEIR_E_INVALID;
    if (same_models(e, models, n))
        return 0;
    int rc = fleet_note_models(f, models, n);
    if (rc)
        return rc;
    struct probed_models *probed = mem_zalloc(f->mem, sizeof(*probed));
    if (!probed)
        return WEIR_E_NOMEM;
    arena_init(&probed->arena, f->mem, 1 << 20);
    probed->n = n;
    rc = model_copy_models(&probed->arena, models, n, &probed->list);
    if (rc) {
        arena_fini(&probed->arena);
        mem_free(f->mem, probed);
        return rc;
    }
    fleet_entry_forget_models(f, e);
    e->probed = probed;
    fleet_entry_changed(f, e);
    return 0;
}

int fleet_set_engine(struct fleet *f, uint32_t slot, uint32_t generation, enum engine_kind kind)
{
    struct entry *e = fleet_entry_at(f, slot, generation);

    if (!e)
        return WEIR_E_STALE;
    if (e->probed_engine != kind)
        fleet_entry_changed(f, e);
    e->probed_engine = kind;
    return 0;
}

int fleet_restarted(struct fleet *f, uint32_t slot, uint32_t generation, uint64_t now_ns)
{
    struct entry *e = fleet_entry_at(f, slot, generation);

    if (!e)
        return WEIR_E_STALE;
    struct cell *fresh = fleet_cell_new(f, e->address, e->slot, 0);
    if (!fresh)
        return WEIR_E_NOMEM;
    saw_probed(f, e, now_ns);
    fleet_entry_renew(f, e, fresh);
    forget_sample(f, e, now_ns);
    return 0;
}

bool fleet_wants_scrape(const struct fleet *f, uint32_t slot, uint32_t generation, uint64_t now_ns)
{
    const struct entry *e = fleet_entry_at(f, slot, generation);

    return e && !(e->has_sample && e->sample_rank != SAMPLE_SCRAPED && now_ns < e->sample_until_ns);
}

int fleet_scraped(
    struct fleet *f, uint32_t slot, uint32_t generation, const struct sample *s, uint64_t now_ns)
{
    struct entry *e = fleet_entry_at(f, slot, generation);
    struct sample copy = *s;

    if (!e)
        return WEIR_E_STALE;
    if (s->known == 0)
        return 0;
    copy.source = container_of(e->records.next, const struct record, in_entry)->source;
    copy.received_ns = now_ns;
    copy.while_leased = false;
    offer_sample(e, 0, SAMPLE_SCRAPED, &copy, true, now_ns);
    return 0;
}

enum health
fleet_probe(struct fleet *f, uint32_t slot, uint32_t generation, bool green, uint64_t now_ns)
{
    struct entry *e = fleet_entry_at(f, slot, generation);

    return e ? fleet_health_probe(e->cell, &e->track, &f->health, green, now_ns) : HEALTH_UNKNOWN;
}

void fleet_set_health_rules(struct fleet *f, const struct health_rules *r)
{
    f->health = fleet_health_rules(r);
}

bool fleet_dirty(const struct fleet *f)
{
    return f->dirty;
}

uint32_t fleet_inflight(const struct fleet *f, struct slice host, uint16_t port)
{
    char key[ADDRESS_KEY_MAX];
    uint32_t n = 0;

    for (int tls = 0; host.n <= ENDPOINT_TEXT_MAX && tls < 2; tls++) {
        struct fleet_address *a =
            map_get(&f->addresses, fleet_address_key(tls != 0, host, port, key));
        n += a ? atomic_load(&a->count.inflight) : 0;
    }
    return n;
}

/* --- life --- */

int fleet_new(const struct fleet_options *o, struct fleet **out)
{
    struct fleet *f = mem_zalloc(o->mem, sizeof(*f));

    if (!f)
        return WEIR_E_NOMEM;
    f->mem = o->mem;
    f->options = *o;
    f->options.known_models = NULL;
    if (f->options.endpoints_max == 0)
        f->options.endpoints_max = 65536;
    if (f->options.remember_ns == 0)
        f->options.remember_ns = DAY_NS;
    f->health = fleet_health_rules(&o->health);
    map_init(&f->entries, f->mem);
    map_init(&f->addresses, f->mem);
    map_init(&f->models, f->mem);
    map_init(&f->devices, f->mem);
    map_init(&f->device_sets, f->mem);
    fleet_slab_init(&f->cells, f->mem, sizeof(struct cell), 64);
    fleet_slab_init(&f->address_slab, f->mem, sizeof(struct fleet_address),
                    alignof(struct fleet_address));
    f->dirty = true;
    list_init(&f->stale);
    f->records = mem_array(f->mem, o->n_sources, sizeof(*f->records));
    f->synced = mem_array(f->mem, o->n_sources, sizeof(*f->synced));
    f->silent = mem_array(f->mem, o->n_sources, sizeof(*f->silent));
    int rc = f->records && f->synced && f->silent ? 0 : WEIR_E_NOMEM;
    for (uint16_t i = 0; rc == 0 && i < o->n_sources; i++)
        map_init(&f->records[i], f->mem);
    if (rc == 0)
        rc = fleet_set_known_models(f, o->known_models, o->n_known_models);
    if (rc) {
        fleet_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

static void free_records(struct fleet *f)
{
    for (uint16_t i = 0; f->records && i < f->options.n_sources; i++) {
        map_foreach(at, &f->records[i])
        {
            struct record *r = at->value;
            list_del(&r->in_entry);
            if (list_empty(&r->entry->records))
                fleet_entry_remove(f, r->entry);
            fleet_record_put(r);
        }
        map_fini(&f->records[i]);
    }
    mem_free(f->mem, f->records);
}

void fleet_free(struct fleet *f)
{
    if (!f)
        return;
    while (f->newest) {
        struct built *b = f->newest;
        f->newest = b->older;
        fleet_free_built(f, b);
    }
    free_records(f);
    fleet_shown_reclaim(f, UINT64_MAX);
    fleet_sweep(f);
    map_foreach(e, &f->models) mem_free(f->mem, e->value);
    map_foreach(e, &f->addresses) mem_free(f->mem, ((struct fleet_address *)e->value)->key);
    map_fini(&f->models);
    map_fini(&f->addresses);
    map_fini(&f->entries);
    fleet_free_devices(f);
    mem_free(f->mem, f->synced);
    mem_free(f->mem, f->silent);
    mem_free(f->mem, f->slots);
    mem_free(f->mem, f->free_slots);
    fleet_slab_fini(&f->cells);
    fleet_slab_fini(&f->address_slab);
    mem_free(f->mem, f);
}
