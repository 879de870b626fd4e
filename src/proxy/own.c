/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weir's own paths on the data port: health, readiness and the list of models. Nothing administrative lives here.
 */
#include "proxy/exchange.h"

/* Any instant will do for "created": clients only want an integer, and the same one each time. */
#define CREATED "1700000000"

static void put_model(struct buf *out, struct slice id)
{
    buf_put_str(out, "{\"id\":");
    buf_put_json(out, id);
    buf_put_str(out, ",\"object\":\"model\",\"created\":" CREATED ",\"owned_by\":\"weir\"}");
}

/* Somebody has it whom its registry does not keep out: not at weight 0, not unhealthy. */
static bool offered(const struct snapshot *s, const struct snapshot_model *m)
{
    for (uint32_t i = 0; m && i < m->n_members; i++) {
        const struct endpoint *e = s->members[m->members[i]].endpoint;
        if (e->registry_healthy && e->weight > 0)
            return true;
    }
    return false;
}

static bool live(const struct snapshot *s, struct slice id)
{
    return s && offered(s, model_find(s, id));
}

/* Live models and the aliases of live ones, in byte order: two sorted lists merged. */
static void put_models(struct buf *out, const struct snapshot *s, const struct plan *p)
{
    uint32_t n_models = s ? s->n_models : 0;
    uint32_t m = 0;
    uint32_t a = 0;
    bool first = true;

    buf_put_str(out, "{\"object\":\"list\",\"data\":[");
    while (m < n_models || a < p->n_aliases) {
        int order = m == n_models       ? 1
                    : a == p->n_aliases ? -1
                                        : slice_cmp(s->models[m].id, p->aliases[a].name);
        struct slice id = order > 0 ? p->aliases[a].name : s->models[m].id;
        bool shown = (order <= 0 && offered(s, &s->models[m])) ||
                     (order >= 0 && live(s, p->aliases[a].model->id));
        m += order <= 0;
        a += order >= 0;
        if (!shown)
            continue;
        if (!first)
            buf_put_char(out, ',');
        first = false;
        put_model(out, id);
    }
    buf_put_str(out, "]}");
}

/* At least one endpoint that a request could be sent to. */
static bool ready(const struct lane *l)
{
    const struct snapshot *s = l->asker.snap;

    if (l->draining)
        return false;
    for (uint32_t i = 0; s && i < s->n_members; i++) {
        const struct endpoint *e = s->members[i].endpoint;
        int health = atomic_load_explicit(&s->members[i].cell->health, memory_order_relaxed);
        if (e->enabled && e->registry_healthy && !e->draining && e->weight > 0 &&
            (health == HEALTH_UP || (health == HEALTH_UNKNOWN && e->vouched)))
            return true;
    }
    return false;
}

static void answer(struct exchange *x, unsigned status, struct slice body)
{
    struct lane *l = x->lane;
    struct buf head;
    char text[512];
    bool keep = x->keep_asked && x->complete && !l->draining && !x->client->eof;

    head = (struct buf){.p = text, .cap = sizeof(text), .max = sizeof(text)};
    buf_put_str(&head, "HTTP/1.1 ");
    buf_put_u64(&head, status);
    buf_put_char(&head, ' ');
    buf_put_str(&head, wire_http1_reason(status));
    buf_put_str(&head, "\r\nContent-Type: application/json\r\nX-Request-Id: ");
    buf_put_slice(&head, exchange_request_id(x));
    buf_put_str(&head,
                status == 503 ? "\r\nRetry-After: 1\r\nContent-Length: " : "\r\nContent-Length: ");
    buf_put_u64(&head, body.n);
    if (!keep)
        buf_put_str(&head, "\r\nConnection: close");
    else if (x->http10)
        buf_put_str(&head, "\r\nConnection: keep-alive");
    buf_put_str(&head, "\r\n\r\n");
    struct iovec v[2] = {{head.p, buf_len(&head)},
                         {(void *)(uintptr_t)body.p, x->is_head ? 0 : body.n}};
    enum proxy_outcome outcome = status < 400 ? OUTCOME_OK : OUTCOME_REJECTED;
    exchange_count(x, outcome);
    (void)net_conn_send(&x->client->conn, v, 2);
    x->status = (uint16_t)status;
    exchange_end(x, outcome, keep ? FATE_KEEP : FATE_LINGER);
}

bool own_answer(struct exchange *x, const struct http1_head *h)
{
    static const struct slice one_model = SLICE("/v1/models/");
    struct slice path = exchange_path(x);
    struct buf *out = &x->lane->out;

    if (!x->is_head && !slice_eq(h->method, SLICE("GET")))
        return false;
    if (slice_eq(path, SLICE("/health")) || slice_eq(path, SLICE("/liveness"))) {
        answer(x, 200, SLICE("{\"status\":\"ok\"}"));
    } else if (slice_eq(path, SLICE("/readiness"))) {
        bool ok = ready(x->lane);
        answer(x, ok ? 200 : 503,
               ok ? SLICE("{\"status\":\"ready\"}") : SLICE("{\"status\":\"not ready\"}"));
    } else if (slice_eq(path, SLICE("/v1/models"))) {
        buf_clear(out);
        put_models(out, x->lane->asker.snap, x->plan);
        if (out->err)
            exchange_reject(x, REJECT_OVERLOADED, NULL, (struct slice){NULL, 0});
        else
            answer(x, 200, buf_slice(out));
    } else if (slice_starts(path, one_model)) {
        struct slice id = slice_from(path, one_model.n);
        const struct model_config *alias = plan_alias(x->plan, id);
        if (live(x->lane->asker.snap, id) || (alias && live(x->lane->asker.snap, alias->id))) {
            buf_clear(out);
            put_model(out, id);
            answer(x, 200, buf_slice(out));
        } else {
            exchange_reject(x, REJECT_MODEL_NOT_FOUND, "model", id);
        }
    } else {
        return false;
    }
    return true;
}
