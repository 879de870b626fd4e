# SPDX-License-Identifier: Apache-2.0
"""WebSocket and other upgrades (field report P1): who may switch, what passes, how it ends, how it is counted."""
import contextlib
import hashlib
import json
import os
import random
import socket
import threading

import pytest

import weir_harness as h

websockets = pytest.importorskip("websockets")
from websockets.sync import client as ws_client     # noqa: E402
from websockets.sync import server as ws_server     # noqa: E402

# Handshakes, pings and closes have seconds by default.
PATIENT = {"open_timeout": 4 * h.PATIENCE, "close_timeout": 4 * h.PATIENCE, "ping_interval": None, "max_size": None,
           "compression": None}

REQUEST = "GET /v1/realtime?model=%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"


def ask(c, model="m", protocol="echo", more=""):
    c.send(REQUEST % (model, protocol, more))


def switched(c, **kw):
    ask(c, **kw)
    status, fields = c.head()
    assert status == 101
    return {k.lower(): v for k, v in fields}


def echo(conn, request):
    """Switches, and sends back what comes until it ends."""
    assert request.header("upgrade") == "echo"
    conn.sock.settimeout(None)
    conn.send(SWITCH)
    while conn.buf or conn.fill():
        data, conn.buf, conn.received = conn.buf, b"", b""
        conn.send(data)
    conn.hang_up()


def outcomes(weir, **want):
    got = {o: weir.metrics().sum("weir_requests_total", outcome=o) for o in want}
    h.wait_until(lambda: {o: weir.metrics().sum("weir_requests_total", outcome=o) for o in want} == want, f"{want}, not {got}")
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
    h.wait_until(lambda: weir.metrics().sum("weir_sockets") == 0, "no socket to be counted")
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") == 0, "nothing to be held")


# a real client and a real server -------------------------------------------------------------------------------------


@contextlib.contextmanager
def websocket_server(name, seen):
    """Echoes messages; tells its name in the first one. Answers Weir's checks as any server would."""
    def handler(ws):
        seen.append(ws.request)
        ws.send(name)
        for message in ws:
            ws.send(message)

    def checks(ws, request):
        return None if request.path.startswith("/v1/realtime") else ws.respond(200, "")

    with ws_server.serve(handler, "127.0.0.1", 0, process_request=checks, **PATIENT) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.url, server.name = "http://127.0.0.1:%d" % server.socket.getsockname()[1], name
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.sanitize
@pytest.mark.race
def test_p1_a_websocket_goes_to_the_model_in_its_query(start_weir, tmp_path):
    log = tmp_path / "access.jsonl"
    weir = start_weir({"logging": {"access": f"file:{log}"}, "models": {"gpt-x": {"aliases": ["gpt alias"]}}})
    seen = []
    with websocket_server("sx", seen) as x, websocket_server("sy", seen) as y:
        weir.register(x, models=("gpt-x",))
        weir.register(y, models=("y",))
        url = "ws://%s:%d/v1/realtime?intent=a&model=" % weir.data
        with ws_client.connect(url + "gpt-x", **PATIENT) as ws:
            assert ws.recv() == "sx"
            assert weir.metrics().value("weir_inflight", endpoint="sx") == 1
            assert weir.metrics().value("weir_sockets") == 1
            for message in ("text \u4e2d\u6587", b"\x00binary\xff", "", "x" * (1 << 20), os.urandom(3 << 20)):
                ws.send(message)
                assert ws.recv() == message
            ws.send(["frag", "men", "ted"])
            assert ws.recv() == "fragmented"
            assert ws.ping("are you there").wait(h.PATIENCE)
            with ws_client.connect(url + "y", **PATIENT) as other:     # the other one, at the same time
                assert other.recv() == "sy"
                assert weir.inflight() == 2
        with ws_client.connect(url + "gpt+alias", **PATIENT) as ws:    # the engine knows the real name only
            assert ws.recv() == "sx"
        assert [r.path for r in seen] == ["/v1/realtime?intent=a&model=" + m for m in ("gpt-x", "y", "gpt-x")]
        outcomes(weir, ok=3)
        with pytest.raises(websockets.exceptions.InvalidStatus) as e:
            ws_client.connect(url + "nobody", **PATIENT)
        assert e.value.response.status_code == 404
        assert json.loads(e.value.response.body)["error"]["code"] == "model_not_found"
    weir.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted((r["status"], r["model"], r["endpoint"], r["outcome"]) for r in lines) == \
        [(101, "gpt-x", "sx", "ok"), (101, "gpt-x", "sx", "ok"), (101, "y", "sy", "ok"), (404, "nobody", None, "client_error")]
    assert all(r["path"] == "/v1/realtime" for r in lines)
    big = max(lines, key=lambda r: r["request_bytes"])
    assert big["request_bytes"] > 4 << 20 and big["response_bytes"] > 4 << 20


@pytest.mark.sanitize
def test_how_long_sockets_live_is_not_how_long_answers_take(weir, upstream, client):
    weir.register(upstream(echo, name="u"))
    c = client(weir)
    switched(c)
    c.close()
    outcomes(weir, ok=1)
    assert weir.metrics().value("weir_request_duration_seconds_count") == 0
    assert weir.metrics().sum("weir_compute_seconds_count", model="m") == 0


# bytes ---------------------------------------------------------------------------------------------------------------


def test_heads_are_those_of_a_proxy(weir, upstream, client):
    up = upstream(echo, name="u")
    weir.register(up)
    c = client(weir)
    ask(c, more="Connection: X-Hop\r\nX-Hop: 1\r\nSec-WebSocket-Key: k\r\nX-Request-Id: id-1\r\nKeep-Alive: 5\r\n")
    status, fields = c.head()
    low = {k.lower(): v for k, v in fields}
    assert status == 101 and len(low) == len(fields)
    assert low == {"connection": "Upgrade", "upgrade": "echo", "x-request-id": "id-1"}
    got = {k.lower(): v for k, v in up.requests[0].headers}
    assert got["connection"] == "Upgrade" and got["upgrade"] == "echo" and got["sec-websocket-key"] == "k"
    assert "x-hop" not in got and "keep-alive" not in got and "x-weir-hop" in got


@pytest.mark.sanitize
def test_bytes_next_to_the_heads_pass_too(weir, upstream, client):
    """Sent by the client before it has its 101, and by the worker in the segment of its 101."""
    def eager(conn, request):
        conn.send(SWITCH + b"first")
        assert conn.exactly(5) == b"early"
        conn.send(b"got it")
        conn.hang_up()

    weir.register(upstream(eager, name="u"))
    c = client(weir)
    c.send((REQUEST % ("m", "echo", "")).encode() + b"early")
    assert c.head()[0] == 101
    assert c.rest() == b"firstgot it"
    outcomes(weir, ok=1)


@pytest.mark.sanitize
@pytest.mark.race
def test_megabytes_both_ways_at_once_arrive_as_they_were(weir, upstream, client):
    weir.register(upstream(echo, name="u"))
    c = client(weir)
    switched(c)
    c.sock.settimeout(4 * h.PATIENCE)       # for all that is sent, not for each part
    data = random.Random(5).randbytes(8 << 20)
    sender = threading.Thread(target=c.send, args=(data,))
    sender.start()
    assert hashlib.sha256(c.exactly(len(data))).digest() == hashlib.sha256(data).digest()
    sender.join()
    c.close()
    outcomes(weir, ok=1)


@pytest.mark.sanitize
@pytest.mark.parametrize("deaf", ["client", "worker"])
def test_a_side_that_does_not_read_holds_the_other_back(weir, upstream, client, deaf):
    total, block = 64 << 20, random.Random(6).randbytes(1 << 20)
    sent, go = [0], threading.Event()
    result = []

    def pump(wire):
        while sent[0] < total:
            wire.sock.settimeout(None)
            wire.send(block)
            sent[0] += len(block)

    def swallow(wire):
        digest, n = hashlib.sha256(), 0
        while n < total:
            got = wire.buf or wire.sock.recv(1 << 20)
            wire.buf = b""
            assert got
            digest.update(got)
            n += len(got)
        return digest.digest()

    def work(conn, request):
        conn.send(SWITCH)
        conn.sock.settimeout(None)
        if deaf == "client":
            pump(conn)
        else:
            assert go.wait(4 * h.PATIENCE)
            result.append(swallow(conn))
        conn.hang_up()

    weir.register(upstream(work, name="u"))
    c = client(weir)
    switched(c)
    pumping = threading.Thread(target=pump, args=(c,)) if deaf == "worker" else None
    if pumping:
        pumping.start()
    h.wait_until(lambda: weir.metrics().value("weir_buffered_bytes") >= 256 * 1024, "it to be held back")
    held = [weir.metrics().value("weir_buffered_bytes") for _ in range(20)]
    assert max(held) < 1 << 20 and sent[0] < total
    go.set()
    if pumping:
        pumping.join()
        assert c.rest() == b""
    else:
        c.sock.settimeout(None)
        result.append(swallow(c))
    want = hashlib.sha256()
    for _ in range(total >> 20):
        want.update(block)
    h.wait_until(lambda: result, "all to be read")
    assert result == [want.digest()]
    outcomes(weir, ok=1)


# who may switch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status, reason", [(404, "Not Found"), (426, "Upgrade Required"), (200, "OK")])
def test_a_worker_that_does_not_switch_has_its_answer_passed_on(weir, upstream, client, status, reason):
    up = upstream(lambda c, r: c.respond(status, b"no", [("Upgrade", "other"), ("Connection", "upgrade")], reason), name="u")
    weir.register(up)
    c = client(weir)
    # What stands behind the request is the next request, and a bad one does not reach the worker.
    c.send((REQUEST % ("m", "echo", "")).encode() * 2 + b"GET /v1/../admin HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(2):
        r = c.response()
        assert (r.status, r.body) == (status, b"no")
        assert r.header("Upgrade") == ("other" if status == 426 else None)
    assert c.response().error() == (400, "invalid_request")
    assert up.hits() == 2


@pytest.mark.sanitize
@pytest.mark.parametrize("what", ["nobody asked", "another protocol", "no protocol", "two protocols", "a body"])
def test_only_a_switch_that_was_asked_for_counts(weir, upstream, client, what):
    answers = {"another protocol": b"Connection: upgrade\r\nUpgrade: other\r\n", "no protocol": b"Connection: upgrade\r\n",
               "two protocols": b"Connection: upgrade\r\nUpgrade: echo\r\nUpgrade: other\r\n"}
    evil = b"HTTP/1.1 101 Switching Protocols\r\n" + answers.get(what, b"Connection: upgrade\r\nUpgrade: echo\r\n") + b"\r\n"

    def work(conn, request):
        conn.send(evil + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmagic")
        conn.hang_up()

    up = upstream(work, name="u")
    weir.register(up)
    c = client(weir)
    if what == "nobody asked":
        c.request(body={"model": "m"})
    elif what == "a body":          # whose end the two sides might see elsewhere: then no switch is offered
        c.send("POST /v1/x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\nContent-Length: 13\r\n\r\n"
               '{"model":"m"}')
    else:
        ask(c)
    r = c.response()
    assert r.error() == (502, "upstream_failed") and b"magic" not in c.received
    assert (up.requests[0].header("upgrade") is None) == (what in ("nobody asked", "a body"))
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")


@pytest.mark.parametrize("protocol", ["h2c", "H2C", "HTTP/2.0", "TLS/1.0", "echo, h2c", "h2"])
def test_protocols_that_hide_requests_are_not_offered(weir, upstream, client, protocol):
    up = upstream(lambda c, r: c.respond(200, b"plain"), name="u")
    weir.register(up)
    c = client(weir)
    ask(c, protocol=protocol, more="Connection: HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n")
    assert c.response().body == b"plain"
    assert up.requests[0].header("upgrade") is None and up.requests[0].header("connection") is None
    assert up.requests[0].header("http2-settings") is None


def test_http_1_0_and_a_field_without_its_connection_word_switch_nothing(weir, upstream, client):
    up = upstream(lambda c, r: c.respond(200, b"plain"), name="u")
    weir.register(up)
    for text in ("GET /v1/realtime?model=m HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
                 "GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\n\r\n"):
        c = client(weir)
        c.send(text)
        assert c.response().body == b"plain"
        assert up.requests[-1].header("upgrade") is None


def test_a_worker_that_cannot_be_reached_is_not_the_last(weir, upstream, client):
    dead, alive = upstream(echo, name="dead"), upstream(echo, name="alive")
    weir.register(dead)
    weir.register(alive)
    dead.refuse()
    for _ in range(4):
        switched(client(weir))
    assert alive.hits() == 4


# how it ends -----------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.race
@pytest.mark.parametrize("leave, outcome", [(h.RawClient.close, "ok"), (h.RawClient.half_close, "ok"),
                                            (h.RawClient.rst, "client_gone")])
def test_a_client_that_goes_ends_the_upstream(weir, upstream, client, leave, outcome):
    gone = threading.Event()

    def work(conn, request):
        conn.send(SWITCH)
        conn.sock.settimeout(None)
        conn.wait_closed()
        assert conn.buf == b"last words"[:len(conn.buf)] and (outcome != "ok" or conn.buf)
        gone.set()

    weir.register(upstream(work, name="u"))
    c = client(weir)
    switched(c)
    c.send("last words")
    leave(c)
    assert gone.wait(h.PATIENCE)
    outcomes(weir, **{outcome: 1})


@pytest.mark.sanitize
@pytest.mark.parametrize("leave, outcome", [("fin", "ok"), ("rst", "upstream_aborted")])
def test_a_worker_that_goes_ends_the_client(weir, upstream, client, leave, outcome):
    def work(conn, request):
        conn.send(SWITCH + b"last words")
        assert conn.exactly(4) == b"read"
        conn.rst() if leave == "rst" else conn.hang_up()

    weir.register(upstream(work, name="u"))
    c = client(weir)
    switched(c)
    assert c.exactly(10) == b"last words"
    c.send("read")
    c.wait_closed()
    assert c.was_reset == (leave == "rst")      # a cut socket does not look like one that ended
    outcomes(weir, **{outcome: 1})


@pytest.mark.sanitize
def test_half_close_keep_ends_each_direction_alone(start_weir, upstream, client):
    def client_first(conn, request):
        conn.send(SWITCH)
        conn.wait_closed()                      # only its sending side
        conn.send(b"all of " + conn.buf)
        conn.hang_up()

    weir = start_weir({"routes": [{"half_close": "keep"}]})
    up = upstream(client_first, name="u")
    weir.register(up)
    c = client(weir)
    switched(c)
    c.send("the question")
    c.half_close()
    assert c.rest() == b"all of the question"
    outcomes(weir, ok=1)

    for early in ("", "the question"):      # its side ends before the 101, with and without bytes in it
        c = client(weir)
        c.send((REQUEST % ("m", "echo", "")) + early)
        c.half_close()
        assert c.head()[0] == 101
        assert (c.rest(), c.was_reset) == (b"all of " + early.encode(), False)
    outcomes(weir, ok=3)

    heard = []

    def worker_first(conn, request):
        conn.send(SWITCH + b"my part")
        conn.half_close()
        conn.sock.settimeout(None)
        conn.wait_closed()
        heard.append(conn.buf)

    up.behaviour = worker_first
    c = client(weir)
    switched(c)
    assert c.rest() == b"my part"
    c.send("yours")
    c.close()
    outcomes(weir, ok=4)
    h.wait_until(lambda: heard, "the worker to hear the end")
    assert heard == [b"yours"]


@pytest.mark.sanitize
@pytest.mark.race
@pytest.mark.parametrize("early", [b"", b"the question", bytes(range(256)) * 768], ids=["no", "some", "many"])
@pytest.mark.parametrize("order", ["fin, 101", "101, fin", "101 and fin at once", "fin and 101 at once"])
def test_a_half_close_at_any_time_comes_after_the_early_bytes(start_weir, upstream, client, early, order):
    """`early` is sent with the request, before the 101; more of it than one read takes is unread when the FIN is there."""
    asked, go, switched_ = threading.Event(), threading.Event(), threading.Event()

    def work(conn, request):
        asked.set()
        assert go.wait(h.PATIENCE)
        conn.send(SWITCH)
        switched_.set()
        conn.wait_closed()
        conn.send(b"all of " + conn.buf)
        conn.hang_up()

    def switch():
        go.set()
        assert switched_.wait(h.PATIENCE)

    weir = start_weir({"threads": 1, "routes": [{"half_close": "keep"}]})
    weir.register(upstream(work, name="u"))
    c = client(weir)
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)     # as much as there may be: nobody reads it all yet
    c.send((REQUEST % ("m", "echo", "")).encode() + early)
    assert asked.wait(h.PATIENCE)
    with weir.frozen() if order.endswith("at once") else contextlib.nullcontext():
        if order.startswith("fin"):
            c.half_close()
            switch()
        else:
            switch()
            if order == "101, fin":
                assert c.head()[0] == 101
            c.half_close()
    if order != "101, fin":
        assert c.head()[0] == 101
    assert (c.rest(), c.was_reset) == (b"all of " + early, False)
    outcomes(weir, ok=1)


def test_silence_on_both_sides_ends_it(start_weir, upstream, client):
    weir = start_weir({"routes": [{"timeouts": {"between_bytes": "300ms"}}]})
    gone = threading.Event()

    def work(conn, request):
        conn.send(SWITCH)
        conn.sock.settimeout(None)
        conn.wait_closed()
        gone.set()

    weir.register(upstream(work, name="u"))
    c = client(weir)
    switched(c)
    c.wait_closed()
    assert c.was_reset and gone.wait(h.PATIENCE)
    outcomes(weir, timeout=1)


def test_a_drain_waits_for_sockets_and_a_second_signal_does_not(start_weir, upstream, client):
    weir = start_weir({"limits": {"drain": "1h"}})
    weir.register(upstream(echo, name="u"))
    c = client(weir)
    switched(c)
    weir.kill(h.signal.SIGTERM)
    weir.wait_line("info serve: SIGTERM: draining")
    for i in range(3):
        c.send(f"still {i}")
        assert c.exactly(7) == b"still %d" % i
    c.close()
    assert weir.wait() == 0
    weir.killed = True

    other = start_weir({"limits": {"drain": "1h"}})
    other.register(upstream(echo, name="v"))
    c = client(other)
    switched(c)
    other.kill(h.signal.SIGTERM)
    other.wait_line("info serve: SIGTERM: draining")
    other.kill(h.signal.SIGTERM)
    c.wait_closed()
    assert other.wait() == 0
    other.killed = True
