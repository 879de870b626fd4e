/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Nacos server over its v1 HTTP API, which 1.4, 2.x and a default 3.x all answer. Only register, deregister, list, beat
 * and login are used, because a default 3.x refuses PUT and PATCH of an instance: a load report is a registration with
 * the whole metadata map, sent when something in it changed. Nothing merges there, so an address that someone else
 * registered is never written (design: only an instance that it registered itself).
 */
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "report/nacos_codec.h"
#include "report/report_priv.h"

enum { BASE_MAX = 2048 };

static const uint64_t beat_ns = 5 * NS_PER_S;
static const char form[] = "application/x-www-form-urlencoded";

static struct nacos_place place_of(const struct reporter *r)
{
    return (struct nacos_place){slice_str(r->nacos.namespace_id), slice_str(r->nacos.group),
                                slice_str(r->nacos.cluster)};
}

static int copy(struct slice s, char **out)
{
    if (!s.n)
        return 0;
    *out = mem_strdup(loop_mem(), s);
    return *out ? 0 : WEIR_E_NOMEM;
}

static int make_base(struct nacos_state *n, const struct nacos_url *url)
{
    struct buf base;

    buf_init(&base, loop_mem(), BASE_MAX);
    buf_put_str(&base, url->tls ? "https://" : "http://");
    buf_put_slice(&base, url->authority);
    buf_put_slice(&base, url->path);
    int rc = base.err == WEIR_E_FULL ? WEIR_E_INVALID : base.err;
    if (rc == 0)
        rc = copy(buf_slice(&base), &n->base);
    buf_fini(&base);
    return rc;
}

static int nacos_init(struct reporter *r, const struct report_options *o)
{
    struct nacos_state *n = &r->nacos;
    struct nacos_url url;

    int rc = report_nacos_url(slice_str(o->registry_url), &url);
    if (rc == 0)
        rc = make_base(n, &url);
    if (rc == 0)
        rc = copy(slice_str(r->base), &r->where);
    if (rc == 0)
        rc = copy(url.place.namespace_id, &n->namespace_id);
    if (rc == 0)
        rc = copy(url.place.group, &n->group);
    if (rc == 0)
        rc = copy(url.place.cluster, &n->cluster);
    if (rc == 0)
        rc = copy(slice_str(o->username), &n->username);
    if (rc == 0)
        rc = copy(slice_str(o->password), &n->password);
    if (rc == 0)
        rc = copy(slice_str(o->bearer), &r->bearer);
    /* Nacos has its own: a beat every 5 s, unhealthy after 15 s, gone after 30 s. */
    r->ttl_ns = 3 * beat_ns;
    return rc;
}

static void nacos_fini(struct reporter *r)
{
    struct nacos_state *n = &r->nacos;
    char *const texts[] = {n->base,    n->namespace_id, n->group,
                           n->cluster, n->username,     n->password};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        mem_free(loop_mem(), texts[i]);
}

static bool nacos_wants_login(const struct reporter *r)
{
    return r->nacos.username && loop_now(r->loop) >= r->nacos.token_until_ns;
}

static void
put_url(struct reporter *r, struct report_request *q, const char *method, const char *path)
{
    q->method = method;
    buf_put_str(&q->url, r->nacos.base);
    buf_put_str(&q->url, path);
}

/* "?place" at the end of the URL: a form body of anything but POST is not read everywhere. */
static int put_query(struct reporter *r, struct report_request *q)
{
    const struct nacos_place place = place_of(r);
    struct buf query;

    buf_init(&query, loop_mem(), BASE_MAX);
    int rc = report_nacos_write_place(&query, r->instance, &place);
    buf_put_char(&q->url, '?');
    buf_put_slice(&q->url, buf_slice(&query));
    buf_fini(&query);
    return rc ? rc : q->url.err;
}

static int write_instance(struct reporter *r, struct report_request *q)
{
    const struct nacos_place place = place_of(r);
    struct sample s = {0};
    uint32_t left_out = 0;

    put_url(r, q, "POST", "/v1/ns/instance");
    q->type = form;
    report_fill(r, &s);
    int rc = report_nacos_write_instance(&q->body, r->instance, &place, &s, &left_out);
    if (rc)
        return rc;
    if (left_out != r->left_out)
        log_warn("report", "%u metadata keys find no room: Nacos takes %d bytes in all", left_out,
                 NACOS_METADATA_MAX);
    r->left_out = left_out;
    return report_sending(r, &q->body);
}

static int nacos_write(struct reporter *r, enum report_step step, struct report_request *q)
{
    switch (step) {
    case STEP_LOGIN:
        put_url(r, q, "POST", "/v1/auth/login");
        q->type = form;
        return report_nacos_write_login(&q->body, slice_str(r->nacos.username),
                                        slice_str(r->nacos.password));
    case STEP_CLAIM:
        put_url(r, q, "GET", "/v1/ns/instance/list");
        return put_query(r, q);
    case STEP_REGISTER:
        return write_instance(r, q);
    case STEP_LOAD: {
        int rc = write_instance(r, q);
        /* Each registration is pushed to every subscriber: none without news. */
        return rc == 0 && report_same(r) ? WEIR_E_AGAIN : rc;
    }
    case STEP_RENEW:
        put_url(r, q, "PUT", "/v1/ns/instance/beat");
        return put_query(r, q);
    case STEP_LEAVE:
        put_url(r, q, "DELETE", "/v1/ns/instance");
        return put_query(r, q);
    }
    return WEIR_E_INVALID;
}

static enum report_verdict judge_login(struct reporter *r, struct slice body)
{
    struct buf token;
    uint64_t ttl_s = 0;

    buf_init(&token, loop_mem(), 8192);
    int rc = report_nacos_read_login(body, &token, &ttl_s);
    char *text = rc ? NULL : mem_strdup(loop_mem(), buf_slice(&token));
    buf_fini(&token);
    if (!text)
        return VERDICT_FAILED;
    mem_free(loop_mem(), r->bearer);
    r->bearer = text;
    /* A tenth of its life before its end, as Nacos' own clients do; a life that is not told is 5 minutes. */
    if (ttl_s == 0 || ttl_s > UINT64_C(10) * 86400)
        ttl_s = 300;
    r->nacos.token_until_ns = loop_now(r->loop) + ttl_s * NS_PER_S / 10 * 9;
    return VERDICT_OK;
}

static enum report_verdict judge_claim(struct reporter *r, struct slice body)
{
    enum nacos_holder holder;

    if (report_nacos_read_list(body, r->instance, slice_str(r->nacos.cluster), &holder) != 0)
        return VERDICT_FAILED;
    return holder == NACOS_ANOTHERS ? VERDICT_TAKEN : VERDICT_OK;
}

static enum report_verdict judge_beat(struct reporter *r, struct slice body)
{
    uint64_t code;
    uint64_t interval_ms;

    if (report_nacos_read_beat(body, &code, &interval_ms) != 0)
        return VERDICT_FAILED;
    if (code == 20404)
        return VERDICT_UNKNOWN;
    if (interval_ms >= 100 && interval_ms < 5000)
        r->ttl_ns = 3 * interval_ms * NS_PER_MS;
    return code == 10200 || code == 200 || code == 0 ? VERDICT_OK : VERDICT_FAILED;
}

static enum report_verdict
nacos_judge(struct reporter *r, enum report_step step, const struct fetch_result *f)
{
    struct nacos_state *n = &r->nacos;

    if (f->error == 0 && (f->status == 401 || f->status == 403) && n->username &&
        step != STEP_LOGIN) {
        n->token_until_ns = 0;
        return VERDICT_DENIED;
    }
    if (f->error || f->status < 200 || f->status >= 300)
        return VERDICT_FAILED;
    switch (step) {
    case STEP_LOGIN:
        return judge_login(r, f->body);
    case STEP_CLAIM:
        return judge_claim(r, f->body);
    case STEP_RENEW:
        return judge_beat(r, f->body);
    case STEP_REGISTER:
    case STEP_LOAD:
        return report_sent(r);
    case STEP_LEAVE:
        break;
    }
    return VERDICT_OK;
}

const struct report_target report_nacos = {
    .claims = true,
    .init = nacos_init,
    .fini = nacos_fini,
    .wants_login = nacos_wants_login,
    .write = nacos_write,
    .judge = nacos_judge,
};
