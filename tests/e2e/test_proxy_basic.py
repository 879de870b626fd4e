# SPDX-License-Identifier: Apache-2.0
"""The data plane alone: what clients and workers see, byte by byte where it matters."""
import hashlib
import json
import random
import socket
import threading

import pytest

from proxy_only import Client, Conn, Message, Proxy, Reader, Up, ask, wait_until, PATIENCE

pytestmark = [pytest.mark.sanitize, pytest.mark.race]


@pytest.fixture
def start():
    """start(upstreams..., args=[...]) -> Proxy; start.up(script) -> Up."""
    made = []

    def proxy(*upstreams, args=()):
        p = Proxy(*upstreams, args=args)
        made.append(p)
        return p

    def up(*args, **kw):
        u = Up(*args, **kw)
        made.append(u)
        return u

    proxy.up = up
    yield proxy
    for m in reversed(made):
        m.stop() if isinstance(m, Proxy) else m.close()


# ---- plain exchanges -------------------------------------------------------------------------------------------

def test_a_post_arrives_whole_and_its_answer_too(start):
    u = start.up(lambda c, r: c.reply(b'{"n":1}', fields="X-Worker: w\r\nX-Request-Id: theirs\r\nKeep-Alive: 5\r\n"))
    p = start(u)
    a = ask(p, b'{"model":"m","x":1}', fields=["X-Request-Id: abc-1", "Connection: keep-alive, X-Hop", "X-Hop: 1",
                                               "Authorization: Bearer k", "TE: trailers"])
    assert (a.status, a.body) == (200, b'{"n":1}')
    assert a.all("X-Request-Id") == ["abc-1"] and a.get("X-Worker") == "w" and a.get("Keep-Alive") is None
    assert a.all("Content-Length") == ["7"] and a.get("Transfer-Encoding") is None
    r = u.requests[0]
    assert r.first == "POST /v1/chat/completions HTTP/1.1" and r.body == b'{"model":"m","x":1}'
    assert r.all("Host") == [u.addr] and r.get("Authorization") == "Bearer k"
    assert r.get("X-Hop") is None and r.get("TE") is None and r.get("Connection") is None
    assert r.all("X-Request-Id") == ["abc-1"] and r.all("X-Weir-Hop") == ["proxy-only"]
    assert len(r.get("traceparent")) == 55
    assert p.quiet()["outcomes"]["ok"] == 1


def test_keep_alive_on_both_sides(start):
    u = start.up()
    p = start(u)
    c = Client(p)
    for _ in range(50):     # all at once: Weir closes a connection to a worker that rests for seconds
        c.post()
    assert [c.answer().status for _ in range(50)] == [200] * 50
    assert u.hits() == 50 and len(u.conns) == 1
    assert p.stats()["upstream_connections"] == 1


def test_pipelined_requests_are_answered_in_order(start):
    u = start.up(lambda c, r: c.reply(r.body))
    p = start(u)
    c = Client(p)
    one = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
    bodies = [b'{"model":"m","n":%d}' % i for i in range(20)]
    c.send(b"".join(one % (len(b), b) for b in bodies) + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [c.answer().body for _ in range(20)] == bodies
    assert c.answer().body == b'{"status":"ok"}'


def test_one_byte_at_a_time_both_ways(start):
    def script(c, r):
        for b in b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello":
            c.send(bytes([b]))
    u = start.up(script)
    p = start(u)
    c = Client(p)
    for b in b'POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"model":"m"}':
        c.send(bytes([b]))
    assert c.answer().body == b"hello"
    assert u.requests[0].body == b'{"model":"m"}'


def test_head_204_and_304(start):
    def script(c, r):
        if r.first.startswith("HEAD"):
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        elif "204" in r.first:
            c.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            c.send(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")
    u = start.up(script)
    p = start(u)
    c = Client(p)
    c.get("/v1/x", method="HEAD")
    c.get("/v1/204")
    c.get("/v1/304")
    assert c.answer(head_only=True).all("Content-Length") == ["1234"]
    assert c.answer().status == 204
    assert c.answer().get("ETag") == "x"
    assert len(u.conns) == 1


def test_http_1_0_client_gets_no_chunks(start):
    def script(c, r):
        c.start_stream()
        c.chunk(b"data: 1\n\n")
        c.chunk(b"data: 2\n\n")
        c.end_stream()
    p = start(start.up(script))
    c = Client(p)
    c.post(version="1.0")
    a = c.answer()
    assert a.body == b"data: 1\n\ndata: 2\n\n" and a.get("Transfer-Encoding") is None
    assert a.get("Connection") == "close"
    p2 = start(start.up())
    c = Client(p2)
    for _ in range(2):
        c.post(version="1.0", fields=["Connection: keep-alive"])
        a = c.answer()
        assert a.get("Connection") == "keep-alive" and a.body == b'{"ok":true}'


def test_answer_delimited_by_close_becomes_chunked(start):
    def script(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc")
        c.sock.shutdown(socket.SHUT_WR)
        raise EOFError
    p = start(start.up(script))
    c = Client(p)
    for _ in range(2):
        c.post()
        a = c.answer()
        assert a.body == b"abc" and a.get("Transfer-Encoding") == "chunked"
    p.quiet()


def test_chunked_request_reaches_the_worker_whole(start):
    u = start.up()
    p = start(u)
    c = Client(p)
    c.post(b'5\r\n{"mod\r\n8;x=y\r\nel":"m"}\r\n0\r\nT: 1\r\n\r\n', fields=["Transfer-Encoding: chunked"], length=False)
    assert c.answer().status == 200
    assert u.requests[0].body == b'{"model":"m"}' and u.requests[0].get("Content-Length") == "13"
    # and when the model is all that counts, one that is long is passed on as it comes
    p = start(u, args=["--blind", "1"])
    c = Client(p)
    body = b'{"model":"m","p":"' + b"x" * 300000 + b'"}'
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for i in range(0, len(body), 10000):
        part = body[i:i + 10000]
        c.send(b"%x\r\n%s\r\n" % (len(part), part))
        wait_until("a connection to the worker", lambda: len(u.conns) == 2)
    c.send(b"0\r\n\r\n")
    assert c.answer().status == 200
    assert u.requests[1].body == body and u.requests[1].get("Transfer-Encoding") == "chunked"


# ---- streams ---------------------------------------------------------------------------------------------------

def test_each_event_passes_at_once(start):
    go = threading.Semaphore(0)

    def script(c, r):
        c.start_stream()
        for i in range(5):
            c.chunk(b"data: %d\n\n" % i)
            assert go.acquire(timeout=PATIENCE)
        c.end_stream()
    p = start(start.up(script))
    c = Client(p)
    c.post(b'{"model":"m","stream":true}')
    assert c.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
    for i in range(5):      # each is seen before the next is sent
        assert c.reader.until(b"\n\n\r\n").endswith(b"data: %d\n\n\r\n" % i)
        go.release()
    assert c.reader.until(b"0\r\n\r\n") == b"0\r\n\r\n"
    p.quiet()


def test_events_cut_at_every_offset_arrive_unchanged(start):
    text = "data: {\"t\":\"中文🙂\"}\n\ndata: [DONE]".encode()      # no newline at the end
    wire = b"".join(b"%x\r\n%s\r\n" % (len(text[i:i + 7]), text[i:i + 7]) for i in range(0, len(text), 7)) + b"0\r\n\r\n"

    def script(c, r):
        cut = int(r.get("X-Cut"))
        c.start_stream()
        c.send(wire[:cut])
        c.send(wire[cut:])
    p = start(start.up(script))
    c = Client(p)
    for cut in range(len(wire) + 1):
        c.post(fields=[f"X-Cut: {cut}"])
        assert c.answer().body == text


def test_an_upstream_that_dies_in_the_body_never_looks_complete(start):
    def script(c, r):
        how = r.get("X-How")
        if how.startswith("length"):
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        else:
            c.start_stream()
            c.chunk(b"data: 1\n\n")
        c.up.step.acquire(timeout=PATIENCE)
        if how.endswith("fin"):
            c.sock.shutdown(socket.SHUT_WR)
            raise EOFError
        c.die()
    u = start.up(script)
    u.step = threading.Semaphore(0)
    p = start(u)
    for n, how in enumerate(["length-fin", "length-rst", "chunked-fin", "chunked-rst"]):
        c = Client(p)
        c.post(fields=[f"X-How: {how}"])
        c.reader.until(b"half" if how.startswith("length") else b"data: 1\n\n")
        u.step.release()
        with pytest.raises((EOFError, ConnectionResetError)):
            c.reader.until(b"0\r\n\r\n")
        assert b"[DONE]" not in c.reader.raw
        wait_until("it is counted", lambda: p.stats()["outcomes"]["upstream_aborted"] == n + 1)
    p.quiet()


def test_a_slow_reader_of_an_answer_delimited_by_close_gets_all(start):
    """The worker's FIN is seen while reading from it is paused: what stands before it must not be lost."""
    data = random.Random(4).randbytes(6 << 20)

    def script(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + data)
        c.sock.shutdown(socket.SHUT_WR)
        c.up.done.set()
        c.wait_gone()
        raise EOFError
    u = start.up(script)
    u.done = threading.Event()
    p = start(u)
    for size in (65536, 4 << 20):
        u.done.clear()
        c = Client(p)
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        c.post()
        c.reader.until(b"\r\n\r\n")
        u.done.wait(0.3)        # with large socket buffers it is done before we read on, else it waits for us
        assert c.reader.chunks() == data
    p.quiet()


def test_a_reader_that_stops_holds_little_and_gets_all(start):
    total = 40 << 20
    block = random.Random(1).randbytes(1 << 20)

    def script(c, r):
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total >> 20):
            c.send(block)
            c.up.sent += len(block)
    u = start.up(script)
    u.sent = 0
    p = start(u)
    c = Client(p)
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    c.post()
    last = [-1]

    def stalled():      # no progress between two looks: the worker is held back
        now, last[0] = u.sent == last[0] and u.sent > 0, u.sent
        threading.Event().wait(0.1)
        return now
    wait_until("the worker is held back", stalled)
    assert u.sent < total and p.stats()["buffered"] < 1 << 20
    a = c.answer()
    assert hashlib.sha256(a.body).digest() == hashlib.sha256(block * (total >> 20)).digest()
    p.quiet()


# ---- bodies ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", [32767, 32768, 32769, 65535, 65536, 65537, (1 << 20) - 1, (1 << 20) + 1, 10 << 20])
def test_bodies_of_all_sizes_with_the_model_first_and_last(start, size):
    u = start.up()
    p = start(u)
    c = Client(p)
    pad = b"x" * (size - len(b'{"model":"m","p":""}'))
    for body in (b'{"model":"m","p":"' + pad + b'"}', b'{"p":"' + pad + b'","model":"m"}'):
        assert len(body) == size
        c.post(body)
        assert c.answer().status == 200
        assert hashlib.sha256(u.requests[-1].body).digest() == hashlib.sha256(body).digest()
    p.quiet()


def test_body_limits(start):
    u = start.up()
    p = start(u, args=["--body", "1000", "--peek", "500"])
    a = ask(p, b"x" * 1001)
    assert (a.status, a.code()) == (413, "body_too_large")
    c = Client(p)
    c.post(b"3E9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n", fields=["Transfer-Encoding: chunked", "X-Model-Id: m"],
           length=False)
    a = c.answer()
    # the head alone decided, so the worker may have been told already; the client is told all the same
    assert (a.status, a.code()) == (413, "body_too_large") and a.get("Connection") == "close"
    p2 = start(f"{u.addr},model=m", f"127.0.0.1:1,model=other", args=["--peek", "500"])
    a = ask(p2, b'{"p":"' + b"x" * 600000 + b'","model":"m"}')
    assert (a.status, a.code()) == (413, "body_too_large")
    p.quiet()
    p2.quiet()


def test_multipart_with_the_model_before_and_after_the_file(start):
    u = start.up()
    p = start(u)
    wav = random.Random(2).randbytes(90000)
    part = {"m": b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n',
            "f": b'--b\r\nContent-Disposition: form-data; name="file"; filename="model.wav"\r\n\r\n' + wav + b"\r\n"}
    for order in ("mf", "fm"):
        body = b"".join(part[o] for o in order) + b"--b--\r\n"
        a = ask(p, body, path="/v1/audio/transcriptions", fields=["Content-Type: multipart/form-data; boundary=b"])
        assert a.status == 200 and u.requests[-1].body == body


def test_an_alias_is_replaced_in_the_body_and_nowhere_else(start):
    u = start.up()
    p = start(u, args=["--alias", "gpt=m"])
    c = Client(p)
    cases = {
        b'{"messages":[{"model":"gpt"}],"x":"model\\":gpt", "model" : "gpt" ,"y":1}':
            b'{"messages":[{"model":"gpt"}],"x":"model\\":gpt", "model" : "m" ,"y":1}',
        b'{"model":"\\u0067pt"}': b'{"model":"m"}',
        b'{"model":"gpt","pad":"' + b"z" * 200000 + b'"}': b'{"model":"m","pad":"' + b"z" * 200000 + b'"}',
        b'{"pad":"' + b"z" * 20000 + b'","model":"gpt"}': b'{"pad":"' + b"z" * 20000 + b'","model":"m"}',
    }
    for sent, wanted in cases.items():
        c.post(sent)
        assert c.answer().status == 200
        assert u.requests[-1].body == wanted and u.requests[-1].get("Content-Length") == str(len(wanted))
    c.post(b'{"model":"gpt"}', fields=["X-Model-Id: gpt"])      # by header: the body is not touched
    assert c.answer().status == 200 and u.requests[-1].body == b'{"model":"gpt"}'
    form = (b'--b\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n\r\ngpt\r\n'
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%s\r\n--b--\r\n')
    c.post(form % b"gpt", fields=["Content-Type: multipart/form-data; boundary=b"])
    assert c.answer().status == 200 and u.requests[-1].body == form % b"m"
    c.get("/v1/models")
    assert [m["id"] for m in json.loads(c.answer().body)["data"]] == ["gpt", "m"]


def test_expect_100_continue(start):
    def script(c, r):
        how = r.get("X-How") or "ok"
        if how == "103":
            c.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        c.reply()
    u = start.up(script)
    p = start(u)
    # the decision needs the body: Weir asks for it, the worker is not told
    c = Client(p)
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nX-How: 103\r\nContent-Length: 13\r\n\r\n")
    assert c.answer().status == 100
    c.send(b'{"model":"m"}')
    assert c.answer().status == 103
    assert c.answer().status == 200 and u.requests[0].get("Expect") is None
    # refused by its head: no 100
    c = Client(p)
    c.send(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 13\r\n\r\n")
    assert c.answer().status == 404
    # sent without waiting
    c = Client(p)
    c.post(fields=["Expect: 100-continue"])
    assert c.answer().status == 200


def test_expect_is_the_workers_matter_when_the_head_decides(start):
    def first(c):
        head = c.reader.until(b"\r\n\r\n")
        assert b"Expect: 100-continue" in head
        if b"X-How: refuse" in head:
            c.reply(b"no", status="413 Content Too Large", fields="Connection: close\r\n")
            raise EOFError
        c.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert c.reader.exactly(5) == b"hello"
        c.reply()
        c.wait_gone()
        raise EOFError
    u = start.up(first=first)
    p = start(u, args=["--blind", "1"])
    head = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Model-Id: m\r\nExpect: 100-continue\r\nContent-Length: 5\r\n%s\r\n"
    c = Client(p)
    c.send(head % b"X-How: refuse\r\n")
    a = c.answer()
    assert (a.status, a.body, a.get("Connection")) == (413, b"no", "close") and c.at_end()
    c = Client(p)
    c.send(head % b"")
    assert c.answer().status == 100
    c.send(b"hello")
    assert c.answer().status == 200


def test_an_early_refusal_of_the_worker_reaches_a_client_that_still_sends(start):
    def first(c):
        c.reader.until(b"\r\n\r\n")
        c.reply(b"too much", status="413 Content Too Large")
        c.wait_gone()
        raise EOFError
    p = start(start.up(first=first), args=["--blind", "1"])
    c = Client(p)
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Model-Id: m\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 100000)
    a = c.answer()
    assert (a.status, a.body, a.get("Connection")) == (413, b"too much", "close")
    c.close()
    p.quiet()


# ---- the client goes away --------------------------------------------------------------------------------------

@pytest.mark.parametrize("phase", ["before_head", "silent_prefill", "mid_stream", "non_stream", "mid_upload"])
def test_a_client_that_leaves_cancels_the_worker(start, phase):
    def script(c, r):
        if phase == "silent_prefill":
            c.start_stream()
        elif phase == "mid_stream":
            c.start_stream()
            c.chunk(b"data: 1\n\n")
        elif phase == "non_stream":
            c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf")
        c.wait_gone()
        raise EOFError
    u = start.up(script)
    p = start(u, args=["--blind", "1"])
    for n, leave in enumerate([Client.close, Client.reset]):
        c = Client(p)
        if phase == "mid_upload":
            c.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Model-Id: m\r\nContent-Length: 9\r\n\r\nhalf")
            wait_until("a connection to the worker", lambda: len(u.conns) == n + 1)
        else:
            c.post()
            u.seen.get(timeout=PATIENCE)
            if phase in ("silent_prefill",):
                c.reader.until(b"\r\n\r\n")
            if phase in ("mid_stream", "non_stream"):
                c.reader.until(b"half" if phase == "non_stream" else b"data: 1\n\n")
        leave(c)
        u.gone.get(timeout=PATIENCE)
        wait_until("it is counted", lambda: p.stats()["outcomes"]["client_gone"] == n + 1)
    p.quiet()


def test_half_close(start):
    go = threading.Event()

    def script(c, r):
        go.wait(4 * PATIENCE)
        c.reply()
    u = start.up(script)
    p = start(u, args=["--half-close", "keep"])
    c = Client(p)
    c.post()
    c.sock.shutdown(socket.SHUT_WR)
    u.seen.get(timeout=PATIENCE)
    go.set()
    assert c.answer().status == 200 and c.at_end()
    go.clear()
    p = start(u)
    c = Client(p)
    c.post()
    u.seen.get(timeout=PATIENCE)
    c.sock.shutdown(socket.SHUT_WR)
    wait_until("gone is counted", lambda: p.stats()["outcomes"]["client_gone"] == 1)
    go.set()
    p.quiet()


def test_random_aborts_leave_every_counter_at_zero(start):
    def script(c, r):
        c.start_stream()
        for i in range(20):
            c.chunk(b"data: %d\n\n" % i)
        c.end_stream()
    ups = [start.up(script) for _ in range(3)]
    p = start(*[f"{u.addr},model=m,limit=4" for u in ups])
    rng = random.Random(3)
    request = b'POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"model":"m"}'

    def one(seed):
        r = random.Random(seed)
        for _ in range(40):
            c = Client(p)
            try:
                c.send(request[:r.randrange(1, len(request) + 1)])
                if r.random() < 0.6:
                    c.send(b"")
                    c.sock.settimeout(0.02)
                    c.sock.recv(r.randrange(1, 400))
            except OSError:
                pass
            (Client.reset if r.random() < 0.5 else Client.close)(c)
    threads = [threading.Thread(target=one, args=(rng.random(),)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    s = p.quiet()
    assert all(v == 0 for v in s["inflight"].values()), s
    assert ask(p).status == 200


# ---- attempts --------------------------------------------------------------------------------------------------

def test_a_refused_connection_is_retried_elsewhere(start):
    u = start.up()
    with socket.socket() as dead:       # bound, and so nobody else's; it does not listen
        dead.bind(("127.0.0.1", 0))
        addr = f"127.0.0.1:{dead.getsockname()[1]}"
        p = start(f"{addr},model=m", u)
        for n in range(200):
            assert ask(p).status == 200
            if n >= 9 and p.stats()["retries"]["connect"]:
                break
        else:
            pytest.fail("none was sent to the dead one first: each has an even chance")
        p2 = start(f"{addr},model=m")
        a = ask(p2)
        assert (a.status, a.code()) == (502, "upstream_failed")
    p.quiet()
    p2.quiet()


def matrix_script(c, r):
    how = r.get("X-How")
    if how == "rst":
        c.die()
    if how == "fin":
        c.sock.shutdown(socket.SHUT_WR)
        raise EOFError
    if how == "half_head":
        c.send(b"HTTP/1.1 200 O")
        c.die()
    if how == "mid_body":
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        c.die()
    if how in ("503", "429"):
        c.reply(b"busy", status=f"{how} No", fields="Retry-After: 7\r\n")
        return
    if how == "500":
        c.reply(b"broken", status="500 No")
        return
    c.reply()


@pytest.mark.parametrize("how, method, hits, status", [
    ("rst", "POST", 1, 502), ("fin", "POST", 1, 502), ("half_head", "POST", 1, 502),
    ("rst", "GET", 2, 502), ("half_head", "GET", 1, 502),
    ("503", "POST", 2, 503), ("429", "POST", 2, 429), ("500", "POST", 1, 500), ("500", "GET", 1, 500)])
def test_what_is_sent_twice(start, how, method, hits, status):
    ups = [start.up(matrix_script) for _ in range(3)]
    p = start(*ups)
    c = Client(p)
    if method == "POST":
        c.post(fields=[f"X-How: {how}"])
    else:
        c.get("/v1/x", fields=[f"X-How: {how}"])
    a = c.answer()
    assert a.status == status and sum(u.hits() for u in ups) == hits
    if how in ("503", "429"):
        assert a.body == b"busy" and a.get("Retry-After") == "7"    # the worker's own answer, unchanged
    if how == "500":
        assert a.body == b"broken"
    p.quiet()


def test_mid_body_death_is_never_repeated(start):
    ups = [start.up(matrix_script) for _ in range(2)]
    p = start(*ups)
    c = Client(p)
    c.get("/v1/x", fields=["X-How: mid_body"])
    with pytest.raises((EOFError, ConnectionResetError)):
        c.answer()
    assert sum(u.hits() for u in ups) == 1
    p.quiet()


def test_a_busy_worker_alone_is_passed_on_unchanged(start):
    u = start.up(matrix_script)
    p = start(u)
    a = ask(p, fields=["X-How: 429"])
    assert (a.status, a.body, u.hits()) == (429, b"busy", 1)
    p.quiet()


def test_a_reused_connection_that_died_is_tried_once_more(start):
    def script(c, r):
        if c.served == 1:
            c.reply()
        else:
            c.die()     # read, never answered: exactly the race of an idle connection closing
    u = start.up(script)
    p = start(u)
    c = Client(p)
    body = b'{"model":"m","p":"' + b"x" * (3 << 20) + b'"}'     # above what is kept for a retry
    for _ in range(3):      # all at once: no connection to the worker rests for so long that Weir closes it
        c.post()
    c.post(body)
    assert [c.answer().status for _ in range(3)] == [200] * 3
    a = c.answer()
    assert (a.status, a.code()) == (502, "upstream_failed")
    # first, then (second on it dies, again on a fresh one) twice, then the one that is not repeated
    assert u.hits() == 6 and p.stats()["retries"]["reused_connection"] == 2
    p.quiet()


def test_idle_connections_that_close_at_any_moment_cost_no_error(start):
    def script(c, r):
        c.reply()
        c.sock.close()
        raise EOFError
    u = start.up(script)
    p = start(u)
    c = Client(p)
    for _ in range(20):
        c.post()
        assert c.answer().status == 200
        u.gone.get(timeout=PATIENCE)
    p.quiet()


# ---- capacity --------------------------------------------------------------------------------------------------

def test_the_limit_is_never_passed_and_the_queue_is_served(start):
    now, peak, lock, go = [0], [0], threading.Lock(), threading.Semaphore(0)

    def script(c, r):
        with lock:
            now[0] += 1
            peak[0] = max(peak[0], now[0])
        assert go.acquire(timeout=PATIENCE)
        with lock:
            now[0] -= 1
        c.reply()
    u = start.up(script)
    p = start(f"{u.addr},model=m,limit=4")
    clients = [Client(p) for _ in range(40)]
    for c in clients:
        c.post()
    wait_until("36 to wait", lambda: p.stats()["waiting"] == 36)
    wait_until("four at work", lambda: now[0] == 4)
    for _ in range(40):
        go.release()
    assert [c.answer().status for c in clients] == [200] * 40
    assert peak[0] == 4
    p.quiet()


def held(start, *queue):
    """A proxy whose only endpoint is busy with one request until the event is set."""
    go = threading.Event()

    def script(c, r):
        go.wait(4 * PATIENCE)
        c.reply()
    u = start.up(script)
    p = start(f"{u.addr},model=m,limit=1", args=queue)
    first = Client(p)
    first.post()
    u.seen.get(timeout=PATIENCE)
    return go, u, p, first


def test_who_waits_too_long_is_told_why(start):
    go, u, p, first = held(start, "--queue", "2", "--queue-ms", "300")
    hasty, patient = Client(p), Client(p)
    hasty.post(fields=["X-Request-Timeout-Ms: 50"])
    patient.post()
    assert hasty.answer().code() == "deadline_exceeded"
    r = patient.answer()
    assert (r.status, r.code()) == (504, "queue_timeout")
    go.set()
    assert first.answer().status == 200
    assert u.hits() == 1        # those two were never sent
    p.quiet()


def test_queue_full_and_leaving(start):
    go, u, p, first = held(start, "--queue", "2", "--queue-ms", "600000")
    b = Client(p)
    b.post()
    wait_until("one to wait", lambda: p.stats()["waiting"] == 1)
    b.close()
    wait_until("nobody to wait", lambda: p.stats()["waiting"] == 0)
    waiting = [Client(p) for _ in range(2)]
    for w in waiting:
        w.post()
    wait_until("two to wait", lambda: p.stats()["waiting"] == 2)
    r = ask(p)
    assert (r.status, r.code()) == (429, "queue_full") and int(r.get("Retry-After")) >= 1
    go.set()
    assert first.answer().status == 200
    for w in waiting:
        assert w.answer().status == 200
    assert u.hits() == 3        # the one that left was never sent
    p.quiet()


def test_a_new_endpoint_serves_those_who_wait(start):
    go = threading.Event()

    def script(c, r):
        go.wait(4 * PATIENCE)
        c.reply()
    u, v = start.up(script), start.up()
    p = start(f"{u.addr},model=m,limit=1")
    a, b = Client(p), Client(p)
    a.post()
    u.seen.get(timeout=PATIENCE)
    b.post()
    wait_until("one to wait", lambda: p.stats()["waiting"] == 1)
    assert p.command(f"add {v.addr},model=m,limit=1") == "added"
    assert b.answer().status == 200 and v.hits() == 1
    go.set()
    assert a.answer().status == 200
    p.quiet()


def test_pools_that_share_an_endpoint_are_all_served(start):
    u, v = start.up(), start.up()
    p = start(f"{u.addr},model=a,model=b,model=c,limit=1", f"{v.addr},model=b,model=d,limit=1")
    bad = []

    def load(model):
        c = Client(p)
        for _ in range(40):
            c.post(b'{"model":"%s"}' % model)
            a = c.answer()
            if a.status != 200:
                bad.append((model, a.status))
        c.close()
    threads = [threading.Thread(target=load, args=(m,)) for m in (b"a", b"b", b"c", b"d") * 4]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert bad == [] and u.hits() + v.hits() == 640
    p.quiet()


def test_endpoints_come_and_go_under_load(start):
    """Snapshots are swapped and freed while requests run and wait: nothing is lost, nothing is left over."""
    ups = [start.up() for _ in range(4)]
    p = start(*[f"{u.addr},model=m,limit=2" for u in ups])
    stop, bad = threading.Event(), []

    def load():
        c = Client(p)
        while not stop.is_set():
            c.post()
            a = c.answer()
            if a.status != 200:
                bad.append((a.status, a.body))
        c.close()
    threads = [threading.Thread(target=load) for _ in range(12)]
    for t in threads:
        t.start()
    for i in range(500):
        u = ups[1 + i % 3]
        assert p.command(f"remove {u.addr}") == "removed"
        assert p.command(f"add {u.addr},model=m,limit={1 + i % 3}") == "added"
    stop.set()
    for t in threads:
        t.join()
    assert bad == []
    p.quiet()


def test_a_burst_is_spread_evenly_before_any_answer(start):
    go = threading.Event()

    def script(c, r):
        go.wait(4 * PATIENCE)
        c.reply()
    ups = [start.up(script) for _ in range(4)]
    p = start(*ups)
    clients = [Client(p) for _ in range(40)]
    for c in clients:
        c.post()
    for u in ups:
        for _ in range(10):
            u.seen.get(timeout=PATIENCE)
    assert [u.hits() for u in ups] == [10] * 4
    go.set()
    assert [c.answer().status for c in clients] == [200] * 40
    p.quiet()


def test_first_byte_timeout(start):
    def script(c, r):
        c.wait_gone()
        raise EOFError
    u = start.up(script)
    p = start(u, args=["--first-byte-ms", "200"])
    a = ask(p)
    assert (a.status, a.code()) == (504, "first_byte_timeout")
    u.gone.get(timeout=PATIENCE)
    p.quiet()


# ---- refusals --------------------------------------------------------------------------------------------------

def test_codes(start):
    u = start.up()
    p = start(f"{u.addr},model=m,memory=16,free=12", "127.0.0.1:1,model=gone")
    assert p.command("remove 127.0.0.1:1") == "removed"
    cases = [
        (dict(body=b'{"model":"nope"}'), 404, "model_not_found"),
        (dict(body=b'{"model":"gone"}'), 503, "no_endpoint"),
        (dict(path="/nowhere"), 404, "route_not_found"),
        (dict(fields=["X-Required-Memory: much"]), 400, "invalid_header"),
        (dict(fields=["X-Required-Memory: 17"]), 400, "exceeds_fleet_memory"),
        (dict(fields=["X-Weir-Hop: other, proxy-only"]), 421, "loop_detected"),
        (dict(fields=["X-Request-Timeout-Ms: soon"]), 400, "invalid_header"),
    ]
    for kw, status, code in cases:
        a = ask(p, **kw)
        assert (a.status, a.code()) == (status, code), kw
        assert set(json.loads(a.body)["error"]) == {"message", "type", "code", "param"}
        assert u.addr not in a.body.decode() and a.get("X-Request-Id")
        assert (a.get("Retry-After") is not None) == (status in (429, 503))
    assert u.hits() == 0
    # no model named: the only live one
    assert ask(p, b"{}").status == 200
    two = start(u, "127.0.0.1:1,model=n")
    a = ask(two, b"{}")
    assert (a.status, a.code()) == (400, "model_required")
    p.quiet()


def test_unknown_models_make_no_series(start):
    p = start(start.up())
    c = Client(p)
    c.post()
    assert c.answer().status == 200
    before = p.stats()["series"]
    for i in range(500):
        c.post(b'{"model":"m%d"}' % i)
        assert c.answer().status == 404
    assert p.stats()["series"] == before


BAD = {
    "cl_te": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "te_cl": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two_cl": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "plus": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
    "space": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nhello",
    "gzip": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "xchunked": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "fold": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "bare_lf": b"GET /v1/x HTTP/1.1\nHost: x\n\n",
    "nul": b"GET /v1/x HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
    "version": b"GET /v1/x HTTP/2.0\r\nHost: x\r\n\r\n",
    "bad_chunk": b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_framing_attacks_never_reach_a_worker(start, name):
    u = start.up()
    p = start(u)
    c = Client(p)
    c.send(BAD[name])
    a = c.answer()
    assert a.status in (400, 505) and a.get("Connection") == "close" and a.code() == "invalid_request"
    assert c.at_end() and len(u.conns) == 0
    p.quiet()


def test_large_heads(start):
    u = start.up()
    p = start(u)
    a = ask(p, fields=[f"X-{i}: 1" for i in range(95)] + ["X-Big: " + "y" * 40000])
    assert a.status == 200 and u.requests[0].get("X-Big") == "y" * 40000
    for fields in ([f"X-{i}: 1" for i in range(101)], ["X-Big: " + "y" * 70000]):
        c = Client(p)
        c.post(fields=fields)
        a = c.answer()
        assert (a.status, a.code()) == (431, "headers_too_large") and c.at_end()


def test_slow_heads_and_bodies_end(start):
    p = start(start.up(), args=["--header-ms", "100", "--body-ms", "100"])
    c = Client(p)
    c.send(b"POST /v1/x HTTP/1.1\r\n")
    assert c.answer().code() == "request_timeout"
    c = Client(p)
    c.send(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
    assert c.answer().code() == "request_timeout"
    # A proxy of its own: with such an idle limit a client that is slow to speak is closed before it does.
    assert Client(start(start.up(), args=["--idle-ms", "100"])).at_end()
    p.quiet()


def test_ids_are_checked_and_the_log_stays_one_line_each(start, tmp_path):
    log = tmp_path / "access.jsonl"
    u = start.up()
    p = start(u, args=["--access", str(log)])
    bad = ["a b", "x" * 200, 'q"uote', "a\tb", "é"]
    for b in bad:
        a = ask(p, fields=[f"X-Request-Id: {b}", "Authorization: Bearer canary", "traceparent: 00-zz-xx-01"],
                path="/v1/x?key=canary")
        got = a.get("X-Request-Id")
        assert len(got) == 32 and int(got, 16) >= 0 and u.requests[-1].get("X-Request-Id") == got
        assert u.requests[-1].get("traceparent").startswith("00-") and "zz" not in u.requests[-1].get("traceparent")
    assert ask(p, fields=["X-Request-Id: \x1b[31m"]).status == 400
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ask(p, fields=[f"traceparent: {good}"])
    assert u.requests[-1].all("traceparent") == [good]
    p.quiet()
    p.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(lines) == len(bad) + 1 and "canary" not in log.read_text()
    # Each lane writes its own lines: those of different connections come in any order.
    told = [(r["status"], r["model"], r["endpoint"], r["outcome"]) for r in lines if r["path"] == "/v1/x"]
    assert told == [(200, "m", u.addr, "ok")] * len(bad)


def test_own_paths(start):
    p = start(start.up())
    c = Client(p)
    c.get("/health")
    assert c.answer().body == b'{"status":"ok"}'
    c.get("/readiness")
    assert c.answer().status == 200
    c.get("/v1/models")
    models = json.loads(c.answer().body)
    assert models["object"] == "list" and [(m["id"], m["object"]) for m in models["data"]] == [("m", "model")]
    c.get("/v1/models/m")
    assert json.loads(c.answer().body)["id"] == "m"
    c.get("/v1/models/x")
    assert c.answer().code() == "model_not_found"
    c.get("/metrics")
    assert c.answer().code() == "route_not_found"
    q = start("127.0.0.1:1,model=m")
    assert q.command("remove 127.0.0.1:1") == "removed"
    c = Client(q)
    c.get("/readiness")
    assert c.answer().status == 503


# ---- drain -----------------------------------------------------------------------------------------------------

def test_drain_lets_streams_end_and_answers_on_open_connections(start):
    go = threading.Event()

    def script(c, r):
        if b"long" in r.body:
            c.start_stream()
            c.chunk(b"data: 1\n\n")
            go.wait(4 * PATIENCE)
            c.end_stream()
        else:
            c.reply()
    u = start.up(script)
    p = start(u)
    stream, idle = Client(p), Client(p)
    idle.post()
    assert idle.answer().status == 200
    stream.post(b'{"model":"m","x":"long"}')
    stream.reader.until(b"data: 1\n\n")
    assert p.command("drain 3600000") == "draining"

    def refused():
        try:
            Client(p).close()
            return False
        except ConnectionResetError:        # it was in the backlog of the socket that was closed
            return False
        except ConnectionRefusedError:
            return True
    wait_until("new connections to be refused", refused)
    idle.post()
    a = idle.answer()
    assert a.status == 200 and a.get("Connection") == "close" and idle.at_end()
    go.set()
    assert stream.reader.until(b"0\r\n\r\n").endswith(b"0\r\n\r\n")
    assert p.p.wait(PATIENCE) == 0


def test_drain_at_its_deadline_cuts_visibly(start):
    def script(c, r):
        c.start_stream()
        c.chunk(b"data: 1\n\n")
        c.wait_gone()
        raise EOFError
    u = start.up(script)
    p = start(u)
    c = Client(p)
    c.post()
    c.reader.until(b"data: 1\n\n")
    assert p.command("drain 100") == "draining"
    with pytest.raises((EOFError, ConnectionResetError)):
        c.reader.until(b"0\r\n\r\n")
    assert p.p.wait(PATIENCE) == 0
