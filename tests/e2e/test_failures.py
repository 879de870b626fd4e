# SPDX-License-Identifier: Apache-2.0
"""Workers that fail: what is tried again, how often each of them was asked, and who else notices. Field reports E1 to E8,
F3, J5."""
import collections
import itertools
import json
import random
import signal
import socket
import threading
import time

import pytest

import weir_harness as h


def post(weir, name=None, **more):
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "name": name, **more})
    return c


# the reuse race ---------------------------------------------------------------------------------------------------


class Uvicorn(h.FakeUpstream):
    """Closes a connection that was idle for 5 s, to the millisecond, and remembers what it executed."""

    def __init__(self):
        self.executed = collections.Counter()
        self.left = self.closed_first = 0       # idle connections that Weir gave up, and that we did
        super().__init__(self.run, name="uvicorn")

    def run(self, conn, request):
        name = request.json()["name"]
        with self.lock:
            self.executed[name] += 1
        conn.answer(request)
        conn.sock.settimeout(5.0)
        try:
            if not conn.buf and not conn.fill():
                with self.lock:
                    self.left += 1
        except TimeoutError:
            with self.lock:
                self.closed_first += 1
            conn.hang_up()


def test_e1_500_posts_at_the_edge_of_a_keep_alive_of_5_s(start_weir, keeper):
    """Each client sends a POST every 4.9 to 5.1 s. None fails, and none is executed twice: Weir gives up idle connections
    before the worker does. Where it is too late, because the machine was away, it asks again: so often as is needed here."""
    weir = start_weir({"routes": [{"retry": {"budget_percent": 100}}]})
    up = keeper.add(Uvicorn())
    weir.register(up)
    rng = random.Random(1564)
    pauses = [rng.uniform(4.9, 5.1) for _ in range(250)]
    seen = collections.Counter()
    lock = threading.Lock()

    def client(n):
        http = h.Http(weir.data)
        for i, pause in enumerate([0, pauses[n]]):
            time.sleep(pause)
            r = http("POST", "/v1/chat/completions", {"model": "m", "name": f"{n}/{i}"})
            with lock:
                seen[r.status] += 1
        http.close()

    crew = [threading.Thread(target=client, args=(n,)) for n in range(250)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    assert seen == {200: 500}
    assert len(up.executed) == 500 and set(up.executed.values()) == {1}

    def given_up():
        """By Weir; by a machine that was away for a second just then, by the worker, and then once more."""
        ended = up.left + up.closed_first
        if not up.left:
            weir.http("POST", "/v1/chat/completions", {"model": "m", "name": "idle"})
            h.wait_until(lambda: up.left + up.closed_first > ended, "the end of an idle connection")
        return up.left
    h.wait_until(given_up, "Weir to be the first")


@pytest.mark.sanitize
def test_e1_one_that_closes_as_it_reads_the_first_byte(weir, upstream):
    """Of a second request on a connection it reads one byte and closes: that one was not executed, and is sent once more."""
    executed = collections.Counter()

    def once(conn, _):
        request = conn.read_request()
        while request is not None and request.method == "GET":
            conn.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
            request = conn.read_request()
        if request is None:
            return
        executed[request.json()["name"]] += 1
        conn.answer(request)
        conn.sock.settimeout(None)
        if conn.sock.recv(1):
            used.append(conn)

    used, names = [], itertools.count()
    weir.register(upstream(once, name="u", raw=True))

    def post_one():
        assert weir.http("POST", "/v1/chat/completions", {"model": "m", "name": next(names)}).status == 200
        return len(used) == 2           # after three: else Weir gave up a connection, the machine having been away
    h.wait_until(post_one, "two to meet a connection that was used before")
    assert set(executed.values()) == {1} and sorted(executed) == list(range(next(names)))
    assert weir.metrics().sum("weir_retries_total", reason="reused_connection") == 2


def test_e2_a_body_longer_than_what_is_kept_is_not_sent_again(weir, upstream):
    """20 MB on a connection that dies: 502, said in the log, and no second try."""
    def second_dies(conn, request):
        if conn in seen:
            died.append(request)
            conn.rst()
        seen.append(conn)
        conn.answer(request)

    seen, died = [], []
    up = upstream(second_dies, name="u")
    weir.register(up)
    body = json.dumps({"model": "m", "prompt": "x" * 20_000_000})

    def post_long():
        """By the header's model it is passed on at once; Weir keeps idle connections for seconds only."""
        assert weir.chat().status == 200
        r = weir.http("POST", "/v1/chat/completions", body,
                      {"Content-Type": "application/json", "X-Model-Id": "m", "X-Request-Id": "long-one"})
        assert r.status == (502 if died else 200)
        return died and r
    r = h.wait_until(post_long, "it to meet the connection that was used before")
    assert r.error() == (502, "upstream_failed")
    weir.wait_line("endpoint=u broke off before its answer request_id=long-one")
    assert weir.metrics().sum("weir_retries_total", reason="reused_connection") == 0


# the matrix: E3, E4, E5 --------------------------------------------------------------------------------------------


class Broken:
    """Two endpoints that fail the same way, and how often each was asked. It fails once only when `then` is set."""

    def __init__(self, how):
        self.how, self.asked = how, 0
        self.lock = threading.Lock()

    def __call__(self, conn, _):
        # Whether it is a client's its first bytes say; they are left unread.
        if self.how == "rst at accept" and b" /v1/x " in conn.sock.recv(20, socket.MSG_PEEK):
            with self.lock:
                self.asked += 1
            conn.rst()
            return
        request = conn.read_request()
        while request is not None and request.path != "/v1/x":
            conn.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
            request = conn.read_request()
        if request is None:
            return
        with self.lock:
            self.asked += 1
        if self.how == "rst after the request":
            conn.rst()
        elif self.how == "fin after the request":
            conn.hang_up()
        elif self.how in ("503", "429", "500"):
            conn.respond(int(self.how), '{"mine":true}', [("Content-Type", "application/problem+json"),
                                                          ("Retry-After", "7")], "Mine")
            conn.wait_closed()
        elif self.how == "rst after a first byte":
            conn.send(b"H")
            conn.rst()
        elif self.how == "rst after the head":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
            conn.rst()
        elif self.how == "rst in the body":
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
            conn.rst()
        elif self.how == "rst after an event":
            conn.start_stream()
            conn.sse_event({"n": 1})
            conn.rst()


CUT = "cut"
#       how it fails                POST: asked, seen   GET: asked, seen
MATRIX = {
    "rst at accept":           (1, 502,            2, 502),
    "rst after the request":   (1, 502,            2, 502),
    "fin after the request":   (1, 502,            2, 502),
    "rst after a first byte":  (1, 502,            1, 502),
    "500":                     (1, 500,            1, 500),
    "503":                     (2, 503,            2, 503),
    "429":                     (2, 429,            2, 429),
    "rst after the head":      (1, CUT,            1, CUT),
    "rst in the body":         (1, CUT,            1, CUT),
    "rst after an event":      (1, CUT,            1, CUT),
}


@pytest.mark.sanitize
@pytest.mark.parametrize("method", ["POST", "GET"])
@pytest.mark.parametrize("how", MATRIX)
def test_e3_e4_e5_how_often_it_is_tried(weir, upstream, how, method):
    """Three endpoints, all broken alike. A POST that may have begun is never sent twice; nothing is once an answer has
    begun; the worker's own error is what the client sees."""
    broken = Broken(how)
    for i in range(3):
        weir.register(upstream(broken, name=f"u{i}", raw=True))
    asked, seen = MATRIX[how][0:2] if method == "POST" else MATRIX[how][2:4]
    c = h.RawClient(weir.data)
    c.request(method, "/v1/x", body={"model": "m"} if method == "POST" else None)
    if seen == CUT:
        assert c.head()[0] == 200
        with pytest.raises(EOFError):
            c.body()
        assert c.received.count(b"HTTP/1.1") == 1 and c.received.count(b'{"n": 1}') <= 1
        assert not c.received.endswith(b"\r\n0\r\n\r\n")
    else:
        r = c.response()
        assert r.status == seen
        if how.isdigit():
            assert (r.body, r.header("Content-Type")) == (b'{"mine":true}', "application/problem+json")
            assert r.header("Retry-After") == "7"
        else:
            assert r.error() == (502, "upstream_failed")
    c.close()
    assert broken.asked == asked
    outcome = {CUT: "upstream_aborted", 429: "client_error"}.get(seen, "upstream_error")
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", outcome=outcome) == 1, "it to be counted")


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_e4_refused_and_unreachable_are_tried_elsewhere(start_weir, upstream, method):
    """Nothing was sent, so it goes on to others whatever the method: three more, and no endpoint twice."""
    weir = start_weir({"health": {"interval": "10m"}, "routes": [{"policy": "round_robin"}]})
    dead = [upstream(name=f"d{i}") for i in range(3)]
    alive = upstream(name="alive")
    for up in (*dead, alive):
        weir.register(up)
    for up in dead:
        up.refuse()
    for _ in range(4):
        c = h.RawClient(weir.data)
        c.request(method, "/v1/x", body={"model": "m"} if method == "POST" else None)
        assert c.response().status == 200
        c.close()
    assert alive.hits() == 4


@pytest.mark.sanitize
def test_e8_one_that_goes_away_under_load_costs_no_error(start_weir, upstream):
    """It takes no new connections from now on, as a pod that is scaled in: all go elsewhere."""
    weir = start_weir({"health": {"interval": "10m"}})
    ups = [upstream(name=f"u{i}") for i in range(4)]
    for up in ups:
        weir.register(up)
    ups[0].refuse()                     # before it was asked anything: nothing is under way there
    seen = collections.Counter()
    lock = threading.Lock()

    def load():
        http = h.Http(weir.data)
        for _ in range(125):
            status = http("POST", "/v1/chat/completions", {"model": "m"}).status
            with lock:
                seen[status] += 1
        http.close()
    crew = [threading.Thread(target=load) for _ in range(8)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    assert seen == {200: 1000}
    assert ups[0].hits() == 0 and sum(up.hits() for up in ups) == 1000


# one that stands still ---------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_f3_a_frozen_worker_delays_nobody_else(start_weir, start_worker, upstream):
    """SIGSTOP with as many requests as it may have; the next 200 all go to the other one, while those stand still."""
    weir = start_weir({"health": {"interval": "10m"}, "breaker": {"stall": "off"}})
    frozen = start_worker("--time-scale", "1000")
    well = upstream(name="well")
    weir.register(frozen, max_concurrency=20)
    with frozen.frozen():
        pending = [h.RawClient(weir.data) for _ in range(20)]
        for c in pending:
            c.request("POST", "/v1/completions", body={"model": "m", "prompt": "x"})
        h.wait_until(lambda: weir.inflight() == 20, "the frozen one to be full")
        weir.register(well)
        for _ in range(200):
            assert weir.chat().header("x-worker") == "well"
        # Only so many are ever pending there, however many come.
        assert weir.metrics().sum("weir_inflight", endpoint=frozen.name) <= 20
        assert well.hits() == 200
    assert [c.response().status for c in pending] == [200] * 20
    for c in pending:
        c.close()
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")


@pytest.mark.sanitize
def test_f3_what_a_frozen_worker_has_ends_by_the_limit_of_its_route(start_weir, start_worker):
    weir = start_weir({"health": {"interval": "10m"}, "breaker": {"enabled": False},
                       "routes": [{"match": {"path": "/v1/completions"}, "timeouts": {"first_byte": "300ms"}}, {}]})
    frozen = start_worker("--time-scale", "1000")
    weir.register(frozen, max_concurrency=20)
    with frozen.frozen():
        pending = [h.RawClient(weir.data) for _ in range(20)]
        for c in pending:
            c.request("POST", "/v1/completions", body={"model": "m", "prompt": "x"})
        assert [c.response().error() for c in pending] == [(504, "first_byte_timeout")] * 20
        h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
    for c in pending:
        c.close()


@pytest.mark.sanitize
def test_f3_a_black_hole_delays_nobody_else(start_weir, upstream):
    """An address that never answers a connect: the one whose turn it is waits for `connect`, and goes on; the others do
    not wait at all."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hole:
        fillers = []
        for _ in range(4):              # its accept queue is full, so the kernel drops what else comes
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(hole.getsockname())
            fillers.append(s)
        weir = start_weir({"health": {"interval": "10m"}, "routes": [{"timeouts": {"connect": "5m"}}]})

        class Hole:
            name, url = "hole", "http://127.0.0.1:%d" % hole.getsockname()[1]

        weir.register(Hole, wait=False, max_concurrency=3)
        h.wait_until(lambda: weir.up(Hole) is not None, "it to be known")
        stuck = [post(weir) for _ in range(3)]
        h.wait_until(lambda: weir.inflight() == 3, "three to be connecting")
        well = upstream(name="well")
        weir.register(well)
        for _ in range(100):
            assert weir.chat().status == 200
        assert well.hits() == 100
        h.wait_until(lambda: weir.inflight() == 3, "those three to be left")
        for c in stuck:                 # and who waits for it can leave
            c.rst()
        h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
        for s in fillers:
            s.close()


# nobody there ------------------------------------------------------------------------------------------------------


def test_j5_known_without_a_worker_and_unknown_are_told_apart(weir, upstream):
    """Holding is not offered: 503 with Retry-After at once; served as soon as one is back."""
    up = upstream(name="u")
    weir.register(up)
    weir.deregister("u")
    weir.wait_gone(up)
    for _ in range(50):
        r = weir.chat()
        assert r.error() == (503, "no_endpoint") and int(r.header("Retry-After")) >= 1
    assert weir.chat("never-seen").error() == (404, "model_not_found")
    weir.register(up)
    assert weir.chat().status == 200


@pytest.mark.sanitize
def test_j5_who_waits_when_the_last_worker_leaves_is_told(weir, upstream):
    gate, opened = h.gate()
    up = upstream(gate, name="u")
    weir.register(up, max_concurrency=1)
    running, queued = post(weir), None
    up.wait_hits(1)
    queued = post(weir)
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 1, "one to wait")
    weir.deregister("u")
    assert queued.response().error() == (503, "no_endpoint")
    opened.set()
    assert running.response().status == 200     # what runs there is not cut
    for c in (running, queued):
        c.close()
