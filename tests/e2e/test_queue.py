# SPDX-License-Identifier: Apache-2.0
"""The queue: who is served first, who is refused, and when. Field reports F4, F7, F8, F9."""
import json
import socket
import threading
import time

import pytest

import weir_harness as h


class Steps:
    """A behaviour that serves one request for each step(); `served` names them in the order they arrived."""

    def __init__(self, work=0.0):
        self.go = threading.Semaphore(0)
        self.served = []
        self.work = work

    def __call__(self, conn, request):
        self.served.append(request.json().get("name"))
        assert self.go.acquire(timeout=4 * h.PATIENCE), "no step came"
        time.sleep(self.work)
        h.answer_at_once(conn, request)

    def step(self, n=1):
        for _ in range(n):
            self.go.release()


def waiting(weir):
    return weir.metrics().sum("weir_queue_length")


class Line:
    """Requests of an endpoint that takes `limit` at a time; each is seen waiting before the next is sent."""

    def __init__(self, weir, up, limit=1):
        self.weir, self.up, self.clients, self.limit = weir, up, {}, limit
        weir.register(up, max_concurrency=limit)

    def send(self, name, headers=()):
        c = h.RawClient(self.weir.data)
        self.clients[name] = c
        before = len(self.clients) - self.limit
        c.request(body={"model": "m", "name": name}, headers=headers)
        if before <= 0:
            self.up.wait_hits(len(self.clients))
        else:
            h.wait_until(lambda: waiting(self.weir) == before, f"{name} to wait")

    def status(self, name):
        r = self.clients[name].response()
        self.clients[name].close()
        return r.status


@pytest.fixture
def line(start_weir, upstream):
    """line(config of the route, limit): a Line and its Steps."""
    def make(route, limit=1, work=0.0, **more):
        steps = Steps(work)
        weir = start_weir({"routes": [route], **more})
        return weir, Line(weir, upstream(steps, name="u"), limit), steps
    return make


@pytest.mark.sanitize
@pytest.mark.parametrize("trust", [["priority"], []])
def test_classes_then_deadlines_then_arrival_where_the_route_trusts(line, trust):
    weir, queue, steps = line({"trust": trust, "queue": {"age": "24h"}})
    queue.send("running")
    for name, headers in [("low", {"X-Priority": "9"}), ("plain", {}), ("late", {"X-Request-Timeout-Ms": "9000000"}),
                          ("soon", {"X-Request-Timeout-Ms": "8000000"}), ("five", {"X-Priority": "5"}),
                          ("high", {"X-Priority": "1"})]:
        queue.send(name, headers)
    steps.step(7)
    assert [queue.status(n) for n in queue.clients] == [200] * 7
    want = ["running", "high", "soon", "late", "plain", "five", "low"]
    # A deadline is anybody's right, a class is not.
    assert steps.served == (want if trust else ["running", "soon", "late", "low", "plain", "five", "high"])
    steps.step()
    assert weir.chat(headers={"X-Priority": "0"}).status == (400 if trust else 200)


@pytest.mark.sanitize
@pytest.mark.race
def test_f7_the_high_are_served_first_and_a_deadline_ends_in_the_queue(line):
    weir, queue, steps = line({"trust": ["priority"], "queue": {"size": 105, "age": "24h"}})
    queue.send("running")
    for i in range(100):
        queue.clients[f"low{i}"] = c = h.RawClient(weir.data)
        c.request(body={"model": "m", "name": f"low{i}"}, headers={"X-Priority": "9"})
    h.wait_until(lambda: waiting(weir) == 100, "a hundred to wait")
    for i in range(5):
        queue.send(f"high{i}", {"X-Priority": "1"})
    # The queue holds what it may, and no more.
    r = weir.chat(headers={"X-Priority": "1"})
    assert r.error() == (429, "queue_full") and int(r.header("Retry-After")) >= 1
    steps.step(5)
    h.wait_until(lambda: len(steps.served) == 6, "five to be served")
    assert steps.served == ["running"] + [f"high{i}" for i in range(5)]
    # There is room again, for one whose time runs out while it waits.
    r = weir.http("POST", "/v1/chat/completions", {"model": "m", "name": "hasty"},
                  {"X-Priority": "9", "X-Request-Timeout-Ms": "200"})
    assert r.error() == (504, "deadline_exceeded")
    steps.step(101)
    assert {queue.status(n) for n in queue.clients} == {200}
    assert len(steps.served) == 106 and "hasty" not in steps.served
    h.wait_until(lambda: weir.metrics().sum("weir_rejections_total", code="deadline_exceeded") == 1, "it to be counted")


@pytest.mark.sanitize
def test_f8_ageing_ends_starvation(line):
    """Ten of class 9, and always twenty of class 1 before them. Once the ten have waited nine times `age`, nothing that
    came after them is served before them."""
    weir, queue, steps = line({"trust": ["priority"], "queue": {"age": "100ms"}})
    queue.send("running")
    lows = [f"low{i}" for i in range(10)]
    for name in lows:
        queue.send(name, {"X-Priority": "9"})
    came = time.monotonic()
    for i in range(20):
        queue.send(f"high{i}", {"X-Priority": "1"})
    time.sleep(max(0.0, came + 0.95 - time.monotonic()))    # nine times age; later is the same
    for i in range(20, 25):
        queue.send(f"high{i}", {"X-Priority": "1"})
    steps.step(11)
    h.wait_until(lambda: len(steps.served) == 12, "eleven more to be served")
    assert steps.served[:11] == ["running"] + lows
    steps.step(25)
    assert {queue.status(n) for n in queue.clients} == {200}


def test_f8_without_ageing_the_high_come_first(line):
    """What ageing is good for."""
    _, queue, steps = line({"trust": ["priority"], "queue": {"age": "24h"}})
    queue.send("running")
    queue.send("low", {"X-Priority": "9"})
    for i in range(5):
        queue.send(f"high{i}", {"X-Priority": "1"})
    steps.step(7)
    assert {queue.status(n) for n in queue.clients} == {200}
    assert steps.served == ["running"] + [f"high{i}" for i in range(5)] + ["low"]


@pytest.mark.sanitize
def test_f4_ten_requests_on_four_slots(line):
    weir, queue, steps = line({}, limit=4)
    for i in range(10):
        queue.send(i)
    assert waiting(weir) == 6
    assert weir.inflight() == 4
    steps.step(10)
    assert [queue.status(i) for i in range(10)] == [200] * 10
    assert queue.up.peak == 4 and waiting(weir) == 0


def test_f4_a_short_queue_refuses_the_rest_at_once(line):
    weir, queue, steps = line({"queue": {"size": 3}}, limit=4)
    for i in range(7):
        queue.send(i)
    for _ in range(3):      # those before are all still there: nobody waited for anything
        r = weir.chat()
        assert r.error() == (429, "queue_full") and int(r.header("Retry-After")) >= 1
    assert queue.up.hits() == 4 and waiting(weir) == 3
    steps.step(7)
    assert [queue.status(i) for i in range(7)] == [200] * 7
    assert queue.up.hits() == 7


def test_f9_full_and_gone_are_told_apart(line):
    weir, queue, steps = line({"queue": {"size": 0}})
    queue.send("running")
    r = weir.chat()
    assert r.error() == (429, "queue_full") and r.header("Retry-After") == "1"
    steps.step()
    assert queue.status("running") == 200
    weir.deregister("u")
    weir.wait_gone(queue.up)
    r = weir.chat()
    assert r.error() == (503, "no_endpoint") and r.header("Retry-After") == "1"
    assert weir.chat("other").error() == (404, "model_not_found")


@pytest.mark.sanitize
def test_retry_after_and_hopeless_deadlines_follow_the_measured_rate(line, tmp_path):
    """Each request takes 0.1 s or more, so twenty that wait take 2 s or more, on any machine."""
    log = tmp_path / "access.jsonl"
    weir, queue, steps = line({"trust": ["priority"], "queue": {"size": 20}}, work=0.1,
                              logging={"access": f"file:{log}"})
    for i in range(13):
        queue.send(i)
    r = weir.http("POST", "/v1/chat/completions", {"model": "m", "name": "none"}, {"X-Request-Timeout-Ms": "1"})
    assert r.error() == (504, "deadline_exceeded")
    steps.step(12)
    assert [queue.status(i) for i in range(12)] == [200] * 12
    queue.up.wait_hits(13)      # the thirteenth stays
    queue.clients = {12: queue.clients[12]}
    queue.up.wait_hits = lambda n: None
    for i in range(20):
        queue.send(f"more{i}")
    assert waiting(weir) == 20
    r = weir.chat()
    assert r.error() == (429, "queue_full")
    assert 2 <= int(r.header("Retry-After")) <= 60
    queue.clients.pop("more19").rst()
    h.wait_until(lambda: waiting(weir) == 19, "one to leave")
    # Behind nineteen others, 1.9 s or more: with less time than that it is refused, and never waits.
    sent = {"model": "m", "name": "hopeless"}
    r = weir.http("POST", "/v1/chat/completions", sent, {"X-Priority": "9", "X-Request-Timeout-Ms": "1800",
                                                          "X-Request-Id": "hopeless"})
    assert r.error() == (504, "deadline_exceeded")
    assert waiting(weir) == 19
    queue.send("hopeful", {"X-Priority": "9", "X-Request-Timeout-Ms": "36000000"})
    steps.work = 0
    steps.step(21)
    assert {queue.status(n) for n in queue.clients} == {200}
    assert "hopeless" not in steps.served and "hopeful" in steps.served
    weir.stop()
    told = {line["request_id"]: line for line in map(json.loads, log.read_text().splitlines())}
    assert (told["hopeless"]["status"], told["hopeless"]["queue_ms"]) == (504, 0)


# refusals that need no body ---------------------------------------------------------------------------------------

MODEL = {"X-Model-Id": "m"}
BODY = 35_000_000


def head_only(weir, headers=(), length=BODY, sndbuf=None):
    """Send the head of a large request, and not one byte of its body, which is to be sent slowly."""
    c = h.RawClient(weir.data)
    if sndbuf:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
    fields = "".join(f"{k}: {v}\r\n" for k, v in dict(headers).items())
    c.send(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {length}\r\n\r\n")
    return c


def refused_at_once(c):
    r = c.response()
    assert r.header("Connection") == "close"
    c.close()
    return r.error()


@pytest.mark.sanitize
@pytest.mark.parametrize("headers", [MODEL, {}, {"X-Model-Id": "alias"}])
@pytest.mark.parametrize("size", [2, 0])
def test_a_full_queue_is_told_before_the_body(line, headers, size):
    weir, queue, steps = line({"queue": {"size": size}}, models={"m": {"aliases": ["alias"]}})
    for i in range(size + 1):
        queue.send(i)
    assert refused_at_once(head_only(weir, headers)) == (429, "queue_full")
    # One that reads only when it has sent all gets the answer too, and a clean end: what came after the head was read. It
    # is all there when Weir looks, which waits for seconds only.
    body = b" " * (256 << 10)
    with weir.frozen():
        c = head_only(weir, headers, len(body), sndbuf=1 << 20)
        c.send(body)
    assert c.response().error() == (429, "queue_full")
    assert (c.rest(), c.was_reset) == (b"", False)
    c.close()
    assert weir.metrics().sum("weir_buffered_bytes") < 1000
    steps.step(size + 1)
    assert [queue.status(i) for i in range(size + 1)] == [200] * (size + 1)
    h.wait_until(lambda: weir.inflight() == 0, "the place to be free")
    # And with room the same head is just a request.
    c = head_only(weir, headers, 13)
    c.send(b'{"model":"m"}')
    steps.step()
    assert c.response().status == 200
    c.close()


@pytest.mark.sanitize
def test_the_other_refusals_come_before_the_body_too(start_weir, upstream):
    weir = start_weir({"limits": {"body": "30MB"}})
    up = upstream(name="u")
    weir.register(up)
    assert refused_at_once(head_only(weir)) == (413, "body_too_large")
    small = {"length": 20_000_000}
    assert refused_at_once(head_only(weir, {"X-Model-Id": "nobody"}, **small)) == (404, "model_not_found")
    assert refused_at_once(head_only(weir, {"X-Required-Memory": "lots"}, **small)) == (400, "invalid_header")
    weir.register(upstream(name="v"), models=("n",))
    weir.deregister("v")
    h.wait_until(lambda: weir.chat("n").status == 503, "its model to be gone")
    assert refused_at_once(head_only(weir, {"X-Model-Id": "n"}, **small)) == (503, "no_endpoint")
    assert up.hits() == 0


@pytest.mark.sanitize
def test_full_buffers_are_told_before_the_body(start_weir, upstream):
    """Readers that stand still hold what they were sent, up to the budget; then new requests are refused by their head."""
    weir = start_weir({"limits": {"buffers": "1MiB"}})
    def large(conn, request):
        conn.sock.settimeout(None)      # it is held back for as long as the test lasts
        conn.respond(200, b"x" * (13 if request.asks("small") else 8_000_000))

    weir.register(upstream(large, name="u"))
    readers = [h.RawClient(weir.data, rcvbuf=8192) for _ in range(8)]
    for c in readers:                   # 256 KiB are held for each
        c.request(body={"model": "m"})
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") > 1 << 20, "more to be held than there is room for")
    assert refused_at_once(head_only(weir)) == (503, "overloaded")
    for c in readers:
        c.close()
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") == 0, "the buffers to be free")
    small = b'{"model":"m","small":1}'
    c = head_only(weir, length=len(small))
    c.send(small)
    assert c.response().status == 200
    c.close()


# overload ---------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_probes_and_admin_answer_when_everything_is_full(start_weir, upstream):
    """Every connection is taken, the queue is full, the endpoint at its limit: a probe that failed now would have the
    gateway restarted."""
    steps = Steps()
    weir = start_weir({"limits": {"connections": 6}, "routes": [{"queue": {"size": 5}}]}, args=["--threads", "1"])
    queue = Line(weir, upstream(steps, name="u"))
    for i in range(6):
        queue.send(i)

    def once(method, path, body=None):
        with weir.frozen():             # a connection beyond the limit has a second to say what it wants
            c = h.RawClient(weir.data)
            c.request(method, path, body=body)
        try:
            return c.response()
        finally:
            c.close()
    for _ in range(3):
        assert [once("GET", p).status for p in ("/health", "/liveness", "/readiness", "/v1/models")] == [200] * 4
        r = once("POST", "/v1/chat/completions", {"model": "m"})
        assert r.error() == (503, "overloaded") and int(r.header("Retry-After")) >= 1
        for path in ("/health", "/liveness", "/readiness", "/metrics", "/api/v1/endpoints"):
            assert weir.admin_http("GET", path).status == 200
    # One that says nothing is not waited for.
    c = h.RawClient(weir.data)
    assert c.response().error() == (503, "overloaded")
    c.close()
    assert queue.up.hits() == 1 and waiting(weir) == 5
    steps.step(6)
    assert [queue.status(i) for i in range(6)] == [200] * 6
    steps.step()

    def room():
        return once("POST", "/v1/chat/completions", {"model": "m", "name": "x"}).status == 200
    h.wait_until(room, "room for new connections")
