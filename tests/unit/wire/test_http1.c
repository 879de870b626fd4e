/* SPDX-License-Identifier: Apache-2.0 */
#include "ct.h"

#include <string.h>

#include "base/bug.h"
#include "wire/http1.h"

static struct http1_head head;
static struct http1_error error;

static int64_t request(const char *text)
{
    error = (struct http1_error){0};
    return wire_http1_request(text, strlen(text), 100, &head, &error);
}

static int64_t response(const char *text, const char *method)
{
    error = (struct http1_error){0};
    return wire_http1_response(text, strlen(text), slice_str(method), &head, &error);
}

static void same(struct slice got, const char *want)
{
    assert_int_equal(got.n, strlen(want));
    assert_memory_equal(got.p, want, got.n);
}

static void refused(const char *text, unsigned status, const char *message)
{
    int64_t rc = request(text);

    if (rc != WEIR_E_PROTO || error.status != status || strcmp(error.message, message) != 0)
        print_error("%s\n-> %d %u %s\n", text, (int)rc, error.status,
                    error.message ? error.message : "");
    assert_int_equal(rc, WEIR_E_PROTO);
    assert_int_equal(error.status, status);
    assert_string_equal(error.message, message);
}

static const char chat[] = "POST /v1/chat/completions?x=1 HTTP/1.1\r\n"
                           "Host: gpu.example:30000\r\n"
                           "content-TYPE:application/json\r\n"
                           "X-Tab:\t a\tb \t\r\n"
                           "Empty:\r\n"
                           "Content-Length: 17\r\n"
                           "\r\n";

static void request_is_taken_apart_in_place(void **state)
{
    (void)state;
    assert_int_equal(request(chat), sizeof(chat) - 1);
    same(head.method, "POST");
    same(head.target, "/v1/chat/completions?x=1");
    assert_int_equal(head.minor, 1);
    assert_int_equal(head.framing, HTTP1_BODY_LENGTH);
    assert_int_equal(head.content_length, 17);
    assert_true(head.keep_alive);
    assert_false(head.expect_continue);
    assert_false(head.upgrade);
    assert_int_equal(head.n_fields, 5);
    same(head.fields[0].name, "Host");
    same(head.fields[0].value, "gpu.example:30000");
    same(head.fields[2].value, "a\tb");
    same(head.fields[3].value, "");
    same(wire_http1_value(&head, SLICE("CONTENT-type")), "application/json");
    assert_null(wire_http1_value(&head, SLICE("absent")).p);
    assert_ptr_equal(head.method.p, chat);
}

static void every_prefix_asks_for_more(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof(chat) - 1; n++)
        assert_int_equal(wire_http1_request(chat, n, 100, &head, &error), 0);
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\n\r\n";
    for (size_t n = 0; n < sizeof(answer) - 1; n++)
        assert_int_equal(wire_http1_response(answer, n, SLICE("GET"), &head, &error), 0);
}

static void body_and_next_message_are_not_part_of_the_head(void **state)
{
    (void)state;
    assert_int_equal(request("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /"), 27);
    assert_int_equal(head.framing, HTTP1_BODY_NONE);
    assert_int_equal(request("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 31);
    refused("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "invalid method");
}

#define GET      "GET / HTTP/1.1\r\nHost: a\r\n"
#define CL_TWICE "more than one Content-Length"

static void smuggling_forms_are_refused(void **state)
{
    (void)state;
    refused(GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
            "Transfer-Encoding and Content-Length");
    refused(GET "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400,
            "Transfer-Encoding and Content-Length");
    refused(GET "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, CL_TWICE);
    refused(GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400, CL_TWICE);
    static const char *lengths[] = {"+5", "-5", "5, 5", "5,5", "0x5",
                                    "",   "5a", "1e1",  "5 5", "18446744073709551616"};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        char text[128] = GET "Content-Length: ";
        strncat(text, lengths[i], 30);
        strncat(text, "\r\n\r\n", 5);
        refused(text, 400, "invalid Content-Length");
    }
    static const char *blanks[] = {"Content-Length:  5", "Content-Length: 5 ",
                                   "Content-Length:\t5"};
    for (size_t i = 0; i < ARRAY_LEN(blanks); i++) {
        char text[128] = GET;
        strncat(text, blanks[i], 40);
        strncat(text, "\r\n\r\n", 5);
        refused(text, 400, "blanks around Content-Length");
    }
    static const char *codings[] = {
        "chunked,", "chunked, gzip", "gzip, chunked", "xchunked",         "identity",
        "",         ",chunked",      "chunked;q=1",   "chunked, chunked", "\"chunked\""};
    for (size_t i = 0; i < ARRAY_LEN(codings); i++) {
        char text[128] = GET "Transfer-Encoding: ";
        strncat(text, codings[i], 40);
        strncat(text, "\r\n\r\n", 5);
        refused(text, 400, "Transfer-Encoding other than chunked");
    }
    refused(GET "Transfer-Encoding: chunked \r\n\r\n", 400, "blanks around Transfer-Encoding");
    refused(GET "Transfer-Encoding: chunked\t\r\n\r\n", 400, "blanks around Transfer-Encoding");
    refused(GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
            "more than one Transfer-Encoding");
    refused(GET "Transfer-Encoding : chunked\r\n\r\n", 400, "blank before the colon of a field");
    refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
            "Transfer-Encoding in HTTP/1.0");
}

static void malformed_lines_are_refused(void **state)
{
    (void)state;
    refused(GET " folded\r\n\r\n", 400, "folded field line");
    refused(GET "A: b\r\n\tfolded\r\n\r\n", 400, "folded field line");
    refused(GET "A: b\rC: d\r\n\r\n", 400, "CR without LF");
    refused(GET "A: b\n\r\n", 400, "line ends with LF alone");
    refused(GET "\n", 400, "invalid field name");
    refused("GET / HTTP/1.1\nHost: a\r\n\r\n", 400, "line ends with LF alone");
    refused(GET "A: b\x01\r\n\r\n", 400, "invalid character in the head");
    refused(GET "A: b\x7f\r\n\r\n", 400, "invalid character in the head");
    refused(GET ": b\r\n\r\n", 400, "invalid field name");
    refused(GET "A\r\n\r\n", 400, "invalid field name");
    refused(GET "A(: b\r\n\r\n", 400, "invalid field name");
    refused(GET "\r\r", 400, "CR without LF");
    static const char nul[] = GET "A: b\0c\r\n\r\n";
    assert_int_equal(wire_http1_request(nul, sizeof(nul) - 1, 100, &head, &error), WEIR_E_PROTO);
    assert_string_equal(error.message, "invalid character in the head");
    assert_true(request(GET "A: caf\xc3\xa9\r\n\r\n") > 0);
}

static void malformed_request_lines_are_refused(void **state)
{
    (void)state;
    refused("G(T / HTTP/1.1\r\n", 400, "invalid method");
    refused(" GET / HTTP/1.1\r\n", 400, "invalid method");
    static const char *targets[] = {"",
                                    "/a b",
                                    "/\x7f",
                                    "/\xc3\xa9",
                                    "/#f",
                                    "a",
                                    "*",
                                    "ftp://a/",
                                    "http://",
                                    "/\t",
                                    "http:///",
                                    "http://?",
                                    "http://:80/",
                                    "http://u@a/",
                                    "http://a\\b/",
                                    "https://<a>/"};
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        char text[64] = "GET ";
        strncat(text, targets[i], 30);
        strncat(text, " HTTP/1.1\r\nHost: a\r\n\r\n", 25);
        assert_int_equal(request(text), WEIR_E_PROTO);
        assert_int_equal(error.status, 400);
    }
    refused("GET / http/1.1\r\n", 400, "invalid HTTP version");
    refused("GET / HTTP/1.1 \r\n", 400, "invalid character in the head");
    refused("GET / HTTP/11\r\n\r\n", 400, "invalid HTTP version");
    refused("GET /\r\n\r\n", 400, "invalid request target");
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "unknown method");
    refused("oGET / HTTP/1.1\r\n", 400, "unknown method");
    refused("get / HTTP/1.1\r\n", 400, "unknown method");
    refused("GET / HTTP/2.0\r\n\r\n", 505, "HTTP version not supported");
    refused("GET / HTTP/1.2\r\n\r\n", 505, "HTTP version not supported");
    refused("GET / HTTP/0.9\r\n\r\n", 505, "HTTP version not supported");
    assert_int_equal(request("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 31);
    assert_int_equal(request("GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n"), 36);
    assert_int_equal(request("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"), 39);
}

static void host_is_required_once(void **state)
{
    (void)state;
    refused("GET / HTTP/1.1\r\n\r\n", 400, "Host is missing");
    refused("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, "more than one Host");
    refused("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400, "more than one Host");
    refused("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "invalid Host");
    refused("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "invalid Host");
    refused("GET / HTTP/1.1\r\nHost: u@b\r\n\r\n", 400, "invalid Host");
    refused("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", 400, "invalid Host");
    assert_true(request("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n") > 0);
    assert_true(request("GET / HTTP/1.1\r\nHost:\r\n\r\n") > 0);
    assert_true(request("GET / HTTP/1.0\r\n\r\n") > 0);
    assert_false(head.keep_alive);
}

static void too_many_fields_is_431(void **state)
{
    (void)state;
    static char text[4096] = "GET / HTTP/1.1\r\nHost: a\r\n";
    size_t n = strlen(text);

    for (unsigned i = 1; i < 100; i++, n += 6)
        memcpy(text + n, "A: b\r\n", 6);
    memcpy(text + n, "\r\n", 3);
    assert_int_equal(request(text), n + 2);
    assert_int_equal(head.n_fields, 100);
    memcpy(text + n, "A: b\r\n\r\n", 9);
    refused(text, 431, "too many header fields");
    for (unsigned i = 100; i < HTTP1_FIELDS_MAX; i++, n += 6)
        memcpy(text + n, "A: b\r\n", 6);
    memcpy(text + n, "\r\n", 3);
    assert_int_equal(wire_http1_request(text, n + 2, 1000, &head, &error), n + 2);
    memcpy(text + n, "A: b\r\n\r\n", 9);
    assert_int_equal(wire_http1_request(text, n + 8, 1000, &head, &error), WEIR_E_PROTO);
}

static void persistence_follows_version_and_connection(void **state)
{
    (void)state;
    assert_true(request(GET "Connection: x, Close\r\n\r\n") > 0);
    assert_false(head.keep_alive);
    assert_true(request(GET "Connection: foo\r\nConnection: close\r\n\r\n") > 0);
    assert_false(head.keep_alive);
    assert_true(request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n") > 0);
    assert_true(head.keep_alive);
    assert_true(request("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n") > 0);
    assert_false(head.keep_alive);
    assert_true(request(GET "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n") > 0);
    assert_true(head.upgrade);
    assert_true(request(GET "Upgrade: websocket\r\n\r\n") > 0);
    assert_false(head.upgrade);
    assert_true(request(GET "Expect: 100-Continue\r\n\r\n") > 0);
    assert_true(head.expect_continue);
    assert_true(request("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n") > 0);
    assert_false(head.expect_continue);
    assert_true(request(GET "Transfer-Encoding: Chunked\r\n\r\n") > 0);
    assert_int_equal(head.framing, HTTP1_BODY_CHUNKED);
}

static void hop_by_hop_fields_are_known(void **state)
{
    (void)state;
    static const char text[] =
        GET "Connection: X-Mine, host, content-length, upgrade\r\nx-mine: 1\r\nX-Other: 2\r\n"
            "Keep-Alive: 3\r\nProxy-Connection: 4\r\nTransfer-Encoding: chunked\r\nTE: 5\r\n"
            "Trailer: 6\r\nUpgrade: 7\r\nProxy-Authenticate: 8\r\n"
            "Proxy-Authorization: 9\r\nContent-Type: 10\r\n\r\n";
    static const bool want[] = {false, true, true, false, true, true, true,
                                true,  true, true, true,  true, false};

    assert_int_equal(request(text), sizeof(text) - 1);
    assert_int_equal(head.n_fields, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_int_equal(wire_http1_hop_by_hop(&head, &head.fields[i]), want[i]);
    assert_true(request(GET "Connection: content-length\r\nContent-Length: 5\r\n\r\n") > 0);
    assert_false(wire_http1_hop_by_hop(&head, &head.fields[2]));
}

static void response_framing(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *method;
        enum http1_framing framing;
        bool keep_alive;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", HTTP1_BODY_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET", HTTP1_BODY_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, HTTP1_BODY_CHUNKED, true},
        {"HTTP/1.1 200 OK\r\n\r\n", "POST", HTTP1_BODY_CLOSE, false},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", "POST", HTTP1_BODY_CLOSE, false},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", "GET",
         HTTP1_BODY_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", HTTP1_BODY_NONE, true},
        {"HTTP/1.1 200 OK\r\n\r\n", "CONNECT", HTTP1_BODY_NONE, true},
        {"HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\n", "CONNECT", HTTP1_BODY_LENGTH, true},
        {"HTTP/1.1 204 No Content\r\n\r\n", "GET", HTTP1_BODY_NONE, true},
        {"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", HTTP1_BODY_NONE,
         false},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", HTTP1_BODY_NONE, true},
        {"HTTP/1.1 100 Continue\r\n\r\n", "POST", HTTP1_BODY_NONE, true},
        {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n", "GET", HTTP1_BODY_LENGTH, true},
        {"HTTP/1.1 200 \r\nContent-Length:  5 \r\n\r\n", "GET", HTTP1_BODY_LENGTH, true},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(response(rows[i].text, rows[i].method), strlen(rows[i].text));
        assert_int_equal(head.framing, rows[i].framing);
        assert_int_equal(head.keep_alive, rows[i].keep_alive);
    }
    assert_int_equal(response("HTTP/1.1 207 Multi Status\r\nContent-Length: 7\r\n\r\n", "GET"), 48);
    assert_int_equal(head.status, 207);
    same(head.reason, "Multi Status");
    assert_int_equal(head.content_length, 7);
}

static void malformed_responses_are_refused(void **state)
{
    (void)state;
    static const char *bad[] = {
        "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/1.1 20 X\r\n\r\n",
        "HTTP/1.1  200 X\r\n\r\n",
        "HTTP/1.1 2000 X\r\n\r\n",
        "HTTP/2.0 200 X\r\n\r\n",
        "HTTP/1.1 200 X\n\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 \x01\r\n\r\n",
        "HTTP/1.1\t200 OK\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(response(bad[i], "GET"), WEIR_E_PROTO);
}

static void reasons_are_standard(void **state)
{
    (void)state;
    assert_string_equal(wire_http1_reason(200), "OK");
    assert_string_equal(wire_http1_reason(429), "Too Many Requests");
    assert_string_equal(wire_http1_reason(799), "Unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_is_taken_apart_in_place),
        cmocka_unit_test(every_prefix_asks_for_more),
        cmocka_unit_test(body_and_next_message_are_not_part_of_the_head),
        cmocka_unit_test(smuggling_forms_are_refused),
        cmocka_unit_test(malformed_lines_are_refused),
        cmocka_unit_test(malformed_request_lines_are_refused),
        cmocka_unit_test(host_is_required_once),
        cmocka_unit_test(too_many_fields_is_431),
        cmocka_unit_test(persistence_follows_version_and_connection),
        cmocka_unit_test(hop_by_hop_fields_are_known),
        cmocka_unit_test(response_framing),
        cmocka_unit_test(malformed_responses_are_refused),
        cmocka_unit_test(reasons_are_standard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
