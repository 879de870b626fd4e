# SPDX-License-Identifier: Apache-2.0
"""Load counters as the field broke them (field reports C1 to C9): every request counted once, from pick to end."""
import collections
import random

import pytest

import weir_harness as h

POLICY = "chain"


def fleet(weir, upstream, n, behaviour=h.answer_at_once):
    ups = [upstream(behaviour, name=f"e{i}") for i in range(n)]
    for up in ups:
        weir.register(up)
    return ups


def burst(weir, n, path="/v1/chat/completions", body=None, method="POST"):
    """n requests, each on a connection of its own; all are sent before any answer is read."""
    clients = [h.RawClient(weir.data) for _ in range(n)]
    for c in clients:
        c.request(method, path, body=body or {"model": "m", "messages": []})
    return clients


def answers(clients):
    seen = collections.Counter()
    for c in clients:
        r = c.response()
        seen[r.status, r.header("x-worker")] += 1
        c.close()
    return seen


@pytest.mark.sanitize
def test_c1_requests_cancelled_anywhere_leave_nothing_behind(weir, upstream):
    def slow_head(conn, request):
        if conn.closed.wait(0.02):
            return
        conn.start_stream()
        for i in range(3):
            conn.sse_event({"i": i})
        conn.end_stream()

    ups = fleet(weir, upstream, 4, slow_head)
    rng = random.Random(215)
    for _ in range(6):
        clients = burst(weir, 50, body={"model": "m", "stream": True})
        for c in clients:
            where = rng.randrange(3)
            if where == 0:
                c.rst()                                    # before anything came back
            else:
                c.head()
                c.rst() if where == 1 else c.close()       # in the middle of the body
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
    assert all(v == 0 for _, v in weir.metrics().all("weir_queue_length"))
    # An honest count again: the next requests spread evenly. Who answered counts: what was cancelled may still arrive.
    for up in ups:
        up.behaviour = h.answer_at_once
    seen = collections.Counter(weir.chat().header("x-worker") for _ in range(100))
    # One turn more or less: the rotation still owes what picks among fewer idle endpoints left behind.
    assert sum(seen.values()) == 100 and all(abs(seen[up.name] - 25) <= 1 for up in ups), seen


def test_c2_health_checks_never_touch_the_count(start_weir, upstream):
    # Checks fail by their status: a timeout that a slow machine overruns would take out the healthy one as well.
    weir = start_weir({"health": {"interval": "50ms", "timeout": "4m"}})
    gate, opened = h.gate()
    a = upstream(gate, name="a")
    weir.register(a)
    clients = burst(weir, 20)
    a.wait_hits(20)
    b = upstream(name="b")
    weir.register(b)
    asked = len(a.probes)
    a.healthy = False
    h.wait_until(lambda: len(a.probes) >= asked + 2, "two failed checks")
    a.healthy = True
    h.wait_until(lambda: len(a.probes) >= asked + 12, "ten more checks")
    assert weir.metrics().value("weir_inflight", endpoint="a") == 20
    for _ in range(30):
        assert weir.chat().header("x-worker") == "b"
    opened.set()
    assert answers(clients) == {(200, "a"): 20}
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank", "/v1/what/ever"])
def test_c3_every_path_is_counted(weir, upstream, path):
    gate, opened = h.gate()
    ups = fleet(weir, upstream, 4, gate)
    clients = burst(weir, 80, path, {"model": "m", "input": "the same long prefix " * 50})
    h.wait_until(lambda: sum(up.hits() for up in ups) == 80, "all requests")
    assert [up.hits() for up in ups] == [20] * 4
    assert weir.inflight() == 80
    opened.set()
    answers(clients)


@pytest.mark.sanitize
def test_c4_what_weir_answers_itself_lowers_nothing(weir, upstream):
    ups = fleet(weir, upstream, 4)
    for i in range(200):
        if i % 4 == 0:
            assert weir.chat(model="nobody").status == 404
        elif i % 4 == 1:
            assert weir.chat(headers={"X-Required-Memory": "lots"}).status == 400
        elif i % 4 == 2:
            assert weir.http("GET", "/nowhere").status == 404
        else:
            assert weir.chat().status == 200
        assert all(v >= 0 for _, v in weir.metrics().all("weir_inflight"))
    before = [up.hits() for up in ups]
    for _ in range(400):
        assert weir.chat().status == 200
    assert all(abs(up.hits() - n - 100) <= 1 for up, n in zip(ups, before)), [up.hits() - n for up, n in zip(ups, before)]


def test_c5_the_count_rises_with_the_pick_not_with_the_first_byte(weir, upstream):
    gate, opened = h.gate()
    ups = fleet(weir, upstream, 4, gate)
    clients = burst(weir, 40)
    h.wait_until(lambda: sum(up.hits() for up in ups) == 40, "all requests")
    assert [up.hits() for up in ups] == [10] * 4
    opened.set()
    answers(clients)


@pytest.mark.parametrize("code", [429, 503])
def test_c7_refusals_and_clients_that_leave_the_queue(start_weir, upstream, code):
    weir = start_weir()

    def refuse(conn, request):
        conn.respond(code, b"", [("Retry-After", "1")], "Busy")

    up = upstream(refuse, name="e0")
    weir.register(up, max_concurrency=4)
    for _ in range(10):
        assert sum(answers(burst(weir, 100)).values()) == 100
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
    gate, opened = h.gate()
    up.behaviour = gate
    before = up.hits()
    clients = burst(weir, 104)
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 100, "the queue")
    up.wait_hits(before + 4)            # a full ledger says that they were sent, not that they have arrived
    assert up.hits() == before + 4
    for c in clients:
        c.rst()
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 0 and weir.inflight() == 0, "both to be empty")
    opened.set()


def test_c9_a_stale_report_does_not_hide_what_was_just_sent(weir, upstream):
    gate, opened = h.gate()
    ups = fleet(weir, upstream, 2, gate)
    weir.load("e0", 1, running=0)
    weir.load("e1", 1, running=1)
    clients = burst(weir, 8)
    h.wait_until(lambda: sum(up.hits() for up in ups) == 8, "all requests")
    assert ups[0].hits() in (4, 5)
    opened.set()
    answers(clients)


def test_l6_one_kept_connection_is_balanced_request_by_request(start_weir, upstream):
    weir = start_weir(args=["--policy", "round_robin"])
    ups = fleet(weir, upstream, 4)
    for up in ups:
        weir.wait_up(up)
    chat, kept = h.Http(weir.data), set()
    for _ in range(400):
        assert chat("POST", "/v1/chat/completions", {"model": "m", "messages": []}).status == 200
        kept.add(chat.conn.sock.getsockname())
    assert len(kept) == 1
    assert [up.hits() for up in ups] == [100] * 4
