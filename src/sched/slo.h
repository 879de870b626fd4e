/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Targets of a request: its first byte by a time, each further token within another. An endpoint whose prediction
 * misses one is left out of the pick; when all do, the request is refused at once instead of being served too late.
 * Only what was measured can miss: a prior never does, and neither does an idle endpoint that was not measured for
 * SLO_STALE_NS, so that one request finds out how it is. But a target that has passed is missed for sure. Private to the
 * room.
 */
#ifndef WEIR_SCHED_SLO_H
#define WEIR_SCHED_SLO_H

#include "sched/pick.h"

enum { SLO_MARGIN_PERCENT = 110 /**< of what is left of a target: predictions up to here pass */ };
#define SLO_STALE_NS (10 * NS_PER_S)

static inline bool sched_slo_asked(const struct features *f)
{
    return (f->slo_ttft_ns | f->slo_tpot_ns) != 0;
}

/** What is left until the first byte has to be there; UINT64_MAX: it may come at any time. */
static inline uint64_t sched_slo_left_ns(const struct features *f, uint64_t now_ns)
{
    if (!f->slo_ttft_ns)
        return UINT64_MAX;
    if (!f->slo_by_ns)
        return f->slo_ttft_ns;
    return f->slo_by_ns > now_ns ? f->slo_by_ns - now_ns : 0;
}

/** The first byte of an answer in one piece is its last one too. */
static inline uint64_t sched_slo_first_us(const struct features *f, const struct sched_forecast *s)
{
    return s->wait_us + s->prefill_us + (f->stream ? 0 : s->decode_us);
}

static inline uint64_t sched_slo_step_us(const struct sched_question *q, const struct sched_work *w)
{
    return q->by_tokens ? sched_step_us(w, w->context_tokens + q->prompt) : 0;
}

/** Note in the work of each candidate what of it was measured. Before sched_slo_keep(). Cost: a cache line a row. */
void sched_slo_known(const struct sched_candidate *c,
                     const struct sched_row *rows,
                     uint32_t n,
                     enum sched_kind kind,
                     uint64_t now_ns,
                     struct sched_work *work);

/**
 * Keep those that are not predicted to miss a target. None: out->rejection and out->late_us are set.
 * @param why NULL, or the explain rows. @return how many.
 */
uint32_t sched_slo_keep(const struct sched_view *v,
                        uint32_t *fit,
                        uint32_t n,
                        struct decision *out,
                        struct explain_row *why);

/** Is this one predicted to miss a target? As sched_slo_keep() judges it. */
bool sched_slo_misses(const struct sched_view *v, uint32_t row);

/**
 * All that fit are full, or nobody fits: is it still of use to wait? If every candidate would miss even with a place at
 * once: as sched_slo_keep(); else out->prefill_us is set. @return 0.
 */
uint32_t sched_slo_wait(const struct sched_view *v, struct decision *out);

/** When a place must be there, for a waiter: the target and its margin, less what its prompt takes. UINT64_MAX: any time. */
uint64_t sched_slo_place_by_ns(const struct features *f, uint64_t prefill_us, uint64_t now_ns);

#endif /* WEIR_SCHED_SLO_H */
