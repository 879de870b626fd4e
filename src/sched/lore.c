/* SPDX-License-Identifier: Apache-2.0 */
#include "sched/lore.h"

#include "base/bug.h"
#include "base/hash.h"

#define RELAXED(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, v)  atomic_store_explicit(&(field), (v), memory_order_relaxed)

int sched_lore_new(const struct mem *mem, void *zeroed, size_t bytes, struct sched_lore **out)
{
    struct sched_lore *l = mem_zalloc(mem, sizeof(*l));

    if (!l)
        return WEIR_E_NOMEM;
    l->mem = mem;
    l->lengths = mem_zalloc(mem, sizeof(*l->lengths));
    if (!l->lengths) {
        sched_lore_free(l);
        return WEIR_E_NOMEM;
    }
    /* A sixteenth for sessions, up to what they need. */
    size_t sessions = MIN(bytes / 16 / sizeof(struct sched_session), (size_t)LORE_SESSIONS_MAX);
    sessions -= sessions % 64; /* and the rest stays aligned */
    l->sessions = zeroed;
    l->n_sessions = (uint32_t)sessions;
    size_t used = sessions * sizeof(struct sched_session);
    sched_prefix_init(&l->prefix, mem, (char *)zeroed + used, bytes - used);
    *out = l;
    return 0;
}

void sched_lore_free(struct sched_lore *l)
{
    if (!l)
        return;
    for (uint32_t i = 0; i < LORE_RATES_MAX; i++)
        mem_free(l->mem, RELAXED(l->rates[i]));
    sched_prefix_fini(&l->prefix);
    mem_free(l->mem, l->lengths);
    mem_free(l->mem, l);
}

uint64_t sched_lore_key(uint64_t endpoint, struct slice model, uint32_t kind)
{
    return hash_pair(endpoint, model.p ? hash_slice(model, kind) : kind) | 1;
}

struct sched_rates *sched_lore_rates(struct sched_lore *l, uint64_t key, struct slice gpu_type)
{
    uint32_t at = (uint32_t)(key >> 32) % LORE_RATES_MAX;
    struct sched_speed prior = sched_speed_prior(gpu_type);
    struct sched_rates *idle = NULL;
    struct sched_rates *fresh = NULL;

    for (uint32_t i = 0; i < LORE_RATES_WINDOW; i++) {
        struct sched_rates *_Atomic *p = &l->rates[(at + i) % LORE_RATES_MAX];
        struct sched_rates *r = atomic_load_explicit(p, memory_order_acquire);
        if (!r) {
            if (!fresh) {
                fresh = mem_zalloc(l->mem, sizeof(*fresh));
                if (!fresh)
                    return NULL;
                sched_rates_reset(fresh, key, &prior);
            }
            if (atomic_compare_exchange_strong(p, &r, fresh))
                return fresh;
        }
        if (RELAXED(r->key) == key) {
            mem_free(l->mem, fresh);
            return r;
        }
        if (!idle || RELAXED(r->used_ns) < RELAXED(idle->used_ns))
            idle = r;
    }
    mem_free(l->mem, fresh);
    if (RELAXED(idle->lock) || atomic_exchange_explicit(&idle->lock, 1, memory_order_acquire))
        return NULL;
    sched_rates_reset(idle, key, &prior);
    atomic_store_explicit(&idle->lock, 0, memory_order_release);
    return idle;
}

void sched_lore_prepare(const struct sched_lore *l, struct features *f)
{
    const struct sched_lengths *lengths = l ? l->lengths : NULL;
    /* 4 bytes a token until more is known. */
    uint32_t bpt = sched_lengths_bytes_per_token(lengths, f->model);

    if (f->prompt_bytes && f->prompt_bytes < UINT64_C(1) << 50)
        f->prompt_tokens = ((f->prompt_bytes << 8) + bpt - 1) / bpt;
    f->bytes_per_token = bpt;
    f->expected_output = sched_lengths_guess(lengths, f).mean;
}

static struct sched_session *session_set(const struct sched_lore *l, uint64_t key)
{
    uint32_t sets = l->n_sessions / LORE_SESSION_WAYS;

    return &l->sessions[((key >> 32) * sets >> 32) * LORE_SESSION_WAYS];
}

static uint64_t session_key(uint64_t session)
{
    return hash_pair(session, 0) | 1;
}

bool sched_lore_session(const struct sched_lore *l,
                        uint64_t session,
                        uint32_t *slot,
                        uint32_t *generation)
{
    if (!l || l->n_sessions == 0)
        return false;
    uint64_t key = session_key(session);
    const struct sched_session *set = session_set(l, key);
    for (uint32_t i = 0; i < LORE_SESSION_WAYS; i++) {
        if (RELAXED(set[i].key) != key)
            continue;
        uint64_t who = RELAXED(set[i].who);
        *slot = (uint32_t)(who >> 32);
        *generation = (uint32_t)who;
        return true;
    }
    return false;
}

void sched_lore_session_put(struct sched_lore *l,
                            uint64_t session,
                            uint32_t slot,
                            uint32_t generation)
{
    if (!l || l->n_sessions == 0)
        return;
    uint64_t key = session_key(session);
    struct sched_session *set = session_set(l, key);
    uint32_t now = atomic_fetch_add_explicit(&l->session_clock, 1, memory_order_relaxed) + 1;
    uint32_t best = 0;
    uint32_t age = 0;
    for (uint32_t i = 0; i < LORE_SESSION_WAYS; i++) {
        uint64_t k = RELAXED(set[i].key);
        uint32_t a = k == 0 ? UINT32_MAX : now - RELAXED(set[i].used);
        if (k == key) {
            best = i;
            break;
        }
        if (i == 0 || a > age) {
            age = a;
            best = i;
        }
    }
    SET(set[best].key, key);
    SET(set[best].who, (uint64_t)slot << 32 | generation);
    SET(set[best].used, now);
}
