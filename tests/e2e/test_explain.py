# SPDX-License-Identifier: Apache-2.0
"""Why a request went where it went: the explanation, the log of decisions, and their replay."""
import json
import os
import subprocess
import threading
import time

import pytest

import weir_harness as h

REPLAY = os.path.join(os.path.dirname(h.BIN), "tests", "tools", "replay")
POLICIES = ["chain", "round_robin", "consistent_hash", "random", "power_of_two", "least_request", "weighted_round_robin"]
TOKEN = "s3cret-of-the-admin"


def ask(weir, question, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else None
    r = weir.admin_http("POST", "/api/v1/explain", question, headers)
    assert r.status == 200, r.body
    return r.json()


def decisions(weir, limit=100000):
    r = weir.admin_http("GET", f"/api/v1/decisions?limit={limit}")
    assert r.status == 200, r.body
    return r.json()["decisions"]


def ended(weir, n):
    """The n decisions there are, once all have ended: a client may have its answer a moment earlier."""
    def all_ended():
        found = decisions(weir)
        return found if len(found) == n and all(d["outcome"] for d in found) else None
    return h.wait_until(all_ended, f"{n} decisions to end")


def by_name(answer):
    return {e["endpoint"]: e for e in answer["endpoints"]}


def replay(weir):
    """All logged decisions through tests/tools/replay: its counts."""
    r = weir.admin_http("GET", "/api/v1/decisions?limit=100000", headers={"Accept": "application/x-ndjson"})
    assert r.status == 200 and r.header("Content-Type") == "application/x-ndjson"
    done = subprocess.run([REPLAY], input=r.body, capture_output=True, timeout=h.PATIENCE)
    assert done.returncode == 0, (done.stdout, done.stderr[:4000])
    return json.loads(done.stdout)


def name_itself(up):
    def behaviour(conn, request):
        conn.respond(200, {"from": up.name})
    return behaviour


@pytest.fixture
def fleet(start_weir, upstream):
    """(weir, upstreams) for a config and a list of (name, fields of the registration)."""
    def start(config, members, args=()):
        weir = start_weir(config, args)
        ups = []
        for name, fields in members:
            up = upstream(name=name)
            up.behaviour = name_itself(up)
            weir.register(up, **fields)
            ups.append(up)
        return weir, ups
    return start


def memory(gb):
    return {"metadata": {"remaining_memory": str(gb)}}


THREE = [("a", memory(12)), ("b", memory(6)), ("c", memory(9))]


def policy(name, sample="100000/s", **more):
    return {"decisions": {"sample": sample}, "routes": [{"match": {"path": "/v1/**"}, "policy": name}], **more}


# explain ------------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_explain_names_the_rule_that_dropped_an_endpoint(fleet):
    """The mission's example: 8 GB needed; 12, 6 and 9 free."""
    weir, ups = fleet(policy("chain"), THREE)
    answer = ask(weir, {"model": "m", "required_memory": 8})
    found = by_name(answer)
    assert (found["b"]["verdict"], found["b"]["rule"]) == ("dropped", "memory")
    assert found["b"]["why"] == "not enough free memory now"
    assert sorted(e["verdict"] for e in (found["a"], found["c"])) == ["chosen", "kept"]
    assert found[answer["chosen"]]["verdict"] == "chosen"
    assert (answer["fit"], answer["rejection"], answer["waits"]) == (2, None, False)
    assert answer["route"] == "/v1/**" and answer["policy"]["name"] == "chain"
    for e in (found["a"], found["c"]):
        assert (e["cost"], e["terms"], e["load"], e["weight"], e["dynamic_weight"]) == (0, {"dynamic_load": 0}, 0, 1, 1)
    # a pasted request says the same, with its body as an object or as text
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 7}
    for given in (body, json.dumps(body)):
        pasted = ask(weir, {"request": {"method": "POST", "path": "/v1/chat/completions",
                                        "headers": {"x-required-memory": "8"}, "body": given}})
        assert by_name(pasted)["b"]["rule"] == "memory" and pasted["fit"] == 2
        assert (pasted["features"]["prompt_tokens"], pasted["features"]["output_tokens"]) == (100, 7)
    assert sum(up.hits() for up in ups) == 0 and weir.inflight() == 0
    assert decisions(weir) == []


@pytest.mark.parametrize("name", ["round_robin", "weighted_round_robin", "chain"])
def test_explain_foretells_the_next_turn_and_takes_none(fleet, name):
    weir, _ = fleet(policy(name), [(n, {}) for n in "abcd"])
    went = []
    for i in range(12):
        told = {ask(weir, {"model": "m"})["chosen"] for _ in range(3)}
        went.append(weir.chat().json()["from"])
        assert told == {went[-1]}, f"request {i}"
    assert {went.count(n) for n in "abcd"} == {3}


def test_explain_of_what_cannot_be_served(fleet):
    weir, _ = fleet(policy("chain", models={"m": {"aliases": ["nick"]}}), THREE)
    assert ask(weir, {"model": "zz"})["rejection"] == "model_not_found"
    assert ask(weir, {"model": "m", "path": "/other"})["rejection"] == "route_not_found"
    bad = ask(weir, {"model": "m", "required_memory": "much"})
    assert (bad["rejection"], bad["param"], bad["value"]) == ("invalid_header", "X-Required-Memory", "much")
    waits = ask(weir, {"model": "m", "required_memory": 100})
    assert (waits["chosen"], waits["rejection"], waits["waits"]) == (None, None, True)
    assert ask(weir, {"model": "nick"})["features"]["model"] == "m"
    assert ask(weir, {})["features"]["model"] == "m"     # the only live one
    gone = ask(weir, {"model": "m", "version": "v9"})
    assert gone["rejection"] == "no_endpoint" and {e["rule"] for e in gone["endpoints"]} == {"model"}


@pytest.mark.parametrize("question, word", [
    (b"{", "not JSON"), (b"[]", "object"), ({"modle": "m"}, "modle"), ({"model": ["m"]}, "model"),
    ({"request": {"body": {}}, "model": "m"}, "request"), ({"request": {"url": "x"}}, "url"),
    ({"prompt_tokens": -1}, "prompt_tokens"), ({"headers": {"a\r\nb": "c"}}, "single lines"),
    ({"path": "a b"}, ""), ({"headers": {"X-A": 1}}, "headers"), ({"required_memory": -2}, "required_memory"),
])
@pytest.mark.sanitize
def test_a_question_that_cannot_be_read(weir, question, word):
    r = weir.admin_http("POST", "/api/v1/explain", question)
    assert r.status == 400 and word in r.json()["error"]["message"], r.body


def test_explain_knows_those_that_are_not_even_asked(fleet):
    weir, _ = fleet(policy("chain"), [("a", {}), ("off", {"enabled": False, "wait": False}),
                                      ("other", {"models": ["n"]})])
    h.wait_until(lambda: len(ask(weir, {"model": "m"})["elsewhere"]) == 2, "all to be known")
    answer = ask(weir, {"model": "m"})
    assert [e["endpoint"] for e in answer["endpoints"]] == ["a"] and answer["chosen"] == "a"
    assert {e["endpoint"]: (e["rule"], e["why"]) for e in answer["elsewhere"]} == {
        "off": ("usable", "disabled"), "other": ("model", "does not have this model")}
    assert {e["endpoint"] for e in ask(weir, {"model": "zz"})["elsewhere"]} == {"a", "off", "other"}
    out = command(weir, "--model", "m")[1]
    assert "model: does not have this model" in out and "usable: disabled" in out


# the log ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.sanitize
def test_decisions_of_a_live_weir_replay(fleet, upstream, name):
    weir, ups = fleet(policy(name), [
        ("a", {"metadata": {"remaining_memory": "12", "gpu_util": "85"}, "weight": 2}),
        ("b", {"metadata": {"remaining_memory": "6", "gpu_util": "20"}, "max_concurrency": 1}),
        ("c", memory(9)),
        ("d", {})])
    ups[3].behaviour = lambda conn, request: conn.respond(503, {"error": "busy"})     # makes for second picks

    def some(first):
        http = h.Http(weir.data)
        for i in range(first, first + 40):
            headers = {"X-Session-Id": f"session {i % 7}"} if i % 2 else {}
            if i % 3 == 0:
                headers["X-Required-Memory"] = str(i % 13)
            http("POST", "/v1/chat/completions", {"model": "m", "messages": [], "max_tokens": i}, headers)
        http.close()

    threads = [threading.Thread(target=some, args=(100 * k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    weir.chat("zz")     # no pool, no decision
    logged = decisions(weir)
    assert len(logged) >= 120
    assert replay(weir) == {"replayed": len(logged), "different": 0, "truncated": 0, "unreadable": 0}
    assert {d["policy"]["name"] for d in logged} == {name}


@pytest.mark.sanitize
def test_what_became_of_a_decision(fleet):
    weir, ups = fleet(policy("round_robin"), [("a", {}), ("b", {})])
    assert weir.chat().status == 200
    first, = ended(weir, 1)
    assert first["format"] == 1 and first["seq"] == 1 and abs(first["time_ms"] / 1000 - time.time()) < 3600
    assert first["decision"]["endpoint"] == first["rows"][first["decision"]["row"]]["endpoint"]
    assert (first["outcome"]["outcome"], first["outcome"]["status"], first["outcome"]["code"]) == ("ok", 200, None)
    assert 0 < first["outcome"]["first_byte_ms"] <= first["outcome"]["total_ms"]
    # a busy worker: the first decision was followed by another, which says how it ended
    busy = first["decision"]["endpoint"]
    other = "ab".replace(busy, "")
    up = next(u for u in ups if u.name == other)
    up.behaviour = lambda conn, request: conn.respond(503, {"error": "busy"})
    assert weir.chat().json()["from"] == busy
    again, before = ended(weir, 3)[:2]
    assert before["decision"]["endpoint"] == other and before["outcome"] == {"outcome": "decided_again"}
    assert again["decision"]["endpoint"] == busy and again["outcome"]["outcome"] == "ok"
    row = next(r for r in again["rows"] if r["endpoint"] == other)
    assert row["dropped_by"] == "tried" and again["excluded"] == [[row.get("slot", 0), row["generation"]]]


def test_a_waiter_is_decided_when_it_comes_and_when_it_is_served(fleet):
    weir, (up,) = fleet(policy("chain"), [("a", {"max_concurrency": 1})])
    up.behaviour, opened = h.gate()
    threads = [threading.Thread(target=lambda: h.Http(weir.data)("POST", "/v1/chat/completions", {"model": "m"}))
               for _ in range(2)]
    threads[0].start()
    up.wait_hits(1)
    threads[1].start()
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 1, "the second to wait")
    told = ask(weir, {"model": "m"})
    assert told["waits"] and by_name(told)["a"]["rule"] == "concurrency"
    waits, first = h.wait_until(lambda: (lambda found: found if len(found) == 2 else None)(decisions(weir)), "both decisions")
    assert first["outcome"] is None and waits["outcome"] is None
    assert waits["decision"] == {"row": None, "endpoint": None, "rejection": None, "fit": 1}
    opened.set()
    for t in threads:
        t.join()
    h.wait_until(lambda: weir.inflight() == 0, "the end of both")
    served, waited, first = ended(weir, 3)
    assert waited["outcome"] == {"outcome": "decided_again"}
    assert served["decision"]["endpoint"] == "a" and served["outcome"]["queue_ms"] > 0
    assert served["outcome"]["outcome"] == first["outcome"]["outcome"] == "ok"
    assert replay(weir)["replayed"] == 3


def test_nothing_of_the_prompt_or_the_headers_is_kept(fleet):
    weir, _ = fleet(policy("chain"), THREE)
    marker = "MaRkEr-7261"
    r = weir.http("POST", "/v1/chat/completions",
                  {"model": "m", "user": marker, "prompt_cache_key": marker,
                   "messages": [{"role": "user", "content": marker}]},
                  {"X-Session-Id": marker, "X-Tenant-Id": marker, "Authorization": f"Bearer {marker}",
                   "X-Model-Version": marker, "X-Request-Id": marker, "Cookie": f"a={marker}"})
    assert r.error() == (503, "no_endpoint")
    weir.http("POST", f"/v1/chat/completions?q={marker}", {"model": "m", "messages": [{"content": marker}]})
    weir.http("POST", "/v1/chat/completions", {"model": marker, "messages": []})
    page = weir.admin_http("GET", "/api/v1/decisions").body.decode()
    assert len(json.loads(page)["decisions"]) == 2
    assert marker.lower() not in page.lower()


@pytest.mark.sanitize
@pytest.mark.parametrize("level", ["info", "debug"])
def test_no_prompt_and_no_credential_is_told_anywhere(fleet, tmp_path, level):
    """Whatever becomes of the request: neither logs nor metrics nor what the admin API shows."""
    access = tmp_path / "access.log"
    marker = "MaRkEr-7261"
    weir, ups = fleet({**policy("chain", sample="1000000/s"), "logging": {"level": level, "access": f"file:{access}"}},
                      [("a", {})])
    fates = iter(range(1000))

    def one_fate_after_another(conn, request):
        fate = next(fates) % 4
        if fate == 0:
            conn.respond(500, {"error": {"message": marker}}, [("X-Note", marker)])
        elif fate == 1:
            conn.hang_up()
        elif fate == 2:
            conn.send(f"HTTP/1.1 200 {marker}\r\n{marker}\r\n\r\n")
            conn.hang_up()
        else:
            conn.answer(request, text=marker)
    ups[0].behaviour = one_fate_after_another
    secrets = {"Authorization": f"Bearer {marker}", "X-Api-Key": marker, "X-Weir-Token": marker, "Cookie": f"a={marker}",
               "X-Session-Id": marker, "X-Tenant-Id": marker, "Proxy-Authorization": f"Basic {marker}"}
    question = {"model": "m", "user": marker, "messages": [{"role": "user", "content": marker}]}
    for _ in range(8):
        weir.http("POST", f"/v1/chat/completions?key={marker}", question, secrets)
        weir.http("POST", "/v1/chat/completions", json.dumps(question)[:-2], secrets)
    weir.http("POST", "/v1/chat/completions", question, {**secrets, "X-Required-Memory": marker})
    told = [json.dumps(ask(weir, {"request": {"headers": secrets, "body": question}}))]
    told += [weir.admin_http("GET", p).body.decode() for p in ("/metrics", "/api/v1/decisions", "/api/v1/endpoints")]
    assert weir.stop() == 0
    told += [weir.output, access.read_text()]
    assert access.read_text().count("\n") == 17
    assert [t for t in told if marker.lower() in t.lower()] == []


def test_the_log_is_bounded(fleet):
    weir, _ = fleet(policy("round_robin", sample="1000000/s"), [("a", {}), ("b", {})])
    n = 4200

    def some(k):
        http = h.Http(weir.data)
        for _ in range(k):
            assert http("POST", "/v1/chat/completions", b'{"model":"m"}').status == 200
        http.close()

    threads = [threading.Thread(target=some, args=(n // 4,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [d["seq"] for d in decisions(weir)] == list(range(n, n - 4096, -1))
    assert [d["seq"] for d in decisions(weir, 3)] == [n, n - 1, n - 2]
    assert decisions(weir, 0) == []
    assert replay(weir)["replayed"] == 4096


def test_the_log_is_bounded_in_bytes_too(fleet):
    """Records of a pool of 64 are long: fewer than 4,096 of them fit into 16 MiB, the newest ones."""
    weir, _ = fleet(policy("chain", sample="1000000/s"), [("a", {"metadata": {"remaining_memory": "12"}})])
    for i in range(63):
        r = weir.registry_http("PUT", f"/v1/endpoints/small{i}", {
            "id": f"small{i}", "service": "llm", "url": f"http://127.0.1.{i + 1}:9", "models": [{"id": "m"}],
            "ttl_ms": 3_600_000, "metadata": {"remaining_memory": "1"}})
        assert r.status in (200, 201)
    h.wait_until(lambda: len(ask(weir, {"model": "m"})["endpoints"]) == 64, "all of them")
    n = 2000
    for _ in range(n):
        assert weir.http("POST", "/v1/chat/completions", b'{"model":"m"}', {"X-Required-Memory": "8"}).status == 200
    page = weir.admin_http("GET", "/api/v1/decisions?limit=100000").body
    seqs = [d["seq"] for d in json.loads(page)["decisions"]]
    assert seqs == list(range(n, n - len(seqs), -1))
    assert 8 << 20 < len(page) < 18 << 20, (len(page), len(seqs))
    assert len(seqs) < n


def test_no_more_than_the_sample_says(fleet):
    weir, _ = fleet(policy("chain", sample="2/s"), [("a", {})])
    began = time.monotonic()
    for _ in range(40):
        weir.chat()
    assert 2 <= len(decisions(weir)) <= 2 + 2 * (time.monotonic() - began) + 1
    none, _ = fleet(policy("chain", sample="0/s"), [("b", {})])
    none.chat()
    assert decisions(none) == []


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "format=xml", "what=1"])
def test_a_wrong_way_to_ask_for_decisions(weir, query):
    assert weir.admin_http("GET", f"/api/v1/decisions?{query}").status == 400


# X-Weir-Explain -----------------------------------------------------------------------------------------------------


class Admin(h.Http):
    """The admin API with its token."""

    def __call__(self, method, path, body=None, headers=None):
        return super().__call__(method, path, body, {"Authorization": f"Bearer {TOKEN}", **(headers or {})})


@pytest.fixture
def guarded(start_weir, upstream):
    """A Weir whose admin API has a token, and an endpoint that serves one request at a time."""
    weir = start_weir(policy("chain", admin={"address": "127.0.0.1:0", "token": "env:WEIR_TEST_TOKEN"}),
                      env={"WEIR_TEST_TOKEN": TOKEN})
    weir.admin_http = Admin(weir.admin)
    up = upstream(name="a")
    weir.register(up, max_concurrency=1, metadata={"remaining_memory": "9"})
    return weir, up


WHY = {"X-Weir-Explain": "1", "X-Weir-Token": TOKEN}


@pytest.mark.sanitize
def test_the_reason_goes_to_those_with_the_token(guarded):
    weir, up = guarded
    r = weir.chat(headers=WHY)
    assert r.status == 200
    why = json.loads(r.header("X-Weir-Explain"))
    assert why == {"chosen": "a", "rejection": None, "policy": "chain", "fit": 1, "members": 1,
                   "endpoints": [{"endpoint": "a", "cost": 0, "load": 0}]}
    for headers in ({"X-Weir-Explain": "1"}, {"X-Weir-Explain": "1", "X-Weir-Token": "wrong"},
                    {"X-Weir-Explain": "1", "X-Weir-Token": TOKEN + "x"}, {"X-Weir-Explain": "1", "X-Weir-Token": ""},
                    {"X-Weir-Explain": "0", "X-Weir-Token": TOKEN}, {"X-Weir-Token": TOKEN},
                    {"X-Weir-Explain": "1", "Authorization": f"Bearer {TOKEN}"}, {}):
        r = weir.chat(headers=headers)
        assert r.status == 200 and r.header("X-Weir-Explain") is None, headers
    assert up.hits() == 9
    for request in up.requests:
        assert request.header("X-Weir-Explain") is None and request.header("X-Weir-Token") is None
    assert TOKEN not in weir.admin_http("GET", "/api/v1/decisions").body.decode()


@pytest.mark.sanitize
def test_the_reason_stands_in_errors_of_weir(guarded):
    weir, up = guarded
    r = weir.chat(headers={**WHY, "X-Model-Version": "v9"})
    assert r.error() == (503, "no_endpoint")
    why = r.json()["weir_explain"]
    assert why["rejection"] == "no_endpoint" and why["chosen"] is None
    first, = why["endpoints"]
    assert (first["endpoint"], first["rule"]) == ("a", "model") and "does not have this model" in first["why"]
    weir.register(up, max_concurrency=1, wait=False, devices=[{"uuid": "g", "memory_total_bytes": 10 << 30}])
    h.wait_until(lambda: ask(weir, {"model": "m", "required_memory": 99})["rejection"] == "exceeds_fleet_memory",
                 "the device to be known")
    r = weir.chat(headers={**WHY, "X-Required-Memory": "99"})
    assert r.error() == (400, "exceeds_fleet_memory")
    assert r.json()["weir_explain"]["endpoints"][0]["rule"] == "memory_total"
    r = weir.chat(headers={"X-Required-Memory": "99"})
    assert list(r.json()) == ["error"] and r.header("X-Weir-Explain") is None
    # decided before any endpoint was looked at: there is nothing to explain
    assert list(weir.chat("zz", headers=WHY).json()) == ["error"]


@pytest.mark.sanitize
def test_the_reason_of_one_that_waited(guarded):
    weir, up = guarded
    up.behaviour, opened = h.gate()
    answers = []

    def one(headers):
        answers.append(h.Http(weir.data)("POST", "/v1/chat/completions", {"model": "m"}, headers))

    threads = [threading.Thread(target=one, args=(headers,)) for headers in ({}, WHY)]
    threads[0].start()
    up.wait_hits(1)
    threads[1].start()
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 1, "the second to wait")
    opened.set()
    for t in threads:
        t.join()
    why, = [json.loads(r.header("X-Weir-Explain")) for r in answers if r.header("X-Weir-Explain")]
    assert why["chosen"] == "a" and why["waited_ms"] > 0
    assert why["before"]["chosen"] is None and why["before"]["endpoints"][0]["rule"] == "concurrency"


def test_the_reason_at_log_level_debug(start_weir, upstream):
    weir = start_weir({"logging": {"level": "debug"}})
    weir.register(upstream(name="a"))
    assert json.loads(weir.chat(headers={"X-Weir-Explain": "1"}).header("X-Weir-Explain"))["chosen"] == "a"


def test_the_header_stays_below_4_kib(start_weir, upstream):
    weir = start_weir({"logging": {"level": "debug"}})
    up = upstream(name="a")
    weir.register(up)
    for i in range(60):
        r = weir.registry_http("PUT", f"/v1/endpoints/{i:02}-{'long-name-' * 9}",
                               {"service": "llm", "url": f"http://127.0.0.1:{i + 1}", "models": [{"id": "m"}],
                                "ttl_ms": 3_600_000, "weight": 0})
        assert r.status in (200, 201), r.body
    h.wait_until(lambda: len(ask(weir, {"model": "m"})["endpoints"]) == 61, "all to be known")
    text = weir.chat(headers={"X-Weir-Explain": "1"}).header("X-Weir-Explain")
    why = json.loads(text)
    assert 2048 < len(text) <= 4096
    assert why["endpoints"][0]["endpoint"] == "a" and len(why["endpoints"]) + why["left_out"] == 61


# the command --------------------------------------------------------------------------------------------------------


def command(weir, *args, **more):
    return h.run_weir("explain", "--admin", "http://%s:%d" % weir.admin, *args, **more)


def test_the_command_prints_a_table(fleet):
    weir, ups = fleet(policy("chain"), THREE)
    rc, out, err = command(weir, "--model", "m", "--memory", "8")
    assert (rc, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["model", "m", "route", "/v1/**", "policy", "chain"]
    assert lines[1][0] == "chosen:" and lines[1][1] in ("a", "c")
    rows = {line[0]: line for line in lines[4:]}
    assert rows["b"][1] == "dropped" and "memory: not enough free memory now" in " ".join(rows["b"])
    assert rows[lines[1][1]][1:3] == ["*", "chosen"]
    assert max(map(len, out.splitlines())) <= 120
    rc, out, _ = command(weir, "--model", "m", "--memory", "8", "--json")
    assert rc == 0 and by_name(json.loads(out))["b"]["rule"] == "memory"
    assert sum(up.hits() for up in ups) == 0


def test_the_command_takes_a_request(fleet, tmp_path):
    weir, _ = fleet(policy("chain"), THREE)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 40}], "max_tokens": 3})
    path = tmp_path / "request.json"
    path.write_text(body)
    for args, stdin in (("--request", path), None), (("--request", "-"), body):
        rc, out, err = command(weir, *args, "--header", "X-Required-Memory: 8", "--json", stdin=stdin)
        assert (rc, err) == (0, "")
        answer = json.loads(out)
        assert answer["features"]["prompt_tokens"] == 10 and answer["features"]["required_bytes"] == 8 << 30
    whole = json.dumps({"request": {"path": "/v1/chat/completions", "headers": {"X-Required-Memory": "8"},
                                    "body": json.loads(body)}})
    rc, out, _ = command(weir, "--request", "-", "--json", stdin=whole)
    assert rc == 0 and by_name(json.loads(out))["b"]["rule"] == "memory"
    assert command(weir, "--request", "-", "--path", "/x", stdin=whole)[0] == 2


@pytest.mark.parametrize("args, status, words", [
    (("--model", "zz"), 3, "nobody: model_not_found zz"),
    (("--model", "m", "--memory", "99"), 3, "wait"),
    (("--model", "m", "--prompt-tokens", "many"), 2, "many"),
    (("--modle", "m"), 2, "--modle"),
    (("--model",), 2, "--model"),
    (("--header", "X"), 2, "NAME:VALUE"),
    (("--request", "/does/not/exist"), 2, "/does/not/exist"),
    (("--request", "-", "--prompt-tokens", "3"), 2, "--request"),
    (("--token", "hunter2"), 2, "env:NAME"),
    (("--path", "no slash"), 2, ""),
])
def test_the_status_of_the_command(fleet, args, status, words):
    weir, _ = fleet(policy("chain"), THREE)
    rc, out, err = command(weir, *args)
    assert rc == status and words in out + err, (rc, out, err)
    if status == 2:
        assert out == "" and err


def test_the_command_without_an_answer(guarded):
    weir, _ = guarded
    rc, out, err = command(weir, "--model", "m")
    assert rc == 1 and out == "" and "401" in err
    rc, out, _ = command(weir, "--model", "m", "--token", "env:MY_TOKEN", env={"MY_TOKEN": TOKEN})
    assert rc == 0 and "chosen: a" in out
    rc, out, err = h.run_weir("explain", "--admin", f"http://127.0.0.1:{h.free_port()}", "--model", "m")
    assert rc == 1 and out == "" and err
    assert h.run_weir("explain", "--admin", "gpu1")[0] == 2


def test_help_of_the_command():
    rc, out, err = h.run_weir("explain", "--help")
    assert rc == 0 and err == "" and "usage" in out and max(map(len, out.splitlines())) <= 120
    assert "explain" in h.run_weir("--help")[1]
