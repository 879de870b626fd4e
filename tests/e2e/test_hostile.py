# SPDX-License-Identifier: Apache-2.0
"""Clients, workers and registrants that mean harm, or just do not care: what they cannot do."""
import json
import threading

import pytest

import weir_harness as h


# targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.parametrize("line", [
    "CONNECT http://x/v1/chat/completions",             # no tunnels, whatever the form of the target
    "CONNECT x:443",
    "POST http://x?/v1/chat/completions",               # a query is no path
    "POST /v1/../metrics",                              # routed as /v1/**, served as /metrics
    "POST /v1/%2e%2e/metrics",
    "POST /v1/..%2fmetrics",
    "POST http://x/v1/./chat/completions",
])
def test_a_target_that_means_another_path_reaches_no_worker(weir, upstream, client, line):
    up = upstream(name="u")
    weir.register(up)
    c = client(weir)
    c.send(f"{line} HTTP/1.1\r\nHost: x\r\n\r\n")
    assert c.response().error() == (400, "invalid_request")
    assert up.hits() == 0
    assert weir.http("POST", "/v1/a..b/models.v1?x=../y", {"model": "m"}).status == 200
    assert up.hits() == 1


# memory -----------------------------------------------------------------------------------------------------------


def long_names(n=256):
    return [f"{i:03}-" + "x" * 490 for i in range(n)]


def rest(c):
    """All bytes up to the end of the stream."""
    parts = []
    while got := c.sock.recv(1 << 20):
        parts.append(got)
    return b"".join(parts)


@pytest.mark.sanitize
def test_answers_do_not_pile_up_for_a_client_that_only_asks(weir, upstream):
    """Weir's own answers, 25 MiB of them, asked for without reading any: at most one waits inside Weir."""
    weir.register(upstream(name="u"), models=long_names())
    size = len(weir.http("GET", "/v1/models").body)
    assert size > 128 * 1024
    c = h.RawClient(weir.data)
    c.send(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" * 199 +
           b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") > 0, "an answer to wait")
    for _ in range(20):
        assert weir.http("GET", "/health").status == 200
        assert weir.metrics().sum("weir_buffered_bytes") <= size + 1024
    assert rest(c).count(b"HTTP/1.1 200 OK\r\n") == 200   # and none is lost
    c.close()
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") == 0, "nothing to be held")


@pytest.mark.sanitize
def test_the_registry_answers_one_request_at_a_time(weir, upstream):
    """Behind 25 MiB of answers that nobody reads, a registration has to wait."""
    up = upstream(name="u")
    weir.register(up, models=long_names())
    body = json.dumps({"service": "s", "url": "http://127.0.0.1:1"}).encode()
    c = h.RawClient(weir.registry)
    c.send(b"GET /v1/endpoints HTTP/1.1\r\nHost: x\r\n\r\n" * 200 +
           b"PUT /v1/endpoints/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    for _ in range(20):
        assert weir.registry_http("GET", "/v1/endpoints/last").status == 404
    answers = rest(c)
    assert (answers.count(b"HTTP/1.1 200 OK\r\n"), answers.count(b"HTTP/1.1 201 Created\r\n")) == (200, 1)
    c.close()
    assert weir.registry_http("GET", "/v1/endpoints/last").status == 200


@pytest.mark.sanitize
def test_interim_answers_do_not_pile_up(weir, upstream):
    """A worker that sends 30 MB of 103 to a client that does not read."""
    sent = threading.Event()

    def hints(conn, request):
        for _ in range(1000):
            conn.send(b"HTTP/1.1 103 Early Hints\r\nLink: " + b"a" * 30000 + b"\r\n\r\n")
        sent.set()
        conn.answer(request)

    weir.register(upstream(hints, name="u"))
    c = h.RawClient(weir.data)
    c.request(body={"model": "m"})
    assert sent.wait(h.PATIENCE)
    assert weir.metrics().sum("weir_buffered_bytes") < 256 * 1024
    hints_seen = 0
    while True:
        status, _ = c.head()
        if status == 200:
            break
        assert status == 103
        hints_seen += 1
    assert 0 < hints_seen < 1000
    assert json.loads(c.body())["choices"][0]["message"]["content"] == "hello"
    c.close()


UPLOAD = b'{"model":"m","prompt":"' + b"x" * 12_000_000 + b'"}'


def deaf(conn, _):
    """Reads the head of a request and nothing more."""
    while True:
        request = conn.read_head()
        if request is None or request.method != "GET":
            break
        conn.respond(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
    conn.upstream.stopped.wait(4 * h.PATIENCE)


@pytest.fixture
def deaf_worker(upstream):
    up = upstream(deaf, name="u", raw=True)
    up.stopped = threading.Event()
    yield up
    up.stopped.set()


def upload(c):
    try:
        c.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(UPLOAD))
        c.send(UPLOAD)
    except OSError:
        pass                                            # it may be answered, or ended, before all is sent


@pytest.mark.sanitize
@pytest.mark.parametrize("peek_max", ["16MiB", "1MiB"])
def test_an_upload_that_the_worker_does_not_take_is_counted(start_weir, deaf_worker, peek_max):
    """It has been looked at whole by then, and waits inside Weir; or what has been looked at is passed on, and the client is
    held back. Until the client leaves."""
    weir = start_weir({"limits": {"peek_max": peek_max}, "routes": [{"timeouts": {"first_byte": "none"}}]})
    weir.register(deaf_worker)
    c = h.RawClient(weir.data)
    sender = threading.Thread(target=upload, args=(c,))
    sender.start()
    least = 1_000_000 if peek_max == "16MiB" else 100_000
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") > least, "what is held")
    c.sock.shutdown(h.socket.SHUT_RDWR)                 # ends the sender
    sender.join()
    c.rst()                                             # a FIN would wait behind what Weir does not read
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") == 0 and weir.inflight() == 0, "nothing to be held")


@pytest.mark.sanitize
@pytest.mark.parametrize("peek_max", ["16MiB", "1MiB"])
def test_an_upload_that_the_worker_does_not_take_ends_in_time(start_weir, deaf_worker, peek_max):
    weir = start_weir({"limits": {"peek_max": peek_max}, "routes": [{"timeouts": {"first_byte": "300ms"}}]})
    weir.register(deaf_worker)
    c = h.RawClient(weir.data)
    upload(c)
    assert c.response().error() == (504, "first_byte_timeout")
    c.close()
    h.wait_until(lambda: weir.metrics().sum("weir_buffered_bytes") == 0 and weir.inflight() == 0, "nothing to be held")


# registrants ------------------------------------------------------------------------------------------------------


def test_text_that_is_no_utf8_is_not_registered(weir):
    nacos = "/nacos/v1/ns/instance?serviceName=s&ip=1.2.3.4&port=1&metadata="
    r = weir.registry_http("POST", nacos + "gpu_type=%ff,model_id=m%fe")
    assert r.status == 400 and b"UTF-8" in r.body
    r = weir.registry_http("PUT", "/v1/endpoints/%ff", {"service": "s", "url": "http://127.0.0.1:9"})
    assert r.status == 400 and r.json()["error"]["field"] == "id"
    assert weir.registry_http("POST", nacos + "gpu_type=%E6%98%BE%E5%8D%A1").status == 200
    h.wait_until(lambda: 'gpu="显卡"' in weir.metrics().text, "the label")


@pytest.mark.parametrize("port", ["registry", "admin"])
def test_refusals_before_a_request_is_read_have_the_shape_of_errors(weir, port):
    c = h.RawClient(getattr(weir, port))
    c.send(b"POST /v1/endpoints HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n")
    r = c.response()
    assert (r.status, r.json()["error"]["code"]) == (413, "body_too_large")
    assert r.header("Content-Type") == "application/json"
    c.close()


def test_workers_are_added_with_a_string_for_a_model_only(weir):
    r = weir.admin_http("POST", "/workers", {"url": "http://127.0.0.1:9", "model_id": 5})
    assert (r.status, r.json()["error"]["message"]) == (400, "model_id: a string is needed")
    assert weir.admin_http("POST", "/workers", {"url": "http://127.0.0.1:9", "model_id": "m"}).status == 200
