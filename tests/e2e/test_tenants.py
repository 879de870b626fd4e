# SPDX-License-Identifier: Apache-2.0
"""Tenants: who waits is served by what its tenant used, and nobody has more under way than it may."""
import json
import threading
import time

import pytest

import weir_harness as h

USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}


class Steps:
    """A behaviour that answers one request for each release of `go`; `served` names them in the order they came."""

    def __init__(self):
        self.go = threading.Semaphore(0)
        self.served = []

    def __call__(self, conn, request):
        self.served.append(request.json().get("name"))
        assert self.go.acquire(timeout=4 * h.PATIENCE), "no step came"
        conn.respond(200, {"choices": [], "usage": USAGE})


def send(weir, name, tenant):
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "name": name}, headers={"X-Tenant-Id": tenant})
    return c


def status(client):
    r = client.response()
    client.close()
    return r.status


@pytest.mark.sanitize
@pytest.mark.race
@pytest.mark.parametrize("trust", [["tenant"], []])
def test_who_floods_waits_for_itself(start_weir, upstream, trust):
    steps = Steps()
    weir = start_weir({"routes": [{"trust": trust, "queue": {"age": "24h"}}], "tenants": {"flood": {}}})
    up = upstream(steps, name="u")
    weir.register(up, max_concurrency=1)
    clients = [send(weir, "running", "flood")]
    up.wait_hits(1)
    for i, name in enumerate(["flood0", "flood1", "flood2", "calm0", "calm1"]):
        clients.append(send(weir, name, name[:-1]))
        h.wait_until(lambda n=i + 1: weir.metrics().sum("weir_queue_length") == n, f"{name} to wait")
    steps.go.release(6)
    assert [status(c) for c in clients] == [200] * 6
    # calm comes first, because what runs is charged to flood; then both in turn, who came first before.
    assert steps.served == (["running", "calm0", "flood0", "calm1", "flood1", "flood2"] if trust else
                            ["running", "flood0", "flood1", "flood2", "calm0", "calm1"])
    # Those that the configuration does not name are one.
    m = weir.metrics()
    for tenant, n in (("flood", 4), ("other", 2)) if trust else (("flood", 0), ("other", 0)):
        assert m.value("weir_tenant_requests_total", tenant=tenant) == n
        assert m.value("weir_tenant_input_tokens_total", tenant=tenant) == 30 * n
        assert m.value("weir_tenant_output_tokens_total", tenant=tenant) == 20 * n
        assert m.value("weir_tenant_in_flight", tenant=tenant) == 0


@pytest.mark.sanitize
def test_a_tenant_has_no_more_under_way_than_it_may(start_weir, upstream):
    steps = Steps()
    config = {"routes": [{"trust": ["tenant"]}], "tenants": {"small": {"max_in_flight": 2}}}
    weir = start_weir(config)
    up = upstream(steps, name="u")
    weir.register(up)
    clients = [send(weir, "a", "small"), send(weir, "b", "small")]
    up.wait_hits(2)
    r = weir.chat(headers={"X-Tenant-Id": "small"})
    assert r.error() == (429, "rate_limited") and int(r.header("Retry-After")) >= 1
    # Neither other tenants nor requests without one are held back.
    clients += [send(weir, "c", "large"), send(weir, "d", "")]
    up.wait_hits(4)
    # A client that leaves gives its place back.
    clients[0].close()
    h.wait_until(lambda: weir.metrics().value("weir_tenant_in_flight", tenant="small") == 1, "it to be gone")
    clients[0] = send(weir, "e", "small")
    up.wait_hits(5)
    # Another limit counts at once, and those under way are still counted.
    config["tenants"]["small"]["max_in_flight"] = 3
    assert weir.admin_http("POST", "/api/v1/config/apply", json.dumps(h.patient(config))).status == 200
    clients.append(send(weir, "f", "small"))
    up.wait_hits(6)
    assert weir.chat(headers={"X-Tenant-Id": "small"}).error() == (429, "rate_limited")
    steps.go.release(6)
    assert {status(c) for c in clients} == {200}
    m = weir.metrics()
    assert m.value("weir_tenant_refused_total", tenant="small") == 2
    assert m.value("weir_tenant_in_flight", tenant="small") == 0


@pytest.mark.sanitize
def test_tenants_come_and_go_for_as_long_as_it_runs(start_weir, upstream):
    """Each reload lists a thousand others: metrics name a bounded number of them, and forget none with a request under
    way, nor one of the present list."""
    def listing(edition):
        return {"routes": [{"trust": ["tenant"]}], "tenants": {f"t{edition}-{i}": {} for i in range(999)}}

    steps = Steps()
    weir = start_weir(listing(0))
    up = upstream(steps, name="u")
    weir.register(up)
    held = send(weir, "held", "t0-500")
    up.wait_hits(1)
    for edition in range(1, 7):
        r = weir.admin_http("POST", "/api/v1/config/apply", json.dumps(h.patient(listing(edition))))
        assert r.status == 200, r.body
    assert weir.metrics().value("weir_tenant_in_flight", tenant="t0-500") == 1
    clients = [held, send(weir, "new", "t6-998")]
    steps.go.release(2)
    assert [status(c) for c in clients] == [200] * 2
    h.wait_until(lambda: weir.metrics().sum("weir_tenant_in_flight") == 0, "the ends to be counted")
    m = weir.metrics()
    for tenant in ("t0-500", "t6-998"):
        assert m.value("weir_tenant_requests_total", tenant=tenant) == 1
    assert len(m.all("weir_tenant_requests_total")) <= 4096


@pytest.mark.sanitize
def test_a_tenant_uses_no_more_in_a_minute_than_it_may(start_weir, upstream):
    """One a minute: a second is refused, unless the machine took a minute for the first."""
    steps = Steps()
    config = {"routes": [{"trust": ["tenant"]}], "tenants": {
        "few": {"limits": {"requests_per_minute": 1}},
        "short": {"limits": {"tokens_per_minute": 1}}}}
    weir = start_weir(config)
    up = upstream(steps, name="u")
    weir.register(up)
    steps.go.release(1000)
    for tenant, which in (("few", "requests"), ("short", "tokens")):
        # The first one is let in, whatever it takes: 50 tokens where one is left.
        began, served = time.monotonic(), 0
        while (r := weir.chat(headers={"X-Tenant-Id": tenant})).status == 200:
            served += 1
        assert 1 <= served <= 1 + (time.monotonic() - began) / 60
        assert r.error() == (429, "rate_limited")
        assert which in r.json()["error"]["message"] and "minute" in r.json()["error"]["message"]
        assert int(r.header("Retry-After")) >= (1 if tenant == "few" else 60)
        assert weir.metrics().value("weir_tenant_refused_total", tenant=tenant) == 1
    assert weir.chat(headers={"X-Tenant-Id": "another"}).status == 200
    # With a larger limit it is let in at once, and without one.
    for limits in ({"tokens_per_minute": 1000000}, {}):
        config["tenants"]["short"]["limits"] = limits
        assert weir.admin_http("POST", "/api/v1/config/apply", json.dumps(config)).status == 200
        assert weir.chat(headers={"X-Tenant-Id": "short"}).status == 200


def test_who_is_refused_for_its_tokens_was_not_let_in(start_weir, upstream):
    """Another takes the last tokens between its head and its body: it is none of the requests of this minute."""
    limits = {"tokens_per_minute": 1, "requests_per_minute": 2}
    config = {"routes": [{"trust": ["tenant"]}], "tenants": {"t": {"limits": limits}}}
    weir = start_weir(config)
    up = upstream(lambda conn, _: conn.respond(200, {"choices": [], "usage": USAGE}), name="u")
    weir.register(up)
    body = json.dumps({"model": "m"}).encode()
    slow = h.RawClient(weir.data)
    slow.request(headers={"X-Tenant-Id": "t", "Content-Type": "application/json", "Content-Length": len(body)})
    h.wait_until(lambda: weir.metrics().value("weir_tenant_in_flight", tenant="t") == 1, "its head")
    assert weir.chat(headers={"X-Tenant-Id": "t"}).status == 200
    slow.send(body)
    r = slow.response()
    slow.close()
    assert r.error() == (429, "rate_limited") and "tokens" in r.json()["error"]["message"]
    h.wait_until(lambda: weir.metrics().value("weir_tenant_in_flight", tenant="t") == 0, "both to have ended")
    m = weir.metrics()
    assert m.value("weir_tenant_requests_total", tenant="t") == m.value("weir_tenant_refused_total", tenant="t") == 1
    limits["tokens_per_minute"] = 1000000
    assert weir.admin_http("POST", "/api/v1/config/apply", json.dumps(config)).status == 200
    assert weir.chat(headers={"X-Tenant-Id": "t"}).status == 200


def test_tokens_that_were_not_used_come_back(start_weir, upstream):
    """What is taken at the start is what is expected; a request that no worker saw took nothing in the end."""
    config = {"routes": [{"trust": ["tenant"]}], "tenants": {"t": {"limits": {"tokens_per_minute": 1}}},
              "models": {"m": {}}}
    weir = start_weir(config)
    for _ in range(3):
        assert weir.chat(headers={"X-Tenant-Id": "t"}).status == 503
    up = upstream(h.answer_at_once, name="u")
    weir.register(up)
    assert weir.chat(headers={"X-Tenant-Id": "t"}).status == 200
