/* SPDX-License-Identifier: Apache-2.0 */
/* The transport boundary, over real sockets on the loopback: the peer is a plain blocking descriptor in the test. */
#include "ct.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "net/conn.h"
#include "net/listener.h"

struct side {
    struct net_conn conn;
    struct loop *loop;
    struct buf got;
    size_t take; /* bytes on_data uses per call; 0 = all */
    unsigned connected, eofs, drained, closed;
    size_t at_eof; /* bytes that had been lent when the last end was told */
    int error;
    bool pause_on_data, close_on_data, stop_on_eof, stop_on_data, stop_on_drained;
};

static size_t on_data(struct net_conn *c, const char *p, size_t n)
{
    struct side *s = container_of(c, struct side, conn);
    size_t used = s->take && s->take < n ? s->take : n;

    buf_put(&s->got, p, used);
    if (s->pause_on_data)
        net_conn_pause(c);
    if (s->close_on_data) {
        net_conn_close(c);
        memset(c, 0xAA, sizeof(*c)); /* the struct may be gone: nobody may look at it */
        loop_stop(s->loop);
    }
    if (s->stop_on_data)
        loop_stop(s->loop);
    return used;
}

static void on_eof(struct net_conn *c)
{
    struct side *s = container_of(c, struct side, conn);

    s->eofs++;
    s->at_eof = buf_len(&s->got);
    if (s->stop_on_eof)
        loop_stop(s->loop);
}

static void on_connected(struct net_conn *c)
{
    container_of(c, struct side, conn)->connected++;
    loop_stop(container_of(c, struct side, conn)->loop);
}

static void on_drained(struct net_conn *c)
{
    struct side *s = container_of(c, struct side, conn);

    s->drained++;
    if (s->stop_on_drained)
        loop_stop(s->loop);
}

static void on_closed(struct net_conn *c, int error)
{
    struct side *s = container_of(c, struct side, conn);

    s->closed++;
    s->error = error;
    loop_stop(s->loop);
}

static const struct net_conn_ops ops = {.on_connected = on_connected,
                                        .on_data = on_data,
                                        .on_eof = on_eof,
                                        .on_drained = on_drained,
                                        .on_closed = on_closed};

/* A connected pair: s->conn on the loop, the returned descriptor in the test's hand. */
static int start(struct side *s, size_t recv_max)
{
    int fds[2];

    *s = (struct side){0};
    assert_int_equal(loop_new(&s->loop), 0);
    buf_init(&s->got, loop_mem(), 64 << 20);
    net_conn_init(&s->conn, &ops, recv_max);
    /* TCP over the loopback, so that RST and FIN are real. */
    struct net_addr any, bound;
    int listener;
    assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &any), 0);
    assert_int_equal(net_listen(&any, false, &listener, &bound), 0);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fds[1], &bound.any, bound.len), 0);
    fds[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fds[0] < 0) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        poll(&p, 1, 5000);
        fds[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    }
    assert_true(fds[0] >= 0);
    close(listener);
    assert_int_equal(net_conn_accept(&s->conn, s->loop, fds[0]), 0);
    return fds[1];
}

static void finish(struct side *s, int peer)
{
    net_conn_close(&s->conn);
    buf_fini(&s->got);
    loop_free(s->loop);
    if (peer >= 0)
        close(peer);
}

static void unused_bytes_are_lent_again_in_front_of_new_ones(void **state)
{
    (void)state;
    struct side s;
    int peer = start(&s, 4096);

    s.take = 3;
    s.stop_on_data = true;
    assert_int_equal(send(peer, "abcdef", 6, 0), 6);
    loop_run(s.loop);
    assert_int_equal(send(peer, "gh", 2, 0), 2);
    loop_run(s.loop);
    assert_int_equal(send(peer, "i", 1, 0), 1);
    loop_run(s.loop);
    assert_int_equal(buf_len(&s.got), 9);
    assert_memory_equal(buf_slice(&s.got).p, "abcdefghi", 9);
    assert_null(s.conn.in.p); /* idle: no buffer kept */
    finish(&s, peer);
}

static size_t use_nothing(struct net_conn *c, const char *p, size_t n)
{
    (void)c, (void)p, (void)n;
    return 0;
}

static void a_full_buffer_without_progress_is_an_error(void **state)
{
    (void)state;
    static const struct net_conn_ops greedy = {
        .on_data = use_nothing, .on_eof = on_eof, .on_drained = on_drained, .on_closed = on_closed};
    struct side s;
    int peer = start(&s, 8);

    s.conn.ops = &greedy;
    assert_int_equal(send(peer, "12345678", 8, 0), 8);
    loop_run(s.loop);
    assert_int_equal(s.closed, 1);
    assert_int_equal(s.error, WEIR_E_FULL);
    finish(&s, peer);
}

static void fin_is_told_while_paused_and_data_comes_after_resume(void **state)
{
    (void)state;
    struct side s;
    int peer = start(&s, 4096);

    net_conn_pause(&s.conn);
    s.stop_on_eof = true;
    assert_int_equal(send(peer, "late", 4, 0), 4);
    shutdown(peer, SHUT_WR);
    loop_run(s.loop);
    assert_int_equal(s.eofs, 1);
    assert_int_equal(buf_len(&s.got), 0);
    net_conn_resume(&s.conn);
    loop_run(s.loop);
    assert_int_equal(buf_len(&s.got), 4);
    assert_memory_equal(buf_slice(&s.got).p, "late", 4);
    /* Told again, now in its place after the bytes. */
    assert_int_equal(s.eofs, 2);
    /* Sending still works after the peer's FIN. */
    char back[3];
    assert_int_equal(net_conn_send_slice(&s.conn, SLICE("ok!")), 0);
    assert_int_equal(recv(peer, back, 3, MSG_WAITALL), 3);
    finish(&s, peer);
}

/* The end arrives with the resume: its event is served before the deferred work that lends what was kept. */
static void kept_bytes_come_before_an_end_that_is_read_with_the_resume(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct side s;
        int peer = start(&s, 4096);

        s.take = 3;
        s.pause_on_data = s.stop_on_data = true;
        assert_int_equal(send(peer, "headkept", 8, 0), 8);
        loop_run(s.loop);
        assert_int_equal(buf_len(&s.got), 3);
        assert_int_equal(buf_len(&s.conn.in), 5);
        s.take = 0;
        s.pause_on_data = s.stop_on_data = false;
        s.stop_on_eof = true;
        if (more)
            assert_int_equal(send(peer, "!", 1, 0), 1);
        shutdown(peer, SHUT_WR);
        net_conn_resume(&s.conn);
        loop_run(s.loop);
        assert_int_equal(s.eofs, 1);
        assert_int_equal(s.at_eof, more ? 9 : 8);
        assert_memory_equal(buf_slice(&s.got).p, "headkept!", s.at_eof);
        finish(&s, peer);
    }
}

static void reset_is_told_in_any_state(void **state)
{
    (void)state;
    for (int paused = 0; paused < 2; paused++) {
        struct side s;
        int peer = start(&s, 4096);
        struct linger reset = {1, 0};

        if (paused)
            net_conn_pause(&s.conn);
        setsockopt(peer, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(peer);
        loop_run(s.loop);
        assert_int_equal(s.closed, 1);
        assert_int_equal(s.error, WEIR_E_CLOSED);
        assert_false(net_conn_open(&s.conn));
        finish(&s, -1);
    }
}

static void closing_inside_a_callback_is_safe(void **state)
{
    (void)state;
    struct side s;
    int peer = start(&s, 4096);

    s.close_on_data = true;
    assert_int_equal(send(peer, "x", 1, 0), 1);
    loop_run(s.loop);
    char b;
    assert_int_equal(recv(peer, &b, 1, 0), 0);
    buf_fini(&s.got);
    loop_free(s.loop);
    close(peer);
}

enum { BIG = 8 << 20 };

static void a_big_send_is_taken_whole_and_drained_in_order(void **state)
{
    (void)state;
    struct side s;
    int peer = start(&s, 4096);
    static char big[BIG];
    static char back[BIG];

    for (size_t i = 0; i < BIG; i++)
        big[i] = (char)(i * 31 >> 3);
    struct iovec parts[2] = {{big, 1000}, {big + 1000, BIG - 1000}};
    assert_int_equal(net_conn_send(&s.conn, parts, 2), 0);
    assert_true(net_conn_queued(&s.conn) > 0);
    net_conn_shutdown(&s.conn);
    s.stop_on_drained = true;
    pid_t reader = fork();
    if (reader == 0) {
        size_t at = 0;
        ssize_t n;
        while ((n = recv(peer, back + at, BIG - at, 0)) > 0)
            at += (size_t)n;
        _exit(at == BIG && recv(peer, back, 1, 0) == 0 && memcmp(big, back, BIG) == 0 ? 0 : 1);
    }
    loop_run(s.loop);
    assert_int_equal(s.drained, 1);
    assert_int_equal(net_conn_queued(&s.conn), 0);
    assert_null(s.conn.out.p);
    int status;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
    finish(&s, peer);
}

static void connecting_to_nobody_is_refused_from_the_loop(void **state)
{
    (void)state;
    struct side s = {0};
    struct net_addr bound = {.len = net_addr_room()};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    /* A port that nobody else gets meanwhile, and nobody listens on. */
    assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &bound), 0);
    assert_int_equal(bind(fd, &bound.any, bound.len), 0);
    bound.len = net_addr_room();
    assert_int_equal(getsockname(fd, &bound.any, &bound.len), 0);
    assert_int_equal(loop_new(&s.loop), 0);
    buf_init(&s.got, loop_mem(), 16);
    net_conn_init(&s.conn, &ops, 16);
    assert_int_equal(net_conn_connect(&s.conn, s.loop, &bound, 60 * NS_PER_S), 0);
    assert_int_equal(s.closed, 0);
    loop_run(s.loop);
    assert_int_equal(s.closed, 1);
    assert_int_equal(s.error, WEIR_E_REFUSED);
    finish(&s, -1);
    close(fd);
}

static void an_early_answer_is_read_though_the_peer_takes_no_more(void **state)
{
    (void)state;
    struct side s;
    int peer = start(&s, 4096);

    /* The peer answers, and closes with our bytes unread: RST follows its answer. */
    assert_int_equal(net_conn_send_slice(&s.conn, SLICE("request")), 0);
    assert_int_equal(send(peer, "413", 3, 0), 3);
    close(peer);
    struct pollfd p = {.fd = s.conn.watch.fd, .events = 0};
    poll(&p, 1, 5000);
    while (net_conn_send_slice(&s.conn, SLICE("more")) == 0)
        ;
    loop_run(s.loop);
    assert_int_equal(s.closed, 1);
    assert_int_equal(buf_len(&s.got), 3);
    assert_memory_equal(buf_slice(&s.got).p, "413", 3);
    finish(&s, -1);
}

struct client {
    int fd;
    struct loop *loop;
    bool answered;
};

/* Reads the answer to its end, only then closes: a reset would show as an error. */
static void *read_answer(void *arg)
{
    struct client *c = arg;
    char back[8];

    c->answered = recv(c->fd, back, sizeof(back), MSG_WAITALL) == 2 && memcmp(back, "no", 2) == 0;
    close(c->fd);
    loop_stop(c->loop);
    return NULL;
}

static void lingering_delivers_the_answer_past_unread_bytes(void **state)
{
    (void)state;
    struct side s;
    struct client c = {.fd = start(&s, 4096)};
    static char junk[100000];
    pthread_t thread;

    c.loop = s.loop;
    assert_int_equal(send(c.fd, junk, sizeof(junk), 0), sizeof(junk));
    assert_int_equal(net_conn_send_slice(&s.conn, SLICE("no")), 0);
    net_conn_linger(&s.conn);
    assert_false(net_conn_open(&s.conn));
    assert_int_equal(pthread_create(&thread, NULL, read_answer, &c), 0);
    loop_run(s.loop);
    pthread_join(thread, NULL);
    assert_true(c.answered);
    finish(&s, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_bytes_are_lent_again_in_front_of_new_ones),
        cmocka_unit_test(a_full_buffer_without_progress_is_an_error),
        cmocka_unit_test(fin_is_told_while_paused_and_data_comes_after_resume),
        cmocka_unit_test(kept_bytes_come_before_an_end_that_is_read_with_the_resume),
        cmocka_unit_test(reset_is_told_in_any_state),
        cmocka_unit_test(closing_inside_a_callback_is_safe),
        cmocka_unit_test(a_big_send_is_taken_whole_and_drained_in_order),
        cmocka_unit_test(connecting_to_nobody_is_refused_from_the_loop),
        cmocka_unit_test(an_early_answer_is_read_though_the_peer_takes_no_more),
        cmocka_unit_test(lingering_delivers_the_answer_past_unread_bytes),
    };
    return cmocka_run_group_tests_name("conn", tests, NULL, NULL);
}
