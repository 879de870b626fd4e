# SPDX-License-Identifier: Apache-2.0
"""A double of the Kubernetes API server, written from its API concepts page: lists in pieces, watches, bookmarks, 410."""
import base64
import copy
import http.server
import json
import re
import socket
import threading
import urllib.parse

import weir_harness as h

SLICES, PODS = "endpointslices", "pods"
PATH = re.compile(r"^/(?:api/v1|apis/discovery\.k8s\.io/v1)/namespaces/([^/]+)/(endpointslices|pods)$")


def chosen(selector, labels):
    """Equality, set-based `in` and existence: what a label selector of these tests has."""
    if not selector:
        return True
    some = re.fullmatch(r"(\S+) in \(([^)]*)\)", selector)
    if some:
        return labels.get(some[1]) in some[2].split(",")
    key, equals, value = selector.partition("=")
    return labels.get(key) == value if equals else key in labels


class Gone(Exception):
    """What is asked for is no longer known: 410."""


class KubeApi:
    def __init__(self, tls=None, client_ca=False, token=None, ns="ai"):
        self.cond = threading.Condition()
        self.tls, self.client_ca, self.ns = tls, client_ca, ns
        self.tokens = {token} if token else None    # accepted; None: everybody
        self.objects = {SLICES: {}, PODS: {}}
        self.events = []            # (version, kind, type, object)
        self.version = 100
        self.oldest = 0             # events up to here are forgotten
        self.piece = 0              # most objects of an answer; 0: as asked
        self.snapshots = {}         # of lists under way
        self.forget_pieces = {}     # kind: so many tokens of pieces have expired
        self.faults = {}            # kind: (status, message)
        self.raw = {}               # kind: body instead of a list
        self.pretty = False         # documents of many lines, none between them
        self.calls = []             # (kind, query, headers)
        self.life = 0
        self.cut = set()            # kinds whose watches end now, in the middle of an event
        self.port, self.httpd = h.free_port(), None     # ended and started again
        self.start()

    # ------------------------------------------------------------------------------------------- the server

    def start(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.get(self)

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_):
                pass

            def get_request(self):
                sock, peer = super().get_request()
                with outer.cond:
                    outer.socks.append(sock)
                return sock, peer

        self.socks = []
        self.httpd = Quiet(("127.0.0.1", self.port), Handler)
        if self.tls:
            context = self.tls.server(self.client_ca)
            self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.httpd.server_address[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True).start()

    def end(self):
        if not self.httpd:
            return
        self.httpd.shutdown()
        self.httpd.server_close()
        self.httpd = None
        with self.cond:
            self.life += 1
            for sock in self.socks:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.cond.notify_all()

    stop = end

    @staticmethod
    def status(code, message):
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                "reason": "Expired" if code == 410 else "Other", "code": code}

    def get(self, r):
        path, _, query = r.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        found = PATH.match(path)
        kind = found[2] if found else None
        with self.cond:
            self.calls.append((kind, query, dict(r.headers)))
            self.cond.notify_all()
            given = (r.headers.get("Authorization") or "").removeprefix("Bearer ")
            if self.tokens is not None and given not in self.tokens:
                return self.send(r, 401, self.status(401, "Unauthorized"))
            if not found or found[1] != self.ns:
                return self.send(r, 403, self.status(403, f"{path} is forbidden"))
            if kind in self.faults:
                code, message = self.faults[kind]
                return self.send(r, code, self.status(code, message))
            if "watch" not in query:
                try:
                    body = self.raw.get(kind) or self.list(kind, query, r.headers)
                except Gone:
                    return self.send(r, 410, self.status(410, "The provided continue parameter is too old"))
                return self.send(r, 200, body)
            if int(query["resourceVersion"]) < self.oldest:
                return self.send(r, 410, self.status(410, "too old resource version"))
        self.watch(r, kind, query)

    @staticmethod
    def send(r, code, body):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        r.send_response(code)
        r.send_header("Content-Type", "application/json")
        r.send_header("Content-Length", str(len(data)))
        r.end_headers()
        r.wfile.write(data)

    def list(self, kind, query, headers):
        """Pieces of a list are of one moment."""
        if "continue" in query:
            if self.forget_pieces.get(kind):
                self.forget_pieces[kind] -= 1
                raise Gone
            place = json.loads(base64.b64decode(query["continue"]))
            version, items = self.snapshots[kind, place["v"]]
            at = place["at"]
        else:
            version, at = self.version, 0
            items = [copy.deepcopy(o) for o in self.objects[kind].values()
                     if chosen(query.get("labelSelector"), o["metadata"].get("labels", {}))]
        limit = min(filter(None, [int(query.get("limit", 0)), self.piece]), default=0)
        end = at + limit if limit else len(items)
        meta = {"resourceVersion": str(version)}
        if end < len(items):
            self.snapshots[kind, version] = (version, items)
            meta["continue"] = base64.b64encode(json.dumps({"v": version, "at": end}).encode()).decode()
            meta["remainingItemCount"] = len(items) - end
        partial = "as=PartialObjectMetadataList" in headers.get("Accept", "")
        return {"kind": "PartialObjectMetadataList" if partial else "EndpointSliceList" if kind == SLICES else "PodList",
                "apiVersion": "v1", "metadata": meta, "items": items[at:end]}

    def watch(self, r, kind, query):
        r.send_response(200)
        r.send_header("Content-Type", "application/json")
        r.send_header("Transfer-Encoding", "chunked")
        r.end_headers()
        seen, life = int(query["resourceVersion"]), self.life
        while True:
            with self.cond:
                def news():
                    return [e for e in self.events if e[0] > seen and e[1] in (kind, None)]
                self.cond.wait_for(lambda: news() or life != self.life or kind in self.cut)
                found, cut = news(), kind in self.cut
                self.cut.discard(kind)
                if life != self.life:
                    return
            data = b""
            for version, _, what, o in found:
                seen = version
                if what == "BOOKMARK":
                    o = {"kind": "EndpointSlice" if kind == SLICES else "Pod", "apiVersion": "v1",
                         "metadata": {"resourceVersion": str(version), "creationTimestamp": None}}
                elif what != "ERROR" and not chosen(query.get("labelSelector"), o["metadata"].get("labels", {})):
                    continue
                data += json.dumps({"type": what, "object": o}, indent=2 if self.pretty else None).encode()
                data += b"" if self.pretty else b"\n"
            if cut:
                data = data[:len(data) // 2]
            try:
                if data:
                    r.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                if cut:
                    r.connection.shutdown(socket.SHUT_RDWR)
                    return
            except OSError:
                return

    # --------------------------------------------------------------------------------------- what a test says

    def _event(self, kind, what, o):
        self.version += 1
        if o is not None:
            o["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, what, copy.deepcopy(o)))
        self.cond.notify_all()
        return self.version

    def put(self, kind, o, cut=False):
        with self.cond:
            name = o["metadata"]["name"]
            o["metadata"].setdefault("namespace", self.ns)
            if cut:
                self.cut.add(kind)
            what = "MODIFIED" if name in self.objects[kind] else "ADDED"
            self.objects[kind][name] = o
            return self._event(kind, what, o)

    def delete(self, kind, name):
        with self.cond:
            return self._event(kind, "DELETED", self.objects[kind].pop(name))

    def slice(self, name, ups, service="llm", ports=None, family="IPv4", cut=False, labels=None, **conditions):
        """A slice with these upstreams, all of one port; or with endpoints as they are to stand in it."""
        found = [u if isinstance(u, dict) else endpoint(u, **conditions) for u in ups]
        ported = [e.pop("port") for e in found]
        port = next(filter(None, ported), 8000)
        return self.put(SLICES, {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service, **(labels or {})}},
            "addressType": family,
            "endpoints": found,
            "ports": [{"name": "http", "protocol": "TCP", "port": port}] if ports is None else ports}, cut)

    def pod(self, name, annotations=None, labels=None):
        return self.put(PODS, {"metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}}})

    def bookmark(self):
        with self.cond:
            return self._event(None, "BOOKMARK", None)

    def forget(self):
        """Compaction: the events so far are no longer there to be watched."""
        with self.cond:
            self.oldest = self.version
            self.events.clear()

    def too_old(self, kind):
        """A watch that is under way learns that it is behind."""
        with self.cond:
            self.version += 1
            self.events.append((self.version, kind, "ERROR", self.status(410, "too old resource version: 1 (2)")))
            self.cond.notify_all()

    def fail(self, kind, code=0, message="no"):
        """From the next call on; watches end."""
        with self.cond:
            self.life += 1
            for sock in self.socks:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.socks.clear()
            self.faults = {kind: (code, message)} if code else {}
            self.cond.notify_all()

    def wait(self, kind, test, what, since=0):
        with self.cond:
            def found():
                return [c for c in self.calls[since:] if c[0] == kind and test(c[1])]
            assert self.cond.wait_for(found, h.PATIENCE), (what, self.calls[-20:])
            return found()[0]

    def wait_watch(self, kind, version, since=0):
        return self.wait(kind, lambda q: "watch" in q and q["resourceVersion"] == str(version),
                         f"a watch of {kind} from {version}", since)


def endpoint(up, pod=None, node=None, zone=None, **conditions):
    host = up if isinstance(up, str) else up.url.split("//", 1)[1].rsplit(":", 1)[0].strip("[]")
    out = {"addresses": [host], "conditions": conditions, "port": None if isinstance(up, str) else up.port}
    name = pod or (None if isinstance(up, str) else up.name)
    if name:
        out["targetRef"] = {"kind": "Pod", "name": name, "namespace": "ai", "uid": "uid-" + name}
    if node:
        out["nodeName"] = node
    if zone:
        out["zone"] = zone
    return out
