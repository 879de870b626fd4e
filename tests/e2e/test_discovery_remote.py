# SPDX-License-Identifier: Apache-2.0
"""Endpoints from DNS (dnsmasq), etcd (etcd itself) and Consul (a double): joining, leaving, and registries in trouble."""
import json
import socket
import threading

import pytest

import registries as r
import tls_util
import weir_harness as h
from test_discovery_file import QUICK, becomes, ids, listed, stat

PREFIX = "/weir/endpoints/"


TURNS = [{"match": {"path": "/v1/**"}, "policy": "round_robin"}]    # all that can be used are used


def config(kind, **more):
    return {"health": QUICK, "routes": TURNS, "discovery": [{"type": kind, **more}]}


def doc(up, **more):
    return {"url": up.url, "service": "llm", "models": [{"id": "m"}], **more}


def names(weir):
    return {e["id"]: e for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]}


def wait_models(weir, up):
    """Up, and its models known: a name in the DNS tells none."""
    weir.wait_up(up)
    h.wait_until(lambda: names(weir)[up.url.split("//")[1]]["models"], f"models of {up.name}")


def answered_by(weir, n=12):
    done = [weir.chat() for _ in range(n)]
    assert [d.status for d in done] == [200] * n, [d.body for d in done if d.status != 200]
    return {d.header("x-worker") for d in done}


# ---------------------------------------------------------------------------------------------------------- DNS


@pytest.fixture
def dns(keeper, tmp_path):
    return keeper.add(r.Dnsmasq(tmp_path))


def by_dns(dns, service, **more):
    return config("dns", servers=[dns.server], services=[service], interval="50ms", **more)


@pytest.mark.sanitize
def test_addresses_of_a_name_are_endpoints(start_weir, upstream, dns):
    """A and AAAA, changes, and a name server that is gone: the last good set stays."""
    a = upstream(name="a", port=h.free_port())
    b = upstream(name="b", host="127.0.0.2", port=a.port)
    dns.set("host-record=llm.test,127.0.0.1")
    weir = start_weir(by_dns(dns, f"llm.test:{a.port}"))
    wait_models(weir, a)
    dns.set("host-record=llm.test,127.0.0.1", "host-record=llm.test,127.0.0.2")
    wait_models(weir, b)
    assert answered_by(weir) == {"a", "b"}
    dns.end()
    h.wait_until(lambda: stat(weir, "up", "dns") == 0, "the failure to be seen")
    assert answered_by(weir) == {"a", "b"}
    dns.set("host-record=llm.test,127.0.0.2")
    h.wait_until(lambda: listed(weir) == {f"127.0.0.2:{a.port}"}, "the list without a")
    h.wait_until(lambda: stat(weir, "up", "dns") == 1, "the source")


def test_aaaa_records_are_endpoints_with_brackets(start_weir, upstream, dns):
    try:
        a = upstream(name="a", host="::1")
    except OSError:
        pytest.skip("no IPv6 here")
    dns.set("host-record=llm.test,::1")
    weir = start_weir(by_dns(dns, f"llm.test:{a.port}"))
    wait_models(weir, a)
    one = f"[::1]:{a.port}"
    assert listed(weir) == {one}
    assert answered_by(weir) == {"a"}
    assert a.requests[-1].header("Host") == one
    assert weir.metrics().value("weir_endpoint_up", endpoint=one) == 1


@pytest.mark.sanitize
def test_srv_records_lead_to_ports_and_weights(start_weir, upstream, dns):
    a, b, backup = upstream(name="a"), upstream(name="b", host="127.0.0.2"), upstream(name="backup")
    hosts = ["host-record=one.test,127.0.0.1", "host-record=two.test,127.0.0.2"]
    dns.set(*hosts, f"srv-host=_http._tcp.llm.test,one.test,{a.port},1,1",
            f"srv-host=_http._tcp.llm.test,two.test,{b.port},1,3",
            f"srv-host=_http._tcp.llm.test,one.test,{backup.port},2,1")
    weir = start_weir(by_dns(dns, "_http._tcp.llm.test"))
    for up in (a, b, backup):
        wait_models(weir, up)

    def weights():
        found = names(weir)
        return [found[up.url.split("//")[1]]["weight"] for up in (a, b, backup)]
    h.wait_until(lambda: weights() == [0.333, 1, 0], "the weights, and none for the second priority")
    assert answered_by(weir) == {"a", "b"}
    a.refuse()
    b.refuse()
    h.wait_until(lambda: names(weir)[backup.url.split("//")[1]]["weight"] == 1, "the next priority")
    assert answered_by(weir) == {"backup"}


def test_a_name_that_is_gone_is_an_empty_list(start_weir, upstream, dns):
    """Held while our checks pass, gone when they do not."""
    a = upstream(name="a")
    dns.set("host-record=llm.test,127.0.0.1")
    weir = start_weir(by_dns(dns, f"llm.test:{a.port}", empty_grace="1h"))
    wait_models(weir, a)
    dns.set()
    h.wait_until(lambda: stat(weir, "held_endpoints", "dns") == 1, "a to be held")
    assert weir.chat().status == 200
    a.refuse()
    becomes(weir)


class Names:
    """A name server for one name, scripted: what it sends for A and for AAAA."""

    A, AAAA = 1, 28

    def __init__(self):
        self.answers = {self.A: "good", self.AAAA: "none"}
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.server = "127.0.0.1:%d" % self.sock.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                ask, peer = self.sock.recvfrom(4096)
            except OSError:
                return
            end = ask.index(b"\0", 12) + 5
            word = self.answers[int.from_bytes(ask[end - 4:end - 2], "big")]
            code = 0x82 if word == "servfail" else 0x80
            rr = {"good": b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1",
                  "broken": b"\xc0\xff\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1"}.get(word, b"")
            self.sock.sendto(ask[:2] + b"\x81" + bytes([code]) + b"\0\1\0" + (b"\1" if rr else b"\0") + b"\0\0\0\0" +
                             ask[12:end] + rr, peer)

    def stop(self):
        self.sock.close()


def test_an_answer_that_is_no_dns_changes_nothing(start_weir, upstream, keeper):
    a = upstream(name="a")
    names = keeper.add(Names())
    weir = start_weir(config("dns", servers=[names.server], services=[f"llm.test:{a.port}"], interval="50ms"))
    wait_models(weir, a)
    names.answers[names.A] = "broken"
    h.wait_until(lambda: stat(weir, "up", "dns") == 0, "the nonsense to be seen")
    assert answered_by(weir) == {"a"}


def test_a_name_server_that_answers_for_one_family_is_enough(start_weir, upstream, keeper):
    a = upstream(name="a")
    names = keeper.add(Names())
    names.answers[names.AAAA] = "servfail"
    weir = start_weir(config("dns", servers=[names.server], services=[f"llm.test:{a.port}"], interval="50ms"))
    wait_models(weir, a)
    h.wait_until(lambda: stat(weir, "up", "dns") == 1, "the source")
    names.answers.update({names.A: "servfail", names.AAAA: "none"})
    h.wait_until(lambda: stat(weir, "up", "dns") == 0, "the failure")
    assert answered_by(weir) == {"a"}


@pytest.mark.parametrize("key, value, words", [
    ("services", ["llm.test:0"], "neither host:port nor"), ("services", ["llm.test:99999"], "neither host:port nor"),
    ("servers", ["ns.test:53"], "address of a name server"), ("servers", ["10.0.0.2"], "address of a name server")])
def test_names_and_name_servers_are_checked(tmp_path, key, value, words):
    path = tmp_path / "weir.json"
    path.write_text(json.dumps(config("dns", **{"services": ["llm.test:80"], key: value})))
    status, out, err = h.run_weir("check", path)
    assert status == 1 and words in out + err


# ---------------------------------------------------------------------------------------------------------- etcd


@pytest.fixture
def etcd(keeper, tmp_path):
    return keeper.add(r.Etcd(tmp_path / "etcd"))


@pytest.mark.sanitize
def test_keys_below_the_prefix_are_endpoints(start_weir, upstream, etcd):
    a, b = upstream(name="a"), upstream(name="b")
    etcd.put(PREFIX + "a", doc(a, weight=2))
    etcd.put("/weir/endpointz", doc(b))         # not below it
    weir = start_weir(config("etcd", servers=[etcd.url], empty_grace="off"))
    weir.wait_up(a)
    assert listed(weir) == ids(a)
    etcd.put(PREFIX + "b", doc(b))              # by the watch
    weir.wait_up(b)
    assert answered_by(weir) == {"a", "b"}
    etcd.put(PREFIX + "a", doc(a, weight=5))
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{a.port}"]["weight"] == 5, "the new weight")
    etcd.delete(PREFIX + "a")
    becomes(weir, b)
    etcd.delete(PREFIX + "b")
    becomes(weir)


def test_a_value_that_cannot_be_read_changes_nothing(start_weir, upstream, etcd):
    a, b = upstream(name="a"), upstream(name="b")
    etcd.put(PREFIX + "a", doc(a))
    etcd.put(PREFIX + "bad", "{not json")
    weir = start_weir(config("etcd", servers=[etcd.url]))
    weir.wait_up(a)
    etcd.put(PREFIX + "a", {"url": a.url, "wieght": 3})
    h.wait_until(lambda: weir.log_contains(r"/weir/endpoints/a: wieght.*stays"), "the complaint")
    etcd.put(PREFIX + "b", doc(b))
    weir.wait_up(b)
    assert listed(weir) == ids(a, b)


@pytest.mark.sanitize
def test_etcd_down_restarted_and_compacted(start_weir, upstream, etcd, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    state = str(tmp_path / "state.json")
    etcd.put(PREFIX + "a", doc(a))
    weir = start_weir(config("etcd", servers=[etcd.url], state_file=state))
    weir.wait_up(a)
    etcd.end()
    h.wait_until(lambda: stat(weir, "errors_total", "etcd") >= 3, "more than one try")
    assert answered_by(weir) == {"a"}
    weir.stop()
    # Started while it is down: from the saved list.
    weir = start_weir(config("etcd", servers=[etcd.url], state_file=state))
    weir.wait_up(a)
    assert answered_by(weir) == {"a"}
    etcd.start()
    last = etcd.put(PREFIX + "b", doc(b))
    weir.wait_up(b)
    etcd.end()                                  # what the watch knew is compacted away while it is gone
    etcd.start()
    last = etcd.put(PREFIX + "a", doc(a, weight=4))
    etcd.call("/kv/compaction", {"revision": str(last), "physical": True})
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{a.port}"]["weight"] == 4, "the new weight")
    h.wait_until(lambda: stat(weir, "up", "etcd") == 1, "the source")


def test_etcd_with_auth(start_weir, upstream, etcd):
    """A server of 3.4 hangs up on a token that it does not know, and it knows none of before its restart."""
    a, b = upstream(name="a"), upstream(name="b")
    etcd.put(PREFIX + "a", doc(a))
    etcd.add_user("weir", "s3cret")
    weir = start_weir(config("etcd", servers=[etcd.url], username="weir", password="env:ETCD_PASSWORD"),
                      env={"ETCD_PASSWORD": "s3cret"})
    weir.wait_up(a)
    etcd.end()
    etcd.start()
    etcd.login()
    etcd.put(PREFIX + "b", doc(b))
    weir.wait_up(b)
    assert not weir.log_contains("s3cret")


def test_etcd_refuses_a_wrong_password(start_weir, upstream, etcd):
    a = upstream(name="a")
    etcd.put(PREFIX + "a", doc(a))
    etcd.add_user("weir", "s3cret")
    weir = start_weir(config("etcd", servers=[etcd.url], username="weir", password="env:ETCD_PASSWORD"),
                      env={"ETCD_PASSWORD": "wrong"})
    h.wait_until(lambda: weir.log_contains("authenticate: HTTP 400 .*authentication failed"), "the refusal")
    assert listed(weir) == set()


def test_many_keys_deleted_at_once_are_held(start_weir, upstream, etcd):
    ups = [upstream(name=f"u{i}") for i in range(3)]
    for up in ups:
        etcd.put(PREFIX + up.name, doc(up))
    weir = start_weir(config("etcd", servers=[etcd.url], empty_grace="1h", hold_percent=60))
    for up in ups:
        weir.wait_up(up)
    etcd.delete(PREFIX + "u0", PREFIX + "u1")
    h.wait_until(lambda: stat(weir, "held_endpoints", "etcd") == 2, "two to be held")
    assert answered_by(weir) == {"u0", "u1", "u2"}
    ups[0].refuse()
    becomes(weir, ups[1], ups[2])
    etcd.put(PREFIX + "u1", doc(ups[1]))
    h.wait_until(lambda: stat(weir, "held_endpoints", "etcd") == 0, "the list to count again")


def test_a_dead_endpoint_that_etcd_still_lists_costs_no_error(start_weir, upstream, etcd):
    a, b = upstream(name="a"), upstream(name="b")
    for up in (a, b):
        etcd.put(PREFIX + up.name, doc(up))
    weir = start_weir({**config("etcd", servers=[etcd.url]), "health": {**QUICK, "interval": "1h"}})
    weir.wait_up(a)
    weir.wait_up(b)
    a.refuse()
    assert answered_by(weir, 40) == {"b"}
    assert listed(weir) == ids(a, b)


# -------------------------------------------------------------------------------------------------------- Consul


@pytest.fixture
def consul(keeper):
    return keeper.add(r.Consul())


def by_consul(*registries, **more):
    return config("consul", servers=[c.url for c in registries], services=["llm"], **more)


@pytest.mark.sanitize
def test_consul_health_is_followed(start_weir, upstream, consul):
    a, b = upstream(name="a"), upstream(name="b")
    consul.put(a, Tags=["gpu", "tier=gold"], Meta={"model_id": "m", "gpu_type": "A100"}, Weights={"Passing": 3, "Warning": 1})
    weir = start_weir(by_consul(consul, empty_grace="off"))
    weir.wait_up(a)
    one = names(weir)[f"127.0.0.1:{a.port}"]
    assert one["weight"] == 3
    assert one["metadata"] == {"model_id": "m", "gpu_type": "A100", "tags": "gpu,tier=gold", "node": "n1", "datacenter": "dc1"}
    assert one["labels"] == {"gpu": "true", "tier": "gold"}
    consul.put(b)                               # told by the query that waits
    weir.wait_up(b)
    assert answered_by(weir) == {"a", "b"}
    consul.put(a, "critical")
    h.wait_until(lambda: answered_by(weir, 4) == {"b"}, "a not to be used")
    assert listed(weir) == ids(a, b)
    consul.put(a, "warning", Weights={"Passing": 3, "Warning": 2})
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{a.port}"]["weight"] == 2, "the weight of a warning")
    consul.drop(a, b)
    becomes(weir)
    call = consul.wait(lambda m, p, q, b: q.get("index") == str(consul.index), "the next query")
    assert call[1] == "/v1/health/service/llm" and call[2]["wait"] == "55s"


def test_an_index_that_goes_backwards_starts_from_0(start_weir, upstream, consul):
    a = upstream(name="a")
    consul.put(a)
    weir = start_weir(by_consul(consul))
    weir.wait_up(a)
    consul.wait(lambda m, p, q, b: q["index"] == "11", "the query that waits")
    consul.rewind()                             # restored from an old snapshot, say
    consul.wait(lambda m, p, q, b: q["index"] == "1", "the query after")
    assert [q["index"] for _, _, q, _ in consul.calls][:2] == ["0", "1"]
    consul.put(a, Weights={"Passing": 7, "Warning": 1})
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{a.port}"]["weight"] == 7, "the change")


def test_consul_down_and_started_while_it_is_down(start_weir, upstream, consul, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    state = str(tmp_path / "state.json")
    consul.put(a)
    weir = start_weir(by_consul(consul, state_file=state))
    weir.wait_up(a)
    consul.end()
    h.wait_until(lambda: stat(weir, "errors_total", "consul") >= 3, "more than one try")
    assert answered_by(weir) == {"a"}
    weir.stop()
    weir = start_weir(by_consul(consul, state_file=state))
    weir.wait_up(a)
    assert answered_by(weir) == {"a"} and stat(weir, "up", "consul") == 0
    consul.index = 1
    consul.put(b)
    consul.start()
    weir.wait_up(b)
    assert listed(weir) == ids(a, b)


@pytest.mark.parametrize("fault", [(500, "No cluster leader"), (200, "<html>"), (200, '[{"Node"'), (200, "{}"),
                                   (403, "Permission denied")])
def test_answers_that_are_none_change_nothing(start_weir, upstream, consul, fault):
    a = upstream(name="a")
    consul.put(a)
    weir = start_weir(by_consul(consul, empty_grace="off"))
    weir.wait_up(a)
    consul.fail(*fault)
    h.wait_until(lambda: stat(weir, "up", "consul") == 0, "the failure")
    assert answered_by(weir, 4) == {"a"}
    consul.fail(None)
    h.wait_until(lambda: stat(weir, "up", "consul") == 1, "the recovery")
    assert listed(weir) == ids(a)


def test_the_next_server_is_asked_when_one_fails(start_weir, upstream, keeper):
    """And lists that differ: the one that is asked counts."""
    a, b = upstream(name="a"), upstream(name="b")
    one, other = keeper.add(r.Consul()), keeper.add(r.Consul())
    one.put(a)
    other.put(a)
    other.put(b)
    weir = start_weir(by_consul(one, other))
    weir.wait_up(a)
    assert listed(weir) == ids(a)
    one.end()
    weir.wait_up(b)
    assert listed(weir) == ids(a, b)
    assert answered_by(weir) == {"a", "b"}


def test_consul_token_datacenter_and_tag(start_weir, upstream, keeper, tmp_path):
    """A token that is replaced on disk is read anew; one that may not read a service gets an empty list, which is none."""
    a, b = upstream(name="a"), upstream(name="b")
    consul = keeper.add(r.Consul(token="t1"))
    consul.put(a, Tags=["blue"])
    consul.put(b, Tags=["green"])
    path = tmp_path / "token"
    path.write_text("t1\n")
    weir = start_weir(by_consul(consul, token=f"file:{path}", datacenter="east 1", tag="blue", empty_grace="off"))
    weir.wait_up(a)
    assert listed(weir) == ids(a)
    assert consul.wait(lambda m, p, q, b: True, "a call")[2]["dc"] == "east 1"
    path.write_text("t2\n")
    with consul.cond:
        consul.token = "t2"
        consul.news()
    consul.put(a, Tags=["blue"], Weights={"Passing": 5, "Warning": 1})
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{a.port}"]["weight"] == 5, "the change")
    with consul.cond:
        consul.blind, consul.token = {"t2"}, "t3"
        consul.news()
    h.wait_until(lambda: weir.log_contains("the token may not read it"), "the complaint")
    assert listed(weir) == ids(a)
    path.write_text("t3\n")
    consul.put(a, Tags=["blue"], Weights={"Passing": 6, "Warning": 1})
    h.wait_until(lambda: names(weir)[f"127.0.0.1:{a.port}"]["weight"] == 6, "the change by the third token")


def test_a_token_that_sees_a_part_takes_nobody_away(start_weir, upstream, keeper, tmp_path):
    """Whom it no longer sees may be there: kept while our checks pass. Who leaves what it sees has left."""
    a, b, c, d = (upstream(name=n) for n in "abcd")
    consul = keeper.add(r.Consul(token="t1"))
    for up in (a, b, c, d):
        consul.put(up)
    path = tmp_path / "token"
    path.write_text("t1\n")
    weir = start_weir(by_consul(consul, token=f"file:{path}", empty_grace="off"))
    for up in (a, b, c, d):
        weir.wait_up(up)
    assert stat(weir, "partial_lists", "consul") == 0
    with consul.cond:
        consul.hidden["t1"] = {"b", "c"}
        consul.news()
    h.wait_until(lambda: stat(weir, "held_endpoints", "consul") == 2, "two to be held")
    h.wait_until(lambda: stat(weir, "partial_lists", "consul") == 1 and stat(weir, "up", "consul") == 1, "the part")
    consul.drop(d)
    becomes(weir, a, b, c)
    assert answered_by(weir) == {"a", "b", "c"}
    c.refuse()
    becomes(weir, a, b)
    weir.wait_line("may read only a part of llm")
    assert weir.output.count("may read only a part of llm") == 1
    # All is shown again, without b and c: gone.
    with consul.cond:
        consul.hidden.clear()
        del consul.services["b"], consul.services["c"]
        consul.news()
    becomes(weir, a)
    h.wait_until(lambda: stat(weir, "partial_lists", "consul") == 0, "the whole list")
    # A better token on disk is taken at once: it sees d, whom nothing announces.
    path.write_text("t2\n")
    with consul.cond:
        consul.token, consul.hidden["t1"] = "t2", {"d"}
        consul.put(d)
    weir.wait_up(d)
    h.wait_until(lambda: weir.output.count("may read only a part of llm") == 2, "the second line")
    h.wait_until(lambda: stat(weir, "partial_lists", "consul") == 0, "the whole list")


def test_consul_under_maintenance_and_without_an_address(start_weir, upstream, consul):
    a = upstream(name="a")
    consul.put(a, Address="")                   # that of its node
    with consul.cond:
        consul.change("none", {"ID": "none", "Name": "llm", "Port": 0}, {})
    weir = start_weir(by_consul(consul))
    weir.wait_up(a)
    assert listed(weir) == ids(a)
    weir.wait_line("1 instances of llm have no address")
    with consul.cond:
        consul.services["a"][1]["_service_maintenance:a"] = "critical"
        consul.news()
    h.wait_until(lambda: weir.chat().status == 503, "maintenance")


# --------------------------------------------------------------------------------------------------- all of them


def register(registry, up, **more):
    if isinstance(registry, r.Etcd):
        registry.put(PREFIX + up.name, doc(up))
    else:
        registry.put(up)


def start_registry(kind, keeper, folder, **more):
    registry = keeper.add(r.Etcd(folder / "etcd", **more) if kind == "etcd" else r.Consul(**more))
    return registry, {"servers": [registry.url], **({} if kind == "etcd" else {"services": ["llm"]})}


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", ["etcd", "consul"])
def test_over_tls_with_certificates_on_both_sides(start_weir, upstream, keeper, tmp_path, kind):
    a = upstream(name="a")
    tls = keeper.add(tls_util.Authority())
    tls.cert = tls.make("registry", "IP:127.0.0.1")
    registry, keys = start_registry(kind, keeper, tmp_path, tls=tls)
    register(registry, a)
    cert, key = tls.make("weir")
    shown = {"cert": "file:" + cert, "key": "file:" + key}
    weir = start_weir(config(kind, **keys, ca="file:" + tls.ca, **shown))
    weir.wait_up(a)
    other = keeper.add(tls_util.Authority("other"))
    weir = start_weir(config(kind, **keys, ca="file:" + other.ca, **shown))
    h.wait_until(lambda: weir.log_contains("certificate"), "the distrust")
    assert listed(weir) == set()


@pytest.mark.parametrize("kind", ["etcd", "consul"])
def test_ipv6_from_a_registry(start_weir, upstream, keeper, tmp_path, kind):
    try:
        a = upstream(name="a", host="::1")
    except OSError:
        pytest.skip("no IPv6 here")
    registry, keys = start_registry(kind, keeper, tmp_path)
    register(registry, a)
    weir = start_weir(config(kind, **keys))
    weir.wait_up(a)
    assert listed(weir) == {f"[::1]:{a.port}"}
    assert answered_by(weir, 4) == {"a"}


def test_a_dead_endpoint_that_consul_still_lists_costs_no_error(start_weir, upstream, consul):
    a, b = upstream(name="a"), upstream(name="b")
    consul.put(a)
    consul.put(b)
    weir = start_weir({**by_consul(consul), "health": {**QUICK, "interval": "1h"}})
    weir.wait_up(a)
    weir.wait_up(b)
    a.refuse()
    assert answered_by(weir, 40) == {"b"}
    assert listed(weir) == ids(a, b)


def test_sources_of_all_kinds_are_merged_by_address(start_weir, upstream, keeper, tmp_path, dns):
    """The first source that describes an endpoint wins, field by field; it stays while any of them lists it."""
    a = upstream(name="a")
    etcd, etcd_keys = start_registry("etcd", keeper, tmp_path)
    consul, consul_keys = start_registry("consul", keeper, tmp_path)
    dns.set("host-record=llm.test,127.0.0.1")
    etcd.put(PREFIX + "a", doc(a, weight=4))
    consul.put(a, Weights={"Passing": 9, "Warning": 1})
    weir = start_weir({"health": QUICK, "discovery": [
        {"type": "etcd", "empty_grace": "off", **etcd_keys}, {"type": "consul", "empty_grace": "off", **consul_keys},
        {"type": "dns", "servers": [dns.server], "services": [f"llm.test:{a.port}"], "interval": "50ms", "empty_grace": "off"}]})
    weir.wait_up(a)
    h.wait_until(lambda: stat(weir, "answers_total", "consul") and stat(weir, "answers_total", "dns"), "all of them")
    one = f"127.0.0.1:{a.port}"
    h.wait_until(lambda: names(weir)[one]["weight"] == 4, "etcd's weight")
    assert listed(weir) == {one}
    etcd.delete(PREFIX + "a")
    h.wait_until(lambda: names(weir)[one]["weight"] == 9, "Consul's weight")
    consul.drop(a)
    h.wait_until(lambda: names(weir)[one]["weight"] == 1, "that of the DNS")
    dns.set()
    becomes(weir)
