# SPDX-License-Identifier: Apache-2.0
"""Delivery of streams and what happens when somebody leaves (field reports A and B; docs/testing.md has the table)."""
import contextlib
import ctypes
import errno
import hashlib
import json
import os
import socket
import struct
import threading

import pytest

import weir_harness as h


def sse(weir, c, **kw):
    c.request(body={"model": "m", "stream": True, **kw})
    status, fields = c.head()
    assert status == 200
    return fields


def gone(weir, n=1):
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", outcome="client_gone") == n, f"{n} to be counted")
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")


# A: delivery ----------------------------------------------------------------------------------------------------------


def test_a1_fields_of_a_stream_arrive_once_and_unchanged(weir, upstream, client):
    def work(conn, request):
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
                  "X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n")
        conn.end_stream()

    weir.register(upstream(work))
    fields = [(k.lower(), v) for k, v in sse(weir, client(weir))]
    for want in (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"),
                 ("x-accel-buffering", "no"), ("transfer-encoding", "chunked")):
        assert [f for f in fields if f[0] == want[0]] == [want]
    assert not [f for f in fields if f[0] == "content-length"]


@pytest.mark.parametrize("total", [15 << 10, 16 << 10, 17 << 10, 64 << 10])
def test_a2_the_first_event_does_not_wait_for_more(weir, upstream, client, total):
    first = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    go = threading.Semaphore(0)

    def work(conn, request):
        conn.start_stream()
        conn.send_chunk(first)
        assert go.acquire(timeout=h.PATIENCE)
        conn.send_chunk(b"d" * (total - len(first)))
        assert go.acquire(timeout=h.PATIENCE)
        conn.end_stream(done=False)

    weir.register(upstream(work))
    c = client(weir)
    sse(weir, c)
    assert c.chunk() == first           # while the worker is silent
    go.release()
    n = len(first)
    while n < total:                    # likewise the rest, to its last byte
        n += len(c.chunk())
    assert n == total
    go.release()
    assert c.chunk() == b""


@pytest.mark.sanitize
@pytest.mark.race
def test_a3_events_of_many_streams_pass_one_by_one(weir, upstream):
    """On each of 50 streams an event is seen before the next one is sent."""
    streams = {}

    def work(conn, request):
        go = streams.setdefault(request.asks("n"), threading.Semaphore(0))
        conn.start_stream()
        for i in range(10):
            assert go.acquire(timeout=4 * h.PATIENCE)
            conn.sse_event({"i": i})
        assert go.acquire(timeout=4 * h.PATIENCE)
        conn.end_stream()

    weir.register(upstream(work))
    clients = [h.RawClient(weir.data) for _ in range(50)]
    for n, c in enumerate(clients):
        sse(weir, c, n=n)
    for i in range(10):
        for n in range(50):
            streams[n].release()
        for c in clients:
            assert c.chunk() == b'data: {"i": %d}\n\n' % i
    for n, c in enumerate(clients):
        streams[n].release()
        assert (c.event(), c.event()) == ("[DONE]", None)
        c.close()


def sockets_of(pid):
    """Copies of the sockets that a process of ours has open."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    fd = libc.syscall(438, pidfd, int(name), 0)     # pidfd_getfd
                    if fd < 0 and ctypes.get_errno() == errno.EBADF:
                        continue                                    # closed since
                    if fd < 0:
                        pytest.skip(f"pidfd_getfd: {os.strerror(ctypes.get_errno())}")
                    yield socket.socket(fileno=fd)
    finally:
        os.close(pidfd)


def test_a4_both_legs_send_small_pieces_at_once(weir, upstream, client):
    go = threading.Event()

    def work(conn, request):
        conn.start_stream()
        conn.sse_event({"n": 1})
        assert go.wait(h.PATIENCE)
        conn.end_stream()

    up = upstream(work)
    weir.register(up)
    c = client(weir)
    sse(weir, c)
    c.event()
    ends = {"client": c.sock.getsockname()[1], "worker": up.port}
    seen = set()
    for s in sockets_of(weir.pid):
        with s:
            with contextlib.suppress(OSError):
                peer = s.getpeername()
                for leg, want in ends.items():
                    if s.family == socket.AF_INET and peer[1] == want and s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY):
                        seen.add(leg)
    assert seen == {"client", "worker"}
    go.set()
    assert (c.event(), c.event()) == ("[DONE]", None)


def test_a5_the_last_chunk_ends_it_though_the_worker_keeps_the_connection(weir, upstream, client):
    used = set()                            # connections; those of checks are others

    def work(conn, request):
        used.add(conn)
        h.answer_at_once(conn, request)

    weir.register(upstream(work))
    c = client(weir)
    for _ in range(5):                      # all at once: Weir closes a connection that rests for seconds
        c.request(body={"model": "m", "stream": True})
    for _ in range(5):
        assert c.head()[0] == 200
        while c.event() is not None:
            pass
    assert len(used) == 1                   # it went back to the pool each time


@pytest.mark.sanitize
def test_a7_a_stream_through_two_gateways_has_one_framing(start_weir, upstream):
    def work(conn, request):
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
                  "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n")
        for i in range(20):
            conn.sse_event({"i": i})
        conn.end_stream()

    inner, outer = start_weir(), start_weir()
    inner.register(upstream(work, name="u"))
    inner.name = "inner"
    outer.register(inner)
    c = h.RawClient(outer.data)
    fields = [(k.lower(), v) for k, v in sse(outer, c)]
    assert [f for f in fields if f[0] in ("transfer-encoding", "content-length")] == [("transfer-encoding", "chunked")]
    assert not [f for f in fields if f[0] in ("keep-alive", "connection")]
    assert [json.loads(c.event())["i"] for _ in range(20)] == list(range(20))
    assert (c.event(), c.event()) == ("[DONE]", None)
    c.close()


@pytest.mark.sanitize
def test_a9_characters_sent_byte_by_byte_are_not_touched(weir, upstream, client):
    text = ('data: {"choices":[{"delta":{"content":"\u4e2d\u6587\U0001f600\u0628\\"usage\\":{"}}]}\n\n' * 3
            + 'data: {"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\ndata: [DONE]\n\n').encode()

    def work(conn, request):
        conn.start_stream()
        for b in text:
            conn.send_chunk(bytes([b]))
        conn.send("0\r\n\r\n")

    weir.register(upstream(work))
    c = client(weir)
    sse(weir, c)
    assert hashlib.sha256(c.body()).digest() == hashlib.sha256(text).digest()
    h.wait_until(lambda: weir.metrics().sum("gen_ai_client_token_usage_sum", gen_ai_token_type="input") == 3, "the count")
    h.wait_until(lambda: weir.metrics().sum("gen_ai_client_token_usage_sum", gen_ai_token_type="output") == 4, "the other")


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_a11_an_error_before_the_stream_stays_an_error(weir, upstream, client, status):
    body = json.dumps({"error": {"message": "mine", "type": "t", "code": "c", "param": None}}).encode()
    up = upstream(lambda c, r: c.respond(status, body, [("Content-Type", "application/problem+json")], "Mine"))
    weir.register(up)
    c = client(weir)
    c.request(body={"model": "m", "stream": True})
    r = c.response()
    assert (r.status, r.body, r.header("Content-Type")) == (status, body, "application/problem+json")
    assert up.hits() == 1


@pytest.mark.parametrize("how", ["length", "chunked", "close", "gzip", "json for a stream"])
def test_h10_the_framing_always_fits_the_body(weir, upstream, client, how):
    import gzip
    plain = b'{"ok":"' + b"x" * 5000 + b'"}'
    packed = gzip.compress(plain)

    def work(conn, request):
        if how == "chunked":
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            conn.send_chunk(plain[:1000])
            conn.send_chunk(plain[1000:])
            conn.send("0\r\n\r\n")
        elif how == "close":
            conn.send(b"HTTP/1.1 200 OK\r\n\r\n" + plain)
            conn.hang_up()
        elif how == "gzip":
            conn.respond(200, packed, [("Content-Encoding", "gzip")])
        else:
            conn.respond(200, plain, [("Content-Type", "application/json")])

    weir.register(upstream(work))
    for version in ("HTTP/1.1", "HTTP/1.0"):
        c = client(weir)
        for _ in range(2 if version == "HTTP/1.1" else 1):      # and the next answer begins where it should
            c.request(body={"model": "m", "stream": how == "json for a stream"}, version=version)
            _, fields = c.head()
            low = [k.lower() for k, _ in fields]
            assert low.count("content-length") + low.count("transfer-encoding") == \
                (0 if version == "HTTP/1.0" and how in ("chunked", "close") else 1)
            assert c.body() == (packed if how == "gzip" else plain)


# B: the client leaves -------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_b1_while_a_connection_to_the_worker_is_being_made(start_weir, client):
    """A listener whose backlog is full: the connection hangs in the kernel until the client leaves."""
    weir = start_weir({"health": {"interval": "1h"}, "routes": [{"timeouts": {"connect": "5m"}}]})
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        blocker = socket.create_connection(full.getsockname(), h.PATIENCE)

        class Full:
            name, url = "full", "http://127.0.0.1:%d" % full.getsockname()[1]

        def is_full():
            waiting, most = struct.unpack_from("II", full.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 24)
            return waiting > most       # tcpi_unacked and tcpi_sacked of a listener

        h.wait_until(is_full, "the backlog to be full")
        weir.register(Full, wait=False)
        h.wait_until(lambda: weir.up(Full) is not None, "it to be known")
        c = client(weir)
        c.request(body={"model": "m"})
        h.wait_until(lambda: weir.inflight() == 1, "the request to have an endpoint")
        c.close()
        gone(weir)
        blocker.close()


@pytest.mark.sanitize
@pytest.mark.parametrize("leave", [h.RawClient.close, h.RawClient.rst])
def test_b3_a_worker_that_is_sending_is_not_left_blocked(weir, upstream, client, leave):
    cut = threading.Event()

    def work(conn, request):
        conn.start_stream()
        try:
            while True:
                conn.send_chunk(b"x" * 100_000)
        except OSError:
            cut.set()
            raise

    weir.register(upstream(work))
    c = client(weir)
    sse(weir, c)
    c.exactly(10_000)
    leave(c)
    assert cut.wait(h.PATIENCE), "the worker still sends"
    gone(weir)


@pytest.mark.sanitize
@pytest.mark.race
@pytest.mark.parametrize("stream", [True, False])
def test_b5_eight_at_once_are_eight_cancelled(weir, upstream, stream):
    ended, completed = threading.Semaphore(0), []

    def work(conn, request):
        if stream:
            conn.start_stream()
            conn.sse_event({"n": 1})
        conn.sock.settimeout(None)
        conn.wait_closed()
        ended.release()
        raise EOFError

    up = upstream(work)
    weir.register(up)
    clients = [h.RawClient(weir.data) for _ in range(8)]
    for c in clients:
        c.request(body={"model": "m", "stream": stream})
    up.wait_hits(8)
    for c in clients if stream else ():     # the worker has sent what it sends, and waits
        assert (c.head()[0], c.event()) == (200, '{"n": 1}')
    assert weir.inflight() == 8
    for c in clients:
        c.close()
    for _ in range(8):
        assert ended.acquire(timeout=h.PATIENCE)
    gone(weir, 8)
    assert completed == [] and weir.metrics().sum("weir_requests_total", outcome="ok") == 0


@pytest.mark.sanitize
def test_b6_who_left_the_queue_is_never_sent(weir, upstream):
    gate, opened = h.gate()
    up = upstream(gate)
    weir.register(up, max_concurrency=1)
    clients = {}
    for n, name in enumerate("abc"):
        clients[name] = h.RawClient(weir.data)
        clients[name].request(body={"model": "m", "who": name})
        h.wait_until(lambda n=n: (up.hits(), weir.metrics().sum("weir_queue_length", model="m")) == (1, n), "its turn")
    clients["b"].close()
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length", model="m") == 1, "the queue to be shorter at once")
    assert up.hits() == 1
    opened.set()
    assert clients["a"].response().status == clients["c"].response().status == 200
    assert [r.asks("who") for r in up.requests] == ["a", "c"]
    for c in clients.values():
        c.close()


@pytest.mark.sanitize
@pytest.mark.parametrize("notice", ["reset", "next write"])
def test_b2_half_close_keep_notices_who_is_really_gone(start_weir, upstream, client, notice):
    """A FIN alone is no reason there; a reset is, and so is an event that the client's system refuses."""
    go, cut = threading.Event(), threading.Event()

    def work(conn, request):
        conn.start_stream()
        conn.sse_event({"n": 1})
        assert go.wait(4 * h.PATIENCE)
        try:
            while notice == "next write":
                conn.sse_event({"n": 2})
            conn.sock.settimeout(None)
            conn.wait_closed()
        except OSError:
            pass
        cut.set()
        conn.hang_up()

    weir = start_weir({"routes": [{"half_close": "keep"}]})
    weir.register(upstream(work))
    c = client(weir)
    sse(weir, c)
    c.event()
    c.half_close()
    for _ in range(20):
        assert weir.inflight() == 1         # it is still served
    go.set()
    c.rst() if notice == "reset" else c.close()
    assert cut.wait(h.PATIENCE)
    gone(weir)


@pytest.mark.sanitize
@pytest.mark.parametrize("what", ["two requests", "a body that has to wait"])
def test_b2_half_close_keep_loses_nothing_that_is_unread_when_the_end_is_there(start_weir, upstream, client, what):
    """Whatever the client sent before its FIN counts, also when Weir had stopped to read: it is there all at once."""
    gate, opened = h.gate()
    up = upstream(gate, name="u")
    weir = start_weir({"threads": 1, "limits": {"peek_max": "64KiB"}, "routes": [{"half_close": "keep"}]})
    weir.register(up, max_concurrency=1)
    if what == "two requests":
        sizes = [1, 1]
        c = first = client(weir)
    else:
        sizes = [300 << 10]                 # more than is taken for a request that waits for its turn
        first, c = client(weir), client(weir)
        first.request(body={"model": "m", "text": "x"})
        up.wait_hits(1)
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with weir.frozen():
        for size in sizes:
            c.request(body={"model": "m", "text": "x" * size})
        c.half_close()
    if first is not c:
        h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 1, "it to wait")
        assert all(weir.metrics().sum("weir_queue_length") == 1 for _ in range(20))
    opened.set()
    assert [c.response().status for _ in sizes] == [200] * len(sizes)
    assert (c.rest(), c.was_reset) == (b"", False)
    if first is not c:
        assert first.response().status == 200
    assert [len(r.json()["text"]) for r in up.requests][-len(sizes):] == sizes
    assert weir.metrics().sum("weir_requests_total", outcome="client_gone") == 0
