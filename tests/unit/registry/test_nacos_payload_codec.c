/* SPDX-License-Identifier: Apache-2.0 */
/* The one protobuf message of Nacos, byte by byte. */
#include "ct.h"

#include "heap_mem.h"
#include "registry/nacos_payload_codec.h"

/* metadata { type "AB", clientIp "1", header app=x, header accessToken=t }, body { url "u", value "{}" } */
static const char message[] = "\x12\x23\x1a\x02"
                              "AB\x42\x01"
                              "1\x3a\x08\x0a\x03"
                              "app\x12\x01"
                              "x\x3a\x10\x0a\x0b"
                              "accessToken\x12\x01"
                              "t\x1a\x07\x0a\x01u\x12\x02{}";

static void what_others_send_is_read(void **state)
{
    struct nacos_payload p;
    struct slice whole = slice_of(message, sizeof(message) - 1);

    (void)state;
    assert_int_equal(nacos_payload_read(whole, &p), 0);
    assert_true(slice_eq(p.type, SLICE("AB")));
    assert_true(slice_eq(p.token, SLICE("t")));
    assert_true(slice_eq(p.body, SLICE("{}")));
}

static void a_cut_message_is_refused_or_lacks_its_end(void **state)
{
    struct nacos_payload p;

    (void)state;
    for (size_t n = 0; n < sizeof(message) - 1; n++)
        if (nacos_payload_read(slice_of(message, n), &p) == 0)
            assert_int_equal(n, 0x23 + 2); /* just the metadata */
}

static void what_is_written_is_read(void **state)
{
    struct test_heap heap = {0};
    struct mem mem = test_heap_mem(&heap);
    char long_text[40000];
    struct nacos_payload in = {.type = SLICE("InstanceRequest"),
                               .token = slice_of(long_text, 300),
                               .body = slice_of(long_text, sizeof(long_text))};
    struct nacos_payload out;
    struct buf b;

    (void)state;
    memset(long_text, 'z', sizeof(long_text));
    buf_init(&b, &mem, 65536);
    assert_int_equal(nacos_payload_write(&b, &in), 0);
    assert_int_equal(nacos_payload_read(buf_slice(&b), &out), 0);
    assert_true(slice_eq(in.type, out.type) && slice_eq(in.token, out.token) &&
                slice_eq(in.body, out.body));
    buf_clear(&b);
    in.token = (struct slice){NULL, 0};
    assert_int_equal(nacos_payload_write(&b, &in), 0);
    assert_int_equal(nacos_payload_read(buf_slice(&b), &out), 0);
    assert_null(out.token.p);
    buf_fini(&b);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_send_is_read),
        cmocka_unit_test(a_cut_message_is_refused_or_lacks_its_end),
        cmocka_unit_test(what_is_written_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
