# SPDX-License-Identifier: Apache-2.0
"""The load generator and the backend: figures come from them, so what they count must be right."""
import json
import os
import subprocess
import threading

import pytest

import weir_harness as h

BENCH = os.path.join(os.path.dirname(h.BIN), "bench")


def loadgen(addr, *args):
    done = subprocess.run([os.path.join(BENCH, "loadgen"), "--target", "%s:%d" % addr, *map(str, args)],
                          capture_output=True, text=True, timeout=4 * h.PATIENCE)
    assert not h.SANITIZER_REPORT.search(done.stderr), done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def backend():
    started = []

    def start(*args):
        p = h.Process([os.path.join(BENCH, "backend"), "--ports", "1", *args])
        started.append(p)
        return h.address(p.wait_line(r"^ready (\S+)").group(1))

    yield start
    for p in started:
        p.stop(expect=-h.signal.SIGTERM)


@pytest.mark.sanitize
def test_closed_loop_counts_what_the_backend_answered(backend):
    got = loadgen(backend(), "--connections", 8, "--requests", 200, "--seconds", 600, "--warmup", 0)
    assert got["errors"] == 0 and got["reconnects"] == 0
    assert got["requests"] > 0 and got["latency_us"]["n"] == got["requests"]
    head = len(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 139\r\n\r\n")
    assert got["bytes"] >= got["requests_total"] * (head + 139)


@pytest.mark.sanitize
def test_open_loop_plans_exactly_rate_times_time(backend):
    got = loadgen(backend(), "--connections", 16, "--rate", 200, "--seconds", 0.5, "--warmup", 0)
    assert got["errors"] == 0
    # One every 5 ms, with those at 0 and at 0.5 s; what is answered after the end is in the total only.
    assert got["requests_total"] + got["unsent"] + got["open"] == 101
    assert got["latency_us"]["n"] == got["requests"] <= got["requests_total"]


def test_a_stall_is_charged_to_every_request_it_delayed(upstream):
    """One connection, the first answer held back: what was planned meanwhile has waited, and says so."""
    first = threading.Event()

    def stall(conn, request):
        if not first.is_set():
            first.set()
            threading.Event().wait(0.4)     # the stall under test
        conn.answer(request)

    up = upstream(stall, name="u")
    got = loadgen(("127.0.0.1", up.port), "--rate", 100, "--seconds", 1, "--warmup", 0)
    delayed = got["latency_us"]
    assert delayed["max"] >= 390_000
    # requests are planned every 10 ms, so some 40 fell into the stall, half of them for more than 200 ms
    assert delayed["p90"] >= 150_000, delayed


@pytest.mark.sanitize
def test_streams_carry_their_events(backend):
    got = loadgen(backend("--spacing", "5", "--events", "10"), "--connections", 4, "--stream", "--requests", 40, "--seconds", 600, "--warmup", 0)
    assert got["errors"] == 0 and got["requests_total"] >= 4
    assert got["requests_total"] * 10 <= got["events_total"] <= (got["requests_total"] + 4) * 10
    assert got["relay_us"]["n"] > 0 and got["events_per_read"] >= 1


def test_large_bodies_arrive_whole(upstream):
    up = upstream(name="u")
    got = loadgen(("127.0.0.1", up.port), "--body-bytes", 220_000, "--requests", 5, "--seconds", 600, "--warmup", 0, "--model", "big",
                  "--header", "X-Extra: 1")
    assert got["errors"] == 0
    r = up.requests[0]
    assert len(r.body) == 220_000 and r.json()["model"] == "big" and r.header("x-extra") == "1"


def test_failures_are_counted_apart(upstream):
    def bad(conn, request):
        conn.respond(503, b"no", reason="Service Unavailable")

    up = upstream(bad, name="u")
    got = loadgen(("127.0.0.1", up.port), "--requests", 10, "--seconds", 600, "--warmup", 0)
    assert got["requests"] == 0 and got["errors_status"] > 0 and got["bad_status"] == 503
