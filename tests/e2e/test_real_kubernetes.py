# SPDX-License-Identifier: Apache-2.0
"""A real kube-apiserver (and etcd behind it): what test_discovery_kubernetes.py asks of a double, and what a double cannot tell:
that the rights in examples/kubernetes are enough and no more.

The server comes from WEIR_KUBE_APISERVER, from PATH, or from where tools/go_server.sh builds it. It takes no loopback addresses into
an EndpointSlice of IPv4, so they go as FQDN here, which lets the text of one pass.
"""
import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import registries as r
import weir_harness as h
from test_discovery_file import QUICK, listed, stat
from test_discovery_kubernetes import b64, kubeconfig
from test_discovery_remote import TURNS, answered_by, names, wait_models
from tls_util import Authority, openssl

pytestmark = pytest.mark.long

EXAMPLE = os.path.join(h.ROOT, "examples", "kubernetes", "weir.yaml")
ADMIN = "admin-token"
SLICES, PODS = "endpointslices", "pods"
GROUPS = {SLICES: "/apis/discovery.k8s.io/v1", "roles": "/apis/rbac.authorization.k8s.io/v1",
          "rolebindings": "/apis/rbac.authorization.k8s.io/v1"}
KINDS = {"ServiceAccount": "serviceaccounts", "Role": "roles", "RoleBinding": "rolebindings"}


class Relay:
    """A TCP proxy that can keep what the server says to itself, and cut what it carries."""

    def __init__(self, port):
        self.to, self.lock, self.pairs = port, threading.Lock(), []
        self.deaf = False               # what the server says is lost
        self.carried = 0                # bytes of what it said
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "https://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            with self.lock:
                self.pairs.append((near, far))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(a, b, near), daemon=True).start()

    def _copy(self, a, b, near):
        try:
            while data := a.recv(65536):
                if b is near:
                    with self.lock:
                        if self.deaf:
                            continue
                        self.carried += len(data)
                b.sendall(data)
        except OSError:
            pass
        self._end(a, b)

    @staticmethod
    def _end(*socks):
        for s in socks:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def quiet(self):
        """What has been carried once nothing more comes for a while (a bookmark a minute is more than that)."""
        while True:
            before = self.carried
            time.sleep(3)
            if self.carried == before:
                return before

    def cut(self):
        with self.lock:
            for pair in self.pairs:
                self._end(*pair)
            self.pairs.clear()
            self.deaf = False

    def stop(self):
        self._end(self.listener)
        self.listener.close()
        self.cut()


class Api:
    """kube-apiserver with RBAC and nothing else of a cluster: no controllers, no scheduler, no nodes."""

    def __init__(self, folder):
        self.binary, self.folder, self.server = r.real("kube-apiserver", "WEIR_KUBE_APISERVER", ("go", "bin", "kube-apiserver"), "tools/go_server.sh kube-apiserver"), str(folder), None
        self.pki = Authority()
        self.cert, self.key = self.pki.make("api", "IP:127.0.0.1")
        own, public = self.pki.path("accounts.key"), self.pki.path("accounts.pub")
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", own)
        openssl("ec", "-in", own, "-pubout", "-out", public)
        self.accounts = (own, public)
        self.etcd = r.Etcd(folder / "etcd")
        self.port = h.free_port()
        self.audit = os.path.join(self.folder, "audit.log")
        self._write("tokens.csv", f'{ADMIN},admin,1,"system:masters"\n')
        self._write("policy.yaml", json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
                                               "rules": [{"level": "Metadata"}]}))
        self.context = ssl.create_default_context(cafile=self.pki.ca)
        self.n = 0
        self.start()

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as f:
            f.write(text)

    def start(self):
        own = self.folder
        self.server = h.Process([
            self.binary, "--bind-address=127.0.0.1", f"--secure-port={self.port}", f"--etcd-servers={self.etcd.url}",
            f"--cert-dir={own}/certs", f"--tls-cert-file={self.cert}", f"--tls-private-key-file={self.key}",
            f"--client-ca-file={self.pki.ca}", f"--token-auth-file={own}/tokens.csv", "--authorization-mode=RBAC",
            f"--service-account-key-file={self.accounts[1]}", f"--service-account-signing-key-file={self.accounts[0]}",
            "--service-account-issuer=https://weir.test", "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none", "--etcd-compaction-interval=0",
            # Slices come from etcd itself, so that a compaction is felt; pods from the cache, which sends bookmarks.
            "--watch-cache-sizes=endpointslices.discovery.k8s.io#0",
            f"--audit-policy-file={own}/policy.yaml", f"--audit-log-path={self.audit}", "--audit-log-mode=blocking"])
        h.wait_until(lambda: not self.server.running() or self.ready(), "the API server to be ready", 12 * h.PATIENCE)
        assert self.server.running(), self.server.output

    def ready(self):
        try:
            return self("GET", "/readyz", raw=True) == b"ok"
        except OSError:
            return False

    def end(self):
        if self.server:
            self.server.kill()
            self.server.wait()
        self.server = None

    def stop(self):
        self.end()
        self.etcd.stop()
        self.pki.stop()

    def __call__(self, method, path, body=None, token=ADMIN, raw=False, kind="application/json"):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data, {
            "Authorization": "Bearer " + token, "Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=3 * h.PATIENCE, context=self.context) as answer:
            return answer.read() if raw else json.loads(answer.read())

    def may(self, token, method, path, body=None):
        try:
            self(method, path, body, token)
            return True
        except urllib.error.HTTPError as e:
            assert e.code == 403, e
            return False

    def asked(self, path, since=0):
        """The parameters of all requests for this path that have been received from that place of the audit log on."""
        with open(self.audit, encoding="utf-8") as f:
            f.seek(since)
            calls = [json.loads(line) for line in f.read().splitlines(True) if line.endswith("\n")]
        found = [urllib.parse.urlsplit(c["requestURI"]) for c in calls if c["stage"] == "RequestReceived"]
        return [dict(urllib.parse.parse_qsl(u.query)) for u in found if u.path == path]

    def namespace(self):
        self.n += 1
        return Namespace(self, f"ns{os.getpid()}-{self.n}")


class Namespace:
    """What a test says, in a namespace of its own with the account and the rights of the example."""

    def __init__(self, api, name):
        self.api, self.name = api, name
        api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        api("POST", self.path("serviceaccounts"), {"metadata": {"name": "default"}})

    def path(self, kind, name=None):
        return f"{GROUPS.get(kind, '/api/v1')}/namespaces/{self.name}/{kind}" + (f"/{name}" if name else "")

    def watches(self, kind, since=0):
        """The versions that this kind was watched from."""
        return [q["resourceVersion"] for q in self.api.asked(self.path(kind), since) if "watch" in q]

    def put(self, kind, name, doc):
        doc.setdefault("metadata", {})["name"] = name
        try:
            old = self.api("GET", self.path(kind, name))
        except urllib.error.HTTPError as e:
            assert e.code == 404
            return self.api("POST", self.path(kind), doc)
        doc["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return self.api("PUT", self.path(kind, name), doc)

    def delete(self, kind, name):
        self.api("DELETE", self.path(kind, name) + "?gracePeriodSeconds=0")

    def slice(self, name, *ups, service="llm", pod=None, zone=None, **conditions):
        ends = [{"addresses": [u.url.split("//")[1].rsplit(":", 1)[0]], "conditions": conditions} for u in ups]
        for end in ends:
            if pod:
                end["targetRef"] = {"kind": "Pod", "namespace": self.name, "name": pod["metadata"]["name"],
                                    "uid": pod["metadata"]["uid"]}
            if zone:
                end["zone"] = zone
        return self.put(SLICES, name, {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "FQDN",
            "metadata": {"labels": {"kubernetes.io/service-name": service}}, "endpoints": ends,
            "ports": [{"name": "http", "protocol": "TCP", "port": ups[0].port if ups else 8000}]})

    def pod(self, name, annotations=None, labels=None):
        return self.api("POST", self.path(PODS), {
            "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"containers": [{"name": "c", "image": "none"}]}})

    def annotate(self, name, **annotations):
        self.api("PATCH", self.path(PODS, name), {"metadata": {"annotations": annotations}}, kind="application/merge-patch+json")

    def example(self):
        """Account, Role and RoleBinding as they stand in the example."""
        with open(EXAMPLE, encoding="utf-8") as f:
            documents = f.read().split("\n---\n")
        made = []
        for text in documents:
            kind = next((line.split()[1] for line in text.splitlines() if line.startswith("kind: ")), None)
            if kind in KINDS:
                self.api("POST", self.path(KINDS[kind]), text.encode(), kind="application/yaml")
                made.append(kind)
        assert made == list(KINDS)

    def token(self, account="weir"):
        return self.api("POST", self.path("serviceaccounts", account) + "/token",
                        {"spec": {"expirationSeconds": 3600}})["status"]["token"]


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    a = Api(tmp_path_factory.mktemp("kube"))
    yield a
    a.stop()


@pytest.fixture
def ns(api):
    n = api.namespace()
    n.example()
    return n


@pytest.fixture
def relay(api, keeper):
    return keeper.add(Relay(api.port))


def address(up):
    return up.url.split("//")[1]


def config(ns, tmp_path, url=None, token=None, **more):
    path = tmp_path / "token"
    path.write_text((token or ns.token()) + "\n")
    return {"health": QUICK, "routes": TURNS, "discovery": [{
        "type": "kubernetes", "services": ["llm"], "servers": [url or f"https://127.0.0.1:{ns.api.port}"], "namespace": ns.name,
        "token": f"file:{path}", "ca": f"file:{ns.api.pki.ca}", "empty_grace": "off", **more}]}


def tried_in_vain(weir):
    """A connection that a slow machine could not make in time: then there is a list, not a watch from that place."""
    return stat(weir, "errors_total", "kubernetes") > 0


def test_slices_and_pods_are_followed_with_the_rights_of_the_example(start_weir, upstream, ns, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    pod = ns.pod("a", {"weir.dev/gpu_type": "A100", "weir.dev/weight": "3"}, {"app": "llm", "nacos.metadata.model_id": "m"})
    ns.slice("llm-1", a, pod=pod, zone="z1")
    ns.slice("other", b, service="else")
    weir = start_weir(config(ns, tmp_path))
    wait_models(weir, a)
    one = names(weir)[address(a)]
    assert listed(weir) == {address(a)}
    assert (one["weight"], one["zone"], one["service"]) == (3, "z1", "llm")
    assert one["metadata"] == {"gpu_type": "A100", "weight": "3", "model_id": "m", "pod": "a"}
    assert one["labels"] == {"app": "llm", "nacos.metadata.model_id": "m"}
    ns.slice("llm-2", b, pod=ns.pod("b"))
    wait_models(weir, b)
    assert answered_by(weir) == {"a", "b"}
    ns.annotate("b", **{"weir.dev/weight": "7"})
    h.wait_until(lambda: names(weir)[address(b)]["weight"] == 7, "the annotation")
    ns.slice("llm-1", a, pod=pod, ready=False)
    h.wait_until(lambda: answered_by(weir, 4) == {"b"}, "a not to be ready")
    ns.slice("llm-1", a, pod=pod, ready=True, serving=True, terminating=True)
    h.wait_until(lambda: names(weir)[address(a)]["draining"] is True, "a to be terminating")
    ns.delete(PODS, "a")
    ns.delete(SLICES, "llm-1")
    h.wait_until(lambda: listed(weir) == {address(b)}, "a to be gone")
    ns.delete(SLICES, "llm-2")
    h.wait_until(lambda: listed(weir) == set(), "b to be gone")
    assert stat(weir, "errors_total", "kubernetes") == 0


def test_the_rights_of_the_example_are_no_more_than_needed(start_weir, upstream, ns, api, tmp_path):
    a = upstream(name="a")
    ns.slice("llm-1", a, pod=ns.pod("a", {"weir.dev/weight": "3"}))
    token = ns.token()
    for kind in (SLICES, PODS):
        assert api.may(token, "GET", ns.path(kind))
        assert not api.may(token, "GET", ns.path(kind, "a")), "get is not needed"
        assert not api.may(token, "DELETE", ns.path(kind, "a"))
        assert not api.may(token, "GET", f"{GROUPS.get(kind, '/api/v1')}/{kind}"), "other namespaces"
    for kind in ("secrets", "configmaps", "services", "serviceaccounts", "roles"):
        assert not api.may(token, "GET", ns.path(kind))
    weir = start_weir(config(ns, tmp_path, token=token))
    wait_models(weir, a)
    h.wait_until(lambda: names(weir)[address(a)]["weight"] == 3, "its annotation")
    weir.stop()
    # Less: no pods, and then nothing at all.
    rules = [{"apiGroups": ["discovery.k8s.io"], "resources": [SLICES], "verbs": ["list", "watch"]}]
    ns.put("roles", "weir", {"rules": rules})
    h.wait_until(lambda: not api.may(token, "GET", ns.path(PODS)), "the role to count")
    weir = start_weir(config(ns, tmp_path, token=token))
    wait_models(weir, a)
    weir.wait_line('pods may not be read.*: pods is forbidden: User "system:serviceaccount:.*:weir" cannot list')
    assert names(weir)[address(a)]["metadata"] == {"pod": "a"} and stat(weir, "up", "kubernetes") == 1
    weir.stop()
    ns.put("roles", "weir", {"rules": []})
    h.wait_until(lambda: not api.may(token, "GET", ns.path(SLICES)), "the role to count")
    weir = start_weir(config(ns, tmp_path, token=token))
    weir.wait_line("endpointslices: HTTP 403 endpointslices.discovery.k8s.io is forbidden: User")


def test_lists_come_in_pieces(start_weir, upstream, ns, tmp_path):
    """Five hundred and some slices: what is on the second page is found as well."""
    a, z = upstream(name="a"), upstream(name="z")
    ns.slice("a", a)
    for i in range(505):
        ns.slice(f"empty-{i:03}")
    ns.slice("z", z)
    since = os.path.getsize(ns.api.audit)
    weir = start_weir(config(ns, tmp_path))
    wait_models(weir, a)
    wait_models(weir, z)
    assert listed(weir) == {address(a), address(z)}
    pieces = [q for q in ns.api.asked(ns.path(SLICES), since) if "limit" in q]
    assert ["continue" in q for q in pieces] == [False, True] and pieces[0]["limit"] == "500"


def test_a_watch_that_is_cut_goes_on_where_it_was(start_weir, upstream, ns, relay, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    ns.slice("llm-1", a)
    weir = start_weir(config(ns, tmp_path, relay.url))
    wait_models(weir, a)
    at = ns.slice("llm-1", a, zone="z")["metadata"]["resourceVersion"]
    h.wait_until(lambda: names(weir)[address(a)].get("zone") == "z", "the watch to tell")
    since = os.path.getsize(ns.api.audit)
    relay.deaf = True
    ns.slice("llm-2", b)
    ns.delete(SLICES, "llm-1")
    relay.cut()
    wait_models(weir, b)
    h.wait_until(lambda: listed(weir) == {address(b)}, "a to be gone")
    assert ns.watches(SLICES, since)[0] == at or tried_in_vain(weir), weir.output


def test_what_was_compacted_is_listed_again(start_weir, upstream, ns, relay, tmp_path):
    """410, as the API server says it."""
    a, b = upstream(name="a"), upstream(name="b")
    ns.slice("llm-1", a)
    weir = start_weir(config(ns, tmp_path, relay.url))
    wait_models(weir, a)
    ns.slice("llm-1", a, zone="z")
    h.wait_until(lambda: names(weir)[address(a)].get("zone") == "z", "the watch to tell")   # one that told nothing is no place
    relay.deaf = True
    ns.slice("llm-2", b)
    ns.delete(SLICES, "llm-1")
    last = int(ns.slice("none")["metadata"]["resourceVersion"])
    ns.api.etcd.call("/kv/compaction", {"revision": last})
    relay.cut()
    wait_models(weir, b)
    h.wait_until(lambda: listed(weir) == {address(b)}, "a to be gone")
    assert weir.log_contains("the watch of endpointslices is too far behind; listing again") or tried_in_vain(weir), weir.output
    assert answered_by(weir, 4) == {"b"}


def test_a_bookmark_keeps_the_place(start_weir, upstream, ns, relay, tmp_path):
    """What happens in other namespaces moves the place of a watch here, though it tells of nothing else: once a minute."""
    a = upstream(name="a")
    ns.slice("llm-1", a)
    weir = start_weir(config(ns, tmp_path, relay.url))
    wait_models(weir, a)
    h.wait_until(lambda: ns.watches(PODS), "a watch of pods")
    elsewhere = ns.api.namespace().pod("elsewhere")["metadata"]["resourceVersion"]
    carried = relay.quiet()
    h.wait_until(lambda: relay.carried > carried, "a bookmark", 10 * h.PATIENCE)
    since = os.path.getsize(ns.api.audit)
    relay.cut()
    found = h.wait_until(lambda: ns.watches(PODS, since), "the next watch of pods")
    assert int(found[0]) >= int(elsewhere)


def test_a_token_of_an_account_that_is_made_anew(start_weir, upstream, ns, relay, tmp_path):
    """401 for a token whose account is gone; the next one is read from its file."""
    a, b = upstream(name="a"), upstream(name="b")
    ns.slice("llm-1", a)
    old = ns.token()
    weir = start_weir(config(ns, tmp_path, relay.url, token=old))
    wait_models(weir, a)
    ns.delete("serviceaccounts", "weir")
    ns.api("POST", ns.path("serviceaccounts"), {"metadata": {"name": "weir"}})

    def unknown():
        try:
            return not ns.api("GET", ns.path(SLICES), token=old)
        except urllib.error.HTTPError as e:
            return e.code == 401
    h.wait_until(unknown, "the token to be refused", 3 * h.PATIENCE)
    relay.cut()
    weir.wait_line("HTTP 401 Unauthorized")
    assert answered_by(weir, 4) == {"a"}
    (tmp_path / "token").write_text(ns.token() + "\n")
    ns.slice("llm-2", b)
    wait_models(weir, b)
    assert not weir.log_contains(old)


def test_a_kubeconfig_with_certificates(start_weir, upstream, ns, tmp_path):
    a = upstream(name="a")
    ns.slice("llm-1", a)
    cert, key = ns.api.pki.make(f"weir-{ns.name}")
    ns.put("rolebindings", "person", {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "weir"},
                                      "subjects": [{"kind": "User", "name": f"weir-{ns.name}"}]})
    path = kubeconfig(tmp_path, f"https://127.0.0.1:{ns.api.port}", {"certificate-authority-data": b64(ns.api.pki.ca)},
                      {"client-certificate-data": b64(cert), "client-key-data": b64(key)}, namespace=ns.name)
    weir = start_weir({"health": QUICK, "routes": TURNS, "discovery": [
        {"type": "kubernetes", "services": ["llm"], "kubeconfig": path}]})
    wait_models(weir, a)
    assert listed(weir) == {address(a)}


def test_a_server_that_is_away(start_weir, upstream, ns, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    ns.slice("llm-1", a)
    weir = start_weir(config(ns, tmp_path))
    wait_models(weir, a)
    ns.api.end()
    h.wait_until(lambda: stat(weir, "errors_total", "kubernetes") >= 3, "more than one try")
    assert answered_by(weir, 4) == {"a"} and stat(weir, "up", "kubernetes") == 0
    ns.api.start()
    h.wait_until(lambda: stat(weir, "up", "kubernetes") == 1, "its answer")
    ns.slice("llm-2", b)
    wait_models(weir, b)
    assert listed(weir) == {address(a), address(b)}
