# SPDX-License-Identifier: Apache-2.0
"""What answers say they used (field reports A8, O1): read in passing, at every cut, and never by changing a byte."""
import json

import pytest

import weir_harness as h

USAGE = {"prompt_tokens": 17, "completion_tokens": 5, "total_tokens": 22, "prompt_tokens_details": {"cached_tokens": 16}}
STREAM = (b'data: {"choices":[{"delta":{"content":"\\"usage\\":{\\"prompt_tokens\\":9}"}}],"usage":null}\n\n'
          + b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\r\n\r\ndata: [DONE]\n\n")


def outcome(weir):
    """That of the newest decision, once the request is over."""
    def newest():
        return weir.admin_http("GET", "/api/v1/decisions?limit=1").json()["decisions"][0]["outcome"]
    return h.wait_until(newest, "the outcome")


def used(o):
    return tuple(o.get(k) for k in ("prompt_tokens", "completion_tokens", "cached_tokens"))


def tokens(weir, kind, operation="chat"):
    labels = {"gen_ai_operation_name": operation, "gen_ai_token_type": kind, "gen_ai_request_model": "m"}
    m = weir.metrics()
    return (m.sum("gen_ai_client_token_usage_count", **labels), m.sum("gen_ai_client_token_usage_sum", **labels))


def test_a_json_answer(weir, upstream):
    up = upstream(lambda c, r: c.respond(200, {"choices": [], "usage": USAGE}))
    weir.register(up)
    assert weir.chat().json()["usage"] == USAGE
    assert used(outcome(weir)) == (17, 5, 16)
    assert tokens(weir, "input") == (1, 17) and tokens(weir, "output") == (1, 5)
    assert tokens(weir, "input", "embeddings") == (0, 0)
    assert weir.metrics().value("gen_ai_client_token_usage_bucket", gen_ai_token_type="input", le="16") == 0
    assert weir.metrics().value("gen_ai_client_token_usage_bucket", gen_ai_token_type="input", le="64") == 1
    assert weir.metrics().sum("weir_cached_tokens_total", model="m") == 16
    assert weir.metrics().sum("weir_usage_unknown_total", model="m") == 0


@pytest.mark.sanitize
def test_a8_a_stream_cut_at_every_offset(weir, upstream, client):
    cut = 0

    def behaviour(conn, request):
        conn.start_stream()
        conn.send_chunk(STREAM[:cut])
        assert gate.wait(h.PATIENCE)
        conn.send_chunk(STREAM[cut:])
        conn.send("0\r\n\r\n")

    gate = h.threading.Event()
    up = upstream(behaviour)
    weir.register(up)
    c = client(weir)
    for cut in range(1, len(STREAM)):
        gate.clear()
        c.request(body={"model": "m", "stream": True})
        c.head()
        first = c.chunk()
        assert first == STREAM[:cut]        # so the rest came in a read of its own
        gate.set()
        assert first + c.body() == STREAM
    n = len(STREAM) - 1
    assert used(outcome(weir)) == (17, 5, 16)       # what it had is counted by then
    assert tokens(weir, "input") == (n, 17 * n) and tokens(weir, "output") == (n, 5 * n)


def test_o1_an_answer_that_does_not_say_is_not_zero(weir, upstream):
    up = upstream(lambda c, r: c.respond(200, {"choices": []}))
    weir.register(up)
    assert weir.chat().status == 200
    assert used(outcome(weir)) == (None, None, None)
    assert tokens(weir, "input") == (0, 0)
    assert weir.metrics().sum("weir_usage_unknown_total", model="m") == 1


def test_errors_and_other_types_are_not_looked_into(weir, upstream):
    def behaviour(conn, request):
        if request.path == "/v1/audio/speech":
            conn.respond(200, json.dumps({"usage": USAGE}), [("Content-Type", "audio/wav")])
        else:
            conn.respond(400, {"error": {}, "usage": USAGE})

    weir.register(upstream(behaviour))
    assert weir.chat().status == 400
    assert used(outcome(weir)) == (None, None, None)
    assert weir.http("POST", "/v1/audio/speech", {"model": "m"}).status == 200
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", outcome="ok") == 1, "the count")
    assert used(outcome(weir)) == (None, None, None)
    assert weir.metrics().all("gen_ai_client_token_usage_count") == []
    assert weir.metrics().sum("weir_usage_unknown_total") == 0


def test_what_a_cut_stream_said_counts(weir, upstream, client):
    def behaviour(conn, request):
        conn.start_stream()
        conn.sse_event({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 1}})
        conn.hang_up()

    weir.register(upstream(behaviour))
    c = client(weir)
    c.request(body={"model": "m", "stream": True})
    c.head()
    with pytest.raises(EOFError):
        c.body()
    o = outcome(weir)
    assert o["outcome"] == "upstream_aborted" and used(o) == (4, 1, None)
    assert tokens(weir, "output") == (1, 1)
