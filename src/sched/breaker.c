/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file The breaker's word and its steps.
 *
 * The word, from the lowest bit: open; cause (3 bits); trips (6); good answers in half-open (6); milliseconds (48):
 * the deadline while open, when it closed while closed. One word, so that every step is one compare-and-swap and no
 * reader ever sees half of one. cell.gate repeats "open" where a pick looks first; see gate().
 */
#include "sched/breaker.h"

#include "base/bug.h"
#include "base/num.h"

enum {
    OPEN = 1,
    CAUSE_AT = 1,
    TRIPS_AT = 4,
    TRIPS_MAX = 63,
    PASSED_AT = 10,
    PASSED_MAX = 63,
    TIME_AT = 16,
};
/* A wait that ended well excuses others as long for a while: it counts half after each of these. */
#define SLOWEST_HALVES_NS (600 * NS_PER_S)
/* Waiting is looked at a few times a second: a wait shorter than this is none, a longer gap between two ends a silence. */
#define SILENCE_MIN_NS (100 * NS_PER_MS)
#define SILENCE_GAP_NS NS_PER_S

struct word {
    bool open;
    enum breaker_cause cause;
    uint32_t trips, passed;
    uint64_t ms;
};

static struct word unpack(uint64_t w)
{
    return (struct word){.open = w & OPEN,
                         .cause = (enum breaker_cause)((w >> CAUSE_AT) & 7),
                         .trips = (uint32_t)(w >> TRIPS_AT) & TRIPS_MAX,
                         .passed = (uint32_t)(w >> PASSED_AT) & PASSED_MAX,
                         .ms = w >> TIME_AT};
}

static uint64_t pack(struct word w)
{
    return (w.open ? OPEN : 0) | (uint64_t)w.cause << CAUSE_AT | (uint64_t)w.trips << TRIPS_AT |
           (uint64_t)w.passed << PASSED_AT | w.ms << TIME_AT;
}

static uint64_t load(const struct cell *c)
{
    return atomic_load_explicit(&c->breaker, memory_order_relaxed);
}

static bool over(const struct word *w, uint64_t now_ns)
{
    return now_ns / NS_PER_MS >= w->ms;
}

/* The bit of the gate follows the word. Two threads may write it in the wrong order; whoever cleared it looks once
 * more, so that an open breaker is never left without. */
static void gate(struct cell *c, bool open)
{
    if (!open)
        atomic_fetch_and(&c->gate, (unsigned char)~GATE_BREAKER);
    if (open || (atomic_load(&c->breaker) & OPEN))
        atomic_fetch_or(&c->gate, GATE_BREAKER);
    cell_changed(c);
}

static void forget(struct cell *c)
{
    atomic_store_explicit(&c->failed_row, 0, memory_order_relaxed);
    atomic_store_explicit(&c->timeouts_row, 0, memory_order_relaxed);
    atomic_store_explicit(&c->window_from_ns, 0, memory_order_relaxed);
}

static uint64_t cooldown(const struct breaker_rules *r, uint32_t trips)
{
    uint64_t most = MAX(r->cooldown_ns, r->cooldown_max_ns);
    uint64_t ns = r->cooldown_ns;

    for (uint32_t i = 1; i < trips && ns < most; i++)
        ns = ns > most / 2 ? most : ns * 2;
    return ns;
}

static uint64_t deadline(const struct breaker_rules *r, uint32_t trips, uint64_t now_ns)
{
    return (now_ns + cooldown(r, trips) + NS_PER_MS - 1) / NS_PER_MS;
}

static enum breaker_step trip(struct cell *c,
                              const struct breaker_rules *r,
                              enum breaker_cause cause,
                              bool trial,
                              uint64_t now_ns)
{
    unsigned long long was = load(c);
    enum breaker_step step;
    struct word w;

    do {
        w = unpack(was);
        bool closed = !w.open;
        step = closed ? BREAKER_OPENED : trial ? BREAKER_REOPENED : BREAKER_SAME;
        if (closed) {
            /* Soon after it was readmitted it waits longer still; after a good while it starts over. */
            uint64_t good_ms = MAX(r->cooldown_ns, r->cooldown_max_ns) / NS_PER_MS;
            w = (struct word){.open = true,
                              .trips = now_ns / NS_PER_MS - w.ms >= good_ms ? 0 : w.trips};
        }
        if (step != BREAKER_SAME && w.trips < TRIPS_MAX)
            w.trips++;
        w.cause = MAX(w.cause, cause);
        w.passed = 0;
        /* The longer of two deadlines wins. */
        w.ms = closed ? deadline(r, w.trips, now_ns) : MAX(w.ms, deadline(r, w.trips, now_ns));
    } while (!atomic_compare_exchange_weak(&c->breaker, &was, pack(w)));
    if (step == BREAKER_OPENED)
        forget(c);
    gate(c, true);
    return step;
}

static bool is_open(const struct cell *c)
{
    return load(c) & OPEN;
}

/* Tumbling window that begins with a failure; successes write nothing: the ledger counts requests anyway. Requests
 * still under way count as good. */
static bool too_many(struct cell *c, const struct breaker_rules *r, uint64_t now_ns)
{
    unsigned long long from = atomic_load_explicit(&c->window_from_ns, memory_order_relaxed);
    uint32_t total = (uint32_t)atomic_load_explicit(&c->requests_total, memory_order_relaxed);
    uint32_t failed = 1;

    if (from == 0 || now_ns - from >= r->window_ns) {
        if (atomic_compare_exchange_strong(&c->window_from_ns, &from, now_ns)) {
            uint32_t inflight = atomic_load_explicit(&c->inflight, memory_order_relaxed);
            atomic_store_explicit(&c->window_ended, total - inflight, memory_order_relaxed);
            atomic_store_explicit(&c->window_failed, 1, memory_order_relaxed);
        } else {
            failed = atomic_fetch_add_explicit(&c->window_failed, 1, memory_order_relaxed) + 1;
        }
    } else {
        failed = atomic_fetch_add_explicit(&c->window_failed, 1, memory_order_relaxed) + 1;
    }
    uint32_t requests = total - atomic_load_explicit(&c->window_ended, memory_order_relaxed);
    return r->error_percent != 0 && requests >= r->min_requests &&
           (uint64_t)failed * 100 >= (uint64_t)r->error_percent * requests;
}

enum breaker_step sched_breaker_failed(struct cell *c,
                                       const struct breaker_rules *r,
                                       enum breaker_cause cause,
                                       bool trial,
                                       uint64_t now_ns)
{
    if (!r->enabled)
        return BREAKER_SAME;
    if (is_open(c))
        return trip(c, r, cause, trial, now_ns);
    uint32_t row = atomic_fetch_add_explicit(&c->failed_row, 1, memory_order_relaxed) + 1;
    bool rate = too_many(c, r, now_ns);
    if (rate || (r->consecutive != 0 && row >= r->consecutive))
        return trip(c, r, cause, false, now_ns);
    return BREAKER_SAME;
}

/* How long silence is nothing to worry about. */
static uint64_t patience(const struct cell *c, const struct breaker_rules *r, uint64_t now_ns)
{
    uint64_t slowest = atomic_load_explicit(&c->slowest_ns, memory_order_relaxed);
    uint64_t at = atomic_load_explicit(&c->slowest_at_ns, memory_order_relaxed);
    uint64_t halves = now_ns > at ? (now_ns - at) / SLOWEST_HALVES_NS : 0;

    slowest = halves > 63 ? 0 : slowest >> halves;
    return MAX(r->stall_ns, 2 * slowest);
}

enum breaker_step sched_breaker_timed_out(
    struct cell *c, const struct breaker_rules *r, bool trial, uint64_t sent_ns, uint64_t now_ns)
{
    uint64_t progress = atomic_load_explicit(&c->last_progress_ns, memory_order_relaxed);

    if (!r->enabled || r->first_byte_timeouts == 0)
        return BREAKER_SAME;
    bool busy = progress > sent_ns &&
                (r->stall_ns == 0 || progress >= now_ns || now_ns - progress < r->stall_ns);
    if (is_open(c))
        return trial ? trip(c, r, BREAKER_SILENT, true, now_ns) : BREAKER_SAME;
    if (busy)
        return BREAKER_SAME;
    uint32_t row = atomic_fetch_add_explicit(&c->timeouts_row, 1, memory_order_relaxed) + 1;
    return row >= r->first_byte_timeouts ? trip(c, r, BREAKER_SILENT, false, now_ns) : BREAKER_SAME;
}

/* Since when the endpoint is silent: clients may give up and others take their place, so no single request tells. */
static uint64_t
silent_from(struct cell *c, uint64_t since_ns, uint64_t progress_ns, uint64_t now_ns)
{
    uint64_t from = MAX(since_ns, progress_ns);
    uint64_t began = atomic_load_explicit(&c->silent_from_ns, memory_order_relaxed);
    uint64_t seen = atomic_load_explicit(&c->silent_seen_ns, memory_order_relaxed);
    bool goes_on = began != 0 && began >= progress_ns && now_ns < seen + SILENCE_GAP_NS;

    atomic_store_explicit(&c->silent_seen_ns, now_ns, memory_order_relaxed);
    if (goes_on && began <= from)
        return began;
    atomic_store_explicit(&c->silent_from_ns, from, memory_order_relaxed);
    return from;
}

enum breaker_step sched_breaker_waits(
    struct cell *c, const struct breaker_rules *r, bool trial, uint64_t since_ns, uint64_t now_ns)
{
    if (!r->enabled || r->stall_ns == 0 || now_ns < since_ns + SILENCE_MIN_NS ||
        (is_open(c) && !trial))
        return BREAKER_SAME;
    uint64_t progress = atomic_load_explicit(&c->last_progress_ns, memory_order_relaxed);
    uint64_t from = trial ? MAX(since_ns, progress) : silent_from(c, since_ns, progress, now_ns);
    if (now_ns <= from || now_ns - from < patience(c, r, now_ns))
        return BREAKER_SAME;
    return trip(c, r, BREAKER_SILENT, trial, now_ns);
}

/* One more good answer, or simply life where silence was all there was against it. */
static enum breaker_step recover(struct cell *c, uint32_t successes, bool counts, uint64_t now_ns)
{
    unsigned long long was = load(c);
    struct word w;

    do {
        w = unpack(was);
        bool silent = w.cause == BREAKER_SILENT;
        if (!w.open || (!silent && (!counts || !over(&w, now_ns))))
            return BREAKER_SAME;
        w.passed++;
        /* Before the trial, a byte of an older answer says enough: it was never hung. */
        if ((silent && !over(&w, now_ns)) || w.passed >= successes || w.passed == PASSED_MAX)
            w = (struct word){.trips = w.trips, .ms = now_ns / NS_PER_MS};
    } while (!atomic_compare_exchange_weak(&c->breaker, &was, pack(w)));
    if (w.open)
        return BREAKER_SAME;
    forget(c);
    gate(c, false);
    return BREAKER_CLOSED_AGAIN;
}

static void note_wait(struct cell *c, uint64_t waited_ns, uint64_t now_ns)
{
    static const struct breaker_rules none;

    /* Short waits excuse nothing that the shortest sensible stall would not. */
    if (waited_ns < NS_PER_S || 2 * waited_ns <= patience(c, &none, now_ns))
        return;
    atomic_store_explicit(&c->slowest_at_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&c->slowest_ns, waited_ns, memory_order_relaxed);
}

enum breaker_step sched_breaker_answered(struct cell *c,
                                         const struct breaker_rules *r,
                                         uint64_t waited_ns,
                                         uint64_t now_ns)
{
    note_wait(c, waited_ns, now_ns);
    if (atomic_load_explicit(&c->failed_row, memory_order_relaxed) != 0)
        atomic_store_explicit(&c->failed_row, 0, memory_order_relaxed);
    if (atomic_load_explicit(&c->timeouts_row, memory_order_relaxed) != 0)
        atomic_store_explicit(&c->timeouts_row, 0, memory_order_relaxed);
    if (!is_open(c))
        return BREAKER_SAME;
    return recover(c, MAX(r->successes, 1U), true, now_ns);
}

enum breaker_step sched_breaker_alive(struct cell *c, uint64_t now_ns)
{
    if (!is_open(c))
        return BREAKER_SAME;
    return recover(c, 1, false, now_ns);
}

void sched_breaker_reached(struct cell *c, uint64_t now_ns)
{
    unsigned long long was = load(c);
    struct word w = unpack(was);

    if (!w.open || w.cause != BREAKER_CONNECT || over(&w, now_ns))
        return;
    w.ms = now_ns / NS_PER_MS;
    /* Lost to another step: that one knows more. */
    (void)atomic_compare_exchange_strong(&c->breaker, &was, pack(w));
}

enum breaker_pass sched_breaker_pass(const struct cell *c, uint64_t now_ns)
{
    struct word w = unpack(load(c));

    if (!w.open)
        return BREAKER_FREE;
    if (!over(&w, now_ns) || atomic_load_explicit(&c->trial, memory_order_relaxed) != 0)
        return BREAKER_BLOCKED;
    return BREAKER_TRIAL;
}

enum breaker_pass sched_breaker_enter(struct cell *c, uint64_t now_ns)
{
    unsigned none = 0;

    if (!is_open(c))
        return BREAKER_FREE;
    if (!atomic_compare_exchange_strong(&c->trial, &none, 1))
        return BREAKER_BLOCKED;
    struct word w = unpack(atomic_load(&c->breaker));
    if (w.open && over(&w, now_ns))
        return BREAKER_TRIAL;
    sched_breaker_leave(c);
    return w.open ? BREAKER_BLOCKED : BREAKER_FREE;
}

void sched_breaker_leave(struct cell *c)
{
    BUG_ON(atomic_exchange(&c->trial, 0) != 1);
}

struct breaker_look sched_breaker_look(const struct cell *c, uint64_t now_ns)
{
    struct word w = unpack(load(c));
    struct breaker_look look = {.trips = w.trips,
                                .trial = atomic_load_explicit(&c->trial, memory_order_relaxed)};

    if (!w.open)
        return look;
    look.cause = w.cause;
    look.state = over(&w, now_ns) ? BREAKER_HALF_OPEN : BREAKER_OPEN;
    if (look.state == BREAKER_OPEN)
        look.left_ns = w.ms * NS_PER_MS - now_ns;
    return look;
}

const char *sched_breaker_why(enum breaker_cause cause)
{
    static const char *const words[BREAKER_CAUSES] = {
        [BREAKER_NONE] = "nothing",
        [BREAKER_SILENT] = "no byte came",
        [BREAKER_CONNECT] = "connections fail",
        [BREAKER_FAILED] = "answers fail",
    };

    return cause < BREAKER_CAUSES ? words[cause] : words[BREAKER_NONE];
}

bool sched_panic(uint32_t usable, uint32_t red, uint32_t percent)
{
    if (usable == 0)
        return red > 0;
    return percent != 0 && (uint64_t)red * 100 > (uint64_t)percent * ((uint64_t)usable + red);
}
