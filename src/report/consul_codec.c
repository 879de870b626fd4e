/* SPDX-License-Identifier: Apache-2.0 */
#include "report/consul_codec.h"

#include "base/bug.h"
#include "report/metadata_codec.h"

static const char *status_of(const struct sample *s)
{
    bool usable = !sample_has(s, SAMPLE_STATE) ||
                  (s->state != REPORTED_LOADING && s->state != REPORTED_UNHEALTHY);

    return usable ? "passing" : "critical";
}

static void put_text(struct buf *out, const char *name, struct slice value)
{
    buf_put_str(out, name);
    buf_put_json(out, value);
}

struct meta_writer {
    struct buf *out;
    uint32_t n;
    uint32_t left_out;
};

static bool good_key(struct slice key)
{
    for (size_t i = 0; i < key.n; i++) {
        char c = ascii_lower(key.p[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_')
            return false;
    }
    return key.n > 0 && key.n <= CONSUL_KEY_MAX;
}

static void put_meta(void *ctx, struct slice key, struct slice value)
{
    struct meta_writer *w = ctx;

    if (w->n == CONSUL_META_KEYS || !good_key(key) || value.n > CONSUL_VALUE_MAX) {
        w->left_out++;
        return;
    }
    if (w->n++)
        buf_put_char(w->out, ',');
    buf_put_json(w->out, key);
    put_text(w->out, ":", value);
}

static void put_tags(struct buf *out, const struct instance *in)
{
    buf_put_str(out, ",\"Tags\":[");
    for (uint32_t i = 0; i < in->n_labels; i++) {
        struct buf tag;
        buf_init(&tag, out->mem, (size_t)2 * ENDPOINT_TEXT_MAX + 1);
        buf_put_slice(&tag, in->labels[i].key);
        buf_put_char(&tag, '=');
        buf_put_slice(&tag, in->labels[i].value);
        put_text(out, i ? "," : "", buf_slice(&tag));
        if (tag.err && !out->err)
            out->err = tag.err;
        buf_fini(&tag);
    }
    buf_put_char(out, ']');
}

static void put_weights(struct buf *out, const struct instance *in)
{
    uint32_t w = (in->weight + WEIGHT_ONE / 2) / WEIGHT_ONE; /* whole ones, none is 0 */

    buf_put_str(out, ",\"Weights\":{\"Passing\":");
    buf_put_u64(out, MAX(w, 1U));
    buf_put_str(out, ",\"Warning\":");
    buf_put_u64(out, MAX(w, 1U));
    buf_put_char(out, '}');
}

static void
put_check(struct buf *out, const struct instance *in, const struct sample *s, uint64_t ttl_ms)
{
    struct buf id;

    buf_init(&id, out->mem, ENDPOINT_TEXT_MAX + 16);
    buf_put_str(&id, "service:");
    buf_put_slice(&id, in->id);
    put_text(out, ",\"Checks\":[{\"CheckID\":", buf_slice(&id));
    if (id.err && !out->err)
        out->err = id.err;
    buf_fini(&id);
    buf_put_str(out, ",\"Name\":\"weir agent\",\"TTL\":\"");
    buf_put_u64(out, ttl_ms);
    buf_put_str(out, "ms\",\"Status\":\"");
    buf_put_str(out, status_of(s));
    buf_put_str(out, "\",\"DeregisterCriticalServiceAfter\":\"5m\"}]");
}

int report_consul_write_service(struct buf *out,
                                const struct instance *in,
                                const struct sample *s,
                                uint64_t ttl_ms,
                                uint32_t *left_out)
{
    struct meta_writer w = {.out = out};

    put_text(out, "{\"ID\":", in->id);
    put_text(out, ",\"Name\":", in->n_services ? in->services[0] : SLICE("default"));
    put_text(out, ",\"Address\":", in->host);
    buf_put_str(out, ",\"Port\":");
    buf_put_u64(out, in->port);
    put_tags(out, in);
    buf_put_str(out, ",\"Meta\":{");
    put_meta(&w, SLICE(REPORT_MARK_KEY), SLICE(REPORT_MARK_VALUE));
    if (in->tls)
        put_meta(&w, SLICE("scheme"), SLICE("https"));
    report_put_sample(s, put_meta, &w);
    int rc = report_put_identity(in, out->mem, put_meta, &w);
    buf_put_char(out, '}');
    put_weights(out, in);
    put_check(out, in, s, ttl_ms);
    buf_put_char(out, '}');
    *left_out = w.left_out;
    return rc ? rc : out->err;
}

int report_consul_write_check(struct buf *out, const struct sample *s)
{
    buf_put_str(out, "{\"Status\":\"");
    buf_put_str(out, status_of(s));
    put_text(out, "\",\"Output\":",
             sample_has(s, SAMPLE_STATE) ? slice_str(report_state_name(s->state))
                                         : SLICE("state unknown"));
    return buf_put_char(out, '}');
}
