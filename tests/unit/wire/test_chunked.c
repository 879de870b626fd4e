/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "wire/chunked.h"

/* Decode in pieces that end at `cut`, then the rest. @return bytes consumed, or the error. */
static int64_t
decode(const char *text, size_t n, size_t cut, struct chunked *c, char *out, size_t *out_n)
{
    size_t at = 0;
    struct slice payload;

    *c = (struct chunked){0};
    *out_n = 0;
    while (at < n) {
        size_t stop = at < cut ? cut : n;
        int64_t used = wire_chunked_read(c, text + at, stop - at, &payload);
        if (used < 0)
            return used;
        memcpy(out + *out_n, payload.p, payload.n);
        *out_n += payload.n;
        if (used == 0)
            break;
        at += (size_t)used;
    }
    return (int64_t)at;
}

static const char stream[] = "5;name=\"v\\\"\";b=c;d\r\nhello\r\n"
                             "00A\r\n0123456789\r\n"
                             "0\r\n"
                             "Trailer-One: x\r\nTwo:\r\nContent-Lengths: 1\r\nTransfer: 2\r\n"
                             "\r\n";

static void every_cut_gives_the_same_payload(void **state)
{
    (void)state;
    size_t n = sizeof(stream) - 1;
    struct chunked c;
    char out[64];
    size_t out_n;

    for (size_t cut = 0; cut <= n; cut++) {
        assert_int_equal(decode(stream, n, cut, &c, out, &out_n), n);
        assert_true(c.done);
        assert_int_equal(out_n, 15);
        assert_memory_equal(out, "hello0123456789", 15);
    }
}

static void single_bytes_work(void **state)
{
    (void)state;
    struct chunked c = {0};
    char out[64];
    size_t out_n = 0;
    struct slice payload;

    for (size_t i = 0; i < sizeof(stream) - 1; i++) {
        assert_false(c.done);
        assert_int_equal(wire_chunked_read(&c, stream + i, 1, &payload), 1);
        memcpy(out + out_n, payload.p, payload.n);
        out_n += payload.n;
    }
    assert_true(c.done);
    assert_int_equal(out_n, 15);
    assert_memory_equal(out, "hello0123456789", 15);
}

static void bytes_after_the_end_stay(void **state)
{
    (void)state;
    struct chunked c = {0};
    struct slice payload;

    assert_int_equal(wire_chunked_read(&c, "0\r\n\r\nGET", 8, &payload), 5);
    assert_true(c.done);
    assert_int_equal(payload.n, 0);
    assert_int_equal(wire_chunked_read(&c, "GET", 3, &payload), 0);
}

static void one_run_of_payload_per_call(void **state)
{
    (void)state;
    struct chunked c = {0};
    struct slice payload;
    const char *text = "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";

    assert_int_equal(wire_chunked_read(&c, text, strlen(text), &payload), 9);
    assert_int_equal(payload.n, 1);
    assert_ptr_equal(payload.p, text + 3);
    assert_int_equal(wire_chunked_read(&c, text + 9, strlen(text) - 9, &payload), 9);
    assert_int_equal(payload.n, 2);
    assert_true(c.done);
}

static void malformed_framing_is_refused_at_every_cut(void **state)
{
    (void)state;
    static const char *bad[] = {
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "+5\r\n",
        "0x5\r\n",
        " 5\r\n",
        "5 \r\n",
        "5\n",
        "5\r\r",
        "5;a\n",
        "5;\x01\r\n",
        "5\r\nhello0",
        "5\r\nhello\n",
        "5\r\nhello\r0",
        "0\r\n\n",
        "0\r\n\r0",
        "0\r\nA\r\n\r\n",
        "0\r\n A: b\r\n",
        "0\r\nA b: c\r",
        "0\r\nA: b\nC: d",
        "0\r\nA: b\r\r",
        "0\r\nA: \x7f\r\n",
        "0\r\n: b\r\n",
        ";a\r\n",
        "5;\r\n",
        "5; a\r\n",
        "5;a=\r\n",
        "5;a=b c\r\n",
        "5;a=\"b\r\n",
        "5;a=\"b\"c\r\n",
        "5;a=\"\\\n",
        "0\r\nContent-Length: 5\r\n",
        "0\r\nTRANSFER-ENCODING:x",
        "0\r\nX: y\r\ncontent-length:",
        "00000000000000005\r\n",
    };
    struct chunked c;
    char out[64];
    size_t out_n;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        for (size_t cut = 0; cut <= strlen(bad[i]); cut++)
            assert_int_equal(decode(bad[i], strlen(bad[i]), cut, &c, out, &out_n), WEIR_E_PROTO);
}

static void largest_size_is_sixteen_digits(void **state)
{
    (void)state;
    struct chunked c = {0};
    struct slice payload;

    assert_int_equal(wire_chunked_read(&c, "fFffffffffffffff\r\n", 18, &payload), 18);
    assert_true(c.left == UINT64_MAX);
}

static void lines_and_trailers_are_capped(void **state)
{
    (void)state;
    static char text[CHUNKED_TRAILER_MAX + 64];
    struct chunked c = {0};
    struct slice payload;

    memset(text, 'x', sizeof(text));
    assert_int_equal(wire_chunked_read(&c, "1;", 2, &payload), 2);
    assert_int_equal(wire_chunked_read(&c, text, CHUNKED_LINE_MAX - 1, &payload),
                     CHUNKED_LINE_MAX - 1);
    assert_int_equal(wire_chunked_read(&c, "x", 1, &payload), WEIR_E_PROTO);
    c = (struct chunked){0};
    assert_int_equal(wire_chunked_read(&c, "0\r\nA:", 5, &payload), 5);
    assert_int_equal(wire_chunked_read(&c, text, CHUNKED_TRAILER_MAX - 2, &payload),
                     CHUNKED_TRAILER_MAX - 2);
    assert_int_equal(wire_chunked_read(&c, "x", 1, &payload), WEIR_E_PROTO);
}

static void prefix_is_hex(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        const char *text;
    } rows[] = {{1, "1\r\n"},
                {15, "f\r\n"},
                {16, "10\r\n"},
                {0xabc, "abc\r\n"},
                {SIZE_MAX, "ffffffffffffffff\r\n"}};
    char out[CHUNKED_PREFIX_MAX];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(wire_chunked_prefix(out, rows[i].n), strlen(rows[i].text));
        assert_memory_equal(out, rows[i].text, strlen(rows[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same_payload),
        cmocka_unit_test(single_bytes_work),
        cmocka_unit_test(bytes_after_the_end_stay),
        cmocka_unit_test(one_run_of_payload_per_call),
        cmocka_unit_test(malformed_framing_is_refused_at_every_cut),
        cmocka_unit_test(largest_size_is_sixteen_digits),
        cmocka_unit_test(lines_and_trailers_are_capped),
        cmocka_unit_test(prefix_is_hex),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
