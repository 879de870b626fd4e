# SPDX-License-Identifier: Apache-2.0
"""r-nacos, an independent server of Nacos' protocols written in Rust, as the registry that Weir asks and its agent writes to.

The server comes from WEIR_RNACOS, from PATH, or from where tools/rnacos.sh builds it.
"""
import json
import os
import socket
import urllib.error
import urllib.parse
import urllib.request

import pytest

import registries as r
import weir_harness as h
from test_agent import agent, engine, gpus  # noqa: F401: fixtures
from test_discovery_nacos import QUICK, TURNS, becomes, endpoints, ids, stat, who
from test_nacos_sdk import HERE, PYTHON, Sdk

pytestmark = pytest.mark.long

PATIENCE = 3 * h.PATIENCE               # it tells of changes in its own time


class Rnacos:
    """One server with its data in a folder; started again, it knows what was persistent."""

    def __init__(self, folder, password=None):
        self.binary, self.folder, self.password, self.server = r.real("rnacos", "WEIR_RNACOS", ("rnacos", "bin", "rnacos"), "tools/rnacos.sh"), str(folder), password, None
        self.port, self.console = h.free_port(1000), h.free_port()      # gRPC is on port + 1000
        self.address, self.url = f"127.0.0.1:{self.port}", f"http://127.0.0.1:{self.port}"
        self.token = None
        self.start()

    def start(self):
        env = {"RNACOS_HTTP_PORT": self.port, "RNACOS_GRPC_PORT": self.port + 1000, "RNACOS_HTTP_CONSOLE_PORT": self.console,
               "RNACOS_SDK_HOST": "127.0.0.1", "RNACOS_CONSOLE_HOST": "127.0.0.1", "RNACOS_DATA_DIR": self.folder,
               "RNACOS_HTTP_WORKERS": 2, "RUST_LOG": "warn", "HOME": self.folder}
        if self.password:
            env.update(RNACOS_ENABLE_OPEN_API_AUTH="true", RNACOS_INIT_ADMIN_USERNAME="nacos",
                       RNACOS_INIT_ADMIN_PASSWORD=self.password)
        self.server = h.Process([self.binary], {k: str(v) for k, v in env.items()})
        h.wait_until(lambda: not self.server.running() or self.ready(), "rnacos to answer", PATIENCE)
        assert self.server.running(), self.server.output

    def ready(self):
        """It is its own leader: it can be written to."""
        try:
            if self.password:
                self.token = self("POST", "/nacos/v1/auth/login", username="nacos", password=self.password)["accessToken"]
            self("GET", "/nacos/v1/ns/instance/list", serviceName="none")
            with socket.create_connection(("127.0.0.1", self.port + 1000), h.PATIENCE):
                return True
        except (OSError, KeyError, TypeError, ValueError):
            return False

    def end(self):
        if self.server:
            self.server.kill()
            self.server.wait()
        self.server = None

    stop = end

    def __call__(self, method, path, **fields):
        if self.token:
            fields["accessToken"] = self.token
        request = urllib.request.Request(f"{self.url}{path}?{urllib.parse.urlencode(fields)}", method=method)
        with urllib.request.urlopen(request, timeout=h.PATIENCE) as answer:
            text = answer.read().decode()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def tell(self, method, up, service="llm", **more):
        assert self(method, "/nacos/v1/ns/instance", serviceName=service, ip="127.0.0.1", port=up.port, ephemeral="false",
                    **{"metadata": '{"model_id":"m"}', **more}) == "ok"

    def hosts(self, service="llm"):
        return {f"{x['ip']}:{x['port']}": x for x in self("GET", "/nacos/v1/ns/instance/list", serviceName=service)["hosts"]}


@pytest.fixture
def rnacos(keeper, tmp_path):
    return lambda **how: keeper.add(Rnacos(tmp_path / "rnacos", **how))


def config(node, protocol, **more):
    return {"health": QUICK, "routes": TURNS, "discovery": [{
        "type": "nacos", "servers": [node.url], "services": ["llm"], "protocol": protocol, "empty_grace": "off",
        "interval": "1h" if protocol == "grpc" else "50ms", **more}]}


@pytest.mark.parametrize("protocol", ["http", "grpc", "auto"])
def test_instances_weights_and_metadata_are_followed(start_weir, upstream, rnacos, protocol):
    node = rnacos()
    a, b = upstream(name="a"), upstream(name="b")
    node.tell("POST", a, metadata='{"model_id":"m","gpu_type":"A100"}', weight=3)
    weir = start_weir(config(node, protocol))
    weir.wait_up(a)
    one = endpoints(weir)[f"127.0.0.1:{a.port}"]
    assert (one["service"], one["weight"], one["metadata"]["gpu_type"]) == ("llm", 3, "A100")
    node.tell("POST", b)
    h.wait_until(lambda: weir.up(b) == 1, "b", PATIENCE)
    h.wait_until(lambda: who(weir, 12) == {"a", "b"}, "both to be used")
    node.tell("PUT", b, weight=0)
    h.wait_until(lambda: who(weir, 6) == {"a"}, "b to be at weight 0", PATIENCE)
    node.tell("PUT", b, weight=2, metadata='{"model_id":"m","gpu_type":"T4"}')
    h.wait_until(lambda: endpoints(weir)[f"127.0.0.1:{b.port}"]["metadata"].get("gpu_type") == "T4", "its metadata", PATIENCE)
    node.tell("DELETE", a)
    h.wait_until(lambda: set(endpoints(weir)) == ids(b), "a to be gone", PATIENCE)
    assert stat(weir, "errors_total") == 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_it_is_away_and_comes_back(start_weir, upstream, rnacos, protocol):
    node = rnacos()
    a, b = upstream(name="a"), upstream(name="b")
    node.tell("POST", a)
    weir = start_weir(config(node, protocol))
    weir.wait_up(a)
    node.end()
    h.wait_until(lambda: stat(weir, "up") == 0, "the source to be down", PATIENCE)
    assert who(weir, 4) == {"a"}
    node.start()
    node.tell("POST", a)
    node.tell("POST", b)
    h.wait_until(lambda: stat(weir, "up") == 1, "the source to be up", PATIENCE)
    h.wait_until(lambda: weir.up(b) == 1, "b", PATIENCE)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_login(start_weir, upstream, rnacos, tmp_path, protocol):
    node = rnacos(password="s3cret")
    a = upstream(name="a")
    node.tell("POST", a)
    (tmp_path / "password").write_text("s3cret\n")
    weir = start_weir(config(node, protocol, username="nacos", password=f"file:{tmp_path}/password"))
    weir.wait_up(a)
    assert not weir.log_contains("s3cret")


def test_an_sdk_and_its_connection(start_weir, upstream, rnacos, keeper, tmp_path):
    """Nacos' own Python SDK registers there; Weir hears of it, and of its end."""
    if not os.access(PYTHON, os.X_OK):
        pytest.skip(f"{PYTHON} is not there: tools/deps.sh test makes it")
    node = rnacos()
    a = upstream(name="a")
    weir = start_weir(config(node, "grpc"))
    sdk = keeper.add(Sdk([PYTHON, os.path.join(HERE, "nacos3_client.py"), node.address], str(tmp_path)))
    sdk(f"register llm {a.port} m")
    h.wait_until(lambda: weir.up(a) == 1, "what the SDK registered", PATIENCE)
    assert endpoints(weir)[f"127.0.0.1:{a.port}"]["weight"] == 2
    sdk.child.kill()
    h.wait_until(lambda: not endpoints(weir), "the instance of a dead client to go", PATIENCE)


def test_an_agent_registers_beats_updates_and_leaves(agent, engine, rnacos):                # noqa: F811
    node = rnacos()
    a = agent(f"nacos://{node.address}", engine.url, "--gpus", "none", "--metadata", "rack=7", "--interval", "50ms",
              advertise="127.0.0.1:8000")
    me = "127.0.0.1:8000"
    h.wait_until(lambda: me in node.hosts(), "the registration", PATIENCE)
    found = node.hosts()[me]
    assert found["healthy"] and found["ephemeral"]
    assert (found["metadata"]["model_id"], found["metadata"]["rack"], found["metadata"]["engine"]) == ("m", "7", "vllm")
    engine.running = 9
    h.wait_until(lambda: node.hosts()[me]["metadata"]["current_requests"] == "9", "the update", PATIENCE)
    node("DELETE", "/nacos/v1/ns/instance", serviceName="llm", ip="127.0.0.1", port=8000, ephemeral="true")
    h.wait_until(lambda: me in node.hosts(), "the registration to come back", PATIENCE)
    a.stop()
    h.wait_until(lambda: me not in node.hosts(), "its deregistration", PATIENCE)


def test_from_agent_to_gateway(agent, start_weir, start_worker, rnacos):                    # noqa: F811
    node = rnacos()
    worker = start_worker("--time-scale", "200")
    weir = start_weir(config(node, "auto"))
    a = agent(f"nacos://{node.address}", worker.url, "--gpus", "none", advertise=worker.url.split("//", 1)[1])
    h.wait_until(lambda: weir.up(worker) == 1, "the worker", PATIENCE)
    assert weir.chat().status == 200
    a.stop()
    h.wait_until(lambda: weir.up(worker) is None, "the worker to be gone", PATIENCE)


def test_an_empty_service_becomes_one_with_instances(start_weir, upstream, rnacos):
    node = rnacos()
    a = upstream(name="a")
    weir = start_weir(config(node, "grpc"))
    h.wait_until(lambda: stat(weir, "up") == 1, "the subscription", PATIENCE)
    becomes(weir)
    node.tell("POST", a)
    h.wait_until(lambda: weir.up(a) == 1, "a", PATIENCE)
    node.tell("DELETE", a)
    h.wait_until(lambda: not endpoints(weir), "an empty list", PATIENCE)
