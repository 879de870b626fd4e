/* SPDX-License-Identifier: Apache-2.0 */
/* Weir's own registry: typed load reports beside the lease, so values age apart from it. */
#include <jansson.h>

#include "base/num.h"
#include "loop/alloc.h"
#include "report/report_codec.h"
#include "report/report_priv.h"
#include "wire/url.h"

enum { WHERE_MAX = 4096 };

static int native_init(struct reporter *r, const struct report_options *o)
{
    struct url url;

    if (wire_url_parse(slice_str(o->registry_url), &url) != 0 || url.host.n == 0 || url.query.p ||
        o->ttl_ns < 3 * NS_PER_MS)
        return WEIR_E_INVALID;
    if (o->bearer && !(r->bearer = mem_strdup(loop_mem(), slice_str(o->bearer))))
        return WEIR_E_NOMEM;
    struct buf where;
    buf_init(&where, loop_mem(), WHERE_MAX);
    int rc = report_write_url(&where, slice_str(r->base), r->instance->id, "");
    if (rc == 0 && !(r->where = mem_strdup(loop_mem(), buf_slice(&where))))
        rc = WEIR_E_NOMEM;
    buf_fini(&where);
    return rc == WEIR_E_FULL ? WEIR_E_INVALID : rc;
}

static void native_fini(struct reporter *r)
{
    (void)r;
}

static int native_write(struct reporter *r, enum report_step step, struct report_request *q)
{
    static const struct {
        const char *method;
        const char *suffix;
    } requests[] = {
        [STEP_REGISTER] = {"PUT", ""},
        [STEP_RENEW] = {"POST", "/renew"},
        [STEP_LOAD] = {"POST", "/load"},
        [STEP_LEAVE] = {"DELETE", ""},
    };
    struct instance instance = *r->instance;
    struct sample s = {0};
    int rc = report_write_url(&q->url, slice_str(r->base), instance.id, requests[step].suffix);

    q->method = requests[step].method;
    if (rc || step == STEP_LEAVE)
        return rc;
    q->type = "application/json";
    if (step == STEP_RENEW)
        return buf_put_str(&q->body, "{}");
    if (step == STEP_REGISTER) {
        instance.epoch = r->epoch;
        return report_write_instance(&q->body, &instance, NULL, r->ttl_ns / NS_PER_MS);
    }
    report_fill(r, &s);
    s.epoch = r->epoch;
    s.seq = ++r->seq;
    return report_write_sample(&q->body, &s, r->interval_ns / NS_PER_MS);
}

/* {accepted: false, epoch, seq}: say because the clock was set back between two runs. */
static void read_load_answer(struct reporter *r, struct slice body)
{
    json_t *answer = json_loadb(body.p ? body.p : "", body.n, 0, NULL);

    if (json_is_false(json_object_get(answer, "accepted"))) {
        json_int_t epoch = json_integer_value(json_object_get(answer, "epoch"));
        json_int_t seq = json_integer_value(json_object_get(answer, "seq"));
        report_catch_up(r, epoch > 0 ? (uint64_t)epoch : 0, seq > 0 ? (uint64_t)seq : 0);
    }
    json_decref(answer);
}

static enum report_verdict
native_judge(struct reporter *r, enum report_step step, const struct fetch_result *f)
{
    if (f->error)
        return VERDICT_FAILED;
    if (f->status == 404 && step != STEP_REGISTER)
        return VERDICT_UNKNOWN;
    if (f->status < 200 || f->status >= 300)
        return VERDICT_FAILED;
    if (step == STEP_LOAD)
        read_load_answer(r, f->body);
    return VERDICT_OK;
}

const struct report_target report_native = {
    .init = native_init,
    .fini = native_fini,
    .write = native_write,
    .judge = native_judge,
};
