/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl's socket interface: it says which descriptors and which timeout it wants watched, the loop tells it what happened. */
#include "net/fetch.h"

#include <curl/curl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "wire/url.h"

struct fetcher {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer timer;
    struct list fetches;
    struct list watches;
    uint32_t n, peak; /* under way; the most since they were few */
};

/* Bytes of libcurl's buffer where little is expected, and how many at once are a burst. */
enum { BRIEF_BYTES = 2048, BURST = 256 };

struct fetch {
    struct fetcher *fetcher;
    struct list node;
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    struct buf body; /* of the answer */
    struct buf sent; /* the request's own body */
    uint64_t started_ns;
    bool counted;
    fetch_done_fn done;
    int (*on_data)(void *ctx, struct slice piece);
    void *ctx;
    char error[CURL_ERROR_SIZE];
};

struct socket_watch {
    struct loop_watch watch;
    struct list node;
    struct fetcher *fetcher;
};

/* A burst, such as the first checks of a large fleet, leaves a heap full of holes: its pages go back. */
static void after_burst(struct fetcher *f)
{
    if (f->peak < BURST || f->n > f->peak / 8)
        return;
    f->peak = f->n;
    loop_mem_trim();
}

static void dispose(struct fetch *t)
{
    struct fetcher *f = t->fetcher;

    curl_multi_remove_handle(t->fetcher->multi, t->easy);
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    curl_slist_free_all(t->connect_to);
    buf_fini(&t->body);
    buf_fini(&t->sent);
    list_del(&t->node);
    f->n -= t->counted;
    mem_free(loop_mem(), t);
    after_burst(f);
}

static int error_of(CURLcode code, const struct fetch *t)
{
    if (t->body.err == WEIR_E_FULL)
        return WEIR_E_FULL;
    if (code == CURLE_OK)
        return 0;
    if (code == CURLE_COULDNT_CONNECT)
        return WEIR_E_REFUSED;
    return code == CURLE_OPERATION_TIMEDOUT ? WEIR_E_TIMEOUT : WEIR_E_IO;
}

static void collect(struct fetcher *f)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(f->multi, &left))) {
        struct fetch *t;
        long status = 0;
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode code = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        struct fetch_result r = {
            .error = error_of(code, t),
            .status = (unsigned)status,
            .body = buf_slice(&t->body),
            .elapsed_ns = loop_clock() - t->started_ns,
            .fetch = t,
        };
        r.message = !r.error ? "ok" : t->error[0] ? t->error : curl_easy_strerror(code);
        if (r.error == WEIR_E_FULL)
            r.message = "answer too large";
        /* done may start or cancel other fetches, but this one is over: out of the list before the call. */
        list_del(&t->node);
        curl_multi_remove_handle(f->multi, t->easy);
        t->done(t->ctx, &r);
        dispose(t);
    }
}

static void on_timer(struct loop_timer *timer)
{
    struct fetcher *f = container_of(timer, struct fetcher, timer);
    int running;

    curl_multi_socket_action(f->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(f);
}

static int set_timeout(CURLM *multi, long timeout_ms, void *ctx)
{
    struct fetcher *f = ctx;

    (void)multi;
    if (timeout_ms < 0)
        loop_timer_cancel(&f->timer);
    else
        loop_timer_set(f->loop, &f->timer,
                       timeout_ms ? loop_now(f->loop) + (uint64_t)timeout_ms * NS_PER_MS : 0);
    return 0;
}

static void on_event(struct loop_watch *w, uint32_t events)
{
    struct fetcher *f = container_of(w, struct socket_watch, watch)->fetcher;
    int flags = (events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    int running;

    curl_multi_socket_action(f->multi, w->fd, flags, &running);
    collect(f);
}

static void drop_watch(struct fetcher *f, struct socket_watch *w)
{
    loop_unwatch(&w->watch);
    list_del(&w->node);
    mem_free(loop_mem(), w);
    (void)f;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
    struct fetcher *f = ctx;
    struct socket_watch *w = socket_ctx;
    uint32_t mask = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (w)
            drop_watch(f, w);
        curl_multi_assign(f->multi, fd, NULL);
        return 0;
    }
    if (w && w->watch.loop)
        return loop_rewatch(&w->watch, mask) == 0 ? 0 : -1;
    if (w)
        return loop_watch(f->loop, &w->watch, mask) == 0 ? 0 : -1;
    w = mem_zalloc(loop_mem(), sizeof(*w));
    if (!w)
        return -1;
    w->fetcher = f;
    w->watch.fd = fd;
    w->watch.on_event = on_event;
    list_add(&f->watches, &w->node);
    if (loop_watch(f->loop, &w->watch, mask) != 0) {
        drop_watch(f, w);
        return -1;
    }
    curl_multi_assign(f->multi, fd, w);
    return 0;
}

/*
 * libcurl may close a socket first and tell on_socket() later. By then its number can be another thread's connection, or a
 * new one of libcurl's own: so the loop lets go of it here.
 */
static int on_close(void *ctx, curl_socket_t fd)
{
    struct fetcher *f = ctx;

    weir_list_foreach (at, &f->watches) {
        struct socket_watch *w = container_of(at, struct socket_watch, node);
        if (w->watch.fd == fd)
            loop_unwatch(&w->watch);
    }
    return close(fd);
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct fetch *t = ctx;
    long status = 0;

    if (t->on_data) {
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
        if (status == 200)
            return t->on_data(t->ctx, slice_of(p, size * n)) == 0 ? size * n : 0;
    }
    return buf_put(&t->body, p, size * n) == 0 ? size * n : 0;
}

int fetcher_new(struct loop *loop, struct fetcher **out)
{
    static bool once;
    struct fetcher *f = mem_zalloc(loop_mem(), sizeof(*f));

    if (!f)
        return WEIR_E_NOMEM;
    /* Not thread-safe by its contract: fetchers are made while the process has one thread. */
    if (!once && curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
        mem_free(loop_mem(), f);
        return WEIR_E_IO;
    }
    once = true;
    f->multi = curl_multi_init();
    if (!f->multi) {
        mem_free(loop_mem(), f);
        return WEIR_E_NOMEM;
    }
    f->loop = loop;
    f->timer.on_timer = on_timer;
    list_init(&f->fetches);
    list_init(&f->watches);
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(f->multi, CURLMOPT_SOCKETDATA, f);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERFUNCTION, set_timeout);
    curl_multi_setopt(f->multi, CURLMOPT_TIMERDATA, f);
    *out = f;
    return 0;
}

void fetcher_free(struct fetcher *f)
{
    if (!f)
        return;
    while (!list_empty(&f->fetches))
        dispose(container_of(f->fetches.next, struct fetch, node));
    curl_multi_cleanup(f->multi);
    while (!list_empty(&f->watches))
        drop_watch(f, container_of(f->watches.next, struct socket_watch, node));
    loop_timer_cancel(&f->timer);
    mem_free(loop_mem(), f);
}

static int add_header(struct fetch *t, const char *name, const char *value)
{
    struct buf line;

    buf_init(&line, loop_mem(), 8192);
    buf_put_str(&line, name);
    buf_put_str(&line, value);
    buf_put_char(&line, '\0');
    struct curl_slist *more = line.err ? NULL : curl_slist_append(t->headers, buf_slice(&line).p);
    buf_fini(&line);
    if (!more)
        return WEIR_E_NOMEM;
    t->headers = more;
    return 0;
}

static int set_headers(struct fetch *t, const struct fetch_options *o)
{
    /* No Expect: 100-continue, and no header injection by a token with a line end in it. */
    int rc = add_header(t, "Expect:", "");

    if (!rc && o->content_type)
        rc = add_header(t, "Content-Type: ", o->content_type);
    if (!rc && o->accept)
        rc = add_header(t, "Accept: ", o->accept);
    if (!rc && o->bearer)
        rc = strpbrk(o->bearer, "\r\n") ? WEIR_E_INVALID
                                        : add_header(t, "Authorization: Bearer ", o->bearer);
    if (!rc && o->authorization)
        rc = strpbrk(o->authorization, "\r\n") ? WEIR_E_INVALID
                                               : add_header(t, "Authorization: ", o->authorization);
    return rc;
}

/* Another name is asked for, and has to be shown, than the host that is connected. */
static int rename_server(struct fetch *t, const char *text, const char *name)
{
    struct url url;
    struct buf to;

    if (wire_url_parse(slice_str(text), &url) != 0)
        return WEIR_E_INVALID;
    bool v6 = slice_find(url.host, ':') < url.host.n;
    buf_init(&to, loop_mem(), 16384);
    buf_put_str(&to, v6 ? "::[" : "::");
    buf_put_slice(&to, url.host);
    buf_put_str(&to, v6 ? "]:" : ":");
    buf_put_u64(&to, url.port);
    buf_put_char(&to, '\0');
    t->connect_to = to.err ? NULL : curl_slist_append(NULL, buf_slice(&to).p);
    buf_clear(&to);
    buf_put_str(&to, "https://");
    buf_put_str(&to, name);
    buf_put_char(&to, ':');
    buf_put_u64(&to, url.port);
    buf_put_slice(&to, url.path);
    if (url.query.p) {
        buf_put_char(&to, '?');
        buf_put_slice(&to, url.query);
    }
    buf_put_char(&to, '\0');
    int rc = t->connect_to && !to.err ? 0 : WEIR_E_NOMEM;
    if (rc == 0) {
        curl_easy_setopt(t->easy, CURLOPT_CONNECT_TO, t->connect_to);
        curl_easy_setopt(t->easy, CURLOPT_URL, buf_slice(&to).p);
    }
    buf_fini(&to);
    return rc;
}

static void set_pem(struct fetch *t, CURLoption option, struct slice pem)
{
    struct curl_blob blob = {
        .data = (void *)(uintptr_t)pem.p, .len = pem.n, .flags = CURL_BLOB_COPY};

    if (pem.p)
        curl_easy_setopt(t->easy, option, &blob);
}

static int set_tls(struct fetch *t, const struct fetch_options *o)
{
    const struct fetch_tls *tls = o->tls;

    curl_easy_setopt(t->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (!tls || strncmp(o->url, "https:", 6) != 0)
        return 0;
    set_pem(t, CURLOPT_CAINFO_BLOB, tls->ca_pem);
    set_pem(t, CURLOPT_SSLCERT_BLOB, tls->cert_pem);
    set_pem(t, CURLOPT_SSLKEY_BLOB, tls->key_pem);
    if (tls->ca && !tls->ca_pem.p) {
        curl_easy_setopt(t->easy, CURLOPT_CAINFO, tls->ca);
        /* It can be replaced on disk. */
        curl_easy_setopt(t->easy, CURLOPT_CA_CACHE_TIMEOUT, 60L);
    }
    if (tls->cert && !tls->cert_pem.p)
        curl_easy_setopt(t->easy, CURLOPT_SSLCERT, tls->cert);
    if (tls->key && !tls->key_pem.p)
        curl_easy_setopt(t->easy, CURLOPT_SSLKEY, tls->key);
    if (tls->insecure_skip_verify) {
        curl_easy_setopt(t->easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(t->easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    return tls->server_name ? rename_server(t, o->url, tls->server_name) : 0;
}

int fetch_start(struct fetcher *f, const struct fetch_options *o, struct fetch **out)
{
    struct fetch *t = mem_zalloc(loop_mem(), sizeof(*t));

    if (!t)
        return WEIR_E_NOMEM;
    t->fetcher = f;
    t->done = o->done;
    t->on_data = o->on_data;
    t->ctx = o->ctx;
    t->started_ns = loop_clock();
    list_init(&t->node);
    buf_init(&t->body, loop_mem(), o->body_max);
    buf_init(&t->sent, loop_mem(), o->body.n);
    t->easy = curl_easy_init();
    if (!t->easy || buf_put_slice(&t->sent, o->body) != 0 || set_headers(t, o) != 0) {
        dispose(t);
        return WEIR_E_NOMEM;
    }
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    curl_easy_setopt(t->easy, CURLOPT_CLOSESOCKETDATA, f);
    curl_easy_setopt(t->easy, CURLOPT_URL, o->url);
    if (o->unix_path)
        curl_easy_setopt(t->easy, CURLOPT_UNIX_SOCKET_PATH, o->unix_path);
    int rc = set_tls(t, o);
    if (rc) {
        dispose(t);
        return rc;
    }
    curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, o->method);
    curl_easy_setopt(t->easy, CURLOPT_NOBODY, strcmp(o->method, "HEAD") == 0 ? 1L : 0L);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    if (o->brief)
        curl_easy_setopt(t->easy, CURLOPT_BUFFERSIZE, (long)BRIEF_BYTES);
    /* Most hosts are addresses; a cache of thousands of them is walked whole at each connection. */
    curl_easy_setopt(t->easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)(o->timeout_ns / NS_PER_MS));
    if (o->connect_ns)
        curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(o->connect_ns / NS_PER_MS));
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPIDLE, 15L);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPINTVL, 5L);
    curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    if (o->body.p) {
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)o->body.n);
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, buf_slice(&t->sent).p);
    }
    list_add(&f->fetches, &t->node);
    t->counted = true;
    f->peak = MAX(f->peak, ++f->n);
    if (curl_multi_add_handle(f->multi, t->easy) != CURLM_OK) {
        dispose(t);
        return WEIR_E_IO;
    }
    if (out)
        *out = t;
    return 0;
}

void fetch_cancel(struct fetch *t)
{
    dispose(t);
}

struct slice fetch_header(const struct fetch_result *r, const char *name)
{
    struct curl_header *h;

    return curl_easy_header(r->fetch->easy, name, 0, CURLH_HEADER, -1, &h) == CURLHE_OK
               ? slice_str(h->value)
               : (struct slice){NULL, 0};
}
