/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file What is known of an endpoint's devices from elsewhere than its sources and its engine: an exporter of GPU metrics
 * on its host. It lies under the endpoint's sample: a number that the sample tells is not looked at here. And the devices
 * that endpoints share, by UUID, for the ledger.
 */
#include "base/buf.h"
#include "fleet/cell.h"
#include "fleet/fleet.h"
#include "fleet/shown.h"
#include "fleet/table.h"

enum { DEVICES_BYTES_MAX = 1 << 20 };

static bool take(struct sample *to, const struct sample *from, enum sample_field f)
{
    if (sample_has(to, f) || !sample_has(from, f))
        return false;
    to->known |= UINT32_C(1) << f;
    return true;
}

static void fill_gaps(struct sample *to, const struct sample *from)
{
    if (take(to, from, SAMPLE_GPU_UTIL))
        to->gpu_util_bp = from->gpu_util_bp;
    if (take(to, from, SAMPLE_MEMBW_UTIL))
        to->membw_util_bp = from->membw_util_bp;
    if (take(to, from, SAMPLE_SM_ACTIVE))
        to->sm_active_bp = from->sm_active_bp;
    /* Free and total belong together: those of two readers may differ by what a driver keeps for itself. */
    if (sample_has(to, SAMPLE_MEMORY_FREE))
        return;
    if (take(to, from, SAMPLE_MEMORY_FREE))
        to->memory_free_bytes = from->memory_free_bytes;
    if (sample_has(from, SAMPLE_MEMORY_TOTAL)) {
        to->known |= UINT32_C(1) << SAMPLE_MEMORY_TOTAL;
        to->memory_total_bytes = from->memory_total_bytes;
    }
}

static bool under(const struct entry *e, uint64_t now_ns)
{
    return e->found && e->found->sample.known != 0 && now_ns < e->found->until_ns;
}

/* Who shows what a request took? Where memory comes from the devices' reader, the engine's own numbers show nothing of
 * it, unless its KV memory is what is promised. */
static bool shows_memory(const struct sample *base, const struct sample *devices)
{
    return sample_has(devices, SAMPLE_MEMORY_FREE) && !sample_has(base, SAMPLE_MEMORY_FREE) &&
           !sample_has(base, SAMPLE_KV_USED);
}

void fleet_entry_publish(struct entry *e, bool newer, uint64_t now_ns)
{
    bool has_base = e->has_sample && now_ns < e->sample_until_ns;
    struct sample s = has_base ? e->base : (struct sample){0};

    if (under(e, now_ns)) {
        const struct sample *devices = &e->found->sample;
        newer = newer && !(has_base && shows_memory(&s, devices));
        if (has_base)
            fill_gaps(&s, devices);
        else
            s = *devices;
    }
    e->based = has_base;
    fleet_cell_write(e->cell, &s);
    if (newer)
        atomic_fetch_add(&e->cell->sample_count, 1);
}

static bool same_numbers(const struct sample *a, const struct sample *b)
{
    return a->known == b->known && a->gpu_util_bp == b->gpu_util_bp &&
           a->membw_util_bp == b->membw_util_bp && a->sm_active_bp == b->sm_active_bp &&
           a->memory_free_bytes == b->memory_free_bytes &&
           a->memory_total_bytes == b->memory_total_bytes;
}

static struct found_devices *found_of(const struct fleet *f, struct entry *e)
{
    if (!e->found) {
        e->found = mem_zalloc(f->mem, sizeof(*e->found));
        if (e->found)
            arena_init(&e->found->arena, f->mem, DEVICES_BYTES_MAX);
    }
    return e->found;
}

int fleet_device_sample(
    struct fleet *f, uint32_t slot, uint32_t generation, const struct sample *s, uint64_t now_ns)
{
    struct entry *e = fleet_entry_at(f, slot, generation);

    if (!e)
        return WEIR_E_STALE;
    if (s->known == 0 && (!e->found || e->found->sample.known == 0))
        return 0;
    struct found_devices *found = found_of(f, e);
    if (!found)
        return WEIR_E_NOMEM;
    /* An exporter that collects seldom tells the same numbers for a while: nothing newer was seen then. */
    bool changed = !same_numbers(s, &found->sample);
    bool has_base = e->has_sample && now_ns < e->sample_until_ns;
    bool newer = changed && (!has_base || shows_memory(&e->base, s));
    f->any_devices = true;
    found->sample = *s;
    found->sample.received_ns = now_ns;
    found->sample.while_leased = false;
    found->sample.inflight_then = atomic_load(&e->cell->address->inflight);
    found->until_ns = s->fresh_for_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + s->fresh_for_ns;
    fleet_entry_publish(e, false, now_ns);
    if (newer)
        atomic_fetch_add(&e->cell->sample_count, 1);
    return 0;
}

void fleet_tick(struct fleet *f, uint64_t now_ns)
{
    for (uint32_t i = 0; f->any_devices && i < f->n_slots; i++) {
        struct entry *e = f->slots[i].entry;
        if (e && e->based && now_ns >= e->sample_until_ns && under(e, now_ns))
            fleet_entry_publish(e, false, now_ns);
    }
    /* An earlier life of an endpoint has ended, or a neighbour left: who is alone now costs a pick less. */
    if (f->unshared)
        fleet_mark_all_shared(f);
}

static bool same_devices(const struct entry *e, const struct device *devices, uint32_t n)
{
    const struct found_devices *found = e->found;

    if (n != (found ? found->n : 0))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!slice_eq(found->list[i].uuid, devices[i].uuid) ||
            !slice_eq(found->list[i].type, devices[i].type) ||
            found->list[i].memory_total_bytes != devices[i].memory_total_bytes)
            return false;
    return true;
}

int fleet_set_devices(
    struct fleet *f, uint32_t slot, uint32_t generation, const struct device *devices, uint32_t n)
{
    struct entry *e = fleet_entry_at(f, slot, generation);
    struct arena arena;

    if (!e)
        return WEIR_E_STALE;
    if (n > ENDPOINT_DEVICES_MAX)
        return WEIR_E_FULL;
    for (uint32_t i = 0; i < n; i++)
        if (devices[i].uuid.n > ENDPOINT_TEXT_MAX || devices[i].type.n > ENDPOINT_TEXT_MAX)
            return WEIR_E_INVALID;
    if (same_devices(e, devices, n))
        return 0;
    arena_init(&arena, f->mem, DEVICES_BYTES_MAX);
    struct device *copy = arena_array(&arena, n, sizeof(*copy));
    for (uint32_t i = 0; copy && i < n; i++) {
        copy[i].memory_total_bytes = devices[i].memory_total_bytes;
        if (arena_slice(&arena, devices[i].uuid, &copy[i].uuid) ||
            arena_slice(&arena, devices[i].type, &copy[i].type))
            copy = NULL;
    }
    if (!copy) {
        arena_fini(&arena);
        return WEIR_E_NOMEM;
    }
    struct found_devices *found = found_of(f, e);
    if (!found) {
        arena_fini(&arena);
        return WEIR_E_NOMEM;
    }
    arena_fini(&found->arena);
    found->arena = arena;
    found->list = copy;
    found->n = n;
    fleet_entry_changed(f, e);
    return 0;
}

void fleet_entry_forget_devices(struct fleet *f, struct entry *e)
{
    if (!e->found)
        return;
    arena_fini(&e->found->arena);
    mem_free(f->mem, e->found);
    e->found = NULL;
}

/* --- shared devices --- */

/* A set with the key it stands under: one letter, the number of shares, and its UUIDs, each with its end. */
struct bound_set {
    struct slice key;
    struct device_set set; /* ends in room for its list, with the key behind that */
};

static struct device_count *device_of(struct fleet *f, struct slice uuid)
{
    struct device_count *d = map_get(&f->devices, uuid);

    if (d)
        return d;
    d = mem_zalloc(f->mem, sizeof(*d) + uuid.n + 1);
    if (!d)
        return NULL;
    memcpy(d + 1, uuid.p, uuid.n);
    d->uuid = slice_of((const char *)(d + 1), uuid.n);
    if (map_put(&f->devices, d->uuid, d) == 0)
        return d;
    mem_free(f->mem, d);
    return NULL;
}

static bool is_listed(const struct device *devices, uint32_t n, struct slice uuid)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(devices[i].uuid, uuid))
            return true;
    return false;
}

/* @param n shares. */
static void make_key(const struct endpoint *e, uint32_t n, struct buf *key)
{
    buf_put_char(key, model_preallocates(e->engine) ? 't' : 'b');
    buf_put_u64(key, n);
    for (uint32_t i = 0; i < e->n_devices; i++)
        if (e->devices[i].uuid.n && !is_listed(e->devices, i, e->devices[i].uuid)) {
            buf_put_char(key, '\0');
            buf_put_slice(key, e->devices[i].uuid);
        }
}

static struct device_set *
set_new(struct fleet *f, const struct endpoint *e, uint32_t n, uint32_t n_list, struct slice key)
{
    size_t list = n_list * sizeof(struct device_count *);
    struct bound_set *b = mem_zalloc(f->mem, sizeof(*b) + list + key.n);

    if (!b)
        return NULL;
    char *text = (char *)(b + 1) + list;
    memcpy(text, key.p, key.n);
    b->key = slice_of(text, key.n);
    b->set.n = n;
    b->set.tokens = model_preallocates(e->engine);
    for (uint32_t i = 0; i < e->n_devices; i++) {
        if (!e->devices[i].uuid.n || is_listed(e->devices, i, e->devices[i].uuid))
            continue;
        struct device_count *d = device_of(f, e->devices[i].uuid);
        if (!d)
            break;
        b->set.list[b->set.n_list++] = d;
    }
    if (b->set.n_list == n_list && map_put(&f->device_sets, b->key, b) == 0)
        return &b->set;
    mem_free(f->mem, b);
    return NULL;
}

static int find_set(struct fleet *f, const struct endpoint *e, struct device_set **out)
{
    uint32_t doubles = 0;
    uint32_t n_list = 0;
    struct buf key;

    *out = NULL;
    for (uint32_t i = 0; i < e->n_devices; i++) {
        bool again = e->devices[i].uuid.n && is_listed(e->devices, i, e->devices[i].uuid);
        doubles += again;
        n_list += e->devices[i].uuid.n && !again;
    }
    if (n_list == 0)
        return 0;
    buf_init(&key, f->mem, SIZE_MAX / 2);
    make_key(e, e->n_devices - doubles, &key);
    int rc = key.err;
    struct bound_set *b = rc ? NULL : map_get(&f->device_sets, buf_slice(&key));
    if (b)
        *out = &b->set;
    else if (rc == 0 && f->device_sets.n < DEVICE_SETS_MAX)
        *out = set_new(f, e, e->n_devices - doubles, n_list, buf_slice(&key));
    if (rc == 0 && !*out && f->device_sets.n < DEVICE_SETS_MAX)
        rc = WEIR_E_NOMEM;
    buf_fini(&key);
    return rc;
}

int fleet_bind_devices(struct fleet *f, struct cell *c, const struct endpoint *e)
{
    struct device_set *set;
    int rc = find_set(f, e, &set);

    if (rc || set == atomic_load(&c->devices))
        return rc;
    for (uint32_t i = 0; set && i < set->n_list; i++)
        set->list[i]->cells++;
    atomic_store(&c->devices, set);
    return 0;
}

void fleet_unbind_devices(struct fleet *f, struct cell *c)
{
    struct device_set *d = atomic_load(&c->devices);

    for (uint32_t i = 0; d && i < d->n_list; i++)
        f->unshared |= --d->list[i]->cells == 1;
}

void fleet_mark_shared(struct cell *c)
{
    const struct device_set *d = atomic_load(&c->devices);
    bool shared = false;

    for (uint32_t i = 0; d && i < d->n_list; i++)
        shared |= d->list[i]->cells > 1;
    unsigned char was = shared ? atomic_fetch_or(&c->gate, GATE_SHARED)
                               : atomic_fetch_and(&c->gate, (unsigned char)~GATE_SHARED);
    if (shared != ((was & GATE_SHARED) != 0))
        cell_changed(c);
}

void fleet_mark_all_shared(struct fleet *f)
{
    f->unshared = false;
    for (uint32_t i = 0; i < f->n_slots; i++)
        if (f->slots[i].shown)
            fleet_mark_shared(f->slots[i].shown->cell);
}

void fleet_free_devices(struct fleet *f)
{
    map_foreach(at, &f->device_sets) mem_free(f->mem, at->value);
    map_foreach(at, &f->devices) mem_free(f->mem, at->value);
    map_fini(&f->device_sets);
    map_fini(&f->devices);
}
