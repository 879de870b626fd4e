# SPDX-License-Identifier: Apache-2.0
"""Endpoints from Kubernetes, against a double of its API server."""
import base64
import json
import os
import ssl
import subprocess
import threading

import pytest

import weir_harness as h
from kube_double import PODS, SLICES, KubeApi, endpoint
from test_discovery_file import QUICK, becomes, ids, listed, stat
from test_discovery_remote import TURNS, answered_by, names, wait_models
from tls_util import Authority


@pytest.fixture
def api(keeper):
    return keeper.add(KubeApi())


def config(api=None, **more):
    source = {"type": "kubernetes", "services": ["llm"], **more}
    if api:
        source.update(servers=[api.url], namespace="ai")
    if "selector" in more:
        del source["services"]
    return {"health": QUICK, "routes": TURNS, "discovery": [source]}


def two(upstream, behaviour=h.answer_at_once):
    """Two servers on one port, as pods are."""
    a = upstream(behaviour, name="a", port=h.free_port())
    return a, upstream(behaviour, name="b", host="127.0.0.2", port=a.port)


def address(up):
    return up.url.split("//")[1]


def watched(api):
    """Both are watched, from where they were listed."""
    for kind in (SLICES, PODS):
        api.wait(kind, lambda q: "watch" in q, f"a watch of {kind}")


@pytest.mark.sanitize
def test_slices_and_pods_are_followed(start_weir, upstream, api):
    a, b = two(upstream)
    api.pod("a", {"weir.dev/gpu_type": "A100", "weir.dev/weight": "3", "other.io/x": "1"},
            {"app": "llm", "nacos.metadata.model_id": "m", "weir.dev/gpu_type": "H100"})
    api.slice("llm-1", [endpoint(a, node="n1", zone="z1")])
    api.slice("other", [b], service="else")
    weir = start_weir(config(api, empty_grace="off"))
    wait_models(weir, a)
    one = names(weir)[address(a)]
    assert listed(weir) == {address(a)}
    assert (one["weight"], one["zone"], one["service"]) == (3, "z1", "llm")
    assert one["metadata"] == {"gpu_type": "A100", "weight": "3", "model_id": "m", "pod": "a", "node": "n1"}
    assert one["labels"] == {"app": "llm", "nacos.metadata.model_id": "m", "weir.dev/gpu_type": "H100"}
    watched(api)
    api.slice("llm-2", [b])       # by the watch, and with pods of no name yet
    wait_models(weir, b)
    assert answered_by(weir) == {"a", "b"}
    api.pod("b", {"weir.dev/weight": "7"})
    h.wait_until(lambda: names(weir)[address(b)]["weight"] == 7, "the annotation")
    api.delete(PODS, "b")                                   # its slice has it for a moment longer
    api.slice("llm-1", [a], ready=False)
    h.wait_until(lambda: answered_by(weir, 4) == {"b"}, "a not to be ready")
    assert names(weir)[address(b)]["weight"] == 7
    api.delete(SLICES, "llm-1")
    h.wait_until(lambda: listed(weir) == {address(b)}, "a to be gone")
    api.delete(SLICES, "llm-2")
    becomes(weir)
    (_, first, head), (_, pods, pods_head) = [next(c for c in api.calls if c[0] == k) for k in (SLICES, PODS)]
    assert first == {"limit": "500", "labelSelector": "kubernetes.io/service-name in (llm)"}
    assert pods == {"limit": "500"} and "as=PartialObjectMetadataList" in pods_head["Accept"]
    watch = api.wait(SLICES, lambda q: "watch" in q, "the watch")[1]
    assert watch["allowWatchBookmarks"] == "true" and watch["timeoutSeconds"] == "290"
    assert watch["labelSelector"] == first["labelSelector"]


@pytest.mark.sanitize
def test_lists_in_pieces(start_weir, upstream, api):
    """And one whose next piece has expired, which is begun anew."""
    ups = [upstream(name=f"u{i}") for i in range(5)]
    for i, up in enumerate(ups):
        api.slice(f"llm-{i}", [up])
        api.pod(up.name, {"weir.dev/weight": str(i + 2)})
    api.piece, api.forget_pieces = 2, {SLICES: 1}
    weir = start_weir(config(api))
    for up in ups:
        wait_models(weir, up)
    assert [names(weir)[address(up)]["weight"] for up in ups] == [2, 3, 4, 5, 6]
    pieces = [q for k, q, _ in api.calls if k == SLICES and "watch" not in q]
    assert ["continue" in q for q in pieces] == [False, True, False, True, True]
    assert all(q["limit"] == "500" for q in pieces)


def test_a_watch_goes_on_from_the_last_bookmark(start_weir, upstream, api):
    """What was before it is forgotten: from there a watch would be refused."""
    a, b = two(upstream)
    api.slice("llm-1", [a])
    weir = start_weir(config(api))
    wait_models(weir, a)
    watched(api)
    lists = sum(1 for k, q, _ in api.calls if k == SLICES and "watch" not in q)
    version = api.bookmark()
    api.slice("none", [], cut=True)
    api.wait_watch(SLICES, version)
    api.slice("llm-2", [b])
    wait_models(weir, b)
    assert sum(1 for k, q, _ in api.calls if k == SLICES and "watch" not in q) == lists
    assert stat(weir, "errors_total", "kubernetes") == 0


@pytest.mark.sanitize
def test_410_as_a_status_and_as_an_event_lists_again(start_weir, upstream, api):
    a, b = two(upstream)
    api.slice("llm-1", [a])
    weir = start_weir(config(api, empty_grace="off"))
    wait_models(weir, a)
    watched(api)
    with api.cond:                              # all of it while Weir looks away
        api.cut.add(SLICES)
        api.slice("llm-2", [b])
        api.delete(SLICES, "llm-1")
        api.version += 1
        api.forget()
    wait_models(weir, b)
    h.wait_until(lambda: listed(weir) == {address(b)}, "a to be gone")
    with api.cond:
        api.slice("llm-1", [a])
        api.events.clear()                      # nobody tells
        api.too_old(SLICES)
    wait_models(weir, a)
    weir.wait_line("the watch of endpointslices is too far behind; listing again")
    assert answered_by(weir) == {"a", "b"}


@pytest.mark.sanitize
@pytest.mark.parametrize("ready", [True, False])
def test_terminating_gets_no_new_request_and_ends_what_runs(start_weir, upstream, api, client, ready):
    """Field report L1: also while its readiness still says true."""
    end = threading.Event()

    def stream(conn, request):
        conn.start_stream()
        conn.sse_event({"n": 1})
        assert end.wait(4 * h.PATIENCE)
        conn.sse_event({"n": 2})
        conn.end_stream()

    a = upstream(stream, name="a", port=h.free_port())
    b = upstream(name="b", host="127.0.0.2", port=a.port)
    api.slice("llm-1", [a])
    weir = start_weir(config(api))
    wait_models(weir, a)
    watched(api)
    c = client(weir)
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200 and c.event() == '{"n": 1}'
    api.slice("llm-1", [endpoint(a, ready=ready, serving=True, terminating=True), endpoint(b)])
    wait_models(weir, b)
    assert names(weir)[address(a)]["draining"] is True
    assert answered_by(weir) == {"b"}
    end.set()
    assert c.event() == '{"n": 2}'
    assert c.event() == "[DONE]"


def test_an_event_cut_in_its_middle_comes_again(start_weir, upstream, api):
    a, b = two(upstream)
    api.slice("llm-1", [a])
    weir = start_weir(config(api))
    wait_models(weir, a)
    watched(api)
    version = api.slice("llm-1", [endpoint(a, zone="z")])
    h.wait_until(lambda: names(weir)[address(a)].get("zone") == "z", "the watch to tell")
    api.slice("llm-2", [b], cut=True)
    wait_models(weir, b)
    watches = [q["resourceVersion"] for k, q, _ in api.calls if k == SLICES and "watch" in q]
    assert watches[1] == str(version)
    assert stat(weir, "errors_total", "kubernetes") == 0


def test_documents_of_many_lines(start_weir, upstream, api):
    a, b = two(upstream)
    api.pretty = True
    weir = start_weir(config(api))
    watched(api)
    with api.cond:
        api.slice("llm-1", [a])
        api.slice("llm-2", [b])
    wait_models(weir, a)
    wait_models(weir, b)


@pytest.mark.sanitize
def test_api_down_and_started_while_it_is_down(start_weir, upstream, api, tmp_path):
    """Field report L3."""
    a, b = two(upstream)
    state = str(tmp_path / "state.json")
    api.pod("a", {"weir.dev/weight": "4"})
    api.slice("llm-1", [a])
    weir = start_weir(config(api, state_file=state))
    wait_models(weir, a)
    api.end()
    h.wait_until(lambda: stat(weir, "errors_total", "kubernetes") >= 3, "more than one try")
    assert answered_by(weir) == {"a"}
    weir.stop()
    weir = start_weir(config(api, state_file=state))
    wait_models(weir, a)
    assert answered_by(weir) == {"a"} and stat(weir, "up", "kubernetes") == 0
    assert names(weir)[address(a)]["weight"] == 4
    api.slice("llm-2", [b])
    api.start()
    wait_models(weir, b)
    assert listed(weir) == {address(a), address(b)}
    h.wait_until(lambda: stat(weir, "up", "kubernetes") == 1, "the source")


@pytest.mark.parametrize("fault", [(500, "etcdserver: leader changed"), (403, "endpointslices is forbidden"),
                                   (429, "slow down")])
def test_answers_that_are_none_change_nothing(start_weir, upstream, api, fault):
    a, b = two(upstream)
    api.slice("llm-1", [a])
    weir = start_weir(config(api, empty_grace="off"))
    wait_models(weir, a)
    api.fail(SLICES, *fault)
    h.wait_until(lambda: stat(weir, "up", "kubernetes") == 0, "the failure")
    h.wait_until(lambda: weir.log_contains(f"endpointslices: HTTP {fault[0]} {fault[1]}"), "its words")
    assert answered_by(weir, 4) == {"a"}
    api.slice("llm-2", [b])
    api.fail(SLICES)
    wait_models(weir, b)
    h.wait_until(lambda: stat(weir, "up", "kubernetes") == 1, "the source")


@pytest.mark.parametrize("body", ["<html>", '{"kind": "Status"}', "{}",
                                  '{"kind":"EndpointSliceList","metadata":{},"items":[]}'])
def test_lists_that_are_none_change_nothing(start_weir, upstream, api, body):
    a = upstream(name="a")
    api.slice("llm-1", [a])
    weir = start_weir(config(api, empty_grace="off"))
    wait_models(weir, a)
    api.raw[SLICES] = body
    api.fail(None)
    api.too_old(SLICES)
    api.forget()
    h.wait_until(lambda: stat(weir, "up", "kubernetes") == 0, "the nonsense to be seen")
    assert answered_by(weir, 4) == {"a"}
    api.raw.clear()
    h.wait_until(lambda: stat(weir, "up", "kubernetes") == 1, "the recovery")
    assert listed(weir) == ids(a)


def test_pods_that_may_not_be_read_are_done_without(start_weir, upstream, api):
    a = upstream(name="a")
    api.fail(PODS, 403, 'pods is forbidden: User "weir" cannot list')
    api.slice("llm-1", [a])
    weir = start_weir(config(api))
    wait_models(weir, a)
    weir.wait_line('pods may not be read.*: pods is forbidden: User "weir" cannot list')
    assert names(weir)[address(a)]["metadata"] == {"pod": "a"}
    h.wait_until(lambda: stat(weir, "up", "kubernetes") == 1, "the source")


@pytest.mark.sanitize
def test_a_token_that_is_rotated(start_weir, upstream, keeper, tmp_path):
    """Refused, it is read anew and asked again; a token that stays wrong is a failure, and no reason to forget."""
    a, b = two(upstream)
    api = keeper.add(KubeApi(token="t1"))
    api.slice("llm-1", [a])
    path = tmp_path / "token"
    path.write_text("t1\n")
    weir = start_weir(config(api, token=f"file:{path}"))
    wait_models(weir, a)
    path.write_text("t2\n")
    with api.cond:
        api.tokens = {"t2"}
        api.forget()
        api.too_old(SLICES)
    api.wait(SLICES, lambda q: api.calls[-1][2].get("Authorization") == "Bearer t2", "the new token")
    api.slice("llm-2", [b])
    wait_models(weir, b)
    with api.cond:
        api.tokens = {"t3"}
        api.too_old(SLICES)
    h.wait_until(lambda: weir.log_contains("HTTP 401 Unauthorized"), "the refusal")
    assert answered_by(weir) == {"a", "b"}
    assert not weir.log_contains("t2")


# --------------------------------------------------------------------------------------------- who and where


class Pki(Authority):
    def __init__(self):
        super().__init__()
        self.api = self.make("api", "IP:127.0.0.1")
        self.weir = self.make("weir")

    def server(self, client_ca):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.api)
        if client_ca:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture(scope="module")
def pki():
    p = Pki()
    yield p
    p.stop()


def b64(path):
    with open(path, "rb") as f:
        return base64.b64encode(f.read()).decode()


def kubeconfig(tmp_path, server, cluster=None, user=None, **context):
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "here", "preferences": {},
        "contexts": [{"name": "there", "context": {}}, {"name": "here", "context": {"cluster": "c", "user": "u", **context}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}]}))
    return str(path)


@pytest.mark.sanitize
@pytest.mark.parametrize("data", [True, False])
def test_a_kubeconfig_with_certificates(start_weir, upstream, keeper, pki, tmp_path, data):
    a = upstream(name="a")
    api = keeper.add(KubeApi(tls=pki, client_ca=True))
    api.slice("llm-1", [a])
    cert, key = pki.weir
    if data:
        cluster = {"certificate-authority-data": b64(pki.ca)}
        user = {"client-certificate-data": b64(cert), "client-key-data": b64(key)}
    else:                                       # files beside the kubeconfig
        for name, path in (("ca.pem", pki.ca), ("me.pem", cert), ("me.key", key)):
            os.symlink(path, tmp_path / name)
        cluster, user = {"certificate-authority": "ca.pem"}, {"client-certificate": "me.pem", "client-key": "me.key"}
    weir = start_weir(config(kubeconfig=kubeconfig(tmp_path, api.url, cluster, user, namespace="ai")))
    wait_models(weir, a)
    assert listed(weir) == ids(a)


def test_a_kubeconfig_with_a_token_and_a_stranger(start_weir, upstream, keeper, pki, tmp_path):
    """A server that the CA does not know is not asked: no token for it."""
    a = upstream(name="a")
    api = keeper.add(KubeApi(tls=pki, token="t1"))
    api.slice("llm-1", [a])
    other = keeper.add(Authority("other"))
    path = kubeconfig(tmp_path, api.url, {"certificate-authority-data": b64(other.ca)}, {"token": "t1"}, namespace="ai")
    weir = start_weir(config(kubeconfig=path))
    weir.wait_line("endpointslices: .*certificate")
    assert api.calls == []
    weir.stop()
    path = kubeconfig(tmp_path, api.url, {"certificate-authority-data": b64(pki.ca)}, {"token": "t1"}, namespace="ai")
    weir = start_weir(config(kubeconfig=path))
    wait_models(weir, a)


def test_a_kubeconfig_that_wants_a_plugin_is_refused(start_weir, tmp_path):
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", user={"exec": {"command": "aws"}})
    weir = start_weir(config(kubeconfig=path))
    weir.wait_line("error discovery: source=kubernetes: kubeconfig: .*kubeconfig:1:[0-9]+: exec plugins are not run; give a token")


def test_outside_of_a_cluster_a_way_must_be_given(start_weir):
    weir = start_weir(config(), env={"KUBERNETES_SERVICE_HOST": ""})
    weir.wait_line("error discovery: source=kubernetes: this is no pod .*: give kubeconfig, or servers")


def test_in_a_pod(keeper, upstream, pki, tmp_path, monkeypatch):
    """A mount namespace of its own, where a service account is, whose token is replaced."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces for users here")
    a = upstream(name="a", port=h.free_port())
    b = upstream(name="b", host="127.0.0.2", port=a.port)
    api = keeper.add(KubeApi(tls=pki, token="t1"))
    api.slice("llm-1", [a])
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t1")
    (account / "namespace").write_text("ai")
    (account / "ca.crt").write_bytes(open(pki.ca, "rb").read())
    run = tmp_path / "weir"
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    run.write_text(f"#!/bin/sh\nexec unshare -rm sh -c 'mount -t tmpfs none \"$(readlink -f /var/run)\" && mkdir -p {place} && "
                   f"mount --bind {account} {place} && exec \"$@\"' sh {h.BIN} \"$@\"\n")
    run.chmod(0o755)
    monkeypatch.setattr(h, "BIN", str(run))
    env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT_HTTPS": str(api.port)}
    weir = keeper.add(h.Weir(config(), (), env))
    wait_models(weir, a)
    (account / "token").write_text("t2")
    with api.cond:
        api.tokens = {"t2"}
        api.too_old(SLICES)
    api.slice("llm-2", [b])
    wait_models(weir, b)
    assert not weir.log_contains("HTTP 401")


# ------------------------------------------------------------------------------------------------- what is meant


def test_ipv6_zone_ids_and_fqdn(start_weir, upstream, api):
    """Field report L5."""
    try:
        a = upstream(name="a", host="::1")
    except OSError:
        pytest.skip("no IPv6 here")
    api.slice("llm-6", [a, endpoint("fe80::1%eth0", pod="z")], family="IPv6")
    api.slice("llm-n", [endpoint("localhost")], family="FQDN")
    weir = start_weir(config(api))
    wait_models(weir, a)
    assert listed(weir) == {f"[::1]:{a.port}", "localhost:8000"}
    weir.wait_line("1 endpoints of llm have no address or port of use")
    assert answered_by(weir, 4) == {"a"}


def test_ports_by_name_by_number_and_https(start_weir, upstream, api):
    ports = [{"name": "metrics", "port": 9000}, {"name": "dns", "protocol": "UDP", "port": 53},
             {"name": "api", "protocol": "TCP", "port": 9001, "appProtocol": "https"}]
    api.slice("llm-1", [endpoint("127.0.0.9")], ports=ports)
    for port, want in ((None, "127.0.0.9:9000"), ("api", "127.0.0.9:9001"), ("9001", "127.0.0.9:9001"), ("53", None)):
        weir = start_weir(config(api, **({"port": port} if port else {})))
        h.wait_until(lambda: stat(weir, "up", "kubernetes") == 1, "the list")
        h.wait_until(lambda: listed(weir) == ({want} if want else set()), f"the port {port}")
        if want:
            assert names(weir)[want]["url"] == ("https://" if want.endswith("9001") else "http://") + want
        weir.stop()


def test_a_selector_over_several_services(start_weir, upstream, api):
    """The newer of two slices that both have an address is right."""
    a, b = two(upstream)
    api.slice("one-1", [a], service="one", labels={"pool": "gold"})
    api.slice("two-1", [b], service="two", labels={"pool": "gold"})
    api.slice("three", [endpoint("127.0.0.9")], service="three")
    weir = start_weir(config(api, selector="pool=gold"))
    wait_models(weir, a)
    wait_models(weir, b)
    assert listed(weir) == {address(a), address(b)}
    watched(api)
    api.slice("one-2", [a], service="one", labels={"pool": "gold"}, ready=False)
    h.wait_until(lambda: answered_by(weir, 4) == {"b"}, "the newer one to count")
    api.delete(SLICES, "one-2")
    h.wait_until(lambda: answered_by(weir) == {"a", "b"}, "the other to count again")


def test_a_dead_endpoint_that_is_still_listed_costs_no_error(start_weir, upstream, api):
    a, b = two(upstream)
    api.slice("llm-1", [a, b])
    weir = start_weir({**config(api), "health": {**QUICK, "interval": "1h"}})
    wait_models(weir, a)
    wait_models(weir, b)
    a.refuse()
    assert answered_by(weir, 40) == {"b"}
    assert listed(weir) == {address(a), address(b)}


def test_all_gone_at_once_are_held_while_they_pass(start_weir, upstream, api):
    a, b = two(upstream)
    api.slice("llm-1", [a, b])
    weir = start_weir(config(api, empty_grace="1h"))
    wait_models(weir, a)
    wait_models(weir, b)
    watched(api)
    api.slice("llm-1", [])
    h.wait_until(lambda: stat(weir, "held_endpoints", "kubernetes") == 2, "both to be held")
    assert answered_by(weir) == {"a", "b"}
    a.refuse()
    h.wait_until(lambda: listed(weir) == {address(b)}, "a to be gone")
