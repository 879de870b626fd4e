# SPDX-License-Identifier: Apache-2.0
"""`weir sim`: its reports, its errors, and its counting against another one."""
import collections
import json
import lzma
import os
import re

import pytest

import weir_harness as h

TRACES = os.path.join(h.ROOT, "bench", "traces")
FLEETS = os.path.join(h.ROOT, "examples", "fleets")
WORKLOADS = os.path.join(h.ROOT, "examples", "workloads")


@pytest.fixture(scope="module")
def mooncake(tmp_path_factory):
    """The first 25 minutes of Mooncake's conversation trace: 4,665 requests."""
    path = tmp_path_factory.mktemp("traces") / "mooncake.jsonl"
    with open(os.path.join(TRACES, "mooncake_conversation_first25min.jsonl.xz"), "rb") as f:
        path.write_bytes(lzma.decompress(f.read()))
    return path


def fleet(tmp_path, text):
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return path


def sim(*args):
    rc, out, err = h.run_weir("sim", *args, timeout=10 * h.PATIENCE)     # it computes, as fast as the machine does
    assert (rc, err) == (0, ""), err
    return out


def sim_json(*args):
    return json.loads(sim(*args, "--json"))


def metrics(report):
    return {p["policy"]: {k: v["mean"] for k, v in p["metrics"].items()} for p in report["policies"]}


# ------------------------------------------------------------------------------------------------ prefix caches

def count_hits(path, workers, capacity):
    """Leading blocks found, of all: round robin over LRU caches, in a few lines that share nothing with Weir."""
    caches = [collections.OrderedDict() for _ in range(workers)]
    found = asked = 0
    with open(path, encoding="utf-8") as f:
        for i, line in enumerate(f):
            cache = caches[i % workers]
            ids = json.loads(line)["hash_ids"]
            leading = 0
            while leading < len(ids) and ids[leading] in cache:
                leading += 1
            found += leading
            asked += len(ids)
            for block in reversed(ids):     # the first block is the last to go
                cache[block] = True
                cache.move_to_end(block)
            while capacity and len(cache) > capacity:
                cache.popitem(last=False)
    return found / asked


@pytest.mark.parametrize("workers, capacity, share", [(1, None, 0.334), (8, None, 0.116), (8, 5860, 0.107),
                                                      (8, 600, 0.047)])
def test_block_hits_are_those_that_others_count(mooncake, tmp_path, workers, capacity, share):
    blocks = f", kv_blocks: {capacity}" if capacity else ""
    path = fleet(tmp_path, f"workers: [{{gpu: a100, count: {workers}{blocks}}}]\n")
    report = sim_json("--trace", mooncake, "--fleet", path, "--policy", "round_robin", "--untimed")
    got = metrics(report)["round_robin"]["hit_ratio"]
    assert got == pytest.approx(count_hits(mooncake, workers, capacity), abs=0.0005)
    assert round(got, 3) == share


# ---------------------------------------------------------------------------------------------------- reports

@pytest.mark.sanitize
def test_same_inputs_same_bytes(mooncake, tmp_path):
    args = ("--trace", mooncake, "--fleet", os.path.join(FLEETS, "a100x8.yaml"), "--limit", 1000, "--policy",
            "random,round_robin,least_request,chain", "--jitter", "--seeds", 3, "--stale", "200ms", "--loss", "0.1",
            "--noise", "0.2")
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    outs = [sim(*args, "--json", "--html", p) for p in pages]
    assert outs[0] == outs[1]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert sim(*args) == sim(*args)
    assert outs[0] != sim(*args, "--json", "--seed", 7)


@pytest.mark.sanitize
def test_the_report_accounts_for_every_request(mooncake):
    report = sim_json("--trace", mooncake, "--fleet", os.path.join(FLEETS, "mixed.yaml"), "--limit", 600, "--policy",
                      "round_robin,least_request", "--rate-scale", 8, "--queue", 20, "--queue-timeout", "5s")
    assert report["requests"] == 600 and report["workers"] == 8
    for p in report["policies"]:
        m = {k: v["mean"] for k, v in p["metrics"].items()}
        assert m["ok"] + m["rejected"] + m["memory_failures"] == 600
        assert sum(p["rejections"].values()) == m["rejected"]
        assert sum(w["requests"] for w in p["workers"]) == m["ok"]
        # Prompts of up to 126,000 tokens do not fit a T4 or L4.
        assert 0 < m["goodput"] <= m["ok"] / 600
        assert m["ttft_p50"] <= m["ttft_p90"] <= m["ttft_p95"] <= m["ttft_p99"] <= m["e2e_p99"]
        assert m["busy_min"] <= m["busy_mean"] <= m["busy_max"] <= 1


def test_the_page_needs_nothing_from_elsewhere(mooncake, tmp_path):
    page = tmp_path / "report.html"
    sim("--trace", mooncake, "--fleet", os.path.join(FLEETS, "a100x8.yaml"), "--limit", 300, "--policy",
        "random,chain", "--html", page)
    text = page.read_text()
    assert not re.search(r"https?:|src=|href=|<script|@import|url\(", text)
    assert text.count("<svg") == text.count("</svg>") == 5      # three distributions, a load map of each policy
    assert text.count("<polyline") == 6
    for points in re.findall(r'points="([^"]*)"', text):
        xs, ys = zip(*(map(float, p.split(",")) for p in points.split()))
        assert list(xs) == sorted(xs) and list(ys) == sorted(ys, reverse=True)
        assert 0 <= xs[0] and xs[-1] <= 640 and 0 <= ys[-1] and ys[0] <= 300


def test_unequal_speeds_under_round_robin_are_busy_as_calculated():
    """examples/workloads/mixed.yaml keeps the slow servers 90 % busy under round robin, the fast ones 30 %."""
    report = sim_json("--trace", os.path.join(WORKLOADS, "mixed.yaml"), "--fleet", os.path.join(FLEETS, "mixed10.yaml"),
                      "--policy", "round_robin")
    busy = {w["id"]: w["busy"] for w in report["policies"][0]["workers"]}
    slow = [b for w, b in busy.items() if w.startswith("slow")]
    fast = [b for w, b in busy.items() if w.startswith("fast")]
    assert len(slow) == 8 and len(fast) == 2
    assert sum(slow) / 8 == pytest.approx(0.9, abs=0.03)
    assert sum(fast) / 2 == pytest.approx(0.3, abs=0.02)


def test_tenants_are_reported_apart(tmp_path):
    workload = tmp_path / "two.yaml"
    workload.write_text("duration: 60s\nstreams:\n"
                        "  - {rate: 2, tenant: calm, prompt: 500, output: exp 100}\n"
                        "  - {rate: 20, tenant: flood, prompt: 100..900, output: 100}\n"
                        "  - {rate: 5, prompt: 100, output: 10}\n")
    report = sim_json("--trace", workload, "--fleet", os.path.join(FLEETS, "a100x8.yaml"))
    tenants = {t["tenant"]: t for t in report["policies"][0]["tenants"]}
    assert set(tenants) == {"calm", "flood"}
    nobody = report["requests"] - tenants["calm"]["requests"] - tenants["flood"]["requests"]
    assert 200 < nobody < 400       # 60 s of 5/s belong to none
    assert 5 < tenants["flood"]["requests"] / tenants["calm"]["requests"] < 20


def test_saturation_is_bracketed(tmp_path):
    """One server of 100 ms: fewer than nine in ten are within 150 ms somewhere below a load of one."""
    workload = tmp_path / "jobs.yaml"
    workload.write_text("duration: 2000s\nstreams:\n  - {rate: 1, prompt: 1, work: 100ms}\n")
    path = fleet(tmp_path, "workers: [{gpu: one, fixed: 1us}]\n")
    found = sim_json("--trace", workload, "--fleet", path, "--slo-ttft", "150ms", "--saturation")["saturation"][0]
    assert found["good_goodput"] >= 0.9 > found["bad_goodput"]
    assert found["good_scale"] < found["bad_scale"] <= found["good_scale"] * 1.01
    assert 1 < found["good_requests_per_s"] < 5


def test_a_live_log_of_decisions_is_a_trace(start_weir, start_worker, tmp_path):
    weir = start_weir()
    weir.register(start_worker("--time-scale", "1000"))
    for i in range(5):
        assert weir.chat(max_tokens=10 + i).status == 200

    def log_of_ended():
        r = weir.admin_http("GET", "/api/v1/decisions?format=jsonl")
        lines = [json.loads(line) for line in r.body.decode().splitlines()]
        return r.body if len(lines) == 5 and all(d["outcome"] for d in lines) else None
    log = tmp_path / "decisions.jsonl"
    log.write_bytes(h.wait_until(log_of_ended, "five decisions to end"))
    report = sim_json("--trace", log, "--fleet", os.path.join(FLEETS, "a100x8.yaml"))
    assert report["requests"] == 5 and report["guessed_answers"] == 0
    assert metrics(report)["chain"]["ok"] == 5


@pytest.mark.sanitize
def test_a_live_log_is_decided_again_by_other_policies(start_weir, start_worker, tmp_path):
    """What if: its own policy decides the same, another one otherwise; and as a trace its prompts hit caches."""
    weir = start_weir()
    for _ in range(2):
        weir.register(start_worker("--time-scale", "1000"))
    prompts = [c * 8000 for c in "abab"]
    for text in prompts:
        assert weir.chat(messages=[{"role": "user", "content": text}], max_tokens=4).status == 200

    def log_of_ended():
        r = weir.admin_http("GET", "/api/v1/decisions?format=jsonl")
        lines = [json.loads(line) for line in r.body.decode().splitlines()]
        return lines if len(lines) == 4 and all(d["outcome"] for d in lines) else None
    lines = h.wait_until(log_of_ended, "four decisions to end")
    assert [(d["features"]["n_blocks"], len(d["features"]["blocks"])) for d in lines] == [(3, 3)] * 4
    again = lines[0]            # the newest first
    assert 3 in [r.get("hit_blocks", 0) for r in again["rows"]]
    assert prompts[0][:50] not in json.dumps(lines)
    config = tmp_path / "weir.yaml"
    config.write_text("policies: {last: {pick: lowest, scores: [{name: load}]}}\n")
    log = tmp_path / "decisions.jsonl"
    log.write_text("".join(json.dumps(d) + "\n" for d in lines))
    report = json.loads(sim("--replay-decisions", log, "--config", config, "--policy",
                            "queued_work,round_robin,last", "--json"))
    assert (report["decisions"], report["different"], report["truncated"]) == (4, 0, 0)
    own, turns, _ = report["policies"]
    assert (own["decided"], own["same"], own["other"], own["saved"]) == (4, 4, 0, 0)
    assert own["regret"] >= 0 and turns["regret"] >= 0
    assert turns["same"] + turns["other"] == 4 and sum(turns["reasons"].values()) == turns["other"]
    assert [p["policy"] for p in report["policies"]] == ["queued_work", "round_robin", "last"]
    assert "why another endpoint" in sim("--replay-decisions", log, "--policy", "round_robin")
    # So slowly that one is done before the next comes.
    replayed = sim_json("--trace", log, "--fleet", os.path.join(FLEETS, "a100x8.yaml"), "--policy", "queued_work",
                        "--rate-scale", "0.0001")
    assert metrics(replayed)["queued_work"]["hit_ratio"] > 0.3
    # What cannot be read is named, and the rest is done all the same.
    log.write_text(log.read_text() + "{}\n" + "not JSON\n")
    rc, out, err = h.run_weir("sim", "--replay-decisions", log, "--policy", "round_robin", "--json")
    assert rc == 2 and json.loads(out)["decisions"] == 4 and "decisions.jsonl:5: not a decision" in err


# ----------------------------------------------------------------------------------------------------- errors

TRACE = '{"timestamp": 0, "input_length": 10, "output_length": 2, "hash_ids": [1]}\n'


@pytest.mark.parametrize("trace, fleet_text, args, words", [
    (TRACE + "{}\n", None, (), "trace:2"),
    ("a,b\n", None, (), "neither Mooncake"),
    (None, None, (), "trace"),
    (TRACE, "workers: [{gpu: a100, cuont: 2}]\n", (), "fleet.yaml:1:23: unknown key \"cuont\"; did you mean count"),
    (TRACE, "workers: [{gpu: b100}]\n", (), "known gpu"),
    (TRACE, "workers: []\n", (), "at least one worker"),
    (TRACE, "model: m\n", (), "workers is missing"),
    (TRACE, None, ("--policy", "least_reqeust"), "did you mean least_request"),
    (TRACE, None, ("--rate-scale", "0"), "--rate-scale"),
    (TRACE, None, ("--seeds", "101"), "100 or less"),
    (TRACE, None, ("--polcy", "chain"), "did you mean --policy"),
    (TRACE, None, ("--from", "1s"), "no request is left"),
    (TRACE, None, ("--queue-timeout", "0"), "--queue-timeout"),
    (TRACE, None, ("--replay-decisions", "x"), "needs no --trace"),
    (TRACE, None, ("--config", "/nowhere/weir.yaml"), "/nowhere/weir.yaml"),
])
@pytest.mark.sanitize
def test_mistakes_are_named(tmp_path, trace, fleet_text, args, words):
    path = tmp_path / "trace"
    if trace is not None:
        path.write_text(trace)
    rc, out, err = h.run_weir("sim", "--trace", path, "--fleet",
                              fleet(tmp_path, fleet_text or "workers: [{gpu: a100}]\n"), *args)
    assert rc == 2 and out == ""
    assert words in err


def test_help_and_missing_files():
    rc, out, _ = h.run_weir("sim", "--help")
    assert rc == 0 and "--trace" in out
    assert max(map(len, out.splitlines())) <= 120
    rc, _, err = h.run_weir("sim", "--trace", "x")
    assert rc == 2 and "--fleet" in err


@pytest.mark.parametrize("name", sorted(os.listdir(FLEETS)))
def test_every_example_fleet_runs(tmp_path, name):
    path = tmp_path / "trace"
    path.write_text(TRACE)
    assert metrics(sim_json("--trace", path, "--fleet", os.path.join(FLEETS, name)))["chain"]["ok"] == 1
