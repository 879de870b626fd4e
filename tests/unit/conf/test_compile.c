/* SPDX-License-Identifier: Apache-2.0 */
/* What spans several keys. */
#include "unit/confio/load.h"

#include "base/bug.h"

struct error_case {
    const char *text, *errors;
};

static void expect_all(const struct error_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect_errors(cases[i].text, cases[i].errors);
}

static void an_open_door_needs_a_token_or_a_word(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"admin: {address: '0.0.0.0:1'}\n",
         "w.yaml:1:18: admin.address: an address that is not loopback needs admin.token, or "
         "admin.insecure: true\n"},
        {"registry:\n  address: '[fd00::1]:1'\n",
         "w.yaml:2:12: registry.address: an address that is not loopback needs registry.token, or "
         "registry.insecure: true\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
    static const char *const good[] = {
        "admin: {address: '0.0.0.0:1', token: 'env:T'}",
        "admin: {address: '0.0.0.0:1', insecure: true}",
        "admin: {address: '127.0.0.2:1'}",
        "admin: {address: '[::1]:1'}",
        "admin: {address: 'localhost:1'}",
        "registry: {address: off}",
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct loaded l;
        expect_conf(&l, good[i]);
        load_fini(&l);
    }
}

static void addresses_meet_once(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"listeners: [{address: '127.0.0.1:29000'}]\n",
         "w.yaml: admin.address: is taken already by a listener\n"},
        {"listeners: [{address: '0.0.0.0:5'}, {address: '127.0.0.1:5'}]\n",
         "w.yaml:1:47: listeners[1].address: is taken already by a listener\n"},
        {"admin: {address: '127.0.0.1:5'}\nregistry: {address: 'localhost:5'}\n",
         "w.yaml:2:21: registry.address: is taken already by admin.address\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
    struct loaded l;
    expect_conf(&l, "listeners: [{address: '0.0.0.0:0'}, {address: '0.0.0.0:0'}]\nadmin: {address: "
                    "'127.0.0.1:0'}\n");
    load_fini(&l);
}

static void an_endpoint_is_not_weir_itself(void **state)
{
    (void)state;
#define ONE(url) "discovery: [{type: static, endpoints: [{url: '" url "'}]}]\n"
    static const struct error_case cases[] = {
        {ONE("http://127.0.0.1:30000"),
         "w.yaml:1:46: discovery[0].endpoints[0].url: \"http://127.0.0.1:30000\" is Weir "
         "itself (a listener)\n"},
        {ONE("http://localhost:29000"),
         "w.yaml:1:46: discovery[0].endpoints[0].url: \"http://localhost:29000\" is Weir itself "
         "(admin.address)\n"},
        {ONE("http://0.0.0.0:8848"), "w.yaml:1:46: discovery[0].endpoints[0].url: "
                                     "\"http://0.0.0.0:8848\" is Weir itself (registry.address)\n"},
        {ONE("gpu1:8000"), "w.yaml:1:46: discovery[0].endpoints[0].url: \"gpu1:8000\" is not a "
                           "URL; write http://host:port\n"},
        {"discovery:\n- type: static\n  endpoints: [{url: 'http://a:1'}, {url: 'http://A:1/'}]\n",
         "w.yaml:3:42: discovery[0].endpoints[1].url: \"http://A:1/\" is the address of an earlier "
         "endpoint of this source\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
    struct loaded l;
    /* Another machine may use the same port. */
    expect_conf(&l, ONE("http://10.0.0.5:30000"));
    load_fini(&l);
#undef ONE
}

static void names_of_models_are_unique(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"models: {a: {aliases: [b]}, b: {}}\n",
         "w.yaml:1:24: models.a.aliases[0]: \"b\" is the id of a model\n"},
        {"models: {a: {aliases: [a]}}\n",
         "w.yaml:1:24: models.a.aliases[0]: \"a\" is the id of a model\n"},
        {"models: {a: {aliases: [x]}, b: {aliases: [y, x]}}\n",
         "w.yaml:1:46: models.b.aliases[1]: \"x\" is already an alias of \"a\"\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
}

static void policies(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"routes: [{policy: mian}]\npolicies: {main: {use: chain}}\n",
         "w.yaml:1:19: routes[0].policy: unknown policy \"mian\"; did you mean \"main\"?\n"},
        {"routes: [{policy: fastest}]\n",
         "w.yaml:1:19: routes[0].policy: unknown policy \"fastest\"; known are queued_work, chain, "
         "least_request, round_robin, weighted_round_robin, random, power_of_two, consistent_hash, "
         "maglev, prefix_cache, response_time, peak_ewma, prequal, cache_aware, prefix_hash, "
         "llm_d, dynamo, vllm\n"},
        {"policies: {p: {pick: lowest, filters: [usable, locality]}}\n",
         "w.yaml:1:39: policies.p.filters: filter locality has to know where this Weir is: add "
         "locality: {zone: ...} (or region, cluster) at the top, or leave it out\n"},
        {"routes: [{policy: bucket}]\n",
         "w.yaml:1:19: routes[0].policy: policy \"bucket\" comes in a later version\n"},
        {"policies: {chain: {use: random}}\n",
         "w.yaml:1:12: policies.chain: is the name of a built-in policy; choose another one\n"},
        {"policies: {p: {}}\n",
         "w.yaml:1:12: policies.p: needs use, or pick with filters and scores\n"},
        {"policies: {p: {use: chain, pick: lowest}}\n",
         "w.yaml:1:12: policies.p: has both use and filters, scores or pick; give one or the "
         "other\n"},
        {"policies: {p: {use: p}}\n",
         "w.yaml:1:21: policies.p.use: unknown policy \"p\"; known "
         "are queued_work, chain, least_request, round_robin, weighted_round_robin, random, "
         "power_of_two, consistent_hash, maglev, prefix_cache, response_time, peak_ewma, "
         "prequal, cache_aware, prefix_hash, llm_d, dynamo, vllm\n"},
        {"policies: {p: {filters: [usable, modle], pick: lowest}}\n",
         "w.yaml:1:34: policies.p.filters[1]: unknown filter \"modle\"; did you mean \"model\"?\n"},
        {"policies: {p: {scores: [{name: laod}], pick: lowest}}\n",
         "w.yaml:1:32: policies.p.scores[0].name: unknown score \"laod\"; did you mean "
         "\"load\"?\n"},
        {"policies: {p: {pick: lowset}}\n",
         "w.yaml:1:22: policies.p.pick: unknown pick \"lowset\"; did you mean \"lowest\"?\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
}

static void routes(void **state)
{
    (void)state;
    static const struct error_case cases[] = {
        {"routes: [{match: {path: v1}}]\n",
         "w.yaml:1:25: routes[0].match.path: \"v1\" must start with /\n"},
        {"routes: [{match: {path: '/a*b'}}]\n",
         "w.yaml:1:25: routes[0].match.path: \"/a*b\" may have ** only once, at the end\n"},
        {"routes: [{match: {path: '/a?b'}}]\n", "w.yaml:1:25: routes[0].match.path: \"/a?b\" must "
                                                "be a plain path, without ?, # or spaces; "
                                                "match.query says what the query must have\n"},
        {"routes: [{}, {match: {path: /v1/x}}]\n",
         "w.yaml:1:29: routes[1].match.path: \"/v1/x\" is never reached: routes[0] takes all of it "
         "with \"/v1/**\"\n"},
        {"routes: [{match: {path: '/v1/**'}}, {match: {path: '/v1/a/**'}}]\n",
         "w.yaml:1:52: routes[1].match.path: \"/v1/a/**\" is never reached: routes[0] takes all of "
         "it with \"/v1/**\"\n"},
        {"routes: [{match: {path: /a}}, {match: {path: /a}}]\n",
         "w.yaml:1:46: routes[1].match.path: \"/a\" is never reached: routes[0] takes all of it "
         "with \"/a\"\n"},
    };
    expect_all(cases, ARRAY_LEN(cases));
    static const struct error_case more[] = {
        {"routes: [{match: {path: /v1/models}}]\n",
         "w.yaml:1:25: routes[0].match.path: \"/v1/models\" is never reached: Weir answers it "
         "itself\n"},
        {"routes: [{match: {methods: [POST, CONNECT, 'a b', get]}}]\n",
         "w.yaml:1:35: routes[0].match.methods[1]: \"CONNECT\" is never reached: Weir refuses it\n"
         "w.yaml:1:44: routes[0].match.methods[2]: \"a b\" is not a method\n"
         "w.yaml:1:51: routes[0].match.methods[3]: \"get\" has small letters, and methods are told "
         "apart by case\n"},
        {"routes: [{match: {hosts: ['a:80', '*', 'a.*.b', '[::1]:80', '::1', '*.ok', 'a/b']}}]\n",
         "w.yaml:1:27: routes[0].match.hosts[0]: \"a:80\" must stand without a port\n"
         "w.yaml:1:35: routes[0].match.hosts[1]: \"*\" may have * only in front, as *.example.com\n"
         "w.yaml:1:40: routes[0].match.hosts[2]: \"a.*.b\" may have * only in front, as "
         "*.example.com\n"
         "w.yaml:1:49: routes[0].match.hosts[3]: \"[::1]:80\" must stand without brackets and "
         "without a port\n"
         "w.yaml:1:76: routes[0].match.hosts[6]: \"a/b\" is not a host\n"},
        {"routes: [{match: {headers: {host: x, Content-Type: y, 'a b': z, X-A: b}}}]\n",
         "w.yaml:1:29: routes[0].match.headers.host: \"host\" is matched by hosts\n"
         "w.yaml:1:38: routes[0].match.headers.Content-Type: \"Content-Type\" is matched by "
         "content_types, without its parameters\n"
         "w.yaml:1:55: routes[0].match.headers.a b: \"a b\" is not the name of a header field\n"},
        {"routes: [{match: {content_types: [json, a/b;c=d, '*/*', audio/*]}}]\n",
         "w.yaml:1:35: routes[0].match.content_types[0]: \"json\" is not a media type; write "
         "type/subtype, or type/*\n"
         "w.yaml:1:41: routes[0].match.content_types[1]: \"a/b;c=d\" must stand without "
         "parameters\n"
         "w.yaml:1:50: routes[0].match.content_types[2]: \"*/*\" is not a media type; write "
         "type/subtype, or type/*\n"},
        {"routes: [{match: {methods: [POST, GET]}}, {name: b, match: {methods: [GET], query: {a: "
         "b}}}]\n",
         "w.yaml:1:60: routes[1].match.path: \"/v1/**\" is never reached: routes[0] takes all of "
         "it with \"/v1/**\"\n"},
        {"routes: [{match: {headers: {x-a: '*'}, content_types: [a/*], hosts: ['*.x']}}, {name: b, "
         "match: {headers: {X-A: b}, content_types: [A/b, a/c], hosts: [a.X, '*.b.x']}}]\n",
         "w.yaml:1:97: routes[1].match.path: \"/v1/**\" is never reached: routes[0] takes all of "
         "it with \"/v1/**\"\n"},
        {"routes: [{match: {methods: [GET]}}, {}]\n",
         "w.yaml:1:37: routes[1].name: \"/v1/**\" is what routes[0] is called already; give this "
         "one a name of its own\n"},
    };
    expect_all(more, ARRAY_LEN(more));
    struct loaded l;
    expect_conf(
        &l,
        "routes: [{name: a, match: {methods: [GET]}}, {name: b, match: {query: {a: b}}}, {name: "
        "c, match: {query: {a: '*'}}}, {name: d, match: {content_types: [a/b]}}, {name: e, match: "
        "{content_types: [a/*, c/d]}}, {name: f, match: {hosts: [x]}}, {}]\n");
    const struct route *r = l.conf->routing.routes;
    assert_non_null(r[0].more);
    assert_null(r[6].more); /* the path alone decides */
    assert_true(slice_eq(route_name(&r[1]), SLICE("b")));
    assert_true(slice_eq(route_name(&r[6]), SLICE("/v1/**")));
    load_fini(&l);
    expect_conf(
        &l,
        "routes: [{match: {path: /a}}, {match: {path: '/a/**'}}, {match: {path: '/a**'}}, {}]\n");
    load_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_door_needs_a_token_or_a_word),
        cmocka_unit_test(addresses_meet_once),
        cmocka_unit_test(an_endpoint_is_not_weir_itself),
        cmocka_unit_test(names_of_models_are_unique),
        cmocka_unit_test(policies),
        cmocka_unit_test(routes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
