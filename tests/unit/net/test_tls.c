/* SPDX-License-Identifier: Apache-2.0 */
/* What TLS adds to the transport boundary: who is believed, what is resumed, what is bounded, which files are refused. */
#include "ct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bug.h"
#include "base/num.h"
#include "loop/alloc.h"
#include "net/conn.h"
#include "net/listener.h"
#include "net/tls_priv.h"
#include "tls_files.h"

static struct tls_files files;

struct end {
    struct net_conn conn;
    struct loop *loop;
    unsigned connected, eofs, closed;
    int error;
};

static size_t on_data(struct net_conn *c, const char *p, size_t n)
{
    (void)p;
    loop_stop(container_of(c, struct end, conn)->loop);
    return n;
}

static void on_eof(struct net_conn *c)
{
    struct end *e = container_of(c, struct end, conn);

    e->eofs++;
    loop_stop(e->loop);
}

static void on_connected(struct net_conn *c)
{
    struct end *e = container_of(c, struct end, conn);

    e->connected++;
    loop_stop(e->loop);
}

static void on_drained(struct net_conn *c)
{
    (void)c;
}

static void on_closed(struct net_conn *c, int error)
{
    struct end *e = container_of(c, struct end, conn);

    e->closed++;
    e->error = error;
    loop_stop(e->loop);
}

static const struct net_conn_ops ops = {.on_connected = on_connected,
                                        .on_data = on_data,
                                        .on_eof = on_eof,
                                        .on_drained = on_drained,
                                        .on_closed = on_closed};

static struct net_tls_context *server_with(struct net_tls_server o, const char *name)
{
    struct net_tls_context *x;
    char why[NET_TLS_WHY];
    char cert[64], key[64];

    snprintf(cert, sizeof(cert), "%s.pem", name);
    snprintf(key, sizeof(key), "%s.key", name);
    struct net_tls_pair pair = {tls_path(&files, cert), tls_path(&files, key)};
    o.pairs = &pair;
    o.n_pairs = 1;
    o.handshake_ns = o.handshake_ns ? o.handshake_ns : 60 * NS_PER_S;
    o.handshakes_max = o.handshakes_max ? o.handshakes_max : 100;
    if (net_tls_server_new(&o, &x, why) != 0)
        fail_msg("%s", why);
    return x;
}

static struct net_tls_context *client_with(struct net_tls_client o)
{
    struct net_tls_context *x;
    char why[NET_TLS_WHY];

    o.ca = o.ca ? o.ca : tls_path(&files, "ca.pem");
    if (net_tls_client_new(&o, &x, why) != 0)
        fail_msg("%s", why);
    return x;
}

/* Two connected descriptors: [0] the server's, non-blocking. */
static void connected(int fds[2])
{
    struct net_addr any;
    struct net_addr bound;
    int listener;

    assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &any), 0);
    assert_int_equal(net_listen(&any, false, &listener, &bound), 0);
    fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    (void)connect(fds[1], &bound.any, bound.len);
    while ((fds[0] = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0)
        ;
    close(listener);
}

/* A handshake to its end, on the client's side. The client's outcome is in a, the server's in b. */
static void shake(struct net_tls_context *server,
                  struct net_tls_context *client,
                  struct net_tls_peer *peer,
                  struct end *a,
                  struct end *b)
{
    struct net_addr any;
    struct net_addr bound;
    struct loop *loop;
    int listener;

    assert_int_equal(loop_new(&loop), 0);
    *a = (struct end){.loop = loop};
    *b = (struct end){.loop = loop};
    net_conn_init(&a->conn, &ops, 65536);
    net_conn_init(&b->conn, &ops, 65536);
    assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &any), 0);
    assert_int_equal(net_listen(&any, false, &listener, &bound), 0);
    assert_int_equal(net_conn_tls(&a->conn, client, peer), 0);
    assert_int_equal(net_conn_tls(&b->conn, server, NULL), 0);
    assert_int_equal(net_conn_connect(&a->conn, loop, &bound, 60 * NS_PER_S), 0);
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0)
        ;
    close(listener);
    assert_int_equal(net_conn_accept(&b->conn, loop, fd), 0);
    while (!a->connected && !a->closed)
        loop_run(loop);
    /* What the server says after its handshake (tickets) comes with its first byte at the latest. */
    if (a->connected) {
        (void)net_conn_send_slice(&a->conn, SLICE("x"));
        loop_run(loop);
        if (!b->closed) {
            (void)net_conn_send_slice(&b->conn, SLICE("y"));
            loop_run(loop);
        }
    }
}

static void over(struct end *a, struct end *b)
{
    struct loop *loop = a->loop;

    net_conn_close(&a->conn);
    net_conn_close(&b->conn);
    loop_free(loop);
}

static void a_server_is_believed_by_root_and_name(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *host, *server_name;
        bool skip;
        int error; /* 0 = connected */
    } cases[] = {
        {"good", "weir.test", NULL, false, 0},
        {"good", "WEIR.TEST", NULL, false, 0},
        {"good", "127.0.0.1", NULL, false, 0},
        {"good", "x.wild.test", NULL, false, 0},
        {"good", "x.y.wild.test", NULL, false, WEIR_E_DENIED},
        {"good", "other.test", NULL, false, WEIR_E_DENIED},
        {"good", "127.0.0.2", NULL, false, WEIR_E_DENIED},
        {"good", "10.1.2.3", "weir.test", false, 0},
        {"good", "other.test", NULL, true, 0},
        {"foreign", "weir.test", NULL, false, WEIR_E_DENIED},
        {"foreign", "weir.test", NULL, true, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct net_tls_context *server = server_with((struct net_tls_server){0}, cases[i].cert);
        struct net_tls_context *client = client_with((struct net_tls_client){
            .server_name = cases[i].server_name, .insecure_skip_verify = cases[i].skip});
        struct net_tls_peer peer = {.host = slice_str(cases[i].host)};
        struct end a;
        struct end b;
        print_message("# %s %s\n", cases[i].cert, cases[i].host);
        shake(server, client, &peer, &a, &b);
        assert_int_equal(a.connected, cases[i].error == 0);
        assert_int_equal(a.closed, cases[i].error != 0);
        assert_int_equal(a.error, cases[i].error);
        over(&a, &b);
        net_tls_peer_fini(&peer);
        net_tls_put(server);
        net_tls_put(client);
    }
}

static void the_last_session_is_resumed_and_only_under_the_settings_that_made_it(void **state)
{
    (void)state;
    struct net_tls_context *server = server_with((struct net_tls_server){0}, "good");
    struct net_tls_context *one = client_with((struct net_tls_client){0});
    struct net_tls_context *two = client_with((struct net_tls_client){0});
    struct net_tls_context *const order[] = {one, one, one, two, two, one};
    static const uint64_t resumed[] = {0, 1, 1, 0, 1, 0};
    struct net_tls_peer peer = {.host = SLICE("weir.test")};
    struct end a;
    struct end b;
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        struct net_tls_counts before[2];
        struct net_tls_counts after[2];
        for (int s = 0; s < 2; s++)
            net_tls_count(s, &before[s]);
        shake(server, order[i], &peer, &a, &b);
        for (int s = 0; s < 2; s++) {
            net_tls_count(s, &after[s]);
            assert_int_equal(after[s].done - before[s].done, 1);
            assert_int_equal(after[s].resumed - before[s].resumed, resumed[i]);
        }
        over(&a, &b);
    }
    net_tls_peer_fini(&peer);
    net_tls_put(server);
    net_tls_put(one);
    net_tls_put(two);
}

static void clients_show_what_is_required(void **state)
{
    (void)state;
    const struct net_tls_pair good = {tls_path(&files, "good.pem"), tls_path(&files, "good.key")};
    const struct net_tls_pair foreign = {tls_path(&files, "foreign.pem"),
                                         tls_path(&files, "foreign.key")};
    const struct {
        bool optional;
        struct net_tls_pair pair;
        bool taken;
    } cases[] = {
        {false, {NULL, NULL}, false}, {false, foreign, false}, {false, good, true},
        {true, {NULL, NULL}, true},   {true, foreign, false},  {true, good, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct net_tls_context *server =
            server_with((struct net_tls_server){.client_ca = tls_path(&files, "ca.pem"),
                                                .client_optional = cases[i].optional},
                        "good");
        struct net_tls_context *client =
            client_with((struct net_tls_client){.pair = cases[i].pair});
        struct net_tls_peer peer = {.host = SLICE("weir.test")};
        struct end a;
        struct end b;
        print_message("# case %zu\n", i);
        shake(server, client, &peer, &a, &b);
        /* In TLS 1.3 the client is done first: what counts is the server's word. */
        assert_int_equal(b.closed, !cases[i].taken);
        assert_true(cases[i].taken ? b.error == 0
                                   : b.error == WEIR_E_PROTO || b.error == WEIR_E_DENIED);
        over(&a, &b);
        net_tls_peer_fini(&peer);
        net_tls_put(server);
        net_tls_put(client);
    }
}

static void handshakes_are_bounded_in_time_and_in_number(void **state)
{
    (void)state;
    struct net_tls_context *server = server_with(
        (struct net_tls_server){.handshake_ns = 20 * NS_PER_MS, .handshakes_max = 2}, "good");
    struct loop *loop;
    struct end e[3];
    int fds[3][2];
    struct net_tls_counts before;
    struct net_tls_counts after;

    net_tls_count(true, &before);
    assert_int_equal(loop_new(&loop), 0);
    for (int i = 0; i < 3; i++) {
        e[i] = (struct end){.loop = loop};
        net_conn_init(&e[i].conn, &ops, 4096);
        connected(fds[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(net_conn_tls(&e[i].conn, server, NULL), 0);
        assert_int_equal(net_conn_accept(&e[i].conn, loop, fds[i][0]), 0);
    }
    assert_int_equal(net_conn_tls(&e[2].conn, server, NULL), WEIR_E_FULL);
    net_tls_count(true, &after);
    assert_int_equal(after.refused - before.refused, 1);
    while (!e[0].closed || !e[1].closed)
        loop_run(loop);
    assert_int_equal(e[0].error, WEIR_E_TIMEOUT);
    assert_int_equal(e[1].error, WEIR_E_TIMEOUT);
    /* Their places are free. */
    assert_int_equal(net_conn_tls(&e[2].conn, server, NULL), 0);
    assert_int_equal(net_conn_accept(&e[2].conn, loop, fds[2][0]), 0);
    net_conn_close(&e[2].conn);
    for (int i = 0; i < 3; i++)
        close(fds[i][1]);
    loop_free(loop);
    net_tls_put(server);
}

/* A server's half as net/conn.c has it, and a client that does as it likes. */
struct pair {
    struct net_tls_context *context;
    struct net_tls *server;
    struct buf out;
    SSL_CTX *ctx;
    SSL *client;
    int fds[2];
};

static void pair_new(struct pair *p)
{
    p->context = server_with((struct net_tls_server){0}, "good");
    p->ctx = SSL_CTX_new(TLS_client_method());
    p->client = SSL_new(p->ctx);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->fds), 0);
    buf_init(&p->out, loop_mem(), SIZE_MAX / 2);
    assert_int_equal(tls_new(p->context, NULL, &p->server), 0);
    tls_attach(p->server, p->fds[0], &p->out);
    assert_int_equal(SSL_set_fd(p->client, p->fds[1]), 1);
    SSL_set_connect_state(p->client);
    int rc;
    while ((rc = tls_handshake(p->server, 0)) == WEIR_E_AGAIN)
        (void)SSL_do_handshake(p->client);
    assert_int_equal(rc, 0);
}

static void pair_free(struct pair *p)
{
    tls_free(p->server);
    buf_fini(&p->out);
    SSL_free(p->client);
    SSL_CTX_free(p->ctx);
    close(p->fds[0]);
    close(p->fds[1]);
    net_tls_put(p->context);
}

static int unread(const struct pair *p)
{
    int n = -1;

    assert_int_equal(ioctl(p->fds[0], FIONREAD, &n), 0);
    return n;
}

static void who_only_changes_keys_is_not_served(void **state)
{
    (void)state;
    static const int kinds[] = {SSL_KEY_UPDATE_REQUESTED, SSL_KEY_UPDATE_NOT_REQUESTED};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct pair p;
        char byte[16];
        char *flood;
        pair_new(&p);
        SSL_set0_wbio(p.client, BIO_new(BIO_s_mem()));
        for (unsigned n = 0; n < 10000; n++) {
            assert_int_equal(SSL_key_update(p.client, kinds[i]), 1);
            assert_int_equal(SSL_do_handshake(p.client), 1);
        }
        /* All that the kernel takes is there before anybody looks. */
        long size = BIO_get_mem_data(SSL_get_wbio(p.client), &flood);
        for (long at = 0; at < size && send(p.fds[1], flood + at, 16384, 0) == 16384; at += 16384)
            ;
        int before = unread(&p);
        assert_true(before > 2 * 65536);
        assert_int_equal(tls_recv(p.server, byte, sizeof(byte)), -1);
        assert_int_equal(errno, EPROTO);
        assert_true(before - unread(&p) < 2 * 65536);
        assert_true(buf_len(&p.out) < 2 * 16384);
        pair_free(&p);
    }
}

static void new_keys_between_data_are_fine(void **state)
{
    (void)state;
    struct pair p;
    char byte[16];

    pair_new(&p);
    /* Far more in all than either bound, with every answer taken and a byte behind each. */
    for (unsigned i = 0; i < 5000; i++) {
        assert_int_equal(SSL_key_update(p.client, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_write(p.client, "x", 1), 1);
        assert_int_equal(tls_recv(p.server, byte, sizeof(byte)), 1);
        buf_clear(&p.out);
    }
    pair_free(&p);
}

static void the_roots_of_the_system_are_read_when_they_are_others(void **state)
{
    (void)state;
    static const struct {
        const char *roots;
        bool believed, shared; /* with the context before */
    } cases[] = {{"ca.pem", true, false},   {"ca.pem", true, true},    {"good.key", false, false},
                 {"good.key", false, true}, {"nowhere", false, false}, {"ca.pem", true, false}};
    struct net_tls_context *server = server_with((struct net_tls_server){0}, "good");
    struct net_tls_context *before = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct net_tls_peer peer = {.host = SLICE("weir.test")};
        struct net_tls_context *client;
        char why[NET_TLS_WHY];
        struct end a;
        struct end b;
        print_message("# %s\n", cases[i].roots);
        setenv("SSL_CERT_FILE", tls_path(&files, cases[i].roots), 1);
        assert_int_equal(net_tls_client_new(&(struct net_tls_client){0}, &client, why), 0);
        assert_int_equal(before && SSL_CTX_get_cert_store(before->ctx[0]) ==
                                       SSL_CTX_get_cert_store(client->ctx[0]),
                         cases[i].shared);
        shake(server, client, &peer, &a, &b);
        assert_int_equal(a.connected, cases[i].believed);
        assert_int_equal(a.error, cases[i].believed ? 0 : WEIR_E_DENIED);
        over(&a, &b);
        net_tls_peer_fini(&peer);
        net_tls_put(before);
        before = client;
    }
    unsetenv("SSL_CERT_FILE");
    net_tls_put(before);
    net_tls_put(server);
}

static void what_is_no_tls_is_refused(void **state)
{
    (void)state;
    struct net_tls_context *server = server_with((struct net_tls_server){0}, "good");
    static const char *const said[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\xff\xff",
                                       ""};
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        struct end e = {0};
        int fds[2];
        assert_int_equal(loop_new(&e.loop), 0);
        connected(fds);
        net_conn_init(&e.conn, &ops, 4096);
        assert_int_equal(net_conn_tls(&e.conn, server, NULL), 0);
        assert_int_equal(net_conn_accept(&e.conn, e.loop, fds[0]), 0);
        (void)send(fds[1], said[i], strlen(said[i]), 0);
        shutdown(fds[1], SHUT_WR);
        loop_run(e.loop);
        assert_int_equal(e.closed, 1);
        assert_int_equal(e.error, said[i][0] ? WEIR_E_PROTO : WEIR_E_CLOSED);
        close(fds[1]);
        loop_free(e.loop);
    }
    net_tls_put(server);
}

static void an_end_that_was_not_announced_is_no_end_of_file(void **state)
{
    (void)state;
    struct net_tls_context *server = server_with((struct net_tls_server){0}, "good");
    struct net_tls_context *client = client_with((struct net_tls_client){0});
    struct net_tls_peer peer = {.host = SLICE("weir.test")};
    for (int announced = 0; announced < 2; announced++) {
        struct end a;
        struct end b;
        shake(server, client, &peer, &a, &b);
        if (announced)
            net_conn_shutdown(&b.conn);
        else
            shutdown(b.conn.watch.fd, SHUT_WR);
        while (!a.eofs && !a.closed)
            loop_run(a.loop);
        assert_int_equal(a.eofs, announced);
        assert_int_equal(a.error, announced ? 0 : WEIR_E_CLOSED);
        over(&a, &b);
    }
    net_tls_peer_fini(&peer);
    net_tls_put(server);
    net_tls_put(client);
}

static void a_connection_keeps_the_context_it_began_with(void **state)
{
    (void)state;
    struct net_tls_slot slot;
    struct net_tls_context *client = client_with((struct net_tls_client){0});
    struct net_tls_peer peer = {.host = SLICE("weir.test")};
    struct end a;
    struct end b;

    net_tls_slot_init(&slot);
    assert_null(net_tls_slot_get(&slot));
    net_tls_slot_set(&slot, server_with((struct net_tls_server){0}, "good"));
    struct net_tls_context *x = net_tls_slot_get(&slot);
    shake(x, client, &peer, &a, &b);
    net_tls_put(x);
    net_tls_slot_set(&slot, server_with((struct net_tls_server){0}, "foreign"));
    (void)net_conn_send_slice(&a.conn, SLICE("still"));
    loop_run(a.loop);
    assert_int_equal(b.closed, 0);
    net_tls_slot_fini(&slot);
    (void)net_conn_send_slice(&a.conn, SLICE("there"));
    loop_run(a.loop);
    assert_int_equal(b.closed, 0);
    over(&a, &b);
    net_tls_peer_fini(&peer);
    net_tls_put(client);
}

static void wrong_files_are_named_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *cert, *key, *ca, *file, *why;
    } cases[] = {
        {"none.pem", "good.key", NULL, "none.pem",
         ": cannot be used as a certificate (PEM): No such file or directory"},
        {"good.key", "good.key", NULL, "good.key",
         ": cannot be used as a certificate (PEM): there is none in it"},
        {"good.pem", "none.key", NULL, "none.key",
         ": cannot be used as a key (PEM, without a passphrase): No such file or directory"},
        {"good.pem", "foreign.key", NULL, "foreign.key", ": is not the key of the certificate in "},
        {"old.pem", "old.key", NULL, "old.pem", ": the certificate expired on "},
        {"early.pem", "early.key", NULL, "early.pem", ": the certificate is not valid before "},
        {"good.pem", "good.key", "good.key", "good.key", ": cannot be used as certificates (PEM)"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct net_tls_pair pair = {tls_path(&files, cases[i].cert),
                                    tls_path(&files, cases[i].key)};
        struct net_tls_server o = {.pairs = &pair,
                                   .n_pairs = 1,
                                   .client_ca = cases[i].ca ? tls_path(&files, cases[i].ca) : NULL};
        struct net_tls_context *x = NULL;
        char why[NET_TLS_WHY];
        char expected[NET_TLS_WHY];
        snprintf(expected, sizeof(expected), "%s%s", tls_path(&files, cases[i].file), cases[i].why);
        assert_int_equal(net_tls_server_new(&o, &x, why), WEIR_E_INVALID);
        why[strlen(expected)] = '\0';
        assert_string_equal(why, expected);
        assert_null(x);
    }
}

static const char *const made[] = {"good", "foreign", "old", "early", NULL};

static int make_files(void **state)
{
    struct tls_files other;
    static const char *const none[] = {NULL};

    (void)state;
    tls_files_init(&files);
    tls_make(&files, "good", "DNS:weir.test,DNS:*.wild.test,IP:127.0.0.1", -TLS_DAY, TLS_DAY);
    tls_make(&files, "old", "DNS:weir.test", -20L * TLS_DAY, -TLS_DAY);
    tls_make(&files, "early", "DNS:weir.test", TLS_DAY, 20L * TLS_DAY);
    /* The same in every way, but signed by somebody else. */
    tls_files_init(&other);
    char dir[sizeof(other.dir)];
    memcpy(dir, other.dir, sizeof(dir));
    memcpy(other.dir, files.dir, sizeof(dir));
    tls_make(&other, "foreign", "DNS:weir.test", -TLS_DAY, TLS_DAY);
    memcpy(other.dir, dir, sizeof(dir));
    tls_files_fini(&other, none);
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    tls_files_fini(&files, made);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_is_believed_by_root_and_name),
        cmocka_unit_test(the_last_session_is_resumed_and_only_under_the_settings_that_made_it),
        cmocka_unit_test(clients_show_what_is_required),
        cmocka_unit_test(handshakes_are_bounded_in_time_and_in_number),
        cmocka_unit_test(who_only_changes_keys_is_not_served),
        cmocka_unit_test(new_keys_between_data_are_fine),
        cmocka_unit_test(the_roots_of_the_system_are_read_when_they_are_others),
        cmocka_unit_test(what_is_no_tls_is_refused),
        cmocka_unit_test(an_end_that_was_not_announced_is_no_end_of_file),
        cmocka_unit_test(a_connection_keeps_the_context_it_began_with),
        cmocka_unit_test(wrong_files_are_named_with_the_reason),
    };

    return cmocka_run_group_tests(tests, make_files, drop_files);
}
