# SPDX-License-Identifier: Apache-2.0
"""Latency targets: what cannot be in time is refused before a worker sees it."""
import json
import threading

import weir_harness as h

ROUTE = {"match": {"path": "/v1/**"}}
YEAR = "31536000000"        # what it takes to answer a long prompt is guessed from how long short ones took


class Gate:
    """A behaviour that answers at once, or, once closed, when it is opened."""

    def __init__(self):
        self.open = threading.Event()
        self.open.set()

    def __call__(self, conn, request):
        assert self.open.wait(4 * h.PATIENCE), "the gate stayed closed"
        h.answer_at_once(conn, request)


def apply(weir, conf):
    r = weir.admin_http("POST", "/api/v1/config/apply", json.dumps(h.patient(conf)))
    assert r.status == 200, r.body


def test_what_no_worker_would_answer_in_time_is_refused_at_once(start_weir, upstream):
    gate = Gate()
    up = upstream(gate, name="u")
    conf = {"routes": [ROUTE], "health": {"interval": "1h", "timeout": "4m"},
            "discovery": [{"type": "static", "endpoints": [{"url": up.url, "models": ["m"]}]}]}
    weir = start_weir(conf)
    weir.wait_up(up)
    # Before anything was measured nothing is too late.
    for _ in range(20):
        assert weir.chat(stream=True, headers={"X-SLO-TTFT-Ms": YEAR}).status == 200
    gate.open.clear()
    held = []
    seen = len(up.requests)
    for i in range(4):
        c = h.RawClient(weir.data)
        c.request(body={"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * 100_000}]})
        held.append(c)
        up.wait_hits(seen + i + 1)
    # It answers in milliseconds, and some hundred thousand bytes wait there.
    r = weir.chat(stream=True, headers={"X-SLO-TTFT-Ms": "1"})
    assert r.error() == (429, "slo_unreachable")
    assert int(r.header("Retry-After")) >= 1
    request = {"method": "POST", "path": "/v1/chat/completions", "headers": {"X-SLO-TTFT-Ms": "1"},
               "body": {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}}
    told = json.loads(weir.admin_http("POST", "/api/v1/explain", json.dumps({"request": request})).body)
    assert told["rejection"] == "slo_unreachable"
    assert told["endpoints"][0]["rule"] == "slo" and told["endpoints"][0]["first_byte_seconds"] > 0.001
    # So does a description of it.
    told = json.loads(weir.admin_http("POST", "/api/v1/explain", json.dumps({"model": "m", "slo_ttft_ms": 1})).body)
    assert told["rejection"] == "slo_unreachable"
    h.wait_until(lambda: weir.metrics().sum("weir_rejections_total", code="slo_unreachable") == 1, "it to be counted")
    # The route may say it for everybody, and a request for itself.
    apply(weir, {**conf, "routes": [{**ROUTE, "slo": {"ttft": "1ms"}}]})
    assert weir.chat(stream=True).error() == (429, "slo_unreachable")
    assert len(up.requests) == seen + 4
    for value in ("0", "soon"):
        assert weir.chat(headers={"X-SLO-TPOT-Ms": value}).error() == (400, "invalid_header")
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]},
              headers={"X-SLO-TTFT-Ms": YEAR})
    up.wait_hits(seen + 5)
    apply(weir, conf)
    late = h.RawClient(weir.data)
    late.request(body={"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
    up.wait_hits(seen + 6)
    gate.open.set()
    for c in (*held, c, late):
        assert c.response().status == 200
        c.close()


def test_who_waits_is_refused_when_its_target_has_passed(start_weir, upstream):
    gate = Gate()
    up = upstream(gate, name="u")
    weir = start_weir({"routes": [ROUTE]})
    weir.register(up, max_concurrency=1)
    gate.open.clear()
    held = h.RawClient(weir.data)
    held.request(body={"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    up.wait_hits(1)
    # No place comes free meanwhile, and nothing was measured.
    r = weir.chat(headers={"X-SLO-TTFT-Ms": "100"})
    assert r.error() == (429, "slo_unreachable")
    assert int(r.header("Retry-After")) >= 1
    gate.open.set()
    assert held.response().status == 200
    held.close()
    assert len(up.requests) == 1
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 0, "nobody to wait")
