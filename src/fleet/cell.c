/* SPDX-License-Identifier: Apache-2.0 */
/** @file The writer's side of the sample: all of it, and the digest that picks read. */
#include "fleet/cell.h"

#include "base/bug.h"

/* Each store stands behind the one that made the lock odd. Not a fence, which ThreadSanitizer cannot follow. */
#define SET(field, value) atomic_store_explicit(&(field), (value), memory_order_release)

static uint32_t excess_of(const struct sample *s)
{
    uint64_t reported = 0;

    if (sample_has(s, SAMPLE_RUNNING))
        reported += s->running;
    if (sample_has(s, SAMPLE_WAITING))
        reported += s->waiting;
    if (reported <= s->inflight_then)
        return 0;
    reported -= s->inflight_then;
    return reported > UINT32_MAX ? UINT32_MAX : (uint32_t)reported;
}

static uint64_t fresh_until(const struct sample *s)
{
    if (s->known == 0)
        return 0;
    if (s->while_leased || s->fresh_for_ns > UINT64_MAX - s->received_ns)
        return UINT64_MAX;
    return s->received_ns + s->fresh_for_ns;
}

static uint32_t saturated(uint64_t v)
{
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

static void write_digest(struct cell *c, const struct sample *s)
{
    unsigned known = 0;

    if (sample_has(s, SAMPLE_GPU_UTIL))
        known |= CELL_KNOWS_UTIL;
    if (sample_has(s, SAMPLE_MEMORY_FREE))
        known |= CELL_KNOWS_BYTES;
    if (sample_has(s, SAMPLE_MEMORY_TOTAL))
        known |= CELL_KNOWS_TOTAL;
    if (sample_has(s, SAMPLE_KV_CAPACITY) && sample_has(s, SAMPLE_KV_USED))
        known |= CELL_KNOWS_TOKENS;
    SET(c->excess, excess_of(s));
    SET(c->fresh_until_ns, fresh_until(s));
    SET(c->free_bytes, s->memory_free_bytes);
    SET(c->total_bytes, s->memory_total_bytes);
    SET(c->free_tokens, s->kv_capacity_tokens > s->kv_used_tokens
                            ? saturated(s->kv_capacity_tokens - s->kv_used_tokens)
                            : 0);
    SET(c->total_tokens, saturated(s->kv_capacity_tokens));
    SET(c->util_bp, (uint16_t)MIN(s->gpu_util_bp, UINT32_C(10000)));
    SET(c->reported_running, sample_has(s, SAMPLE_RUNNING) ? s->running : 0);
    SET(c->reported_waiting, sample_has(s, SAMPLE_WAITING) ? s->waiting : 0);
    SET(c->known, (uint8_t)known);
    SET(c->state, (uint8_t)(sample_has(s, SAMPLE_STATE) ? s->state : REPORTED_HEALTHY));
}

void fleet_cell_write(struct cell *c, const struct sample *s)
{
    uint64_t words[CELL_SAMPLE_WORDS] = {0};

    memcpy(words, s, sizeof(*s));
    unsigned lock = atomic_load_explicit(&c->sample_lock, memory_order_relaxed);
    SET(c->sample_lock, lock + 1);
    for (uint32_t i = 0; i < CELL_SAMPLE_WORDS; i++)
        SET(c->sample_words[i], words[i]);
    write_digest(c, s);
    atomic_store_explicit(&c->sample_lock, lock + 2, memory_order_release);
    cell_changed(c);
}

void fleet_cell_confirm(struct cell *c, const struct sample *s)
{
    struct sample copy = *s;

    copy.inflight_then = atomic_load(&c->address->inflight);
    fleet_cell_write(c, &copy);
}

void fleet_cell_publish(struct cell *c, const struct sample *s)
{
    fleet_cell_confirm(c, s);
    atomic_fetch_add(&c->sample_count, 1);
}

void fleet_cell_last(const struct cell *c, struct sample *out)
{
    uint64_t words[CELL_SAMPLE_WORDS];

    for (uint32_t i = 0; i < CELL_SAMPLE_WORDS; i++)
        words[i] = atomic_load_explicit(&c->sample_words[i], memory_order_relaxed);
    memcpy(out, words, sizeof(*out));
}
