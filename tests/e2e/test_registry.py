# SPDX-License-Identifier: Apache-2.0
"""The embedded registry from outside: both APIs, one store, the event stream, saved state."""
import http.client
import json
import os
import re
import shutil
import stat
import subprocess
import threading
import time

import pytest

from registry_util import PATIENCE, PROGRAM, ROOT, Registry, Watch

pytestmark = [pytest.mark.skipif(not os.path.exists(PROGRAM), reason=f"{PROGRAM} is not built"), pytest.mark.sanitize]


@pytest.fixture
def start():
    started = []

    def go(*args):
        started.append(Registry(*args))
        return started[-1]
    yield go
    for r in started:
        if r.child.poll() is None:
            r.stop()


@pytest.fixture
def registry(start):
    return start()


HOUR = 3_600_000     # ms: a lease that does not end while it is looked at
ENDPOINT = {"service": "llm", "url": "http://127.0.0.1:9001", "ttl_ms": HOUR, "models": ["m1", {"id": "m2", "max_model_len": 4096}],
            "devices": [{"type": "A100", "memory_total_bytes": 85899345920}], "engine": "vllm", "tasks": ["chat"]}
NACOS = {"serviceName": "llm", "ip": "10.0.0.5", "port": "8000"}
LASTING = {"preserved.heart.beat.timeout": str(HOUR), "preserved.ip.delete.timeout": str(HOUR)}


# --- native ---

def test_register_renew_load_remove(registry):
    r = registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    assert r.status == 201
    first = r.json()
    assert (first["id"], first["kind"], first["services"], first["url"]) == ("w1", "native", ["llm"], ENDPOINT["url"])
    assert first["models"] == [{"id": "m1"}, {"id": "m2", "max_model_len": 4096}]
    assert (first["ttl_ms"], first["weight"], first["enabled"], first["probation"]) == (HOUR, 1, True, False)
    assert registry("PUT", "/v1/endpoints/w1", {**ENDPOINT, "weight": 2.5}).status == 200
    assert registry("POST", "/v1/endpoints/w1/renew").json() == {"id": "w1", "ttl_ms": HOUR, "epoch": first["epoch"]}
    assert registry("POST", "/v1/endpoints/w1/load",
                    {"epoch": 5, "seq": 1, "gpu_util_percent": 12.5, "running": 3}).json() == \
        {"accepted": True, "epoch": 5, "seq": 1}
    got = registry("GET", "/v1/endpoints/w1").json()
    assert got["weight"] == 2.5
    assert got["load"].pop("age_ms") >= 0
    assert got["load"] == {"epoch": 5, "seq": 1, "interval_ms": 500, "gpu_util_percent": 12.5, "running": 3}
    assert registry("DELETE", "/v1/endpoints/w1").json() == {"id": "w1", "removed": True}
    assert registry("GET", "/v1/endpoints/w1").status == 404
    registry.until(lambda line: line == "remove source=7 key=native/w1")
    said = [line.split()[0] for line in registry.seen]
    assert said == ["synced", "ready", "upsert", "upsert", "sample", "remove"]
    assert "known=81 gpu_util_bp=1250 memory_free=0 running=3 fresh_ms=1500" in registry.seen[4]


def test_the_lease_of_one_that_names_none(registry):
    assert registry("PUT", "/v1/endpoints/w1", {"host": "gpu7", "port": 80}).json()["ttl_ms"] == 15000


def test_an_older_load_report_changes_nothing(registry):
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    for epoch, seq, accepted, known in ((5, 2, True, (5, 2)), (5, 2, False, (5, 2)), (5, 1, False, (5, 2)),
                                        (4, 9, False, (5, 2)), (5, 3, True, (5, 3)), (6, 0, True, (6, 0))):
        r = registry("POST", "/v1/endpoints/w1/load", {"epoch": epoch, "seq": seq, "running": epoch * 10 + seq})
        assert r.status == 200
        assert r.json() == {"accepted": accepted, "epoch": known[0], "seq": known[1]}
        assert registry("GET", "/v1/endpoints/w1").json()["load"]["running"] == known[0] * 10 + known[1]


def test_put_with_an_older_epoch_is_refused(registry):
    assert registry("PUT", "/v1/endpoints/w1", {**ENDPOINT, "epoch": 10}).status == 201
    r = registry("PUT", "/v1/endpoints/w1", {**ENDPOINT, "epoch": 9, "weight": 7})
    assert r.status == 409
    assert r.json()["error"]["code"] == "stale_epoch" and r.json()["error"]["field"] == "epoch"
    assert registry("GET", "/v1/endpoints/w1").json()["weight"] == 1


def test_put_replaces_whole(registry):
    registry("PUT", "/v1/endpoints/w1", {**ENDPOINT, "metadata": {"a": "1"}, "labels": {"l": "1"}})
    registry("PUT", "/v1/endpoints/w1", {"host": "gpu7", "port": 80, "metadata": {"b": "2"}, "ttl_ms": HOUR})
    got = registry("GET", "/v1/endpoints/w1").json()
    assert (got["metadata"], got["labels"], got["models"], got["services"]) == ({"b": "2"}, {}, [], [])
    assert got["url"] == "http://gpu7:80"


def test_lists_filter_by_service_and_model(registry):
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    registry("PUT", "/v1/endpoints/org%2Fw2", {"services": ["llm", "chat"], "host": "::1", "port": 1, "models": ["x"],
                                                 "ttl_ms": HOUR})
    registry.nacos("POST", "instance", **NACOS, metadata='{"model_id":"y, m1"}')

    def ids(query):
        return [e["id"] for e in registry("GET", "/v1/endpoints" + query).json()["endpoints"]]
    assert ids("") == ["w1", "org/w2", "10.0.0.5:8000"]
    assert ids("?service=chat") == ["org/w2"]
    assert ids("?model=m1") == ["w1", "10.0.0.5:8000"]
    assert ids("?service=llm&model=x") == ["org/w2"]
    assert ids("?service=none") == []
    assert registry("GET", "/v1/endpoints?modle=x").json()["error"]["field"] == "modle"
    assert registry("GET", "/v1/endpoints/org%2Fw2").json()["url"] == "http://[::1]:1"


def test_errors_say_what_and_where_and_change_nothing(registry):
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    before = registry("GET", "/v1/endpoints/w1").json()
    before.pop("expires_in_ms")

    def error(method, path, body, status):
        r = registry(method, path, body)
        assert r.status == status, r.text
        assert r.headers["Content-Type"] == "application/json"
        return r.json()["error"]
    e = error("PUT", "/v1/endpoints/w1", {**ENDPOINT, "wieght": 2}, 400)
    assert e == {"code": "unknown_field", "field": "wieght",
                 "message": "unknown key 'wieght'; the nearest known one is 'weight'"}
    assert error("PUT", "/v1/endpoints/w1", {**ENDPOINT, "ttl_ms": 10}, 400)["field"] == "ttl_ms"
    assert error("PUT", "/v1/endpoints/w1", {**ENDPOINT, "models": [{"id": 1}]}, 400)["field"] == "models[0].id"
    assert error("PUT", "/v1/endpoints/w1", {**ENDPOINT, "id": "w2"}, 400)["field"] == "id"
    assert error("PUT", "/v1/endpoints/w1", "{", 400)["code"] == "invalid_json"
    assert error("PUT", "/v1/endpoints/w1", b"", 400)["code"] == "invalid_json"
    assert error("POST", "/v1/endpoints/w1/load", {"seq": 1}, 400)["field"] == "epoch"
    assert error("POST", "/v1/endpoints/none/load", {"epoch": 1, "seq": 1}, 404)["field"] == "id"
    assert error("POST", "/v1/endpoints/none/renew", None, 404)["code"] == "not_found"
    assert error("DELETE", "/v1/endpoints/none", None, 404)["code"] == "not_found"
    assert error("PUT", "/v1/endpoints/%00", ENDPOINT, 400)["field"] == "id"
    assert error("PUT", "/v1/endpoints/%zz", ENDPOINT, 400)["field"] == "id"
    assert error("GET", "/v1/watch?since=abc", None, 400)["field"] == "since"
    assert error("GET", "/v1/nothing", None, 404)["code"] == "not_found"
    assert error("PATCH", "/v1/endpoints/w1", None, 405)["code"] == "method_not_allowed"
    assert error("PUT", "/v1/endpoints/w1", b" " * (1 << 20) + b"{}", 413)["code"] == "body_too_large"
    after = registry("GET", "/v1/endpoints/w1").json()
    after.pop("expires_in_ms")
    assert after == before


def test_the_limit_of_instances(start):
    registry = start("--max", "2")
    assert registry("PUT", "/v1/endpoints/a", ENDPOINT).status == 201
    assert registry("PUT", "/v1/endpoints/b", ENDPOINT).status == 201
    r = registry("PUT", "/v1/endpoints/c", ENDPOINT)
    assert (r.status, r.json()["error"]["code"]) == (409, "limit_reached")
    assert registry.nacos("POST", "instance", **NACOS).status == 400
    assert registry("PUT", "/v1/endpoints/b", ENDPOINT).status == 200
    registry("DELETE", "/v1/endpoints/a")
    assert registry("PUT", "/v1/endpoints/c", ENDPOINT).status == 201


def test_native_leases_end_by_themselves(registry):
    registry("PUT", "/v1/endpoints/w1", {**ENDPOINT, "ttl_ms": 1000})
    registry("PUT", "/v1/endpoints/w2", ENDPOINT)
    registry.until(lambda line: line.startswith("remove"))
    assert registry.seen[-1] == "remove source=7 key=native/w1"
    assert [e["id"] for e in registry("GET", "/v1/endpoints").json()["endpoints"]] == ["w2"]


# --- authorization ---

def test_a_token_guards_both_apis(start):
    registry = start("--token", "s3cret-token")
    bearer = {"Authorization": "Bearer s3cret-token"}
    assert registry("GET", "/v1/endpoints").status == 401
    assert registry("GET", "/v1/endpoints", headers={"Authorization": "Bearer s3cret-tokem"}).status == 401
    assert registry("GET", "/v1/endpoints", headers={"Authorization": "Bearer s3cret-token1"}).status == 401
    assert registry("GET", "/v1/endpoints", headers={"Authorization": "Bearer "}).status == 401
    assert registry("PUT", "/v1/endpoints/w1", ENDPOINT, bearer).status == 201
    assert registry.nacos("POST", "instance", **NACOS).status == 403
    assert registry.nacos("POST", "instance", **NACOS, headers=bearer).text == "ok"
    assert registry.nacos("GET", "instance/list", serviceName="llm", username="nacos", password="wrong").status == 403
    assert len(registry.hosts(username="nacos", password="s3cret-token")) == 2
    assert registry.nacos("GET", "operator/metrics").json() == {"status": "UP"}
    for path in ("/nacos/v1/auth/login", "/nacos/v1/auth/users/login", "/nacos/v3/auth/user/login"):
        assert registry("POST", path + "?username=nacos&password=nacos").status == 403
        r = registry("POST", path, "username=nacos&password=s3cret-token",
                     {"Content-Type": "application/x-www-form-urlencoded"})
        answer = r.json()
        assert r.headers["Authorization"] == "Bearer " + answer["accessToken"]
        assert {k: answer[k] for k in ("tokenTtl", "globalAdmin", "username")} == \
            {"tokenTtl": 18000, "globalAdmin": True, "username": "nacos"}
        assert answer["accessToken"] != "s3cret-token"
        assert len(registry.hosts(accessToken=answer["accessToken"])) == 2
    assert registry.nacos("GET", "instance/list", serviceName="llm", accessToken="x" * 32).status == 403


def test_web_pages_cannot_register_without_a_token(start):
    page = {"Origin": "http://evil.example"}
    open_one = start()
    assert open_one.nacos("POST", "instance", **NACOS, headers=page).status == 403
    assert open_one("PUT", "/v1/endpoints/w1", ENDPOINT, page).status == 403
    assert open_one("GET", "/v1/endpoints").json()["endpoints"] == []


# --- Nacos ---

def test_nacos_shapes(registry):
    assert registry.nacos("POST", "instance", **NACOS, weight=1, metadata='{"gpu":"L4"}').text == "ok"
    got = registry.nacos("GET", "instance/list", serviceName="llm", clusters="DEFAULT").json()
    now = got.pop("lastRefTime")
    assert abs(now - time.time() * 1000) < 600_000
    assert got == {
        "name": "DEFAULT_GROUP@@llm", "groupName": "DEFAULT_GROUP", "clusters": "DEFAULT", "cacheMillis": 3000,
        "hosts": [{"instanceId": "10.0.0.5#8000#DEFAULT#DEFAULT_GROUP@@llm", "ip": "10.0.0.5", "port": 8000,
                   "weight": 1.0, "healthy": True, "enabled": True, "ephemeral": True, "clusterName": "DEFAULT",
                   "serviceName": "DEFAULT_GROUP@@llm", "metadata": {"gpu": "L4"},
                   "instanceHeartBeatInterval": 5000, "instanceHeartBeatTimeOut": 15000, "ipDeleteTimeout": 30000,
                   "instanceIdGenerator": "simple"}],
        "checksum": "", "allIPs": False, "reachProtectionThreshold": False, "valid": True}
    assert registry.nacos("GET", "instance", **NACOS).json() == {
        "service": "DEFAULT_GROUP@@llm", "ip": "10.0.0.5", "port": 8000, "clusterName": "DEFAULT", "weight": 1.0,
        "healthy": True, "instanceId": "10.0.0.5#8000#DEFAULT#DEFAULT_GROUP@@llm", "metadata": {"gpu": "L4"}}
    empty = registry.nacos("GET", "instance/list", serviceName="G@@none", clusters="a,b")
    assert empty.status == 200
    assert {k: empty.json()[k] for k in ("name", "groupName", "clusters", "hosts")} == \
        {"name": "G@@none", "groupName": "G", "clusters": "a,b", "hosts": []}
    assert registry.nacos("GET", "instance", serviceName="llm", ip="10.0.0.6", port=8000).status == 404
    assert registry.nacos("GET", "service/list", pageNo=1, pageSize=20).json() == {"count": 1, "doms": ["llm"]}
    assert registry.nacos("GET", "operator/metrics").json() == {"status": "UP"}
    assert registry.nacos("GET", "operator/switches").json()["clientBeatInterval"] == 5000
    assert registry.nacos("GET", "instance/statuses", key="public##DEFAULT_GROUP@@llm").json() == \
        {"ips": ["10.0.0.5:8000_true"]}
    assert registry.nacos("DELETE", "instance", **NACOS).text == "ok"
    assert registry.nacos("DELETE", "instance", **NACOS).text == "ok"
    assert registry.nacos("GET", "service/list", pageNo=1, pageSize=20).json() == {"count": 0, "doms": []}


def test_nacos_parameters_in_a_form_and_legacy_names(registry):
    assert registry.nacos("POST", "instance", form=True, **NACOS, groupName="G", cluster="C1", enable="True",
                          weight="0.5", metadata="a=1,b=2").text == "ok"
    host = registry.hosts("G@@llm")[0]
    assert (host["clusterName"], host["weight"], host["enabled"], host["metadata"], host["serviceName"]) == \
        ("C1", 0.5, True, {"a": "1", "b": "2"}, "G@@llm")
    assert registry.hosts("llm", groupName="G") == [host]
    assert registry.hosts("G@@llm", groupName="ignored") == [host]
    assert registry.hosts("llm") == []
    assert registry.hosts("G@@llm", namespaceId="other") == []
    assert registry.hosts("G@@llm", clusters="C2") == []
    assert registry.nacos("PUT", "instance", form=True, **NACOS, groupName="G", enable="false").text == "ok"
    assert registry.hosts("G@@llm") == []      # disabled ones are never listed
    assert registry.nacos("PATCH", "instance", **NACOS, groupName="G", enabled="y", weight=0).text == "ok"
    assert registry.hosts("G@@llm")[0]["weight"] == 0.0     # weight 0 stays listed


@pytest.mark.parametrize("fields, word", [
    ({"port": "8000", "serviceName": "llm"}, "'ip'"),
    ({"ip": "1.1.1.1", "serviceName": "llm"}, "'port'"),
    ({"ip": "1.1.1.1", "port": "8000"}, "'serviceName'"),
    ({**NACOS, "port": "x"}, "'port'"),
    ({**NACOS, "port": "0"}, "'port'"),
    ({**NACOS, "ip": "a b"}, "'ip'"),
    ({**NACOS, "weight": "10001"}, "'weight'"),
    ({**NACOS, "weight": "much"}, "'weight'"),
    ({**NACOS, "metadata": "nonsense"}, "'metadata'"),
    ({**NACOS, "metadata": '{"a":{}}'}, "'metadata'"),
    ({**NACOS, "clusterName": "a_b"}, "'clusterName'"),
    ({**NACOS, "serviceName": "G@@"}, "'serviceName'"),
    ({**NACOS, "namespaceId": "a b"}, "'namespaceId'"),
    ({**NACOS, "metadata": '{"preserved.heart.beat.timeout":"10"}'}, "heart beat"),
])
def test_nacos_bad_parameters_are_400_and_say_which(registry, fields, word):
    r = registry.nacos("POST", "instance", **fields)
    assert r.status == 400
    assert r.headers["Content-Type"].startswith("text/plain")
    assert word in r.text
    assert registry("GET", "/v1/endpoints").json()["endpoints"] == []


def test_nacos_unknown_calls(registry):
    assert registry.nacos("PUT", "instance", **NACOS, weight=2).status == 400
    assert registry.nacos("PATCH", "instance", **NACOS, weight=2).status == 400
    assert registry.nacos("GET", "nothing").status == 404
    assert registry.nacos("DELETE", "instance/list").status == 501
    assert registry("GET", "/v1/ns/instance/list?serviceName=llm").status == 404     # the context path is /nacos


def beat(**more):
    return json.dumps({"serviceName": "DEFAULT_GROUP@@llm", "ip": "10.0.0.5", "port": 8000, "cluster": "DEFAULT",
                       "weight": 1, "scheduled": True, **more})


def test_nacos_beats(registry):
    unknown = registry.nacos("PUT", "instance/beat", **NACOS)
    assert unknown.json() == {"clientBeatInterval": 5000, "code": 20404, "lightBeatEnabled": True}
    assert registry.hosts() == []
    body = registry.nacos("PUT", "instance/beat", serviceName="llm", beat=beat(metadata={"a": "1"}, weight=3))
    assert body.json() == {"clientBeatInterval": 5000, "code": 10200, "lightBeatEnabled": True}
    assert (registry.hosts()[0]["weight"], registry.hosts()[0]["metadata"]) == (3.0, {"a": "1"})
    assert registry.nacos("PUT", "instance/beat", **NACOS, clusterName="DEFAULT").json()["code"] == 10200
    registry.nacos("POST", "instance", **NACOS, metadata='{"preserved.heart.beat.interval":"2000"}')
    assert registry.nacos("PUT", "instance/beat", **NACOS).json()["clientBeatInterval"] == 2000
    assert registry.hosts()[0]["metadata"]["a"] == "1"      # merged, not replaced
    r = registry.nacos("PUT", "instance/beat", serviceName="llm", beat="{")
    assert r.status == 400 and "'beat'" in r.text


def test_nacos_lease_rules_from_metadata(registry):
    registry.nacos("POST", "instance", **NACOS, metadata=json.dumps(
        {"preserved.heart.beat.interval": "100", "preserved.heart.beat.timeout": "200",
         "preserved.ip.delete.timeout": str(HOUR)}))
    for _ in range(2):
        registry.until(lambda line: line.startswith("upsert") and " healthy=0 " in line)
        assert registry.hosts()[0]["healthy"] is True       # none is healthy: protection shows all
        registry.nacos("PUT", "instance/beat", **NACOS)
        registry.until(lambda line: line.startswith("upsert") and " healthy=1 " in line)


def test_nacos_instances_without_beats_are_removed(registry):
    registry.nacos("POST", "instance", **NACOS, metadata=json.dumps(
        {"preserved.heart.beat.interval": "100", "preserved.heart.beat.timeout": "200",
         "preserved.ip.delete.timeout": "400"}))
    registry.until(lambda line: line.startswith("remove"))
    assert registry.hosts() == []
    assert registry.nacos("PUT", "instance/beat", **NACOS).json()["code"] == 20404


def test_nacos_metadata_merges_and_empty_deletes(registry):
    registry.nacos("POST", "instance", **NACOS, metadata='{"a":"1","b":"1"}')
    registry.nacos("PUT", "instance", **NACOS, metadata='{"c":"2","b":""}')
    assert registry.hosts()[0]["metadata"] == {"a": "1", "c": "2"}
    registry.nacos("PUT", "instance/beat", serviceName="llm", beat=beat(metadata={"a": "1", "b": "1"}))
    assert registry.hosts()[0]["metadata"] == {"a": "1", "c": "2"}      # repeating is no news
    registry.nacos("PUT", "instance/beat", serviceName="llm", beat=beat(metadata={"a": "9"}))
    registry.nacos("PUT", "instance/beat", serviceName="llm", beat=beat())
    assert registry.hosts()[0]["metadata"] == {"a": "9", "c": "2"}
    r = registry.nacos("PUT", "instance/metadata/batch", serviceName="llm", metadata='{"d":"4"}')
    assert r.json() == {"updated": ["10.0.0.5:8000:unknown:DEFAULT:ephemeral"]}
    r = registry.nacos("PUT", "instance/metadata/batch", serviceName="llm", metadata='{"e":"5"}',
                       instances='[{"ip":"1.1.1.1","port":"1"}]')
    assert r.json() == {"updated": []}
    r = registry.nacos("DELETE", "instance/metadata/batch", serviceName="llm", metadata='{"d":"","c":"x"}',
                       instances='[{"ip":"10.0.0.5","port":"8000","clusterName":"DEFAULT","ephemeral":true}]')
    assert registry.hosts()[0]["metadata"] == {"a": "9"}
    registry.nacos("DELETE", "instance", **NACOS)
    registry.nacos("POST", "instance", **NACOS)
    assert registry.hosts()[0]["metadata"] == {}        # nothing of the old one is kept


def test_an_operators_drain_is_not_undone_by_the_client(registry):
    registry.nacos("POST", "instance", **NACOS, weight=2)
    registry.nacos("PUT", "instance", **NACOS, weight=0)
    registry.nacos("PUT", "instance/beat", serviceName="llm", beat=beat(weight=2))
    registry.nacos("POST", "instance", **NACOS, weight=3)
    assert registry.hosts()[0]["weight"] == 0.0
    registry.nacos("PUT", "instance", **NACOS, metadata="a=1")
    assert registry.hosts()[0]["weight"] == 0.0
    registry.nacos("PUT", "instance", **NACOS, weight=4)
    assert registry.hosts()[0]["weight"] == 4.0


def test_protect_threshold(registry):
    for i, healthy in enumerate((True, False, False, False)):
        registry.nacos("POST", "instance", serviceName="llm", ip=f"10.0.0.{i}", port=80, healthy=str(healthy).lower())

    def flags(**more):
        got = registry.nacos("GET", "instance/list", serviceName="llm", **more).json()
        return [h["healthy"] for h in got["hosts"]], got["reachProtectionThreshold"]
    assert flags() == ([True, False, False, False], False)
    assert flags(healthyOnly="true") == ([True], False)
    assert flags(healthyOnly="1") == ([True, False, False, False], False)
    assert registry.nacos("PUT", "service", serviceName="llm", protectThreshold=0.25).text == "ok"
    assert flags() == ([True] * 4, True)
    assert flags(healthyOnly="true") == ([True] * 4, True)
    registry.nacos("PUT", "service", serviceName="llm", protectThreshold=0.24)
    assert flags() == ([True, False, False, False], False)
    registry.nacos("PATCH", "instance", serviceName="llm", ip="10.0.0.0", port=80, enabled="false")
    assert flags(healthyOnly="true") == ([True] * 3, True)      # 0 of 3 enabled ones
    registry.nacos("PUT", "service", serviceName="llm", protectThreshold=0)
    assert flags(healthyOnly="true") == ([True] * 3, True)      # none healthy: 0 <= 0
    assert registry.nacos("PUT", "service", serviceName="llm", protectThreshold=2).status == 400


def test_service_calls(registry):
    assert registry.nacos("POST", "service", serviceName="s1", protectThreshold=0.5).text == "ok"
    assert registry.nacos("POST", "service", serviceName="s1").status == 400
    assert registry.nacos("GET", "service", serviceName="s1").json() == {
        "namespaceId": "public", "groupName": "DEFAULT_GROUP", "name": "s1", "protectThreshold": 0.5, "metadata": {},
        "selector": {"type": "none"}, "clusters": []}
    registry.nacos("POST", "instance", **{**NACOS, "serviceName": "s1"})
    assert registry.nacos("DELETE", "service", serviceName="s1").status == 400
    registry.nacos("DELETE", "instance", **{**NACOS, "serviceName": "s1"})
    for name in ("s3", "s2"):
        registry.nacos("POST", "service", serviceName=name)
    assert registry.nacos("GET", "service/list", pageNo=2, pageSize=2).json() == {"count": 3, "doms": ["s3"]}
    assert registry.nacos("GET", "service/list", pageNo=1).status == 400
    assert registry.nacos("DELETE", "service", serviceName="s1").text == "ok"
    assert registry.nacos("GET", "service", serviceName="s1").status == 404


def test_ephemeral_and_persistent_do_not_mix(registry):
    assert registry.nacos("POST", "instance", **NACOS).text == "ok"
    r = registry.nacos("POST", "instance", **{**NACOS, "ip": "10.0.0.6"}, ephemeral="false")
    assert r.status == 400 and "ephemeral service" in r.text


def test_nacos_v3_client_api(registry):
    path = "/nacos/v3/client/ns/instance"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    fields = "serviceName=llm&groupName=G&ip=10.0.0.5&port=8000"
    r = registry("POST", path, fields + "&heartBeat=true", form)
    assert (r.status, r.json()) == (200, {"code": 21003, "message": "instance not found", "data": None})
    assert registry("POST", path, fields + "&metadata=%7B%22a%22%3A%221%22%7D", form).json() == \
        {"code": 0, "message": "success", "data": "ok"}
    assert registry("POST", path, fields + "&heartBeat=true", form).json()["code"] == 0
    got = registry("GET", path + "/list?serviceName=llm&groupName=G").json()
    assert (got["code"], [h["instanceId"] for h in got["data"]], got["data"][0]["metadata"]) == \
        (0, ["10.0.0.5#8000#DEFAULT#G@@llm"], {"a": "1"})
    missing = registry("POST", path, "serviceName=llm", form)
    assert (missing.status, missing.json()["code"]) == (400, 10000)
    assert registry("DELETE", path + "?" + fields).json()["data"] == "ok"
    assert registry("GET", path + "/list?serviceName=llm&groupName=G").json()["data"] == []


# --- one store ---

def test_both_apis_see_each_other(registry):
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    registry.nacos("POST", "instance", **NACOS, metadata='{"model_id":"m1"}')
    by_ip = {h["ip"]: h for h in registry.hosts()}
    assert by_ip["127.0.0.1"]["metadata"] == {"gpu_type": "A100", "model_id": "m1,m2", "engine": "vllm"}
    registry("POST", "/v1/endpoints/w1/load", {"epoch": 1, "seq": 1, "memory_free_bytes": 12 << 30, "waiting": 4,
                                               "gpu_util_percent": 80, "running": 2, "state": "busy"})
    assert {h["ip"]: h for h in registry.hosts()}["127.0.0.1"]["metadata"].items() >= {
        "remaining_memory": "12", "gpu_util": "80", "queue_length": "4", "current_requests": "2",
        "health_status": "busy"}.items()
    one = registry("GET", "/v1/endpoints/10.0.0.5:8000").json()
    assert (one["kind"], one["services"], one["metadata"]) == ("nacos", ["llm"], {"model_id": "m1"})
    assert one["nacos"] == {"namespace": "public", "service": "DEFAULT_GROUP@@llm", "cluster": "DEFAULT",
                            "ephemeral": True}
    assert registry("POST", "/v1/endpoints/10.0.0.5:8000/load", {"epoch": 1, "seq": 1}).json()["accepted"]
    # An operator drains a native endpoint with the tool for Nacos.
    assert registry.nacos("PUT", "instance", serviceName="llm", ip="127.0.0.1", port=9001, weight=0).text == "ok"
    assert registry("GET", "/v1/endpoints/w1").json()["weight"] == 0
    # The same address by both: shown once.
    registry.nacos("POST", "instance", serviceName="llm", ip="127.0.0.1", port=9001)
    assert sorted(h["ip"] for h in registry.hosts()) == ["10.0.0.5", "127.0.0.1"]


def test_live_current_requests_are_shown(start):
    registry = start("--requests", "5")
    registry.nacos("POST", "instance", **NACOS, metadata='{"current_requests":"99","a":"1"}')
    assert registry.hosts()[0]["metadata"] == {"current_requests": "5", "a": "1"}
    assert registry.nacos("GET", "instance", **NACOS).json()["metadata"]["current_requests"] == "5"
    assert registry("GET", "/v1/endpoints/10.0.0.5:8000").json()["current_requests"] == 5
    unknown = start()
    unknown.nacos("POST", "instance", **NACOS, metadata='{"current_requests":"99"}')
    assert unknown.hosts()[0]["metadata"] == {"current_requests": "99"}


# --- watch ---

def test_watch_starts_whole_goes_on_and_resumes(registry):
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    watch = Watch(registry)
    first, event, data = watch.next()
    assert (event, [e["id"] for e in data["endpoints"]], data["seq"]) == ("reset", ["w1"], first)
    registry("PUT", "/v1/endpoints/w2", ENDPOINT)
    registry.nacos("POST", "instance", **NACOS)
    registry("DELETE", "/v1/endpoints/w1")
    got = [watch.next() for _ in range(3)]
    assert [n for n, _, _ in got] == [first + 1, first + 2, first + 3]
    assert [(e, d.get("endpoint", d)["id"]) for _, e, d in got] == \
        [("upsert", "w2"), ("upsert", "10.0.0.5:8000"), ("remove", "w1")]
    assert got[2][2] == {"id": "w1", "key": "native/w1", "reason": "deregistered"}
    watch.close()
    for again in (Watch(registry, since=first + 1), Watch(registry, last_event_id=first + 1)):
        assert [again.next()[:2] for _ in range(2)] == [(first + 2, "upsert"), (first + 3, "remove")]
        again.close()
    for since in (0, first - 100, first + 50):      # too old, or from another run
        again = Watch(registry, since=since)
        number, event, data = again.next()
        assert (number, event, len(data["endpoints"])) == (first + 3, "reset", 2)
        again.close()
    listed = registry("GET", "/v1/endpoints").json()["seq"]
    assert listed == first + 3


def test_watch_forgets_the_oldest_events(registry):
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    before = registry("GET", "/v1/endpoints").json()["seq"]
    for i in range(4097):
        assert registry("PUT", "/v1/endpoints/w1", {"host": "h", "port": 1 + i, "ttl_ms": HOUR}).status == 200
    late = Watch(registry, since=before)
    assert late.next()[1] == "reset"
    late.close()
    just = Watch(registry, since=before + 1)
    number, event, data = just.next()
    assert (number, event, data["endpoint"]["url"]) == (before + 2, "upsert", "http://h:2")
    just.close()


def test_a_watcher_that_does_not_read_is_cut_off_and_others_are_served(registry):
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    slow = Watch(registry)
    big = {"host": "h", "port": 1, "ttl_ms": HOUR, "metadata": {f"k{i}": "x" * 4000 for i in range(15)}}
    for i in range(1000):       # 60 kB an event: at most 4 MiB wait for it, and what the kernel holds
        registry("PUT", "/v1/endpoints/w1", {**big, "port": 1 + i})
    with pytest.raises(ConnectionResetError):
        while slow.response.readline():
            pass
    quick = Watch(registry)
    assert quick.next()[1] == "reset"
    registry("DELETE", "/v1/endpoints/w1")
    assert quick.next()[1] == "remove"
    quick.close()


# --- saved state ---

def wait_for_file(path, test):
    """The state file, once it says what is waited for. It is replaced whole, so it can always be parsed."""
    last = None
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            with open(path, encoding="utf-8") as f:
                last = json.load(f)
            if test(last):
                return last
        except FileNotFoundError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"{path} never said it: {str(last)[:2000]}")


def ids_in(state):
    return {e["endpoint"]["id"] for e in state["endpoints"]}


@pytest.mark.race
def test_kill_9_loses_nothing_that_was_saved(start, tmp_path):
    path = str(tmp_path / "registry.json")
    registry = start("--state-file", path)
    for i in range(100):
        registry("PUT", f"/v1/endpoints/w{i}", {**ENDPOINT, "url": f"http://127.0.0.1:{9000 + i}", "epoch": i + 1})
        registry.nacos("POST", "instance", serviceName="llm", ip="10.0.0.5", port=8000 + i, weight=2,
                       metadata=json.dumps({"n": str(i), **LASTING}))
    registry.nacos("PUT", "instance", serviceName="llm", ip="10.0.0.5", port=8000, weight=0)
    registry.nacos("PUT", "service", serviceName="llm", protectThreshold=0.5)
    wanted = {f"w{i}" for i in range(100)} | {f"10.0.0.5:{8000 + i}" for i in range(100)}
    wait_for_file(path, lambda s: ids_in(s) == wanted and s["services"])
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    before = {e["id"]: e for e in registry("GET", "/v1/endpoints").json()["endpoints"]}
    registry.kill()

    again = start("--state-file", path)
    after = {e["id"]: e for e in again("GET", "/v1/endpoints").json()["endpoints"]}
    assert set(after) == wanted
    for id, e in after.items():
        assert e["probation"] is True
        for volatile in ("expires_in_ms", "probation"):
            e.pop(volatile), before[id].pop(volatile)
        assert e == before[id]
    lines = [line for line in again.seen if line.startswith("upsert")]
    assert len(lines) == 200 and all(" probation=1 " in line for line in lines)
    assert again.seen[-2] == "synced source=7"      # after all of them, before it is ready
    # Renewing, beating or reporting proves life.
    again("POST", "/v1/endpoints/w1/renew")
    again("POST", "/v1/endpoints/w2/load", {"epoch": 3, "seq": 1})
    again.nacos("PUT", "instance/beat", serviceName="llm", ip="10.0.0.5", port=8000)
    alive = {e["id"] for e in again("GET", "/v1/endpoints").json()["endpoints"] if not e["probation"]}
    assert alive == {"w1", "w2", "10.0.0.5:8000"}
    # What the operator and the client had said still counts.
    again.nacos("POST", "instance", serviceName="llm", ip="10.0.0.5", port=8000, weight=2)
    assert {h["port"]: h["weight"] for h in again.hosts()}[8000] == 0.0
    assert again("PUT", "/v1/endpoints/w50", {**ENDPOINT, "epoch": 50}).status == 409
    assert again.nacos("GET", "service", serviceName="llm").json()["protectThreshold"] == 0.5


@pytest.mark.race
def test_kill_9_in_the_middle_of_writing_leaves_a_whole_file(start, tmp_path):
    path = str(tmp_path / "registry.json")
    generation = 0
    for round in range(5):
        registry = start("--state-file", path)
        stop = threading.Event()

        def write():
            i = 0
            other = Registry.__call__
            while not stop.is_set():
                try:
                    other(registry, "PUT", f"/v1/endpoints/w{i % 50}", {**ENDPOINT, "weight": 1 + i % 9})
                except (OSError, http.client.HTTPException):
                    return
                i += 1
        writer = threading.Thread(target=write)
        writer.start()
        wait_for_file(path, lambda s: s["generation"] > generation)
        registry.kill()
        stop.set()
        writer.join()
        with open(path, encoding="utf-8") as f:
            state = json.load(f)
        assert state["format"] == "weir-registry"
        generation = state["generation"]
        assert not os.path.exists(path + ".bad")


@pytest.mark.race
def test_a_clean_stop_saves_the_last_word(start, tmp_path):
    path = str(tmp_path / "registry.json")
    registry = start("--state-file", path)
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    registry.stop()
    with open(path, encoding="utf-8") as f:
        assert ids_in(json.load(f)) == {"w1"}
    assert os.listdir(tmp_path) == ["registry.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"format":"other","version":1,"endpoints":[]}', "\0\xff" * 5000,
                                  '{"format":"weir-registry","version":99,"endpoints":[]}'])
def test_a_damaged_or_foreign_file_is_moved_aside(start, tmp_path, text):
    path = tmp_path / "registry.json"
    path.write_text(text, encoding="latin-1")
    registry = start("--state-file", str(path))
    assert registry("GET", "/v1/endpoints").json()["endpoints"] == []
    assert (tmp_path / "registry.json.bad").read_text(encoding="latin-1") == text
    registry("PUT", "/v1/endpoints/w1", ENDPOINT)
    wait_for_file(str(path), lambda s: ids_in(s) == {"w1"})
    registry.stop()
    assert any("state file" in line and "kept as" in line for line in registry.log)


def test_a_folder_that_cannot_be_written_is_a_warning(start, tmp_path):
    registry = start("--state-file", str(tmp_path / "none" / "registry.json"))
    assert registry("PUT", "/v1/endpoints/w1", ENDPOINT).status == 201
    end = time.monotonic() + PATIENCE
    while not any("cannot save" in line for line in registry.log):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert registry("GET", "/v1/endpoints/w1").status == 200


# --- unchanged clients ---

MODULES = os.path.join(ROOT, "build", "npm", "node_modules")


@pytest.mark.skipif(not shutil.which("node") or not os.path.isdir(os.path.join(MODULES, "nacos")),
                    reason=f"node or {MODULES}/nacos is missing")
def test_npm_nacos_against_the_registry_alone(registry):
    """Registers, beats, subscribes, sees changes, deregisters. It ignores an empty list, so that is looked at from here."""
    done = subprocess.run(["node", os.path.join(ROOT, "tests", "e2e", "js", "nacos_registry.js")],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=4 * PATIENCE,
                          env={**os.environ, "NODE_PATH": MODULES, "SERVER": registry.address})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["ready", "registered 7001", "seen 7001", "seen 7001 7002", "beaten 7001",
                                        "seen 7002", "deregistered 7002"]
    assert registry.hosts("chat") == []


def test_python_nacos_against_the_registry_alone(start):
    nacos = pytest.importorskip("nacos", reason="nacos-sdk-python 1.0.0 is not installed")
    registry = start("--token", "s3cret-token")
    client = nacos.NacosClient(f"http://{registry.address}", namespace="public", username="nacos",
                               password="s3cret-token")
    meta = {"model_id": "m", "gpu_type": "A100"}
    assert client.add_naming_instance("chat", "127.0.0.1", 7001, metadata=meta, weight=2)
    found = client.list_naming_instance("chat")["hosts"]
    assert [(i["ip"], i["port"], i["clusterName"], i["metadata"]) for i in found] == \
        [("127.0.0.1", 7001, "None", meta)]     # the SDK sends the word None
    assert client.send_heartbeat("chat", "127.0.0.1", 7001, metadata=meta)["clientBeatInterval"] == 5000
    assert len(client.list_naming_instance("chat")["hosts"]) == 1       # a beat without a cluster finds it all the same
    assert client.modify_naming_instance("chat", "127.0.0.1", 7001, weight=0, metadata={"gpu_type": "T4"})
    client.send_heartbeat("chat", "127.0.0.1", 7001, metadata=meta, weight=2)
    detail = client.get_naming_instance("chat", "127.0.0.1", 7001)
    assert (detail["weight"], detail["metadata"]) == (0.0, {"model_id": "m", "gpu_type": "T4"})
    assert client.remove_naming_instance("chat", "127.0.0.1", 7001)
    assert client.list_naming_instance("chat")["hosts"] == []


def test_app_and_sidecar_1000_rounds(registry):
    """An app beats static metadata while a sidecar writes only dynamic keys, at the same time; no key is ever lost."""
    static = {"model_id": "m1", "gpu_type": "A100", **LASTING}
    registry.nacos("POST", "instance", **NACOS, metadata=json.dumps(static))
    failures = []

    def app():
        own = Client(registry)
        for _ in range(1000):
            r = own.nacos("PUT", "instance/beat", serviceName="llm", beat=beat(metadata=static))
            if r.json()["code"] != 10200:
                failures.append(r.text)

    def sidecar():
        own = Client(registry)
        calls = (("PATCH", "instance", NACOS), ("PUT", "instance", NACOS),
                 ("PUT", "instance/metadata/batch", {"serviceName": "llm"}))
        for i in range(1, 1001):
            dynamic = {"gpu_util": str(i), "remaining_memory": str(i)}
            method, path, fields = calls[i % 3]
            own.nacos(method, path, **fields, metadata=json.dumps(dynamic))
            got = own.nacos("GET", "instance", **NACOS).json()["metadata"]
            if got != {**static, **dynamic}:
                failures.append((i, got))
    threads = [threading.Thread(target=f) for f in (app, sidecar)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


class Client(Registry):
    """Another connection to a registry that runs."""

    def __init__(self, registry):       # pylint: disable=super-init-not-called
        self.host, self.port, self.connection = registry.host, registry.port, None


def test_documented_examples_run(registry):
    """Every curl line of docs/registry.md works as printed."""
    with open(os.path.join(ROOT, "docs", "registry.md"), encoding="utf-8") as f:
        blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
    script = "\n".join(blocks).replace("127.0.0.1:8848", registry.address)
    assert script.count("curl ") >= 8
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True,
                          timeout=PATIENCE * 2)
    assert done.returncode == 0, done.stdout + done.stderr
