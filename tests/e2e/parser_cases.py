# SPDX-License-Identifier: Apache-2.0
"""Requests and answers, valid and hostile, and seeded mutations of them, for test_parser_*.py."""
import random

CHUNKED = b"Transfer-Encoding: chunked\r\n"


def post(*fields, body=b"", path="/v1/t", line=None, end=b"\r\n"):
    head = [line or b"POST %s HTTP/1.1" % path.encode(), b"Host: x", *fields]
    return end.join(head) + end * 2 + body


def length(n, *fields, body=b"hello"):
    return post(b"Content-Length: " + n, *fields, body=body)


def chunks(body, *fields, coding=b"Transfer-Encoding: chunked"):
    return post(coding, *fields, body=body)


def coding(value):
    return chunks(b"5\r\nhello\r\n0\r\n\r\n", coding=value)


ONE = b"5\r\nhello\r\n0\r\n\r\n"
LAST = b"0\r\n\r\n"
GET = b"GET /v1/t HTTP/1.1\r\nHost: x\r\n\r\n"

REQUESTS = [
    # bodies and none
    GET, length(b"5"), length(b"0", body=b""), length(b"05"), length(b"0005"), post(), chunks(ONE), chunks(LAST),
    chunks(b"1\r\na\r\n2\r\nbc\r\n" + LAST), chunks(b"A\r\n0123456789\r\n" + LAST), chunks(b"a\r\n0123456789\r\n00\r\n\r\n"),
    chunks(b"0000000005\r\nhello\r\n" + LAST), chunks(b"00000000000000005\r\nhello\r\n" + LAST),
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"HEAD /v1/t HTTP/1.1\r\nHost: x\r\n\r\n",
    b"DELETE /v1/t HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi", b"GET /v1/t HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
    b"PUT /v1/t HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n" + ONE, b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"TRACE /v1/t HTTP/1.1\r\nHost: x\r\n\r\n", b"PATCH /v1/t?a=b&c=%20 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n ",
    # Content-Length
    length(b"+5"), length(b"-5"), length(b"5 "), length(b" 5"), length(b"\t5"), length(b"5\t"), length(b"0x5"), length(b"5.0"),
    length(b"5e0"), length(b"5, 5"), length(b"5,5"), length(b"5;"), length(b""), length(b"5\x00"), length(b"5\x0b"), length(b"\xa05"),
    length(b"18446744073709551616"), length(b"18446744073709551621"), length(b"9223372036854775808"), length(b"4294967301"),
    length(b"99999999999999999999999999999999999"), length(b"1_0"), length(b"'5'"), length(b"\xd9\xa5"),
    length(b"5", b"Content-Length: 5"), length(b"5", b"Content-Length: 6"), length(b"6", b"content-length: 5"),
    length(b"5", b"Content-Length:"), length(b"5", b"Content_Length: 6"), post(b"Content-Length : 5", body=b"hello"),
    post(b"Content-Length\t: 5", body=b"hello"), post(b" Content-Length: 5", body=b"hello"), post(b"Content-Length: 5\r", body=b"hello"),
    post(b"X: y\r\n Content-Length: 5", body=b"hello"), post(b"Content-Length:\r\n 5", body=b"hello"),
    post(b"Content-Length\x00: 5", body=b"hello"), post(b"CONTENT-LENGTH: 5", body=b"hello"), post(b"Content-Length:5", body=b"hello"),
    # Transfer-Encoding
    coding(b"Transfer-Encoding: Chunked"), coding(b"TRANSFER-ENCODING: CHUNKED"), coding(b"transfer-encoding:chunked"),
    coding(b"Transfer-Encoding : chunked"), coding(b"Transfer-Encoding: chunked "), coding(b"Transfer-Encoding:  chunked"),
    coding(b"Transfer-Encoding:\tchunked"), coding(b"Transfer-Encoding: chunked\t"), coding(b"Transfer-Encoding: \x0bchunked"),
    coding(b"Transfer-Encoding: chunked\x00"), coding(b"Transfer-Encoding: chunked, chunked"), coding(b"Transfer-Encoding: gzip, chunked"),
    coding(b"Transfer-Encoding: chunked, gzip"), coding(b"Transfer-Encoding: identity"), coding(b"Transfer-Encoding: identity, chunked"),
    coding(b"Transfer-Encoding: xchunked"), coding(b"Transfer-Encoding: chunkedx"), coding(b"Transfer-Encoding: chunked;q=1"),
    coding(b"Transfer-Encoding: ,chunked"), coding(b"Transfer-Encoding: chunked,"), coding(b"Transfer-Encoding: \"chunked\""),
    coding(b"Transfer-Encoding:"), coding(b"Transfer-Encoding: cow"), coding(b"Transfer-Encoding:\r\n chunked"),
    coding(b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"), coding(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
    coding(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), coding(b"Transfer_Encoding: chunked"), coding(b"X: y\nTransfer-Encoding: chunked"),
    coding(b"X: y\rTransfer-Encoding: chunked"), coding(b"Transfer-Encoding: chunked\r\nX: y"), coding(b"TE: chunked"),
    # both
    chunks(ONE, b"Content-Length: 5"), chunks(ONE, b"Content-Length: 0"), length(b"5", b"Transfer-Encoding: chunked"),
    chunks(LAST + GET, b"Content-Length: 5"), length(b"%d" % (len(LAST) + len(GET)), b"Transfer-Encoding: chunked", body=LAST + GET),
    chunks(ONE, b"Content-Length: abc"), length(b"5", b"Transfer-Encoding: identity"), length(b"5", b"Transfer-Encoding:"),
    post(line=b"POST /v1/t HTTP/1.0", *[b"Transfer-Encoding: chunked"], body=ONE), post(b"Content-Length: 5", line=b"POST /v1/t HTTP/1.0", body=b"hello"),
    # chunks
    *[chunks(c) for c in (
        b"5;a=b\r\nhello\r\n" + LAST, b"5;a=\"b\"\r\nhello\r\n0;x\r\n\r\n", b"5 ;a\r\nhello\r\n" + LAST, b"5; a = b\r\nhello\r\n" + LAST,
        b"5;\r\nhello\r\n" + LAST, b"5;a\nhello\r\n" + LAST, b"5;a\rb\r\nhello\r\n" + LAST, b"5;\x00\r\nhello\r\n" + LAST, b"5\nhello\r\n" + LAST,
        b"5\r\nhello\n" + LAST, b"5\r\nhello\r\n0\n\n", b"5\r\nhello\r\n0\r\n\n", b"5\r\nhello\r\n0\n\r\n", b"5\r\nhello0\r\n\r\n", b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhelloo\r\n" + LAST, b"6\r\nhello\r\n" + LAST, b"+5\r\nhello\r\n" + LAST, b"-5\r\nhello\r\n" + LAST, b"0x5\r\nhello\r\n" + LAST,
        b" 5\r\nhello\r\n" + LAST, b"5 \r\nhello\r\n" + LAST, b"5\t\r\nhello\r\n" + LAST, b"\r\n5\r\nhello\r\n" + LAST, b"5g\r\nhello\r\n" + LAST,
        b"5_0\r\nhello\r\n" + LAST, b"\r\n" + LAST, b";a\r\n" + LAST, b"ffffffffffffffff\r\nhello", b"10000000000000005\r\nhello\r\n" + LAST,
        b"100000005\r\nhello\r\n" + LAST, b"fffffffffffffffb\r\nhello\r\n" + LAST, b"7fffffffffffffff\r\nhello", b"5\r\r\nhello\r\n" + LAST,
        b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", b"5\r\nhello\r\n0\r\nContent-Length: 9\r\n\r\n", b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX : y\r\n\r\n", b"5\r\nhello\r\n0\r\n X: y\r\n\r\n", b"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n", b"5\r\nhello\r\n0\r\nX: y\n\r\n",
        b"5\r\nhello\r\n0\r\nX\r\n\r\n", b"5\r\nhello\r\n0\r\n: y\r\n\r\n", b"5\r\nhello\r\n0\r\nX: \x00\r\n\r\n", b"5\r\nhello\r\n0\r\n" + GET,
        b"5\r\nhello\r\n0\r\nHost: y\r\n\r\n", b"5\r\nhello\r\n0", b"5\r\nhello\r\n", b"5\r\nhel", b"5")],
    # lines
    post(end=b"\n"), post(b"X: y\nZ: w"), post(b"X: y\rZ: w"), post(b"X: y\x00Z: w"), post(b"X: y\r\n folded"), post(b"X: y\r\n\tfolded"),
    post(b"X : y"), post(b"X\t: y"), post(b": y"), post(b"X"), post(b"X y: z"), post(b"X(: z"), post(b"X\x80: z"), post(b"X: \xff\xfe"), post(b"X:"),
    post(b"X: \x01"), post(b"X: \x7f"), post(b"X: a\tb"), post(b"X:" + b" " * 40 + b"y" + b" " * 40), post(*[b"X: y"] * 90), post(*[b"X: y"] * 140),
    post(b"X: " + b"y" * 20000), b"\r\n" + GET, b"\r\n\r\n" + GET, b"\r\n\r\n\r\n" + GET, b"\n" + GET, b"\r" + GET, b" " + GET, b"\x00" + GET,
    b"GET /v1/t HTTP/1.1\r\n\r\n", post(b"Host: y"), b"GET /v1/t HTTP/1.1\r\nHost:\r\n\r\n", b"GET /v1/t HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"GET /v1/t HTTP/1.1\r\nHost: x/y\r\n\r\n", b"GET /v1/t HTTP/1.1\r\nHost: x@y\r\n\r\n", b"GET /v1/t HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET /v1/t HTTP/1.1 \r\nHost: x\r\n\r\n", b"GET  /v1/t HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1/t  HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET\t/v1/t\tHTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1/t HTTP/1.2\r\nHost: x\r\n\r\n", b"GET /v1/t HTTP/2.0\r\nHost: x\r\n\r\n",
    b"GET /v1/t HTTP/0.9\r\nHost: x\r\n\r\n", b"GET /v1/t http/1.1\r\nHost: x\r\n\r\n", b"GET /v1/t HTTP/1.10\r\nHost: x\r\n\r\n", b"GET /v1/t\r\n\r\n",
    b"GET /v1/t HTTP/01.1\r\nHost: x\r\n\r\n", b"get /v1/t HTTP/1.1\r\nHost: x\r\n\r\n", b"G@T /v1/t HTTP/1.1\r\nHost: x\r\n\r\n",
    b"BREW /v1/t HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /v1/t HTTP/1.0\r\n\r\n", b"GET /v1/t HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    # targets
    *[b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi" % t for t in (
        b"http://x/v1/t", b"HTTP://x:80/v1/t?q", b"http://x", b"http://x?/v1/t", b"https://x/v1/t", b"http://u@x/v1/t", b"http://[::1]/v1/t", b"http:///v1/t",
        b"ftp://x/v1/t", b"//x/v1/t", b"*", b"v1/t", b"/v1/t#f", b"/v1/t\x00", b"/v1/\xc3\xa9", b"/v1/t?a=\"<>\\^`{|}", b"/v1/%00", b"/v1/%zz", b"/v1/a\tb",
        b"/v1//t", b"/v1/../t", b"/" + b"a" * 9000, b"http://x\\y/v1/t", b"http://x%41/v1/t", b"http://a:b:c/v1/t", b"http://x:/v1/t", b"http://<>/v1/t")],
    # connection, upgrades, expectations
    length(b"5", b"Connection: close"), length(b"5", b"Connection: Content-Length"), chunks(ONE, b"Connection: Transfer-Encoding"),
    length(b"5", b"Connection: Host, X-Y", b"X-Y: z"), length(b"5", b"Connection: keep-alive, close"), length(b"5", b"Keep-Alive: timeout=5"),
    length(b"5", b"Proxy-Connection: keep-alive"), post(b"Connection: Upgrade", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
    length(b"5", b"Connection: Upgrade", b"Upgrade: websocket"), post(b"Upgrade: websocket"), length(b"5", b"Expect: 100-continue"),
    length(b"5", b"Expect: 200-ok"), post(b"Expect: 100-continue"), chunks(ONE, b"Expect: 100-Continue"), length(b"5", b"Trailer: X"), length(b"5", b"TE: trailers"),
    # several on one connection
    GET * 3, length(b"5") * 3, chunks(ONE) * 2 + length(b"5"), length(b"5") + b"\r\n" + GET, chunks(ONE) + b"\r\n\r\n" + GET, length(b"5", b"Connection: close") + GET,
    b"POST /v1/t HTTP/1.0\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" + GET, length(b"4") + GET, length(b"6") + GET, post(body=b"hello") + GET,
    b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(GET), GET), b"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n" + ONE + GET,
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(GET), GET), length(b"3", b"Content-Type: application/json") + GET,
    length(b"5", b"X-Priority: 99", b"X-Required-Memory: x") + GET, length(b"5", b"X-Model-Id: nobody") + GET, chunks(ONE, b"X-Model-Id: nobody") + GET,
]

# What mutations put in: where parsers have disagreed before.
REQUEST_WORDS = [
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b" ", b"\t", b"\x00", b"\x0b", b"\x0c", b"\x7f", b"\x80", b"\xff", b":", b";", b",", b"+", b"-", b"0", b"00", b"1",
    b"\"", b"_", b"0x", b"chunked", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding:chunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding : chunked\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: 50\r\n", b"Content-Length:\r\n", b"Connection: close\r\n",
    b"Connection: keep-alive\r\n", b"Host: y\r\n", b"Upgrade: x\r\nConnection: upgrade\r\n", b"Expect: 100-continue\r\n", b" folded\r\n", b"\tfolded\r\n", b"X: y\r\n",
    b"0\r\n\r\n", b"5\r\nhello\r\n", b"0\r\nX: y\r\n", b";ext", b"GET /v1/u HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1", b"HTTP/1.0", b"http://x/", b"*", b"ffffffff", b"18446744073709551616",
]


def answer(*fields, body=b"hello", line=b"HTTP/1.1 200 OK", end=b"\r\n"):
    return end.join([line, *fields]) + end * 2 + body


def sized(n, *fields, body=b"hello"):
    return answer(b"Content-Length: " + n, *fields, body=body)


def chunked(body, *fields):
    return answer(b"Transfer-Encoding: chunked", *fields, body=body)


OK = sized(b"5")
ANSWERS = [
    OK, sized(b"0", body=b""), chunked(ONE), chunked(LAST), answer(), answer(b"Connection: close"), answer(line=b"HTTP/1.0 200 OK"),
    # two for one request, and leftovers
    OK + OK, sized(b"4"), sized(b"6"), sized(b"4") + OK, chunked(ONE + OK), chunked(ONE) + b"x", chunked(LAST) + OK, sized(b"0"), OK + b"\r\n", OK + b"HTTP/1.1 ",
    OK + b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", OK * 5, OK + b"\x00" * 100,
    # lengths
    *[sized(n) for n in (b"+5", b"-5", b"5 ", b"\t5", b"0x5", b"5.0", b"5,5", b"5, 5", b"5;", b"", b"05", b"18446744073709551621", b"99999999999999999999999", b"4294967301")],
    sized(b"5", b"Content-Length: 5"), sized(b"5", b"Content-Length: 6"), answer(b"Content-Length : 5"), answer(b" Content-Length: 5"), answer(b"Content-Length:\r\n 5"),
    # codings
    *[answer(t, body=ONE) for t in (
        b"Transfer-Encoding: Chunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, gzip", b"Transfer-Encoding: identity", b"Transfer-Encoding: xchunked", b"Transfer-Encoding:", b"Transfer-Encoding:\tchunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 99", b"X: y\nTransfer-Encoding: chunked")],
    answer(b"Transfer-Encoding: chunked", line=b"HTTP/1.0 200 OK", body=ONE),
    *[chunked(c) for c in (
        b"5;a=b\r\nhello\r\n" + LAST, b"5 \r\nhello\r\n" + LAST, b"5\nhello\n0\n\n", b"+5\r\nhello\r\n" + LAST, b"-1\r\nhello\r\n" + LAST, b"5\r\nhelloX\r\n" + LAST,
        b"6\r\nhello\r\n" + LAST, b"ffffffffffffffff\r\nhello", b"10000000000000005\r\nhello\r\n" + LAST, b"5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n", b"5\r\nhello\r\n0\r\n" + OK, b"5\r\nhello\r\n", b"5\r\nhel", b"0\r\n", b"", b"\r\n" + ONE)],
    # no body by status
    *[sized(b"5", body=b"") .replace(b"200 OK", s) for s in (b"204 No Content", b"304 Not Modified")],
    *[OK.replace(b"200 OK", s) for s in (b"204 No Content", b"304 Not Modified", b"205 Reset", b"101 Switching Protocols", b"100 Continue", b"103 Early Hints", b"199 X")],
    *[chunked(ONE).replace(b"200 OK", s) for s in (b"204 No Content", b"304 Not Modified", b"101 Switching Protocols", b"100 Continue")],
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" * 3 + OK, b"HTTP/1.1 100 Continue\r\n\r\n" * 200 + OK, b"HTTP/1.1 103 Early\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + OK,
    # lines
    *[OK.replace(b"HTTP/1.1 200 OK", line) for line in (
        b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.1  200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 099 OK", b"HTTP/1.1 999 OK", b"HTTP/1.1 +20 OK",
        b"HTTP/1.1 200\tOK", b"HTTP/2.0 200 OK", b"HTTP/0.9 200 OK", b"http/1.1 200 OK", b"ICY 200 OK", b"HTTP/1.1 200 \xff\xfe", b"HTTP/1.1 200 a\x00b", b"HTTP/1.1 200 a\rb",
        b"HTTP/1.1 200 OK\r\nX: y\r\n folded", b"HTTP/1.1 200 OK\r\nX : y", b"HTTP/1.1 200 OK\r\n: y", b"HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b",
        b"HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b", b"HTTP/1.1 200 OK\r\nX: a\x00b", b"HTTP/1.1 200 OK\r\nX\x00: a", b"HTTP/1.1 200 OK\r\nX")],
    answer(b"Content-Length: 5", end=b"\n"), b"\r\n" + OK, b"\n" + OK, b"hello", b"<html>hello</html>", b"\x16\x03\x01\x02\x00", b"", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\n",
    answer(*[b"X: y"] * 120), answer(*[b"X: y"] * 400), answer(b"X: " + b"y" * 100000),
    # connection
    sized(b"5", b"Connection: close"), sized(b"5", b"Connection: keep-alive"), sized(b"5", b"Connection: Content-Length"), chunked(ONE, b"Connection: Transfer-Encoding"),
    sized(b"5", b"Connection: X-Y", b"X-Y: z"), sized(b"5", b"Upgrade: x", b"Connection: upgrade"), sized(b"5", b"Trailer: X"), sized(b"5", b"X-Request-Id: a", b"X-Request-Id: b"),
    OK.replace(b"200 OK", b"503 Busy"), OK.replace(b"200 OK", b"429 Busy"), OK.replace(b"200 OK", b"500 Broken") + OK,
]

ANSWER_WORDS = REQUEST_WORDS + [OK, b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n", b"204", b"304", b"101", b"100", b"HTTP/1.0 200 OK\r\n\r\n"]


def mutate(rng, case, others, words):
    """One to four small changes."""
    b = bytearray(case)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        at = rng.randrange(len(b) + 1)
        n = rng.choice((1, 1, 1, 2, 4, 8, 16))
        how = rng.randrange(9)
        if how == 0 and at < len(b):
            b[at] = rng.randrange(256)
        elif how == 1 and at < len(b):
            b[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            del b[at:at + n]
        elif how == 3:
            b[at:at] = b[at:at + n]
        elif how in (4, 5):
            b[at:at] = rng.choice(words)
        elif how == 6:
            lines = bytes(b).split(b"\r\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            b = bytearray(b"\r\n".join(lines))
        elif how == 7:
            lines = bytes(b).split(b"\r\n")
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(rng.choice(others).split(b"\r\n")))
            b = bytearray(b"\r\n".join(lines))
        else:
            other = rng.choice(others)
            b[at:] = other[rng.randrange(len(other) + 1):]
    return bytes(b[:40000])


def mutations(corpus, words, n, seed):
    rng = random.Random(seed)
    return [mutate(rng, rng.choice(corpus), corpus, words) for _ in range(n)]
