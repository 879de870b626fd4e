# SPDX-License-Identifier: Apache-2.0
"""HashiCorp's own Consul: what test_discovery_remote.py and test_agent_registries.py ask of a double.

The server comes from WEIR_CONSUL, from PATH, or from where tools/go_server.sh builds it.
"""
import json
import os
import urllib.error
import urllib.request

import pytest

import agent_util as u
import registries as r
import weir_harness as h
from test_agent import agent, engine, gpus  # noqa: F401: fixtures
from test_discovery_file import QUICK, becomes, ids, listed, stat
from test_discovery_remote import answered_by, config, names
from tls_util import Authority

pytestmark = pytest.mark.long

ME = "10.0.0.5:8000"


class Consul(r.Program):
    """A server of one in memory: one that is started again knows nothing of before."""

    def __init__(self, folder, token=None, tls=None):
        super().__init__()
        self.token, self.tls = token, tls
        self.binary = r.real("consul", "WEIR_CONSUL", ("go", "bin", "consul"), "tools/go_server.sh consul")
        self.port, lan, server = h.free_port(), h.free_port(), h.free_port()
        off = dict.fromkeys(("dns", "grpc", "grpc_tls", "serf_wan", "http", "https"), -1)
        doc = {"ports": {**off, "https" if tls else "http": self.port, "serf_lan": lan, "server": server},
               "disable_update_check": True, "node_name": "n1"}
        if token:
            doc["acl"] = {"enabled": True, "default_policy": "deny", "tokens": {"initial_management": token, "agent": token}}
        if tls:
            doc["tls"] = {"https": {"ca_file": tls.ca, "cert_file": tls.cert[0], "key_file": tls.cert[1], "verify_incoming": True}}
        self.file = os.path.join(str(folder), f"consul-{self.port}.json")
        with open(self.file, "w", encoding="ascii") as f:
            json.dump(doc, f)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        self.launch([self.binary, "agent", "-dev", "-bind", "127.0.0.1", "-log-level", "error", "-config-file", self.file],
                    self.alive, 6 * h.PATIENCE)

    def alive(self):
        """It leads, and its own node is registered: an agent can write."""
        try:
            return "consul" in self("GET", "/v1/catalog/services") and bool(self("GET", "/v1/agent/self"))
        except OSError:
            return False

    def __call__(self, method, path, body=None, token=None):
        headers = {"X-Consul-Token": token or self.token} if token or self.token else {}
        request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode(), headers,
                                         method=method)
        context = self.tls.client(self.tls.cert) if self.tls else None
        with urllib.request.urlopen(request, timeout=h.PATIENCE, context=context) as answer:
            text = answer.read()
            return json.loads(text) if text.strip() else None

    def put(self, up, status="passing", **more):
        self("PUT", "/v1/agent/service/register", {
            "ID": up.name, "Name": "llm", "Address": "127.0.0.1", "Port": up.port, "Meta": {"model_id": "m"},
            "Checks": [{"CheckID": f"service:{up.name}", "Name": "ttl", "TTL": "1h", "Status": status}], **more})

    def check(self, up, status):
        self("PUT", f"/v1/agent/check/update/service:{up.name}", {"Status": status})

    def drop(self, up):
        self("PUT", f"/v1/agent/service/deregister/{up.name}")

    def service(self, id):
        """As others see it: the service and what its own check says; None when it, or its check, is not there yet."""
        for entry in self("GET", "/v1/health/service/llm"):
            status = [c["Status"] for c in entry["Checks"] if c["ServiceID"] == id]
            if entry["Service"]["ID"] == id and status:
                return entry["Service"], status[0]
        return None

    def meta(self, id, key):
        found = self.service(id)
        return found and found[0]["Meta"].get(key)

    def status(self, id):
        found = self.service(id)
        return found and found[1]

    def policy(self, name, rules):
        """A token that may do no more than this."""
        self("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules})
        return self("PUT", "/v1/acl/token", {"Policies": [{"Name": name}]})["SecretID"]


class Pki(Authority):
    def __init__(self):
        super().__init__()
        self.cert = self.make("127.0.0.1", "IP:127.0.0.1")


def by_consul(consul, **more):
    return config("consul", servers=[consul.url], services=["llm"], **more)


def test_health_weights_and_maintenance_are_followed(start_weir, upstream, keeper, tmp_path):
    consul = keeper.add(Consul(tmp_path))
    a, b = upstream(name="a"), upstream(name="b")
    consul.put(a, Tags=["gpu", "tier=gold"], Meta={"model_id": "m", "gpu_type": "A100"}, Weights={"Passing": 3, "Warning": 2})
    weir = start_weir(by_consul(consul, empty_grace="off", datacenter="dc1"))
    weir.wait_up(a)
    one = names(weir)[f"127.0.0.1:{a.port}"]
    assert one["weight"] == 3
    assert one["metadata"] == {"model_id": "m", "gpu_type": "A100", "tags": "gpu,tier=gold", "node": "n1", "datacenter": "dc1"}
    assert one["labels"] == {"gpu": "true", "tier": "gold"}
    consul.put(b)
    weir.wait_up(b)
    assert answered_by(weir) == {"a", "b"}
    consul.check(a, "critical")
    h.wait_until(lambda: answered_by(weir, 4) == {"b"}, "a not to be used")
    assert listed(weir) == ids(a, b)
    consul.check(a, "warning")
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{a.port}"]["weight"] == 2, "the weight of a warning")
    consul.check(a, "passing")
    h.wait_until(lambda: answered_by(weir) == {"a", "b"}, "a to be back")
    consul("PUT", "/v1/agent/service/maintenance/b?enable=true&reason=update")
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{b.port}"]["enabled"] is False, "maintenance of the service")
    assert answered_by(weir, 4) == {"a"}
    consul("PUT", "/v1/agent/service/maintenance/b?enable=false")
    h.wait_until(lambda: answered_by(weir) == {"a", "b"}, "b to be back")
    consul("PUT", "/v1/agent/maintenance?enable=true")
    h.wait_until(lambda: {e["enabled"] for e in names(weir).values()} == {False}, "maintenance of the node")
    consul("PUT", "/v1/agent/maintenance?enable=false")
    h.wait_until(lambda: {e["enabled"] for e in names(weir).values()} == {True}, "both to be back")
    h.wait_until(lambda: answered_by(weir) == {"a", "b"}, "both to be used")
    consul.drop(a)
    becomes(weir, b)
    consul.drop(b)
    becomes(weir)
    assert stat(weir, "errors_total", "consul") == 0


def test_a_server_that_lost_its_memory_starts_from_a_lower_index(start_weir, upstream, keeper, tmp_path):
    consul = keeper.add(Consul(tmp_path))
    a, b = upstream(name="a"), upstream(name="b")
    for weight in range(1, 20):
        consul.put(a, Weights={"Passing": weight, "Warning": 1})
    weir = start_weir(by_consul(consul))
    weir.wait_up(a)
    consul.end()
    h.wait_until(lambda: stat(weir, "errors_total", "consul") >= 3, "more than one try")
    assert answered_by(weir, 4) == {"a"} and stat(weir, "up", "consul") == 0
    consul.start()
    h.wait_until(lambda: stat(weir, "up", "consul") == 1, "an answer")
    consul.put(b)
    weir.wait_up(b)
    consul.put(b, Weights={"Passing": 7, "Warning": 1})
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{b.port}"]["weight"] == 7, "a change after it")


def test_the_least_rights_and_less(start_weir, upstream, keeper, tmp_path):
    """What docs/discovery.md says is enough is enough; less is a failure, and no empty list."""
    consul = keeper.add(Consul(tmp_path, token="7e3f0f9e-0000-4000-8000-000000000001"))
    a, b = upstream(name="a"), upstream(name="b")
    consul.put(a)
    reader = consul.policy("reader", 'service "llm" { policy = "read" } node_prefix "" { policy = "read" }')
    stranger = consul.policy("stranger", 'service "other" { policy = "read" } node_prefix "" { policy = "read" }')
    path = tmp_path / "token"
    path.write_text(stranger + "\n")
    weir = start_weir(by_consul(consul, token=f"file:{path}", empty_grace="off"))
    h.wait_until(lambda: stat(weir, "errors_total", "consul") >= 1, "the refusal")
    assert listed(weir) == set()
    path.write_text(reader + "\n")
    h.wait_until(lambda: weir.up(a) == 1, "a, seen by the right token", 6 * h.PATIENCE)     # pauses grow to 5 s
    consul("DELETE", "/v1/acl/token/" + consul("GET", "/v1/acl/token/self", token=reader)["AccessorID"])
    consul.put(b)
    h.wait_until(lambda: stat(weir, "up", "consul") == 0, "the token to be unknown")
    assert answered_by(weir, 4) == {"a"} and listed(weir) == ids(a)
    path.write_text(consul.policy("again", 'service "llm" { policy = "read" } node_prefix "" { policy = "read" }') + "\n")
    h.wait_until(lambda: weir.up(b) == 1, "b, seen by the next one", 6 * h.PATIENCE)
    assert not weir.log_contains(reader)


def test_tls_with_client_certificates(agent, engine, start_weir, upstream, keeper, tmp_path):       # noqa: F811
    pki = keeper.add(Pki())
    consul = keeper.add(Consul(tmp_path, tls=pki))
    a = upstream(name="a")
    consul.put(a)
    weir = start_weir(by_consul(consul, ca=f"file:{pki.ca}", cert=f"file:{pki.cert[0]}", key=f"file:{pki.cert[1]}"))
    weir.wait_up(a)
    assert answered_by(weir, 2) == {"a"}
    agent(f"consul+https://127.0.0.1:{consul.port}", engine.url, "--gpus", "none", "--ca", pki.ca, "--cert", pki.cert[0], "--key",
          pki.cert[1])
    h.wait_until(lambda: consul.status(ME) == "passing", "the agent's registration")


# ------------------------------------------------------------------------------------------------------ the agent


def test_an_agent_is_registered_passed_updated_and_left(agent, engine, gpus, keeper, tmp_path):    # noqa: F811
    """With a token that may write this service and nothing else."""
    consul = keeper.add(Consul(tmp_path, token="7e3f0f9e-0000-4000-8000-000000000002"))
    token = consul.policy("writer", 'service "llm" { policy = "write" }')
    a = agent(f"consul://127.0.0.1:{consul.port}", engine.url, "--metadata", "rack=7", "--metadata", "a.b=1", "--metadata",
              "long=" + "x" * 600, "--label", "tier=gold", "--weight", "2.6", "--token", "env:TOKEN", "--interval", "50ms",
              env={"TOKEN": token}, gpus=gpus("count 1\n" + u.one_gpu(0, free=3 << 29)))
    h.wait_until(lambda: consul.meta(ME, "gpu_util"), "the registration")
    doc, status = consul.service(ME)
    assert status == "passing"
    assert (doc["Address"], doc["Port"], doc["Tags"]) == ("10.0.0.5", 8000, ["tier=gold"])
    assert doc["Weights"] == {"Passing": 3, "Warning": 3}
    assert doc["Meta"] == {"registered_by": "weir-agent", "health_status": "healthy", "remaining_memory": "1.5",
                           "gpu_util": "37", "current_requests": "3", "queue_length": "2", "model_id": "m",
                           "max_model_len": "8192", "gpu_type": "H100", "engine": "vllm", "rack": "7",
                           "membw_basis": "time_busy"}
    engine.running = 9
    h.wait_until(lambda: consul.meta(ME, "current_requests") == "9", "the update")
    consul("PUT", "/v1/agent/service/deregister/" + ME)     # somebody else's hand
    h.wait_until(lambda: consul.service(ME), "the registration to come back")
    engine.health = 500
    h.wait_until(lambda: consul.status(ME) == "critical", "critical")
    engine.health = 200
    h.wait_until(lambda: consul.status(ME) == "passing", "passing")
    a.stop()
    assert consul.service(ME) is None
    assert not a.log_contains(token)


def test_an_agent_that_is_killed_and_a_server_that_forgets(agent, engine, keeper, tmp_path):        # noqa: F811
    consul = keeper.add(Consul(tmp_path))
    a = agent(f"consul://127.0.0.1:{consul.port}", engine.url, "--gpus", "none", "--interval", "50ms", "--ttl", "2s")
    h.wait_until(lambda: consul.service(ME), "the registration")
    consul.end()
    a.wait_line("renewal failed|load report failed")
    consul.start()
    h.wait_until(lambda: consul.service(ME), "the registration at a server that knows nothing")
    a.kill_9()
    h.wait_until(lambda: consul.status(ME) == "critical", "the check to run out")


def test_from_agent_to_gateway(agent, start_weir, start_worker, keeper, tmp_path):                  # noqa: F811
    consul = keeper.add(Consul(tmp_path))
    worker = start_worker("--time-scale", "200")
    weir = start_weir({"health": QUICK, "discovery": [{"type": "consul", "servers": [consul.url], "empty_grace": "off",
                                                       "services": ["llm"]}]})
    a = agent(f"consul://127.0.0.1:{consul.port}", worker.url, "--gpus", "none", "--label", "tier=gold",
              advertise=worker.url.split("//", 1)[1])
    weir.wait_up(worker)
    one = weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"][0]
    assert one["metadata"]["health_status"] == "healthy" and one["labels"] == {"tier": "gold"}
    assert weir.chat().status == 200
    a.stop()
    weir.wait_gone(worker)
