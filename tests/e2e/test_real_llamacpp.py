# SPDX-License-Identifier: Apache-2.0
"""A real engine: llama.cpp's own server, two of them, with a tiny model of random weights that make_gguf.py writes.

The server comes from WEIR_LLAMA_SERVER, from PATH, or from where tools/llama_server.sh builds it.
"""
import json
import os
import shutil
import socket
import threading

import pytest

import agent_util
import make_gguf
from weir_harness import ROOT, Http, Metrics, Process, address, wait_until

pytestmark = pytest.mark.long

BUILT = os.path.join(ROOT, "build", "tools", "llama", "bin", "llama-server")


def find_server():
    for path in (os.environ.get("WEIR_LLAMA_SERVER"), shutil.which("llama-server"), BUILT):
        if path and os.access(path, os.X_OK):
            return path
    pytest.skip("no llama-server: set WEIR_LLAMA_SERVER, or build one with tools/llama_server.sh")


class LlamaServer(Process):
    """One engine process on a free port. Another program could take the port in between: then it is tried again."""

    def __init__(self, binary, model, *args):
        for _ in range(5):
            with socket.create_server(("127.0.0.1", 0)) as s:
                port = s.getsockname()[1]
            super().__init__([binary, "-m", model, "--alias", "tiny", "--host", "127.0.0.1", "--port", port,
                              "-np", "2", "-c", "2048", "-t", "1", "--offline", *args])
            self.url = f"http://127.0.0.1:{port}"
            self.http = Http(address(f"127.0.0.1:{port}"))
            try:
                wait_until(lambda: not self.running() or self.answers(), "the model to be loaded", 60)
            except AssertionError:
                self.kill()
                raise
            if self.running():
                return
        raise AssertionError(self.output)

    def answers(self):
        try:
            return self.http("GET", "/health").status == 200
        except OSError:
            self.http.close()
            return False

    def number(self, name):
        return Metrics(self.http("GET", "/metrics").body.decode()).value(name)

    def stop(self):
        self.http.close()
        if self.running():
            super().stop(expect=None)
        else:
            self.wait()


@pytest.fixture
def engines(keeper, tmp_path):
    binary = find_server()
    model = str(tmp_path / "tiny.gguf")
    make_gguf.write(model)
    return lambda *args, n=2: [keeper.add(LlamaServer(binary, model, *args)) for _ in range(n)]


def gateway(start_weir, engines):
    weir = start_weir({"health": {"interval": "200ms", "scrape_interval": "100ms"},
                       "discovery": [{"type": "static", "endpoints": [{"url": e.url} for e in engines]}]})

    def told():
        found = weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]
        return [e["health"] for e in found if e["models"]] == ["up"] * len(engines)
    wait_until(told, "all engines to be up with their models")
    wait_until(lambda: weir.http("POST", "/v1/chat/completions", ask(1)).status == 200, "a first answer")
    return weir


def ask(tokens, stream=False):
    return {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": tokens, "stream": stream,
            "grammar": "root ::= [a-z]+", "ignore_eos": True}


def stream(client, weir, tokens):
    """The text of one streamed answer, which must be whole."""
    c = client(weir)
    try:
        c.request(body=ask(tokens, stream=True))
        status, _ = c.head()
        assert status == 200, status
        words, finished = [], None
        while True:
            event = c.event()
            assert event is not None, "the stream ended without [DONE]"
            if event == "[DONE]":
                return "".join(words), finished
            choice = json.loads(event)["choices"][0]
            words.append(choice["delta"].get("content") or "")
            finished = choice["finish_reason"] or finished
    finally:
        c.close()


def test_a_real_engine_is_found_out_and_read(start_weir, engines, client):
    a, = engines("--metrics", n=1)
    weir = gateway(start_weir, [a])
    weir.wait_line("is llamacpp")
    assert [m["id"] for m in weir.http("GET", "/v1/models").json()["data"]] == ["tiny"]
    text, finished = stream(client, weir, 30)
    assert len(text) == 30 and text.isalpha() and text.islower() and finished == "length"
    wait_until(lambda: weir.metrics().sum("weir_endpoint_running") == 0, "the numbers to be read")
    assert weir.metrics().sum("weir_stale_endpoints") == 0
    assert a.number("llamacpp:tokens_predicted_total") >= 30


def test_without_metrics_its_slots_are_read(start_weir, engines, client):
    a, = engines(n=1)
    weir = gateway(start_weir, [a])
    wait_until(lambda: weir.metrics().all("weir_endpoint_running"), "the slots to be read")
    # While a long answer streams its slot is seen to work.
    c = client(weir)
    c.request(body=ask(1500, stream=True))
    assert c.head()[0] == 200
    c.event()
    c.close()
    wait_until(lambda: weir.metrics().sum("weir_inflight") == 0 and
               weir.metrics().sum("weir_endpoint_running") == 0, "the cancelled request to end in the engine")


def kill_one_under_load(weir, client, a, b):
    """Requests that begin after the kill of a never see it; only streams that were on it at that moment may break."""
    killed, enough = threading.Event(), threading.Event()
    lock = threading.Lock()
    done, broken, wrong = [0], [], []

    def run():
        for _ in range(25):
            late = killed.is_set()
            try:
                text, finished = stream(client, weir, 20)
                assert len(text) == 20 and finished == "length", (text, finished)
            except (AssertionError, EOFError, OSError) as e:
                (wrong if late else broken).append(repr(e))
            with lock:
                done[0] += 1
                if done[0] == 40:
                    enough.set()

    threads = [threading.Thread(target=run) for _ in range(6)]
    for t in threads:
        t.start()
    assert enough.wait(120)
    shares = [e.number("llamacpp:tokens_predicted_total") for e in (a, b)]
    a.kill()
    a.wait()                            # while it dies its listener still takes connections
    killed.set()
    for t in threads:
        t.join(120)
    assert done[0] == 150 and not wrong, wrong
    assert len(broken) <= 6, broken
    assert min(shares) > 0, shares
    wait_until(lambda: sorted(v for _, v in weir.metrics().all("weir_endpoint_up")) == [0, 1], "one to be down")
    assert weir.metrics().sum("weir_inflight") == 0
    for _ in range(10):
        assert len(stream(client, weir, 5)[0]) == 5


def test_one_of_two_is_killed_under_load(start_weir, engines, client):
    a, b = engines("--metrics")
    kill_one_under_load(gateway(start_weir, [a, b]), client, a, b)


def test_two_with_their_agents_and_one_is_killed_under_load(start_weir, engines, keeper, client):
    """Who is there, how busy, and that one is gone: all of it by the agents beside them, on one device of a scripted NVML."""
    weir = start_weir({"health": {"interval": "200ms", "scrape_interval": "off"}})
    registry = "http://%s:%d" % weir.registry
    gpus = keeper.add(agent_util.Gpus("count 1\n" + agent_util.one_gpu(0)))
    a, b = engines("--metrics")
    agents = [keeper.add(agent_util.Agent(registry, e.url, "--id", name, advertise=e.url.split("//")[1], gpus=gpus))
              for name, e in (("a", a), ("b", b))]

    def told(name):
        found = weir.registry_http("GET", f"/v1/endpoints/{name}")
        return found.json() if found.status == 200 else {}
    for name in ("a", "b"):
        wait_until(lambda: "running" in (told(name).get("load") or {}), f"a report of {name}")
        found = told(name)
        assert (found["engine"], [m["id"] for m in found["models"]]) == ("llamacpp", ["tiny"])
        assert [d["uuid"] for d in found["devices"]] == ["GPU-0000"]
        assert (found["load"]["state"], found["load"]["gpu_util_percent"]) == ("healthy", 37)
        assert found["load"]["memory_free_bytes"] == 21474836480
    wait_until(lambda: weir.http("POST", "/v1/chat/completions", ask(1)).status == 200, "a first answer")
    kill_one_under_load(weir, client, a, b)
    wait_until(lambda: told("a")["load"]["state"] == "unhealthy", "its agent to say so")
    assert told("b")["load"]["state"] == "healthy"
    assert [x.stop() for x in agents] == [0, 0]
    wait_until(lambda: told("a") == told("b") == {}, "both to be deregistered")
