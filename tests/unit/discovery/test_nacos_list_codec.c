/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of Nacos in every shape become the same instances. */
#include "ct.h"

#include "discovery/nacos_list_codec.h"
#include "heap_mem.h"

#define HOST                                                                                       \
    "{\"ip\":\"10.0.0.5\",\"port\":8000,\"weight\":2.5,\"healthy\":true,\"enabled\":false,"        \
    "\"clusterName\":\"east\",\"metadata\":{\"model_id\":\"m\",\"n\":3},\"other\":{\"ip\":\"x\"}}"

struct fixture {
    struct test_heap heap;
    struct mem mem;
    struct arena a;
    struct nacos_answer out;
    int rc;
};

static void read_text(struct fixture *f, const char *text)
{
    *f = (struct fixture){0};
    f->mem = test_heap_mem(&f->heap);
    arena_init(&f->a, &f->mem, 1 << 20);
    f->rc = nacos_list_read(&f->a, slice_str(text), &f->out);
}

static void end(struct fixture *f)
{
    arena_fini(&f->a);
    assert_int_equal(f->heap.live, 0);
}

static void every_shape_is_the_same_list(void **state)
{
    static const char *const texts[] = {
        "{\"name\":\"G@@llm\",\"groupName\":\"G\",\"hosts\":[" HOST "],\"lastRefTime\":1}",
        "{\"dom\":\"llm\",\"hosts\":[" HOST "],\"metadata\":{},\"env\":\"\"}",
        "{\"code\":0,\"message\":\"success\",\"data\":[" HOST "]}",
        "{\"code\":0,\"message\":\"success\",\"data\":{\"name\":\"llm\",\"hosts\":[" HOST "]}}",
        "{\"resultCode\":200,\"errorCode\":0,\"serviceInfo\":{\"name\":\"llm\",\"hosts\":[" HOST
        "]}}",
    };
    struct fixture f;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        read_text(&f, texts[i]);
        assert_int_equal(f.rc, 0);
        assert_true(f.out.has_hosts);
        assert_int_equal(f.out.n, 1);
        const struct instance *in = &f.out.first->instance;
        assert_true(slice_eq(in->key, SLICE("10.0.0.5:8000#east")));
        assert_true(slice_eq(in->host, SLICE("10.0.0.5")));
        assert_int_equal(in->port, 8000);
        assert_int_equal(in->weight, 2500);
        assert_false(in->enabled);
        assert_true(in->healthy && in->vouched);
        assert_true(slice_eq(in->cluster, SLICE("east")));
        assert_int_equal(in->n_metadata, 2);
        assert_true(slice_eq(in->metadata[1].key, SLICE("n")));
        assert_true(slice_eq(in->metadata[1].value, SLICE("3")));
        end(&f);
    }
}

static void a_protected_list_vouches_for_nobody(void **state)
{
    struct fixture f;

    (void)state;
    read_text(&f, "{\"hosts\":[" HOST "],\"reachProtectionThreshold\":true}");
    assert_int_equal(f.rc, 0);
    assert_true(f.out.protected_);
    assert_true(f.out.first->instance.healthy);
    assert_false(f.out.first->instance.vouched);
    end(&f);
}

static void valid_false_is_unhealthy_and_v6_has_brackets_in_its_key(void **state)
{
    struct fixture f;

    (void)state;
    read_text(&f, "{\"hosts\":[{\"ip\":\"::1\",\"port\":80,\"valid\":false,\"healthy\":true}]}");
    assert_int_equal(f.out.n, 1);
    assert_false(f.out.first->instance.healthy);
    assert_true(slice_eq(f.out.first->instance.key, SLICE("[::1]:80#")));
    assert_int_equal(f.out.first->instance.weight, 1000);
    assert_true(f.out.first->instance.enabled);
    end(&f);
}

static void what_cannot_be_read_is_counted(void **state)
{
    struct fixture f;

    (void)state;
    read_text(&f, "{\"hosts\":[{\"ip\":\"a "
                  "b\",\"port\":80},{\"ip\":\"a\",\"port\":0},{\"ip\":\"a\",\"port\":70000},"
                  "{\"ip\":\"a\"},{\"port\":1},{\"ip\":\"a\",\"port\":1,\"weight\":10001},{\"ip\":"
                  "\"ok\",\"port\":1}]}");
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.out.bad, 6);
    assert_int_equal(f.out.n, 1);
    end(&f);
}

static void an_error_has_its_code_and_no_list(void **state)
{
    struct fixture f;

    (void)state;
    read_text(
        &f,
        "{\"resultCode\":500,\"errorCode\":403,\"message\":\"unknown user!\",\"requestId\":\"9\"}");
    assert_int_equal(f.rc, 0);
    assert_false(f.out.has_hosts);
    assert_int_equal(f.out.code, 500);
    assert_int_equal(f.out.error, 403);
    assert_true(slice_eq(f.out.message, SLICE("unknown user!")));
    assert_true(slice_eq(f.out.request_id, SLICE("9")));
    end(&f);
    read_text(&f, "{\"hosts\":[{\"ip\":\"1");
    assert_int_equal(f.rc, WEIR_E_INVALID);
    end(&f);
    read_text(&f, "<html>");
    assert_int_equal(f.rc, WEIR_E_INVALID);
    end(&f);
}

static void the_time_in_an_answer_is_no_news(void **state)
{
    (void)state;
#define AT(t) SLICE("{\"hosts\":[" HOST "],\"lastRefTime\":" t ",\"checksum\":\"c\"}")
    assert_int_equal(nacos_list_hash(AT("1")), nacos_list_hash(AT("17645700000")));
    assert_int_not_equal(
        nacos_list_hash(AT("1")),
        nacos_list_hash(SLICE("{\"hosts\":[],\"lastRefTime\":1,\"checksum\":\"c\"}")));
    assert_int_not_equal(
        nacos_list_hash(AT("1")),
        nacos_list_hash(SLICE("{\"hosts\":[" HOST "],\"lastRefTime\":1,\"checksum\":\"d\"}")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_the_same_list),
        cmocka_unit_test(a_protected_list_vouches_for_nobody),
        cmocka_unit_test(valid_false_is_unhealthy_and_v6_has_brackets_in_its_key),
        cmocka_unit_test(what_cannot_be_read_is_counted),
        cmocka_unit_test(an_error_has_its_code_and_no_list),
        cmocka_unit_test(the_time_in_an_answer_is_no_news),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
