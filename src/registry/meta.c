/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/meta.h"

#include "base/bug.h"

/** The table while it is put together; entries still borrow their text from old and delta. */
struct draft {
    struct meta_entry *entries;
    uint32_t n;
};

static struct meta_entry *find(const struct draft *d, struct slice key)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (slice_eq(d->entries[i].key, key))
            return &d->entries[i];
    return NULL;
}

static bool same(struct slice a, struct slice b)
{
    return (a.p == NULL) == (b.p == NULL) && slice_eq(a, b);
}

/** One key of the delta. @return true when anything changed. */
static bool apply(struct draft *d, struct slice key, struct slice value, enum meta_writer writer)
{
    struct meta_entry *e = find(d, key);
    struct slice absent = {NULL, 0};

    if (!value.p)
        value = SLICE("");
    if (!e) {
        e = &d->entries[d->n++];
        *e = (struct meta_entry){.key = key};
    }
    struct meta_entry before = *e;
    if (writer == META_OPERATOR || !same(e->told, value))
        e->value = value.n ? value : absent;
    if (writer == META_CLIENT)
        e->told = value;
    return !same(before.value, e->value) || !same(before.told, e->told);
}

/** Drop entries that say nothing; with `hard` also those that only remember what was deleted. */
static void prune(struct draft *d, bool hard)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct meta_entry *e = &d->entries[i];
        if (e->value.p || (e->told.p && !hard))
            d->entries[n++] = *e;
    }
    d->n = n;
}

static uint32_t in_effect(const struct draft *d)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < d->n; i++)
        n += d->entries[i].value.p != NULL;
    return n;
}

static struct slice put(char **at, struct slice s)
{
    if (!s.p)
        return s;
    char *to = *at;
    if (s.n)
        memcpy(to, s.p, s.n);
    to[s.n] = '\0';
    *at += s.n + 1;
    return slice_of(to, s.n);
}

static size_t room(struct slice s)
{
    return s.p ? s.n + 1 : 0;
}

/** Pack the draft into one block: head, entries, kv, text. */
static struct meta *pack(const struct mem *mem, const struct draft *d)
{
    uint32_t n_kv = in_effect(d);
    size_t heads =
        sizeof(struct meta) + d->n * sizeof(struct meta_entry) + n_kv * sizeof(struct kv);
    size_t size = heads;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct meta_entry *e = &d->entries[i];
        size += room(e->key) + room(e->value) + room(e->told);
    }
    struct meta *m = mem_alloc(mem, size);
    if (!m)
        return NULL;
    struct meta_entry *entries = (struct meta_entry *)(void *)(m + 1);
    struct kv *kv = (struct kv *)(void *)(entries + d->n);
    char *text = (char *)m + heads;
    uint32_t k = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct meta_entry *e = &d->entries[i];
        entries[i].key = put(&text, e->key);
        entries[i].value = put(&text, e->value);
        entries[i].told = put(&text, e->told);
        if (e->value.p)
            kv[k++] = (struct kv){entries[i].key, entries[i].value};
    }
    BUG_ON(text != (char *)m + size);
    *m = (struct meta){.n_entries = d->n, .n_kv = n_kv, .entries = entries, .kv = kv};
    return m;
}

static bool effect_differs(const struct draft *d, const struct meta *old)
{
    uint32_t k = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        const struct meta_entry *e = &d->entries[i];
        if (!e->value.p)
            continue;
        if (!old || k >= old->n_kv || !slice_eq(old->kv[k].key, e->key) ||
            !slice_eq(old->kv[k].value, e->value))
            return true;
        k++;
    }
    return k != (old ? old->n_kv : 0);
}

int meta_merge(const struct mem *mem,
               const struct meta *old,
               const struct kv *delta,
               uint32_t n_delta,
               enum meta_writer writer,
               struct meta **out,
               bool *visible)
{
    uint32_t n_old = old ? old->n_entries : 0;
    struct draft d = {.n = n_old};
    bool changed = false;
    int rc = 0;

    *out = NULL;
    *visible = false;
    if (n_delta == 0)
        return 0;
    d.entries = mem_array(mem, (size_t)n_old + n_delta, sizeof(*d.entries));
    if (!d.entries)
        return WEIR_E_NOMEM;
    if (n_old)
        memcpy(d.entries, old->entries, n_old * sizeof(*d.entries));
    for (uint32_t i = 0; i < n_delta; i++)
        changed |= apply(&d, delta[i].key, delta[i].value, writer);
    if (changed) {
        prune(&d, false);
        if (d.n > ENDPOINT_KV_MAX)
            prune(&d, true);
        if (d.n > ENDPOINT_KV_MAX)
            rc = WEIR_E_FULL;
        else if (!(*out = pack(mem, &d)))
            rc = WEIR_E_NOMEM;
        else
            *visible = effect_differs(&d, old);
    }
    mem_free(mem, d.entries);
    return rc;
}

struct slice meta_get(const struct kv *kv, uint32_t n, struct slice key)
{
    for (uint32_t i = 0; i < n; i++)
        if (slice_eq(kv[i].key, key))
            return kv[i].value;
    return (struct slice){NULL, 0};
}
