/* SPDX-License-Identifier: Apache-2.0 */
/* From argv through the option table to a configuration. */
#include "unit/confio/load.h"

#include <stdio.h>

#include "apps/serve/flags.h"
#include "base/bug.h"
#include "base/num.h"

enum { ARGS_MAX = 32 };

/* Split at spaces; the first is the subcommand. */
static int run(struct loaded *l, struct serve_flags *f, const char *line, const char *file)
{
    static char copy[1024];
    static char *argv[ARGS_MAX];
    int argc = 0;

    *l = (struct loaded){.conf = NULL};
    l->mem = test_heap_mem(&l->heap);
    buf_init(&l->text, &l->mem, 1 << 20);
    strcat(strcpy(copy, "serve "), line);
    for (char *p = copy; *p && argc < ARGS_MAX;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    int rc = serve_flags_parse(&l->mem, argc, argv, f, &l->errors);
    if (rc)
        return rc;
    struct confio_options o = {
        .mem = &l->mem, .overrides = f->overrides, .n_overrides = f->n_overrides};
    return confio_load_text(&o, SLICE("w.yaml"), slice_str(file), &l->conf, &l->errors);
}

static void done(struct loaded *l, struct serve_flags *f)
{
    serve_flags_fini(f);
    load_fini(l);
}

static void flags_set_options(void **state)
{
    (void)state;
    struct loaded l;
    struct serve_flags f;
    assert_int_equal(
        run(&l, &f,
            "--host 127.0.0.1 --port=0 --admin-port 1 --registry-port 2 --threads 3 --policy "
            "least_load "
            "--log-level warn --health-check-interval-secs 7 --health-check-timeout-secs=4 "
            "--health-failure-threshold 5 --health-success-threshold 6 --health-check-endpoint "
            "/ping "
            "--queue-size 8 --queue-timeout-secs 9 --retry-max-retries 7 --config x.yaml",
            ""),
        0);
    const struct conf *c = l.conf;
    const struct route *r = &c->routing.routes[0];
    assert_string_equal(f.config, "x.yaml");
    assert_true(slice_eq(c->listeners[0].address.host, SLICE("127.0.0.1")));
    assert_int_equal(c->listeners[0].address.port, 0);
    assert_int_equal(c->admin.address.port, 1);
    assert_int_equal(c->registry.address.port, 2);
    assert_int_equal(c->threads, 3);
    assert_true(slice_eq(r->policy->name, SLICE("least_request")) ||
                slice_eq(r->policy->name, SLICE("least_load")));
    assert_int_equal(c->logging.level, CONF_LOG_WARN);
    assert_true(c->health.interval_ns == 7 * NS_PER_S);
    assert_true(c->health.timeout_ns == 4 * NS_PER_S);
    assert_int_equal(c->health.down_after, 5);
    assert_int_equal(c->health.up_after, 6);
    assert_true(slice_eq(c->health.path, SLICE("/ping")));
    assert_int_equal(r->queue.size, 8);
    assert_true(r->queue.timeout_ns == 9 * NS_PER_S);
    assert_int_equal(r->retry.connect_attempts, 7);
    done(&l, &f);
}

static void flags_beat_the_file_part_by_part(void **state)
{
    (void)state;
    struct loaded l;
    struct serve_flags f;
    static const char file[] =
        "listeners: [{address: '127.0.0.9:9'}, {address: '127.0.0.9:10'}]\n"
        "registry: {address: off}\n"
        "policies: {mine: {use: random}}\n"
        "routes: [{match: {path: /a}, policy: chain, queue: {size: 1, age: 3s}}, {}]\n"
        "discovery: [{type: static, endpoints: [{url: 'http://a:1'}]}]\n";
    assert_int_equal(
        run(&l, &f,
            "--port 5 --registry-port=6 --policy mine --queue-size 2 --disable-retries "
            "--worker-urls http://b:1 http://[::2]:3 --port 7 --worker-urls=http://a:1",
            file),
        0);
    const struct conf *c = l.conf;
    assert_true(slice_eq(c->listeners[0].address.host, SLICE("127.0.0.9")));
    assert_int_equal(c->listeners[0].address.port, 7);
    assert_int_equal(c->listeners[1].address.port, 10);
    assert_false(c->registry.address.off);
    assert_true(slice_eq(c->registry.address.host, SLICE("127.0.0.1")));
    assert_int_equal(c->registry.address.port, 6);
    for (uint32_t i = 0; i < 2; i++) {
        const struct route *r = &c->routing.routes[i];
        assert_ptr_equal(r->policy, &c->policies[0]);
        assert_int_equal(r->queue.size, 2);
        assert_int_equal(r->retry.connect_attempts, 0);
        assert_int_equal(r->retry.budget_percent, 0);
        assert_int_equal(r->retry.budget_min_per_s, 0);
    }
    assert_true(c->routing.routes[0].queue.age_ns == 3 * NS_PER_S);
    assert_int_equal(c->n_sources, 2);
    assert_true(slice_eq(c->sources[0].endpoints[0].url, SLICE("http://a:1")));
    assert_int_equal(c->sources[1].n_endpoints, 3);
    assert_true(slice_eq(c->sources[1].endpoints[1].instance.key, SLICE("[::2]:3")));
    assert_true(slice_eq(c->sources[1].endpoints[2].instance.key, SLICE("a:1")));
    done(&l, &f);
    assert_int_equal(run(&l, &f, "--registry-port off --host ::1", ""), 0);
    assert_true(l.conf->registry.address.off);
    assert_true(slice_eq(l.conf->listeners[0].address.host, SLICE("::1")));
    done(&l, &f);
}

static void mistakes_name_the_flag(void **state)
{
    (void)state;
    static const struct {
        const char *line, *errors;
    } cases[] = {
        {"--prot 1", "unknown flag --prot; did you mean --port?\n"},
        {"--frobnicate=1 --prot 2", "unknown flag --frobnicate; see weir serve --help\nunknown "
                                    "flag --prot; did you mean --port?\n"},
        {"x.yaml", "unexpected argument \"x.yaml\"; see weir serve --help\n"},
        {"-p 1", "unexpected argument \"-p\"; see weir serve --help\nunexpected argument \"1\"; "
                 "see weir serve --help\n"},
        {"--port", "--port: needs a value: PORT\n"},
        {"--port --host ::1", "--port: needs a value: PORT\n"},
        {"--port=", "--port: the value is empty; give PORT\n"},
        {"--port x", "--port: \"x\" is not a whole number\n"},
        {"--port 65536", "--port: \"65536\" is too large; the most is 65535\n"},
        {"--port off", "--port: \"off\" is not a whole number\n"},
        {"--host gpu1", "--host: \"gpu1\" is not a literal address or localhost\n"},
        {"--threads 0x2", "--threads: \"0x2\" is not a whole number, or auto\n"},
        {"--disable-retries=yes", "--disable-retries: takes no value\n"},
        {"--queue-timeout-secs 1m",
         "--queue-timeout-secs: \"1m\" is not a whole number of seconds\n"},
        {"--queue-timeout-secs 0", "--queue-timeout-secs: \"0s\" is too small; the least is 1ms\n"},
        {"--retry-max-retries 8", "--retry-max-retries: \"8\" is too large; the most is 7\n"},
        {"--worker-urls", "--worker-urls: needs at least one URL\n"},
        {"--worker-urls --port 1", "--worker-urls: needs at least one URL\n"},
        {"--worker-urls https://a b:1",
         "--worker-urls: \"b:1\" is not a URL; write http://host:port\n"},
        {"--worker-urls http://a:1 http://A:1",
         "--worker-urls: \"http://A:1\" is the address of an earlier endpoint of this source\n"},
        {"--worker-urls http://127.0.0.1:30000",
         "--worker-urls: \"http://127.0.0.1:30000\" is Weir itself (a listener)\n"},
        {"--policy bucket", "--policy: policy \"bucket\" comes in a later version\n"},
        {"--policy chian", "--policy: unknown policy \"chian\"; did you mean \"chain\"?\n"},
        {"--log-level=loud",
         "--log-level: \"loud\" is unknown; choose debug, info, warn or error\n"},
        {"--health-check-endpoint ping",
         "--health-check-endpoint: \"ping\" must start with /, or be auto\n"},
        {"--cb-failure-threshold 3x",
         "--cb-failure-threshold: \"3x\" is not a whole number, or off\n"},
        {"--disable-circuit-breaker=no", "--disable-circuit-breaker: takes no value\n"},
        {"--max-concurrent-requests=3",
         "--max-concurrent-requests: not supported: limits are set for each endpoint: "
         "max_concurrency in the configuration\n"},
        {"--admin-port 30000", "--admin-port: is taken already by a listener\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct loaded l;
        struct serve_flags f;
        int rc = run(&l, &f, cases[i].line, "");
        assert_string_equal(errors_text(&l), cases[i].errors);
        assert_int_equal(rc, WEIR_E_INVALID);
        done(&l, &f);
    }
}

static void a_bad_flag_leaves_the_file_right(void **state)
{
    (void)state;
    struct loaded l;
    struct serve_flags f;
    /* With two routes the flag is wrong once. */
    assert_int_equal(run(&l, &f, "--policy x", "routes: [{match: {path: /a}}, {}]"),
                     WEIR_E_INVALID);
    assert_int_equal(l.errors.total, 1);
    done(&l, &f);
    assert_int_equal(run(&l, &f, "--queue-size x", "routes: [{match: {path: /a}}, {}]"),
                     WEIR_E_INVALID);
    assert_int_equal(l.errors.total, 1);
    done(&l, &f);
}

static void help_has_every_flag(void **state)
{
    (void)state;
    struct loaded l;
    struct serve_flags f;
    assert_int_equal(run(&l, &f, "-h --port 1", ""), 0);
    assert_true(f.help);
    assert_int_equal(serve_flags_help(&l.text), 0);
    buf_put_char(&l.text, '\0');
    const char *text = l.text.p + l.text.from;
    assert_non_null(strstr(text, "\n  --port PORT                        Port that clients connect "
                                 "to; 0 takes any free one"));
    for (uint32_t i = 0; i < f.n_overrides; i++)
        assert_non_null(strstr(text, f.overrides[i].origin));
    done(&l, &f);
}

static void the_page_is_what_the_binary_prints(void **state)
{
    (void)state;
    struct test_heap heap = {.live = 0};
    struct mem mem = test_heap_mem(&heap);
    struct buf page;
    struct buf file;
    const char *path = getenv("WEIR_CLI_PAGE");
    assert_non_null(path);
    buf_init(&page, &mem, 1 << 20);
    buf_init(&file, &mem, 1 << 20);
    assert_int_equal(serve_flags_reference(&page), 0);
    FILE *in = fopen(path, "re");
    assert_non_null(in);
    for (int c; (c = fgetc(in)) != EOF;)
        buf_put_char(&file, (char)c);
    assert_int_equal(fclose(in), 0);
    buf_put_char(&page, '\0');
    buf_put_char(&file, '\0');
    assert_string_equal(file.p + file.from, page.p + page.from);
    buf_fini(&page);
    buf_fini(&file);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    char serve[] = "serve", flag[] = "--queue-timeout-secs", value[] = "5";
    char *argv[] = {serve, flag, value};
    for (long n = 1; n < 4; n++) {
        struct test_heap heap = {.fail_at = n};
        struct mem mem = test_heap_mem(&heap);
        static struct conf_errors errors;
        struct serve_flags f;
        int rc = serve_flags_parse(&mem, 3, argv, &f, &errors);
        assert_int_equal(rc, n == 1 ? WEIR_E_NOMEM : 0);
        serve_flags_fini(&f);
        assert_int_equal(heap.live, 0);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--reference") == 0) {
        /* Writes docs/cli.md until there is a binary that does. */
        struct test_heap heap = {.live = 0};
        struct mem mem = test_heap_mem(&heap);
        struct buf page;
        buf_init(&page, &mem, 1 << 20);
        int rc = serve_flags_reference(&page);
        if (rc == 0 && fwrite(page.p + page.from, 1, buf_len(&page), stdout) != buf_len(&page))
            rc = 1;
        buf_fini(&page);
        return rc ? 1 : 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_set_options),
        cmocka_unit_test(flags_beat_the_file_part_by_part),
        cmocka_unit_test(mistakes_name_the_flag),
        cmocka_unit_test(a_bad_flag_leaves_the_file_right),
        cmocka_unit_test(help_has_every_flag),
        cmocka_unit_test(the_page_is_what_the_binary_prints),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
