/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/trace_codec.h"

#include "base/bug.h"
#include "base/prng.h"

void sim_trace_init(struct sim_trace *t, const struct mem *mem)
{
    *t = (struct sim_trace){.mem = mem};
}

void sim_trace_fini(struct sim_trace *t)
{
    if (!t->mem)
        return;
    mem_free(t->mem, t->requests);
    mem_free(t->mem, t->blocks);
    *t = (struct sim_trace){.mem = t->mem};
}

int sim_trace_add(struct sim_trace *t,
                  const struct sim_request *r,
                  const uint64_t *names,
                  uint32_t n)
{
    if (t->n == SIM_REQUESTS_MAX || t->n_blocks + n > SIM_BLOCKS_MAX)
        return WEIR_E_FULL;
    if (t->n == t->cap) {
        uint32_t cap = t->cap ? t->cap * 2 : 1024;
        struct sim_request *more = mem_resize(t->mem, t->requests, cap, sizeof(*more));
        if (!more)
            return WEIR_E_NOMEM;
        t->requests = more;
        t->cap = cap;
    }
    if (t->n_blocks + n > t->cap_blocks) {
        uint64_t cap = MAX(t->cap_blocks * 2, t->n_blocks + n + 1024);
        uint64_t *more = mem_resize(t->mem, t->blocks, cap, sizeof(*more));
        if (!more)
            return WEIR_E_NOMEM;
        t->blocks = more;
        t->cap_blocks = cap;
    }
    if (n)
        memcpy(t->blocks + t->n_blocks, names, n * sizeof(*names));
    t->requests[t->n] = *r;
    t->requests[t->n].first_block = t->n_blocks;
    t->requests[t->n].n_blocks = n;
    t->n++;
    t->n_blocks += n;
    return 0;
}

int sim_trace_tenant(struct sim_trace *t, struct slice name, uint16_t *out)
{
    for (uint32_t i = 0; i < t->n_tenants; i++)
        if (slice_eq(slice_str(t->tenants[i]), name)) {
            *out = (uint16_t)i;
            return 0;
        }
    if (t->n_tenants == SIM_TENANTS_MAX || name.n >= sizeof(t->tenants[0]))
        return WEIR_E_FULL;
    *out = (uint16_t)t->n_tenants;
    memcpy(t->tenants[t->n_tenants], name.p, name.n);
    t->tenants[t->n_tenants++][name.n] = 0;
    return 0;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Merge sort from `from` into `to`: stable, so that requests of one instant stay in the order of the file. */
static void
merge_runs(const struct sim_request *from, struct sim_request *to, uint32_t n, uint32_t run)
{
    for (uint32_t start = 0; start < n; start += 2 * run) {
        uint32_t middle = MIN(start + run, n);
        uint32_t end = MIN(start + 2 * run, n);
        uint32_t a = start;
        uint32_t b = middle;
        for (uint32_t k = start; k < end; k++) {
            bool left = a < middle && (b == end || from[a].at_ns <= from[b].at_ns);
            to[k] = left ? from[a++] : from[b++];
        }
    }
}

static int sort(struct sim_trace *t)
{
    bool sorted = true;

    for (uint32_t i = 1; i < t->n; i++)
        sorted = sorted && t->requests[i - 1].at_ns <= t->requests[i].at_ns;
    if (sorted)
        return 0;
    struct sim_request *other = mem_array(t->mem, t->n, sizeof(*other));
    if (!other)
        return WEIR_E_NOMEM;
    for (uint32_t run = 1; run < t->n; run *= 2) {
        merge_runs(t->requests, other, t->n, run);
        struct sim_request *swap = t->requests;
        t->requests = other;
        other = swap;
    }
    t->cap = t->n;
    mem_free(t->mem, other);
    return 0;
}

int sim_trace_finish(struct sim_trace *t)
{
    int rc = sort(t);

    if (rc || t->n == 0)
        return rc;
    uint64_t start = t->requests[0].at_ns;
    t->slot_ns = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        t->requests[i].at_ns -= start;
        t->slot_ns = gcd(t->slot_ns, t->requests[i].at_ns);
    }
    return 0;
}

void sim_trace_cut(struct sim_trace *t, uint64_t from_ns, uint64_t to_ns, uint32_t limit)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        struct sim_request r = t->requests[i];
        if (r.at_ns < from_ns || r.at_ns >= to_ns || (limit && kept == limit))
            continue;
        r.at_ns -= from_ns;
        t->requests[kept++] = r;
    }
    t->n = kept;
}

int sim_trace_repeat(struct sim_trace *t, uint32_t times)
{
    uint32_t n = t->n;

    if (n == 0 || times <= 1)
        return 0;
    if ((uint64_t)n * times > SIM_REQUESTS_MAX)
        return WEIR_E_FULL;
    struct sim_request *more = mem_resize(t->mem, t->requests, (size_t)n * times, sizeof(*more));
    if (!more)
        return WEIR_E_NOMEM;
    /* One mean gap between the last of one round and the first of the next, or one slot. */
    uint64_t span = more[n - 1].at_ns + MAX(more[n - 1].at_ns / MAX(n - 1, 1), t->slot_ns);
    for (uint32_t k = 1; k < times; k++)
        for (uint32_t i = 0; i < n; i++) {
            more[k * n + i] = more[i];
            more[k * n + i].at_ns += k * span;
        }
    t->requests = more;
    t->n = t->cap = n * times;
    return 0;
}

void sim_block_text(uint64_t id, char out[PREFIX_BLOCK_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    struct prng r = {id};

    for (uint32_t i = 0; i < PREFIX_BLOCK_BYTES; i += 16) {
        uint64_t word = prng_next(&r);
        for (uint32_t k = 0; k < 16; k++, word >>= 4)
            out[i + k] = digits[word & 15];
    }
}
