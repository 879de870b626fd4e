/* SPDX-License-Identifier: Apache-2.0 */
/** @file The plugins, each in a file of its name; plugins.c is the one place that lists them. Private to the room. */
#ifndef WEIR_SCHED_PLUGIN_H
#define WEIR_SCHED_PLUGIN_H

#include "base/bug.h"
#include "base/prng.h"
#include "sched/pick.h"
#include "sched/record.h"

/** Rotation of a pool. Parallel arrays over its candidates. */
struct sched_state {
    const struct mem *mem;
    uint32_t n;
    int64_t *credit; /**< of smooth weighted round robin; they sum to 0 while membership stays */
    int64_t *saved;  /**< room for a copy of credit */
    struct sched_who {
        uint32_t slot, generation;
    } * who;
    uint32_t last_slot; /**< chosen last by round_robin */
    bool any_last;
    bool wants_table;    /**< the pick is maglev */
    uint16_t *table;     /**< rows by place; NULL without members */
    uint32_t table_size; /**< a prime */
    bool wants_ring;     /**< the pick is prefix_hash */
    struct sched_ring_point {
        uint64_t hash;
        uint32_t row;
    } * ring;           /**< rising; NULL without members */
    uint32_t ring_size; /**< points */
    bool wants_probes;  /**< the pick is prequal */
    /** An answer to a probe, kept by prequal: at most one of each candidate. */
    struct sched_probe {
        uint64_t at_ns;
        uint32_t rif;  /**< requests in flight there, at that time and sent since by us */
        uint32_t us;   /**< latency */
        uint32_t uses; /**< it may be used so often; 0 = there is none */
    } * probes, *saved_probes;
    bool probe_turn; /**< which one goes next: the worst, else the oldest */
};

/** The lookup table of these candidates; O(size). @return 0 with *table owned by the caller, or WEIR_E_NOMEM. maglev.c. */
int sched_maglev_build(const struct mem *mem,
                       const struct sched_candidate *c,
                       uint32_t n,
                       uint16_t **table,
                       uint32_t *size) MUST_CHECK;

/** The ring of these candidates; O(points log points). @return 0 with *ring owned by the caller, or WEIR_E_NOMEM. ring.c. */
int sched_ring_build(const struct mem *mem,
                     const struct sched_candidate *c,
                     uint32_t n,
                     struct sched_ring_point **ring,
                     uint32_t *size) MUST_CHECK;

/** Remember the rotation and go back to it: an explanation must not take anybody's turn. */
struct sched_mark {
    uint32_t last_slot;
    bool any_last, probe_turn;
};
struct sched_mark sched_state_save(struct sched_state *s);
void sched_state_restore(struct sched_state *s, struct sched_mark m);

/** Does the endpoint have the model (or LoRA) by name, in the version asked for? */
bool sched_has_model(const struct endpoint *e, const struct features *f);

/** All filters in order. @param fit out. @return how many are left in it. @param out fit and rejection are set. */
uint32_t sched_filter_all(struct sched_view *v,
                          const struct sched_exclude *exclude,
                          uint32_t *fit,
                          struct decision *out,
                          struct explain_row *why);

/** Copy what a pick is about to read, then what it decided. record.c. */
void sched_record_before(struct sched_record *r,
                         const struct sched_view *v,
                         const struct sched_exclude *exclude,
                         const struct sched_state *state,
                         uint64_t seed);
void sched_record_after(struct sched_record *r,
                        const struct sched_view *v,
                        const struct decision *d,
                        bool explained);

uint32_t sched_filter_usable(const struct sched_view *v, uint32_t *fit, uint32_t n);
uint32_t sched_filter_model(const struct sched_view *v, uint32_t *fit, uint32_t n);
uint32_t sched_filter_context(const struct sched_view *v, uint32_t *fit, uint32_t n);
uint32_t sched_filter_memory_total(const struct sched_view *v, uint32_t *fit, uint32_t n);
uint32_t sched_filter_memory(const struct sched_view *v, uint32_t *fit, uint32_t n);
uint32_t sched_filter_memory_known(const struct sched_view *v, uint32_t *fit, uint32_t n);
uint32_t sched_filter_concurrency(const struct sched_view *v, uint32_t *fit, uint32_t n);
uint32_t sched_filter_locality(const struct sched_view *v, uint32_t *fit, uint32_t n);

void sched_score_load(const struct sched_view *v,
                      const uint32_t *fit,
                      uint32_t n,
                      struct sched_cost *costs);
void sched_score_dynamic_load(const struct sched_view *v,
                              const uint32_t *fit,
                              uint32_t n,
                              struct sched_cost *costs);
void sched_score_queued_work(const struct sched_view *v,
                             const uint32_t *fit,
                             uint32_t n,
                             struct sched_cost *costs);

uint32_t sched_pick_lowest(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed);
uint32_t sched_pick_power_of_two(const struct sched_view *v,
                                 const uint32_t *fit,
                                 uint32_t n,
                                 const struct sched_cost *costs,
                                 struct sched_state *state,
                                 uint64_t seed);
uint32_t sched_pick_random(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed);
uint32_t sched_pick_weighted_random(const struct sched_view *v,
                                    const uint32_t *fit,
                                    uint32_t n,
                                    const struct sched_cost *costs,
                                    struct sched_state *state,
                                    uint64_t seed);
uint32_t sched_pick_round_robin(const struct sched_view *v,
                                const uint32_t *fit,
                                uint32_t n,
                                const struct sched_cost *costs,
                                struct sched_state *state,
                                uint64_t seed);
uint32_t sched_pick_weighted_round_robin(const struct sched_view *v,
                                         const uint32_t *fit,
                                         uint32_t n,
                                         const struct sched_cost *costs,
                                         struct sched_state *state,
                                         uint64_t seed);
uint32_t sched_pick_consistent_hash(const struct sched_view *v,
                                    const uint32_t *fit,
                                    uint32_t n,
                                    const struct sched_cost *costs,
                                    struct sched_state *state,
                                    uint64_t seed);
void sched_score_uncached(const struct sched_view *v,
                          const uint32_t *fit,
                          uint32_t n,
                          struct sched_cost *costs);
void sched_score_response_time(const struct sched_view *v,
                               const uint32_t *fit,
                               uint32_t n,
                               struct sched_cost *costs);
void sched_score_peak_ewma(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           struct sched_cost *costs);
void sched_score_token_load(const struct sched_view *v,
                            const uint32_t *fit,
                            uint32_t n,
                            struct sched_cost *costs);
void sched_score_reported(const struct sched_view *v,
                          const uint32_t *fit,
                          uint32_t n,
                          struct sched_cost *costs);
uint32_t sched_pick_bounded(const struct sched_view *v,
                            const uint32_t *fit,
                            uint32_t n,
                            const struct sched_cost *costs,
                            struct sched_state *state,
                            uint64_t seed);
uint32_t sched_pick_prefix_hash(const struct sched_view *v,
                                const uint32_t *fit,
                                uint32_t n,
                                const struct sched_cost *costs,
                                struct sched_state *state,
                                uint64_t seed);
uint32_t sched_pick_cache_aware(const struct sched_view *v,
                                const uint32_t *fit,
                                uint32_t n,
                                const struct sched_cost *costs,
                                struct sched_state *state,
                                uint64_t seed);
uint32_t sched_pick_affinity(const struct sched_view *v,
                             const uint32_t *fit,
                             uint32_t n,
                             const struct sched_cost *costs,
                             struct sched_state *state,
                             uint64_t seed);
uint32_t sched_pick_prequal(const struct sched_view *v,
                            const uint32_t *fit,
                            uint32_t n,
                            const struct sched_cost *costs,
                            struct sched_state *state,
                            uint64_t seed);
uint32_t sched_pick_sticky(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed);
uint32_t sched_pick_maglev(const struct sched_view *v,
                           const uint32_t *fit,
                           uint32_t n,
                           const struct sched_cost *costs,
                           struct sched_state *state,
                           uint64_t seed);

/** Largest weight the rotation works with, so that SCHED_ROWS_MAX of them cannot overflow a credit. */
#define SCHED_CREDIT_MAX (INT64_C(1) << 50)

/** What a row of an explicit or estimated need has room for; see filter_memory.c. */
enum sched_room { ROOM_UNKNOWN, ROOM_FITS, ROOM_FULL };

static inline enum sched_room sched_room_in(uint64_t need, uint64_t free)
{
    return need <= free ? ROOM_FITS : ROOM_FULL;
}

static inline enum sched_room sched_memory_room(const struct sched_view *v, uint32_t row)
{
    const struct sched_row *r = &v->rows[row];
    const struct sched_need *need = &v->need;

    if (need->explicit_bytes) {
        if (r->flags & SCHED_HAS_BYTES)
            return sched_room_in(need->bytes, r->free_bytes);
        if ((r->flags & SCHED_HAS_KV) && need->kv_bytes_per_token)
            return sched_room_in(need->tokens, r->free_tokens);
        return ROOM_UNKNOWN;
    }
    if (r->flags & SCHED_TOKENS)
        return (r->flags & SCHED_HAS_KV)
                   ? sched_room_in(MIN(need->tokens, r->total_tokens), r->free_tokens)
                   : ROOM_UNKNOWN;
    if (need->bytes && (r->flags & SCHED_HAS_BYTES))
        return sched_room_in(need->bytes, r->free_bytes);
    return ROOM_UNKNOWN;
}

/** Is it unknown of every row without a closer look, so that nobody is dropped? False means "look". */
static inline bool sched_memory_unknown(const struct sched_view *v)
{
    const struct sched_need *need = &v->need;

    if (need->bytes == 0 && need->tokens == 0)
        return true;
    if (need->explicit_bytes)
        return !(v->common.any & (SCHED_HAS_BYTES | SCHED_HAS_KV));
    return !((v->common.any & SCHED_TOKENS) && (v->common.any & SCHED_HAS_KV)) &&
           !(need->bytes && (v->common.any & SCHED_HAS_BYTES));
}

/** Is it known of every row without a closer look? False means "look". */
static inline bool sched_memory_all_known(const struct sched_view *v)
{
    uint16_t needed = v->need.explicit_bytes ? SCHED_HAS_BYTES : SCHED_TOKENS | SCHED_HAS_KV;

    return (v->common.all & needed) == needed;
}
/** Is the explicit need above all the memory the endpoint has, as far as that is known? */
bool sched_memory_never(const struct sched_view *v, uint32_t row);

/** Is the request too long for the endpoint's context for sure? */
bool sched_context_never(const struct sched_view *v, uint32_t row);

/** @param fit rising. @return index into it of a row, or n. */
static inline uint32_t sched_fit_index(const uint32_t *fit, uint32_t n, uint32_t row)
{
    uint32_t low = 0;
    uint32_t high = n;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (fit[mid] < row)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && fit[low] == row ? low : n;
}

/** The lowest peak-EWMA of the first byte of those that fit, which who was not measured yet counts with; 1 = none was. */
static inline uint32_t sched_fastest_us(const struct sched_view *v, const uint32_t *fit, uint32_t n)
{
    uint32_t fastest = UINT32_MAX;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t us = v->work[fit[i]].speed.first_byte_us;
        fastest = us ? MIN(fastest, us) : fastest;
    }
    return fastest == UINT32_MAX ? 1 : fastest;
}

#endif /* WEIR_SCHED_PLUGIN_H */
