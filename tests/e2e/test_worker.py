# SPDX-License-Identifier: Apache-2.0
"""`weir worker`: the emulated GPU server, alone, over real HTTP."""
import base64
import json
import shutil
import signal
import struct
import subprocess
import threading
import time

import pytest

import weir_harness as h

FAST = ("--time-scale", "200")
# Nothing is said before it is looked at: the first step takes almost three hours.
STILL = ("--time-scale", "0.001", "--fault", "slow=1000x")


def chat(worker, text="hello there", **more):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    return worker.http("POST", "/v1/chat/completions", body)


def metrics(worker):
    r = worker.http("GET", "/metrics")
    assert r.status == 200
    return h.Metrics(r.body.decode())


def stream(worker, **more):
    """A raw client with a streaming chat request under way."""
    client = h.RawClient(worker.http.addr)
    client.request(body={"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}], **more})
    return client


def set_fault(worker, spec):
    r = worker.http("POST", "/fault", spec)
    assert r.status == 200, r.body
    assert r.json() == {"fault": spec}


# ------------------------------------------------------------------------------------------------- shapes


def test_chat_has_the_openai_shape(start_worker):
    w = start_worker(*FAST, "--name", "w-one")
    r = w.http("POST", "/v1/chat/completions",
               {"model": "m", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 5},
               {"X-Request-Id": "abc-123"})
    assert r.status == 200
    assert r.header("Content-Type") == "application/json"
    assert r.header("X-Weir-Worker") == "w-one"
    assert r.header("X-Request-Id") == "abc-123"
    a = r.json()
    assert a["object"] == "chat.completion" and a["model"] == "m" and a["id"].startswith("chatcmpl-")
    assert abs(a["created"] - time.time()) < 3600
    (choice,) = a["choices"]
    assert choice["index"] == 0 and choice["finish_reason"] == "length"
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"].split()) == 5
    # user, separator, 11 bytes, separator: 17 bytes are 5 tokens.
    assert a["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10,
                          "prompt_tokens_details": {"cached_tokens": 0}}


def test_a_chat_stream_comes_event_by_event(start_worker):
    w = start_worker(*FAST)
    c = stream(w, max_tokens=4, stream_options={"include_usage": True})
    status, fields = c.head()
    assert status == 200
    assert dict(fields)["Content-Type"].startswith("text/event-stream")
    events = []
    while (event := c.event()) is not None:
        events.append(event)
    assert events.pop() == "[DONE]"
    usage = json.loads(events.pop())
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    events = [json.loads(e) for e in events]
    assert all(e["object"] == "chat.completion.chunk" and e["id"] == usage["id"] for e in events)
    assert [e["choices"][0]["delta"] for e in events][0] == {"role": "assistant", "content": ""}
    assert len(events) == 5
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * 4 + ["length"]
    streamed = "".join(e["choices"][0]["delta"]["content"] for e in events)
    assert streamed == chat(w, "hello", max_tokens=4).json()["choices"][0]["message"]["content"]
    # The connection lives on.
    c.request(body={"messages": [{"role": "user", "content": "again"}], "max_tokens": 1})
    assert c.response().status == 200


def test_no_usage_event_unless_asked_for(start_worker):
    c = stream(start_worker(*FAST), max_tokens=1)
    c.head()
    events = []
    while (event := c.event()) is not None:
        events.append(event)
    assert len(events) == 3 and events[-1] == "[DONE]"


def test_completions_take_text_and_tokens(start_worker):
    w = start_worker(*FAST)
    a = w.http("POST", "/v1/completions", {"model": "m", "prompt": "x" * 9, "max_tokens": 2}).json()
    assert a["object"] == "text_completion" and a["id"].startswith("cmpl-")
    assert len(a["choices"][0]["text"].split()) == 2
    assert a["usage"]["prompt_tokens"] == 3
    assert w.http("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 1}).json()["usage"]["prompt_tokens"] == 3
    assert w.http("POST", "/v1/completions", {"prompt": ["abcd"], "max_tokens": 1}).json()["usage"]["prompt_tokens"] == 1
    assert w.http("POST", "/v1/completions", {"prompt": ["a", "b"]}).status == 400
    assert w.http("POST", "/v1/completions", {"prompt": [1, "b"]}).status == 400


def test_embeddings_in_both_encodings_agree(start_worker):
    w = start_worker(*FAST)
    floats = w.http("POST", "/v1/embeddings", {"model": "m", "input": ["a", "b", "a"], "dimensions": 7}).json()
    coded = w.http("POST", "/v1/embeddings",
                   {"model": "m", "input": ["a", "b", "a"], "dimensions": 7, "encoding_format": "base64"}).json()
    assert floats["object"] == "list" and [d["index"] for d in floats["data"]] == [0, 1, 2]
    vectors = [d["embedding"] for d in floats["data"]]
    assert all(len(v) == 7 and all(-1 < x < 1 for x in v) for v in vectors)
    assert vectors[0] == vectors[2] != vectors[1]
    for vector, d in zip(vectors, coded["data"]):
        decoded = struct.unpack("<7f", base64.b64decode(d["embedding"], validate=True))
        assert decoded == pytest.approx(vector, abs=1e-8)
    assert floats["usage"]["prompt_tokens"] == 1
    assert len(w.http("POST", "/v1/embeddings", {"input": "x"}).json()["data"][0]["embedding"]) == 256
    r = w.http("POST", "/v1/embeddings", {"input": ["x"] * 1000, "dimensions": 8192})
    assert r.status == 400 and r.json()["error"]["param"] == "dimensions"


def test_output_length_is_drawn_when_not_asked_for(start_worker):
    w = start_worker("--time-scale", "2000")
    lengths = [chat(w, f"question {i}").json() for i in range(40)]
    counts = [a["usage"]["completion_tokens"] for a in lengths]
    assert all(1 <= n <= 399 for n in counts)
    assert 120 < sum(counts) / len(counts) < 280
    assert {a["choices"][0]["finish_reason"] for a in lengths} == {"stop"}
    again = [chat(w, f"question {i}").json()["usage"]["completion_tokens"] for i in range(5)]
    assert again == counts[:5]


def test_equal_seeds_say_equal_things(start_worker):
    texts = [chat(start_worker(*FAST, "--seed", seed), max_tokens=8).json()["choices"][0]["message"]["content"]
             for seed in ("7", "7", "8")]
    assert texts[0] == texts[1] != texts[2]


def test_models_version_health(start_worker):
    w = start_worker(*FAST, "--model", "m2", "--max-model-len", "4096")
    models = w.http("GET", "/v1/models").json()
    assert models["object"] == "list"
    assert [(m["id"], m["max_model_len"]) for m in models["data"]] == [("m", 4096), ("m2", 4096)]
    assert "version" in w.http("GET", "/version").json()
    r = w.http("GET", "/health")
    assert (r.status, r.body) == (200, b"")
    assert w.http("POST", "/health").status == 405
    assert w.http("GET", "/nothing").status == 404
    assert chat(w, model="m2", max_tokens=1).json()["model"] == "m2"


@pytest.mark.parametrize("body, status, kind, words", [
    ({"model": "other", "messages": [{"role": "user", "content": "x"}]}, 404, "NotFoundError", "`other`"),
    ({"model": "m", "messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 50}, 400, "BadRequestError",
     "maximum context length is 128 tokens"),
    ("{\"model\": ", 400, "BadRequestError", "Invalid JSON at line 1"),
    ("[1]", 400, "BadRequestError", "JSON object"),
    ({"model": "m", "messages": []}, 400, "BadRequestError", "messages"),
    ({"model": "m", "messages": [{"content": "x"}]}, 400, "BadRequestError", "messages[0].role"),
    ({"model": "m", "messages": [{"role": "user", "content": 5}]}, 400, "BadRequestError", "messages[0].content"),
    ({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, 400, "BadRequestError",
     "max_tokens"),
    ({"model": "m", "messages": [{"role": "user", "content": "x"}], "n": 2}, 400, "BadRequestError", "one choice"),
    ({"model": 7, "messages": [{"role": "user", "content": "x"}]}, 400, "BadRequestError", "model"),
])
def test_errors_are_vllms(start_worker, body, status, kind, words):
    w = start_worker(*FAST, "--max-model-len", "128")
    r = w.http("POST", "/v1/chat/completions", body)
    assert r.status == status
    error = r.json()["error"]
    assert error["type"] == kind and error["code"] == status and words in error["message"]
    assert "param" in error
    assert chat(w, max_tokens=1).status == 200


def test_prefixes_are_cached(start_worker):
    w = start_worker(*FAST)
    first = chat(w, "a" * 5000, max_tokens=1).json()["usage"]
    second = chat(w, "a" * 5000 + "b", max_tokens=1).json()["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == 1024
    m = metrics(w)
    assert m.value("vllm:prefix_cache_hits_total") == 1024
    assert m.value("vllm:prefix_cache_queries_total") == first["prompt_tokens"] + second["prompt_tokens"]


def test_the_canonical_prompt_is_what_counts(start_worker):
    w = start_worker(*FAST)

    def tokens(**body):
        r = w.http("POST", "/v1/chat/completions", {"max_tokens": 1, **body})
        assert r.status == 200, r.body
        return r.json()["usage"]["prompt_tokens"]

    # Each text and its separator: user 5, x 2.
    assert tokens(messages=[{"role": "user", "content": "x"}]) == 2
    # type 5, function 9, function 9, name 5, f 2: 30 more; the number is left out.
    tool = {"type": "function", "function": {"name": "f", "strict": True}}
    assert tokens(messages=[{"role": "user", "content": "x"}], tools=[tool]) == -(-(7 + 30 + 7) // 4)
    # Texts of parts stand together, an image as 16 digits: 5 + 2 + 16 + 1.
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}
    assert tokens(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, image,
                                                         {"type": "text", "text": "b"}]}]) == 6
    # Escapes count as what they stand for: four bytes of UTF-8 for the emoji, 5 + 4 + 1.
    raw = '{"max_tokens":1,"messages":[{"role":"user","content":"\\ud83d\\ude00"}]}'
    r = w.http("POST", "/v1/chat/completions", raw)
    assert r.json()["usage"]["prompt_tokens"] == 3
    # A tool call has no content.
    assert tokens(messages=[{"role": "assistant", "content": None}]) == 3


# ------------------------------------------------------------------------------------------------ metrics


def test_metrics_count_and_promtool_reads_them(start_worker):
    w = start_worker(*FAST, "--kv-tokens", "16000")
    for _ in range(3):
        chat(w, max_tokens=4)
    m = metrics(w)
    assert m.value("vllm:request_success_total", finished_reason="length") == 3
    assert m.value("vllm:generation_tokens_total", model_name="m", engine="0") == 12
    assert m.value("vllm:prompt_tokens_total") == 15
    assert m.value("vllm:time_to_first_token_seconds_count") == 3
    assert m.value("vllm:inter_token_latency_seconds_count") == 9
    assert m.value("vllm:e2e_request_latency_seconds_bucket", le="+Inf") == 3
    assert m.value("vllm:request_queue_time_seconds_count") == 3
    (labels, one), = m.all("vllm:cache_config_info")
    assert one == 1 and int(labels["block_size"]) * int(labels["num_gpu_blocks"]) == 16000
    # 80 GiB / 10 and 16000 tokens of 128 KiB.
    assert m.value("weir_worker_memory_free_bytes") == (80 << 30) // 10 + 16000 * 131072
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing"
    lint = subprocess.run([promtool, "check", "metrics"], input=m.text, capture_output=True, text=True)
    complaints = (lint.stdout + lint.stderr).splitlines()
    # vLLM's own names hold a colon; nothing else may be wrong.
    assert lint.returncode in (0, 3), complaints
    assert [c for c in complaints if c and not c.endswith("metric names should not contain ':'")] == []


# ----------------------------------------------------------------------------------------------- clients go


def running(worker):
    m = metrics(worker)
    return (m.value("vllm:num_requests_running"), m.value("vllm:num_requests_waiting"),
            m.value("vllm:kv_cache_usage_perc"))


@pytest.mark.sanitize
def test_a_client_that_goes_frees_everything(start_worker):
    # So slow that nothing ends by itself: each is gone from decode, prefill or the queue.
    w = start_worker("--time-scale", "0.05", "--max-num-seqs", "2")
    decoding = stream(w, max_tokens=100000)
    decoding.head()
    decoding.event()
    prefill = stream(w, max_tokens=10000, messages=[{"role": "user", "content": "y" * 400000}])
    h.wait_until(lambda: running(w)[:2] == (2, 0), "two to run")
    waiting = h.RawClient(w.http.addr)
    waiting.request(body={"messages": [{"role": "user", "content": "z"}]})
    h.wait_until(lambda: running(w)[:2] == (2, 1), "one to wait")
    waiting.close()
    h.wait_until(lambda: running(w)[:2] == (2, 0), "the queue to be empty")
    prefill.close()
    h.wait_until(lambda: running(w)[:2] == (1, 0), "the prefill to be gone")
    decoding.close()
    h.wait_until(lambda: running(w) == (0, 0, 0), "everything to be free")
    assert metrics(w).value("vllm:request_success_total", finished_reason="abort") == 3


@pytest.mark.sanitize
def test_two_hundred_clients_at_random_points(start_worker):
    w = start_worker("--time-scale", "20", "--max-num-seqs", "16", "--kv-tokens", "6000", "--seed", "3")

    def one(i):
        c = stream(w, max_tokens=20 + i % 30, messages=[{"role": "user", "content": "q" * (i * 37 % 4000)}])
        try:
            if i % 5 == 4:
                c.close()
                return
            c.head()
            for _ in range(i % 7):
                c.event()
            if i % 2:
                while c.event() is not None:
                    pass
        finally:
            c.close()

    for start in range(0, 200, 20):
        threads = [threading.Thread(target=one, args=(i,)) for i in range(start, start + 20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(h.PATIENCE)
            assert not t.is_alive()
    h.wait_until(lambda: running(w) == (0, 0, 0), "everything to be free")


def test_a_reader_that_lags_too_far_is_dropped(start_worker):
    name = "n" * 400        # makes every event large: 130,000 of them are more than any buffer takes
    w = start_worker("--time-scale", "10000", "--model", name)
    c = h.RawClient(w.http.addr, rcvbuf=4096)
    c.request(body={"model": name, "stream": True, "max_tokens": 131000,
                    "messages": [{"role": "user", "content": "hello"}]})
    h.wait_until(lambda: metrics(w).value("vllm:request_success_total", finished_reason="abort") == 1, "the cut")
    h.wait_until(lambda: running(w) == (0, 0, 0), "everything to be free")
    c.close()


def test_early_headers_come_before_the_first_token(start_worker):
    w = start_worker(*STILL, "--early-headers")
    c = stream(w, max_tokens=1)
    assert c.head()[0] == 200
    assert metrics(w).value("vllm:time_to_first_token_seconds_count") == 0
    c.close()


# ------------------------------------------------------------------------------------------------- faults


def test_fault_specs_are_checked(start_worker):
    w = start_worker(*FAST)
    for bad in ("slow", "slow=0", "hang=1", "status=99", "status=503:2", "health=x", "metrics=nice", "nonsense=1",
                "hang,what", "close_idle=5s"):
        r = w.http("POST", "/fault", bad)
        assert r.status == 400, bad
        assert w.http("GET", "/fault").json() == {"fault": ""}
    set_fault(w, "slow=3x,reset_after=5")
    set_fault(w, "")


def test_hang_takes_and_never_answers(start_worker):
    w = start_worker(*FAST, "--fault", "hang")
    c = stream(w)
    h.wait_until(lambda: running(w)[0] == 1, "the request to be taken")
    set_fault(w, "")
    assert chat(w, max_tokens=1).status == 200
    assert c.received == b""
    c.close()
    h.wait_until(lambda: running(w)[0] == 0, "it to be gone")


def test_streams_stand_still_or_break(start_worker):
    w = start_worker(*FAST)
    set_fault(w, "reset_after=3")
    c = stream(w, max_tokens=10)
    c.head()
    assert [c.event() is not None for _ in range(3)] == [True] * 3
    with pytest.raises(EOFError):
        c.event()
    assert c.was_reset
    set_fault(w, "hang_after=2")
    c = stream(w, max_tokens=10)
    c.head()
    c.event(), c.event()
    set_fault(w, "")
    assert chat(w, max_tokens=20).status == 200
    assert running(w)[0] == 1
    c.close()
    h.wait_until(lambda: running(w) == (0, 0, 0), "it to be gone")
    set_fault(w, "reset")
    c = stream(w)
    with pytest.raises(EOFError):
        c.head()
    assert c.was_reset


def test_status_health_and_metrics_lie_on_demand(start_worker):
    w = start_worker(*FAST)
    set_fault(w, "status=503:0.25,health=500,metrics=garbage")
    answers = [chat(w, max_tokens=1) for _ in range(200)]
    refused = [r for r in answers if r.status == 503]
    assert {r.status for r in answers} == {200, 503}
    assert 30 <= len(refused) <= 70
    assert all(r.header("Retry-After") == "1" for r in refused)
    assert w.http("GET", "/health").status == 500
    set_fault(w, "health=hang,metrics=garbage")
    c = h.RawClient(w.http.addr)
    c.request("GET", "/health")
    assert chat(w, max_tokens=1).status == 200
    assert c.received == b""
    c.close()
    garbage = w.http("GET", "/metrics").body.decode()
    with pytest.raises(AssertionError):
        h.Metrics(garbage)


def test_slow_is_slow(start_worker):
    w = start_worker("--time-scale", "20")
    ttft = lambda: metrics(w).value("vllm:time_to_first_token_seconds_sum")  # noqa: E731
    chat(w, max_tokens=1)
    once = ttft()
    set_fault(w, "slow=50x")
    chat(w, max_tokens=1)
    # Emulated time: a step of 10.6 ms against one of 530.2 ms, each 20 times as fast.
    assert once == pytest.approx(0.0106044 / 20, abs=0.00001)
    assert ttft() - once == pytest.approx(0.0106044 * 50 / 20, abs=0.00001)


def test_it_dies_on_schedule(start_worker):
    w = start_worker("--fault", "die_after=2")
    assert chat(w, max_tokens=1).status == 200
    held = stream(w, max_tokens=100000)
    held.head()
    assert chat(w, max_tokens=1).status == 200
    assert w.wait() == 1
    with pytest.raises(EOFError):
        while held.event() is not None:
            pass
    w.stop = lambda: None


def test_idle_connections_are_closed_when_told(start_worker):
    w = start_worker(*FAST, "--fault", "close_idle=500ms")
    with w.frozen():                    # what it finds together with the connection came in time
        c = h.RawClient(w.http.addr)
        c.request(body={"messages": [{"role": "user", "content": "z"}], "max_tokens": 1})
    assert c.response().status == 200
    assert c.rest() == b""


# ------------------------------------------------------------------------------------------ start and end


def test_loading_answers_503(start_worker):
    w = start_worker("--load-time", "1h")
    assert w.http("GET", "/health").status == 503
    r = chat(w, max_tokens=1)
    assert r.status == 503 and r.header("Retry-After") == "1"
    assert "loading" in r.json()["error"]["message"]
    ready = start_worker("--load-time", "1h", "--time-scale", "10000")
    h.wait_until(lambda: ready.http("GET", "/health").status == 200, "the load to end")
    assert chat(ready, max_tokens=1).status == 200


def test_it_drains_before_it_ends(start_worker):
    # A step is a second: 600 do not end before it is looked at.
    w = start_worker(*FAST, "--drain", "1h", "--fault", "slow=20000x")
    c = stream(w, max_tokens=600)
    c.head()
    c.event()
    w.kill(signal.SIGTERM)
    h.wait_until(lambda: w.http("GET", "/health").status == 503, "draining")
    r = chat(w, max_tokens=1)
    assert r.status == 503 and "draining" in r.json()["error"]["message"]
    set_fault(w, "")
    events = 1
    while (event := c.event()) is not None:
        events += 1
        last = event
    assert last == "[DONE]" and events == 602
    assert w.wait() == 0


def test_the_second_signal_ends_it_at_once(start_worker):
    w = start_worker(*STILL, "--drain", "1h")
    c = stream(w, max_tokens=1000)
    h.wait_until(lambda: running(w)[0] == 1, "the request to run")
    w.kill(signal.SIGTERM)
    h.wait_until(lambda: w.http("GET", "/health").status == 503, "draining")
    w.stop()
    with pytest.raises(EOFError):
        c.head()


def test_the_drain_time_is_a_limit(start_worker):
    w = start_worker(*STILL, "--drain", "50ms")
    c = stream(w, max_tokens=1000)
    h.wait_until(lambda: running(w)[0] == 1, "the request to run")
    w.stop()
    assert w.log_contains("the drain time is over")
    c.close()


@pytest.mark.parametrize("args, words", [
    (("--gpu", "a10"), "--gpu"), (("--port", "70000"), "--port"), (("--time-scale", "0"), "--time-scale"),
    (("--fault", "slow=x"), "--fault"), (("--what",), "--what"), (("--report",), "--report needs a value"),
    (("--timeout", "1ms"), "is not 10ms or more"), (("--ttl", "50ms"), "is not 100ms or more"),
    (("--host", "example.org"), "--host"), (("--metadata", "novalue"), "--metadata"),
    (("--token", "plain"), "--token"), (("--registry", "ftp://x", "--port", "0"), "--registry"),
    (("--registry", "http://", "--port", "0"), "--registry"), (("--registry", "http://h/?q", "--port", "0"), "--registry"),
    (("--registry", "http://127.0.0.1:1", "--advertise", "nohost", "--port", "0"), "--advertise"),
])
def test_bad_arguments_are_named(args, words):
    r = subprocess.run([h.BIN, "worker", *args], capture_output=True, text=True, timeout=h.PATIENCE)
    assert r.returncode in (1, 2)
    assert words in r.stderr and r.stdout == ""


def test_help_says_it_all():
    r = subprocess.run([h.BIN, "worker", "--help"], capture_output=True, text=True, timeout=h.PATIENCE)
    assert r.returncode == 0
    for word in ("--time-scale", "--kv-tokens", "die_after", "3090", "503"):
        assert word in r.stdout


# ----------------------------------------------------------------------------------------------- registry


class Registry:
    """A registry of few words: notes every call and answers as the script says."""

    def __init__(self, upstream, answer=None):
        self.answer = answer or (lambda method, path, n: (200, {}))
        self.up = upstream(self.behave, name="registry")

    def behave(self, conn, request):
        n = sum(1 for r in self.calls() if r == (request.method, request.path))
        conn.respond(*self.answer(request.method, request.path, n))

    def calls(self):
        with self.up.lock:
            return [(r.method, r.path) for r in self.up.requests]

    def bodies(self, method, suffix):
        with self.up.lock:
            return [r.json() for r in self.up.requests if r.method == method and r.path.endswith(suffix)]

    def wait(self, method, path, n=1):
        h.wait_until(lambda: self.calls().count((method, path)) >= n, f"{n} {method} {path}; had {self.calls()}")


@pytest.mark.sanitize
def test_it_registers_renews_reports_and_deregisters(start_worker, upstream):
    registry = Registry(upstream)
    w = start_worker(*FAST, "--registry", registry.up.url + "/", "--service", "chat", "--report", "20ms", "--ttl",
                     "300ms", "--name", "w/1", "--metadata", "rack=7", "--metadata", "zone=a=b", "--weight", "2.5",
                     "--token", "env:WEIR_TEST_TOKEN", "--max-num-seqs", "32", "--model-version", "v3", gpu="t4",
                     env={"WEIR_TEST_TOKEN": "s3cret"})
    registry.wait("POST", "/v1/endpoints/w%2f1/renew", 2)
    registry.wait("POST", "/v1/endpoints/w%2f1/load", 5)
    assert registry.calls()[0] == ("PUT", "/v1/endpoints/w%2f1")
    assert registry.calls().count(("PUT", "/v1/endpoints/w%2f1")) == 1
    assert all(r.header("Authorization") == "Bearer s3cret" for r in registry.up.requests)
    put = registry.bodies("PUT", "w%2f1")[0]
    assert put.pop("epoch") > 1_600_000_000_000_000_000
    (device,) = put.pop("devices")
    assert device.pop("uuid").startswith("GPU-")
    assert device == {"type": "T4", "memory_total_bytes": 16_000_000_000}
    assert put == {"id": "w/1", "service": "chat", "url": w.url,
                   "models": [{"id": "m", "version": "v3", "max_model_len": 44000}],
                   "tasks": ["chat", "completion", "embedding"], "weight": 2.5, "engine": "weir-worker",
                   "max_concurrency": 32, "ttl_ms": 300, "metadata": {"rack": "7", "zone": "a=b"}}
    loads = registry.bodies("POST", "/load")
    assert [b["seq"] for b in loads] == list(range(1, len(loads) + 1))
    assert len({b["epoch"] for b in loads}) == 1
    first = loads[0]
    assert first["interval_ms"] == 20 and first["state"] == "healthy"
    assert first["memory_total_bytes"] == 16_000_000_000
    assert first["memory_free_bytes"] == 1_600_000_000 + 44000 * 131072
    assert (first["kv_capacity_tokens"], first["kv_used_tokens"]) == (44000, 0)
    assert (first["running"], first["waiting"], first["gpu_util_percent"]) == (0, 0, 0)
    assert "membw_util_percent" not in first and "sm_active_percent" not in first
    w.stop()
    assert registry.calls()[-1] == ("DELETE", "/v1/endpoints/w%2f1")
    assert registry.calls().count(("DELETE", "/v1/endpoints/w%2f1")) == 1


def test_reports_show_the_work(start_worker, upstream):
    registry = Registry(upstream)
    w = start_worker("--time-scale", "0.5", "--registry", registry.up.url, "--report", "10ms", "--name", "w",
                     "--max-num-seqs", "1")
    clients = [stream(w, max_tokens=100000) for _ in range(3)]
    h.wait_until(lambda: any((b["running"], b["waiting"]) == (1, 2) for b in registry.bodies("POST", "/load")),
                 "a report of one running and two waiting")
    def busy():
        last = registry.bodies("POST", "/load")[-1]
        return last if last["gpu_util_percent"] > 50 else None
    last = h.wait_until(busy, "a busy GPU")
    assert last["batch"] == 1 and last["kv_used_tokens"] > 0
    for c in clients:
        c.close()
    h.wait_until(lambda: registry.bodies("POST", "/load")[-1]["running"] == 0, "an idle report")


def test_it_registers_again_when_forgotten(start_worker, upstream):
    registry = Registry(upstream, lambda method, path, n: (404 if path.endswith("/renew") and n == 1 else 200, {}))
    start_worker(*FAST, "--registry", registry.up.url, "--name", "w", "--ttl", "300ms", "--report", "1h")
    registry.wait("PUT", "/v1/endpoints/w", 2)
    registry.wait("POST", "/v1/endpoints/w/renew", 3)
    assert registry.calls().count(("PUT", "/v1/endpoints/w")) == 2


def test_it_keeps_trying_until_the_registry_answers(start_worker, upstream):
    registry = Registry(upstream, lambda method, path, n: (503 if n < 3 else 200, {}))
    w = start_worker(*FAST, "--registry", registry.up.url, "--name", "w", "--report", "20ms")
    registry.wait("POST", "/v1/endpoints/w/load")
    calls = registry.calls()
    assert calls[:3] == [("PUT", "/v1/endpoints/w")] * 3
    assert chat(w, max_tokens=1).status == 200
    w.wait_line(r"warn report: registration failed: HTTP 503")
    w.wait_line(r"info report: registry answers again after 2 failures")


def test_a_newer_epoch_in_the_registry_is_overtaken(start_worker, upstream):
    newer = 2_000_000_000_000_000_000

    def answer(method, path, n):
        return (200, {"accepted": False, "epoch": newer, "seq": 9} if path.endswith("/load") and n == 1 else {})

    registry = Registry(upstream, answer)
    start_worker(*FAST, "--registry", registry.up.url, "--name", "w", "--report", "20ms")
    registry.wait("PUT", "/v1/endpoints/w", 2)
    h.wait_until(lambda: any(b["epoch"] == newer + 1 for b in registry.bodies("POST", "/load")), "a report of the new epoch")
    assert [b["epoch"] for b in registry.bodies("PUT", "/w")[1:]] == [newer + 1]


def test_it_ends_even_if_the_registry_is_gone(start_worker, upstream):
    registry = Registry(upstream)
    w = start_worker(*FAST, "--registry", registry.up.url, "--name", "w", "--ttl", "300ms")
    registry.wait("POST", "/v1/endpoints/w/renew")      # its registration was answered, then
    registry.up.refuse()
    w.stop()
    assert w.log_contains("deregistration failed")
