/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/dcgm_codec.h"

#include "base/bug.h"
#include "wire/prom.h"

enum number {
    N_UTIL,
    N_GR_ACTIVE,
    N_COPY_UTIL,
    N_FREE,
    N_USED,
    N_RESERVED,
    N_TOTAL,
    N_SM_ACTIVE,
    N_DRAM_ACTIVE,
    N_POWER,
    N_COUNT
};
_Static_assert((int)N_COUNT <= (int)GPU_EXPORTED_NUMBERS, "room");

/* Blank values lie far above what is possible (2^47 and more), so a bound drops them with all other nonsense. */
#define MIB_MOST 16777216.0

static const struct series {
    const char *name; /* behind DCGM_FI_ */
    enum number number;
    double most;
} series[] = {
    {"DEV_GPU_UTIL", N_UTIL, 100},
    {"DEV_MEM_COPY_UTIL", N_COPY_UTIL, 100},
    {"DEV_FB_FREE", N_FREE, MIB_MOST},
    {"DEV_FB_USED", N_USED, MIB_MOST},
    {"DEV_FB_RESERVED", N_RESERVED, MIB_MOST},
    {"DEV_FB_TOTAL", N_TOTAL, MIB_MOST},
    {"DEV_POWER_USAGE", N_POWER, 100000},
    {"PROF_SM_ACTIVE", N_SM_ACTIVE, 1},
    {"PROF_DRAM_ACTIVE", N_DRAM_ACTIVE, 1},
    {"PROF_GR_ENGINE_ACTIVE", N_GR_ACTIVE, 1},
};

static const struct series *series_of(struct slice name)
{
    if (!slice_starts(name, SLICE("DCGM_FI_")))
        return NULL;
    name = slice_from(name, SLICE("DCGM_FI_").n);
    for (size_t i = 0; i < ARRAY_LEN(series); i++)
        if (slice_eq(name, slice_str(series[i].name)))
            return &series[i];
    return NULL;
}

/* Terminated; "" when absent, too long, or with a NUL inside: two that differ behind it would be one. @return its length. */
static size_t label(const struct prom_line *line, const char *name, char *out, size_t size)
{
    int rc = wire_prom_label_text(line->labels, slice_str(name), out, size - 1);
    size_t n = rc > 0 && !memchr(out, '\0', (size_t)rc) ? (size_t)rc : 0;

    out[n] = '\0';
    return n;
}

/* The device that a line is about, without its numbers. false: it tells none. */
static bool identify(const struct prom_line *line, struct gpu_exported *out)
{
    struct gpu_reading *r = &out->reading;
    char slice[16];

    *out = (struct gpu_exported){0};
    size_t n = label(line, "UUID", r->uuid, sizeof(r->uuid) - sizeof(slice));
    if (n == 0)
        return false;
    size_t more = label(line, "GPU_I_ID", slice, sizeof(slice) - 1);
    if (more) {
        r->mig = true;
        r->uuid[n] = '/';
        memcpy(r->uuid + n + 1, slice, more + 1);
    }
    (void)label(line, "modelName", r->name, sizeof(r->name));
    (void)label(line, "gpu", out->index, sizeof(out->index));
    (void)label(line, "pod", out->pod, sizeof(out->pod));
    (void)label(line, "namespace", out->ns, sizeof(out->ns));
    return true;
}

static struct gpu_exported *
row_of(struct gpu_exported *rows, uint32_t *n, const struct gpu_exported *which)
{
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(rows[i].reading.uuid, which->reading.uuid) == 0 &&
            strcmp(rows[i].pod, which->pod) == 0 && strcmp(rows[i].ns, which->ns) == 0)
            return &rows[i];
    if (*n == GPU_EXPORTED_MAX)
        return NULL;
    rows[*n] = *which;
    return &rows[(*n)++];
}

static bool has(const struct gpu_exported *e, enum number n)
{
    return (e->has >> n) & 1;
}

static uint64_t bytes(double mib)
{
    return (uint64_t)(mib * 1048576 + 0.5);
}

static uint32_t share(double ratio)
{
    return (uint32_t)(ratio * 10000 + 0.5);
}

static void settle_memory(struct gpu_exported *e)
{
    const double *v = e->v;
    double kept = has(e, N_RESERVED) ? v[N_RESERVED] : 0;
    double total = has(e, N_TOTAL) ? v[N_TOTAL] : v[N_FREE] + v[N_USED] + kept;
    double left = has(e, N_FREE) ? v[N_FREE] : total - v[N_USED] - kept;

    if (!(has(e, N_FREE) && (has(e, N_USED) || has(e, N_TOTAL))) &&
        !(has(e, N_USED) && has(e, N_TOTAL)))
        return;
    if (total <= 0)
        return; /* integrated boards tell 0 of 0 */
    e->reading.memory_total_bytes = bytes(total);
    e->reading.memory_free_bytes = MIN(bytes(MAX(left, 0)), e->reading.memory_total_bytes);
    e->reading.known |= GPU_MEMORY;
}

static void settle(struct gpu_exported *e)
{
    struct gpu_reading *r = &e->reading;

    settle_memory(e);
    if (has(e, N_UTIL) || has(e, N_GR_ACTIVE)) {
        r->util_bp = has(e, N_UTIL) ? share(e->v[N_UTIL] / 100) : share(e->v[N_GR_ACTIVE]);
        r->known |= GPU_UTIL;
    }
    if (has(e, N_COPY_UTIL)) {
        r->mem_busy_bp = share(e->v[N_COPY_UTIL] / 100);
        r->known |= GPU_MEM_BUSY;
    }
    if (has(e, N_SM_ACTIVE)) {
        r->sm_active_bp = share(e->v[N_SM_ACTIVE]);
        r->known |= GPU_SM_ACTIVE;
    }
    if (has(e, N_DRAM_ACTIVE)) {
        r->dram_bw_bp = share(e->v[N_DRAM_ACTIVE]);
        r->known |= GPU_DRAM_BW;
    }
    if (has(e, N_POWER)) {
        r->power_mw = (uint32_t)(e->v[N_POWER] * 1000 + 0.5);
        r->known |= GPU_POWER;
    }
}

uint32_t gpu_dcgm_read(struct slice text, struct gpu_exported *rows)
{
    struct prom_line line;
    uint32_t bad = 0;
    uint32_t n = 0;

    while (wire_prom_next(&text, &line, &bad)) {
        const struct series *s = series_of(line.name);
        struct gpu_exported which;
        /* A NaN is in no range. */
        if (!s || !identify(&line, &which))
            continue;
        struct gpu_exported *row = row_of(rows, &n, &which);
        if (!row || !(line.value >= 0 && line.value <= s->most))
            continue;
        row->v[s->number] = line.value;
        row->has |= 1U << s->number;
    }
    for (uint32_t i = 0; i < n; i++)
        settle(&rows[i]);
    return n;
}

/* --- which of them --- */

static struct slice gpu_of(const struct gpu_exported *e)
{
    struct slice uuid = slice_str(e->reading.uuid);

    return slice_of(uuid.p, slice_find(uuid, '/'));
}

/* A GPU stands for its slices where those are told. */
static bool split(const struct gpu_exported *rows, uint32_t n, const struct gpu_exported *e)
{
    for (uint32_t i = 0; !e->reading.mig && i < n; i++)
        if (rows[i].reading.mig && slice_eq(gpu_of(&rows[i]), slice_str(e->reading.uuid)))
            return true;
    return false;
}

static bool put(struct gpu_reading *out, uint32_t *n, const struct gpu_reading *r)
{
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(out[i].uuid, r->uuid) == 0)
            return true;
    if (*n == GPU_DEVICES_MAX)
        return false;
    out[(*n)++] = *r;
    return true;
}

/* "0", "0/3": the index, and the slice if one is named. */
static bool is_index(const struct gpu_exported *e, struct slice piece)
{
    struct slice index = slice_of(piece.p, slice_find(piece, '/'));

    if (!e->index[0] || !slice_eq(index, slice_str(e->index)))
        return false;
    if (index.n == piece.n)
        return true;
    struct slice uuid = slice_str(e->reading.uuid);
    size_t slash = slice_find(uuid, '/');
    return slash < uuid.n && slice_eq(slice_from(uuid, slash), slice_from(piece, index.n));
}

/* By UUID, else by a beginning of one alone. */
static const struct gpu_exported *
by_uuid(const struct gpu_exported *rows, uint32_t n, struct slice piece)
{
    const struct gpu_exported *hit = NULL;

    for (uint32_t i = 0; i < n; i++) {
        struct slice uuid = slice_str(rows[i].reading.uuid);
        if (slice_eq(uuid, piece))
            return &rows[i];
        if (!slice_starts(uuid, piece) || split(rows, n, &rows[i]))
            continue;
        if (hit && strcmp(hit->reading.uuid, rows[i].reading.uuid) != 0)
            return NULL;
        hit = &rows[i];
    }
    return hit;
}

static int choose_piece(const struct gpu_exported *rows,
                        uint32_t n,
                        struct slice piece,
                        struct gpu_reading *out,
                        uint32_t *chosen)
{
    bool all = slice_eq(piece, SLICE("all"));
    bool number = piece.n && piece.p[0] >= '0' && piece.p[0] <= '9';
    bool any = false;

    for (uint32_t i = 0; (all || number) && i < n; i++) {
        if (!(all || is_index(&rows[i], piece)) || split(rows, n, &rows[i]))
            continue;
        any = true;
        if (!put(out, chosen, &rows[i].reading))
            return WEIR_E_FULL;
    }
    if (all || any)
        return 0;
    const struct gpu_exported *hit = piece.n >= 4 ? by_uuid(rows, n, piece) : NULL;
    if (!hit)
        return WEIR_E_NOTFOUND;
    return put(out, chosen, &hit->reading) ? 0 : WEIR_E_FULL;
}

int gpu_exported_choose(const struct gpu_exported *rows,
                        uint32_t n,
                        struct slice select,
                        struct gpu_reading *out)
{
    uint32_t chosen = 0;
    struct slice piece;

    while (slice_cut(&select, ',', &piece)) {
        int rc = choose_piece(rows, n, slice_trim(piece), out, &chosen);
        if (rc)
            return rc;
    }
    return (int)chosen;
}

uint32_t gpu_exported_of_pod(const struct gpu_exported *rows,
                             uint32_t n,
                             struct slice ns,
                             struct slice pod,
                             struct gpu_reading *out)
{
    uint32_t chosen = 0;

    for (uint32_t i = 0; pod.n && i < n; i++)
        if (slice_eq(slice_str(rows[i].pod), pod) &&
            (!ns.n || !rows[i].ns[0] || slice_eq(slice_str(rows[i].ns), ns)) &&
            !split(rows, n, &rows[i]))
            (void)put(out, &chosen, &rows[i].reading);
    return chosen;
}
