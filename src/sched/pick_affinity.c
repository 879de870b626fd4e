/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick affinity, the default of llm-d since August 2026, with its published parameters: among endpoints that hold at
 * least 0.8 of the prompt, else among all, the fewest uncached tokens in flight with this prompt; the warm ones are let go
 * when the best of them would answer 18 s later than the best cold one, at 15,928 tokens/s.
 */
#include "sched/plugin.h"

enum { WARM_TENTHS = 8, PENALTY_MS = 18000, TOKENS_PER_S = 15928 };

static uint64_t in_flight(const struct sched_view *v, uint32_t row)
{
    return v->work[row].waiting_tokens + sched_work_uncached(v->features, &v->work[row]);
}

uint32_t sched_pick_affinity(const struct sched_view *v,
                             const uint32_t *fit,
                             uint32_t n,
                             const struct sched_cost *costs,
                             struct sched_state *state,
                             uint64_t seed)
{
    uint32_t warm = n;
    uint32_t cold = n;

    (void)costs;
    (void)state;
    /* Of equals the one that stands first after a place drawn at random. */
    struct prng r = {seed};
    uint32_t from = (uint32_t)prng_below(&r, n);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (from + k) % n;
        bool is_warm = v->features->prompt_tokens && (uint64_t)v->work[fit[i]].hit_tokens * 10 >=
                                                         v->features->prompt_tokens * WARM_TENTHS;
        uint32_t *best = is_warm ? &warm : &cold;
        if (*best == n || in_flight(v, fit[i]) < in_flight(v, fit[*best]))
            *best = i;
    }
    if (warm == n)
        return cold;
    if (cold == n)
        return warm;
    uint64_t tau = (uint64_t)PENALTY_MS * TOKENS_PER_S / 1000;
    return in_flight(v, fit[warm]) > in_flight(v, fit[cold]) + tau ? cold : warm;
}
