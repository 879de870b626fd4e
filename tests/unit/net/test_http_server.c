/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "net/fetch.h"
#include "net/http_server.h"

struct site {
    struct loop *loop;
    struct http_server *server;
    struct net_addr addr;
    struct http_request *held;
    unsigned requests, gone;
};

static void on_gone(struct http_request *r)
{
    struct site *s = r->user;

    s->gone++;
    s->held = NULL;
    loop_stop(s->loop);
}

/* /echo answers the body, /hold waits, /stream streams three pieces. */
static void handle(void *ctx, struct http_request *r)
{
    struct site *s = ctx;

    s->requests++;
    if (slice_eq(r->path, SLICE("/echo"))) {
        http_reply(r, 200, "text/plain", r->body);
    } else if (slice_eq(r->path, SLICE("/stream"))) {
        http_stream_begin(r, 200, "text/event-stream", SLICE("X-Extra: 1\r\n"));
        http_stream_write(r, SLICE("one\n"));
        http_stream_write(r, SLICE("two\n"));
        http_stream_end(r);
    } else {
        r->user = s;
        r->on_gone = on_gone;
        s->held = r;
    }
}

static void start(struct site *s)
{
    struct http_server_options o = {.body_max = 1000,
                                    .connections_max = 10,
                                    .idle_ns = 600 * NS_PER_S,
                                    .handler = handle,
                                    .ctx = s};

    *s = (struct site){0};
    assert_int_equal(loop_new(&s->loop), 0);
    assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &o.addr), 0);
    assert_int_equal(http_server_start(s->loop, &o, &s->server, &s->addr), 0);
}

static void stop(struct site *s)
{
    http_server_stop(s->server);
    loop_free(s->loop);
}

struct talk {
    struct site *site;
    const char *say;
    size_t piece; /* bytes per send; 0 = all */
    char got[8192];
    size_t n;
    bool close_early;
};

static void *client(void *arg)
{
    struct talk *t = arg;
    size_t len = strlen(t->say);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (connect(fd, &t->site->addr.any, t->site->addr.len) == 0) {
        for (size_t at = 0; at < len;) {
            size_t n = t->piece ? MIN(t->piece, len - at) : len;
            if (send(fd, t->say + at, n, MSG_NOSIGNAL) < 0)
                break;
            at += n;
        }
        ssize_t n;
        while (!t->close_early && (n = recv(fd, t->got + t->n, sizeof(t->got) - 1 - t->n, 0)) > 0)
            t->n += (size_t)n;
    }
    close(fd);
    if (!t->close_early)
        loop_stop(t->site->loop);
    return NULL;
}

static void converse(struct talk *t)
{
    pthread_t thread;

    t->n = 0;
    memset(t->got, 0, sizeof(t->got));
    assert_int_equal(pthread_create(&thread, NULL, client, t), 0);
    loop_run(t->site->loop);
    pthread_join(thread, NULL);
}

static void pipelined_requests_are_answered_in_order_at_any_cut(void **state)
{
    (void)state;
    struct site s;
    start(&s);
    for (size_t piece = 0; piece < 40; piece += piece < 5 ? 1 : 7) {
        struct talk t = {.site = &s,
                         .piece = piece,
                         .say = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
                                "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                                "chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
                                "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: "
                                "close\r\nContent-Length: 1\r\n\r\ng"};
        converse(&t);
        assert_string_equal(
            t.got, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc"
                   "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\ndef"
                   "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"
                   "Content-Length: 1\r\n\r\ng");
    }
    stop(&s);
}

static void streams_are_chunked_or_closed_by_version(void **state)
{
    (void)state;
    struct site s;
    start(&s);
    struct talk t = {.site = &s,
                     .say = "GET /stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"};
    converse(&t);
    assert_string_equal(t.got,
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Extra: 1\r\n"
                        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                        "4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n");
    t.say = "GET /stream HTTP/1.0\r\n\r\n";
    converse(&t);
    assert_string_equal(t.got,
                        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Extra: 1\r\n"
                        "Connection: close\r\n\r\none\ntwo\n");
    stop(&s);
}

static int half_a_request(const struct site *s)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, &s->addr.any, s->addr.len), 0);
    assert_int_equal(send(fd, "GET /echo HTTP/1.1\r\nA: ", 23, 0), 23);
    return fd;
}

static void heads_that_never_end_keep_nobody_out(void **state)
{
    (void)state;
    struct site s;
    char byte;
    int slow[25];
    start(&s);
    for (size_t i = 0; i < ARRAY_LEN(slow); i++)
        slow[i] = half_a_request(&s);
    struct talk t = {.site = &s,
                     .say = "POST /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                            "Content-Length: 1\r\n\r\ng"};
    converse(&t);
    assert_true(strncmp(t.got, "HTTP/1.1 200 ", 13) == 0);
    /* Ten of them are left, the youngest, or one less for who was answered. */
    for (size_t i = 0; i < 15; i++)
        assert_true(recv(slow[i], &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET);
    for (size_t i = 16; i < ARRAY_LEN(slow); i++) {
        assert_int_equal(recv(slow[i], &byte, 1, MSG_DONTWAIT), -1);
        assert_int_equal(errno, EAGAIN);
    }
    for (size_t i = 0; i < ARRAY_LEN(slow); i++)
        close(slow[i]);
    stop(&s);
}

static void bad_input_is_answered_and_closed(void **state)
{
    (void)state;
    struct site s;
    start(&s);
    const struct {
        const char *say, *answer;
    } cases[] = {
        {"GET /echo HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
        {"nonsense\r\n\r\n", "HTTP/1.1 400 "},
        {"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", "HTTP/1.1 413 "},
        {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
         "HTTP/1.1 400 "},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct talk t = {.site = &s, .say = cases[i].say};
        converse(&t);
        assert_memory_equal(t.got, cases[i].answer, strlen(cases[i].answer));
    }
    assert_int_equal(s.requests, 0);
    stop(&s);
}

static void a_client_that_leaves_is_told_once(void **state)
{
    (void)state;
    struct site s;
    start(&s);
    struct talk t = {
        .site = &s, .close_early = true, .say = "GET /hold HTTP/1.1\r\nHost: h\r\n\r\n"};
    converse(&t);
    assert_int_equal(s.requests, 1);
    assert_int_equal(s.gone, 1);
    assert_null(s.held);
    stop(&s);
    assert_int_equal(s.gone, 1);
}

struct fetched {
    struct loop *loop;
    int error;
    unsigned status, calls;
    char body[64];
};

static void on_fetched(void *ctx, const struct fetch_result *r)
{
    struct fetched *f = ctx;

    f->calls++;
    f->error = r->error;
    f->status = r->status;
    memcpy(f->body, r->body.p, MIN(r->body.n, sizeof(f->body) - 1));
    loop_stop(f->loop);
}

static void fetch_talks_to_the_server_on_one_loop(void **state)
{
    (void)state;
    struct site s;
    struct fetcher *f;
    char url[256], text[NET_ADDR_TEXT];
    start(&s);
    assert_int_equal(fetcher_new(s.loop, &f), 0);
    struct fetched got = {.loop = s.loop};
    snprintf(url, sizeof(url), "http://%s/echo", net_addr_text(&s.addr, text));
    struct fetch_options o = {.method = "PUT",
                              .url = url,
                              .body = SLICE("hello"),
                              .content_type = "text/plain",
                              .timeout_ns = 60 * NS_PER_S,
                              .body_max = 100,
                              .done = on_fetched,
                              .ctx = &got};
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(fetch_start(f, &o, NULL), 0);
        loop_run(s.loop);
        assert_int_equal(got.calls, i);
        assert_int_equal(got.error, 0);
        assert_int_equal(got.status, 200);
        assert_string_equal(got.body, "hello");
    }
    o.body_max = 4;
    assert_int_equal(fetch_start(f, &o, NULL), 0);
    loop_run(s.loop);
    assert_int_equal(got.error, WEIR_E_FULL);
    /* Cancelled: no callback ever, and the server sees the connection go. */
    snprintf(url, sizeof(url), "http://%s/hold", text);
    o.method = "GET";
    o.body = (struct slice){NULL, 0};
    struct fetch *t;
    assert_int_equal(fetch_start(f, &o, &t), 0);
    fetch_cancel(t);
    o.timeout_ns = 20 * NS_PER_MS;
    assert_int_equal(fetch_start(f, &o, NULL), 0);
    loop_run(s.loop);
    assert_int_equal(got.calls, 5);
    assert_int_equal(got.error, WEIR_E_TIMEOUT);
    fetcher_free(f);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelined_requests_are_answered_in_order_at_any_cut),
        cmocka_unit_test(streams_are_chunked_or_closed_by_version),
        cmocka_unit_test(heads_that_never_end_keep_nobody_out),
        cmocka_unit_test(bad_input_is_answered_and_closed),
        cmocka_unit_test(a_client_that_leaves_is_told_once),
        cmocka_unit_test(fetch_talks_to_the_server_on_one_loop),
    };
    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}
