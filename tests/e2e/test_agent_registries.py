# SPDX-License-Identifier: Apache-2.0
"""`weir agent` at Consul (a double) and at etcd itself; and with Weir on the other side."""
import urllib.error

import pytest

import agent_util as u
import registries as r
import weir_harness as h
from test_agent import agent, engine, gpus  # noqa: F401: fixtures
from test_discovery_file import QUICK

ID = "10.0.0.5:8000"
KEY = "/weir/endpoints/" + ID


@pytest.fixture
def etcd(keeper, tmp_path):
    return keeper.add(r.Etcd(tmp_path / "etcd"))


@pytest.mark.sanitize
def test_consul_is_registered_passed_updated_and_left(agent, engine, gpus, keeper):     # noqa: F811
    c = keeper.add(r.Consul(token="t0"))
    a = agent(f"consul://127.0.0.1:{c.port}", engine.url, "--metadata", "rack=7", "--metadata", "a.b=1", "--label",
              "tier=gold", "--weight", "2.6", "--token", "env:TOKEN", "--interval", "50ms", "--ttl", "1s", env={"TOKEN": "t0"},
              gpus=gpus("count 1\n" + u.one_gpu(0, free=3 << 29)))
    meta = {"registered_by": "weir-agent", "health_status": "healthy", "remaining_memory": "1.5", "gpu_util": "37",
            "current_requests": "3", "queue_length": "2", "model_id": "m", "max_model_len": "8192", "gpu_type": "H100",
            "engine": "vllm", "rack": "7", "membw_basis": "time_busy"}
    h.wait_until(lambda: c.meta(ID) == meta, "a registration with all that is known")
    doc, checks = c.services[ID]
    assert doc == {"ID": "10.0.0.5:8000", "Name": "llm", "Address": "10.0.0.5", "Port": 8000, "Tags": ["tier=gold"],
                   "Meta": meta, "Weights": {"Passing": 3, "Warning": 3},
                   "Checks": [{"CheckID": "service:10.0.0.5:8000", "Name": "weir agent", "TTL": "1000ms",
                               "Status": "passing", "DeregisterCriticalServiceAfter": "5m"}]}
    assert checks == {"service:10.0.0.5:8000": "passing"}
    a.wait_line("metadata keys are left out")   # a.b
    c.wait(lambda m, p, q, b: p == "/v1/agent/check/update/service:10.0.0.5:8000", "a pass")
    engine.running = 9
    h.wait_until(lambda: c.meta(ID).get("current_requests") == "9", "the update")
    with c.cond:
        c.services.clear()                      # an agent without memory of us
    h.wait_until(lambda: ID in c.services, "the registration to come back")
    engine.health = 500
    h.wait_until(lambda: c.services[ID][1]["service:" + ID] == "critical", "critical")
    a.stop()
    assert c.services == {}
    assert not a.log_contains("t0")


@pytest.mark.sanitize
def test_etcd_has_the_endpoint_while_its_lease_lives(agent, engine, gpus, etcd):        # noqa: F811
    a = agent(f"etcd://127.0.0.1:{etcd.port}", engine.url, "--metadata", "rack=7", "--interval", "50ms", "--ttl", "2s",
              gpus=gpus("count 1\n" + u.one_gpu(0, free=3 << 29)))
    # The lease of two seconds may run out before it is renewed: then the document is back after a while.
    def metadata():
        return etcd.get("/weir/").get(KEY, {}).get("metadata", {})

    def lease():
        return h.wait_until(lambda: etcd.call("/kv/range", {"key": etcd.b64(KEY)}).get("kvs"), "the key")[0]["lease"]

    def whole():
        found = etcd.get("/weir/").get(KEY, {})
        return found if found.get("metadata", {}).keys() >= {"gpu_util", "current_requests", "membw_basis"} else None
    found = h.wait_until(whole, "the document")
    assert found.pop("epoch") > 0 and found.pop("devices")[0]["type"] == "H100"
    assert found == {"id": "10.0.0.5:8000", "service": "llm", "url": "http://10.0.0.5:8000",
                     "models": [{"id": "m", "max_model_len": 8192}], "weight": 1, "engine": "vllm", "ttl_ms": 2000,
                     "metadata": {"health_status": "healthy", "remaining_memory": "1.5", "gpu_util": "37", "rack": "7",
                                  "current_requests": "3", "queue_length": "2", "membw_basis": "time_busy"}}
    engine.running = 9
    h.wait_until(lambda: metadata().get("current_requests") == "9", "the update")
    first = lease()
    try:
        etcd.call("/lease/revoke", {"ID": first})   # as if it had run out
    except urllib.error.HTTPError as e:
        assert e.code == 404                    # it had
    h.wait_until(lambda: lease() != first, "the registration to come back")
    etcd.end()
    a.wait_line("(registration|renewal|load report) failed")
    etcd.start()
    engine.running = 10
    h.wait_until(lambda: metadata().get("current_requests") == "10", "an update after the restart")
    a.stop()
    assert etcd.get("/weir/") == {}


def test_etcd_login_of_an_agent(agent, engine, etcd):                                   # noqa: F811
    etcd.add_user("weir", "s3cret")
    a = agent(f"etcd://127.0.0.1:{etcd.port}/other/", engine.url, "--gpus", "none", "--interval", "50ms",
              env={"WEIR_ETCD_USERNAME": "weir", "WEIR_ETCD_PASSWORD": "s3cret"})
    h.wait_until(lambda: "/other/10.0.0.5:8000" in etcd.get("/other/"), "the registration")
    etcd.end()
    etcd.start()                                # knows no token of before
    etcd.login()
    engine.running = 11
    h.wait_until(lambda: etcd.get("/other/").get("/other/10.0.0.5:8000", {}).get("metadata", {}).get(
        "current_requests") == "11", "an update with a new token")
    assert not a.log_contains("s3cret")
    a.stop()
    assert etcd.get("/other/") == {}


@pytest.mark.parametrize("kind", ["etcd", "consul"])
def test_from_agent_to_gateway(agent, start_weir, start_worker, keeper, tmp_path, kind):    # noqa: F811
    """What the agent writes, the gateway reads; and an agent that leaves takes its endpoint along."""
    if kind == "etcd":
        registry, more = keeper.add(r.Etcd(tmp_path / "etcd")), {}
    else:
        registry, more = keeper.add(r.Consul()), {"services": ["llm"]}
    worker = start_worker("--time-scale", "200")
    at = worker.url.split("//", 1)[1]
    weir = start_weir({"health": QUICK, "discovery": [{"type": kind, "servers": [registry.url], "empty_grace": "off", **more}]})
    a = agent(f"{kind}://127.0.0.1:{registry.port}", worker.url, "--gpus", "none", "--label", "tier=gold", "--ttl", "1h",
              advertise=at)
    weir.wait_up(worker)
    one = weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"][0]
    assert one["metadata"]["health_status"] == "healthy" and one["labels"] == {"tier": "gold"}
    assert [m["id"] for m in one["models"]] == ["m"]
    assert weir.chat().status == 200
    a.stop()
    weir.wait_gone(worker)
