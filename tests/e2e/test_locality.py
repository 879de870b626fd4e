# SPDX-License-Identifier: Apache-2.0
"""locality: requests stay in the gateway's own cluster or zone while somebody there fits and has room (report M19)."""
import json
import threading

import pytest

import weir_harness as h
from nacos_double import host
from test_discovery_nacos import becomes, nacos, source  # noqa: F401: a fixture
from test_explain import ask, by_name, replay
from test_reload import hup


def holding(gate):
    """Answers at once, but who asks to be held waits for the gate."""
    def behaviour(conn, request):
        if request.asks("hold"):
            assert gate.wait(h.PATIENCE)
        conn.answer(request)
    return behaviour


def spilled(weir):
    return weir.metrics().value("weir_locality_spilled_total")


@pytest.mark.sanitize
def test_m19_the_same_cluster_first_then_all_when_it_is_full_or_empty(start_weir, upstream, nacos):  # noqa: F811
    gate = threading.Event()
    near, far = upstream(holding(gate), name="near"), upstream(name="far")
    double = nacos()
    both = [host(near, clusterName="east", metadata={"model_id": "m", "max_concurrency": "1"}), host(far, clusterName="west")]
    double.put(*both)
    weir = start_weir(source(double, empty_grace="off") | {"locality": {"cluster": "east"},
                                                           "decisions": {"sample": "100000/s"}})
    weir.wait_up(near)
    weir.wait_up(far)
    here, there = (f"127.0.0.1:{u.port}" for u in (near, far))

    def sent_to(up):
        before = up.hits()
        assert weir.chat("m").status == 200
        assert up.hits() == before + 1
        h.wait_until(lambda: weir.metrics().value("weir_inflight", endpoint=f"127.0.0.1:{up.port}") in (0, 1 - gate.is_set()),
                     "its end to be counted")

    held = threading.Thread(target=lambda: h.Http(weir.data)("POST", "/v1/chat/completions", {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "hold": True}))
    held.start()
    near.wait_hits(1)
    found = ask(weir, {"model": "m"})
    assert (found["chosen"], found["spilled"]) == (there, True)
    assert by_name(found)[here]["rule"] == "concurrency"
    assert [by_name(found)[e]["near"] for e in (here, there)] == [True, False]
    sent_to(far)                                        # full
    assert spilled(weir) == 1
    assert weir.wait_line("leaves locality")
    gate.set()
    held.join()
    h.wait_until(lambda: weir.inflight() == 0, "the held one to end")
    found = ask(weir, {"model": "m"})
    assert found["chosen"] == here and "spilled" not in found
    assert by_name(found)[there]["rule"] == "locality"
    for _ in range(4):                                  # round robin, but of those at home alone
        sent_to(near)
    double.put(both[1])
    becomes(weir, far)
    sent_to(far)                                        # empty
    double.put(*both)
    weir.wait_up(near)
    sent_to(near)
    assert spilled(weir) == 2
    logged = weir.admin_http("GET", "/api/v1/decisions?limit=100").json()["decisions"]
    assert len(logged) == 8 and sum(d["decision"].get("spilled", False) for d in logged) == 2
    assert {d["policy"]["cluster"] for d in logged} == {"east"}
    assert replay(weir) == {"replayed": 8, "different": 0, "truncated": 0, "unreadable": 0}


def replayed_by(weir, tmp_path, conf, policies):
    """The logged decisions by these policies: which endpoint was another one, and how often."""
    log, config = tmp_path / "decisions.jsonl", tmp_path / "other.yaml"
    log.write_bytes(weir.admin_http("GET", "/api/v1/decisions?limit=1000", headers={"Accept": "application/x-ndjson"}).body)
    config.write_text(json.dumps(conf))
    rc, out, err = h.run_weir("sim", "--replay-decisions", log, "--config", config, "--policy", policies, "--json")
    assert rc == 0, err
    return {p["policy"]: p["other"] for p in json.loads(out)["policies"]}


def test_a_reload_moves_the_gateway_and_a_policy_may_do_without(start_weir, upstream, tmp_path):
    ups = {zone: upstream(name=zone) for zone in "ab"}
    conf = {"discovery": [{"type": "static", "endpoints": [{"url": u.url, "models": ["m"], "zone": zone}
                                                           for zone, u in ups.items()]}],
            "policies": {"everywhere": {"filters": ["usable", "model", "concurrency"], "pick": "round_robin"}},
            "decisions": {"sample": "100000/s"},
            "routes": [{"match": {"path": "/v1/completions"}, "policy": "everywhere"},
                       {"match": {"path": "/v1/**"}, "policy": "round_robin"}]}
    weir = start_weir(conf, ["--zone", "b"])
    for u in ups.values():
        weir.wait_up(u)

    def who(path="/v1/chat/completions"):
        before = {zone: u.hits() for zone, u in ups.items()}
        for _ in range(4):
            assert weir.http("POST", path, {"model": "m", "prompt": "hi"}).status == 200
        return {zone: u.hits() - before[zone] for zone, u in ups.items()}

    both, b_alone = {"a": 2, "b": 2}, {"a": 0, "b": 4}
    assert who() == b_alone
    # In a replay, too. Whoever had the last turn was b, but for the first one.
    other = replayed_by(weir, tmp_path, {"policies": conf["policies"]}, "everywhere,round_robin,chain")
    assert other.pop("everywhere") in (3, 4) and set(other.values()) == {0}
    assert who("/v1/completions") == both
    assert hup(weir, conf | {"locality": {"region": "nowhere"}})[1] == 0    # the flag beats the file, key by key
    assert who() == both
    assert hup(weir, conf | {"locality": {"zone": "a"}})[1] == 0
    assert who() == b_alone
    assert weir.admin_http("GET", "/api/v1/config").json()["locality"] == {"zone": "b"}


def test_a_request_that_meets_a_dead_connection_spills_once(start_weir, upstream):
    once, in_vain = h.one_answer_per_connection()
    served = []
    up = upstream(once, name="far")
    weir = start_weir({"discovery": [{"type": "static", "endpoints": [{"url": up.url, "models": ["m"], "zone": "a"}]}]},
                      ["--zone", "b"])
    weir.wait_up(up)

    def serve():
        served.append(weir.chat("m").status)
        return in_vain              # not by the second: Weir has given up a connection, the machine having been away
    h.wait_until(serve, "one to meet a connection that was used before")
    assert served == [200] * len(served)
    assert spilled(weir) == len(served)
