# SPDX-License-Identifier: Apache-2.0
"""Engines without an agent: what the gateway finds out by asking, and what it does with it. Field reports C9, F10, J2,
J3, J7 among others."""
import json
import threading
import time

import pytest

import engine_doubles as d
from weir_harness import PATIENCE, Http, wait_until

POLICY = "chain"

pytestmark = pytest.mark.sanitize

FAST = {"interval": "60ms", "scrape_interval": "50ms"}      # often; how long an answer may take is not what these are about
ONCE = {"scrape_interval": "10m"}                           # what was told counts for three intervals: to the end of the test


@pytest.fixture
def gateway(start_weir, keeper):
    """gateway(engine...): a Weir with them as static URLs, checked and scraped often; more=: other configuration."""
    def start(*engines, more=None, health=None, endpoints=None):
        for e in engines:
            keeper.add(e)
        weir = start_weir({"health": {**FAST, **(health or {})},
                           "discovery": [{"type": "static",
                                          "endpoints": endpoints or [{"url": e.url} for e in engines]}],
                           **(more or {})})
        return weir
    return start


def endpoint(engine):
    return engine.url.split("//", 1)[1]


def gauge(weir, name, engine):
    found = weir.metrics().all(name, endpoint=endpoint(engine))
    return found[0][1] if found else None


def wait_gauge(weir, name, engine, value):
    wait_until(lambda: gauge(weir, name, engine) == value, f"{name} of {engine.name} to be {value}")


def wait_serving(weir, *engines):
    """Until each is up with a model list, as far as the control side goes, and the data plane has a model."""
    def told():
        found = {e["url"]: e for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]}
        return all(e.url in found and found[e.url]["health"] == "up" and found[e.url]["models"] for e in engines)
    wait_until(told, "all engines to be up with their models")
    wait_until(lambda: weir.chat().status == 200, "a first answer")


def models(weir):
    return sorted(m["id"] for m in weir.http("GET", "/v1/models").json()["data"])


def wait_models(weir, *ids):
    wait_until(lambda: models(weir) == sorted(ids), f"the model list to be {ids}")


@pytest.mark.parametrize("make, running, waiting", [
    (lambda: d.vllm(running=3, waiting=2), 3, 2),
    (lambda: d.sglang(running=4, waiting=1), 4, 1),
    (lambda: d.llamacpp(busy=2, metrics=True), 2, 0),
    (lambda: d.llamacpp(busy=1), 1, None),
    (lambda: d.tgi(running=5, waiting=6), 5, 6),
    (lambda: d.tei(waiting=7), None, 7),
    (lambda: d.Triton([{"name": "m", "version": "1", "state": "READY"}], pending=8), None, 8),
    (lambda: d.ollama(), None, None),
    (lambda: d.trtllm(running=3, waiting=2), 3, 2),
    (lambda: d.FastChat(queue=4), 4, None),
    (lambda: d.sdwebui(models=("m",), jobs=1), 1, None),
    (lambda: d.oip(), None, None),
    (lambda: d.oip(index=False), None, None),
    (lambda: d.plain(models=("m",)), None, None),
], ids=["vllm", "sglang", "llamacpp", "llamacpp-slots", "tgi", "tei", "triton", "ollama", "trtllm", "fastchat",
        "sdwebui", "oip", "oip-names", "plain"])
def test_each_engine_is_found_out_and_read(gateway, make, running, waiting):
    engine = make()
    weir = gateway(engine)
    wait_models(weir, "m")
    wait_gauge(weir, "weir_endpoint_up", engine, 1)
    wait_gauge(weir, "weir_endpoint_running", engine, running)
    wait_gauge(weir, "weir_endpoint_waiting", engine, waiting)
    stale = 0 if (running, waiting) != (None, None) else 1
    wait_until(lambda: weir.metrics().value("weir_stale_endpoints") == stale, f"{stale} to be stale")
    assert weir.chat().status == 200
    assert not weir.log_contains("ERROR")


def test_kv_capacity_and_use_are_read(gateway):
    engine = d.vllm(kv=0.25, blocks=100)
    weir = gateway(engine)
    wait_gauge(weir, "weir_endpoint_kv_used_ratio", engine, 0.25)


def test_c9_frozen_metrics_do_not_send_all_to_one(gateway):
    """One engine always says 0 running, the other always 1: of eight at once at most five go to the first."""
    opened = threading.Event()

    def held(conn, request):
        assert opened.wait(4 * PATIENCE)
        conn.answer(request)

    a, b = d.vllm(behaviour=held), d.vllm(running=1, behaviour=held)
    weir = gateway(a, b, health=ONCE)
    opened.set()
    wait_serving(weir, a, b)
    opened.clear()
    a.requests.clear()
    b.requests.clear()
    wait_gauge(weir, "weir_endpoint_running", b, 1)
    wait_gauge(weir, "weir_endpoint_running", a, 0)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(one(weir))) for _ in range(8)]

    def one(w):
        http = Http(w.data)
        try:
            return http("POST", "/v1/chat/completions", {"model": "m", "messages": []}).status
        finally:
            http.close()
    for t in threads:
        t.start()
    wait_until(lambda: a.hits() + b.hits() == 8, "eight requests to arrive")
    assert a.hits() <= 5, (a.hits(), b.hits())
    opened.set()
    for t in threads:
        t.join()
    assert answers == [200] * 8


def hang(conn):
    conn.upstream.hung.wait(4 * PATIENCE)


@pytest.mark.parametrize("page", [hang, (404, ""), (500, "oops"), (200, "<html>} 17 {{{\n"), (200, "")],
                         ids=["hangs", "404", "500", "garbage", "empty"])
def test_f10_no_numbers_never_means_unhealthy(gateway, page):
    silent, telling = d.vllm(), d.vllm()
    silent.pages["/metrics"] = page
    silent.hung = threading.Event()
    weir = gateway(silent, telling, health=ONCE)
    wait_gauge(weir, "weir_endpoint_running", telling, 0)
    wait_serving(weir, silent, telling)
    before = silent.hits()              # perhaps it was the first that could be asked
    assert weir.metrics().value("weir_stale_endpoints") == 1
    assert [weir.chat().status for _ in range(10)] == [200] * 10
    assert silent.hits() == before      # fresh ones that have room are preferred
    silent.hung.set()


@pytest.mark.parametrize("page", [hang, (404, ""), (500, "oops"), (200, "<html>} 17 {{{\n"), (200, "")],
                         ids=["hangs", "404", "500", "garbage", "empty"])
def test_f10_one_that_told_numbers_and_stops_goes_stale_and_goes_on_serving(gateway, page):
    silent, telling = d.vllm(), d.vllm()
    silent.pages["/metrics"] = page
    silent.hung = telling.hung = threading.Event()
    weir = gateway(silent, telling)
    wait_gauge(weir, "weir_endpoint_running", telling, 0)
    wait_serving(weir, silent, telling)
    silent.requests.clear()
    telling.pages["/metrics"] = page
    telling.wait_asked("/metrics", 1)   # an answer with numbers is on its way no more
    wait_until(lambda: weir.metrics().value("weir_stale_endpoints") == 2, "both to be stale")
    before = telling.hits()
    assert [weir.chat().status for _ in range(10)] == [200] * 10
    assert silent.hits() >= 3 and telling.hits() >= before + 3
    assert gauge(weir, "weir_endpoint_up", telling) == 1
    silent.hung.set()


def test_a_report_counts_before_what_we_scrape(start_weir, keeper):
    weir = start_weir({"health": FAST})
    engine = keeper.add(d.vllm(running=50))
    weir.register(engine, id="vllm", engine="vllm")
    weir.load("vllm", 1, running=2, waiting=0)
    asked = engine.asked("/metrics")    # and perhaps once more: what is under way
    assert weir.metrics().value("weir_endpoint_running", endpoint="vllm") == 2
    engine.wait_asked("/health", 5)
    assert weir.metrics().value("weir_endpoint_running", endpoint="vllm") == 2
    assert engine.asked("/metrics") <= asked + 1


def test_j3_adapters_by_name(gateway):
    a = d.vllm(models=("base", {"id": "lora_1", "parent": "base"}))
    b = d.vllm(models=("base",))
    weir = gateway(a, b)
    wait_models(weir, "base", "lora_1")
    wait_gauge(weir, "weir_endpoint_up", a, 1)
    wait_gauge(weir, "weir_endpoint_up", b, 1)
    assert [weir.chat("lora_1").status for _ in range(6)] == [200] * 6
    assert (a.hits(), b.hits()) == (6, 0)
    # Numbers of 50 ms are soon stale on a slow machine, and the other one is preferred then; not for ever.
    wait_until(lambda: weir.chat("base").status == 200 and b.hits() > 0, "both to serve the base")
    # Once the other has loaded it both serve it.
    b.pages["/v1/models"] = a.pages["/v1/models"]
    before = b.hits()
    wait_until(lambda: weir.chat("lora_1").status == 200 and
               any(r.asks("model") == "lora_1" for r in b.requests), "the second to get the adapter's requests")
    assert b.hits() > before
    # Unloaded at one: all go to the other.
    a.pages["/v1/models"] = d.openai_list(("base",), "vllm")

    def only_b():
        at = a.hits()
        return [weir.chat("lora_1").status for _ in range(4)] == [200] * 4 and a.hits() == at
    wait_until(only_b, "the first to be left out")
    # Unloaded everywhere it is still known, as every model that was seen within a day: not here now. One never seen is not.
    b.pages["/v1/models"] = d.openai_list(("base",), "vllm")
    r = wait_until(lambda: (lambda got: got if got.status != 200 else None)(weir.chat("lora_1")), "nobody to have it")
    assert r.error() == (503, "no_endpoint") and r.header("Retry-After")
    assert weir.chat("lora_2").error() == (404, "model_not_found")
    assert weir.chat("base").status == 200


def test_j7_lists_of_every_shape(gateway):
    """vLLM's, llama.cpp's, Ollama's, a list of 5 MB, a chunked one; two that are broken do not empty it."""
    big = d.plain()
    filler = "x" * 1000

    def chunked(conn):
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        text = json.dumps(d.openai_list(("chunked",), "somebody")[1])
        for i in range(0, len(text), 7):
            conn.send_chunk(text[i:i + 7])
        conn.send("0\r\n\r\n")

    big.pages["/v1/models"] = (200, {"data": [{"id": f"big-{i % 20}", "filler": filler} for i in range(5000)]})
    odd = d.plain()
    odd.pages["/v1/models"] = chunked
    broken, wrong = d.plain(), d.plain()
    broken.pages["/v1/models"] = (200, '{"data":[{"id":"cut')
    wrong.pages["/v1/models"] = (200, '["a", 1]')
    weir = gateway(d.vllm(models=("m", "n")), d.llamacpp(models=("m", "q.gguf")), d.ollama(models=("phi:1b",)),
                   big, odd, broken, wrong)
    wait_models(weir, "m", "n", "q.gguf", "phi:1b", "chunked", *(f"big-{i}" for i in range(20)))
    # A list that breaks later leaves what it told before.
    odd.pages["/v1/models"] = (200, "nonsense")
    at = odd.asked("/v1/models")
    wait_until(lambda: odd.asked("/v1/models") >= at + 2, "the broken list to be asked for")
    assert "chunked" in models(weir)


def test_j2_aliases(gateway):
    engine = d.vllm(models=("org/long-name",))
    weir = gateway(engine, more={"models": {"org/long-name": {"aliases": ["short"]}}})
    wait_models(weir, "org/long-name", "short")
    wait_gauge(weir, "weir_endpoint_up", engine, 1)
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/rerank"):
        r = weir.http("POST", path, {"model": "short", "input": "x", "prompt": "x", "messages": []})
        assert r.status == 200, (path, r.body)
    assert {r.asks("model") for r in engine.requests} == {"org/long-name"}


def test_one_that_is_loading_gets_nothing_until_it_is_ready(gateway):
    ready, loading = d.llamacpp(), d.llamacpp()
    loading.pages["/health"] = (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
    weir = gateway(ready, loading)
    wait_serving(weir, ready)
    loading.wait_asked("/health", 3)
    assert [weir.chat().status for _ in range(6)] == [200] * 6
    assert loading.hits() == 0
    loading.pages["/health"] = (200, {"status": "ok"})
    wait_gauge(weir, "weir_endpoint_up", loading, 1)
    wait_until(lambda: weir.chat().status == 200 and loading.hits() > 0, "the other to be used")


def test_a_model_that_is_loading_while_others_are_ready(gateway):
    """Triton tells a state for each model: one of two is still loading there, and ready elsewhere."""
    a = d.Triton([{"name": "m", "version": "1", "state": "READY"}, {"name": "n", "version": "1", "state": "LOADING"}])
    b = d.Triton([{"name": "n", "version": "1", "state": "READY"}, {"name": "gone", "state": "UNAVAILABLE"}])
    weir = gateway(a, b)
    wait_models(weir, "m", "n")
    wait_gauge(weir, "weir_endpoint_up", a, 1)
    wait_gauge(weir, "weir_endpoint_up", b, 1)
    assert [weir.chat("n").status for _ in range(5)] == [200] * 5
    assert (a.api.hits(), b.api.hits()) == (0, 5)
    assert weir.chat("m").status == 200
    assert a.api.hits() == 1
    a.api.pages["/v2/repository/index"] = (200, [{"name": "n", "version": "1", "state": "READY"}])
    wait_until(lambda: weir.chat("n").status == 200 and a.api.hits() > 1, "the loaded one to be used")


def test_the_last_model_of_an_engine_is_unloaded(gateway):
    """What says that it has none any more gets nothing more; one that says nothing keeps what it had."""
    engine = d.oip()
    weir = gateway(engine)
    wait_models(weir, "m")
    wait_until(lambda: weir.chat().status == 200, "a first answer")
    index = engine.pages["/v2/repository/index"]
    engine.pages["/v2/repository/index"] = (500, "no")
    engine.wait_asked("/v2/repository/index", 2)
    assert models(weir) == ["m"] and weir.chat().status == 200
    engine.pages["/v2/repository/index"] = (200, [{"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": ""}])
    wait_models(weir)
    wait_until(lambda: weir.chat().status == 503, "it not to be offered")
    engine.pages["/v2/repository/index"] = index
    wait_models(weir, "m")
    wait_until(lambda: weir.chat().status == 200, "an answer again")


def test_context_length(gateway):
    """The long request goes where it fits; 400 where it fits nowhere for sure; an estimate refuses nothing."""
    short, long = d.vllm(max_model_len=1000), d.vllm(max_model_len=4000)
    weir = gateway(short, long)
    wait_serving(weir, short, long)
    short.requests.clear()
    long.requests.clear()
    assert [weir.chat(max_tokens=2000).status for _ in range(6)] == [200] * 6
    assert (short.hits(), long.hits()) == (0, 6)
    assert weir.chat(max_tokens=4000).error() == (400, "context_length_exceeded")
    text = "antidisestablishmentarianism " * 600         # 17,400 bytes: 4,350 tokens by our estimate, 1,088 at least
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    assert weir.http("POST", "/v1/chat/completions", body).status == 200
    assert (short.hits(), long.hits()) == (0, 7)
    body["messages"][0]["content"] = text * 4
    assert weir.http("POST", "/v1/chat/completions", body).error() == (400, "context_length_exceeded")
    # A batch: each of its prompts has the context for itself.
    batch = {"model": "m", "prompt": ["x" * 3000] * 40, "max_tokens": 10}
    assert weir.http("POST", "/v1/completions", batch).status == 200
    # Embeddings are cut, not refused.
    assert weir.http("POST", "/v1/embeddings", {"model": "m", "input": text * 10}).status == 200


def test_a_restart_as_another_engine_is_noticed(gateway, keeper):
    """The same address, first llama.cpp, then vLLM."""
    first = d.llamacpp(busy=1)
    weir = gateway(first)
    wait_gauge(weir, "weir_endpoint_running", first, 1)
    second = d.vllm(running=9)
    first.pages["/health"] = lambda conn: conn.hang_up()
    wait_gauge(weir, "weir_endpoint_up", first, 0)
    first.pages = second.pages
    second.stop()
    wait_gauge(weir, "weir_endpoint_running", first, 9)
    wait_gauge(weir, "weir_endpoint_up", first, 1)


def test_an_engine_that_was_restarted_is_a_new_generation(gateway):
    """What its own numbers say of the process, where nobody registers it anew: the old one's breaker is not its."""
    fails = threading.Event()
    fails.set()

    def broken_or_not(conn, request):
        if fails.is_set():
            conn.respond(500, "{}")
        else:
            conn.answer(request)

    engine, other = d.vllm(behaviour=broken_or_not), d.vllm()
    page = engine.pages["/metrics"][1]
    engine.pages["/metrics"] = (200, page + "process_start_time_seconds 1.764581611e+09\n")
    weir = gateway(engine, other, more={"breaker": {"consecutive": 2, "cooldown": "1h", "cooldown_max": "1h", "stall": "off"}})
    wait_gauge(weir, "weir_endpoint_running", engine, 0)
    wait_until(lambda: all(gauge(weir, "weir_endpoint_up", e) == 1 for e in (engine, other)), "both to be up")

    def breaker():
        found = {e["url"]: e["breaker"] for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]}
        return found[engine.url]["state"]
    wait_until(lambda: weir.chat() and breaker() == "open", "its breaker to be open")
    fails.clear()
    engine.wait_asked("/metrics", 3)
    assert breaker() == "open"          # the same process goes on
    engine.pages["/metrics"] = (200, page + "process_start_time_seconds 1.764581671e+09\n")
    wait_until(lambda: breaker() == "closed" and gauge(weir, "weir_endpoint_up", engine) == 1, "a new generation")
    weir.wait_line("later start time: a new generation")
    before = engine.hits()
    statuses = set()

    def used():
        statuses.add(weir.chat().status)
        return engine.hits() > before
    wait_until(used, "the new process to be used")
    assert statuses == {200}


def test_sglang_is_not_checked_more_often_than_it_can_bear(gateway):
    """Its health check makes the engine work: with an interval of 60 ms it is asked again only after 5 s."""
    engine = d.sglang()
    weir = gateway(engine)
    wait_gauge(weir, "weir_endpoint_running", engine, 0)
    at, began = engine.asked("/health"), time.monotonic()
    engine.wait_asked("/metrics", 12)
    more = engine.asked("/health") - at
    # What was under way, and one every 5 s.
    assert more <= 2 + (time.monotonic() - began) / 5


def test_scraping_can_be_turned_off(gateway):
    engine = d.vllm(running=3)
    weir = gateway(engine, health={"scrape_interval": "off"})
    wait_gauge(weir, "weir_endpoint_up", engine, 1)
    engine.wait_asked("/health", 3)
    assert engine.asked("/metrics") == 0
    assert gauge(weir, "weir_endpoint_running", engine) is None


# ---- models in paths ----

def test_the_model_in_a_path_of_kserve_v2(gateway):
    """/v2/models/NAME/infer, with and without a version: the body is not looked at, and an alias is put right there."""
    a, b = d.oip(("resnet",)), d.oip(("bert",))
    weir = gateway(a, b, more={"models": {"bert": {"aliases": ["b t"]}}})
    wait_models(weir, "bert", "resnet", "b t")
    wait_gauge(weir, "weir_endpoint_up", b, 1)
    infer = {"id": "1", "parameters": {"priority": 1}, "inputs": []}
    for path in ("/v2/models/resnet/infer", "/v2/models/resnet/versions/1/infer", "/v2/models/resnet/generate_stream"):
        wait_until(lambda: weir.http("POST", path, infer).status == 200, "an answer")
    assert {r.path for r in a.requests} == {"/v2/models/resnet/infer", "/v2/models/resnet/versions/1/infer",
                                            "/v2/models/resnet/generate_stream"}
    assert json.loads(a.requests[-1].body) == infer             # what it asks for is the engine's to read
    assert weir.http("POST", "/v2/models/b%20t/infer", infer).status == 200
    assert [r.path for r in b.requests] == ["/v2/models/bert/infer"]
    assert weir.http("POST", "/v2/models/none/infer", infer).error() == (404, "model_not_found")
    assert weir.http("GET", "/v2/repository/index").error() == (404, "route_not_found")    # control paths stay closed


def test_tensorflow_serving_is_told_by_its_series_and_asked_for_its_model(gateway):
    engine = d.tfserving("half")
    weir = gateway(engine, endpoints=[{"url": engine.url, "models": ["half"]}])
    wait_until(lambda: weir.http("POST", "/v1/models/half:predict", {"instances": [1]}).status == 200, "an answer")
    wait_until(lambda: engine.asked("/v1/models/half") > 1, "the state of its model to be its health")
    wait_gauge(weir, "weir_endpoint_up", engine, 1)
    assert weir.http("POST", "/v1/models/half/versions/1:predict", {"instances": [1]}).status == 200
    assert weir.http("POST", "/v1/models/half/labels/stable:predict", {"instances": [1]}).status == 200
    assert weir.http("POST", "/v1/models/other:predict", {"instances": [1]}).error() == (404, "model_not_found")
    assert engine.requests[-1].path == "/v1/models/half/labels/stable:predict"


@pytest.mark.parametrize("state, up", [("LOADING", 0), ("START", 0), ("END", 0), ("UNLOADING", 0), ("AVAILABLE", 1)])
def test_the_states_of_tensorflow_serving(gateway, state, up):
    engine = d.tfserving("half", state=state)
    weir = gateway(engine, endpoints=[{"url": engine.url, "models": ["half"], "engine": "tfserving"}])
    wait_until(lambda: engine.asked("/v1/models/half") > 5, "five checks")
    status = weir.http("POST", "/v1/models/half:predict", {"instances": [1]}).status
    assert status == (200 if up else 503)


# ---- Stable Diffusion ----

def test_stable_diffusion_gets_one_job_at_a_time(gateway):
    """Two images asked for at once: the second waits in Weir, where it can still go elsewhere. Its memory is read."""
    release = threading.Event()

    def paint(conn, request):
        assert release.wait(4 * PATIENCE)
        conn.respond(200, {"images": ["aGk="], "parameters": {}, "info": "{}"})
    engine = d.sdwebui(behaviour=paint)
    weir = gateway(engine)
    wait_models(weir, "v1-5-pruned")
    wait_gauge(weir, "weir_endpoint_up", engine, 1)
    wait_until(lambda: engine.asked("/sdapi/v1/memory") > 1, "its memory to be asked for")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(paint_one(weir))) for _ in range(2)]
    for t in threads:
        t.start()
    engine.wait_hits(1)
    wait_until(lambda: weir.metrics().sum("weir_queue_length") == 1, "the second to wait")
    assert engine.hits() == 1
    release.set()
    for t in threads:
        t.join(PATIENCE)
    assert answers == [200, 200] and engine.peak == 1


def paint_one(weir):
    http = Http(weir.data)
    try:
        return http("POST", "/sdapi/v1/txt2img", {"prompt": "a cat", "steps": 20}).status
    finally:
        http.close()
