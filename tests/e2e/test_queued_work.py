# SPDX-License-Identifier: Apache-2.0
"""The default policy over real HTTP: prefixes are found again, and the reasons are told in seconds and tokens."""
import json

import pytest

import weir_harness as h


def fleet(weir, start_worker, n=2):
    for _ in range(n):
        # It reports what it is when it comes; later ones would tell of requests that have ended since.
        start_worker("--registry", "http://%s:%d" % weir.registry, "--service", "llm", "--time-scale", "1000",
                     "--report", "1h")
    h.wait_until(lambda: sum(e["health"] == "up" for e in endpoints(weir)) == n, "the fleet")


def endpoints(weir):
    return json.loads(weir.admin_http("GET", "/api/v1/endpoints").body)["endpoints"]


def chat(weir, text, tools_last=False):
    body = {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "hi"}], "model": "m",
            "max_tokens": 4}
    if tools_last:
        body["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    r = weir.http("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    assert r.status == 200, r.body
    return json.loads(r.body)


@pytest.mark.sanitize
def test_a_prompt_goes_where_its_beginning_is(start_weir, start_worker):
    # queued_work may prefer the other one when this machine stalls; this policy goes by the prefix alone.
    weir = start_weir(args=["--policy", "prefix_cache"])
    fleet(weir, start_worker)
    for family in range(4):
        text = "family %d. " % family * 1000
        for turn in range(5):
            usage = chat(weir, text, tools_last=family % 2 == 1)["usage"]
            cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
            # 10,000 bytes and more are four whole blocks of 512 tokens.
            assert cached == (4 * 512 if turn else 0), (family, turn, usage)
    decisions = json.loads(weir.admin_http("GET", "/api/v1/decisions?limit=1").body)["decisions"]
    assert decisions[0]["policy"]["name"] == "prefix_cache"
    assert any(4 * 500 < row["work"].get("hit_tokens", 0) < 4 * 530 for row in decisions[0]["rows"])
    assert "weir_prefix_hit_ratio{model=\"m\"}" in weir.admin_http("GET", "/metrics").body.decode()


def test_explain_says_seconds_and_tokens(start_weir, start_worker):
    weir = start_weir()
    fleet(weir, start_worker)
    text = "the same beginning. " * 500
    chat(weir, text)
    body = {"messages": [{"role": "system", "content": text}, {"role": "user", "content": "hi"}], "model": "m"}
    r = weir.admin_http("POST", "/api/v1/explain",
                        json.dumps({"request": {"method": "POST", "path": "/v1/chat/completions", "body": body}}))
    told = json.loads(r.body)
    assert r.status == 200 and told["policy"]["name"] == "queued_work"
    # Who is chosen depends on how fast the first answer came; who has the prefix does not.
    cold, warm = sorted(told["endpoints"], key=lambda e: e["prefix_hit_tokens"])
    assert 4 * 500 < warm["prefix_hit_tokens"] < 4 * 530  # 10,000 bytes, as the model counts them
    assert cold["prefix_hit_tokens"] == 0
    assert warm["uncached_tokens"] < cold["uncached_tokens"]
    assert set(warm) >= {"wait_seconds", "prefill_seconds", "decode_seconds", "cost", "terms"}


def test_prefix_hash_goes_by_the_users_first_hundred_characters(start_weir, start_worker):
    weir = start_weir(args=["--policy", "prefix_hash"])
    fleet(weir, start_worker, 4)
    for turn in range(2):
        for user in range(16):
            text = ("user %d " % user).ljust(100, "é") + "turn %d" % turn
            body = {"messages": [{"role": "system", "content": "turn %d" % turn}, {"role": "user", "content": text}],
                    "model": "m", "max_tokens": 2}
            r = weir.http("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            assert r.status == 200, r.body
    decisions = json.loads(weir.admin_http("GET", "/api/v1/decisions?limit=100").body)["decisions"]
    homes = [(d["features"]["prefix_key"], d["decision"]["endpoint"]) for d in reversed(decisions)]
    assert homes[:16] == homes[16:] and len(set(homes)) == 16
    assert len({endpoint for _, endpoint in homes}) > 1
