# SPDX-License-Identifier: Apache-2.0
"""Registries that Weir asks: etcd and dnsmasq as they are, Consul as a double written from its API documentation."""
import base64
import http.server
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import weir_harness as h

TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "build", "tools",
                     "usr", "bin")


def program(name):
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), TOOLS, "/usr/sbin"]))
    if not found:
        pytest.fail(f"{name} is missing; tools/deps.sh test brings it")
    return found


def real(name, variable, built, tool):
    """A program that is not Debian's: from the environment, from PATH, or from build/tools, where `tool` puts it."""
    for path in (os.environ.get(variable), shutil.which(name), os.path.join(h.ROOT, "build", "tools", *built)):
        if path and os.access(path, os.X_OK):
            return path
    return pytest.skip(f"no {name}: set {variable}, or build one with {tool}")


class Program:
    """A server that is started, ended and started again on the same address and data."""

    def __init__(self):
        self.child = None

    def launch(self, argv, alive, timeout=None):
        self.child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        h.wait_until(lambda: self.child.poll() is not None or alive(), f"{argv[0]} to answer", timeout)
        assert self.child.poll() is None, self.child.stderr.read().decode()

    def end(self):
        if self.child and self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        if self.child:
            self.child.stderr.close()
        self.child = None

    def stop(self):
        self.end()


class Etcd(Program):
    def __init__(self, folder, tls=None):
        super().__init__()
        self.port, self.peer = h.free_port(), h.free_port()
        self.folder, self.tls, self.token = str(folder), tls, None
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        peer = f"http://127.0.0.1:{self.peer}"
        argv = [program("etcd"), "--data-dir", self.folder, "--listen-client-urls", self.url, "--advertise-client-urls",
                self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                "default=" + peer, "--log-level", "error"]
        if self.tls:
            argv += ["--cert-file", self.tls.cert[0], "--key-file", self.tls.cert[1], "--trusted-ca-file", self.tls.ca,
                     "--client-cert-auth"]
        self.launch(argv, self.alive)

    def alive(self):
        try:
            self.send("/kv/range", {"key": self.b64("x")})
            return True
        except urllib.error.HTTPError as e:
            return e.code in (400, 401)         # auth is on
        except OSError:
            return False

    @staticmethod
    def b64(text):
        return base64.b64encode(text.encode()).decode()

    def login(self):
        self.token = None
        self.token = self.in_time("/auth/authenticate", {"name": "root", "password": "r"})["token"]

    def call(self, path, body):
        try:
            return self.in_time(path, body)
        except urllib.error.HTTPError as e:
            if e.code != 401 or not self.token:
                raise
            self.login()                        # tokens are forgotten at a restart, and when users change
            return self.in_time(path, body)

    def in_time(self, path, body):
        """Asked again when it says that it could not do it in time, as on a machine that is busy; it may be done by then."""
        late, end = False, time.monotonic() + h.PATIENCE
        while True:
            try:
                return self.send(path, body)
            except urllib.error.HTTPError as e:
                if late and e.code == 400 and "already" in e.read().decode():
                    return {}
                if e.code not in (503, 504) or time.monotonic() > end:
                    raise
                late = True
                time.sleep(0.1)

    def send(self, path, body):
        h.stutter("test")
        request = urllib.request.Request(self.url + "/v3" + path, json.dumps(body).encode(),
                                         {"Authorization": self.token} if self.token else {})
        context = self.tls.client(self.tls.cert) if self.tls else None
        with urllib.request.urlopen(request, timeout=h.PATIENCE, context=context) as r:
            return json.loads(r.read())

    def put(self, key, value, lease=None):
        text = value if isinstance(value, str) else json.dumps(value)
        body = {"key": self.b64(key), "value": self.b64(text)}
        if lease:
            body["lease"] = lease
        return int(self.call("/kv/put", body)["header"]["revision"])

    def delete(self, *keys):
        """All in one transaction: one event."""
        return self.call("/kv/txn", {"success": [{"request_delete_range": {"key": self.b64(k)}} for k in keys]})

    def get(self, prefix):
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("/kv/range", {"key": self.b64(prefix), "range_end": self.b64(end)})
        return {base64.b64decode(kv["key"]).decode(): json.loads(base64.b64decode(kv["value"]))
                for kv in found.get("kvs", [])}

    def add_user(self, name, password):
        """Auth on, with this user as root."""
        self.call("/auth/user/add", {"name": "root", "password": "r"})
        self.call("/auth/role/add", {"name": "root"})
        self.call("/auth/user/grant", {"user": "root", "role": "root"})
        self.call("/auth/user/add", {"name": name, "password": password})
        self.call("/auth/user/grant", {"user": name, "role": "root"})
        self.call("/auth/enable", {})
        self.login()


class Dnsmasq(Program):
    """A name server for .test with the records of set(): lines of its configuration."""

    def __init__(self, folder):
        super().__init__()
        self.file = os.path.join(str(folder), "dnsmasq.conf")
        self.port = h.free_port()
        self.server = f"127.0.0.1:{self.port}"

    def set(self, *lines):
        self.end()
        with open(self.file, "w", encoding="ascii") as f:
            f.write("\n".join(lines) + "\n")
        self.start()

    def start(self):
        user = "root" if os.geteuid() == 0 else ""
        self.launch([program("dnsmasq"), "--keep-in-foreground", "--no-resolv", "--no-hosts", f"--port={self.port}",
                     "--listen-address=127.0.0.1", "--bind-interfaces", f"--conf-file={self.file}", "--local=/test/",
                     "--log-facility=-", "--pid-file=", f"--user={user}"], self.alive)

    def alive(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(2.0)
            try:
                s.connect(("127.0.0.1", self.port))
                s.send(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x04test\x00\x00\x01\x00\x01")
                return len(s.recv(512)) > 0
            except OSError:
                return False


class Consul:
    """Health with blocking queries, and an agent that services are registered at. Reads the documented fields only."""

    def __init__(self, token=None, tls=None):
        self.cond = threading.Condition()
        self.token, self.tls = token, tls
        self.index = 10
        self.services = {}          # id: (document, status by check)
        self.calls = []             # (method, path, query, body)
        self.fault = None           # (status, body) instead of any answer
        self.headers = {}           # besides
        self.blind = set()          # tokens that may read nothing
        self.hidden = {}            # token: ids that it may not read
        self.life = 0               # a query that waits is answered when this changes
        self.port = h.free_port()   # ended and started again
        self.httpd = None
        self.start()

    def start(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self):
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
                h.stutter("double")
                with outer.cond:
                    outer.calls.append((self.command, urllib.parse.unquote(path), query, body))
                    outer.cond.notify_all()
                    status, answer, headers = outer.answer(self.command, urllib.parse.unquote(path), query, body,
                                                           self.headers)
                h.stutter("double")
                data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(status)
                for name, value in {**headers, **outer.headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = _any

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
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls.cert)
            context.load_verify_locations(self.tls.ca)
            context.verify_mode = ssl.CERT_REQUIRED
            self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True)
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

    def answer(self, method, path, query, body, headers):
        given = headers.get("X-Consul-Token") or (headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.fault:
            return (*self.fault, {})
        if self.token and given != self.token and given not in self.blind and given not in self.hidden:
            return 403, "Permission denied", {}
        if method == "GET" and path.startswith("/v1/health/service/"):
            return self.health(path.removeprefix("/v1/health/service/"), query, given)
        if method == "PUT" and path == "/v1/agent/service/register":
            doc = json.loads(body)
            self.change(doc["ID"], doc, {c["CheckID"]: c.get("Status", "critical") for c in doc.get("Checks", [])})
            return 200, "", {}
        if method == "PUT" and path.startswith("/v1/agent/service/deregister/"):
            known = self.services.pop(path.split("/", 5)[5], None)
            self.news()
            return (200, "", {}) if known else (404, "Unknown service ID", {})
        if method == "PUT" and path.startswith("/v1/agent/check/update/"):
            check = path.split("/", 5)[5]
            for _, checks in self.services.values():
                if check in checks:
                    checks[check] = json.loads(body)["Status"]
                    self.news()
                    return 200, "", {}
            return 404, f'Unknown check ID "{check}"', {}
        return 404, "", {}

    def health(self, name, query, token):
        wanted = int(query.get("index", 0))
        end = time.monotonic() + float(query.get("wait", "300s").removesuffix("s"))
        life = self.life
        while wanted and wanted >= self.index and life == self.life and not self.fault and time.monotonic() < end:
            self.cond.wait(end - time.monotonic())
        if self.fault:
            return (*self.fault, {})
        if token in self.blind:
            return 200, [], {"X-Consul-Index": str(self.index), "X-Consul-Results-Filtered-By-ACLs": "true"}
        hidden = self.hidden.get(token, ())
        found = [self.entry(doc, checks) for id, (doc, checks) in self.services.items()
                 if id not in hidden and doc["Name"] == name and query.get("tag", None) in [None, *doc.get("Tags", [])]]
        return 200, found, {"X-Consul-Index": str(self.index), **({"X-Consul-Results-Filtered-By-ACLs": "true"} if hidden else {})}

    @staticmethod
    def entry(doc, checks):
        service = {"ID": doc["ID"], "Service": doc["Name"], "Tags": doc.get("Tags", []), "Address": doc.get("Address", ""),
                   "Port": doc.get("Port", 0), "Meta": doc.get("Meta"),
                   "Weights": doc.get("Weights", {"Passing": 1, "Warning": 1})}
        return {"Node": {"Node": "n1", "Address": "127.0.0.1", "Datacenter": "dc1"}, "Service": service,
                "Checks": [{"CheckID": "serfHealth", "Status": "passing"},
                           *({"CheckID": c, "Status": s, "ServiceID": doc["ID"]} for c, s in checks.items())]}

    def news(self):
        self.index += 1
        self.cond.notify_all()

    def change(self, id, doc, checks):
        self.services[id] = (doc, checks)
        self.news()

    # What a test says.

    def put(self, up, status="passing", **more):
        with self.cond:
            host = up.url.split("//", 1)[1].rsplit(":", 1)[0].strip("[]")
            doc = {"ID": up.name, "Name": "llm", "Address": host, "Port": up.port, "Meta": {"model_id": "m"}, **more}
            self.change(up.name, doc, {f"service:{up.name}": status})

    def meta(self, id):
        with self.cond:
            return dict(self.services[id][0]["Meta"]) if id in self.services else {}

    def drop(self, *ups):
        with self.cond:
            for up in ups:
                del self.services[up.name]
            self.news()

    def fail(self, status, body=""):
        with self.cond:
            self.fault = (status, body) if status else None
            self.news()

    def rewind(self):
        """The index goes backwards: queries that wait are answered with it."""
        with self.cond:
            self.index, self.life = 1, self.life + 1
            self.calls.clear()
            self.cond.notify_all()

    def wait(self, test, what):
        with self.cond:
            assert self.cond.wait_for(lambda: any(test(*c) for c in self.calls), h.PATIENCE), (what, self.calls[-20:])
            return [c for c in self.calls if test(*c)][-1]
