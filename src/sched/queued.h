/* SPDX-License-Identifier: Apache-2.0 */
/** @file What score queued_work and its quick pick have in common. Private to the room. */
#ifndef WEIR_SCHED_QUEUED_H
#define WEIR_SCHED_QUEUED_H

#include "sched/work.h"

enum {
    QUEUED_LATER = 10, /**< seconds after a first token that weigh as much as one before it */
    QUEUED_SLOWLY = 8, /**< part of the prefill time above the others' that counts */
    QUEUED_MOST =
        4, /**< and at most this part of the cost: between equals, not between fast and slow */
};
#define QUEUED_US_MOST (UINT64_C(1) << 47)
/** The share of an endpoint among equals, when its slow start is over. */
#define QUEUED_SHARE UINT64_C(1000000)

/** The five leading bits: 3 % steps. */
static inline uint64_t sched_queued_rounded(uint64_t us)
{
    if (us < 32)
        return us;
    unsigned below = 59 - (unsigned)__builtin_clzll(us);
    return us >> below << below;
}

/** Requests that are one piece of work keep their server to themselves, so how busy it is says how much it has left. */
static inline bool sched_queued_whole(const struct features *f)
{
    return sched_kind_of(f) == SCHED_KIND_OTHER || f->expected_output <= 1;
}

/** The cost before it is rounded. @param mine_us, fair_us time lately computed for prompts, there and on average. */
static inline uint64_t sched_queued_us(const struct sched_forecast *s,
                                       uint32_t decoding,
                                       uint64_t mine_us,
                                       uint64_t fair_us)
{
    uint64_t others = s->prefill_us * decoding;
    uint64_t us = s->wait_us + s->prefill_us + (s->decode_us + others) / QUEUED_LATER;

    if (mine_us > fair_us)
        us += MIN((mine_us - fair_us) / QUEUED_SLOWLY, us / QUEUED_MOST);
    return us;
}

#endif /* WEIR_SCHED_QUEUED_H */
