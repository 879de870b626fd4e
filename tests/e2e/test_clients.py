# SPDX-License-Identifier: Apache-2.0
"""Official clients, unchanged, through Weir to emulated workers. Versions are pinned beside this file."""
import json
import os
import subprocess
import urllib.parse

import openai
import pytest

import weir_harness as h

MODEL = "llama-3-8b"
MESSAGES = [{"role": "user", "content": "Why do weirs hum?"}]


def node(script, **env):
    """Run a script of js/ with the pinned packages; the JSON it prints."""
    done = subprocess.run(["node", os.path.join(h.ROOT, "tests", "e2e", "js", script)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=4 * h.PATIENCE,
                          env={**os.environ, "NODE_PATH": os.path.join(h.ROOT, "build", "npm", "node_modules"), **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def pinned(package):
    with open(os.path.join(h.ROOT, "tests", "e2e", "js", "package.json"), encoding="utf-8") as f:
        return json.load(f)["dependencies"][package]


@pytest.fixture
def gateway(start_weir, start_worker):
    """Weir and two emulated workers of different GPUs that register themselves."""
    weir = start_weir()
    registry = "http://%s:%d" % weir.registry
    workers = [start_worker("--registry", registry, "--service", "demo", "--report", "100ms", "--time-scale", "50",
                            gpu=gpu, model=MODEL) for gpu in ("a100", "t4")]
    for w in workers:
        weir.wait_up(w)
    weir.workers = workers
    return weir


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="sk-test", max_retries=0, timeout=h.PATIENCE) as c:
        yield c


def test_python_chat_whole_and_streamed(client):
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8)
    assert whole.object == "chat.completion" and whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 8
    text, usage, finish = "", None, None
    for chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
            finish = chunk.choices[0].finish_reason or finish
    assert text and finish == "length" and usage.completion_tokens == 8


def test_python_completions_embeddings_models(client):
    done = client.completions.create(model=MODEL, prompt="A weir is", max_tokens=4)
    assert done.object == "text_completion" and done.usage.completion_tokens == 4
    vectors = client.embeddings.create(model=MODEL, input=["one", "two"]).data
    assert len(vectors) == 2 and len(vectors[0].embedding) == len(vectors[1].embedding) > 0
    assert [m.id for m in client.models.list()] == [MODEL]


def test_python_errors_are_the_clients_own_exceptions(client):
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(model="no-such-model", messages=MESSAGES)
    assert (e.value.status_code, e.value.code) == (404, "model_not_found")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="no-such-model", messages=MESSAGES, stream=True)
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers={"X-Required-Memory": "lots"})
    assert e.value.code == "invalid_header"


def test_python_client_that_leaves_a_stream(gateway, client):
    for w in gateway.workers:           # it does not end by itself before the client is gone
        assert w.http("POST", "/fault", "hang_after=3").status == 200
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4000, stream=True)
    next(iter(stream))
    stream.close()
    h.wait_until(lambda: gateway.inflight() == 0, "the request to be cancelled")
    h.wait_until(lambda: gateway.metrics().sum("weir_requests_total", outcome="client_gone") == 1, "it to be counted")


def test_python_client_retries_a_503_by_itself(start_weir, upstream):
    """Retry-After is one that a stock client honours: the second attempt finds the endpoint."""
    weir = start_weir()
    up = upstream(name="u", models=(MODEL,))
    weir.register(up, models=(MODEL,))
    weir.deregister("u")
    weir.wait_gone(up)
    with openai.OpenAI(base_url=weir.url + "/v1", api_key="k", max_retries=0) as c, \
            pytest.raises(openai.InternalServerError) as e:
        c.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert (e.value.status_code, e.value.code) == (503, "no_endpoint")
    assert 0 < int(e.value.response.headers["retry-after"]) <= 60


def test_npm_openai(gateway):
    seen = node("openai_client.js", BASE_URL=gateway.url + "/v1", MODEL=MODEL)
    assert seen["version"] == pinned("openai")
    assert seen["models"] == [MODEL]
    assert seen["chat"]["object"] == "chat.completion" and seen["chat"]["role"] == "assistant"
    assert seen["chat"]["text"] and seen["chat"]["finish"] == "length" and seen["chat"]["tokens"] == 8
    assert seen["stream"]["text"] and seen["stream"]["finish"] == "length" and seen["stream"]["tokens"] == 8
    assert seen["completion"] == {"object": "text_completion", "tokens": 4}
    assert seen["embedding"] == {"n": 2, "same": True, "number": "number"}
    for key in ("unknown", "unknownStream"):
        assert (seen[key]["name"], seen[key]["status"], seen[key]["code"]) == ("NotFoundError", 404, "model_not_found")
    assert (seen["badHeader"]["name"], seen["badHeader"]["code"]) == ("BadRequestError", "invalid_header")
    h.wait_until(lambda: gateway.inflight() == 0, "the stream that was left to be cancelled")


def test_npm_nacos(weir):
    """Register, subscribe, see changes, deregister: the HTTP-era SDK finds a Nacos it knows."""
    seen = node("nacos_client.js", SERVER="%s:%d" % weir.registry)
    assert seen["version"] == pinned("nacos")
    live = {"current_requests": "0"}        # Weir's own, beside what was registered
    assert seen["metadata"] == {"7001": {"model_id": "m", "gpu_type": "A100", "team": "blue", **live},
                                "7002": {"model_id": "m", "gpu_type": "T4", **live}}
    assert seen["healthy"] == [True, True]
    assert seen["status"] == "UP"
    assert seen["ports"] == [[7001], [7001, 7002], [7002]]
    assert nacos(weir.registry_http, "GET", "instance/list", serviceName="chat").json()["hosts"] == []


def test_python_nacos(weir):
    """The last of the HTTP-era Python SDKs (1.0.0)."""
    import nacos
    client = nacos.NacosClient("http://%s:%d" % weir.registry, namespace="public")
    meta = {"model_id": "m", "gpu_type": "A100"}
    assert client.add_naming_instance("chat", "127.0.0.1", 7001, metadata=meta)
    found = client.list_naming_instance("chat")["hosts"]
    assert [(i["ip"], i["port"], i["healthy"]) for i in found] == [("127.0.0.1", 7001, True)]
    assert found[0]["metadata"].items() >= meta.items()
    beat = client.send_heartbeat("chat", "127.0.0.1", 7001, metadata=meta)
    assert beat["clientBeatInterval"] == 5000
    assert client.modify_naming_instance("chat", "127.0.0.1", 7001, metadata={"gpu_type": "T4"})
    detail = client.get_naming_instance("chat", "127.0.0.1", 7001)
    assert detail["metadata"].items() >= {"model_id": "m", "gpu_type": "T4"}.items()    # merged key by key
    assert client.remove_naming_instance("chat", "127.0.0.1", 7001)
    assert client.list_naming_instance("chat")["hosts"] == []


def nacos(http, method, path, **fields):
    """A call as the HTTP-era SDKs make it: everything in the query."""
    r = http(method, f"/nacos/v1/ns/{path}?{urllib.parse.urlencode(fields)}")
    assert r.status == 200, (method, path, fields, r.status, r.body)
    return r


def test_app_and_sidecar_write_the_same_instance_1000_rounds(weir):
    """An app beats its static metadata, a sidecar writes only dynamic keys; no key is ever lost."""
    where = {"serviceName": "chat", "ip": "127.0.0.1", "port": "7001"}
    static = {"model_id": "m", "gpu_type": "A100"}
    app, sidecar = h.Http(weir.registry), h.Http(weir.registry)
    nacos(app, "POST", "instance", **where, metadata=json.dumps(static))
    beat = json.dumps({**where, "serviceName": "DEFAULT_GROUP@@chat", "port": 7001, "cluster": "DEFAULT", "weight": 1,
                       "metadata": static})
    which = json.dumps([{"ip": "127.0.0.1", "port": "7001", "ephemeral": True, "clusterName": "DEFAULT"}])
    for n in range(1000):
        nacos(app, "PUT", "instance/beat", serviceName="chat", beat=beat)
        dynamic = {"gpu_util": str(n % 100), "queue_length": str(n)}
        nacos(sidecar, "PUT", "instance/metadata/batch", serviceName="chat", instances=which, metadata=json.dumps(dynamic))
        found = nacos(app, "GET", "instance", **where).json()["metadata"]
        assert {k: found.get(k) for k in (*static, *dynamic)} == {**static, **dynamic}, f"round {n}"
    app.close()
    sidecar.close()
