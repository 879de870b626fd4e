/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/fleet.h"

#include "base/bug.h"
#include "base/num.h"
#include "engine/engine.h"
#include "model/endpoint_t.h"

enum { DEFAULT_SEQS = 256, FIXED_TOKENS = 1 << 20 };

void sim_group_init(struct sim_group *g)
{
    *g = (struct sim_group){.count = 1, .weight = WEIGHT_ONE, .speed = 1};
}

int sim_fleet_add(struct sim_fleet *f, const struct sim_group *given)
{
    struct sim_group *g = &f->groups[f->n_groups];

    if (f->n_groups == SIM_GROUPS_MAX || given->count > SIM_WORKERS_MAX - f->n_workers)
        return WEIR_E_FULL;
    *g = *given;
    if (g->fixed_ns) {
        /* Nothing but the floor: tokens cost nothing, and their memory is no matter. */
        g->profile = (struct engine_profile){
            .name = "fixed",
            .gpu_type = g->gpu,
            .floor_ms = (double)g->fixed_ns / 1e6,
            .memory_total_bytes = 16 * GIB,
            .kv_bytes_per_token = 1,
            .kv_tokens = FIXED_TOKENS,
            .max_model_len = FIXED_TOKENS,
        };
        g->max_num_seqs = g->max_num_seqs ? g->max_num_seqs : 1;
        g->max_batched_tokens = FIXED_TOKENS;
    } else {
        const struct engine_profile *p = engine_profile_find(slice_str(g->gpu));
        if (!p)
            return WEIR_E_NOTFOUND;
        g->profile = *p;
        g->max_num_seqs = g->max_num_seqs ? g->max_num_seqs : DEFAULT_SEQS;
    }
    f->n_groups++;
    f->n_workers += g->count;
    return 0;
}

#define FIELD(name, how)                                                                           \
    {                                                                                              \
#        name, sim_yaml_##how, offsetof(struct sim_group, name), false                             \
    }

static int read_workers(struct sim_yaml *y, uint32_t node, void *to)
{
    static const struct sim_field fields[] = {
        {"gpu", sim_yaml_word, offsetof(struct sim_group, gpu), true},
        {"join", sim_yaml_duration, offsetof(struct sim_group, join_ns), false},
        {"load", sim_yaml_duration, offsetof(struct sim_group, load_ns), false},
        {"fixed", sim_yaml_duration, offsetof(struct sim_group, fixed_ns), false},
        FIELD(count, count),
        FIELD(kv_blocks, count),
        FIELD(max_num_seqs, count),
        FIELD(max_batched_tokens, count),
        FIELD(max_concurrency, count),
        FIELD(weight, weight),
        FIELD(tasks, tasks),
        FIELD(speed, real),
    };
    struct sim_fleet *f = to;

    if (y->nodes.list[node].kind != CONF_NODE_SEQ)
        return sim_yaml_bad(y, node, "a list of workers");
    sim_yaml_foreach(y, child, node)
    {
        struct sim_group g;
        sim_group_init(&g);
        int rc = sim_yaml_map(y, child, fields, ARRAY_LEN(fields), &g);
        if (rc == 0)
            rc = sim_fleet_add(f, &g);
        if (rc == WEIR_E_NOTFOUND)
            return sim_yaml_bad(y, child, "of a known gpu: see weir worker --help");
        if (rc == WEIR_E_FULL)
            return sim_yaml_bad(y, child, "within 32 groups and 4096 workers");
        if (rc)
            return rc;
    }
    return f->n_workers ? 0 : sim_yaml_bad(y, node, "a list with at least one worker");
}

int sim_fleet_load(struct sim_fleet *f,
                   const struct mem *mem,
                   const char *path,
                   struct conf_errors *errors)
{
    static const struct sim_field fields[] = {
        {"model", sim_yaml_word, offsetof(struct sim_fleet, model), false},
        {"workers", read_workers, 0, true},
    };
    struct sim_yaml y;

    *f = (struct sim_fleet){.model = "llama-3-8b"};
    int rc = sim_yaml_open(&y, mem, path, errors);
    if (rc)
        return rc;
    rc = sim_yaml_map(&y, 0, fields, ARRAY_LEN(fields), f);
    sim_yaml_close(&y);
    return rc;
}
