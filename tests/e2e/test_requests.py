# SPDX-License-Identifier: Apache-2.0
"""Request bodies, heads and versions at the edges (field reports H and I; docs/testing.md has the table)."""
import hashlib
import json
import random
import threading

import pytest

import weir_harness as h

KIB, MIB = 1 << 10, 1 << 20
JSON = "application/json"


def json_body(size, first=True):
    """A request of exactly that size, with the model as its first or last key."""
    empty = len(b'{"model":"m","p":""}')
    pad = (b"ab\\n\\u00e9" * (size // 10 + 1))[:size - empty]
    pad = pad[:pad.rfind(b"ab")] + b"x" * (len(pad) - pad.rfind(b"ab")) if pad else pad     # no escape is cut
    body = b'{"model":"m","p":"' + pad + b'"}' if first else b'{"p":"' + pad + b'","model":"m"}'
    assert len(body) == size
    return body


def digest(data):
    return hashlib.sha256(data).hexdigest()



def told_apart(weir, upstream):
    """Two models, so that the request's has to be found."""
    up = upstream(name="u")
    weir.register(up, models=("m",))
    weir.register(upstream(name="v"), models=("n",))
    return up


# H: bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("size", [32 * KIB - 1, 32 * KIB, 32 * KIB + 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1,
                                  MIB - 1, MIB, MIB + 1, 10 * MIB])
def test_h1_no_size_is_special(weir, upstream, size, first):
    up = told_apart(weir, upstream)
    body = json_body(size, first)
    r = weir.http("POST", "/v1/chat/completions", body, {"Content-Type": JSON})
    assert (r.status, r.header("x-worker")) == (200, "u")
    assert digest(up.requests[0].body) == digest(body)


@pytest.mark.long
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("size", [50 * MIB, 100 * MIB])
def test_h1_large_bodies(start_weir, upstream, size, first):
    weir = start_weir({"limits": {"peek_max": "16MiB" if first else "128MiB"}})
    test_h1_no_size_is_special(weir, upstream, size, first)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_h1_the_limit_is_exact(start_weir, upstream, client, framing):
    weir = start_weir({"limits": {"body": "64KiB"}})
    up = told_apart(weir, upstream)
    for size, status in ((64 * KIB, 200), (64 * KIB + 1, 413)):
        body = json_body(size, first=False)
        c = client(weir)
        if framing == "length":
            c.request(body=body)
        else:
            c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                   f"{len(body):x}\r\n")
            c.send(body + b"\r\n0\r\n\r\n")
        r = c.response()
        assert r.status == status
        if status == 413:
            assert r.error() == (413, "body_too_large") and r.header("Content-Type") == JSON
    assert up.hits() == 1


def form(size, model_first, quoted=True):
    q = '"' if quoted else ""
    wav = random.Random(size).randbytes(size)
    model = f"--bnd\r\nContent-Disposition: form-data; name={q}model{q}\r\n\r\nm\r\n".encode()
    file = (f"--bnd\r\ncontent-disposition: form-data; name={q}file{q}; filename=\"m\u00fcsik.wav\"\r\n"
            "Content-Type: audio/wav\r\n\r\n").encode() + wav + b"\r\n"
    return (model + file if model_first else file + model) + b"--bnd--\r\n"


FORM = "multipart/form-data; boundary=bnd"


@pytest.mark.parametrize("framing", ["length", "chunked", "expect"])
@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("model_first", [True, False])
def test_h3_forms_with_audio(weir, upstream, client, framing, quoted, model_first, sizes=(90_000, MIB)):
    up = told_apart(weir, upstream)
    c = client(weir)
    for size in sizes:
        body = form(size, model_first, quoted)
        head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: {FORM}\r\n"
        if framing == "chunked":
            c.send(head + "Transfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 60_000):
                piece = body[at:at + 60_000]
                c.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            c.send("0\r\n\r\n")
        elif framing == "expect":
            c.send(head + f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n")
            assert c.head()[0] == 100
            c.send(body)
        else:
            c.send(head + f"Content-Length: {len(body)}\r\n\r\n")
            c.send(body)
        r = c.response()
        assert (r.status, r.header("x-worker")) == (200, "u")
        got = up.requests[-1]
        assert got.header("content-type") == FORM and digest(got.body) == digest(body)


@pytest.mark.long
@pytest.mark.parametrize("framing", ["length", "chunked", "expect"])
@pytest.mark.parametrize("model_first", [True, False])
def test_h5_forms_of_25_mb(start_weir, upstream, client, framing, model_first):
    weir = start_weir({"limits": {"peek_max": "32MiB"}})
    test_h3_forms_with_audio(weir, upstream, client, framing, True, model_first, sizes=(25_000_000,))


@pytest.mark.parametrize("policy", ["chain", "round_robin", "weighted_round_robin", "random", "least_request",
                                    "power_of_two", "consistent_hash"])
def test_h4_every_policy_takes_every_kind_of_request(start_weir, upstream, policy):
    weir = start_weir({"routes": [{"policy": policy, "hash_on": ["user", "header:X-Session-Id", "client_ip"]}]})
    up = upstream(name="u")
    weir.register(up)
    kinds = [("POST", "/v1/chat/completions", json_body(100), {"Content-Type": JSON}),
             ("POST", "/v1/audio/transcriptions", form(1000, False), {"Content-Type": FORM, "X-Session-Id": "s"}),
             ("POST", "/v1/tokenize", b"", {}), ("GET", "/v1/files", None, {}), ("DELETE", "/v1/files/1", None, {}),
             ("POST", "/v1/pooling", b"\x00\xff" * 50, {"Content-Type": "application/octet-stream"})]
    for method, path, body, headers in kinds:
        assert weir.http(method, path, body, headers).status == 200
    assert [(r.method, r.path, r.body) for r in up.requests] == [(m, p, b or b"") for m, p, b, _ in kinds]
    # what no route takes is a clear 404, not a guess
    assert weir.http("POST", "/v2/rerank", json_body(100), {"Content-Type": JSON}).error() == (404, "route_not_found")


@pytest.mark.sanitize
def test_h6_an_upload_is_passed_on_while_it_comes(weir, upstream, client):
    """The model stands first: the worker has the front of the file before its end was sent."""
    body = form(4 * MIB, model_first=True)
    begun, parts = threading.Event(), []

    def work(conn, _):
        while True:
            request = conn.read_head()
            if request is None:
                return
            if request.method != "GET":
                break
            conn.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
        parts.append(conn.exactly(100_000))
        begun.set()
        parts.append(conn.exactly(int(request.header("content-length")) - 100_000))
        conn.answer(h.Request("POST", "", [], b"{}"))

    weir.register(upstream(work, name="u", raw=True))
    c = client(weir)
    c.send(f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: {FORM}\r\n"
           f"Content-Length: {len(body)}\r\n\r\n")
    c.send(body[:200_000])
    assert begun.wait(h.PATIENCE)
    c.send(body[200_000:])
    assert c.response().status == 200
    assert digest(b"".join(parts)) == digest(body)


BLIND = {"policies": {"blind": {"filters": ["usable", "model", "concurrency"], "pick": "round_robin"}},
         "routes": [{"policy": "blind"}]}


@pytest.mark.sanitize
@pytest.mark.parametrize("how", ["refuses", "continues", "hints and continues late", "ignores it", "is not waited for"])
@pytest.mark.parametrize("who", ["worker", "weir"])
def test_h7_expect_100_continue(start_weir, upstream, client, how, who):
    """Where the head decides, the 100 is the worker's to send; where the body is looked at, Weir asks for it."""
    seen, go = [], threading.Event()

    def work(conn, _):
        while True:
            request = conn.read_head()
            if request is None:
                return
            if request.method != "GET":
                break
            conn.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
        seen.append(request.header("expect"))
        if how == "refuses":
            conn.respond(413, {"error": {"message": "no", "type": "t", "code": "mine", "param": None}},
                         [("Connection", "close")], "Content Too Large")
            conn.wait_closed()
            return
        if how == "hints and continues late":
            conn.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            assert go.wait(h.PATIENCE)
        if how in ("continues", "hints and continues late"):
            conn.send("HTTP/1.1 100 Continue\r\n\r\n")
        request.body = conn.exactly(int(request.header("content-length")))
        conn.answer(request, "done")

    weir = start_weir(BLIND)
    weir.register(upstream(work, name="u", raw=True))
    body = json_body(100)
    c = client(weir)
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
           f"{'X-Model-Id: m' if who == 'worker' else 'X-Other: m'}\r\nContent-Length: {len(body)}\r\n\r\n"
           + (body.decode() if how == "is not waited for" else ""))
    if how == "is not waited for":
        assert seen in ([], [None])
    elif who == "weir":
        assert c.head()[0] == 100           # by Weir: at once, and only one
        c.send(body)
        if how == "hints and continues late":
            assert c.head()[0] == 103
            go.set()
    elif how in ("continues", "hints and continues late"):
        if how != "continues":
            status, fields = c.head()
            assert status == 103 and ("Link", "</a>") in fields
            go.set()
        assert c.head()[0] == 100
        c.send(body)
    elif how == "ignores it":
        h.wait_until(lambda: seen, "the worker to have the head alone")
        c.send(body)                        # as clients do after a while
    r = c.response()
    if how == "refuses":
        assert r.error() == (413, "mine")
    else:
        assert (r.status, r.json()["choices"][0]["message"]["content"]) == (200, "done")
    forwarded = who == "worker" and how != "is not waited for"
    assert seen == ["100-continue" if forwarded else None]


# I: heads and versions --------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.parametrize("fields", ["", "Host: x\r\n", "Host: x\r\nConnection: close\r\n"])
@pytest.mark.parametrize("stream", [True, False])
def test_i1_http_1_0_gets_no_chunks_and_every_event_at_once(weir, upstream, client, fields, stream):
    """As nginx asks by default (proxy_http_version 1.0), and as the oldest clients do."""
    go = threading.Semaphore(0)

    def work(conn, request):
        if not stream:
            conn.respond(200, {"n": 1})
            return
        conn.start_stream()
        for i in range(3):
            conn.sse_event({"i": i})
            assert go.acquire(timeout=h.PATIENCE)
        conn.end_stream()

    weir.register(upstream(work))
    body = json_body(60)
    c = client(weir)
    c.send(f"POST /v1/chat/completions HTTP/1.0\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    _, got = c.head()
    low = {k.lower(): v for k, v in got}
    assert "transfer-encoding" not in low and low["connection"] == "close"
    assert ("content-length" in low) == (not stream)
    for i in range(3 if stream else 0):
        assert c.until(b"\n\n") == b'data: {"i": %d}\n\n' % i
        go.release()
    assert c.rest() == (b"data: [DONE]\n\n" if stream else b'{"n": 1}')


def test_i1_http_1_0_keeps_a_connection_only_when_it_asks_and_the_end_is_known(weir, upstream, client):
    weir.register(upstream())
    body = json_body(60)
    head = f"POST /v1/chat/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    c = client(weir)
    for _ in range(3):
        c.send(head + body)
        r = c.response()
        assert (r.status, r.header("Connection")) == (200, "keep-alive")
    streamed = b'{"model":"m","stream":true}'
    c.send(f"POST /v1/x HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: {len(streamed)}\r\n\r\n".encode() + streamed)
    r = c.response()                        # to the end of the connection
    assert r.header("Connection") == "close" and r.body.endswith(b"data: [DONE]\n\n")


SMUGGLED = ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nContent-Length: 5", "Content-Length: +5",
            "Content-Length: 5, 5", "Content-Length:  5", "Content-Length: 5 ", "Content-Length: 0x5", "Content-Length: 5\t",
            "Content-Length: ", "Content-Length : 5", "Content-Length: \x0b5", "Transfer-Encoding: chunked,",
            "Transfer-Encoding: chunked ", "Transfer-Encoding: chunked\t", "Transfer-Encoding:\tchunked",
            "Transfer-Encoding: chunked, gzip", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: xchunked",
            "Transfer-Encoding: identity", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding : chunked",
            "Transfer-Encoding:\r\n chunked", "X: y\r\n Transfer-Encoding: chunked", "Transfer-Encoding: chunked\r\n\tx",
            "Transfer\u00adEncoding: chunked", "X: a\nTransfer-Encoding: chunked", "X: a\rTransfer-Encoding: chunked"]


@pytest.mark.parametrize("fields", SMUGGLED)
def test_i2_framing_that_two_servers_may_read_differently(weir, upstream, client, fields):
    up = upstream()
    weir.register(up)
    conns = len(up.conns)
    c = client(weir)
    c.send(f"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Model-Id: m\r\n{fields}\r\n\r\n".encode("latin-1")
           + b"0\r\n\r\nPOST /v1/smuggled HTTP/1.1\r\nHost: x\r\nX-Model-Id: m\r\nContent-Length: 0\r\n\r\n")
    r = c.response()
    assert r.error() == (400, "invalid_request") and r.header("Connection") == "close"
    c.wait_closed()
    assert c.buf == b""                     # one answer, then the end
    assert up.hits() == 0 and len([x for x in up.conns[conns:] if x.received and b"POST" in x.received]) == 0


@pytest.mark.sanitize
def test_i4_what_clients_write_forges_no_log_line_and_no_header(start_weir, upstream, client, tmp_path):
    log = tmp_path / "access.jsonl"
    weir = start_weir({"logging": {"access": f"file:{log}"}})
    up = upstream(models=("m",))
    weir.register(up)
    body = json_body(60)
    length = f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    lines = 0
    for bad in (b'{"quotes"}', b"x" * 65000, b"a b", b"\xc3\xa9", b"%0d%0aSet-Cookie: a=b", b"a\tb", b"\\u000a"):
        c = client(weir)
        c.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + bad + b"\r\n" + length)
        r = c.response()
        lines += 1 if r.status != 431 else 0
        if r.status == 200:
            made = r.header("X-Request-Id")
            assert made != bad.decode("latin-1") and len(made) == 32 and int(made, 16) >= 0
            assert up.requests[-1].header("x-request-id") == made
        else:
            assert r.status == 431 and len(bad) > 60000
    for bad in (b"a\rb", b"a\nb", b"a\x00b", b"a\x1b[31mb"):        # these are no header at all
        c = client(weir)
        c.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + bad + b"\r\n" + length)
        assert c.response().error() == (400, "invalid_request")
    for model in ("a\nb", 'a","status":200,"x":"', "\x00", "\x1b[31m", "\u2028", "\ud83d\ude00"):
        assert weir.chat(model=model).error() == (404, "model_not_found")
        lines += 1
    for path in ("/v1/%0a%0dx", '/v1/"{}', "/v1/\\"):
        assert weir.http("POST", path, body).status == 200
        lines += 1
    for path in (b"/v1/\x1b[31m", b"/v1/\x80", b"/v1/\x00"):
        c = client(weir)
        c.send(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + length)
        assert c.response().error() == (400, "invalid_request")
    weir.stop()
    read = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(read) == lines and all(b" " <= bytes([b]) for line in log.read_bytes().splitlines() for b in line)
    assert {r["path"] for r in read} == {"/v1/x", "/v1/chat/completions", "/v1/%0a%0dx", '/v1/"{}', "/v1/\\"}


@pytest.mark.parametrize("n, size, status", [(33, 1, 200), (100, 1, 200), (101, 1, 200), (124, 1, 200), (129, 1, 431),
                                             (1, 8 * KIB, 200), (1, 16 * KIB, 200), (1, 60 * KIB, 200),
                                             (1, 64 * KIB, 431), (8, 9 * KIB, 431)])
def test_i6_large_heads_pass_or_are_told(weir, upstream, client, n, size, status):
    up = upstream()
    weir.register(up)
    c = client(weir)
    fields = [(f"X-{i}", "v" * size) for i in range(n)]
    c.request(body={"model": "m"}, headers=fields)
    r = c.response()
    assert r.status == status
    if status == 200:
        assert [v for k, v in up.requests[0].headers if k.startswith("X-") and k[2:].isdigit()] == [v for _, v in fields]
    else:
        assert r.error() == (431, "headers_too_large") and r.header("Connection") == "close"
        assert up.hits() == 0
        c.wait_closed()


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/x%2Fy", "/v1//x", "/v1/x/", "/v1/x?a=%2F&b=+&c=%zz&&d",
                                    "/v1/x?", "/v1/%E4%B8%AD", "/v1/x;a=b?c;d", "/v1/a%20b/~x"])
def test_i8_path_and_query_arrive_as_they_were_sent(weir, upstream, client, target):
    up = upstream()
    weir.register(up)
    for written in (target, "http://elsewhere:81" + target):
        c = client(weir)
        c.request(path=written, body={"model": "m"})
        assert c.response().status == 200
        assert up.requests[-1].path == target
        assert up.requests[-1].header("host") == up.url.split("//")[1]


def test_forwarded_fields_say_where_a_request_came_from(start_weir, upstream, client):
    weir = start_weir({"routes": [{"match": {"path": "/v1/edge"}, "forwarded": "replace"},
                                  {"match": {"path": "/v1/off"}, "forwarded": "off"}, {}]})
    up = upstream()
    weir.register(up)
    claims = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https", "Forwarded": "for=6.6.6.6"}

    def got(path, headers):
        assert weir.http("POST", path, json_body(60), {"Host": "front:1", **headers}).status == 200
        r = up.requests[-1]
        return tuple(r.header(k) for k in ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"))

    assert got("/v1/x", {}) == ("127.0.0.1", "http", "front:1", None)
    assert got("/v1/x", claims) == ("6.6.6.6, 127.0.0.1", "https", "front:1", "for=6.6.6.6")
    assert got("/v1/edge", claims) == ("127.0.0.1", "http", "front:1", None)
    assert got("/v1/off", claims) == ("6.6.6.6", "https", None, "for=6.6.6.6")
    assert got("/v1/off", {}) == (None, None, None, None)


def test_trailers_end_here_and_the_body_is_whole(weir, upstream, client):
    def work(conn, request):
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
        conn.send_chunk(request.body)
        conn.send("0\r\nX-Sum: 1\r\nSet-Cookie: a=b\r\n\r\n")

    up = upstream(work)
    weir.register(up)
    body = json_body(60)
    c = client(weir)
    for _ in range(2):
        c.send("POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
               f"{len(body):x}\r\n{body.decode()}\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n")
        status, fields = c.head()
        assert status == 200 and "trailer" not in [k.lower() for k, _ in fields]
        assert c.exactly(len(body) + len(f"{len(body):x}") + 4)[-len(body) - 2:-2] == body
        assert c.until(b"0\r\n\r\n") == b"0\r\n\r\n"
    for r in up.requests:
        assert r.body == body and r.header("trailer") is None and r.header("x-sum") is None


def test_options_passes_without_a_model(start_weir, upstream):
    def work(conn, request):
        assert request.method == "OPTIONS"
        conn.send("HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: https://a\r\nAccess-Control-Allow-Methods: POST\r\n"
                  f"Vary: Origin\r\nx-worker: {conn.upstream.name}\r\n\r\n")

    weir = start_weir({"routes": [{"labels": {"cors": "yes"}, "policy": "round_robin"}]})
    assert weir.http("OPTIONS", "/v1/chat/completions").error() == (503, "no_endpoint")
    weir.register(upstream(work, name="a"), models=("m",), labels={"cors": "yes"})
    weir.register(upstream(work, name="b"), models=("n",), labels={"cors": "yes"})
    weir.register(upstream(work, name="c"), models=("n",))
    ask = {"Origin": "https://a", "Access-Control-Request-Method": "POST"}
    answers = [weir.http("OPTIONS", "/v1/chat/completions", None, ask) for _ in range(6)]
    assert [sorted((k, v) for k, v in r.headers if k.startswith(("Access", "Vary"))) for r in answers] == \
        [[("Access-Control-Allow-Methods", "POST"), ("Access-Control-Allow-Origin", "https://a"), ("Vary", "Origin")]] * 6
    assert sorted(r.header("x-worker") for r in answers) == ["a"] * 3 + ["b"] * 3
    assert weir.http("POST", "/v1/chat/completions", {}).error() == (400, "model_required")
    assert weir.admin_http("POST", "/api/v1/explain", {"method": "OPTIONS", "path": "/v1/x"}).json()["chosen"] in ("a", "b")
