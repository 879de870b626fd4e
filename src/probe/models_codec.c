/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/models_codec.h"

#include "base/bug.h"
#include "base/num.h"
#include "base/utf8.h"
#include "probe/rows_codec.h"
#include "wire/json_scan.h"

enum list_field {
    L_ID,
    L_NAME,
    L_SD,
    L_MODEL,
    L_VERSION,
    L_PARENT,
    L_LENGTH,
    L_OWNER,
    L_STATE,
    L_STATUS,
    L_VALUE
};

static const char *const list_keys[] = {"data", "models", NULL};
static const char *const list_fields[] = {[L_ID] = "id",
                                          [L_NAME] = "name",
                                          [L_SD] = "model_name",
                                          [L_MODEL] = "model",
                                          [L_VERSION] = "version",
                                          [L_PARENT] = "parent",
                                          [L_LENGTH] = "max_model_len",
                                          [L_OWNER] = "owned_by",
                                          [L_STATE] = "state",
                                          [L_STATUS] = "status",
                                          [L_VALUE] = "status.value",
                                          NULL};

enum info_field { I_ID, I_TOTAL, I_INPUT };
static const char *const info_fields[] = {
    [I_ID] = "model_id", [I_TOTAL] = "max_total_tokens", [I_INPUT] = "max_input_length", NULL};

static struct slice first_of(struct slice a, struct slice b)
{
    return a.n ? a : b;
}

static bool known(const struct engine_models *m, struct slice id, struct slice version)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (slice_eq(m->list[i].id, id) && slice_eq(m->list[i].version, version))
            return true;
    return false;
}

/* These go into JSON, metrics and registrations, where text that is none would make the whole of it unreadable. */
static bool text_ok(struct slice s)
{
    return s.n == 0 || utf8_ok(s.p, s.n);
}

static uint32_t length_of(struct slice text)
{
    uint64_t v;

    return text.n && num_u64(text, &v) == 0 && v <= UINT32_MAX ? (uint32_t)v : 0;
}

/* @param base of a LoRA; absent: it is none. */
static int add(struct engine_models *m,
               struct slice id,
               struct slice version,
               struct slice base,
               struct model_ref like)
{
    if (known(m, id, version))
        return 0;
    if (id.n == 0 || m->n == ENDPOINT_MODELS_MAX || !text_ok(id) || !text_ok(version) ||
        !text_ok(base)) {
        m->left_out++;
        return 0;
    }
    struct model_ref *out = &m->list[m->n];
    *out = like;
    int rc = arena_slice(m->arena, id, &out->id);
    if (rc == 0 && version.n)
        rc = arena_slice(m->arena, version, &out->version);
    if (rc == 0 && base.n)
        rc = arena_slice(m->arena, base, &out->lora_base);
    m->n += rc == 0;
    return rc;
}

static bool is_word(struct slice s, const char *const *words)
{
    for (; *words; words++)
        if (slice_eq_nocase(s, slice_str(*words)))
            return true;
    return false;
}

static int on_list(void *ctx, const struct slice *v)
{
    static const char *const out_of_use[] = {"unavailable", "unloading", "failed", NULL};
    static const char *const loading[] = {"loading", "downloading", NULL};
    struct engine_models *m = ctx;
    struct slice id = first_of(v[L_ID], first_of(v[L_NAME], first_of(v[L_MODEL], v[L_SD])));
    struct slice state = first_of(v[L_STATE], first_of(v[L_STATUS], v[L_VALUE]));
    struct model_ref like = {.max_model_len = length_of(v[L_LENGTH])};

    if (!m->owner[0] && v[L_OWNER].n > 0 && v[L_OWNER].n < ENGINE_OWNER_MAX)
        memcpy(m->owner, v[L_OWNER].p, v[L_OWNER].n);
    if (is_word(state, out_of_use))
        return 0;
    like.loading = is_word(state, loading);
    return add(m, id, v[L_VERSION], v[L_PARENT], like);
}

static int on_info(void *ctx, const struct slice *v)
{
    struct model_ref like = {.max_model_len = length_of(first_of(v[I_TOTAL], v[I_INPUT]))};

    return add(ctx, v[I_ID], slice_of(NULL, 0), slice_of(NULL, 0), like);
}

static int start(struct arena *a, uint32_t most, struct engine_models *out)
{
    *out = (struct engine_models){.arena = a};
    out->list = arena_array(a, most, sizeof(*out->list));
    return out->list ? 0 : WEIR_E_NOMEM;
}

int engine_models_list(struct slice body, struct arena *a, struct engine_models *out)
{
    const struct engine_rows_shape shape = {list_keys, list_fields};
    int rc = start(a, ENDPOINT_MODELS_MAX, out);

    if (rc == 0)
        rc = engine_rows_read(body, &shape, on_list, out);
    if (rc)
        out->n = 0;
    return rc;
}

int engine_models_info(struct slice body, struct arena *a, struct engine_models *out)
{
    const struct engine_rows_shape shape = {NULL, info_fields};
    int rc = start(a, ENDPOINT_MODELS_MAX, out);

    if (rc == 0)
        rc = engine_rows_read(body, &shape, on_info, out);
    if (rc == 0 && out->n == 0)
        rc = WEIR_E_INVALID;
    if (rc)
        out->n = 0;
    return rc;
}

/* A walk that looks for strings in a list under one of the keys, at the top. */
struct names {
    struct engine_models *out;
    unsigned depth;
    bool wanted, seen; /* the list under this key; any such list was there */
    bool too_long;
    uint32_t n;
    char text[ENDPOINT_TEXT_MAX];
};

static void piece(struct names *w, struct slice text)
{
    if (text.n > sizeof(w->text) - w->n) {
        w->too_long = true;
        return;
    }
    if (text.n)
        memcpy(w->text + w->n, text.p, text.n);
    w->n += (uint32_t)text.n;
}

static int on_name(void *ctx, enum json_event event, struct slice text, bool last)
{
    struct names *w = ctx;
    int rc = 0;

    switch (event) {
    case JSON_SCAN_KEY:
    case JSON_SCAN_STRING:
        piece(w, text);
        if (!last)
            return 0;
        struct slice whole = slice_of(w->text, w->too_long ? 0 : w->n);
        if (event == JSON_SCAN_KEY && w->depth == 1)
            w->wanted = slice_eq(whole, SLICE("model_names")) || slice_eq(whole, SLICE("models"));
        else if (event == JSON_SCAN_STRING && w->depth == 2 && w->wanted)
            rc = add(w->out, whole, slice_of(NULL, 0), slice_of(NULL, 0), (struct model_ref){0});
        w->n = 0;
        w->too_long = false;
        return rc;
    case JSON_SCAN_ARRAY_BEGIN:
        w->seen = w->seen || (w->depth == 1 && w->wanted);
        w->depth++;
        return 0;
    case JSON_SCAN_OBJECT_BEGIN:
        w->depth += w->depth == 1 ? 2 : 1; /* what stands in an object is no name of a model */
        return 0;
    case JSON_SCAN_ARRAY_END:
        w->depth--;
        return 0;
    case JSON_SCAN_OBJECT_END:
        w->depth -= w->depth == 3 ? 2 : 1;
        return 0;
    case JSON_SCAN_NUMBER:
    case JSON_SCAN_TRUE:
    case JSON_SCAN_FALSE:
    case JSON_SCAN_NULL:
        return 0;
    }
    return 0;
}

int engine_models_names(struct slice body, struct arena *a, struct engine_models *out)
{
    struct names w = {.out = out};
    struct json_scan scan;

    if (engine_models_list(body, a, out) == 0 && out->n)
        return 0;
    int rc = start(a, ENDPOINT_MODELS_MAX, out);
    wire_json_init(&scan, on_name, &w);
    if (rc == 0 && (rc = wire_json_scan(&scan, body.p, body.n)) == 0)
        rc = wire_json_end(&scan);
    if (rc == 0 && !w.seen && !slice_starts(body, SLICE("[")))
        rc = WEIR_E_INVALID;
    if (rc) {
        out->n = 0;
        rc = rc == WEIR_E_NOMEM ? rc : WEIR_E_INVALID;
    }
    return rc;
}
