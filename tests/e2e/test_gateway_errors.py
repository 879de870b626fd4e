# SPDX-License-Identifier: Apache-2.0
"""What clients are told when a request cannot be served, and what happens to requests whose upstream fails."""
import threading

import pytest

import weir_harness as h


@pytest.fixture
def one(weir, upstream):
    """A Weir with one upstream."""
    up = upstream(name="secret-backend")
    weir.register(up)
    return weir, up


def no_backend_named(response, up):
    text = response.body.decode() + repr(response.headers)
    assert str(up.port) not in text and up.name not in text, text


# requests that are refused ----------------------------------------------------------------------------------------


def test_before_the_first_sync_unknown_is_starting_not_404(start_weir, upstream):
    """A source has not yet said what it has: what would be 404 is 503, and 404 once it has."""
    up = upstream(name="u")
    up.probe_gate.clear()
    weir = start_weir({"health": {"timeout": "4m"}, "discovery": [{"type": "static", "endpoints": [{"url": up.url}]}]})
    r = weir.chat("anything")
    assert r.error() == (503, "starting")
    assert int(r.header("Retry-After")) >= 1
    assert weir.chat(None).error() == (503, "starting")     # soon there may be an only model
    up.probe_gate.set()
    h.wait_until(lambda: weir.chat().status == 200, "its models to be known")
    assert weir.chat("anything").error() == (404, "model_not_found")


def test_an_empty_registry_knows_that_it_is_empty(weir):
    assert weir.chat("anything").error() == (404, "model_not_found")


def test_the_data_port_serves_no_admin_path(one):
    """Neither Weir's admin paths nor, by default, those of a worker: only /v1/ is routed."""
    weir, up = one
    for path in ("/metrics", "/api/v1/endpoints", "/workers", "/nacos/v1/ns/instance/list", "/fault"):
        assert weir.http("GET", path).error() == (404, "route_not_found")
    assert weir.http("POST", "/v1/anything/else", {"model": "m"}).status == 200
    assert up.hits() == 1


@pytest.mark.parametrize("body", [b"{", b"nonsense", b'{"model": 5}', b'{"model":"m"', b'[1,2]'])
@pytest.mark.sanitize
def test_a_body_that_is_not_a_request(one, body):
    weir, up = one
    up.behaviour = lambda conn, request: conn.respond(400, {"error": {
        "message": "not a request", "type": "invalid_request_error", "code": "invalid_request", "param": None}})
    r = weir.http("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    # with one live model, a body that names none still reaches the worker, which is the judge of its own input
    assert r.error() == (400, "invalid_request")
    assert up.requests[-1].body == body


def test_body_above_the_limit(start_weir, upstream):
    weir = start_weir({"limits": {"body": "64KiB"}})
    up = upstream(name="u")
    weir.register(up)
    pad = "x" * (64 * 1024)
    assert weir.chat(pad=pad).error() == (413, "body_too_large")
    c = h.RawClient(weir.data)
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        for _ in range(20):                             # 80 KiB that no Content-Length announced
            c.send(b"1000\r\n" + b" " * 4096 + b"\r\n")
    except (BrokenPipeError, ConnectionResetError):
        pass                                            # it may answer and close before all is sent
    assert c.response().error() == (413, "body_too_large")
    c.close()
    assert weir.chat().status == 200


def test_headers_above_the_limit(one):
    weir, up = one
    assert weir.chat(headers={"X-Big": "y" * 70_000}).error() == (431, "headers_too_large")
    assert weir.chat(headers={f"X-{i}": "v" for i in range(200)}).error() == (431, "headers_too_large")
    assert up.hits() == 0
    assert weir.chat().status == 200


def test_queue_full_is_429_with_retry_after(start_weir, upstream):
    behaviour, opened = h.gate()
    weir = start_weir({"routes": [{"queue": {"size": 2}}]})
    up = upstream(behaviour, name="u")
    weir.register(up, max_concurrency=1)
    clients = [h.RawClient(weir.data) for _ in range(3)]
    clients[0].request(body={"model": "m"})
    up.wait_hits(1)
    for c in clients[1:]:
        c.request(body={"model": "m"})
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length", model="m") == 2, "two to wait")
    r = weir.chat()
    assert r.error() == (429, "queue_full")
    assert int(r.header("Retry-After")) >= 1
    h.wait_until(lambda: weir.metrics().sum("weir_rejections_total", code="queue_full") == 1, "it to be counted")
    opened.set()
    assert [c.response().status for c in clients] == [200] * 3
    for c in clients:
        c.close()


def test_queue_timeout_is_504_and_the_others_are_served(start_weir, upstream):
    behaviour, opened = h.gate()
    weir = start_weir({"routes": [{"queue": {"timeout": "50ms"}}]})
    up = upstream(behaviour, name="u")
    weir.register(up, max_concurrency=1)
    first = h.RawClient(weir.data)
    first.request(body={"model": "m"})
    up.wait_hits(1)
    assert weir.chat().error() == (504, "queue_timeout")
    opened.set()
    assert first.response().status == 200
    first.close()
    assert up.hits() == 1


@pytest.mark.sanitize
def test_deadline_and_first_byte_timeout_cancel_upstream(start_weir, upstream):
    left = []

    def silent(conn, request):
        conn.wait_closed()
        left.append(request.path)

    weir = start_weir({"routes": [{"match": {"path": "/v1/completions"}, "timeouts": {"first_byte": "80ms"}}, {}]})
    up = upstream(silent, name="u")
    weir.register(up)

    def overrun(ms=80):
        """It runs from the request's arrival: it may be over before the worker was asked, which proves nothing of it."""
        assert weir.chat(headers={"X-Request-Timeout-Ms": str(ms)}).error() == (504, "deadline_exceeded")
        h.wait_until(lambda: weir.inflight() == 0, "it to be over")
        if up.hits() == 0:
            overrun(2 * ms)
    overrun()
    h.wait_until(lambda: "/v1/chat/completions" in left, "the worker to be left")
    assert weir.http("POST", "/v1/completions", {"model": "m", "prompt": "x"}).error() == (504, "first_byte_timeout")
    h.wait_until(lambda: "/v1/completions" in left, "the worker to be left again")
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")


def test_loop_is_detected(start_weir, upstream):
    """Weir A registered as a worker of Weir B and the other way round: the request ends, and says why."""
    a, b = start_weir(), start_weir()

    class Peer:
        def __init__(self, weir, name):
            self.url, self.name = weir.url, name

    a.register(Peer(b, "b"), wait=False)
    b.register(Peer(a, "a"), wait=False)
    h.wait_until(lambda: a.chat().status not in (404, 503), "the loop to close")
    assert a.chat().error() == (421, "loop_detected")


# upstreams that fail ----------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_connect_failure_goes_elsewhere_and_the_client_sees_nothing(weir, upstream):
    dead, alive = upstream(name="dead"), upstream(name="alive")
    weir.register(dead)
    weir.register(alive)
    dead.refuse()
    assert [weir.chat().header("x-worker") for _ in range(20)] == ["alive"] * 20
    assert alive.hits() == 20


def test_all_dead_is_502_or_503_and_names_no_backend(one):
    weir, up = one
    up.refuse()
    r = weir.chat()
    assert r.error() in {(502, "upstream_failed"), (503, "no_endpoint")}
    no_backend_named(r, up)


@pytest.mark.sanitize
def test_a_post_that_may_have_started_is_not_sent_twice(weir, upstream):
    def die(conn, request):
        conn.rst()

    ups = [upstream(die, name="d0"), upstream(die, name="d1")]
    for u in ups:
        weir.register(u)
    r = weir.chat()
    assert r.error() == (502, "upstream_failed")
    assert sum(u.hits() for u in ups) == 1


def test_a_reused_connection_that_died_is_retried_once_on_a_fresh_one(weir, upstream):
    """The retry budget allows at least three a second."""
    once, in_vain = h.one_answer_per_connection()
    served = []
    up = upstream(once, name="u")
    weir.register(up)

    def serve():
        served.append(weir.chat().status)
        return len(in_vain) == 3        # not by the fourth: Weir has given up a connection, the machine having been away
    h.wait_until(serve, "three to meet a connection that was used before")
    assert served == [200] * len(served)
    assert up.hits() == len(served) + 3                 # three of them twice: once in vain on a reused connection
    assert weir.metrics().sum("weir_retries_total", reason="reused_connection") == 3


def test_busy_answers_are_repicked_once_else_relayed(weir, upstream):
    def busy(conn, request):
        conn.respond(429, {"error": {"message": "full", "type": "rate", "code": "slow_down", "param": None}},
                     [("Retry-After", "7")], "Too Many Requests")

    b = upstream(busy, name="busy")
    weir.register(b)
    r = weir.chat()
    assert r.error() == (429, "slow_down") and r.header("Retry-After") == "7"    # unchanged
    weir.register(upstream(name="free"))
    assert {weir.chat().status for _ in range(6)} == {200}


@pytest.mark.sanitize
def test_death_mid_stream_never_looks_like_success(weir, upstream):
    def half(conn, request):
        conn.start_stream()
        conn.sse_event({"n": 1})
        conn.rst()

    up = upstream(half, name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200
    with pytest.raises(EOFError):
        while c.event() is not None:
            pass
    assert b"[DONE]" not in c.received and not c.received.endswith(b"0\r\n\r\n")
    c.close()
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", outcome="upstream_aborted") == 1, "it to be counted")
    assert up.hits() == 1


def test_4xx_and_5xx_of_a_worker_pass_unchanged(weir, upstream):
    def teapot(conn, request):
        conn.respond(int(request.header("x-want")), {"error": {"message": "mine", "type": "t", "code": "c", "param": "p"}})

    up = upstream(teapot, name="u")
    weir.register(up)
    for status in (400, 401, 404, 422, 500):
        r = weir.chat(headers={"X-Want": str(status)})
        assert r.error() == (status, "c") and r.json()["error"]["message"] == "mine"
    assert up.hits() == 5


# clients that leave -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leave", [h.RawClient.close, h.RawClient.rst, h.RawClient.half_close])
@pytest.mark.parametrize("phase", ["silent", "stream"])
@pytest.mark.sanitize
@pytest.mark.race
def test_client_gone_cancels_upstream(weir, upstream, leave, phase):
    gone = threading.Event()

    def work(conn, request):
        if phase == "stream":
            conn.start_stream()
            conn.sse_event({"n": 1})
        conn.wait_closed()
        gone.set()

    up = upstream(work, name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    up.wait_hits(1)
    if phase == "stream":
        c.head()
        c.event()
    leave(c)
    assert gone.wait(h.PATIENCE), "the upstream was not cancelled"
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", outcome="client_gone") == 1, "it to be counted")


@pytest.mark.sanitize
def test_client_gone_while_queued_leaves_the_queue(weir, upstream):
    behaviour, opened = h.gate()
    up = upstream(behaviour, name="u")
    weir.register(up, max_concurrency=1)
    first, queued = h.RawClient(weir.data), h.RawClient(weir.data)
    first.request(body={"model": "m"})
    up.wait_hits(1)
    queued.request(body={"model": "m"})
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length", model="m") == 1, "it to wait")
    queued.rst()
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length", model="m") == 0, "it to leave")
    opened.set()
    assert first.response().status == 200
    first.close()
    assert up.hits() == 1


# the way it is passed on ------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_events_pass_one_by_one(weir, upstream):
    go = threading.Semaphore(0)

    def step(conn, request):
        conn.start_stream()
        for i in range(5):
            assert go.acquire(timeout=h.PATIENCE)
            conn.sse_event({"n": i})
        conn.end_stream()

    weir.register(upstream(step, name="u"))
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    go.release()
    status, fields = c.head()
    assert status == 200 and ("Content-Type", "text/event-stream") in [(k.title(), v) for k, v in fields]
    for i in range(5):
        assert c.event() == f'{{"n": {i}}}'             # each before the next is even written
        go.release()
    assert c.event() == "[DONE]"
    assert c.event() is None
    c.close()


@pytest.mark.parametrize("size", [0, 32 * 1024, 64 * 1024 + 1, 1 << 20, 10_000_000])
def test_bodies_pass_byte_for_byte_and_model_may_come_last(weir, upstream, size):
    up = upstream(name="u", models=("m", "n"))
    weir.register(up, models=("m",))
    weir.register(upstream(name="v"), models=("n",))    # so that the model has to be found
    body = b'{"messages":[{"role":"user","content":"%s"}],"model":"m"}' % (b"ab\\n" * (size // 4))
    r = weir.http("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    assert r.status == 200 and r.header("x-worker") == "u"
    assert up.requests[0].body == body


@pytest.mark.sanitize
def test_chunked_request_and_expect_continue(weir, upstream):
    up = upstream(name="u")
    weir.register(up)
    body = b'{"model":"m","messages":[]}'
    c = h.RawClient(weir.data)
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for i in range(0, len(body), 5):
        c.send(b"%x\r\n%s\r\n" % (len(body[i:i + 5]), body[i:i + 5]))
    c.send("0\r\n\r\n")
    assert c.response().status == 200
    c.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
           f"Content-Length: {len(body)}\r\n\r\n")
    assert c.head()[0] == 100
    c.send(body)
    assert c.response().status == 200                   # and on the same connection
    c.close()
    assert [r.body for r in up.requests] == [body, body]


def test_request_id_and_authorization(weir, upstream):
    up = upstream(name="u")
    weir.register(up)
    r = weir.chat(headers={"Authorization": "Bearer sk-1", "X-Request-Id": "abc-123"})
    assert r.header("X-Request-Id") == "abc-123"
    assert up.requests[0].header("x-request-id") == "abc-123"
    assert up.requests[0].header("authorization") == "Bearer sk-1"
    made = weir.chat().header("X-Request-Id")
    assert made and up.requests[1].header("x-request-id") == made
    # an id that could forge log lines or headers is replaced
    forged = weir.chat(headers={"X-Request-Id": "x" * 300}).header("X-Request-Id")
    assert forged != "x" * 300


def test_clients_invent_no_series(weir, upstream):
    weir.register(upstream(name="u"))

    def counted(n):
        m = weir.metrics()
        return m if m.sum("weir_requests_total", model="other") == n else None
    weir.chat("first-unknown")
    lines = len(h.wait_until(lambda: counted(1), "it to be counted").samples)
    for i in range(300):
        assert weir.chat(f"unknown-{i}").status == 404
    m = h.wait_until(lambda: counted(301), "all to be counted")
    assert len(m.samples) == lines and "unknown-" not in m.text


def test_drain_ends_streams_first(start_weir, upstream):
    """SIGTERM: the running stream is finished, then the process ends with 0."""
    behaviour, opened = threading.Event(), threading.Event()

    def slow(conn, request):
        conn.start_stream()
        conn.sse_event({"n": 1})
        behaviour.set()
        assert opened.wait(4 * h.PATIENCE)
        conn.end_stream()

    weir = start_weir({"limits": {"drain": "10m"}})
    weir.register(upstream(slow, name="u"))
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    c.head()
    assert behaviour.wait(h.PATIENCE) and c.event() == '{"n": 1}'
    weir.kill(h.signal.SIGTERM)

    def refused():
        try:
            h.RawClient(weir.data).close()
            return False
        except OSError:
            return True
    h.wait_until(refused, "the listener to close")
    opened.set()
    assert c.event() == "[DONE]" and c.event() is None
    c.close()
    assert weir.wait() == 0
