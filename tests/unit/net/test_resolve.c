/* SPDX-License-Identifier: Apache-2.0 */
/* Names to addresses: the server asked is a socket in the test that takes questions and answers none. */
#include "ct.h"

#include <stdio.h>
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

static void a_server_that_never_answers_holds_nobody_longer_than_asked(void **state)
{
    (void)state;
    struct net_addr bound = {.len = net_addr_room()};
    struct asked patient = {.query.done = on_done};
    struct asked hasty = {.query.done = on_done};
    struct asked gone = {.query.done = on_done};
    struct resolver *r;
    struct loop *loop;
    char servers[32];

    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(net_addr_literal(SLICE("127.0.0.1"), 0, &bound), 0);
    assert_int_equal(bind(fd, &bound.any, bound.len), 0);
    assert_int_equal(getsockname(fd, &bound.any, &bound.len), 0);
    snprintf(servers, sizeof(servers), "127.0.0.1:%u", ntohs(bound.v4.sin_port));
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
        cmocka_unit_test(localhost_and_what_is_below_it_is_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
