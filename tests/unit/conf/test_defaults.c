/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/confio/load.h"

#include "base/bug.h"
#include "base/num.h"
#include "sched/pick.h"

static void nothing_gives_the_defaults(void **state)
{
    (void)state;
    struct loaded l;
    const struct conf *c = expect_conf(&l, "")->conf;

    assert_int_equal(c->n_listeners, 1);
    assert_true(slice_eq(c->listeners[0].address.host, SLICE("0.0.0.0")));
    assert_int_equal(c->listeners[0].address.port, 30000);
    assert_int_equal(c->listeners[0].mode, CONF_LISTENER_HTTP);
    assert_null(c->listeners[0].name.p);
    assert_true(slice_eq(c->admin.address.host, SLICE("127.0.0.1")));
    assert_int_equal(c->admin.address.port, 29000);
    assert_int_equal(c->admin.token.kind, CONF_SECRET_NONE);
    assert_true(slice_eq(c->registry.address.host, SLICE("127.0.0.1")));
    assert_int_equal(c->registry.address.port, 8848);
    assert_false(c->registry.address.off);
    assert_null(c->registry.state_file.p);
    assert_int_equal(c->n_sources, 0);
    assert_int_equal(c->routing.n_models, 0);
    assert_int_equal(c->routing.generation, 7);
    assert_int_equal(c->threads, 0);
    assert_int_equal(c->decisions_per_s, 100);
    assert_int_equal(c->logging.level, CONF_LOG_INFO);
    assert_null(c->logging.access.p);
    assert_true(c->health.interval_ns == 5 * NS_PER_S);
    assert_true(c->health.timeout_ns == 2 * NS_PER_S);
    assert_null(c->health.path.p);
    assert_int_equal(c->health.down_after, 3);
    assert_int_equal(c->health.up_after, 2);
    assert_int_equal(c->health.panic_percent, 50);
    assert_int_equal(c->gpu_exporters.n_urls, 0);
    assert_true(c->gpu_exporters.interval_ns == 5 * NS_PER_S);
    assert_true(c->gpu_exporters.timeout_ns == 2 * NS_PER_S);
    const struct breaker_rules *b = &c->routing.breaker;
    assert_true(b->enabled);
    assert_int_equal(b->consecutive, 5);
    assert_int_equal(b->first_byte_timeouts, 3);
    assert_int_equal(b->error_percent, 50);
    assert_int_equal(b->min_requests, 20);
    assert_int_equal(b->successes, 1);
    assert_true(b->window_ns == 10 * NS_PER_S);
    assert_true(b->cooldown_ns == 5 * NS_PER_S);
    assert_true(b->cooldown_max_ns == 60 * NS_PER_S);
    assert_true(b->stall_ns == 30 * NS_PER_S);
    load_fini(&l);
}

static void the_default_route_is_queued_work_for_all_paths(void **state)
{
    (void)state;
    struct loaded l;
    const struct conf *c = expect_conf(&l, "---\n# nothing\n")->conf;
    struct policy usual;

    static const char *const paths[] = {"/v1/**",           "/v2/models/**",  "/worker_**",
                                        "/count_token",     "/model_details", "/sdapi/v1/txt2img",
                                        "/sdapi/v1/img2img"};
    assert_int_equal(c->routing.n_routes, ARRAY_LEN(paths));
    for (uint32_t i = 0; i < ARRAY_LEN(paths); i++) {
        assert_true(slice_eq(c->routing.routes[i].path, slice_str(paths[i])));
        assert_ptr_equal(c->routing.routes[i].policy, &c->policies[0]);
    }
    const struct route *r = &c->routing.routes[0];
    assert_int_equal(sched_policy_named(SLICE("queued_work"), &usual), 0);
    usual.panic_percent = 50;
    usual.slow_start_ns = 30 * NS_PER_S;
    sched_policy_seal(&usual);
    assert_true(r->policy->hash == usual.hash);
    assert_ptr_equal(r->policy, &c->policies[0]);
    assert_int_equal(c->n_policies, 1);
    assert_null(r->default_model.p);
    assert_int_equal(r->n_hash_on, 1);
    assert_int_equal(r->hash_on[0].source, HASH_ON_HEADER);
    assert_true(slice_eq(r->hash_on[0].name, SLICE("X-Session-Id")));
    assert_int_equal(r->half_close, HALF_CLOSE_GONE);
    assert_true(r->timeouts.connect_ns == 2 * NS_PER_S);
    assert_true(r->timeouts.first_byte_ns == 600 * NS_PER_S);
    assert_true(r->timeouts.between_bytes_ns == 600 * NS_PER_S);
    assert_true(r->timeouts.total_ns == 0);
    assert_int_equal(r->retry.connect_attempts, 3);
    assert_int_equal(r->retry.budget_percent, 20);
    assert_int_equal(r->retry.budget_min_per_s, 3);
    assert_false(r->retry.retry_unsafe);
    assert_int_equal(r->queue.size, 1024);
    assert_true(r->queue.timeout_ns == 60 * NS_PER_S);
    assert_true(r->queue.age_ns == 10 * NS_PER_S);
    assert_false(r->trust_priority);
    assert_false(r->trust_tenant);
    const struct limits *m = &c->routing.limits;
    assert_true(m->body_bytes == UINT64_C(512) << 20);
    assert_true(m->peek_bytes == 16 << 20);
    assert_true(m->header_bytes == 65536);
    assert_int_equal(m->headers, 128);
    assert_int_equal(m->connections, 65536);
    assert_true(m->buffer_bytes == GIB);
    assert_true(m->idle_ns == 75 * NS_PER_S);
    assert_true(m->header_read_ns == 10 * NS_PER_S);
    assert_true(m->body_read_ns == 60 * NS_PER_S);
    assert_true(m->body_rate == 512);
    assert_true(m->stream_ns == 0);
    assert_true(m->stream_bytes == 0);
    assert_true(m->drain_ns == 30 * NS_PER_S);
    load_fini(&l);
}

static void empty_sections_set_nothing(void **state)
{
    (void)state;
    struct loaded empty;
    struct loaded none;
    struct conf_change changes[CONF_CHANGES_MAX];
    const struct conf *a =
        expect_conf(&empty, "limits:\nroutes: []\nmodels: {}\nhealth: ~\nadmin: null\npolicies:\n")
            ->conf;
    const struct conf *b = expect_conf(&none, "")->conf;
    assert_int_equal(conf_diff(a, b, changes), 0);
    load_fini(&empty);
    load_fini(&none);
}

static void endpoints_come_ready_for_the_fleet(void **state)
{
    (void)state;
    struct loaded l;
    const struct conf *c =
        expect_conf(
            &l,
            "discovery:\n"
            "- type: static\n"
            "  endpoints:\n"
            "  - {url: 'http://GPU1:8000/', weight: 2.5, labels: {tier: gold}, models: [a, b],\n"
            "     gpu_type: A100, max_concurrency: 96, max_model_len: 4096, engine: weir,\n"
            "     region: r, zone: z, cluster: c}\n"
            "  - url: http://[fd00::2]\n")
            ->conf;
    assert_int_equal(c->n_sources, 1);
    assert_int_equal(c->sources[0].type, CONF_SOURCE_STATIC);
    assert_int_equal(c->sources[0].n_endpoints, 2);
    const struct conf_endpoint *e = &c->sources[0].endpoints[0];
    const struct instance *i = &e->instance;
    assert_true(slice_eq(e->url, SLICE("http://GPU1:8000/")));
    assert_true(slice_eq(i->key, SLICE("gpu1:8000")));
    assert_true(slice_eq(i->host, SLICE("GPU1")));
    assert_int_equal(i->port, 8000);
    assert_null(i->id.p);
    assert_false(i->tls);
    assert_int_equal(i->weight, 2500);
    assert_true(i->enabled && i->healthy && !i->draining && !i->probation);
    assert_int_equal(i->n_models, 2);
    assert_true(slice_eq(i->models[1].id, SLICE("b")));
    assert_int_equal(i->models[1].max_model_len, 4096);
    assert_int_equal(i->n_devices, 1);
    assert_true(slice_eq(i->devices[0].type, SLICE("A100")));
    assert_int_equal(i->max_concurrency, 96);
    assert_int_equal(i->max_model_len, 4096);
    assert_int_equal(i->engine, ENGINE_WEIR_WORKER);
    assert_int_equal(i->n_labels, 1);
    assert_true(slice_eq(i->labels[0].key, SLICE("tier")));
    assert_true(slice_eq(i->labels[0].value, SLICE("gold")));
    assert_true(slice_eq(i->region, SLICE("r")) && slice_eq(i->zone, SLICE("z")) &&
                slice_eq(i->cluster, SLICE("c")));
    i = &c->sources[0].endpoints[1].instance;
    assert_true(slice_eq(i->key, SLICE("[fd00::2]:80")));
    assert_true(slice_eq(i->host, SLICE("fd00::2")));
    assert_int_equal(i->weight, WEIGHT_ONE);
    assert_int_equal(i->n_models, 0);
    assert_int_equal(i->n_devices, 0);
    assert_int_equal(i->max_concurrency, 0);
    assert_int_equal(i->engine, ENGINE_UNKNOWN);
    load_fini(&l);
}

static void every_engine_word_is_its_kind(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        enum engine_kind kind;
    } engines[] = {
        {"unknown", ENGINE_UNKNOWN}, {"vllm", ENGINE_VLLM},         {"sglang", ENGINE_SGLANG},
        {"tgi", ENGINE_TGI},         {"tei", ENGINE_TEI},           {"llamacpp", ENGINE_LLAMACPP},
        {"triton", ENGINE_TRITON},   {"ollama", ENGINE_OLLAMA},     {"weir", ENGINE_WEIR_WORKER},
        {"trtllm", ENGINE_TRTLLM},   {"fastchat", ENGINE_FASTCHAT}, {"tfserving", ENGINE_TFSERVING},
        {"sdwebui", ENGINE_SDWEBUI}, {"oip", ENGINE_OIP},           {"generic", ENGINE_GENERIC}};
    for (size_t i = 0; i < ARRAY_LEN(engines); i++) {
        struct loaded l;
        char text[256] = "discovery: [{type: static, endpoints: [{url: 'http://h:1', engine: ";
        strcat(strcat(text, engines[i].word), "}]}]");
        const struct conf *c = expect_conf(&l, text)->conf;
        assert_int_equal(c->sources[0].endpoints[0].instance.engine, engines[i].kind);
        load_fini(&l);
    }
}

static void routes_and_policies_become_what_sched_reads(void **state)
{
    (void)state;
    struct loaded l;
    const struct conf *c =
        expect_conf(&l, "gpu_weights: {A100: 3, T4: 0.5}\n"
                        "models: {m: {aliases: [gpt], kv_bytes_per_token: 128KiB}}\n"
                        "policies:\n"
                        "  mine: {filters: [model, usable], scores: [{name: load, weight: 0.5}], "
                        "pick: power_of_two,\n"
                        "         curve: {0: 2, 50.5%: 1, 100: 0.25}, bound: 1.5}\n"
                        "  short: {pick: lowest}\n"
                        "routes:\n"
                        "- match: {path: /v1/embeddings}\n"
                        "  policy: mine\n"
                        "  default_model: gpt\n"
                        "  hash_on: [user, 'cookie:sid', 'header:X-A', prompt_cache_key, "
                        "previous_response_id, client_ip]\n"
                        "  half_close: keep\n"
                        "  timeouts: {connect: 50ms, first_byte: none, total: 1h}\n"
                        "  retry: {retry_unsafe: true, connect_attempts: 0}\n"
                        "  queue: {size: 0, age: 1s}\n"
                        "  trust: [tenant, priority]\n"
                        "- policy: least_request\n")
            ->conf;
    const struct policy *p = c->routing.routes[0].policy;
    assert_int_equal(c->n_policies, 3);
    assert_ptr_equal(p, &c->policies[0]);
    assert_true(slice_eq(p->name, SLICE("mine")));
    assert_int_equal(p->n_filters, 2);
    assert_string_equal(sched_filters[p->filters[0]].name, "model");
    assert_string_equal(sched_filters[p->filters[1]].name, "usable");
    assert_int_equal(p->n_scores, 1);
    assert_string_equal(sched_scores[p->scores[0].plugin].name, "load");
    assert_int_equal(p->scores[0].q16, Q16_ONE / 2);
    assert_string_equal(sched_pickers[p->pick].name, "power_of_two");
    assert_int_equal(p->n_curve, 3);
    assert_int_equal(p->curve[1].util_bp, 5050);
    assert_int_equal(p->curve[1].q16, Q16_ONE);
    assert_int_equal(p->curve[2].q16, Q16_ONE / 4);
    assert_int_equal(p->bound_q16, Q16_ONE * 3 / 2);
    assert_int_equal(p->n_gpu_weights, 2);
    assert_int_equal(p->gpu_weights[1].weight, 500);
    struct policy again = *p;
    sched_policy_seal(&again);
    assert_true(again.hash == p->hash);

    /* Filters that are left out are those of chain. */
    struct policy chain;
    assert_int_equal(sched_policy_named(SLICE("chain"), &chain), 0);
    assert_int_equal(c->policies[1].n_filters, chain.n_filters);
    assert_memory_equal(c->policies[1].filters, chain.filters, chain.n_filters);
    assert_int_equal(c->policies[1].n_scores, 0);

    const struct route *r = &c->routing.routes[0];
    assert_true(slice_eq(r->default_model, SLICE("m"))); /* the alias is resolved */
    assert_int_equal(r->n_hash_on, 6);
    const enum hash_source sources[] = {
        HASH_ON_BODY_USER,         HASH_ON_COOKIE,   HASH_ON_HEADER, HASH_ON_PROMPT_CACHE_KEY,
        HASH_ON_PREVIOUS_RESPONSE, HASH_ON_CLIENT_IP};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(r->hash_on[i].source, sources[i]);
    assert_true(slice_eq(r->hash_on[1].name, SLICE("sid")));
    assert_true(slice_eq(r->hash_on[2].name, SLICE("X-A")));
    assert_int_equal(r->half_close, HALF_CLOSE_KEEP);
    assert_true(r->timeouts.connect_ns == 50 * NS_PER_MS);
    assert_true(r->timeouts.first_byte_ns == 0);
    assert_true(r->timeouts.total_ns == 3600 * NS_PER_S);
    assert_true(r->retry.retry_unsafe);
    assert_int_equal(r->retry.connect_attempts, 0);
    assert_int_equal(r->queue.size, 0);
    assert_true(r->trust_priority && r->trust_tenant);
    assert_true(slice_eq(c->routing.routes[1].policy->name, SLICE("least_request")));
    assert_int_equal(c->routing.routes[1].policy->n_gpu_weights, 2);
    assert_true(c->routing.models[0].kv_bytes_per_token == 131072);
    assert_true(slice_eq(c->routing.models[0].aliases[0], SLICE("gpt")));
    load_fini(&l);
}

static void locality_is_added_where_a_policy_does_not_choose_filters(void **state)
{
    (void)state;
    struct loaded l;
    const struct conf *c =
        expect_conf(&l, "locality: {region: eu, zone: a}\n"
                        "policies:\n"
                        "  own: {filters: [usable, model], pick: lowest}\n"
                        "  first: {filters: [usable, locality, model], pick: lowest}\n"
                        "  used: {use: chain}\n"
                        "routes: [{policy: own}, {match: {path: /a}, policy: first}, "
                        "{match: {path: /b}, policy: used}, {match: {path: /c}}]\n")
            ->conf;
    const uint32_t want[] = {2, 3, 8, 8};

    for (uint32_t i = 0; i < 4; i++) {
        const struct policy *p = c->routing.routes[i].policy;
        assert_int_equal(p->n_filters, want[i]);
        assert_int_equal(sched_policy_stays(p), i > 0);
        assert_true(i == 0 ? p->place.zone.p == NULL : slice_eq(p->place.zone, SLICE("a")));
    }
    assert_string_equal(sched_filters[c->routing.routes[1].policy->filters[1]].name, "locality");
    load_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(locality_is_added_where_a_policy_does_not_choose_filters),
        cmocka_unit_test(nothing_gives_the_defaults),
        cmocka_unit_test(the_default_route_is_queued_work_for_all_paths),
        cmocka_unit_test(empty_sections_set_nothing),
        cmocka_unit_test(endpoints_come_ready_for_the_fleet),
        cmocka_unit_test(every_engine_word_is_its_kind),
        cmocka_unit_test(routes_and_policies_become_what_sched_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
