/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include "base/bug.h"
#include "conf/address.h"

static void literals_are_read_whole(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
        bool any, loopback;
    } good[] = {
        {"0.0.0.0", "00000000000000000000ffff00000000", true, false},
        {"127.0.0.1", "00000000000000000000ffff7f000001", false, true},
        {"127.9.8.255", "00000000000000000000ffff7f0908ff", false, true},
        {"LocalHost", "00000000000000000000ffff7f000001", false, true},
        {"10.0.0.1", "00000000000000000000ffff0a000001", false, false},
        {"::", "00000000000000000000000000000000", true, false},
        {"::1", "00000000000000000000000000000001", false, true},
        {"::2", "00000000000000000000000000000002", false, false},
        {"fd00::2:0", "fd000000000000000000000000020000", false, false},
        {"1:2:3:4:5:6:7:8", "00010002000300040005000600070008", false, false},
        {"1::", "00010000000000000000000000000000", false, false},
        {"1:2:3:4:5:6:7::", "00010002000300040005000600070000", false, false},
        {"::ffff:127.0.0.1", "00000000000000000000ffff7f000001", false, true},
        {"64:FF9b::1.2.3.4", "0064ff9b000000000000000001020304", false, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct conf_host h;
        char hex[33] = {0};
        assert_int_equal(conf_host_parse(slice_str(good[i].text), &h), 0);
        for (int j = 0; j < 16; j++) {
            hex[2 * j] = "0123456789abcdef"[h.bytes[j] >> 4];
            hex[2 * j + 1] = "0123456789abcdef"[h.bytes[j] & 15];
        }
        assert_string_equal(hex, good[i].hex);
        assert_int_equal(h.any, good[i].any);
        assert_int_equal(h.loopback, good[i].loopback);
    }
    const char *bad[] = {"",
                         "1",
                         "1.2.3",
                         "1.2.3.4.5",
                         "256.0.0.1",
                         "1.2.3.04",
                         "1.2.3.4 ",
                         ":",
                         ":::",
                         "1:2:3:4:5:6:7",
                         "1:2:3:4:5:6:7:8:9",
                         "1::2::3",
                         "::12345",
                         "g::",
                         "1:",
                         ":1",
                         "::1.2.3",
                         "::1.2.3.4:5",
                         "1:2:3:4:5:6:7:1.2.3.4",
                         "gpu1",
                         "1:2:3:4::5:6:7:8",
                         "[::1]"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct conf_host h;
        if (conf_host_parse(slice_str(bad[i]), &h) != WEIR_E_INVALID)
            fail_msg("%s is taken", bad[i]);
    }
}

static struct conf_host host(const char *text)
{
    struct conf_host h;

    assert_int_equal(conf_host_parse(slice_str(text), &h), 0);
    return h;
}

static void reaching_is_not_overlapping(void **state)
{
    (void)state;
    static const struct {
        const char *to, *listener;
        bool reaches, overlaps;
    } cases[] = {
        {"127.0.0.1", "0.0.0.0", true, true},     {"::1", "::", true, true},
        {"0.0.0.0", "127.0.0.1", true, true},     {"10.0.0.1", "0.0.0.0", false, true},
        {"10.0.0.1", "10.0.0.1", true, true},     {"10.0.0.1", "10.0.0.2", false, false},
        {"127.0.0.1", "127.0.0.2", false, false}, {"::", "0.0.0.0", true, false},
        {"::1", "0.0.0.0", true, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct conf_host a = host(cases[i].to);
        struct conf_host b = host(cases[i].listener);
        assert_int_equal(conf_host_reaches(&a, &b), cases[i].reaches);
        assert_int_equal(conf_host_overlap(&a, &b), cases[i].overlaps);
    }
}

static void urls_name_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host;
        uint16_t port;
        bool tls;
    } good[] = {{"http://gpu1:8000", "gpu1", 8000, false},
                {"https://gpu1", "gpu1", 443, true},
                {"HTTPS://gpu1:8443/", "gpu1", 8443, true},
                {"http+unix:///run/x.sock", "/run/x.sock", 0, false},
                {"HTTP://gpu-1.example_x.org/", "gpu-1.example_x.org", 80, false},
                {"http://[fd00::2]:81", "fd00::2", 81, false},
                {"http://[::1]", "::1", 80, false},
                {"http://1.2.3.4:65535/", "1.2.3.4", 65535, false}};
    struct slice h;
    uint16_t port;
    bool tls;
    const char *why = NULL;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(conf_url_split(slice_str(good[i].url), &tls, &h, &port, &why), 0);
        assert_int_equal(tls, good[i].tls);
        assert_true(slice_eq(h, slice_str(good[i].host)));
        assert_int_equal(port, good[i].port);
    }
    static const struct {
        const char *url, *why;
    } bad[] = {
        {"http+unix://run/x",
         "has no usable socket path; write http+unix:///path/of/socket, at most 107 bytes"},
        {"http+unix:///a%20b",
         "has no usable socket path; write http+unix:///path/of/socket, at most 107 bytes"},
        {"gpu1:8000", "is not a URL; write http://host:port"},
        {"", "is not a URL; write http://host:port"},
        {"http://gpu1:8000/v1", "must not have a path; write http://host:port"},
        {"http://gpu1:0", "must have a port from 1 to 65535"},
        {"http://gpu1:65536", "must have a port from 1 to 65535"},
        {"http://gpu1:x", "must have a port from 1 to 65535"},
        {"http://gpu1:", "must have a port from 1 to 65535"},
        {"http://:80", "has no valid host and port; write http://host:port"},
        {"http://a:b:1", "has no valid host and port; write http://host:port"},
        {"http://[::1", "has no valid host and port; write http://host:port"},
        {"http://",
         "has no valid host; write a name, an IPv4 address, or an IPv6 address in brackets"},
        {"http://user@gpu1",
         "has no valid host; write a name, an IPv4 address, or an IPv6 address in brackets"},
        {"http://gpu 1",
         "has no valid host; write a name, an IPv4 address, or an IPv6 address in brackets"},
        {"http://[]",
         "has no valid host; write a name, an IPv4 address, or an IPv6 address in brackets"},
        {"http://[gpu1]",
         "has no valid host; write a name, an IPv4 address, or an IPv6 address in brackets"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        why = "nothing";
        assert_int_equal(conf_url_split(slice_str(bad[i].url), &tls, &h, &port, &why),
                         WEIR_E_INVALID);
        assert_string_equal(why, bad[i].why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(literals_are_read_whole),
        cmocka_unit_test(reaching_is_not_overlapping),
        cmocka_unit_test(urls_name_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
