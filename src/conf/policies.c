/* SPDX-License-Identifier: Apache-2.0 */
/* Policies by name to lists of plugin numbers, from sched's own tables. */
#include "base/bug.h"
#include "conf/parse.h"
#include "sched/pick.h"

/* What users of other routers know and this version does not have. */
static const char *const later[] = {"bucket", "manual"};

enum { NAMES_MAX = 64 };

static void fail_name(struct build *b,
                      const struct conf_place *at,
                      const struct conf_path *path,
                      const char *noun,
                      struct slice name,
                      const char *const *known,
                      uint32_t n)
{
    struct slice parts[2 * NAMES_MAX + 8];
    uint32_t used = 0;
    struct slice near = conf_nearest(name, known, n);

    parts[used++] = SLICE("unknown ");
    parts[used++] = slice_str(noun);
    parts[used++] = SLICE(" \"");
    parts[used++] = name;
    if (near.p) {
        parts[used++] = SLICE("\"; did you mean \"");
        parts[used++] = near;
        parts[used++] = SLICE("\"?");
    } else {
        parts[used++] = SLICE("\"; known are ");
        for (uint32_t i = 0; i < n; i++) {
            if (i)
                parts[used++] = SLICE(", ");
            parts[used++] = slice_str(known[i]);
        }
    }
    conf_fail_parts(b, at, path, parts, used);
}

/* @param users may it be one of the user's own, for the suggestions? */
static bool built_in_find(struct build *b,
                          bool users,
                          struct slice name,
                          const struct conf_place *at,
                          const struct conf_path *path,
                          struct policy *out)
{
    const char *known[NAMES_MAX];
    uint32_t n = 0;

    if (name.p && sched_policy_named(name, out) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(later); i++)
        if (slice_eq(name, slice_str(later[i]))) {
            CONF_FAIL(b, at, path, SLICE("policy \""), name, SLICE("\" comes in a later version"));
            return false;
        }
    for (uint32_t i = 0; n < NAMES_MAX && (known[n] = sched_policy_name(i)) != NULL; i++)
        n++;
    const struct raw_policy *mine = b->raw->policies.items;
    for (uint32_t i = 0; users && i < b->raw->policies.n && n < NAMES_MAX; i++)
        if (mine[i].item.name.p)
            known[n++] = mine[i].item.name.p;
    fail_name(b, at, path, "policy", name, known, n);
    return false;
}

/* What holds for the whole gateway, but is part of every decision. */
static void add_health(const struct build *b, struct policy *p)
{
    p->panic_percent = b->raw->health.panic_percent;
    p->slow_start_ns = b->raw->slow_start_ns;
}

static void add_gpu_weights(struct build *b, struct policy *p)
{
    memcpy(p->gpu_weights, b->raw->gpu_weights.items, sizeof(p->gpu_weights));
    p->n_gpu_weights = b->raw->gpu_weights.n;
}

/* A policy with filters of its own, and not this one, does not want it. */
static void add_place(const struct build *b, bool own_filters, struct policy *p)
{
    if (sched_placed(&b->raw->locality) && (!own_filters || sched_policy_stays(p)))
        sched_policy_stay(p, &b->raw->locality);
}

/* One name in one of sched's three tables, which differ in their element. */
#define FIND_PLUGIN(table, count, wanted, index)                                                   \
    do {                                                                                           \
        (index) = UINT32_MAX;                                                                      \
        n_known = 0;                                                                               \
        for (uint32_t k_ = 0; k_ < (count); k_++) {                                                \
            if (slice_eq((wanted), slice_str((table)[k_].name)))                                   \
                (index) = k_;                                                                      \
            if (n_known < NAMES_MAX)                                                               \
                known[n_known++] = (table)[k_].name;                                               \
        }                                                                                          \
    } while (0)

static void take_filters(struct build *b,
                         const struct raw_policy *raw,
                         const struct conf_path *path,
                         struct policy *p)
{
    const char *known[NAMES_MAX];
    uint32_t n_known;
    struct conf_path list = {.up = path, .key = SLICE("filters")};
    uint32_t node = conf_child(b, raw->item.node, "filters");

    p->n_filters = 0;
    for (uint32_t i = 0; i < raw->filters.n; i++) {
        struct conf_path here = {.up = &list, .index = i};
        struct conf_place at = conf_place_value(b, conf_nth(b, node, i));
        uint32_t index;
        FIND_PLUGIN(sched_filters, sched_n_filters, raw->filters.items[i], index);
        if (index == UINT32_MAX)
            fail_name(b, &at, &here, "filter", raw->filters.items[i], known, n_known);
        else
            p->filters[p->n_filters++] = (uint8_t)index;
    }
    if (sched_policy_stays(p) && !sched_placed(&b->raw->locality)) {
        struct conf_place at = conf_place_value(b, node);
        CONF_FAIL(b, &at, &list,
                  SLICE("filter locality has to know where this Weir is: add locality: {zone: ...} "
                        "(or region, cluster) at the top, or leave it out"));
    }
}

static void take_scores(struct build *b,
                        const struct raw_policy *raw,
                        const struct conf_path *path,
                        struct policy *p)
{
    const char *known[NAMES_MAX];
    uint32_t n_known;
    const struct raw_score *scores = raw->scores.items;
    struct conf_path list = {.up = path, .key = SLICE("scores")};

    p->n_scores = 0;
    for (uint32_t i = 0; i < raw->scores.n; i++) {
        struct conf_path item = {.up = &list, .index = i};
        struct conf_path here = {.up = &item, .key = SLICE("name")};
        struct conf_place at = conf_place_option(b, scores[i].item.node, "name", NULL);
        uint32_t index;
        if (!scores[i].plugin.p)
            continue; /* told already */
        FIND_PLUGIN(sched_scores, sched_n_scores, scores[i].plugin, index);
        if (index == UINT32_MAX)
            fail_name(b, &at, &here, "score", scores[i].plugin, known, n_known);
        else
            p->scores[p->n_scores++] =
                (struct policy_score){.plugin = (uint8_t)index, .q16 = scores[i].weight};
    }
}

static void take_pick(struct build *b,
                      const struct raw_policy *raw,
                      const struct conf_path *path,
                      struct policy *p)
{
    const char *known[NAMES_MAX];
    uint32_t n_known;
    struct conf_path here = {.up = path, .key = SLICE("pick")};
    struct conf_place at = conf_place_option(b, raw->item.node, "pick", NULL);
    uint32_t index;

    FIND_PLUGIN(sched_pickers, sched_n_pickers, raw->pick, index);
    if (index == UINT32_MAX)
        fail_name(b, &at, &here, "pick", raw->pick, known, n_known);
    else
        p->pick = (uint8_t)index;
}

static void compile_policy(struct build *b,
                           const struct raw_policy *raw,
                           const struct conf_path *path,
                           struct policy *p)
{
    struct conf_place at = conf_place_key(b, raw->item.node);
    struct conf_path use = {.up = path, .key = SLICE("use")};
    struct policy shadowed;

    if (!raw->item.name.p)
        return; /* told already */
    if (sched_policy_named(raw->item.name, &shadowed) == 0) {
        CONF_FAIL(b, &at, path, SLICE("is the name of a built-in policy; choose another one"));
        return;
    }
    bool parts = raw->filters.n || raw->scores.n || raw->pick.p;
    if (raw->use.p && parts) {
        CONF_FAIL(b, &at, path,
                  SLICE("has both use and filters, scores or pick; give one or the other"));
        return;
    }
    if (!raw->use.p && !raw->pick.p) {
        CONF_FAIL(b, &at, path, SLICE("needs use, or pick with filters and scores"));
        return;
    }
    if (raw->use.p) {
        struct conf_place use_at = conf_place_option(b, raw->item.node, "use", NULL);
        if (!built_in_find(b, false, raw->use, &use_at, &use, p))
            return;
    } else {
        /* Filters that are not given are those of chain, so that nobody sends to the dead by leaving a key out. */
        int rc = sched_policy_named(SLICE("chain"), p);
        BUG_ON(rc);
        if (raw->filters.n)
            take_filters(b, raw, path, p);
        take_scores(b, raw, path, p);
        take_pick(b, raw, path, p);
    }
    p->name = raw->item.name;
    if (raw->curve.n) {
        memcpy(p->curve, raw->curve.items, sizeof(p->curve));
        p->n_curve = raw->curve.n;
    }
    if (raw->bound)
        p->bound_q16 = raw->bound;
    add_gpu_weights(b, p);
    add_health(b, p);
    add_place(b, raw->filters.n != 0, p);
    sched_policy_seal(p);
}

void conf_policies_compile(struct build *b, struct conf *c)
{
    const struct raw_policy *raw = b->raw->policies.items;
    uint32_t n = b->raw->policies.n;
    struct conf_path top = {.key = SLICE("policies")};
    /* Each route can add one built-in policy at most. */
    struct policy *policies = arena_array(b->arena, n + b->raw->routes.n, sizeof(*policies));

    if (!policies) {
        b->nomem = true;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct conf_path here = {.up = &top, .key = b->in->nodes[raw[i].item.node].key};
        compile_policy(b, &raw[i], &here, &policies[i]);
    }
    b->policies = policies;
    c->policies = policies;
    c->n_policies = n;
}

const struct policy *conf_policy_find(struct build *b,
                                      struct conf *c,
                                      struct slice name,
                                      const struct conf_place *at,
                                      const struct conf_path *path)
{
    const struct raw_policy *mine = b->raw->policies.items;
    struct policy p;

    /* By the names as written: one that did not compile was told already. */
    for (uint32_t i = 0; i < b->raw->policies.n; i++)
        if (slice_eq(mine[i].item.name, name))
            return &c->policies[i];
    if (!built_in_find(b, true, name, at, path, &p))
        return NULL;
    for (uint32_t i = b->raw->policies.n; i < c->n_policies; i++)
        if (slice_eq(c->policies[i].name, p.name))
            return &c->policies[i];
    add_gpu_weights(b, &p);
    add_health(b, &p);
    add_place(b, false, &p);
    sched_policy_seal(&p);
    struct policy *place = &b->policies[c->n_policies++];
    *place = p;
    return place;
}
