/* SPDX-License-Identifier: Apache-2.0 */
/* Names to addresses: the server that is asked is a socket in the test. */
#include "ct.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/num.h"
#include "net/resolve.h"

struct asked {
    struct resolve_query query;
    struct loop *loop;
    unsigned done;
    int error;
};

static void on_done(struct resolve_query *q, int error, const struct net_addr *addr)
{
    struct asked *a = container_of(q, struct asked, query);

    a->done++;
    a->error = error;
    assert_true(error == 0 || addr == NULL);
    loop_stop(a->loop);
}

/* --- a server with one address for all names but those that begin with "bad" --- */

struct server {
    struct loop_watch watch;
    unsigned asked;
    char text[32];
};

static void on_question(struct loop_watch *w, uint32_t events)
{
    static const uint8_t record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 9, 9, 9};
    struct server *s = container_of(w, struct server, watch);
    struct net_addr from = {.len = net_addr_room()};
    uint8_t q[512 + sizeof(record)];

    (void)events;
    ssize_t n = recvfrom(w->fd, q, 512, 0, &from.any, &from.len);
    if (n < 17)
        return;
    bool bad = memcmp(q + 13, "bad", 3) == 0;
    bool v4 = q[n - 3] == 1 && !bad; /* the question ends with its type and class */
    s->asked++;
    q[2] |= 0x80;
    q[3] |= bad ? 3 : 0; /* there is no such name */
    q[7] = v4;
    if (v4)
        memcpy(q + n, record, sizeof(record));
    (void)!sendto(w->fd, q, (size_t)n + (v4 ? sizeof(record) : 0), 0, &from.any, from.len);
}

static int server_socket(char text[32])
{
    struct net_addr bound = {.len = net_addr_room()};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &bound), 0);
    assert_int_equal(bind(fd, &bound.any, bound.len), 0);
    assert_int_equal(getsockname(fd, &bound.any, &bound.len), 0);
    snprintf(text, 32, "127.0.0.1:%u", ntohs(bound.v4.sin_port));
    return fd;
}

/* Who is told, and asks for something else at once. */
struct moves_on {
    struct asked asked, next;
    struct resolver *resolver;
    const char *to;
};

static void on_bad(struct resolve_query *q, int error, const struct net_addr *addr)
{
    struct moves_on *m = container_of(q, struct moves_on, asked.query);
    struct resolver *r = m->resolver;
    struct resolve_query again;
    struct net_addr now;

    on_done(q, error, addr);
    assert_int_equal(net_resolve(r, slice_str(m->to), 80, 0, &m->next.query, &now), WEIR_E_AGAIN);
    /* The name of which it is told is the next to go, but not while others are to be told of it. */
    assert_int_equal(net_resolve(r, SLICE("bad.example."), 80, 0, &again, &now), WEIR_E_NOTFOUND);
}

/* All places are taken, by names that are known for longer than one that is not there. */
static void who_is_told_of_a_name_may_ask_for_others(struct loop *loop, struct resolver *r)
{
    struct moves_on who[2] = {{.to = "next0.example."}, {.to = "next1.example."}};
    struct net_addr now;

    for (unsigned i = 0; i < 2; i++) {
        who[i].resolver = r;
        who[i].asked.loop = who[i].next.loop = loop;
        who[i].asked.query.done = on_bad;
        who[i].next.query.done = on_done;
        assert_int_equal(net_resolve(r, SLICE("bad.example."), 80, 0, &who[i].asked.query, &now),
                         WEIR_E_AGAIN);
    }
    for (unsigned i = 0; i < 2; i++) {
        while (!who[i].next.done)
            loop_run(loop);
        assert_int_equal(who[i].asked.error, WEIR_E_NOTFOUND);
        assert_int_equal(who[i].next.error, 0);
    }
}

static void old_names_make_room_for_new_ones(void **state)
{
    struct asked a = {.query.done = on_done};
    struct asked other = {.query.done = on_done};
    struct server s = {.watch.on_event = on_question};
    struct net_addr now;
    struct resolver *r;
    char name[32];

    (void)state;
    s.watch.fd = server_socket(s.text);
    assert_int_equal(loop_new(&a.loop), 0);
    other.loop = a.loop;
    assert_int_equal(loop_watch(a.loop, &s.watch, EPOLLIN), 0);
    assert_int_equal(resolver_new(a.loop, s.text, &r), 0);
    for (unsigned i = 0; i < 4096 + 10; i++) {
        snprintf(name, sizeof(name), "n%u.example.", i);
        assert_int_equal(net_resolve(r, slice_str(name), 80, 0, &a.query, &now), WEIR_E_AGAIN);
        a.done = 0;
        while (!a.done)
            loop_run(a.loop);
        assert_int_equal(a.error, 0);
    }
    who_is_told_of_a_name_may_ask_for_others(a.loop, r);
    /* The last is known, the first is asked for again; and who waits keeps its place however many come. */
    assert_int_equal(net_resolve(r, slice_str(name), 80, 0, &a.query, &now), 0);
    assert_int_equal(ntohl(now.v4.sin_addr.s_addr), 0x7f090909);
    assert_int_equal(net_resolve(r, SLICE("n0.example."), 80, 0, &other.query, &now), WEIR_E_AGAIN);
    for (unsigned i = 0; i < 4096; i++) {
        snprintf(name, sizeof(name), "m%u.example.", i);
        int rc = net_resolve(r, slice_str(name), 80, 0, &a.query, &now);
        if (i == 4095) /* all others are waited for */
            assert_int_equal(rc, WEIR_E_FULL);
        else
            assert_int_equal(rc, WEIR_E_AGAIN);
        net_resolve_cancel(&a.query);
    }
    resolver_free(r);
    assert_int_equal(other.done, 1);
    loop_unwatch(&s.watch);
    close(s.watch.fd);
    loop_free(a.loop);
}

static void a_server_that_never_answers_holds_nobody_longer_than_asked(void **state)
{
    (void)state;
    struct asked patient = {.query.done = on_done};
    struct asked hasty = {.query.done = on_done};
    struct asked gone = {.query.done = on_done};
    struct resolver *r;
    struct loop *loop;
    char servers[32];

    int fd = server_socket(servers);
    assert_int_equal(loop_new(&loop), 0);
    assert_int_equal(resolver_new(loop, servers, &r), 0);
    patient.loop = hasty.loop = gone.loop = loop;

    /* All wait for one question; the limit of each is its own. */
    struct slice name = SLICE("worker.example.");
    struct net_addr now;
    assert_int_equal(net_resolve(r, name, 80, 0, &patient.query, &now), WEIR_E_AGAIN);
    assert_int_equal(net_resolve(r, name, 80, 1, &gone.query, &now), WEIR_E_AGAIN);
    assert_int_equal(net_resolve(r, name, 80, NS_PER_MS, &hasty.query, &now), WEIR_E_AGAIN);
    net_resolve_cancel(&gone.query);
    loop_run(loop);
    assert_int_equal(hasty.done, 1);
    assert_int_equal(hasty.error, WEIR_E_TIMEOUT);
    assert_int_equal(gone.done, 0);
    assert_int_equal(patient.done, 0);
    /* The question is still under way, and its end is everybody's who waits for it. */
    resolver_free(r);
    assert_int_equal(patient.done, 1);
    assert_int_equal(patient.error, WEIR_E_IO);
    assert_int_equal(hasty.done, 1);
    loop_free(loop);
    close(fd);
}

static void localhost_and_what_is_below_it_is_this_machine(void **state)
{
    (void)state;
    static const char *const here[] = {"localhost", "LocalHost", "localhost.", "a.localhost",
                                       "a.b.LOCALHOST."};
    static const char *const elsewhere[] = {
        "", ".", ".localhost", "alocalhost", "localhost.a", "localhost..", "ocalhost"};
    struct net_addr a;

    for (unsigned i = 0; i < ARRAY_LEN(here); i++) {
        assert_int_equal(net_addr_literal(slice_str(here[i]), 8000, &a), 0);
        assert_int_equal(a.v4.sin_family, AF_INET);
        assert_int_equal(ntohl(a.v4.sin_addr.s_addr), INADDR_LOOPBACK);
        assert_int_equal(ntohs(a.v4.sin_port), 8000);
    }
    for (unsigned i = 0; i < ARRAY_LEN(elsewhere); i++)
        assert_int_equal(net_addr_literal(slice_str(elsewhere[i]), 8000, &a), WEIR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_never_answers_holds_nobody_longer_than_asked),
        cmocka_unit_test(old_names_make_room_for_new_ones),
        cmocka_unit_test(localhost_and_what_is_below_it_is_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
