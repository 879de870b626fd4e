/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of decisions: the last 4,096, at most 16 MiB of text, whichever is less. A decision is captured under its
 * pool's lock (sched/record.h), turned into text after it, and put into the ring; what became of it is added at the
 * end of the exchange. Nothing in it is prompt text or a header's value: names of models are those the fleet knows,
 * sessions and tenants are hashes.
 *
 * The rate is kept by one number, the time at which the next decision would be due if they came evenly (GCRA). Above
 * the rate nobody writes it, so lanes share a line that hardly changes.
 */
#include "proxy/decision_log.h"

#include "base/num.h"
#include "proxy/decisions.h"
#include "sched/record.h"

enum { ENTRY_MAX = 128 * 1024, RING_BYTES_MAX = 16 << 20 };

enum fate_of {
    UNDER_WAY,
    DECIDED_AGAIN, /* queued, or another endpoint was tried: a later decision says what became of it */
    OVER,
};

struct entry {
    uint64_t seq;
    uint64_t wall_ms;
    enum fate_of fate;
    enum proxy_outcome outcome;
    enum rejection rejection;
    uint16_t status;
    uint64_t first_byte_ns, total_ns, queue_ns; /* of the exchange; first byte 0 = none came */
    struct usage usage;
    size_t n;
    char text[];
};

struct decision_log {
    const struct mem *mem;
    _Atomic uint64_t step_ns; /* 0 = log none */
    _Atomic uint64_t due_ns;
    pthread_mutex_t lock; /* all below */
    uint64_t last;        /* newest sequence; 0 = none */
    uint64_t oldest;      /* no entry is older */
    uint64_t bytes;
    struct entry *ring[PROXY_DECISIONS_MAX];
};

void decision_log_rate(struct decision_log *g, uint32_t per_s)
{
    atomic_store_explicit(&g->step_ns, per_s ? NS_PER_S / MIN(per_s, UINT32_C(1000000000)) : 0,
                          memory_order_relaxed);
}

int decision_log_new(const struct mem *mem, uint32_t per_s, struct decision_log **out)
{
    struct decision_log *g = mem_zalloc(mem, sizeof(*g));

    if (!g)
        return WEIR_E_NOMEM;
    g->mem = mem;
    decision_log_rate(g, per_s);
    g->oldest = 1;
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return 0;
}

void decision_log_free(struct decision_log *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < PROXY_DECISIONS_MAX; i++)
        mem_free(g->mem, g->ring[i]);
    pthread_mutex_destroy(&g->lock);
    mem_free(g->mem, g);
}

/* At most a second's worth at once, and the rate on average. */
static bool has_turn(const struct decision_log *g, uint64_t due, uint64_t now)
{
    uint64_t step = atomic_load_explicit(&g->step_ns, memory_order_relaxed);

    return step && MAX(due, now) + step - now <= NS_PER_S;
}

static bool take_turn(struct decision_log *g, uint64_t now)
{
    uint64_t step = atomic_load_explicit(&g->step_ns, memory_order_relaxed);
    uint64_t due = atomic_load_explicit(&g->due_ns, memory_order_relaxed);

    do {
        if (!has_turn(g, due, now))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&g->due_ns, &due, MAX(due, now) + step,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

void decision_arm(struct asker *a, bool asked, uint64_t now_ns)
{
    struct decision_log *g = a->proxy->decisions;

    /* The turn is taken when there is something to log: most offers to waiters grant nothing. */
    a->sampled = has_turn(g, atomic_load_explicit(&g->due_ns, memory_order_relaxed), now_ns);
    a->scratch.record = a->sampled || asked ? a->record : NULL;
    if (a->scratch.record)
        a->record->captured = false;
}

void decision_disarm(struct asker *a)
{
    a->scratch.record = NULL;
}

static void evict(struct decision_log *g, uint64_t seq)
{
    struct entry **at = &g->ring[seq % PROXY_DECISIONS_MAX];

    if (!*at)
        return;
    g->bytes -= sizeof(**at) + (*at)->n;
    mem_free(g->mem, *at);
    *at = NULL;
}

/* Under the lock. */
static struct entry *find(struct decision_log *g, uint64_t seq)
{
    struct entry *e = g->ring[seq % PROXY_DECISIONS_MAX];

    return e && e->seq == seq ? e : NULL;
}

/* @return its sequence; 0 = memory is short and it is lost. */
static uint64_t
push(struct decision_log *g, const struct sched_record *r, const struct route *route)
{
    struct buf b;
    struct entry *e = NULL;
    uint64_t seq = 0;

    buf_init(&b, g->mem, ENTRY_MAX);
    buf_put_str(&b, "\"route\":");
    buf_put_json(&b, route_name(route));
    buf_put_char(&b, ',');
    (void)sched_record_put(&b, r);
    if (!b.err)
        e = mem_zalloc(g->mem, sizeof(*e) + buf_len(&b));
    if (e) {
        e->n = buf_len(&b);
        memcpy(e->text, buf_slice(&b).p, e->n);
        e->wall_ms = loop_wall_clock() / NS_PER_MS;
        pthread_mutex_lock(&g->lock);
        seq = e->seq = ++g->last;
        evict(g, seq);
        g->ring[seq % PROXY_DECISIONS_MAX] = e;
        g->bytes += sizeof(*e) + e->n;
        if (seq >= PROXY_DECISIONS_MAX)
            g->oldest = MAX(g->oldest, seq - PROXY_DECISIONS_MAX + 1);
        while (g->bytes > RING_BYTES_MAX && g->oldest < seq)
            evict(g, g->oldest++);
        pthread_mutex_unlock(&g->lock);
    }
    buf_fini(&b);
    return seq;
}

/* The captured decision, if there is one to log. */
static uint64_t log_it(struct asker *a, const struct exchange *x)
{
    struct decision_log *g = a->proxy->decisions;
    bool log = a->sampled && a->record->captured && take_turn(g, loop_clock());

    return log ? push(g, a->record, x->route) : 0;
}

static void decided_again(struct exchange *x, uint64_t seq)
{
    struct decision_log *g = x->lane->proxy->decisions;

    if (x->decision_seq) {
        pthread_mutex_lock(&g->lock);
        struct entry *e = find(g, x->decision_seq);
        if (e)
            e->fate = DECIDED_AGAIN;
        pthread_mutex_unlock(&g->lock);
    }
    x->decision_seq = seq;
}

/* A header's value: visible ASCII. JSON's own escapes took care of control characters. */
static void keep_explanation(struct exchange *x, const struct sched_record *r)
{
    struct buf b;

    mem_free(loop_mem(), x->explain);
    x->explain = NULL;
    x->explain_len = 0;
    x->explain_waited = false;
    buf_init(&b, loop_mem(), (size_t)2 * EXPLAIN_HEADER_MAX);
    if (sched_record_brief(&b, r, EXPLAIN_HEADER_MAX - 512) == 0)
        x->explain = mem_alloc(loop_mem(), buf_len(&b));
    if (x->explain) {
        x->explain_len = (uint32_t)buf_len(&b);
        for (uint32_t i = 0; i < x->explain_len; i++) {
            char c = b.p[b.from + i];
            x->explain[i] = c >= ' ' && c < 0x7f ? c : '?';
        }
    }
    buf_fini(&b);
}

void decision_keep(struct asker *a, struct exchange *x)
{
    bool armed = a->scratch.record != NULL;

    decision_disarm(a);
    decided_again(x, armed ? log_it(a, x) : 0);
    if (armed && x->explain_asked && a->record->captured)
        keep_explanation(x, a->record);
}

void decision_grant(struct asker *a, struct exchange *x)
{
    bool armed = a->scratch.record != NULL;

    decision_disarm(a);
    x->granted_seq = armed ? log_it(a, x) : 0;
}

void decision_granted(struct exchange *x)
{
    decided_again(x, x->granted_seq);
    x->explain_waited = true;
}

void decision_end(struct exchange *x, enum proxy_outcome outcome)
{
    struct decision_log *g = x->lane->proxy->decisions;
    uint64_t now = loop_now(x->lane->loop);

    mem_free(loop_mem(), x->explain);
    x->explain = NULL;
    x->explain_len = 0;
    if (!x->decision_seq)
        return;
    pthread_mutex_lock(&g->lock);
    struct entry *e = find(g, x->decision_seq);
    if (e) {
        e->fate = OVER;
        e->outcome = outcome;
        e->rejection = x->rejection;
        e->status = x->status;
        e->first_byte_ns = x->first_byte_ns ? x->first_byte_ns - x->start_ns : 0;
        e->queue_ns = x->queue_ns;
        e->total_ns = now - x->start_ns;
        e->usage = x->reader.usage;
    }
    pthread_mutex_unlock(&g->lock);
    x->decision_seq = 0;
}

static void put_ms(struct buf *out, const char *name, uint64_t ns)
{
    buf_put_str(out, name);
    buf_put_f64(out, (double)ns / 1e6, 3);
}

static void put_usage(struct buf *out, const struct usage *u)
{
    const struct {
        unsigned bit;
        const char *name;
        uint64_t tokens;
    } all[] = {{USAGE_PROMPT, ",\"prompt_tokens\":", u->prompt_tokens},
               {USAGE_COMPLETION, ",\"completion_tokens\":", u->completion_tokens},
               {USAGE_CACHED, ",\"cached_tokens\":", u->cached_tokens}};

    for (unsigned i = 0; i < ARRAY_LEN(all); i++)
        if (usage_has(u, all[i].bit)) {
            buf_put_str(out, all[i].name);
            buf_put_u64(out, all[i].tokens);
        }
}

static void put_entry(struct buf *out, const struct entry *e)
{
    buf_put_str(out, "{\"format\":");
    buf_put_u64(out, SCHED_RECORD_FORMAT);
    buf_put_str(out, ",\"seq\":");
    buf_put_u64(out, e->seq);
    buf_put_str(out, ",\"time_ms\":");
    buf_put_u64(out, e->wall_ms);
    buf_put_char(out, ',');
    buf_put(out, e->text, e->n);
    buf_put_str(out, ",\"outcome\":");
    if (e->fate == UNDER_WAY) {
        buf_put_str(out, "null}");
        return;
    }
    if (e->fate == DECIDED_AGAIN) {
        buf_put_str(out, "{\"outcome\":\"decided_again\"}}");
        return;
    }
    buf_put_str(out, "{\"outcome\":");
    buf_put_json(out, slice_str(proxy_outcome_names[e->outcome]));
    buf_put_str(out, ",\"status\":");
    buf_put_u64(out, e->status);
    buf_put_str(out, ",\"code\":");
    if (e->rejection)
        buf_put_json(out, slice_str(error_code(e->rejection)));
    else
        buf_put_str(out, "null");
    if (e->first_byte_ns)
        put_ms(out, ",\"first_byte_ms\":", e->first_byte_ns);
    put_ms(out, ",\"queue_ms\":", e->queue_ns);
    put_ms(out, ",\"total_ms\":", e->total_ns);
    put_usage(out, &e->usage);
    buf_put_str(out, "}}");
}

int proxy_decisions(struct proxy *p, uint32_t limit, bool lines, struct buf *out)
{
    struct decision_log *g = p->decisions;
    struct entry *copy = mem_alloc(g->mem, sizeof(*copy) + ENTRY_MAX);
    uint32_t n = 0;

    if (!copy)
        return WEIR_E_NOMEM;
    pthread_mutex_lock(&g->lock);
    uint64_t seq = g->last;
    pthread_mutex_unlock(&g->lock);
    buf_put_str(out, lines ? "" : "{\"decisions\":[");
    for (bool more = true; more && n < limit && seq > 0 && !out->err; seq--) {
        /* One record at a time, so that no lane waits for long. */
        pthread_mutex_lock(&g->lock);
        const struct entry *e = find(g, seq);
        if (e)
            memcpy(copy, e, sizeof(*e) + e->n);
        more = seq > g->oldest;
        pthread_mutex_unlock(&g->lock);
        if (!e)
            continue;
        buf_put_str(out, n && !lines ? "," : "");
        put_entry(out, copy);
        buf_put_str(out, lines ? "\n" : "");
        n++;
    }
    buf_put_str(out, lines ? "" : "]}");
    mem_free(g->mem, copy);
    return out->err;
}
