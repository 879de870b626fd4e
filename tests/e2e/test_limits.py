# SPDX-License-Identifier: Apache-2.0
"""Limits of time and size, each from the config: what is cut, what the other side sees, and what goes on untouched.
Field reports A12, F1, G1 among others."""
import os
import re
import signal
import threading
import time

import pytest

import weir_harness as h


def resident_kb(weir):
    with open(f"/proc/{weir.pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def drip(c, data, until):
    """Send byte by byte, with pauses, until the peer has had enough or `until` bytes are out."""
    for i in range(until):
        try:
            c.send(data)
        except OSError:
            return i
        if select_readable(c):
            return i
        time.sleep(0.005)
    return until


def select_readable(c):
    import select
    return bool(select.select([c.sock], [], [], 0)[0])


def swallow(wire, n):
    """Read n bytes past the wire's own buffer, keeping none; how many are missing at the end of the stream."""
    while n:
        got = wire.sock.recv(min(n, 1 << 20))
        if not got:
            break
        n -= len(got)
    return n


# requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_heads_have_a_count_and_a_size(start_weir, upstream):
    weir = start_weir({"limits": {"header_count": 12, "headers": "4KiB"}})
    up = upstream(name="u")
    weir.register(up)
    own = 2                             # Host and Content-Length
    for n, status in ((12 - own, 200), (13 - own, 431)):
        c = h.RawClient(weir.data)
        c.send("POST /v1/x HTTP/1.1\r\nHost: x\r\n" + "".join(f"X-{i}: 1\r\n" for i in range(n)) +
               'Content-Length: 13\r\n\r\n{"model":"m"}')
        assert c.response().status == status
        c.close()
    frame = 'POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\nX-Pad: %s\r\n\r\n'
    for size, status in ((4096, 200), (4097, 431)):
        c = h.RawClient(weir.data)
        c.send(frame % ("y" * (size - len(frame) + 2)) + '{"model":"m"}')
        assert c.response().status == status
        c.close()
    assert up.hits() == 2


@pytest.mark.sanitize
def test_a_head_that_never_falls_silent_ends_all_the_same(start_weir, upstream):
    """Slowloris: the whole head has header_read, not each of its bytes."""
    weir = start_weir({"limits": {"header_read": "300ms"}})
    weir.register(upstream(name="u"))
    c = h.RawClient(weir.data)
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    assert drip(c, b"a", 100_000) < 100_000
    assert c.response().error() == (408, "request_timeout")
    c.close()


@pytest.mark.sanitize
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_only_dribbles_ends(start_weir, upstream, chunked):
    """Never silent, and never done: 200 bytes a second at most where 2000 are asked for."""
    weir = start_weir({"limits": {"body_read": "400ms", "body_rate": 2000}})
    up = upstream(name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
           ("Transfer-Encoding: chunked\r\n\r\n" if chunked else "Content-Length: 1000000\r\n\r\n"))
    assert drip(c, b"1\r\n \r\n" if chunked else b" ", 100_000) < 100_000
    assert c.response().error() == (408, "request_timeout")
    c.close()
    assert up.hits() == 0


@pytest.mark.long
def test_a_body_that_is_held_back_for_the_worker_is_not_slow(start_weir, upstream):
    """The worker takes nothing for longer than body_read; the client is not blamed."""
    go = threading.Event()

    def late(conn, _):
        request = conn.read_head()
        while request is not None and request.method == "GET":
            conn.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
            request = conn.read_head()
        if request is None:
            return
        asked.set()
        assert go.wait(4 * h.PATIENCE)
        assert swallow(conn, len(body) - len(conn.buf)) == 0
        conn.respond(200, "{}")

    asked = threading.Event()
    weir = start_weir({"limits": {"peek_max": "1MiB", "body_read": "15s", "body_rate": "1MiB"}})
    weir.register(upstream(late, name="u", raw=True))
    body = b'{"model":"m","p":"' + b"x" * 12_000_000 + b'"}'
    c = h.RawClient(weir.data)
    c.sock.settimeout(4 * h.PATIENCE)
    sender = threading.Thread(target=c.send, args=(
        b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),))
    sender.start()
    assert asked.wait(h.PATIENCE)
    time.sleep(32)                      # longer than twice body_read
    go.set()
    assert c.response().status == 200
    sender.join()
    c.close()


# answers ----------------------------------------------------------------------------------------------------------


def endless(conn, request):
    conn.start_stream()
    while True:
        conn.sse_event({"t": "x" * 1000})


def cut_visibly(c):
    """Read to the end, which is none."""
    with pytest.raises(EOFError):
        c.body()
    assert b"[DONE]" not in c.received[-100:] and not c.received.endswith(b"0\r\n\r\n")
    c.close()


@pytest.mark.sanitize
@pytest.mark.parametrize("limit, outcome", [({"stream_time": "300ms"}, "timeout"), ({"stream_size": "1MB"}, "rejected")])
def test_a_stream_without_end_is_cut_where_the_config_says(start_weir, upstream, limit, outcome):
    weir = start_weir({"limits": limit})
    up = upstream(endless, name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200
    cut_visibly(c)
    if "stream_size" in limit:
        assert len(c.received) < 1_100_000 + 65536     # the reset may cost it some of what was sent
        weir.wait_line("endpoint=u sent more than limits.stream_size")
    up.wait_idle()                      # its connection was closed
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", outcome=outcome) == 1, "it to be counted")
    # What ends before is untouched.
    up.behaviour = h.answer_at_once
    assert weir.chat().status == 200


@pytest.mark.sanitize
def test_silence_is_bounded_by_its_own_limits_only(start_weir, upstream):
    """F1, A12 scaled: all that is not about silence of the worker is short, and a long silence does no harm."""
    short = "300ms"

    def silent(conn, request):
        time.sleep(0.7)                 # the silence under test; longer is the same
        if request.asks("stream"):
            conn.start_stream()
            conn.sse_event({"n": 1})
            time.sleep(0.7)
            conn.end_stream()
        else:
            conn.answer(request)

    weir = start_weir({"limits": {"idle": short, "header_read": short, "body_read": short},
                       "routes": [{"timeouts": {"connect": short}, "queue": {"timeout": short}}]})
    up = upstream(silent, name="u")
    weir.register(up)
    clients = []
    with weir.frozen():                 # each asks as soon as it has come: `idle` is short, and they may be slow
        for i in range(6):
            clients.append(h.RawClient(weir.data))
            clients[i].request(body={"model": "m", "stream": i % 2 == 0})
    for c in clients:
        assert c.response().status == 200
        c.close()
    assert up.hits() == 6


@pytest.mark.sanitize
def test_first_byte_and_between_bytes_are_apart(start_weir, upstream):
    def silent(conn, request):
        if not request.asks("stream"):
            h.answer_at_once(conn, request)
            return
        time.sleep(0.9)                 # three times between_bytes, before the first byte
        event = b'data: {"n": 1}\n\n'     # with the head, not some time after it
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                  b"%x\r\n%s\r\n" % (len(event), event))
        conn.wait_closed()
        gone.set()

    gone = threading.Event()
    weir = start_weir({"routes": [{"timeouts": {"between_bytes": "300ms"}}]}, args=["--threads", "1"])
    weir.register(upstream(silent, name="u"))
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200 and c.event() == '{"n": 1}'
    cut_visibly(c)
    # What would still come there is nobody else's answer.
    assert weir.chat().status == 200
    assert gone.wait(h.PATIENCE)
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", outcome="timeout") == 1, "it to be counted")


@pytest.mark.long
@pytest.mark.parametrize("seconds", [6, 30, 61])
def test_f1_answers_after_a_long_silence(start_weir, upstream, seconds):
    """With the defaults; 130 s and 301 s are in test_long.py."""
    weir = start_weir(plain=True)

    def late(conn, request):
        time.sleep(seconds)
        conn.answer(request)

    weir.register(upstream(late, name="u"))
    c = h.RawClient(weir.data)
    c.sock.settimeout(seconds + 60 * h.SLOW)
    c.request(body={"model": "m"})
    assert c.response().status == 200
    c.close()


# slow readers, slow workers ---------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_g1_readers_that_never_read_hold_little_and_harm_nobody(weir, upstream):
    """20 times 50 MB that nobody takes: the worker is held back, others are served, what is resident hardly grows."""
    sent = [0] * 20

    def large(conn, request):
        if request.asks("n") is None:
            h.answer_at_once(conn, request)
            return
        conn.sock.settimeout(None)      # it is held back for as long as the test lasts
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(50):
            conn.send(b"x" * 1_000_000)
            sent[request.asks("n")] += 1

    up = upstream(large, name="u")
    weir.register(up)
    assert weir.chat().status == 200
    before = resident_kb(weir)
    readers = [h.RawClient(weir.data, rcvbuf=16384) for _ in range(20)]
    for i, c in enumerate(readers):
        c.request(body={"model": "m", "n": i})
    seen = [None]

    def held_back():
        now, seen[0] = (list(sent), weir.metrics().sum("weir_buffered_bytes")), seen[0]
        same, seen[0] = now == seen[0], now
        time.sleep(0.1)
        return same and up.active == 20
    h.wait_until(held_back, "all to be held back")
    assert max(sent) < 50
    for _ in range(100):
        assert weir.chat().status == 200
    assert weir.metrics().sum("weir_buffered_bytes") < 20 << 20
    if h.SLOW == 1:
        assert resident_kb(weir) - before < 20 * 1024       # a megabyte for each
    # A reader that takes up again gets all of it.
    readers[0].until(b"\r\n\r\n")
    assert swallow(readers[0], 50_000_000 - len(readers[0].buf)) == 0
    for c in readers:
        c.rst()
    h.wait_until(lambda: weir.inflight() == 0 and weir.metrics().sum("weir_buffered_bytes") == 0, "all to be gone")


@pytest.mark.sanitize
def test_g1_a_large_upload_to_a_slow_worker_is_not_gathered(start_weir, upstream):
    """100 MB that the worker takes in pieces: Weir holds what it may look at, and the client waits."""
    total = 100_000_000
    peak = [0]

    def slow(conn, _):
        request = conn.read_head()
        while request is not None and request.method == "GET":
            conn.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
            request = conn.read_head()
        if request is None:
            return
        left = total - len(conn.buf)
        while left:
            piece = min(left, 5_000_000)
            left -= piece
            assert swallow(conn, piece) == 0
            peak[0] = max(peak[0], weir.metrics_now())
        conn.respond(200, "{}")

    weir = start_weir({"limits": {"peek_max": "1MiB"}})
    admin = h.Http(weir.admin)
    weir.metrics_now = lambda: h.Metrics(admin("GET", "/metrics").body.decode()).sum("weir_buffered_bytes")
    weir.register(upstream(slow, name="u", raw=True))
    before = resident_kb(weir)
    c = h.RawClient(weir.data)
    c.send(f"POST /v1/x HTTP/1.1\r\nHost: x\r\nX-Model-Id: m\r\nContent-Length: {total}\r\n\r\n")
    for _ in range(total // 1_000_000):
        c.send(b" " * 1_000_000)
    assert c.response().status == 200
    assert peak[0] < 4 << 20
    if h.SLOW == 1:
        assert resident_kb(weir) - before < 16 * 1024
    c.close()
    admin.close()


# the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_n1_the_grace_of_a_drain_is_configured_and_what_is_left_is_cut_visibly(start_weir, upstream):
    weir = start_weir({"limits": {"drain": "300ms"}})
    up = upstream(lambda conn, request: (conn.start_stream(), conn.sse_event({"n": 1}), conn.wait_closed()), name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200 and c.event() == '{"n": 1}'
    weir.kill(signal.SIGTERM)
    weir.wait_line("draining for at most 0.3 s")
    cut_visibly(c)
    assert weir.wait() == 0
    up.wait_idle()


@pytest.mark.sanitize
def test_n1_n3_a_drain_with_time_enough_loses_nothing(start_weir, upstream):
    """A stream goes on, an open connection is served once more and told to close, readiness says no, new connections are
    refused, and the process ends with the last stream."""
    step = threading.Semaphore(0)

    def stream(conn, request):
        if not request.asks("stream"):
            h.answer_at_once(conn, request)
            return
        conn.start_stream()
        for i in range(10):
            assert step.acquire(timeout=4 * h.PATIENCE)
            conn.sse_event({"n": i})
        conn.end_stream()

    weir = start_weir({"limits": {"drain": "10m"}})
    weir.register(upstream(stream, name="u"))
    c, kept, probe = (h.RawClient(weir.data) for _ in range(3))
    c.request(body={"model": "m", "stream": True})
    step.release()
    assert c.head()[0] == 200 and c.event() == '{"n": 0}'
    for k in (kept, probe):
        k.request(body={"model": "m"})
        assert k.response().header("Connection") is None
    weir.kill(signal.SIGTERM)

    def refused():
        try:
            h.RawClient(weir.data).close()
            return False
        except OSError:
            return True
    h.wait_until(refused, "new connections to be refused")
    probe.request("GET", "/readiness")
    r = probe.response()
    assert r.status == 503 and r.header("Connection") == "close"
    kept.request(body={"model": "m"})
    r = kept.response()
    assert r.status == 200 and r.header("Connection") == "close"
    kept.wait_closed()
    assert not kept.was_reset
    for i in range(1, 10):
        step.release()
        assert c.event() == f'{{"n": {i}}}'
    assert c.event() == "[DONE]" and c.event() is None
    for k in (c, kept, probe):
        k.close()
    assert weir.wait() == 0


def test_o5_no_core_is_written(keeper, upstream, tmp_path):
    """Prompts and keys are in memory: a crash leaves no copy of it on the disk, whatever the limits were."""
    weir = keeper.add(h.Process(["bash", "-c", f"ulimit -c unlimited 2>/dev/null; cd '{tmp_path}' && exec '{h.BIN}' serve "
                                 "--host 127.0.0.1 --port 0 --admin-port 0 --registry-port 0 "
                                 f"--worker-urls {upstream(name='u').url}"]))
    data = h.address(weir.ready()["data"])
    with open(f"/proc/{weir.pid}/limits", encoding="ascii") as f:
        assert re.search(r"Max core file size +0 ", f.read())
    http = h.Http(data)
    http("POST", "/v1/chat/completions", {"model": "m", "prompt": "MaRkEr-55"}, {"Authorization": "Bearer MaRkEr-55"})
    http.close()
    weir.kill(signal.SIGABRT)
    assert weir.wait() in (-signal.SIGABRT, 134)
    weir.killed = True
    assert os.listdir(tmp_path) == []
    assert "MaRkEr" not in weir.output
