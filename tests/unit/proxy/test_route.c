/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/hash.h"
#include "base/num.h"
#include "proxy/exchange.h"

static void test_match(void **state)
{
    static const struct route routes[] = {{.path = SLICE("/v1/chat/completions")},
                                          {.path = SLICE("/v1/**")},
                                          {.path = SLICE("/exact/")},
                                          {.path = SLICE("/v1/embeddings")}};
    const struct routing r = {.routes = routes, .n_routes = 4};

    (void)state;
    /* The path alone decides: the head is not looked at. */
    assert_ptr_equal(route_match(&r, SLICE("/v1/chat/completions"), NULL), &routes[0]);
    assert_ptr_equal(route_match(&r, SLICE("/v1/chat/completions/"), NULL), &routes[1]);
    assert_ptr_equal(route_match(&r, SLICE("/v1/"), NULL), &routes[1]);
    assert_ptr_equal(route_match(&r, SLICE("/v1/embeddings"), NULL),
                     &routes[1]); /* the first match counts */
    assert_ptr_equal(route_match(&r, SLICE("/exact/"), NULL), &routes[2]);
    assert_null(route_match(&r, SLICE("/exact"), NULL));
    assert_null(route_match(&r, SLICE("/v1"), NULL));
    assert_null(route_match(&r, SLICE(""), NULL));
}

/* Does a route with just that match take this request? */
static bool takes(const struct route_match *m, const char *line, const char *fields)
{
    static struct http1_head h;
    const struct route route = {.path = SLICE("/**"), .more = m};
    const struct routing r = {.routes = &route, .n_routes = 1};
    struct http1_error error;
    char text[1024];
    struct buf b = {.p = text, .cap = sizeof(text), .max = sizeof(text)};

    buf_put_str(&b, line);
    buf_put_str(&b, " HTTP/1.1\r\n");
    buf_put_str(&b, fields);
    buf_put(&b, "\r\n", 2);
    assert_int_equal(b.err, 0);
    assert_int_equal(wire_http1_request(text, buf_len(&b), 100, &h, &error), buf_len(&b));
    return route_match(&r, SLICE("/x"), &h) != NULL;
}

static void test_match_by_more_than_the_path(void **state)
{
    static const struct slice methods[] = {SLICE("POST"), SLICE("PUT")};
    static const struct slice hosts[] = {SLICE("api.x"), SLICE("*.y.z"), SLICE("::1")};
    static const struct kv headers[] = {{SLICE("X-Team"), SLICE("blue")},
                                        {SLICE("x-any"), SLICE("*")}};
    static const struct kv query[] = {{SLICE("model"), SLICE("a b/c")}, {SLICE("k"), SLICE("*")}};
    static const struct slice types[] = {SLICE("application/json"), SLICE("audio/*")};
    const struct route_match by_method = {.methods = methods, .n_methods = 2};
    const struct route_match by_host = {.hosts = hosts, .n_hosts = 3};
    const struct route_match by_header = {.headers = headers, .n_headers = 2};
    const struct route_match by_query = {.query = query, .n_query = 2};
    const struct route_match by_type = {.content_types = types, .n_content_types = 2};

    (void)state;
    assert_true(takes(&by_method, "POST /x", "Host: h\r\n"));
    assert_true(takes(&by_method, "PUT /x", "Host: h\r\n"));
    assert_false(takes(&by_method, "GET /x", "Host: h\r\n"));
    assert_false(takes(&by_method, "PATCH /x", "Host: h\r\n"));

    assert_true(takes(&by_host, "GET /x", "Host: API.x:8080\r\n"));
    assert_true(takes(&by_host, "GET /x", "Host: a.b.Y.z\r\n"));
    assert_true(takes(&by_host, "GET /x", "Host: [::1]:80\r\n"));
    assert_true(takes(&by_host, "GET http://api.x/x", "Host: other\r\n"));
    assert_false(takes(&by_host, "GET http://other/x", "Host: api.x\r\n"));
    assert_false(takes(&by_host, "GET /x", "Host: y.z\r\n"));
    assert_false(takes(&by_host, "GET /x", "Host: .y.z.evil\r\n"));
    assert_false(takes(&by_host, "GET /x", "Host: xapi.x\r\n"));
    assert_false(takes(&by_host, "GET /x", "Host:\r\n"));

    assert_true(takes(&by_header, "GET /x", "Host: h\r\nx-team: blue\r\nX-Any: \r\n"));
    assert_true(
        takes(&by_header, "GET /x", "Host: h\r\nX-Team: red\r\nX-Team: blue\r\nX-Any: 1\r\n"));
    assert_false(takes(&by_header, "GET /x", "Host: h\r\nX-Team: Blue\r\nX-Any: 1\r\n"));
    assert_false(takes(&by_header, "GET /x", "Host: h\r\nX-Team: blue\r\n"));

    assert_true(takes(&by_query, "GET /x?model=a+b%2Fc&k", "Host: h\r\n"));
    assert_true(takes(&by_query, "GET /x?k=&model=z&mod%65l=a%20b/c", "Host: h\r\n"));
    assert_false(takes(&by_query, "GET /x?model=a+b/c", "Host: h\r\n"));
    assert_false(takes(&by_query, "GET /x?model=a+b/cd&k", "Host: h\r\n"));
    assert_false(takes(&by_query, "GET /x", "Host: h\r\n"));

    assert_true(takes(&by_type, "GET /x", "Host: h\r\nContent-Type: Application/JSON\r\n"));
    assert_true(
        takes(&by_type, "GET /x", "Host: h\r\nContent-Type: application/json ; charset=x\r\n"));
    assert_true(takes(&by_type, "GET /x", "Host: h\r\nContent-Type: audio/wav\r\n"));
    assert_false(takes(&by_type, "GET /x", "Host: h\r\nContent-Type: application/jsonl\r\n"));
    assert_false(takes(&by_type, "GET /x", "Host: h\r\nContent-Type: audio\r\n"));
    assert_false(takes(&by_type, "GET /x", "Host: h\r\n"));
}

static void test_a_parameter_of_the_query(void **state)
{
    struct slice v;

    (void)state;
    assert_true(route_query_find(SLICE("/x?a=1&model=m%2Fn&model=z"), SLICE("model"), &v));
    assert_true(slice_eq(v, SLICE("m%2Fn")));
    assert_true(route_query_find(SLICE("/x?mod%65l"), SLICE("model"), &v));
    assert_int_equal(v.n, 0);
    assert_false(route_query_find(SLICE("/x?a=model"), SLICE("model"), &v));
    assert_false(route_query_find(SLICE("/model=x"), SLICE("model"), &v));
}

static void test_identifiers(void **state)
{
    static char longest[129];

    (void)state;
    assert_true(route_request_id_ok(SLICE("abc-DEF_0.1:2/3+4=@~")));
    assert_false(route_request_id_ok(SLICE("")));
    assert_false(route_request_id_ok(SLICE("a b")));
    assert_false(route_request_id_ok(SLICE("a\"b")));
    assert_false(route_request_id_ok(slice_of("a\0b", 3)));
    memset(longest, 'x', sizeof(longest));
    assert_true(route_request_id_ok(slice_of(longest, 128)));
    assert_false(route_request_id_ok(slice_of(longest, 129)));

    assert_true(
        route_traceparent_ok(SLICE("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")));
    assert_true(route_traceparent_ok(
        SLICE("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more")));
    static const struct slice bad[] = {
        SLICE("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"),
        SLICE("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"),
        SLICE("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more"),
        SLICE("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        SLICE("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        SLICE("00-00000000000000000000000000000000-b7ad6b7169203331-01"),
        SLICE("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"),
        SLICE("00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(route_traceparent_ok(bad[i]));
}

static void test_dot_segments(void **state)
{
    static const struct slice good[] = {
        SLICE("/"),
        SLICE("/v1/models/llama-3.1"),
        SLICE("/v1/.well-known"),
        SLICE("/v1/..."),
        SLICE("/v1/a../b"),
        SLICE("/v1/..a"),
        SLICE("/v1/%2e%2ea"),
        SLICE("/v1/%2"),
        SLICE("/v1//x"),
        SLICE("/v1/%2"),
        SLICE("/v1/a%252e"),
        SLICE("/v1/a;b"),
    };
    static const struct slice bad[] = {
        SLICE("/.."),
        SLICE("/v1/."),
        SLICE("/v1/../metrics"),
        SLICE("/v1/./x"),
        SLICE("/v1/%2e%2e"),
        SLICE("/v1/%2E./x"),
        SLICE("/v1/..%2fmetrics"),
        SLICE("/v1/..%5Cx"),
        SLICE("/v1/..\\x"),
        SLICE("/v1/..;a=b/x"),
        SLICE("/v1/x%2f..%2f..%2f"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(route_path_ok(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(route_path_ok(bad[i]));
}

/* One request head through route_head() and route_features(). */
struct fixture {
    struct policy policy;
    struct route route;
    struct routing routing;
    struct proxy proxy;
    struct lane lane;
    struct client client;
    struct exchange x;
    struct http1_head head;
    struct request_fields fields;
    struct plan plan;
    struct plan_route known;
};

static int set_up(void **state)
{
    struct fixture *f = test_calloc(1, sizeof(*f));

    f->route.policy = &f->policy;
    f->routing =
        (struct routing){.routes = &f->route, .n_routes = 1, .limits = {.header_bytes = 65536}};
    f->plan.routing = &f->routing;
    f->plan.routes = &f->known;
    f->x.plan = &f->plan;
    f->proxy.hop = SLICE("me");
    f->lane.proxy = &f->proxy;
    f->client.peer.any.sa_family = AF_INET;
    f->x.lane = &f->lane;
    f->x.client = &f->client;
    f->x.route = &f->route;
    f->x.start_ns = 1000;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    buf_fini(&f->x.head);
    test_free(f);
    return 0;
}

static enum rejection head(struct fixture *f, const char *text)
{
    struct http1_error error;
    size_t n = strlen(text);

    assert_int_equal(wire_http1_request(text, n, 100, &f->head, &error), n);
    buf_fini(&f->x.head);
    return route_head(&f->x, &f->route, &f->head, text + n, &f->fields);
}

static enum rejection features(struct fixture *f, const char *fields, const char **param)
{
    char text[2048];
    struct buf b = {.p = text, .cap = sizeof(text), .max = sizeof(text)};
    struct slice detail;

    buf_put_str(&b, "POST /v1/chat/completions?key=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 7\r\n");
    buf_put_str(&b, fields);
    buf_put(&b, "\r\n\0", 3);
    assert_int_equal(b.err, 0);
    f->x.f = (struct features){0};
    f->x.model_in_header = false;
    assert_int_equal(head(f, text), REJECT_NONE);
    return route_features(&f->x, &f->head, &f->fields, param, &detail);
}

static void test_the_rendered_head(void **state)
{
    struct fixture *f = *state;
    static const char want[] =
        "POST /v1/x%2F?a=b HTTP/1.1\r\nX-Request-Id: id-1\r\n"
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
        "X-Weir-Hop: me\r\nAuthorization: Bearer k\r\nX-A:  1 \r\nTracestate: t=1\r\nX-B: 2\r\n"
        "X-Forwarded-For: 0.0.0.0\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: h\r\n";

    assert_int_equal(
        head(f,
             "POST /v1/x%2F?a=b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\nX-A:  1 "
             "\r\nConnection: close, x-c\r\n"
             "X-C: 3\r\nTransfer-Encoding: chunked\r\nX-Request-ID: id-1\r\nExpect: "
             "100-continue\r\nTE: trailers\r\n"
             "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nTracestate: "
             "t=1\r\nX-B: 2\r\n\r\n"),
        REJECT_NONE);
    struct slice got = buf_slice(&f->x.head);
    assert_int_equal(got.n, sizeof(want) - 1);
    assert_memory_equal(got.p, want, got.n);
    assert_true(slice_eq(exchange_method(&f->x), SLICE("POST")));
    assert_true(slice_eq(exchange_path(&f->x), SLICE("/v1/x%2F")));
    assert_true(slice_eq(exchange_request_id(&f->x), SLICE("id-1")));
}

/* What comes of the client's X-Forwarded fields. */
static void forwards(struct fixture *f, enum forwarded mode, const char *fields, const char *want)
{
    char text[1024];
    struct buf b = {.p = text, .cap = sizeof(text), .max = sizeof(text)};

    buf_put_str(&b, "GET /v1/x HTTP/1.1\r\nHost: a:1\r\n");
    buf_put_str(&b, fields);
    buf_put(&b, "\r\n\0", 3);
    assert_int_equal(b.err, 0);
    f->route.forwarded = mode;
    assert_int_equal(head(f, text), REJECT_NONE);
    struct slice got = buf_slice(&f->x.head);
    struct slice hop = SLICE("X-Weir-Hop: me\r\n");
    size_t at = 0;
    while (!slice_starts(slice_from(got, at), hop))
        at++;
    got = slice_from(got, at + hop.n);
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void test_forwarded_for(void **state)
{
    struct fixture *f = *state;

    f->client.peer.v4.sin_addr.s_addr = htonl(0x0a000102);
    forwards(f, FORWARDED_APPEND,
             "X-Forwarded-For: 1.2.3.4, 5.6.7.8\r\nx-forwarded-for:\r\nX-FORWARDED-FOR: "
             "::1\r\nX-Forwarded-Proto: https\r\nForwarded: for=x\r\n",
             "X-Forwarded-Proto: https\r\nForwarded: for=x\r\n"
             "X-Forwarded-For: 1.2.3.4, 5.6.7.8, ::1, 10.0.1.2\r\nX-Forwarded-Host: a:1\r\n");
    forwards(f, FORWARDED_APPEND, "X-Forwarded-Host: front\r\n",
             "X-Forwarded-Host: front\r\nX-Forwarded-For: 10.0.1.2\r\n"
             "X-Forwarded-Proto: http\r\n");
    forwards(f, FORWARDED_REPLACE,
             "X-Forwarded-For: 1.2.3.4\r\nX-A: 1\r\nX-Forwarded-Proto: https\r\nForwarded: "
             "for=x\r\nX-Real-Ip: 9.9.9.9\r\nX-Forwarded-Port: 1\r\n",
             "X-A: 1\r\nX-Forwarded-For: 10.0.1.2\r\nX-Forwarded-Proto: http\r\n"
             "X-Forwarded-Host: a:1\r\n");
    forwards(f, FORWARDED_OFF, "X-Forwarded-For: 1.2.3.4\r\n", "X-Forwarded-For: 1.2.3.4\r\n");
    f->client.peer.v6 = (struct sockaddr_in6){
        .sin6_family = AF_INET6,
        .sin6_addr.s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 255}};
    forwards(f, FORWARDED_REPLACE, "",
             "X-Forwarded-For: 192.0.2.255\r\nX-Forwarded-Proto: http\r\n"
             "X-Forwarded-Host: a:1\r\n");
    f->client.peer.v6.sin6_addr = in6addr_loopback;
    forwards(f, FORWARDED_APPEND, "",
             "X-Forwarded-For: ::1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a:1\r\n");
}

static void test_targets_and_loops(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(head(f, "GET http://other:8/v1/y?q HTTP/1.1\r\nHost: h\r\n\r\n"), REJECT_NONE);
    assert_true(slice_eq(exchange_path(&f->x), SLICE("/v1/y")));
    assert_int_equal(head(f, "GET http://other HTTP/1.1\r\nHost: h\r\n\r\n"), REJECT_NONE);
    assert_true(slice_eq(exchange_path(&f->x), SLICE("/")));
    assert_int_equal(head(f, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), REJECT_INVALID_REQUEST);
    assert_int_equal(head(f, "GET / HTTP/1.1\r\nHost: h\r\nX-Weir-Hop: you, mee\r\n\r\n"),
                     REJECT_NONE);
    assert_int_equal(
        head(f, "GET / HTTP/1.1\r\nHost: h\r\nX-Weir-Hop: you\r\nx-weir-hop: a , me\r\n\r\n"),
        REJECT_LOOP_DETECTED);
    /* Two traceparents are none. */
    assert_int_equal(
        head(f, "GET / HTTP/1.1\r\nHost: h\r\n"
                "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"
                "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n"),
        REJECT_NONE);
    assert_true(f->fields.new_trace);
}

static void test_features(void **state)
{
    struct fixture *f = *state;
    const char *param;

    assert_int_equal(features(f,
                              "X-Model-Id: m1\r\nX-Model-Version: v2\r\nX-Required-Memory: 7.5\r\n"
                              "X-Session-Id: s\r\nX-Request-Timeout-Ms: 250\r\nX-SLO-TTFT-Ms: "
                              "40\r\nX-Priority: 1\r\n",
                              &param),
                     REJECT_NONE);
    assert_true(slice_eq(f->x.f.model, SLICE("m1")));
    assert_true(slice_eq(f->x.f.version, SLICE("v2")));
    assert_true(f->x.f.required_bytes == GIB / 2 * 15);
    assert_true(f->x.f.session == hash_slice(SLICE("s"), 0) && f->x.f.has_session);
    assert_true(f->x.f.deadline_ns == 1000 + 250 * NS_PER_MS &&
                f->x.f.slo_ttft_ns == 40 * NS_PER_MS);
    assert_int_equal(f->x.f.priority, PRIORITY_DEFAULT); /* not trusted here */
    assert_int_equal(f->x.f.body_bytes, 7);
    assert_int_equal(f->x.f.task, TASK_CHAT);
    f->route.trust_priority = f->route.trust_tenant = true;
    f->route.timeouts.total_ns = 100 * NS_PER_MS;
    assert_int_equal(
        features(f, "X-Priority: 1\r\nX-Tenant-Id: t\r\nX-Request-Timeout-Ms: 250\r\n", &param),
        REJECT_NONE);
    assert_int_equal(f->x.f.priority, 1);
    assert_true(slice_eq(f->x.f.tenant, SLICE("t")));
    assert_true(f->x.f.deadline_ns == 1000 + 100 * NS_PER_MS); /* the route's is shorter */
}

static void test_headers_that_cannot_be_read(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[][2] = {
        {"X-Required-Memory: 8GB\r\n", "X-Required-Memory"},
        {"X-Required-Memory: -1\r\n", "X-Required-Memory"},
        {"X-Required-Memory:\r\n", "X-Required-Memory"},
        {"X-Required-Memory: nan\r\n", "X-Required-Memory"},
        {"X-Request-Timeout-Ms: 0\r\n", "X-Request-Timeout-Ms"},
        {"X-Request-Timeout-Ms: 1.5\r\n", "X-Request-Timeout-Ms"},
        {"X-SLO-TTFT-Ms: soon\r\n", "X-SLO-TTFT-Ms"},
        {"X-Priority: 0\r\n", "X-Priority"},
        {"X-Priority: 10\r\n", "X-Priority"},
    };

    f->route.trust_priority = true;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *param = NULL;
        assert_int_equal(features(f, bad[i][0], &param), REJECT_INVALID_HEADER);
        assert_string_equal(param, bad[i][1]);
    }
}

static void test_the_first_source_of_a_session_counts(void **state)
{
    struct fixture *f = *state;
    const char *param;
    struct peek_found found = {.user = {.present = true, .hash = 77}};

    f->route.n_hash_on = 4;
    f->route.hash_on[0] = (struct hash_on){HASH_ON_HEADER, SLICE("X-K")};
    f->route.hash_on[1] = (struct hash_on){HASH_ON_BODY_USER, SLICE("")};
    f->route.hash_on[2] = (struct hash_on){HASH_ON_COOKIE, SLICE("sid")};
    f->route.hash_on[3] = (struct hash_on){HASH_ON_CLIENT_IP, SLICE("")};
    f->known.uses_session = true;
    assert_int_equal(features(f, "X-K: a\r\nCookie: sid=b\r\n", &param), REJECT_NONE);
    assert_true(f->x.f.session == hash_slice(SLICE("a"), 0));
    assert_false(f->x.reads_rest);
    assert_int_equal(features(f, "Cookie: x=1; sid=b\r\n", &param), REJECT_NONE);
    assert_true(f->x.f.session == hash_slice(SLICE("b"), 0));
    assert_true(f->x.reads_rest); /* the body may say something better */
    route_session_from_body(&f->x, &found);
    assert_true(f->x.f.session == 77);
    assert_int_equal(features(f, "", &param), REJECT_NONE);
    assert_true(f->x.f.has_session); /* by address */
    assert_int_equal(f->x.session_rank, 3);
}

/* An idle stream holds these three and no buffer: 4 KB is the budget. */
static void test_sizes(void **state)
{
    (void)state;
    assert_true(sizeof(struct client) + sizeof(struct exchange) + sizeof(struct upstream) <= 3072);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match),
        cmocka_unit_test(test_match_by_more_than_the_path),
        cmocka_unit_test(test_a_parameter_of_the_query),
        cmocka_unit_test(test_identifiers),
        cmocka_unit_test(test_dot_segments),
        cmocka_unit_test_setup_teardown(test_the_rendered_head, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_forwarded_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_targets_and_loops, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_features, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_headers_that_cannot_be_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_first_source_of_a_session_counts, set_up,
                                        tear_down),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
