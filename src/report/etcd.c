/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etcd v3 through its JSON gateway: a lease is granted, the endpoint's document is put under it, the lease is kept alive
 * and revoked at the end. A load report is the document again with other metadata, when something in it changed. Who logs
 * in does so again after any failure: some servers hang up on an old token without a word.
 */
#include <jansson.h>

#include "base/base64.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "report/report_codec.h"
#include "report/report_priv.h"

enum { DOC_MAX = 1 << 20 };

static const char default_prefix[] = "/weir/endpoints/";

static int copy(struct slice s, char **out)
{
    if (!s.n)
        return 0;
    *out = mem_strdup(loop_mem(), s);
    return *out ? 0 : WEIR_E_NOMEM;
}

static int etcd_init(struct reporter *r, const struct report_options *o)
{
    struct etcd_state *e = &r->etcd;
    int rc = report_take_url(r, "etcd");

    if (rc == 0 && o->ttl_ns < NS_PER_S)
        rc = WEIR_E_INVALID;
    if (rc == 0)
        rc = copy(r->rest.n > 1 ? r->rest : slice_str(default_prefix), &e->prefix);
    if (rc == 0)
        rc = copy(slice_str(o->username), &e->username);
    if (rc == 0)
        rc = copy(slice_str(o->password), &e->password);
    return rc;
}

static void etcd_fini(struct reporter *r)
{
    mem_free(loop_mem(), r->etcd.prefix);
    mem_free(loop_mem(), r->etcd.username);
    mem_free(loop_mem(), r->etcd.password);
}

static bool etcd_wants_login(const struct reporter *r)
{
    return r->etcd.username && !r->bearer;
}

static void put_key(const struct reporter *r, struct buf *out)
{
    struct buf key;

    buf_init(&key, loop_mem(), DOC_MAX);
    buf_put_str(&key, r->etcd.prefix);
    buf_put_slice(&key, r->instance->id);
    base64_put(out, buf_slice(&key));
    if (key.err && !out->err)
        out->err = key.err;
    buf_fini(&key);
}

static int write_put(struct reporter *r, struct buf *body)
{
    struct instance instance = *r->instance;
    struct sample s = {0};
    struct buf doc;

    report_fill(r, &s);
    instance.epoch = r->epoch;
    buf_init(&doc, loop_mem(), DOC_MAX);
    int rc = report_write_instance(&doc, &instance, &s, r->ttl_ns / NS_PER_MS);
    buf_put_str(body, "{\"key\":\"");
    put_key(r, body);
    buf_put_str(body, "\",\"value\":\"");
    base64_put(body, buf_slice(&doc));
    buf_put_str(body, "\",\"lease\":\"");
    buf_put_u64(body, r->etcd.lease);
    buf_put_str(body, "\"}");
    buf_fini(&doc);
    return rc ? rc : report_sending(r, body);
}

static void put_member(struct buf *out, const char *name, struct slice text)
{
    buf_put_str(out, name);
    buf_put_json(out, text);
}

static int etcd_write(struct reporter *r, enum report_step step, struct report_request *q)
{
    static const char *const paths[] = {
        [STEP_LOGIN] = "/v3/auth/authenticate",
        [STEP_CLAIM] = "/v3/lease/grant",
        [STEP_REGISTER] = "/v3/kv/put",
        [STEP_RENEW] = "/v3/lease/keepalive",
        [STEP_LOAD] = "/v3/kv/put",
        [STEP_LEAVE] = "/v3/lease/revoke",
    };
    const struct etcd_state *e = &r->etcd;

    q->method = "POST";
    q->type = "application/json";
    buf_put_str(&q->url, r->url);
    buf_put_str(&q->url, paths[step]);
    switch (step) {
    case STEP_LOGIN:
        put_member(&q->body, "{\"name\":", slice_str(e->username));
        put_member(&q->body, ",\"password\":", slice_str(e->password ? e->password : ""));
        return buf_put_char(&q->body, '}');
    case STEP_CLAIM:
        buf_put_str(&q->body, "{\"TTL\":\"");
        buf_put_u64(&q->body, (r->asked_ttl_ns + NS_PER_S - 1) / NS_PER_S);
        return buf_put_str(&q->body, "\"}");
    case STEP_REGISTER:
    case STEP_LOAD: {
        int rc = write_put(r, &q->body);
        return rc == 0 && step == STEP_LOAD && report_same(r) ? WEIR_E_AGAIN : rc;
    }
    case STEP_RENEW:
    case STEP_LEAVE:
        buf_put_str(&q->body, "{\"ID\":\"");
        buf_put_u64(&q->body, e->lease);
        return buf_put_str(&q->body, "\"}");
    }
    return WEIR_E_INVALID;
}

/* A number as text, or as a number; 0 is left out. */
static uint64_t number_of(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    uint64_t n = 0;

    if (json_is_integer(v))
        return json_integer_value(v) < 0 ? 0 : (uint64_t)json_integer_value(v);
    return json_is_string(v) && num_u64(slice_str(json_string_value(v)), &n) == 0 ? n : 0;
}

static enum report_verdict read_token(struct reporter *r, const json_t *answer)
{
    const char *token = json_string_value(json_object_get(answer, "token"));

    mem_free(loop_mem(), r->bearer);
    r->bearer = token && *token ? mem_strdup(loop_mem(), slice_str(token)) : NULL;
    return r->bearer ? VERDICT_OK : VERDICT_FAILED;
}

static enum report_verdict read_lease(struct reporter *r, const json_t *answer)
{
    uint64_t ttl_s = number_of(answer, "TTL");

    r->etcd.lease = number_of(answer, "ID");
    if (!r->etcd.lease || !ttl_s || ttl_s > UINT64_C(86400))
        return VERDICT_FAILED;
    r->ttl_ns = ttl_s * NS_PER_S;
    return VERDICT_OK;
}

static enum report_verdict
judge_answer(struct reporter *r, enum report_step step, const json_t *answer)
{
    switch (step) {
    case STEP_LOGIN:
        return read_token(r, answer);
    case STEP_CLAIM:
        return read_lease(r, answer);
    case STEP_RENEW: {
        const json_t *result = json_object_get(answer, "result");
        if (!json_is_object(result))
            return VERDICT_FAILED;
        return number_of(result, "TTL") ? VERDICT_OK : VERDICT_UNKNOWN;
    }
    case STEP_REGISTER:
    case STEP_LOAD:
        return report_sent(r);
    case STEP_LEAVE:
        break;
    }
    return VERDICT_OK;
}

static enum report_verdict
etcd_judge(struct reporter *r, enum report_step step, const struct fetch_result *f)
{
    if (f->error == 0 && f->status >= 200 && f->status < 300) {
        json_t *answer = json_loadb(f->body.p, f->body.n, 0, NULL);
        enum report_verdict v = answer ? judge_answer(r, step, answer) : VERDICT_FAILED;
        json_decref(answer);
        return v;
    }
    /* The lease is gone (etcd says 404), or was never there for a server with other data. */
    if (f->error == 0 && f->status == 404 && step != STEP_LOGIN && step != STEP_CLAIM)
        return VERDICT_UNKNOWN;
    if (!r->etcd.username || step == STEP_LOGIN || step == STEP_LEAVE)
        return VERDICT_FAILED;
    mem_free(loop_mem(), r->bearer);
    r->bearer = NULL;
    return VERDICT_DENIED;
}

const struct report_target report_etcd = {
    .claims = true,
    .plain_token = true,
    .init = etcd_init,
    .fini = etcd_fini,
    .wants_login = etcd_wants_login,
    .write = etcd_write,
    .judge = etcd_judge,
};
