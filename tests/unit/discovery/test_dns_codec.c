/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "discovery/dns_codec.h"

#define MESSAGE(text)       slice_of(text, sizeof(text) - 1)
#define HEAD(answers, more) "\x12\x34\x81\x80\0\1\0" answers "\0\0\0" more "\3llm\4Test\0\0\1\0\1"

static void addresses_and_what_leads_to_them(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record one;

    /* A CNAME, which is passed over, an A and an AAAA; another class; then an additional A. */
    assert_int_equal(
        dns_read(
            &r,
            MESSAGE(HEAD(
                "\4", "\1") "\xc0\x0c\0\5\0\1\0\0\0\1\0\4\1X\xc0\x10"
                            "\1x\xc0\x10\0\1\0\1\0\0\1\0\0\4\x7f\0\0\xff"
                            "\xc0\x0c\0\x1c\0\1\0\0\0\5\0\x10\x20\1\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1"
                            "\xc0\x0c\0\1\0\3\0\0\0\1\0\4\1\2\3\4"
                            "\xc0\x0c\0\1\0\1\0\0\0\7\0\4\x0a\0\0\1")),
        0);
    assert_int_equal(dns_read_next(&r, &one), 0);
    assert_int_equal(one.type, DNS_A);
    assert_int_equal(one.ttl_s, 256);
    assert_false(one.additional);
    assert_string_equal(one.name, "x.test");
    assert_string_equal(one.addr, "127.0.0.255");
    assert_int_equal(dns_read_next(&r, &one), 0);
    assert_int_equal(one.type, DNS_AAAA);
    assert_string_equal(one.name, "llm.test");
    assert_string_equal(one.addr, "2001:db8::1");
    assert_int_equal(dns_read_next(&r, &one), 0);
    assert_true(one.additional);
    assert_string_equal(one.addr, "10.0.0.1");
    assert_int_equal(one.ttl_s, 7);
    assert_int_equal(dns_read_next(&r, &one), WEIR_E_NOTFOUND);
}

static void services_with_targets(void **state)
{
    (void)state;
    struct dns_reader r;
    struct dns_record one;

    assert_int_equal(
        dns_read(&r, MESSAGE(HEAD(
                         "\2", "\0") "\xc0\x0c\0\x21\0\1\0\0\0\1\0\x0a\0\1\0\2\x1f\x90\1a\xc0\x10"
                                     "\xc0\x0c\0\x21\0\1\xff\xff\xff\xff\0\7\0\1\0\2\0\0\0")),
        0);
    assert_int_equal(dns_read_next(&r, &one), 0);
    assert_int_equal(one.priority, 1);
    assert_int_equal(one.weight, 2);
    assert_int_equal(one.port, 8080);
    assert_string_equal(one.target, "a.test");
    assert_int_equal(dns_read_next(&r, &one), 0);
    assert_string_equal(one.target, "");
    assert_int_equal(one.ttl_s, 0); /* RFC 2181: the highest bit means 0 */
    assert_int_equal(dns_read_next(&r, &one), WEIR_E_NOTFOUND);
}

static void ipv6_is_written_as_rfc_5952(void **state)
{
    (void)state;
    static const struct {
        unsigned char bytes[16];
        const char *text;
    } cases[] = {
        {{0}, "::"},
        {{[15] = 1}, "::1"},
        {{0xfe, 0x80}, "fe80::"},
        {{0x20, 1, 0xd, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1}, "2001:db8:0:1::1"},
        {{0, 1, 0, 0, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8}, "1:0:3:4:5:6:7:8"},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
          0xff},
         "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
        {{0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 0, 0, 0}, "1:2:3:4:5:6::"},
    };
    static const char head[] = HEAD("\1", "\0") "\xc0\x0c\0\x1c\0\1\0\0\0\5\0\x10";
    char message[sizeof(head) - 1 + 16];
    struct dns_reader r;
    struct dns_record one;

    memcpy(message, head, sizeof(head) - 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        memcpy(message + sizeof(head) - 1, cases[i].bytes, 16);
        assert_int_equal(dns_read(&r, slice_of(message, sizeof(message))), 0);
        assert_int_equal(dns_read_next(&r, &one), 0);
        assert_string_equal(one.addr, cases[i].text);
    }
}

static void broken_messages_are_refused(void **state)
{
    (void)state;
    static const struct slice bad[] = {
        {"", 0},
        {"\0\0\0\0\0\1\0\0\0\0\0\0", 12},                             /* no question */
        {"\0\0\0\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", 18},             /* a pointer to itself */
        {"\0\0\0\0\0\0\0\1\0\0\0\0\0\0\1\0\1\0\0\0\0\0\4\1\2\3", 26}, /* cut */
        {"\0\0\0\0\0\0\0\1\0\0\0\0\0\0\1\0\1\0\0\0\0\0\3\1\2\3", 26}, /* A of three bytes */
        {"\0\0\0\0\0\0\0\1\0\0\0\0\x80\0\0\1\0\1\0\0\0\0\0\4\1\2\3\4",
         28}, /* no such kind of label */
        {"\0\0\0\0\0\0\0\1\0\0\0\0\3a b\0\0\1\0\1\0\0\0\0\0\4\1\2\3\4",
         31}, /* no host has such a name */
    };
    struct dns_reader r;
    struct dns_record one;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int rc = dns_read(&r, bad[i]);
        assert_int_equal(rc ? rc : dns_read_next(&r, &one), WEIR_E_PROTO);
    }
}

static void weights_count_beside_the_largest(void **state)
{
    (void)state;
    assert_int_equal(dns_weight(0, 0), 1000);
    assert_int_equal(dns_weight(65535, 65535), 1000);
    assert_int_equal(dns_weight(1, 3), 333);
    assert_int_equal(dns_weight(0, 10), 1);
    assert_int_equal(dns_weight(1, 65535), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_and_what_leads_to_them),
        cmocka_unit_test(services_with_targets),
        cmocka_unit_test(ipv6_is_written_as_rfc_5952),
        cmocka_unit_test(broken_messages_are_refused),
        cmocka_unit_test(weights_count_beside_the_largest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
