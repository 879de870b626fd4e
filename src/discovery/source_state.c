/* SPDX-License-Identifier: Apache-2.0 */
/** @file The last good lists on disk: JSON, one instance a line, each the document of the native API. */
#include <jansson.h>

#include "base/bug.h"
#include "discovery/source_priv.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "registry/native_json.h"

enum { STATE_VERSION = 1, TEXT_MAX = 1 << 30, ENTRY_MAX = 8 << 20 };

static void put_member(struct buf *out, const char *name, struct slice text)
{
    buf_put_str(out, name);
    buf_put_json(out, text);
}

void source_state_write(void *ctx, struct buf *out)
{
    const struct source *s = ctx;
    const char *between = "\n";

    buf_put_str(out, "{\"format\":\"weir-discovery\",\"version\":");
    buf_put_u64(out, STATE_VERSION);
    buf_put_str(out, ",\"endpoints\":[");
    weir_list_foreach (at, &s->lists) {
        const struct source_list *l = container_of(at, const struct source_list, node);
        map_foreach(e, &l->held)
        {
            const struct held *h = e->value;
            if (!h->kept)
                continue;
            buf_put_str(out, between);
            put_member(out, "{\"list\":", l->name);
            put_member(out, ",\"key\":", h->key);
            buf_put_str(out, h->kept->instance.vouched ? ",\"vouched\":true" : "");
            buf_put_str(out, h->kept->instance.healthy ? ",\"healthy\":true" : "");
            buf_put_str(out, ",\"endpoint\":");
            native_write_instance(out, &h->kept->instance);
            buf_put_char(out, '}');
            between = ",\n";
        }
    }
    buf_put_str(out, "\n]}\n");
}

static struct slice text_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);

    return json_is_string(v) ? slice_of(json_string_value(v), json_string_length(v))
                             : (struct slice){NULL, 0};
}

static struct source_list *find_list(const struct source *s, struct slice name)
{
    weir_list_foreach (at, &s->lists) {
        struct source_list *l = container_of(at, struct source_list, node);
        if (slice_eq(l->name, name))
            return l;
    }
    return NULL;
}

static int read_entry(struct source *s, const json_t *entry)
{
    struct source_list *l = find_list(s, text_of(entry, "list"));
    struct slice key = text_of(entry, "key");
    struct native_error error;
    struct native_doc doc;
    struct arena a;

    if (!l)
        return WEIR_E_NOTFOUND; /* the config no longer asks for it */
    if (!key.n || key.n > ENDPOINT_TEXT_MAX)
        return WEIR_E_INVALID;
    arena_init(&a, loop_mem(), ENTRY_MAX);
    int rc = native_read_endpoint(&a, json_object_get(entry, "endpoint"), &doc, &error);
    if (rc == 0) {
        doc.instance.key = key;
        doc.instance.vouched = json_is_true(json_object_get(entry, "vouched"));
        doc.instance.healthy = json_is_true(json_object_get(entry, "healthy"));
        doc.instance.probation = true;
        rc = source_list_put(l, &doc.instance);
    }
    arena_fini(&a);
    return rc;
}

static uint32_t read_text(struct source *s, struct slice text)
{
    struct native_error error;
    json_t *file = native_load_json(text, &error);
    json_t *list = json_object_get(file, "endpoints");
    uint32_t told = 0;
    uint32_t bad = 0;
    size_t i;
    json_t *entry;

    if (!slice_eq(text_of(file, "format"), SLICE("weir-discovery")) || !json_is_array(list) ||
        json_integer_value(json_object_get(file, "version")) != STATE_VERSION) {
        json_decref(file);
        statefile_put_aside(&s->file, "not a state file of this version, or damaged", false);
        return 0;
    }
    json_array_foreach(list, i, entry)
    {
        int rc = read_entry(s, entry);
        told += rc == 0;
        bad += rc != 0 && rc != WEIR_E_NOTFOUND;
    }
    json_decref(file);
    if (bad)
        statefile_put_aside(&s->file, "some entries could not be read", true);
    return told;
}

uint32_t source_state_load(struct source *s)
{
    struct buf text;
    uint32_t n = 0;

    buf_init(&text, loop_mem(), TEXT_MAX);
    if (statefile_read(&s->file, &text) == 0) {
        n = read_text(s, buf_slice(&text));
        log_info("discovery", "source=%s: %u endpoints come back from %s, used once a check passes",
                 s->o.name, n, s->o.state_file);
    }
    buf_fini(&text);
    return n;
}
