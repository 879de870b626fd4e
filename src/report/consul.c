/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Consul agent: a service with a TTL check, which is passed on every renewal. A load report is the registration again
 * with other Meta, sent when something in it changed: Consul has nothing lighter that other readers see. An agent that was
 * restarted does not know the check: registered again.
 */
#include "base/num.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "report/consul_codec.h"
#include "report/report_codec.h"
#include "report/report_priv.h"
#include "wire/url.h"

static int consul_init(struct reporter *r, const struct report_options *o)
{
    int rc = report_take_url(r, "consul");

    if (rc == 0 && o->ttl_ns < NS_PER_S)
        rc = WEIR_E_INVALID;
    if (rc == 0 && o->bearer && !(r->bearer = mem_strdup(loop_mem(), slice_str(o->bearer))))
        rc = WEIR_E_NOMEM;
    return rc;
}

static void consul_fini(struct reporter *r)
{
    (void)r;
}

static int put_url(const struct reporter *r, struct report_request *q, const char *path, bool of_us)
{
    q->method = "PUT";
    buf_put_str(&q->url, r->url);
    buf_put_str(&q->url, path);
    if (of_us)
        wire_url_encode(r->instance->id, ":", &q->url);
    return q->url.err;
}

static int write_service(struct reporter *r, struct report_request *q)
{
    struct sample s = {0};
    uint32_t left_out = 0;

    q->type = "application/json";
    report_fill(r, &s);
    int rc =
        report_consul_write_service(&q->body, r->instance, &s, r->ttl_ns / NS_PER_MS, &left_out);
    if (rc)
        return rc;
    if (left_out != r->left_out)
        log_warn("report",
                 "%u metadata keys are left out: Consul takes %d, of letters, digits, - and _",
                 left_out, CONSUL_META_KEYS);
    r->left_out = left_out;
    return report_sending(r, &q->body);
}

static int consul_write(struct reporter *r, enum report_step step, struct report_request *q)
{
    struct sample s = {0};
    int rc;

    switch (step) {
    case STEP_REGISTER:
    case STEP_LOAD:
        rc = put_url(r, q, "/v1/agent/service/register?replace-existing-checks=true", false);
        if (rc == 0)
            rc = write_service(r, q);
        return rc == 0 && step == STEP_LOAD && report_same(r) ? WEIR_E_AGAIN : rc;
    case STEP_RENEW:
        q->type = "application/json";
        report_fill(r, &s);
        rc = put_url(r, q, "/v1/agent/check/update/service:", true);
        return rc ? rc : report_consul_write_check(&q->body, &s);
    case STEP_LEAVE:
        return put_url(r, q, "/v1/agent/service/deregister/", true);
    case STEP_LOGIN:
    case STEP_CLAIM:
        break;
    }
    return WEIR_E_INVALID;
}

static enum report_verdict
consul_judge(struct reporter *r, enum report_step step, const struct fetch_result *f)
{
    if (f->error)
        return VERDICT_FAILED;
    /* Servers before 1.11 say 500 for a check that they do not know, and for much else: registering is never wrong. */
    if (f->status == 404 || (step == STEP_RENEW && f->status == 500))
        return step == STEP_REGISTER || step == STEP_LOAD ? VERDICT_FAILED : VERDICT_UNKNOWN;
    if (f->status < 200 || f->status >= 300)
        return VERDICT_FAILED;
    return step == STEP_REGISTER || step == STEP_LOAD ? report_sent(r) : VERDICT_OK;
}

const struct report_target report_consul = {
    .init = consul_init,
    .fini = consul_fini,
    .write = consul_write,
    .judge = consul_judge,
};
