# SPDX-License-Identifier: Apache-2.0
"""Nacos as a source over HTTP, against a scripted double: shapes of 1.4 to 3.x, login, signatures, failover, and the
rules of the field reports about it (docs/discovery.md names each)."""
import pytest

import weir_harness as h
from nacos_double import NacosDouble, host

QUICK = {"interval": "50ms", "timeout": "4m", "down_after": 1, "up_after": 1}
TURNS = [{"match": {"path": "/v1/**"}, "policy": "round_robin"}]    # all that can be used are used
BAD_GATEWAY = "<html><body>502 Bad Gateway</body></html>"


def source(*doubles, **more):
    return {"health": QUICK, "routes": TURNS,
            "discovery": [{"type": "nacos", "servers": [d.url for d in doubles], "services": ["llm"],
                           "protocol": "http", "interval": "20ms", **more}]}


@pytest.fixture
def nacos(keeper):
    return lambda **how: keeper.add(NacosDouble(**how))


def endpoints(weir):
    return {e["id"]: e for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]}


def ids(*ups):
    return {f"127.0.0.1:{u.port}" for u in ups}


def becomes(weir, *ups):
    h.wait_until(lambda: set(endpoints(weir)) == ids(*ups), "the list")


def stat(weir, name):
    return weir.metrics().value("weir_source_" + name, source="nacos")


def who(weir, n=6, model="m"):
    return {weir.chat(model).header("x-worker") for _ in range(n)}


@pytest.mark.sanitize
@pytest.mark.parametrize("shape", ["1.4", "2.x", "3.x"])
def test_lists_of_every_version_are_followed(start_weir, upstream, nacos, shape):
    a, b = upstream(name="a"), upstream(name="b")
    double = nacos(shape=shape)
    double.put(host(a, metadata={"model_id": "m", "gpu_type": "L4"}, clusterName="east"))
    weir = start_weir(source(double))
    weir.wait_up(a)
    e = endpoints(weir)[f"127.0.0.1:{a.port}"]
    assert (e["service"], e["gpu_type"], e["cluster"]) == ("llm", "L4", "east")
    assert who(weir) == {"a"}
    double.put(host(b), host(a, weight=2.5))
    weir.wait_up(b)
    assert who(weir, 20) == {"a", "b"}
    double.put(host(b))
    becomes(weir, b)
    assert stat(weir, "up") == 1


def test_an_unchanged_answer_is_not_read_again(start_weir, upstream, nacos):
    a = upstream(name="a")
    double = nacos()
    double.put(host(a))
    weir = start_weir(source(double))
    weir.wait_up(a)
    before = endpoints(weir)[f"127.0.0.1:{a.port}"]["generation"]
    double.wait_polls(20)                               # lastRefTime is another one in each
    assert endpoints(weir)[f"127.0.0.1:{a.port}"]["generation"] == before
    assert stat(weir, "errors_total") == 0


def test_groups_namespaces_and_clusters_are_asked_for(start_weir, upstream, nacos):
    a, b, c = (upstream(name=n) for n in "abc")
    double = nacos()
    double.put(host(a, clusterName="east"), host(c, clusterName="west"), service="PROD@@llm")
    double.put(host(b, clusterName="south"), service="TEST@@other")
    weir = start_weir(source(double, services=["llm", "TEST@@other"], group="PROD", namespace="ns-1",
                             clusters=["east", "south"]))
    weir.wait_up(a)
    weir.wait_up(b)
    assert set(endpoints(weir)) == ids(a, b)
    asked = {f["serviceName"]: f for _, p, f, _ in double.asked if p.endswith("/list")}
    assert set(asked) == {"PROD@@llm", "TEST@@other"}
    assert all(f["namespaceId"] == "ns-1" and f["clusters"] == "east,south" for f in asked.values())


def test_one_address_in_two_groups_is_one_endpoint(start_weir, upstream, nacos):
    a = upstream(name="a")                              # M18
    double = nacos()
    double.put(host(a, metadata={"model_id": "m", "gpu": "x"}))
    double.put(host(a, metadata={"model_id": "other"}), service="B@@llm")
    weir = start_weir(source(double, services=["llm", "B@@llm"]))
    weir.wait_up(a)
    double.wait_polls(4)
    e = endpoints(weir)
    assert set(e) == ids(a)
    shown = weir.admin_http("GET", f"/api/v1/endpoints/127.0.0.1:{a.port}").json()
    assert shown["metadata"]["gpu"] == "x"
    # The first that is configured counts, whichever was answered first; later ones add what it does not say.
    double.put(service="B@@llm")
    double.wait_polls(4)
    assert set(endpoints(weir)) == ids(a)
    assert weir.chat("m").status == 200


@pytest.mark.parametrize("how", [{"weight": 0}, {"enabled": False}, {"healthy": False},
                                 {"weight": 0, "enabled": False, "healthy": False}])
def test_who_is_out_gets_nothing_and_its_models_are_not_listed(start_weir, upstream, nacos, how):
    a, b = upstream(name="a"), upstream(name="b", models=("n",))        # M7, M8
    double = nacos()
    double.put(host(a), host(b, metadata={"model_id": "n"}, **how))
    weir = start_weir(source(double))
    weir.wait_up(a)
    double.wait_polls()
    assert weir.chat("n").status == 503
    assert [m["id"] for m in weir.http("GET", "/v1/models").json()["data"]] == ["m"]
    assert b.hits() == 0


def test_weight_zero_of_the_one_before_ends_without_a_restart(start_weir, upstream, nacos):
    a, b = upstream(name="a"), upstream(name="b")       # M5
    double = nacos()
    double.put(host(a), host(b, weight=0))
    weir = start_weir(source(double))
    weir.wait_up(a)
    double.wait_polls()
    assert who(weir, 12) == {"a"}
    double.put(host(a, weight=0), host(b, weight=1))
    h.wait_until(lambda: who(weir) == {"b"}, "b to have its turn")


def test_another_one_at_the_same_address_starts_afresh(start_weir, upstream, nacos):
    broken = lambda conn, request: conn.respond(500)    # M5
    a, b = upstream(broken, name="a"), upstream(name="b")
    one = f"127.0.0.1:{a.port}"
    double = nacos()
    double.put(host(a), host(b))
    weir = start_weir({**source(double, empty_grace="off"), "slow_start": "off",
                       "breaker": {"consecutive": 2, "cooldown": "1h"}})
    weir.wait_up(a)
    weir.wait_up(b)
    h.wait_until(lambda: weir.chat() and weir.metrics().value("weir_breaker_state", endpoint=one) == 2, "the breaker to open")
    before = endpoints(weir)[one]["generation"]
    double.put(host(b))
    becomes(weir, b)
    a.behaviour = lambda conn, request: conn.answer(request)
    double.put(host(a), host(b))
    weir.wait_up(a)
    assert endpoints(weir)[one]["generation"] != before
    assert who(weir, 12) == {"a", "b"}


def test_enabled_is_obeyed_whatever_the_order_and_a_drain_wins(start_weir, upstream, nacos):
    a, b = upstream(name="a"), upstream(name="b")       # M6
    double = nacos()
    weir = start_weir(source(double, empty_grace="off"))
    double.put(host(a), host(b))
    weir.wait_up(a)
    weir.wait_up(b)
    for hosts, want in (([host(a), host(b, enabled=False)], {"a"}), ([host(a)], {"a"}), ([host(a), host(b)], {"a", "b"})):
        double.put(*hosts)
        double.wait_polls(3)
        h.wait_until(lambda: who(weir, 12) == want, f"{want}")
    assert weir.admin_http("POST", f"/api/v1/endpoints/127.0.0.1:{a.port}/drain").status == 200
    h.wait_until(lambda: who(weir) == {"b"}, "the drain")
    double.put(host(a, weight=3), host(b))
    double.wait_polls(3)
    assert who(weir, 12) == {"b"}


def test_a_protected_list_is_checked_by_us(start_weir, upstream, nacos):
    a, b = upstream(name="a"), upstream(name="b")
    b.healthy = False
    double = nacos()
    double.protected.add("DEFAULT_GROUP@@llm")
    double.put(host(a), host(b))                        # Nacos says both are healthy
    weir = start_weir(source(double))
    weir.wait_up(a)
    h.wait_until(lambda: b.probes, "our check of b")
    assert who(weir, 12) == {"a"}
    assert b.hits() == 0


def test_lost_metadata_is_no_model_and_is_told(start_weir, upstream, nacos):
    a, b = upstream(name="a", models=()), upstream(name="b")            # M1
    double = nacos()
    double.put(host(a, metadata={"model_id": "x"}), host(b))
    weir = start_weir(source(double))
    weir.wait_up(a)
    assert weir.chat("x").status == 200
    double.put(host(b))
    becomes(weir, b)
    double.put(host(b), host(a, metadata={"model_id": "x"}))
    weir.wait_up(a)
    double.put(host(b), host(a, metadata={}))
    h.wait_until(lambda: weir.chat("x").status != 200, "x to have nobody")
    h.wait_until(lambda: weir.log_contains("has lost its metadata"), "the line")


def test_a_key_that_vanishes_is_unknown_not_an_error(start_weir, upstream, nacos):
    a = upstream(name="a")                              # M3
    double = nacos()
    double.put(host(a, metadata={"model_id": "m", "gpu_util": "50"}))
    weir = start_weir(source(double))
    weir.wait_up(a)
    h.wait_until(lambda: weir.metrics().sum("weir_endpoint_gpu_util_percent") == 50, "the number")
    double.put(host(a, metadata={"model_id": "m"}))
    h.wait_until(lambda: not weir.metrics().all("weir_endpoint_gpu_util_percent"), "the number to be gone")
    assert weir.chat().status == 200
    assert weir.up(a) == 1


def test_an_empty_list_keeps_those_that_pass_and_drops_those_that_fail(start_weir, upstream, nacos):
    a, b = upstream(name="a"), upstream(name="b")       # M10, M11
    double = nacos()
    double.put(host(a), host(b))
    weir = start_weir(source(double, empty_grace="1h"))
    weir.wait_up(a)
    weir.wait_up(b)
    double.put()
    h.wait_until(lambda: stat(weir, "held_endpoints") == 2, "both to be held")
    assert weir.chat().status == 200
    b.refuse()
    becomes(weir, a)
    a.refuse()
    becomes(weir)
    assert weir.chat().error() == (503, "no_endpoint")


def test_without_grace_an_empty_list_is_believed(start_weir, upstream, nacos):
    a = upstream(name="a")                              # M10
    double = nacos()
    double.put(host(a))
    weir = start_weir(source(double, empty_grace="off"))
    weir.wait_up(a)
    double.put()
    becomes(weir)
    assert weir.chat().error() == (503, "no_endpoint")


def test_a_dead_instance_that_is_still_listed_costs_no_error(start_weir, upstream, nacos):
    a, b = upstream(name="a"), upstream(name="b")       # M14
    double = nacos()
    double.put(host(a), host(b))
    weir = start_weir({**source(double), "health": {**QUICK, "interval": "1h"}})
    h.wait_until(lambda: set(endpoints(weir)) == ids(a, b), "both")
    h.wait_until(lambda: who(weir, 8) == {"a", "b"}, "both")
    a.refuse()
    assert [weir.chat().status for _ in range(20)] == [200] * 20
    assert set(endpoints(weir)) == ids(a, b)


def test_mass_removal_is_held_and_streams_go_on(start_weir, upstream, nacos):
    behaviour, opened = h.gate()                        # M15
    ups = [upstream(name=f"u{i}") for i in range(5)]
    held = upstream(behaviour, name="held")
    double = nacos()
    double.put(*[host(u) for u in ups], host(held, metadata={"model_id": "slow"}))
    weir = start_weir(source(double, hold_percent=50, empty_grace="1h"))
    for u in (*ups, held):
        weir.wait_up(u)
    import threading
    answer = []
    t = threading.Thread(target=lambda: answer.append(h.Http(weir.data)(
        "POST", "/v1/chat/completions", {"model": "slow", "messages": []})))
    t.start()
    held.wait_hits(1)
    double.put(host(ups[0]))
    h.wait_until(lambda: stat(weir, "held_endpoints") == 5, "five to be held")
    assert who(weir, 40) == {u.name for u in ups}
    opened.set()
    t.join(h.PATIENCE)
    assert answer[0].status == 200


def test_a_server_that_does_not_answer_holds_nobody_up(start_weir, upstream, nacos):
    a, b = upstream(name="a"), upstream(name="b")       # M17
    double = nacos()
    double.put(host(a))
    weir = start_weir(source(double))
    weir.wait_up(a)
    import threading
    asked, opened = threading.Event(), threading.Event()
    double.before = lambda: asked.set() or opened.wait(h.PATIENCE)
    assert asked.wait(h.PATIENCE)
    assert [weir.chat().status for _ in range(20)] == [200] * 20
    double.put(host(a), host(b))
    double.before = None
    opened.set()
    weir.wait_up(b)
    assert who(weir, 12) == {"a", "b"}


@pytest.mark.sanitize
def test_trouble_never_empties_the_list(start_weir, upstream, nacos):
    a = upstream(name="a")                              # M17
    double = nacos()
    double.put(host(a))
    weir = start_weir(source(double))
    weir.wait_up(a)
    for trouble in [(500, "boom"), (200, BAD_GATEWAY), (200, '{"hosts":[{"ip":"1'), (200, '{"name":"x"}'),
                    (200, ""), (403, "no"), (410, "gone"), "reset"]:
        before = stat(weir, "errors_total")
        double.answer = lambda m, p, f, t=trouble: t
        h.wait_until(lambda: stat(weir, "errors_total") > before + 1, f"{trouble} to be an error")
        assert stat(weir, "up") == 0
        assert set(endpoints(weir)) == ids(a)
        assert weir.chat().status == 200
        double.answer = None
        h.wait_until(lambda: stat(weir, "up") == 1, "the source")


def test_the_next_server_is_asked_when_one_fails(start_weir, upstream, nacos):
    a, b = upstream(name="a"), upstream(name="b")       # M17
    dead, one, two = nacos(), nacos(), nacos()
    dead.stop()
    one.put(host(a))
    two.put(host(a), host(b))
    weir = start_weir(source(dead, one, two))
    weir.wait_up(a)
    assert stat(weir, "errors_total") == 0              # one dead of three is no trouble
    one.answer = lambda m, p, f: (503, "server is DOWN now")
    weir.wait_up(b)
    assert stat(weir, "up") == 1
    dead.server.server_close()


@pytest.mark.parametrize("shape", ["2.x", "3.x"])
def test_login_and_a_token_that_expires(start_weir, upstream, nacos, tmp_path, shape):
    a, b = upstream(name="a"), upstream(name="b")       # M17
    double = nacos(shape=shape)
    double.token = "t1"
    double.put(host(a))
    (tmp_path / "password").write_text("s3cret\n")
    weir = start_weir(source(double, username="nacos", password=f"file:{tmp_path}/password"))
    weir.wait_up(a)
    sent = [f for _, p, f, _ in double.asked if p.endswith("/login")][-1]
    assert sent == {"username": "nacos", "password": "s3cret"}
    first = double.logins
    with double.lock:
        double.token = "t2"
    double.put(host(a), host(b))
    weir.wait_up(b)
    assert double.logins == first + 1                   # one login for one lost token
    assert stat(weir, "errors_total") in (0, 1)         # 3.x: the older login is tried first
    assert "s3cret" not in weir.output


def test_requests_are_signed(start_weir, upstream, nacos, tmp_path):
    a = upstream(name="a")
    double = nacos()
    double.secret = "k3y"
    double.put(host(a))
    (tmp_path / "secret").write_text("k3y\n")
    weir = start_weir(source(double, access_key="AK", secret_key=f"file:{tmp_path}/secret"))
    weir.wait_up(a)
    fields = [f for _, p, f, _ in double.asked if p.endswith("/list")][-1]
    assert fields["ak"] == "AK"
    assert fields["data"].endswith("@@DEFAULT_GROUP@@llm")


def test_names_and_both_address_families_are_usable(start_weir, upstream, nacos):
    a = upstream(name="a")                              # M19
    double = nacos()
    double.put(host(f"localhost:{a.port}"), *(host(at, metadata={"model_id": "other"}) for at in ("::1:8001", "worker-1.svc:8000")))
    weir = start_weir(source(double))
    h.wait_until(lambda: len(endpoints(weir)) == 3, "all three")
    assert set(endpoints(weir)) == {f"localhost:{a.port}", "[::1]:8001", "worker-1.svc:8000"}
    assert weir.chat().status == 200


def test_instances_that_cannot_be_read_are_left_out_alone(start_weir, upstream, nacos):
    a = upstream(name="a")
    double = nacos()
    double.put(host(a), host("1.2.3.4:8000", port=0), host("bad host:8000"), host("1.2.3.5:80", weight=-1))
    weir = start_weir(source(double))
    weir.wait_up(a)
    assert set(endpoints(weir)) == ids(a)
    weir.wait_line("3 instances of DEFAULT_GROUP@@llm cannot be read")


def test_a_start_while_nacos_is_down_uses_the_saved_list(start_weir, upstream, nacos, tmp_path):
    a = upstream(name="a")
    double = nacos()
    double.put(host(a))
    conf = source(double, state_file=str(tmp_path / "state.json"))
    weir = start_weir(conf)
    weir.wait_up(a)
    weir.stop()
    double.stop()
    weir = start_weir(conf)
    weir.wait_up(a)
    assert weir.chat().status == 200
    assert stat(weir, "up") == 0
    double.server.server_close()


def test_current_requests_are_written_back_with_the_whole_map(start_weir, upstream, nacos):
    behaviour, opened = h.gate()
    a = upstream(behaviour, name="a")
    double = nacos()
    double.put(host(a, metadata={"model_id": "m", "team": "x"}, clusterName="east", weight=2.0))
    weir = start_weir(source(double, report_requests="1s"))
    weir.wait_up(a)
    import threading
    t = threading.Thread(target=weir.chat)
    t.start()
    a.wait_hits(1)
    written = lambda: [f for m, p, f, _ in double.asked if m == "POST" and p.endswith("/ns/instance")]
    h.wait_until(lambda: any('"current_requests":"1"' in f["metadata"] for f in written()), "the number")
    opened.set()
    t.join(h.PATIENCE)
    f = [f for f in written() if '"current_requests":"1"' in f["metadata"]][0]
    assert {k: f[k] for k in ("serviceName", "ip", "port", "clusterName", "weight", "enabled", "ephemeral")} == {
        "serviceName": "DEFAULT_GROUP@@llm", "ip": "127.0.0.1", "port": str(a.port), "clusterName": "east",
        "weight": "2", "enabled": "true", "ephemeral": "true"}
    assert f["metadata"] == '{"model_id":"m","team":"x","current_requests":"1"}'


# --- gRPC: against the embedded registry of another Weir, which stands for a Nacos of 2.x


def pushed(*nodes, **more):
    conf = source(**{"protocol": "grpc", **more})
    conf["discovery"][0]["servers"] = ["http://%s:%d" % n for n in nodes]
    return conf


def tell(node, method, up, service="llm", **more):
    fields = {"serviceName": service, "ip": "127.0.0.1", "port": up.port, "metadata": "model_id=m", "ephemeral": "false",
              **more}
    r = node.registry_http(method, "/nacos/v1/ns/instance?" + "&".join(f"{k}={v}" for k, v in fields.items()))
    assert r.status == 200, r.body


@pytest.mark.sanitize
@pytest.mark.parametrize("protocol", ["grpc", "auto"])
def test_changes_are_pushed(start_weir, upstream, protocol):
    a, b = upstream(name="a"), upstream(name="b")
    node = start_weir()
    tell(node, "POST", a)
    tell(node, "POST", b, "x", groupName="G")
    weir = start_weir(pushed(node.registry, services=["llm", "G@@x"], protocol=protocol, interval="1h",
                             empty_grace="off"))
    weir.wait_up(a)
    weir.wait_up(b)
    tell(node, "DELETE", a)                                 # nothing is polled for an hour
    becomes(weir, b)
    tell(node, "POST", a, weight=0)
    h.wait_until(lambda: set(endpoints(weir)) == ids(a, b), "a again")
    assert who(weir, 6) == {"b"}
    tell(node, "PUT", a, weight=1)
    h.wait_until(lambda: who(weir, 6) == {"a", "b"}, "both")
    assert stat(weir, "errors_total") == 0


def test_a_lost_connection_is_made_anew_at_the_next_server(start_weir, upstream, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    one, two = start_weir(), start_weir()
    tell(one, "POST", a)
    tell(two, "POST", a)
    weir = start_weir(pushed(one.registry, two.registry))
    weir.wait_up(a)
    one.stop()
    tell(two, "POST", b)
    weir.wait_up(b)
    assert set(endpoints(weir)) == ids(a, b)
    assert weir.chat().status == 200


def test_without_any_server_the_last_list_stays(start_weir, upstream):
    a = upstream(name="a")
    port = h.free_port(1000)            # gRPC is on port + 1000
    node = start_weir(args=("--registry-port", str(port)))
    tell(node, "POST", a)
    weir = start_weir(pushed(node.registry))
    weir.wait_up(a)
    node.stop()
    h.wait_until(lambda: stat(weir, "up") == 0, "the source to be down")
    assert weir.chat().status == 200
    node = start_weir(args=("--registry-port", str(port)))
    tell(node, "POST", a, weight=7)
    h.wait_until(lambda: stat(weir, "up") == 1, "the source")
    h.wait_until(lambda: endpoints(weir)[f"127.0.0.1:{a.port}"]["weight"] == 7, "the new list")


def test_auto_polls_a_server_that_has_no_grpc(start_weir, upstream, nacos):
    a = upstream(name="a")
    double = nacos(shape="1.4")
    double.put(host(a))
    weir = start_weir(source(double, protocol="auto"))
    weir.wait_up(a)
    assert stat(weir, "errors_total") == 0


def test_grpc_logs_in_and_survives_a_new_token(start_weir, upstream, tmp_path):
    a = upstream(name="a")
    (tmp_path / "token").write_text("s3cret\n")
    node = start_weir({"registry": {"token": f"file:{tmp_path}/token"}})
    r = node.registry_http("POST", f"/nacos/v1/ns/instance?serviceName=llm&ip=127.0.0.1&port={a.port}&ephemeral=false"
                                   "&metadata=model_id=m&accessToken=s3cret")
    assert r.status == 200
    weir = start_weir(pushed(node.registry, username="nacos", password=f"file:{tmp_path}/token"))
    weir.wait_up(a)
    assert weir.chat().status == 200
