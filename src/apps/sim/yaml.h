/* SPDX-License-Identifier: Apache-2.0 */
/** @file Small YAML files of the simulator: a cursor over conf's nodes that reads fields and says what is wrong, where. */
#ifndef WEIR_APPS_SIM_YAML_H
#define WEIR_APPS_SIM_YAML_H

#include <stdbool.h>

#include "confio/nodes.h"

struct sim_yaml {
    struct slice file;
    struct confio_nodes nodes;
    struct conf_errors *errors;
};

/** Read and parse a file. WEIR_E_INVALID or WEIR_E_IO with an error; WEIR_E_NOMEM. Then sim_yaml_close(). */
int sim_yaml_open(struct sim_yaml *y,
                  const struct mem *mem,
                  const char *path,
                  struct conf_errors *errors) MUST_CHECK;
void sim_yaml_close(struct sim_yaml *y);

/** Say that the value of a node is not what is wanted. @return WEIR_E_INVALID. */
int sim_yaml_bad(struct sim_yaml *y, uint32_t node, const char *wanted);

/** One field of a map. The reader gets the node of the value. */
struct sim_field {
    const char *key;
    int (*read)(struct sim_yaml *y, uint32_t node, void *to);
    size_t offset; /**< of the place in `out` */
    bool required;
};

/** Read a map by its fields; an unknown key is an error with the nearest known one. */
int sim_yaml_map(struct sim_yaml *y,
                 uint32_t node,
                 const struct sim_field *fields,
                 uint32_t n,
                 void *out) MUST_CHECK;

/* Readers: of uint32_t; uint32_t above 0; double above 0; ns from a duration; thousandths; char[64]; a bit set of tasks. */
int sim_yaml_u32(struct sim_yaml *y, uint32_t node, void *to);
int sim_yaml_count(struct sim_yaml *y, uint32_t node, void *to);
int sim_yaml_real(struct sim_yaml *y, uint32_t node, void *to);
int sim_yaml_duration(struct sim_yaml *y, uint32_t node, void *to);
int sim_yaml_weight(struct sim_yaml *y, uint32_t node, void *to);
int sim_yaml_word(struct sim_yaml *y, uint32_t node, void *to);
int sim_yaml_tasks(struct sim_yaml *y, uint32_t node, void *to);

enum { SIM_WORD_MAX = 64 };

/** Iterate over the children of a map or list. */
#define sim_yaml_foreach(y, child, parent)                                                         \
    for (uint32_t child = (parent) + 1; child < (y)->nodes.list[parent].end;                       \
         child = (y)->nodes.list[child].end)

#endif /* WEIR_APPS_SIM_YAML_H */
