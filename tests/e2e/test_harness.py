# SPDX-License-Identifier: Apache-2.0
"""The harness itself, without Weir: what the other tests lean on must hold."""
import sys
import threading

import pytest

import weir_harness as h


def addr(up):
    return ("127.0.0.1", up.port)


def test_scripted_server_answers_and_keeps_probes_apart(upstream):
    up = upstream(name="u1")
    http = h.Http(addr(up))
    assert http("GET", "/health").status == 200
    r = http("POST", "/v1/chat/completions", {"model": "m", "messages": []})
    assert r.status == 200 and r.header("X-Worker") == "u1"
    assert r.json()["choices"][0]["message"]["content"] == "hello"
    assert (up.hits(), len(up.probes), len(up.conns)) == (1, 1, 1)
    http.close()


def test_stream_events_come_one_by_one(upstream):
    gates = [threading.Event() for _ in range(3)]

    def behaviour(conn, request):
        conn.start_stream()
        for i, g in enumerate(gates):
            assert g.wait(h.PATIENCE)
            conn.sse_event({"n": i})
        conn.end_stream()

    up = upstream(behaviour)
    c = h.RawClient(addr(up))
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200
    for i, g in enumerate(gates):
        g.set()
        assert c.event() == f'{{"n": {i}}}'
    assert c.event() == "[DONE]"
    assert c.event() is None
    c.close()


def test_a_client_that_leaves_is_seen(upstream):
    left = threading.Event()

    def behaviour(conn, request):
        conn.wait_closed()
        left.set()

    up = upstream(behaviour)
    for leave in (h.RawClient.close, h.RawClient.rst):
        left.clear()
        c = h.RawClient(addr(up))
        c.request(body={"model": "m"})
        up.wait_hits(1)
        leave(c)
        assert left.wait(h.PATIENCE)
    up.wait_idle()


def test_gate_counts_what_is_inside(upstream):
    behaviour, opened = h.gate()
    up = upstream(behaviour)
    clients = [h.RawClient(addr(up)) for _ in range(5)]
    for c in clients:
        c.request(body={"model": "m"})
    up.wait_hits(5)
    assert (up.active, up.peak) == (5, 5)
    opened.set()
    assert [c.response().status for c in clients] == [200] * 5
    up.wait_idle()
    for c in clients:
        c.close()


def test_refuse_makes_connects_fail(upstream):
    up = upstream()
    h.RawClient(addr(up)).close()
    up.refuse()
    with pytest.raises(OSError):
        h.RawClient(addr(up))


def test_metrics_are_parsed():
    m = h.Metrics('# HELP a b\n# TYPE a counter\na{x="1",y="q\\"\\\\z"} 3\na{x="2"} 4\nb 1e3\n')
    assert m.sum("a") == 7 and m.value("a", x="2") == 4 and m.value("b") == 1000
    assert m.all("a", x="1") == [({"x": "1", "y": 'q"\\z'}, 3.0)]


def test_a_program_that_ends_without_its_line_is_reported():
    p = h.Process([sys.executable, "-c", "print('no such luck')"])
    with pytest.raises(AssertionError, match=r"(?s)ended.*no such luck"):
        p.wait_line("^ready")
    p.stop()


def test_a_sanitizer_report_fails_the_stop():
    p = h.Process([sys.executable, "-c", "import sys; print('x.c:1:2: runtime error: overflow', file=sys.stderr)"])
    p.wait()
    with pytest.raises(AssertionError, match="sanitizer report"):
        p.stop()
