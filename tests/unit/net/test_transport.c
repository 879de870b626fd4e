/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite of the transport boundary (net/conn.h): every property over every transport in the table below.
 * A pair is two connections of Weir's on one loop. To try another transport, add a row.
 */
#include "ct.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "base/prng.h"
#include "loop/alloc.h"
#include "net/conn.h"
#include "net/listener.h"
#include "net/tls.h"
#include "tls_files.h"

enum { BIG = 10 << 20, SETTLE_TURNS = 64, MASK_RECV_MAX = 65536 };

struct rig;

/* One side, with all that was told to it. */
struct end {
    struct net_conn conn;
    struct rig *rig;
    struct end *other;
    struct buf got;
    size_t take; /* most bytes that on_data uses in a call; 0 = all */
    bool random; /* or any number, and pauses in between */
    bool reply;  /* whatever comes is sent back */
    bool close_on_data;
    unsigned connected, eofs, drained, closed;
    int error;
    struct prng prng;
    struct loop_timer resume;
};

struct rig {
    struct loop *loop;
    struct end a, b; /* a was connected, b accepted */
    struct net_listener listener;
    struct net_unix_file file;
    struct net_tls_peer peer;
    bool (*until)(struct rig *r); /* the loop stops when it says so */
    struct loop_timer turn;
    unsigned turns;
};

struct transport {
    const char *name;
    bool local; /* a Unix socket: closing never resets */
    bool tls;
    bool swapped; /* what is under test is the side that was connected */
};

static const struct transport transports[] = {
    {.name = "tcp"},
    {.name = "unix", .local = true},
    {.name = "tls", .tls = true},
    {.name = "tls client", .tls = true, .swapped = true},
    {.name = "tls over unix", .tls = true, .local = true},
};

static struct tls_files files;
static struct net_tls_context *server_tls, *client_tls;

static void check(struct rig *r)
{
    if (r->until && r->until(r))
        loop_stop(r->loop);
}

static void on_resume(struct loop_timer *t)
{
    net_conn_resume(&container_of(t, struct end, resume)->conn);
}

static size_t on_data(struct net_conn *c, const char *p, size_t n)
{
    struct end *e = container_of(c, struct end, conn);
    size_t used = e->take ? MIN(e->take, n) : n;

    if (e->close_on_data) {
        net_conn_close(c);
        memset(c, 0xAA, sizeof(*c)); /* the struct may be gone: nobody may look at it */
        loop_stop(e->rig->loop);
        return used;
    }
    if (e->random) {
        used = prng_next(&e->prng) % (n + 1);
        if (prng_next(&e->prng) % 4 == 0 || used < n) { /* what is left is lent again at resume */
            net_conn_pause(c);
            loop_timer_set(e->rig->loop, &e->resume, 0);
        }
    }
    buf_put(&e->got, p, used);
    if (e->reply)
        (void)net_conn_send_slice(c, slice_of(p, used));
    check(e->rig);
    return used;
}

static void on_eof(struct net_conn *c)
{
    struct end *e = container_of(c, struct end, conn);

    e->eofs++;
    check(e->rig);
}

static void on_connected(struct net_conn *c)
{
    struct end *e = container_of(c, struct end, conn);

    e->connected++;
    check(e->rig);
}

static void on_drained(struct net_conn *c)
{
    struct end *e = container_of(c, struct end, conn);

    e->drained++;
    check(e->rig);
}

static void on_closed(struct net_conn *c, int error)
{
    struct end *e = container_of(c, struct end, conn);

    e->closed++;
    e->error = error;
    check(e->rig);
}

static const struct net_conn_ops ops = {.on_connected = on_connected,
                                        .on_data = on_data,
                                        .on_eof = on_eof,
                                        .on_drained = on_drained,
                                        .on_closed = on_closed};

/* Run until it is so. A property that does not come true hangs, and the runner's limit ends it. */
static void run(struct rig *r, bool (*until)(struct rig *r))
{
    r->until = until;
    if (!until(r))
        loop_run(r->loop);
    r->until = NULL;
}

static void on_turn(struct loop_timer *t)
{
    struct rig *r = container_of(t, struct rig, turn);

    if (++r->turns == SETTLE_TURNS)
        loop_stop(r->loop);
    else
        loop_timer_set(r->loop, t, 0);
}

/*
 * Turn the loop often enough for all that has arrived; for what must not happen. What must happen is waited for: it may
 * still be on its way, the kernel delivers on a thread of its own where it is busy.
 */
static void settle(struct rig *r)
{
    r->turns = 0;
    loop_timer_set(r->loop, &r->turn, 0);
    loop_run(r->loop);
}

static void end_init(struct rig *r, struct end *e, struct end *other)
{
    *e = (struct end){.rig = r, .other = other, .prng = {.state = 7}};
    e->resume.on_timer = on_resume;
    buf_init(&e->got, loop_mem(), 64 << 20);
    net_conn_init(&e->conn, &ops, MASK_RECV_MAX);
}

static void on_accept(struct net_listener *l, int fd, const struct net_addr *peer)
{
    struct rig *r = container_of(l, struct rig, listener);

    (void)peer;
    assert_int_equal(net_conn_accept(&r->b.conn, r->loop, fd), 0);
    net_listener_stop(l);
    check(r);
}

static const struct transport *under_test;

static void listen_on(struct rig *r, struct net_addr *bound)
{
    struct net_unix_rights rights = {.mode = 0600, .uid = (uid_t)-1, .gid = (gid_t)-1};
    struct net_addr any;
    int fd;

    if (under_test->local) {
        assert_int_equal(net_addr_literal(slice_str(tls_path(&files, "s")), 0, bound), 0);
        assert_int_equal(net_listen_unix(bound, &rights, &fd, &r->file), 0);
    } else {
        assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &any), 0);
        assert_int_equal(net_listen(&any, false, &fd, bound), 0);
    }
    r->listener.addr = *bound;
    r->listener.on_accept = on_accept;
    assert_int_equal(net_listener_start(&r->listener, r->loop, fd), 0);
}

/* Connecting has begun, and nothing more. @return the side under test. */
static struct end *begin(struct rig *r)
{
    struct net_addr bound;

    *r = (struct rig){.peer = {.host = SLICE("weir.test")}};
    r->turn.on_timer = on_turn;
    assert_int_equal(loop_new(&r->loop), 0);
    end_init(r, &r->a, &r->b);
    end_init(r, &r->b, &r->a);
    listen_on(r, &bound);
    if (under_test->tls) {
        assert_int_equal(net_conn_tls(&r->a.conn, client_tls, &r->peer), 0);
        assert_int_equal(net_conn_tls(&r->b.conn, server_tls, NULL), 0);
    }
    assert_int_equal(net_conn_connect(&r->a.conn, r->loop, &bound, 60 * NS_PER_S), 0);
    return under_test->swapped ? &r->a : &r->b;
}

static bool both_stand(struct rig *r)
{
    return r->a.connected && net_conn_open(&r->b.conn) && !r->b.conn.connecting;
}

static struct end *start(struct rig *r)
{
    struct end *e = begin(r);

    /* The accepting side is told nothing: turn until it stands too. */
    while (!both_stand(r))
        settle(r);
    return e;
}

static void finish(struct rig *r)
{
    loop_timer_cancel(&r->a.resume);
    loop_timer_cancel(&r->b.resume);
    net_conn_close(&r->a.conn);
    net_conn_close(&r->b.conn);
    net_listener_stop(&r->listener);
    net_unix_remove(&r->file);
    buf_fini(&r->a.got);
    buf_fini(&r->b.got);
    loop_free(r->loop);
    net_tls_peer_fini(&r->peer);
}

/* Until this side has so many bytes; then what must not come has its chance. */
static void until_got(struct rig *r, const struct end *e, size_t n)
{
    while (buf_len(&e->got) < n)
        settle(r);
    settle(r);
}

#define FOR_EACH_TRANSPORT(...)                                                                    \
    for (size_t t_ = 0; t_ < ARRAY_LEN(transports); t_++) {                                        \
        under_test = &transports[t_];                                                              \
        print_message("# %s\n", under_test->name);                                                 \
        struct rig r;                                                                              \
        __VA_ARGS__                                                                                \
        finish(&r);                                                                                \
    }

static bool got_9(struct rig *r)
{
    return buf_len(&r->a.got) + buf_len(&r->b.got) == 9;
}

static void bytes_come_in_order_and_unused_ones_are_lent_again(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        e->take = 3;
        assert_int_equal(net_conn_send_slice(&e->other->conn, SLICE("abcdefgh")), 0);
        until_got(&r, e, 3);
        assert_memory_equal(buf_slice(&e->got).p, "abc", 3);
        assert_int_equal(buf_len(&e->got), 3); /* the rest waits for news */
        assert_int_equal(net_conn_send_slice(&e->other->conn, SLICE("i")), 0);
        until_got(&r, e, 6);
        assert_int_equal(buf_len(&e->got), 6);
        net_conn_pause(&e->conn);
        net_conn_resume(&e->conn);
        run(&r, got_9);
        assert_memory_equal(buf_slice(&e->got).p, "abcdefghi", 9);
        settle(&r);
        assert_null(e->conn.in.p); /* idle: no buffer kept */
        assert_null(e->conn.out.p);
        assert_int_equal(e->closed + e->eofs + e->drained, 0);
    })
}

static void parts_are_one_stream(void **state)
{
    (void)state;
    static char big[40000];
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (char)(i * 7 >> 2);
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        struct iovec parts[5] = {{(void *)(uintptr_t) "head", 4},
                                 {big, sizeof(big)},
                                 {NULL, 0},
                                 {(void *)(uintptr_t) "\r\n", 2},
                                 {big, 17}};
        assert_int_equal(net_conn_send(&e->conn, parts, 5), 0);
        while (buf_len(&e->other->got) < 4 + sizeof(big) + 2 + 17)
            settle(&r);
        const char *p = buf_slice(&e->other->got).p;
        assert_int_equal(buf_len(&e->other->got), 4 + sizeof(big) + 2 + 17);
        assert_memory_equal(p, "head", 4);
        assert_memory_equal(p + 4, big, sizeof(big));
        assert_memory_equal(p + 4 + sizeof(big), "\r\n", 2);
        assert_memory_equal(p + 4 + sizeof(big) + 2, big, 17);
    })
}

static bool both_got_big(struct rig *r)
{
    return buf_len(&r->a.got) >= BIG && buf_len(&r->b.got) >= BIG;
}

/* Both ways at one time, pieces of any size, receivers that use any part of what they get and pause at will. */
static void ten_megabytes_each_way_are_byte_exact(void **state)
{
    (void)state;
    static char big[BIG];
    struct prng prng = {.state = 42};
    for (size_t i = 0; i < BIG; i++)
        big[i] = (char)(i * 31 >> 3);
    FOR_EACH_TRANSPORT({
        (void)start(&r);
        r.a.random = r.b.random = true;
        for (size_t at = 0; at < BIG;) {
            size_t n = 1 + prng_next(&prng) % 100000;
            n = MIN(n, (size_t)BIG - at);
            struct slice s = slice_of(big + at, n);
            assert_int_equal(net_conn_send_slice(&r.a.conn, s), 0);
            assert_int_equal(net_conn_send_slice(&r.b.conn, s), 0);
            at += n;
        }
        run(&r, both_got_big);
        assert_int_equal(buf_len(&r.a.got), BIG);
        assert_int_equal(buf_len(&r.b.got), BIG);
        assert_memory_equal(buf_slice(&r.a.got).p, big, BIG);
        assert_memory_equal(buf_slice(&r.b.got).p, big, BIG);
        settle(&r);
        assert_int_equal(net_conn_queued(&r.a.conn) + net_conn_queued(&r.b.conn), 0);
    })
}

static bool one_drained(struct rig *r)
{
    return r->a.drained + r->b.drained > 0;
}

static void a_reader_that_pauses_is_seen_in_the_queue_and_told_when_it_is_empty(void **state)
{
    (void)state;
    static char piece[65536];
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        size_t sent = 0;
        net_conn_pause(&e->other->conn);
        while (net_conn_queued(&e->conn) < (4 << 20)) {
            assert_int_equal(net_conn_send_slice(&e->conn, slice_of(piece, sizeof(piece))), 0);
            sent += sizeof(piece);
        }
        settle(&r);
        size_t queued = net_conn_queued(&e->conn);
        settle(&r);
        /* It is not taken, but for what the kernel's own buffers still have room for. */
        assert_in_range(net_conn_queued(&e->conn), 2 << 20, queued);
        assert_int_equal(e->drained, 0);
        net_conn_resume(&e->other->conn);
        run(&r, one_drained);
        assert_int_equal(e->drained, 1);
        assert_int_equal(net_conn_queued(&e->conn), 0);
        while (buf_len(&e->other->got) < sent)
            settle(&r);
        assert_int_equal(buf_len(&e->other->got), sent);
    })
}

static bool other_eof(struct rig *r)
{
    return r->a.eofs + r->b.eofs == 1;
}

static bool both_eof(struct rig *r)
{
    return r->a.eofs == 1 && r->b.eofs == 1;
}

static void half_close_comes_after_what_was_queued_and_the_other_half_goes_on(void **state)
{
    (void)state;
    static char big[3 << 20];
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        assert_int_equal(net_conn_send_slice(&e->conn, slice_of(big, sizeof(big))), 0);
        net_conn_shutdown(&e->conn);
        net_conn_shutdown(&e->conn); /* twice is once */
        run(&r, other_eof);
        assert_int_equal(buf_len(&e->other->got), sizeof(big));
        assert_int_equal(e->other->eofs, 1);
        assert_int_equal(e->closed + e->other->closed, 0);
        assert_int_equal(net_conn_send_slice(&e->other->conn, SLICE("still here")), 0);
        net_conn_shutdown(&e->other->conn);
        run(&r, both_eof);
        assert_int_equal(buf_len(&e->got), 10);
        assert_memory_equal(buf_slice(&e->got).p, "still here", 10);
        settle(&r);
        assert_int_equal(e->eofs, 1);
        assert_int_equal(e->other->eofs, 1);
        assert_int_equal(e->closed + e->other->closed, 0);
    })
}

static bool one_closed(struct rig *r)
{
    return r->a.closed + r->b.closed > 0;
}

static void a_reset_ends_it_once_reading_or_paused(void **state)
{
    (void)state;
    for (int paused = 0; paused < 2; paused++)
        FOR_EACH_TRANSPORT({
            struct end *e = start(&r);
            if (paused)
                net_conn_pause(&e->conn);
            if (under_test->local) {
                /* A Unix socket resets when it is closed with bytes unread. */
                net_conn_pause(&e->other->conn);
                assert_int_equal(net_conn_send_slice(&e->conn, SLICE("unread")), 0);
                settle(&r);
            }
            net_conn_abort(&e->other->conn);
            run(&r, one_closed);
            assert_int_equal(e->closed, 1);
            assert_int_equal(e->error, WEIR_E_CLOSED);
            assert_false(net_conn_open(&e->conn));
            settle(&r);
            assert_int_equal(e->closed, 1);
            assert_int_equal(e->other->closed, 0);
        })
}

static void an_end_is_told_while_paused_and_again_behind_the_bytes_before_it(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        net_conn_pause(&e->conn);
        assert_int_equal(net_conn_send_slice(&e->other->conn, SLICE("late")), 0);
        net_conn_shutdown(&e->other->conn);
        run(&r, other_eof);
        assert_int_equal(buf_len(&e->got), 0);
        assert_int_equal(e->eofs, 1);
        net_conn_resume(&e->conn);
        settle(&r);
        assert_int_equal(buf_len(&e->got), 4);
        assert_memory_equal(buf_slice(&e->got).p, "late", 4);
        assert_int_equal(e->eofs, 2);
        assert_int_equal(net_conn_send_slice(&e->conn, SLICE("ok!")), 0);
        while (buf_len(&e->other->got) < 3)
            settle(&r);
        assert_int_equal(e->closed, 0);
    })
}

/* What is lent in one piece may hold more than one message: a pause between them keeps the rest, also encrypted rest. */
static void a_pause_in_the_middle_keeps_the_rest_until_resume(void **state)
{
    (void)state;
    static char big[200000];
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (char)(i * 13 >> 4);
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        e->take = 1000;
        assert_int_equal(net_conn_send_slice(&e->other->conn, slice_of(big, sizeof(big))), 0);
        net_conn_shutdown(&e->other->conn);
        while (buf_len(&e->got) < sizeof(big)) {
            net_conn_pause(&e->conn);
            size_t before = buf_len(&e->got);
            settle(&r);
            assert_int_equal(buf_len(&e->got), before); /* nothing is lent while paused */
            net_conn_resume(&e->conn);
            loop_timer_set(r.loop, &r.turn, 0);
            r.turns = SETTLE_TURNS - 2;
            loop_run(r.loop);
            e->take = MIN(e->take * 2, sizeof(big));
        }
        while (e->eofs == 0)
            settle(&r);
        assert_memory_equal(buf_slice(&e->got).p, big, sizeof(big));
        assert_int_equal(e->closed, 0);
    })
}

static size_t use_nothing(struct net_conn *c, const char *p, size_t n)
{
    (void)c, (void)p, (void)n;
    return 0;
}

static void a_full_buffer_without_progress_ends_it(void **state)
{
    (void)state;
    static const struct net_conn_ops greedy = {.on_connected = on_connected,
                                               .on_data = use_nothing,
                                               .on_eof = on_eof,
                                               .on_drained = on_drained,
                                               .on_closed = on_closed};
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        e->conn.ops = &greedy;
        e->conn.recv_max = 8;
        assert_int_equal(net_conn_send_slice(&e->other->conn, SLICE("1234567")), 0);
        settle(&r);
        assert_int_equal(e->closed, 0);
        assert_int_equal(net_conn_send_slice(&e->other->conn, SLICE("8")), 0);
        run(&r, one_closed);
        assert_int_equal(e->closed, 1);
        assert_int_equal(e->error, WEIR_E_FULL);
    })
}

static void closing_inside_a_callback_is_safe_and_ends_the_other_side(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        e->close_on_data = true;
        assert_int_equal(net_conn_send_slice(&e->other->conn, SLICE("x")), 0);
        loop_run(r.loop);
        net_conn_init(&e->conn, &ops, 1); /* for finish() */
        run(&r, other_eof);
        assert_int_equal(e->other->eofs, 1);
        assert_int_equal(e->closed, 0);
    })
}

static void closing_with_bytes_queued_loses_them_and_a_cut_is_no_announced_end(void **state)
{
    (void)state;
    static char big[8 << 20];
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        assert_int_equal(net_conn_send_slice(&e->conn, slice_of(big, sizeof(big))), 0);
        assert_true(net_conn_queued(&e->conn) > 0);
        net_conn_close(&e->conn);
        while (e->other->eofs + e->other->closed == 0)
            settle(&r);
        assert_true(buf_len(&e->other->got) < sizeof(big));
        if (under_test->tls) { /* a plain FIN says nothing about what is missing */
            assert_int_equal(e->other->eofs, 0);
            assert_int_equal(e->other->closed, 1);
            assert_int_equal(e->other->error, WEIR_E_CLOSED);
        }
        assert_int_equal(e->closed, 0);
    })
}

static void lingering_gets_everything_there_though_the_peer_still_sends(void **state)
{
    (void)state;
    static char big[3 << 20];
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        assert_int_equal(net_conn_send_slice(&e->other->conn, slice_of(big, 100000)), 0);
        assert_int_equal(net_conn_send_slice(&e->conn, slice_of(big, sizeof(big))), 0);
        net_conn_linger(&e->conn);
        assert_false(net_conn_open(&e->conn));
        while (e->other->eofs + e->other->closed == 0)
            settle(&r);
        assert_int_equal(e->other->eofs, 1);
        assert_int_equal(e->other->closed, 0);
        assert_int_equal(buf_len(&e->other->got), sizeof(big));
    })
}

static void what_is_sent_before_it_stands_arrives_first_and_so_does_an_early_end(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT({
        (void)begin(&r);
        assert_int_equal(net_conn_send_slice(&r.a.conn, SLICE("early ")), 0);
        assert_int_equal(net_conn_queued(&r.a.conn), 6);
        while (!net_conn_open(&r.b.conn))
            settle(&r);
        assert_int_equal(net_conn_send_slice(&r.b.conn, SLICE("welcome")), 0);
        net_conn_shutdown(&r.b.conn);
        while (!both_stand(&r))
            settle(&r);
        assert_int_equal(net_conn_send_slice(&r.a.conn, SLICE("late")), 0);
        net_conn_shutdown(&r.a.conn);
        run(&r, both_eof);
        assert_int_equal(buf_len(&r.a.got), 7);
        assert_memory_equal(buf_slice(&r.a.got).p, "welcome", 7);
        assert_int_equal(buf_len(&r.b.got), 10);
        assert_memory_equal(buf_slice(&r.b.got).p, "early late", 10);
        assert_int_equal(r.a.closed + r.b.closed, 0);
    })
}

static void sending_to_a_peer_that_is_gone_is_told_from_the_loop_once(void **state)
{
    (void)state;
    static char big[1 << 20];
    FOR_EACH_TRANSPORT({
        struct end *e = start(&r);
        net_conn_pause(&e->conn);
        net_conn_abort(&e->other->conn);
        /* The first may still be taken by the kernel, the reset being on its way. */
        (void)net_conn_send_slice(&e->conn, slice_of(big, sizeof(big)));
        int rc = net_conn_send_slice(&e->conn, slice_of(big, sizeof(big)));
        assert_true(rc == 0 || rc == WEIR_E_CLOSED);
        assert_int_equal(e->closed, 0); /* never inside the call */
        run(&r, one_closed);
        assert_int_equal(e->closed, 1);
        assert_int_equal(e->error, WEIR_E_CLOSED);
        assert_int_equal(net_conn_send_slice(&e->conn, SLICE("x")), WEIR_E_CLOSED);
    })
}

static bool a_stands(struct rig *r)
{
    return r->a.connected > 0;
}

/* Somebody who accepts and says nothing, or does not even accept: connecting ends in time. Unix refuses at once. */
static void connecting_ends_in_time(void **state)
{
    (void)state;
    FOR_EACH_TRANSPORT({
        struct net_addr bound;
        struct net_addr any;
        int fd;
        r = (struct rig){.peer = {.host = SLICE("weir.test")}};
        r.turn.on_timer = on_turn;
        assert_int_equal(loop_new(&r.loop), 0);
        end_init(&r, &r.a, &r.b);
        end_init(&r, &r.b, &r.a);
        if (under_test->local)
            listen_on(&r, &bound);
        else
            assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &any), 0);
        int silent = -1;
        if (!under_test->local) {
            assert_int_equal(net_listen(&any, false, &fd, &bound), 0);
            silent = fd;
        }
        net_listener_stop(&r.listener);
        if (under_test->tls)
            assert_int_equal(net_conn_tls(&r.a.conn, client_tls, &r.peer), 0);
        bool hangs = under_test->tls && !under_test->local;
        uint64_t limit = hangs ? 20 * NS_PER_MS : 60 * NS_PER_S;
        int rc = net_conn_connect(&r.a.conn, r.loop, &bound, limit);
        assert_int_equal(rc, 0);
        if (hangs || under_test->local) {
            run(&r, one_closed);
            assert_int_equal(r.a.error, hangs ? WEIR_E_TIMEOUT : WEIR_E_REFUSED);
            assert_int_equal(r.a.connected, 0);
        } else {
            run(&r, a_stands);
            assert_int_equal(r.a.connected, 1);
            assert_int_equal(r.a.closed, 0);
        }
        if (silent >= 0)
            close(silent);
    })
}

static int make_contexts(void **state)
{
    char why[NET_TLS_WHY];

    (void)state;
    tls_files_init(&files);
    tls_make(&files, "server", "DNS:weir.test", -TLS_DAY, TLS_DAY);
    struct net_tls_pair pair = {tls_path(&files, "server.pem"), tls_path(&files, "server.key")};
    struct net_tls_server server = {
        .pairs = &pair, .n_pairs = 1, .handshake_ns = 60 * NS_PER_S, .handshakes_max = 100};
    struct net_tls_client client = {.ca = tls_path(&files, "ca.pem")};
    if (net_tls_server_new(&server, &server_tls, why) != 0 ||
        net_tls_client_new(&client, &client_tls, why) != 0) {
        print_message("# %s\n", why);
        return -1;
    }
    return 0;
}

static int drop_contexts(void **state)
{
    static const char *const names[] = {"server", NULL};

    (void)state;
    net_tls_put(server_tls);
    net_tls_put(client_tls);
    tls_files_fini(&files, names);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_in_order_and_unused_ones_are_lent_again),
        cmocka_unit_test(parts_are_one_stream),
        cmocka_unit_test(ten_megabytes_each_way_are_byte_exact),
        cmocka_unit_test(a_reader_that_pauses_is_seen_in_the_queue_and_told_when_it_is_empty),
        cmocka_unit_test(half_close_comes_after_what_was_queued_and_the_other_half_goes_on),
        cmocka_unit_test(a_reset_ends_it_once_reading_or_paused),
        cmocka_unit_test(an_end_is_told_while_paused_and_again_behind_the_bytes_before_it),
        cmocka_unit_test(a_pause_in_the_middle_keeps_the_rest_until_resume),
        cmocka_unit_test(a_full_buffer_without_progress_ends_it),
        cmocka_unit_test(closing_inside_a_callback_is_safe_and_ends_the_other_side),
        cmocka_unit_test(closing_with_bytes_queued_loses_them_and_a_cut_is_no_announced_end),
        cmocka_unit_test(lingering_gets_everything_there_though_the_peer_still_sends),
        cmocka_unit_test(what_is_sent_before_it_stands_arrives_first_and_so_does_an_early_end),
        cmocka_unit_test(sending_to_a_peer_that_is_gone_is_told_from_the_loop_once),
        cmocka_unit_test(connecting_ends_in_time),
    };

    return cmocka_run_group_tests(tests, make_contexts, drop_contexts);
}
