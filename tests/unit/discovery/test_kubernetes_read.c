/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <stdio.h>
#include <string.h>

#include "base/bug.h"
#include "discovery/kubernetes_read.h"
#include "heap_mem.h"

#define SLICE_HEAD                                                                                 \
    "{\"metadata\":{\"name\":\"llm-x\",\"resourceVersion\":\"7\",\"labels\":"                      \
    "{\"kubernetes.io/service-name\":\"llm\"}},\"addressType\":\"IPv4\",\"endpoints\":"

struct fixture {
    struct test_heap heap;
    struct mem mem;
    struct arena a;
};

static void setup(struct fixture *f)
{
    *f = (struct fixture){0};
    f->mem = test_heap_mem(&f->heap);
    arena_init(&f->a, &f->mem, 1 << 20);
}

static void teardown(struct fixture *f)
{
    arena_fini(&f->a);
    assert_int_equal(f->heap.live, 0);
}

/* The one slice of a list with these endpoints and ports. */
static struct kube_object
slice_of_json(struct fixture *f, const char *endpoints, const char *ports, const char *wanted)
{
    char text[4096];
    struct kube_list list;

    (void)snprintf(text, sizeof(text),
                   "{\"kind\":\"EndpointSliceList\",\"metadata\":{\"resourceVersion\":\"9\"},"
                   "\"items\":[" SLICE_HEAD "%s,\"ports\":%s}]}",
                   endpoints, ports);
    assert_int_equal(kube_read_list(&f->a, KUBE_SLICES, slice_str(wanted), slice_str(text), &list),
                     0);
    assert_int_equal(list.n, 1);
    assert_true(slice_eq(list.version, SLICE("9")));
    assert_null(list.more.p);
    return list.objects[0];
}

/* "host:port r s t pod node zone" of each endpoint. */
static void expect(const struct kube_object *o, const char *want)
{
    char got[1024] = "";

    for (uint32_t i = 0; i < o->n_endpoints; i++) {
        const struct kube_endpoint *e = &o->endpoints[i];
        size_t n = strlen(got);
        (void)snprintf(got + n, sizeof(got) - n, "%s%s%.*s:%u %d%d%d %.*s %.*s %.*s", i ? ";" : "",
                       e->tls ? "tls " : "", SLICE_ARG(e->host), e->port, e->ready, e->serving,
                       e->terminating, SLICE_ARG(e->pod), SLICE_ARG(e->node), SLICE_ARG(e->zone));
    }
    assert_string_equal(got, want);
}

static void an_endpoint_with_all_it_can_have(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f);
    struct kube_object o = slice_of_json(
        &f,
        "[{\"addresses\":[\"10.1.0.7\",\"10.1.0.8\"],\"conditions\":{\"ready\":true,\"serving\":"
        "true,"
        "\"terminating\":false},\"targetRef\":{\"kind\":\"Pod\",\"name\":\"llm-0\",\"uid\":\"u\"},"
        "\"nodeName\":\"n1\",\"zone\":\"z1\"}]",
        "[{\"name\":\"http\",\"protocol\":\"TCP\",\"port\":8000}]", NULL);
    expect(&o, "10.1.0.7:8000 110 llm-0 n1 z1");
    assert_true(slice_eq(o.name, SLICE("llm-x")));
    assert_true(slice_eq(o.version, SLICE("7")));
    assert_true(slice_eq(o.service, SLICE("llm")));
    assert_true(slice_eq(o.endpoints[0].uid, SLICE("u")));
    assert_int_equal(o.n_bad, 0);
    teardown(&f);
}

static void absent_conditions_mean_ready_serving_and_not_terminating(void **state)
{
    static const struct {
        const char *conditions, *want;
    } cases[] = {
        {"{}", "h:1 110   "},
        {"{\"ready\":null,\"serving\":null,\"terminating\":null}", "h:1 110   "},
        {"{\"ready\":false}", "h:1 000   "},
        {"{\"ready\":false,\"serving\":true,\"terminating\":true}", "h:1 011   "},
        {"{\"ready\":true,\"terminating\":true}", "h:1 111   "},
        {"null", "h:1 110   "},
        {"7", "h:1 110   "},
    };
    struct fixture f;
    char text[256];

    (void)state;
    setup(&f);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(text, sizeof(text), "[{\"addresses\":[\"h\"],\"conditions\":%s}]",
                       cases[i].conditions);
        struct kube_object o = slice_of_json(&f, text, "[{\"port\":1}]", NULL);
        expect(&o, cases[i].want);
    }
    teardown(&f);
}

static void a_port_by_name_by_number_or_the_first(void **state)
{
    static const char ports[] =
        "[{\"name\":\"dns\",\"protocol\":\"UDP\",\"port\":53},{\"name\":\"metrics\",\"port\":9000},"
        "{\"name\":\"api\",\"protocol\":\"TCP\",\"port\":9001,\"appProtocol\":\"HTTPS\"}]";
    static const struct {
        const char *ports, *wanted, *want;
        uint32_t n_bad;
    } cases[] = {
        {ports, NULL, "h:9000 110   ", 0},
        {ports, "metrics", "h:9000 110   ", 0},
        {ports, "api", "tls h:9001 110   ", 0},
        {ports, "9001", "tls h:9001 110   ", 0},
        {ports, "53", "", 1},
        {ports, "dns", "", 1},
        {ports, "none", "", 1},
        /* every port is open: a number has to say which */
        {"[]", "8000", "h:8000 110   ", 0},
        {"null", "8000", "h:8000 110   ", 0},
        {"[{\"name\":\"\",\"port\":null}]", "8000", "h:8000 110   ", 0},
        {"[]", NULL, "", 1},
        {"[]", "http", "", 1},
        {"[]", "65536", "", 1},
        {"[{\"port\":0}]", NULL, "", 1},
        {"[{\"port\":65536}]", NULL, "", 1},
        {"[{\"port\":\"8000\"}]", NULL, "", 1},
    };
    struct fixture f;

    (void)state;
    setup(&f);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kube_object o =
            slice_of_json(&f, "[{\"addresses\":[\"h\"]}]", cases[i].ports, cases[i].wanted);
        expect(&o, cases[i].want);
        assert_int_equal(o.n_bad, cases[i].n_bad);
    }
    teardown(&f);
}

static void addresses_of_no_use_are_counted(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f);
    struct kube_object o = slice_of_json(
        &f,
        "[{\"addresses\":[\"fd00::1\"]},{\"addresses\":[\"fe80::1%eth0\"]},{\"addresses\":[]},{},"
        "{\"addresses\":[7]},{\"addresses\":[\"\"]},{\"addresses\":[\"a b\"]},"
        "{\"addresses\":[\"u@h\"]},{\"addresses\":[\"h/x\"]},null]",
        "[{\"port\":1}]", NULL);
    expect(&o, "fd00::1:1 110   ");
    assert_int_equal(o.n_bad, 9);
    teardown(&f);
}

#define EVENT(endpoints, port)                                                                     \
    "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"s\"},\"endpoints\" : [" endpoints \
    "],\"ports\":[{\"port\":" port "}]}}"
#define AT(host) "{\"addresses\":[\"" host "\"]}"

static struct kube_object
slice_of_event(struct fixture *f, const char *text, const struct kube_object *before)
{
    struct kube_event e;

    assert_int_equal(
        kube_read_event(&f->a, KUBE_SLICES, slice_str(NULL), slice_str(text), before, 7, &e), 0);
    return e.object;
}

static void endpoints_that_are_as_they_were_are_borrowed(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f);
    const char *text = EVENT(AT("a") "," AT("b") " ,\n" AT("]}") ",7," AT("c"), "1");
    assert_true(slice_eq(kube_event_name(slice_str(text)), SLICE("s")));
    struct kube_object first = slice_of_event(&f, text, NULL);
    expect(&first, "a:1 110   ;b:1 110   ;c:1 110   ");
    assert_int_equal(first.n_bad, 2);
    /* b has gone, x has come; and the port of all is another. */
    struct kube_object next =
        slice_of_event(&f, EVENT(AT("a") ",77, " AT("x") "," AT("c") "\n", "2"), &first);
    expect(&next, "a:2 110   ;x:2 110   ;c:2 110   ");
    assert_int_equal(next.n_bad, 1);
    assert_ptr_equal(next.endpoints[0].host.p, first.endpoints[0].host.p);
    assert_ptr_equal(next.endpoints[2].host.p, first.endpoints[2].host.p);
    /* More than there is room for at first. */
    char many[8192] =
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"s\"},\"endpoints\":[";
    for (int i = 0; i < 200; i++) {
        size_t n = strlen(many);
        (void)snprintf(many + n, sizeof(many) - n, "%s{\"addresses\":[\"h%d\"]}", i ? "," : "", i);
    }
    size_t n = strlen(many);
    (void)snprintf(many + n, sizeof(many) - n, "],\"ports\":[{\"port\":1}]}}");
    struct kube_object all = slice_of_event(&f, many, &next);
    assert_int_equal(all.n_endpoints, 200);
    assert_true(slice_eq(all.endpoints[199].host, SLICE("h199")));
    teardown(&f);
}

static void a_list_of_endpoints_that_is_none_is_refused(void **state)
{
    static const char *const bad[] = {
        EVENT("{\"addresses\":[\"a\"]", "1"),
        EVENT("{} {}", "1"),
        EVENT(",", "1"),
        EVENT("{},", "1"),
        EVENT("{\"a\":1,\"a\":2}", "1"),
        EVENT("x", "1"),
        EVENT("{}],\"endpoints\":[", "1"),
        EVENT("{}],\"endpoint\\u0073\":[", "1"),
    };
    struct kube_event e;
    struct fixture f;

    (void)state;
    setup(&f);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(
            kube_read_event(&f.a, KUBE_SLICES, slice_str(NULL), slice_str(bad[i]), NULL, 0, &e),
            WEIR_E_INVALID);
    /* Whose name is written in some other way is read whole. */
    struct kube_object o = slice_of_event(
        &f,
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"s\"},\"endpoint\\u0073\":[" AT(
            "a") "],\"ports\":[{\"port\":1}]}}",
        NULL);
    expect(&o, "a:1 110   ");
    teardown(&f);
}

static void keys_of_ours_become_metadata(void **state)
{
    static const char text[] =
        "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"llm-0\",\"resourceVersion\":"
        "\"12\","
        "\"annotations\":{\"weir.dev/model_id\":\"m\",\"nacos.metadata.gpu_type\":\"A100\","
        "\"weir.dev/\":\"x\",\"other\":\"y\",\"weir.dev/n\":7},"
        "\"labels\":{\"app\":\"llm\",\"weir.dev/model_id\":\"other\",\"weir.dev/"
        "tier\":\"gold\"}}}}";
    static const struct {
        const char *key, *value;
    } want[] = {{"model_id", "m"}, {"gpu_type", "A100"}, {"tier", "gold"}};
    struct fixture f;
    struct kube_event e;
    struct kv kv[ARRAY_LEN(want)];

    (void)state;
    setup(&f);
    assert_int_equal(
        kube_read_event(&f.a, KUBE_PODS, slice_str(NULL), slice_str(text), NULL, 0, &e), 0);
    assert_int_equal(e.type, KUBE_PUT);
    assert_int_equal(e.object.metadata.n, ARRAY_LEN(want));
    kube_unpack(&e.object.metadata, kv);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(slice_eq(kv[i].key, slice_str(want[i].key)));
        assert_true(slice_eq(kv[i].value, slice_str(want[i].value)));
    }
    assert_int_equal(e.object.labels.n, 3);
    kube_unpack(&e.object.labels, kv);
    assert_true(slice_eq(kv[0].key, SLICE("app")));
    assert_true(slice_eq(kv[2].value, SLICE("gold")));
    teardown(&f);
}

static void events_and_what_is_none(void **state)
{
    static const char object[] = "{\"metadata\":{\"name\":\"p\",\"resourceVersion\":\"5\"}}";
    static const struct {
        const char *type, *object;
        int rc;
        enum kube_event_type want;
    } cases[] = {
        {"ADDED", object, 0, KUBE_PUT},
        {"MODIFIED", object, 0, KUBE_PUT},
        {"DELETED", object, 0, KUBE_GONE},
        {"BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"5\"}}", 0, KUBE_BOOKMARK},
        {"added", object, WEIR_E_INVALID, 0},
        {"NEWS", object, WEIR_E_INVALID, 0},
        {"ADDED", "7", WEIR_E_INVALID, 0},
        {"ADDED", "{}", WEIR_E_INVALID, 0},
        {"ADDED", "{\"metadata\":{\"name\":\"\"}}", WEIR_E_INVALID, 0},
    };
    struct fixture f;
    struct kube_event e;
    char text[256];

    (void)state;
    setup(&f);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(text, sizeof(text), "{\"type\":\"%s\",\"object\":%s}", cases[i].type,
                       cases[i].object);
        int rc = kube_read_event(&f.a, KUBE_PODS, slice_str(NULL), slice_str(text), NULL, 0, &e);
        assert_int_equal(rc, cases[i].rc);
        if (rc == 0) {
            assert_int_equal(e.type, cases[i].want);
            assert_true(slice_eq(e.object.version, SLICE("5")));
        }
    }
    assert_int_equal(
        kube_read_event(&f.a, KUBE_PODS, slice_str(NULL),
                        SLICE("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,"
                              "\"message\":\"too old\"}}"),
                        NULL, 0, &e),
        0);
    assert_int_equal(e.type, KUBE_ERROR);
    assert_int_equal(e.code, 410);
    assert_true(slice_eq(e.why, SLICE("too old")));
    teardown(&f);
}

static void lists_and_what_is_none(void **state)
{
    static const char *const none[] = {
        "",
        "[]",
        "{}",
        "<html>",
        "{\"kind\":\"Status\",\"metadata\":{}}",
        "{\"kind\":\"PodList\"}",
        "{\"kind\":\"PodList\",\"metadata\":{},\"items\":{}}",
        "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[7]}",
        "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[{\"metadata\":{}}]}",
        "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[]",
    };
    struct fixture f;
    struct kube_list l;

    (void)state;
    setup(&f);
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        assert_int_equal(kube_read_list(&f.a, KUBE_PODS, slice_str(NULL), slice_str(none[i]), &l),
                         WEIR_E_INVALID);
    assert_int_equal(kube_read_list(&f.a, KUBE_PODS, slice_str(NULL),
                                    SLICE("{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":"
                                          "\"1\",\"continue\":\"abc\"},\"items\":null}"),
                                    &l),
                     0);
    assert_int_equal(l.n, 0);
    assert_true(slice_eq(l.more, SLICE("abc")));
    assert_true(slice_eq(kube_read_status(&f.a, SLICE("{\"kind\":\"Status\",\"message\":\"no\"}")),
                         SLICE("no")));
    assert_null(kube_read_status(&f.a, SLICE("<html>")).p);
    teardown(&f);
}

static void a_copy_is_the_same_and_no_memory_is_an_error(void **state)
{
    struct fixture f;
    struct kube_object copy;

    (void)state;
    setup(&f);
    struct kube_object o = slice_of_json(
        &f, "[{\"addresses\":[\"h\"],\"targetRef\":{\"kind\":\"Pod\",\"name\":\"p\"}}]",
        "[{\"port\":1}]", NULL);
    for (long i = 1;; i++) {
        struct test_heap heap = {.fail_at = i};
        struct mem mem = test_heap_mem(&heap);
        struct arena a;
        arena_init(&a, &mem, 1 << 20);
        int rc = kube_copy(&a, &o, &copy);
        if (rc == 0)
            assert_true(kube_same(&o, &copy));
        else
            assert_int_equal(rc, WEIR_E_NOMEM);
        copy.endpoints = NULL;
        arena_fini(&a);
        assert_int_equal(heap.live, 0);
        if (rc == 0)
            break;
    }
    assert_int_equal(kube_copy(&f.a, &o, &copy), 0);
    copy.endpoints[0].terminating = true;
    assert_false(kube_same(&o, &copy));
    teardown(&f);
}

static void what_the_fleet_is_told(void **state)
{
    const struct kube_object pod = {
        .metadata = {.text = SLICE("weight\0002.5\0scheme\0https\0node\0mine\0"), .n = 3}};
    struct kube_endpoint e = {.host = SLICE("h"),
                              .port = 1,
                              .ready = true,
                              .pod = SLICE("p"),
                              .uid = SLICE("u"),
                              .node = SLICE("n")};
    struct fixture f;
    struct instance i;

    (void)state;
    setup(&f);
    assert_int_equal(kube_instance(&f.a, &e, &pod, &i), 0);
    assert_true(i.tls && i.healthy && i.enabled && !i.draining);
    assert_int_equal(i.weight, 2500);
    assert_int_equal(i.n_metadata, 4);
    assert_true(slice_eq(i.metadata[3].key, SLICE("pod")));
    assert_true(slice_eq(i.zone, SLICE("n")));
    uint64_t epoch = i.epoch;
    assert_true(epoch != 0 && epoch < UINT64_C(1) << 53);
    e.uid = SLICE("v");
    e.zone = SLICE("z");
    e.ready = false;
    assert_int_equal(kube_instance(&f.a, &e, NULL, &i), 0);
    assert_true(!i.tls && !i.healthy && !i.draining);
    assert_true(i.epoch != epoch);
    assert_int_equal(i.weight, WEIGHT_ONE);
    assert_true(slice_eq(i.zone, SLICE("z")));
    e.terminating = true;
    assert_int_equal(kube_instance(&f.a, &e, NULL, &i), 0);
    assert_true(i.healthy && i.draining);
    teardown(&f);
}

static void documents_of_a_stream(void **state)
{
    static const char text[] = "{\"a\":\"}{\\\"\"}\n{\"b\":[{}]}{\r\n}\n ";
    static const ssize_t want[] = {12, 11, 4, 0};
    struct kube_frame f = {0};
    size_t from = 0;
    size_t shown = 0;

    (void)state;
    /* As it comes, byte by byte. */
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        ssize_t n = 0;
        while (n == 0 && shown < sizeof(text) - 1)
            n = kube_frame(&f, slice_of(text + from, ++shown - from));
        assert_int_equal(n, want[i]);
        from += (size_t)n;
    }
    f = (struct kube_frame){0};
    assert_int_equal(kube_frame(&f, SLICE("<html>")), WEIR_E_INVALID);
    f = (struct kube_frame){0};
    assert_int_equal(kube_frame(&f, SLICE("\n]")), WEIR_E_INVALID);
    f = (struct kube_frame){0};
    char deep[200];
    memset(deep, '{', sizeof(deep));
    assert_int_equal(kube_frame(&f, slice_of(deep, sizeof(deep))), WEIR_E_INVALID);
}

static void paths(void **state)
{
    static const struct slice services[] = {{"llm", 3}, {"tts", 3}};
    struct fixture f;
    struct buf b;

    (void)state;
    setup(&f);
    buf_init(&b, &f.mem, 4096);
    assert_int_equal(kube_write_selector(&b, services, 2), 0);
    assert_true(slice_eq(buf_slice(&b), SLICE("kubernetes.io/service-name in (llm,tts)")));
    buf_clear(&b);
    struct kube_query q = {
        .kind = KUBE_SLICES, .ns = SLICE("ai"), .selector = SLICE("a=b"), .limit = 500};
    assert_int_equal(kube_write_path(&b, &q), 0);
    assert_true(slice_eq(buf_slice(&b),
                         SLICE("/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices?limit=500&"
                               "labelSelector=a%3db")));
    buf_clear(&b);
    q = (struct kube_query){
        .kind = KUBE_PODS, .ns = SLICE("a/b"), .limit = 1, .more = SLICE("x=&")};
    assert_int_equal(kube_write_path(&b, &q), 0);
    assert_true(
        slice_eq(buf_slice(&b), SLICE("/api/v1/namespaces/a%2fb/pods?limit=1&continue=x%3d%26")));
    buf_clear(&b);
    q = (struct kube_query){.kind = KUBE_PODS,
                            .ns = SLICE("ai"),
                            .watch = true,
                            .version = SLICE("7"),
                            .timeout_s = 290};
    assert_int_equal(kube_write_path(&b, &q), 0);
    assert_true(
        slice_eq(buf_slice(&b), SLICE("/api/v1/namespaces/ai/pods?watch=1&allowWatchBookmarks=true&"
                                      "timeoutSeconds=290&resourceVersion=7")));
    buf_fini(&b);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_with_all_it_can_have),
        cmocka_unit_test(absent_conditions_mean_ready_serving_and_not_terminating),
        cmocka_unit_test(a_port_by_name_by_number_or_the_first),
        cmocka_unit_test(addresses_of_no_use_are_counted),
        cmocka_unit_test(endpoints_that_are_as_they_were_are_borrowed),
        cmocka_unit_test(a_list_of_endpoints_that_is_none_is_refused),
        cmocka_unit_test(keys_of_ours_become_metadata),
        cmocka_unit_test(events_and_what_is_none),
        cmocka_unit_test(lists_and_what_is_none),
        cmocka_unit_test(a_copy_is_the_same_and_no_memory_is_an_error),
        cmocka_unit_test(what_the_fleet_is_told),
        cmocka_unit_test(documents_of_a_stream),
        cmocka_unit_test(paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
