/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "wire/json_scan.h"

/* Events as text: structure as it is, keys k<..>, strings s<..>, numbers n<..>, t f z. Pieces are joined. */
struct trace {
    char text[2048];
    size_t n;
    bool open;   /* inside a key or string */
    int stop_at; /* events until the callback stops the scan; 0 = never */
};

static void put(struct trace *t, const char *p, size_t n)
{
    assert_true(t->n + n < sizeof(t->text));
    memcpy(t->text + t->n, p, n);
    t->n += n;
    t->text[t->n] = '\0';
}

static int record(void *ctx, enum json_event event, struct slice text, bool last)
{
    static const char mark[] = "{}[]ksntfz";
    struct trace *t = ctx;

    if (t->stop_at && --t->stop_at == 0)
        return 77;
    if (event == JSON_SCAN_KEY || event == JSON_SCAN_STRING || event == JSON_SCAN_NUMBER) {
        if (!t->open) {
            put(t, &mark[event], 1);
            put(t, "<", 1);
        }
        put(t, text.p, text.n);
        if (last)
            put(t, ">", 1);
        t->open = !last;
    } else {
        assert_true(last);
        assert_false(t->open);
        put(t, &mark[event], 1);
    }
    return 0;
}

/* Scan in pieces that end at every multiple of `step` and at `cut`. */
static int
scan(struct json_scan *s, struct trace *t, const char *text, size_t n, size_t cut, size_t step)
{
    int rc = 0;

    *t = (struct trace){.stop_at = t->stop_at};
    wire_json_init(s, record, t);
    for (size_t at = 0; at < n && !rc;) {
        size_t stop = at + step < n ? at + step : n;
        if (at < cut && cut < stop)
            stop = cut;
        rc = wire_json_scan(s, text + at, stop - at);
        at = stop;
    }
    return rc ? rc : wire_json_end(s);
}

static void gives(const char *text, const char *want)
{
    struct json_scan s;
    struct trace t = {.stop_at = 0};
    size_t n = strlen(text);

    for (size_t cut = 0; cut <= n; cut++) {
        assert_int_equal(scan(&s, &t, text, n, cut, SIZE_MAX / 2), 0);
        assert_string_equal(t.text, want);
        assert_int_equal(s.offset, n);
    }
    assert_int_equal(scan(&s, &t, text, n, 0, 1), 0);
    assert_string_equal(t.text, want);
}

static void values_of_every_kind_at_every_cut(void **state)
{
    (void)state;
    gives("{}", "{}");
    gives(" [ ] ", "[]");
    gives("\"\"", "s<>");
    gives("0", "n<0>");
    gives(" -0.5e+10 ", "n<-0.5e+10>");
    gives("12E-3", "n<12E-3>");
    gives("true", "t");
    gives("\n\r\t false", "f");
    gives("null ", "z");
    gives("[1,-2.5,[],{},\"x\",true,false,null]", "[n<1>n<-2.5>[]{}s<x>tfz]");
    gives("{\"a\" : {\"b\":[1 , 2]},\"\":\"v\" }", "{k<a>{k<b>[n<1>n<2>]}k<>s<v>}");
}

static void escapes_at_every_cut(void **state)
{
    (void)state;
    gives("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "s<\"\\/\b\f\n\r\t>");
    gives("\"a\\u0041\\u00e9\\u20AC\\ud83d\\uDE00z\"",
          "s<aA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z>");
    gives("{\"m\\u006fdel\":1}", "{k<model>n<1>}");
    gives("\"plain text longer than sixteen bytes \\n and more of it, much more\"",
          "s<plain text longer than sixteen bytes \n and more of it, much more>");
}

#define FFFD "\xef\xbf\xbd"

static void lone_surrogates_become_replacement_characters(void **state)
{
    (void)state;
    gives("\"\\ud83d\"", "s<" FFFD ">");
    gives("\"\\ud83dx\"", "s<" FFFD "x>");
    gives("\"\\ud83d\\n\"", "s<" FFFD "\n>");
    gives("\"\\ude00\"", "s<" FFFD ">");
    gives("\"\\ud83d\\ud83d\\ude00\"", "s<" FFFD "\xf0\x9f\x98\x80>");
    gives("\"\\ud83d\\u0041\"", "s<" FFFD "A>");
}

static void bytes_that_are_not_utf8_pass(void **state)
{
    (void)state;
    gives("\"\xff\x80\xc3\"", "s<\xff\x80\xc3>");
}

static void bad_input_is_refused_at_every_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t offset;
        const char *error;
    } rows[] = {
        {"", 0, "text ends early"},
        {"  ", 2, "text ends early"},
        {"{", 1, "text ends early"},
        {"\"abc", 4, "text ends early"},
        {"tru", 3, "text ends early"},
        {"\"\\", 2, "text ends early"},
        {"trux", 3, "value expected"},
        {"True", 0, "value expected"},
        {"NaN", 0, "value expected"},
        {"-Infinity", 1, "invalid number"},
        {"'a'", 0, "value expected"},
        {"\xef\xbb\xbf{}", 0, "value expected"},
        {"{} x", 3, "text after the value"},
        {"{}{}", 2, "text after the value"},
        {"1 2", 2, "text after the value"},
        {"[1,]", 3, "value expected"},
        {"[,1]", 1, "value expected"},
        {"[1 2]", 3, "comma or end expected"},
        {"[1}", 2, "comma or end expected"},
        {"{\"a\":1]", 6, "comma or end expected"},
        {"{\"a\":1,}", 7, "key expected"},
        {"{a:1}", 1, "key expected"},
        {"{,}", 1, "key expected"},
        {"{\"a\" 1}", 5, "colon expected"},
        {"{\"a\":}", 5, "value expected"},
        {"]", 0, "value expected"},
        {"01", 2, "invalid number"},
        {"-", 1, "invalid number"},
        {"+1", 0, "value expected"},
        {"1.", 2, "invalid number"},
        {".5", 0, "value expected"},
        {"1e", 2, "invalid number"},
        {"1e+ ", 3, "invalid number"},
        {"1-2", 3, "invalid number"},
        {"1.5.5", 5, "invalid number"},
        {"\"a\nb\"", 2, "control character in a string"},
        {"\"a\tb\"", 2, "control character in a string"},
        {"\"\\x\"", 2, "invalid escape in a string"},
        {"\"\\u12g4\"", 5, "invalid escape in a string"},
        {"\"\\U0041\"", 2, "invalid escape in a string"},
        {"/* */1", 0, "value expected"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t cut = 0; cut <= strlen(rows[i].text); cut++) {
            struct json_scan s;
            struct trace t = {.stop_at = 0};
            assert_int_equal(scan(&s, &t, rows[i].text, strlen(rows[i].text), cut, SIZE_MAX / 2),
                             WEIR_E_PROTO);
            assert_int_equal(s.offset, rows[i].offset);
            assert_string_equal(s.error, rows[i].error);
            assert_int_equal(wire_json_scan(&s, "1", 1), WEIR_E_PROTO);
            assert_int_equal(wire_json_end(&s), WEIR_E_PROTO);
        }
    struct json_scan s;
    struct trace t = {.stop_at = 0};
    assert_int_equal(scan(&s, &t, "\"a\0b\"", 5, 0, 9), WEIR_E_PROTO);
}

static void long_numbers_are_refused(void **state)
{
    (void)state;
    char text[JSON_NUMBER_MAX + 2];
    struct json_scan s;
    struct trace t = {.stop_at = 0};

    memset(text, '1', sizeof(text));
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        assert_int_equal(scan(&s, &t, text, JSON_NUMBER_MAX, cut, 99), 0);
        assert_int_equal(scan(&s, &t, text, JSON_NUMBER_MAX + 1, cut, 99), WEIR_E_PROTO);
        assert_string_equal(s.error, "number too long");
    }
}

static void depth_is_limited(void **state)
{
    (void)state;
    static char text[2 * JSON_DEPTH_MAX + 2];
    struct json_scan s;
    struct trace t = {.stop_at = 0};

    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_int_equal(scan(&s, &t, text, 2 * JSON_DEPTH_MAX, 0, 7), 0);
    text[JSON_DEPTH_MAX] = '[';
    assert_int_equal(scan(&s, &t, text, JSON_DEPTH_MAX + 1, 0, 7), WEIR_E_FULL);
    assert_string_equal(s.error, "nested too deep");
    /* Arrays and objects mixed: every level knows what it is. */
    char mixed[1200] = "";
    size_t n = 0;
    for (int i = 0; i < JSON_DEPTH_MAX / 2; i++, n += 5)
        memcpy(mixed + n, "{\"\":[", 5);
    for (int i = 0; i < JSON_DEPTH_MAX / 2; i++, n += 2)
        memcpy(mixed + n, "]}", 2);
    assert_int_equal(scan(&s, &t, mixed, n, 0, 3), 0);
    mixed[n - 1] = ']';
    assert_int_equal(scan(&s, &t, mixed, n, 0, 3), WEIR_E_PROTO);
}

static void the_callback_can_stop_the_scan(void **state)
{
    (void)state;
    struct json_scan s;
    struct trace t = {.stop_at = 3};

    assert_int_equal(scan(&s, &t, "{\"a\":1,\"b\":2}", 13, 0, 99), 77);
    assert_string_equal(t.text, "{k<a>");
    assert_int_equal(s.offset, 6);
    assert_int_equal(wire_json_scan(&s, "x", 1), 77);
    assert_int_equal(wire_json_end(&s), 77);
}

static int lent(void *ctx, enum json_event event, struct slice text, bool last)
{
    const char *body = ctx;

    assert_int_equal(event, JSON_SCAN_STRING);
    assert_true(last);
    assert_ptr_equal(text.p, body + 1);
    assert_int_equal(text.n, 26);
    return 0;
}

static void plain_runs_are_lent_not_copied(void **state)
{
    (void)state;
    static char body[] = "\"abcdefghijklmnopqrstuvwxyz\"";
    struct json_scan s;

    wire_json_init(&s, lent, body);
    assert_int_equal(wire_json_scan(&s, body, sizeof(body) - 1), 0);
    assert_true(sizeof(s) <= 192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_kind_at_every_cut),
        cmocka_unit_test(escapes_at_every_cut),
        cmocka_unit_test(lone_surrogates_become_replacement_characters),
        cmocka_unit_test(bytes_that_are_not_utf8_pass),
        cmocka_unit_test(bad_input_is_refused_at_every_cut),
        cmocka_unit_test(long_numbers_are_refused),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(the_callback_can_stop_the_scan),
        cmocka_unit_test(plain_runs_are_lent_not_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
