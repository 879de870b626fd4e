/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/sim/yaml.h"

#include "base/bug.h"
#include "base/num.h"
#include "confio/confio.h"
#include "confio/file.h"
#include "model/endpoint_t.h"

int sim_yaml_open(struct sim_yaml *y,
                  const struct mem *mem,
                  const char *path,
                  struct conf_errors *errors)
{
    struct conf_place at = {.file = slice_str(path)};
    struct buf text;

    y->file = slice_str(path);
    y->errors = errors;
    confio_nodes_init(&y->nodes, mem);
    buf_init(&text, mem, CONFIO_FILE_MAX);
    int rc = confio_read_file(path, &text, &at, errors);
    if (rc == 0)
        rc = confio_yaml_parse(y->file, buf_slice(&text), &y->nodes, errors);
    buf_fini(&text);
    if (rc == 0 && y->nodes.n == 0) {
        struct slice what = SLICE("the file is empty");
        conf_error_add(errors, &at, &what, 1);
        rc = WEIR_E_INVALID;
    }
    if (rc)
        sim_yaml_close(y);
    return rc;
}

void sim_yaml_close(struct sim_yaml *y)
{
    confio_nodes_fini(&y->nodes);
}

int sim_yaml_bad(struct sim_yaml *y, uint32_t node, const char *wanted)
{
    const struct conf_node *n = &y->nodes.list[node];
    struct conf_place at = {.file = y->file, .line = n->line, .column = n->column};
    struct slice key = n->key.p ? n->key : SLICE("value");
    struct slice parts[] = {key, SLICE(": \""), n->text.p ? n->text : SLICE("..."),
                            SLICE("\" is not "), slice_str(wanted)};

    conf_error_add(y->errors, &at, parts, ARRAY_LEN(parts));
    return WEIR_E_INVALID;
}

static int
unknown(struct sim_yaml *y, const struct conf_node *n, const struct sim_field *f, uint32_t n_fields)
{
    const char *known[32];
    struct conf_place at = {.file = y->file, .line = n->key_line, .column = n->key_column};

    BUG_ON(n_fields > ARRAY_LEN(known));
    for (uint32_t i = 0; i < n_fields; i++)
        known[i] = f[i].key;
    struct slice near = conf_nearest(n->key, known, n_fields);
    struct slice parts[] = {SLICE("unknown key \""), n->key, SLICE("\""),
                            near.p ? SLICE("; did you mean ") : SLICE(""),
                            near.p ? near : SLICE("")};
    conf_error_add(y->errors, &at, parts, ARRAY_LEN(parts));
    return WEIR_E_INVALID;
}

int sim_yaml_map(
    struct sim_yaml *y, uint32_t node, const struct sim_field *fields, uint32_t n, void *out)
{
    uint32_t seen = 0;

    if (y->nodes.list[node].kind != CONF_NODE_MAP)
        return sim_yaml_bad(y, node, "a map");
    sim_yaml_foreach(y, child, node)
    {
        uint32_t i = 0;
        while (i < n && !slice_eq(y->nodes.list[child].key, slice_str(fields[i].key)))
            i++;
        if (i == n)
            return unknown(y, &y->nodes.list[child], fields, n);
        int rc = fields[i].read(y, child, (char *)out + fields[i].offset);
        if (rc)
            return rc;
        seen |= UINT32_C(1) << i;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!fields[i].required || seen >> i & 1)
            continue;
        const struct conf_node *m = &y->nodes.list[node];
        struct conf_place at = {.file = y->file, .line = m->line, .column = m->column};
        struct slice parts[] = {slice_str(fields[i].key), SLICE(" is missing")};
        conf_error_add(y->errors, &at, parts, ARRAY_LEN(parts));
        return WEIR_E_INVALID;
    }
    return 0;
}

static struct slice scalar(const struct sim_yaml *y, uint32_t node)
{
    const struct conf_node *n = &y->nodes.list[node];

    return n->kind == CONF_NODE_SCALAR && n->text.p ? n->text : SLICE("");
}

int sim_yaml_u32(struct sim_yaml *y, uint32_t node, void *to)
{
    uint64_t v;

    if (num_u64(scalar(y, node), &v) != 0 || v > UINT32_MAX)
        return sim_yaml_bad(y, node, "a whole number below 2^32");
    *(uint32_t *)to = (uint32_t)v;
    return 0;
}

int sim_yaml_count(struct sim_yaml *y, uint32_t node, void *to)
{
    int rc = sim_yaml_u32(y, node, to);

    if (rc == 0 && *(uint32_t *)to == 0)
        return sim_yaml_bad(y, node, "above 0");
    return rc;
}

int sim_yaml_real(struct sim_yaml *y, uint32_t node, void *to)
{
    double v;

    if (num_f64(scalar(y, node), &v) != 0 || !(v > 0) || v > 1e12)
        return sim_yaml_bad(y, node, "a number above 0");
    *(double *)to = v;
    return 0;
}

int sim_yaml_duration(struct sim_yaml *y, uint32_t node, void *to)
{
    if (num_duration(scalar(y, node), to) != 0)
        return sim_yaml_bad(y, node, "a duration such as 10ms or 5s");
    return 0;
}

int sim_yaml_weight(struct sim_yaml *y, uint32_t node, void *to)
{
    uint64_t v;

    if (num_scaled(scalar(y, node), WEIGHT_ONE, &v) != 0 || v > WEIGHT_MAX)
        return sim_yaml_bad(y, node, "a weight from 0 to 10000");
    *(uint32_t *)to = (uint32_t)v;
    return 0;
}

int sim_yaml_word(struct sim_yaml *y, uint32_t node, void *to)
{
    struct slice s = scalar(y, node);

    if (s.n == 0 || s.n >= SIM_WORD_MAX)
        return sim_yaml_bad(y, node, "a text of 1 to 63 bytes");
    memcpy(to, s.p, s.n);
    ((char *)to)[s.n] = 0;
    return 0;
}

static int one_task(struct sim_yaml *y, uint32_t node, uint32_t *bits)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } tasks[] = {{"chat", TASK_CHAT},           {"completion", TASK_COMPLETION},
                 {"embedding", TASK_EMBEDDING}, {"rerank", TASK_RERANK},
                 {"audio", TASK_AUDIO},         {"image", TASK_IMAGE}};

    for (size_t i = 0; i < ARRAY_LEN(tasks); i++)
        if (slice_eq(scalar(y, node), slice_str(tasks[i].name))) {
            *bits |= tasks[i].bit;
            return 0;
        }
    return sim_yaml_bad(y, node, "chat, completion, embedding, rerank, audio or image");
}

int sim_yaml_tasks(struct sim_yaml *y, uint32_t node, void *to)
{
    uint32_t bits = 0;
    int rc = 0;

    if (y->nodes.list[node].kind == CONF_NODE_SEQ) {
        sim_yaml_foreach(y, child, node) if (rc == 0) rc = one_task(y, child, &bits);
    } else {
        rc = one_task(y, node, &bits);
    }
    *(uint32_t *)to = bits;
    return rc;
}
