/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick prefix_hash, as KubeAI has it: from the prefix's point of the ring on, the first endpoint that with this
 * request holds at most the bound (1.25) times the mean load, not rounded up; when none does, the first of all. The prefix
 * is the first 100 characters of the first user's text.
 */
#include "base/hash.h"
#include "sched/plugin.h"

static uint32_t place_of(const struct sched_state *state, uint64_t key)
{
    uint32_t low = 0;
    uint32_t high = state->ring_size;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (state->ring[mid].hash < key)
            low = mid + 1;
        else
            high = mid;
    }
    return low % state->ring_size;
}

uint32_t sched_pick_prefix_hash(const struct sched_view *v,
                                const uint32_t *fit,
                                uint32_t n,
                                const struct sched_cost *costs,
                                struct sched_state *state,
                                uint64_t seed)
{
    uint64_t total = 0;
    uint64_t least = UINT64_MAX;

    if (!v->features->prefix_key || !state->ring)
        return sched_pick_lowest(v, fit, n, costs, state, seed);
    for (uint32_t i = 0; i < n; i++) {
        total += v->rows[fit[i]].load;
        least = MIN(least, (uint64_t)v->rows[fit[i]].load);
    }
    uint64_t q16 = MAX(v->policy->bound_q16, (uint32_t)Q16_ONE);
    unsigned __int128 allowed = (unsigned __int128)(total + 1) * q16;
    /* With few requests the mean is so low that nobody is below it, and all stay where their prefix is. */
    bool all = total == 0 || (((unsigned __int128)(least + 1) * n) << 16) > allowed;
    uint32_t place = place_of(state, v->features->prefix_key);
    for (uint32_t k = 0; k < state->ring_size; k++) {
        uint32_t i = sched_fit_index(fit, n, state->ring[(place + k) % state->ring_size].row);
        if (i < n && (all || (((unsigned __int128)(v->rows[fit[i]].load + UINT64_C(1)) * n)
                              << 16) <= allowed))
            return i;
    }
    return sched_pick_lowest(v, fit, n, costs, state, seed);
}
