/* SPDX-License-Identifier: Apache-2.0 */
/** @file Asking a Nacos server over HTTP: lists, login, signatures, the next server when one fails. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

#include "base/base64.h"
#include "base/bug.h"
#include "base/num.h"
#include "discovery/nacos_priv.h"
#include "loop/alloc.h"
#include "loop/log.h"
#include "report/nacos_codec.h"

enum { LOGIN_MAX = 65536 };

static const uint64_t TIMEOUT_NS = 5 * NS_PER_S;
static const uint64_t LOGIN_AGAIN_NS = 1 * NS_PER_S;

/* --- calls --- */

void nacos_sign(const struct nacos *n, struct slice grouped, struct buf *query)
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned mac_n = 0;
    struct buf data, text;

    if (!n->secret_key || !n->conf->access_key.n)
        return;
    buf_init(&data, loop_mem(), 1024);
    buf_init(&text, loop_mem(), 2 * EVP_MAX_MD_SIZE);
    buf_put_u64(&data, loop_wall_clock() / NS_PER_MS);
    buf_put_str(&data, "@@");
    buf_put_slice(&data, grouped);
    struct slice d = buf_slice(&data);
    if (!data.err &&
        HMAC(EVP_sha1(), n->secret_key, (int)strlen(n->secret_key), (const unsigned char *)d.p, d.n,
             mac, &mac_n) &&
        base64_put(&text, slice_of((const char *)mac, mac_n)) == 0) {
        report_nacos_put_pair(query, "ak", n->conf->access_key);
        report_nacos_put_pair(query, "data", d);
        report_nacos_put_pair(query, "signature", buf_slice(&text));
    }
    buf_fini(&text);
    buf_fini(&data);
}

int nacos_call(struct nacos *n,
               const char *method,
               const char *path,
               struct slice query,
               fetch_done_fn done,
               void *ctx,
               struct fetch **out)
{
    struct buf url;
    bool post = strcmp(method, "POST") == 0;

    buf_init(&url, loop_mem(), NACOS_URL_MAX);
    buf_put_slice(&url, n->servers[n->server].url);
    buf_put_str(&url, "/nacos");
    buf_put_str(&url, path);
    if (!post) {
        buf_put_char(&url, '?');
        buf_put_slice(&url, query);
    }
    buf_put_char(&url, '\0');
    const struct fetch_tls tls = {
        .ca = n->conf->ca.p, .cert = n->conf->cert.p, .key = n->conf->key.p};
    struct fetch_options o = {.method = method,
                              .url = buf_slice(&url).p,
                              .body = post ? query : (struct slice){NULL, 0},
                              .content_type = post ? "application/x-www-form-urlencoded" : NULL,
                              .bearer = n->token,
                              .tls = &tls,
                              .timeout_ns = TIMEOUT_NS,
                              .body_max = NACOS_ANSWER_MAX,
                              .done = done,
                              .ctx = ctx};
    int rc = url.err ? url.err : fetch_start(n->env->fetcher, &o, out);
    buf_fini(&url);
    return rc;
}

/* The begin of an answer that goes into a log line; logs escape what is no text. */
static int shown(struct slice body)
{
    return (int)MIN(body.n, 120);
}

static void next_server(struct nacos *n, uint32_t failed)
{
    if (n->server == failed)
        n->server = (failed + 1) % n->conf->n_servers;
}

/* --- login --- */

static void poll_now(struct nacos_service *s);

static void wake_waiting(struct nacos *n, bool in)
{
    for (uint32_t i = 0; i < n->conf->n_services; i++) {
        struct nacos_service *s = &n->services[i];
        if (!s->waits)
            continue;
        s->waits = false;
        if (in)
            poll_now(s);
        else
            nacos_poll_at(s, loop_now(n->env->loop) + MAX(n->conf->interval_ns, LOGIN_AGAIN_NS));
    }
}

static bool take_token(struct nacos *n, struct slice body)
{
    struct buf token;
    uint64_t ttl_s = 0;

    buf_init(&token, loop_mem(), LOGIN_MAX);
    char *text = report_nacos_read_login(body, &token, &ttl_s) == 0
                     ? mem_strdup(loop_mem(), buf_slice(&token))
                     : NULL;
    buf_fini(&token);
    if (!text)
        return false;
    mem_free(loop_mem(), n->token);
    n->token = text;
    n->logins++;
    if (ttl_s == 0 || ttl_s > UINT64_C(10) * 86400)
        ttl_s = 300;
    /* As Nacos' own clients: a tenth of its life before its end. */
    n->token_until_ns = loop_now(n->env->loop) + ttl_s * NS_PER_S / 10 * 9;
    return true;
}

static bool no_such_call(unsigned status)
{
    return status == 404 || status == 410 || status == 501;
}

static void on_login(void *ctx, const struct fetch_result *r)
{
    struct nacos *n = ctx;

    n->login = NULL;
    bool in = r->error == 0 && r->status == 200 && take_token(n, r->body);
    if (!in) {
        source_failed(n->source, "login at %.*s: %s%.*s", SLICE_ARG(n->servers[n->server].url),
                      r->error ? r->message : "refused: ", r->error ? 0 : shown(r->body),
                      r->body.p ? r->body.p : "");
        if (!r->error && no_such_call(r->status))
            n->login_v3 = !n->login_v3;
        else
            next_server(n, n->server);
    }
    wake_waiting(n, in);
    if (n->push)
        nacos_push_login(n->push, in);
}

bool nacos_needs_login(struct nacos *n)
{
    struct buf form;

    if (!n->conf->username.n || (n->token && loop_now(n->env->loop) < n->token_until_ns))
        return false;
    if (n->login)
        return true;
    /* The old one is not shown to the login. */
    mem_free(loop_mem(), n->token);
    n->token = NULL;
    buf_init(&form, loop_mem(), NACOS_URL_MAX);
    int rc = report_nacos_write_login(&form, n->conf->username, slice_str(n->password));
    if (rc == 0)
        rc = nacos_call(n, "POST", n->login_v3 ? "/v3/auth/user/login" : "/v1/auth/login",
                        buf_slice(&form), on_login, n, &n->login);
    buf_fini(&form);
    if (rc)
        source_failed(n->source, "login cannot be sent: %s", err_text(rc));
    return rc == 0;
}

/* --- lists --- */

static void done_for_now(struct nacos_service *s)
{
    s->tried = 0;
    s->renewed = false;
    if (s->nacos->polls && !s->subscribed)
        nacos_poll_at(s, loop_now(s->nacos->env->loop) + s->nacos->conf->interval_ns);
}

/* A server that fails is not asked again in this poll; the one that answers is asked first from now on. */
static void failed(struct nacos_service *s, uint32_t server, const char *why, struct slice words)
{
    struct nacos *n = s->nacos;

    next_server(n, server);
    if (++s->tried < n->conf->n_servers) {
        poll_now(s);
        return;
    }
    source_failed(n->source, "%.*s at %.*s: %s%.*s", SLICE_ARG(s->grouped),
                  SLICE_ARG(n->servers[server].url), why, shown(words), words.p ? words.p : "");
    done_for_now(s);
}

static void on_list(void *ctx, const struct fetch_result *r)
{
    struct nacos_service *s = ctx;
    struct nacos *n = s->nacos;
    uint32_t server = s->asked;

    s->fetch = NULL;
    if (r->error) {
        failed(s, server, r->message, (struct slice){NULL, 0});
    } else if ((r->status == 401 || r->status == 403) && n->conf->username.n && !s->renewed) {
        s->renewed = true;
        /* Of several that were refused the first asks for a new token. */
        if (s->login == n->logins)
            n->token_until_ns = 0;
        poll_now(s);
    } else if (no_such_call(r->status) && !n->servers[server].v3) {
        n->servers[server].v3 = true;
        poll_now(s);
    } else if (r->status != 200) {
        char why[32];
        (void)snprintf(why, sizeof(why), "status %u: ", r->status);
        n->servers[server].v3 = false;
        failed(s, server, why, r->body);
    } else if (nacos_take_list(s, r->body) != 0) {
        failed(s, server, "this is no list: ", r->body);
    } else {
        done_for_now(s);
    }
}

static void put_if(struct buf *query, const char *name, struct slice value)
{
    if (value.n)
        report_nacos_put_pair(query, name, value);
}

static void poll_now(struct nacos_service *s)
{
    struct nacos *n = s->nacos;
    bool v3 = n->servers[n->server].v3;
    struct buf query;

    if (s->fetch || s->subscribed)
        return;
    if (nacos_needs_login(n)) {
        s->waits = true;
        return;
    }
    s->asked = n->server;
    s->login = n->logins;
    buf_init(&query, loop_mem(), NACOS_URL_MAX);
    report_nacos_put_pair(&query, "serviceName", v3 ? s->name : s->grouped);
    report_nacos_put_pair(&query, "groupName", s->group);
    put_if(&query, "namespaceId", nacos_namespace(n));
    put_if(&query, v3 ? "clusterName" : "clusters", buf_slice(&n->clusters));
    report_nacos_put_pair(&query, "healthyOnly", SLICE("false"));
    nacos_sign(n, s->grouped, &query);
    int rc = query.err
                 ? query.err
                 : nacos_call(n, "GET", v3 ? "/v3/client/ns/instance/list" : "/v1/ns/instance/list",
                              buf_slice(&query), on_list, s, &s->fetch);
    buf_fini(&query);
    if (rc) {
        source_failed(n->source, "%.*s cannot be asked for: %s", SLICE_ARG(s->grouped),
                      err_text(rc));
        done_for_now(s);
    }
}

static void on_poll(struct loop_timer *t)
{
    poll_now(container_of(t, struct nacos_service, poll));
}

void nacos_poll_at(struct nacos_service *s, uint64_t at_ns)
{
    if (!s->fetch && !s->waits)
        loop_timer_set(s->nacos->env->loop, &s->poll, at_ns);
}

void nacos_http_init(struct nacos_service *s)
{
    s->poll.on_timer = on_poll;
}

void nacos_http_fini(struct nacos_service *s)
{
    loop_timer_cancel(&s->poll);
    if (s->fetch)
        fetch_cancel(s->fetch);
    s->fetch = NULL;
    s->waits = s->renewed = false;
    s->tried = 0;
}
