# SPDX-License-Identifier: Apache-2.0
"""What the agent's tests talk to: a scripted engine, a scripted registry of either kind, and a scripted NVML."""
import http.server
import json
import os
import ssl
import tempfile
import threading
import urllib.parse

import weir_harness as h

NVML = os.path.join(os.path.dirname(h.BIN), "tests", "nvml", "current", "libnvidia-ml.so.1")
NVML_OLD = os.path.join(os.path.dirname(h.BIN), "tests", "nvml", "old", "libnvidia-ml.so.1")


class Server:
    """An HTTP server whose answers come from self.answer(method, path, query, form or body): (status, body)."""

    def __init__(self):
        self.cond = threading.Condition()
        self.calls = []         # (method, path, dict of parameters or parsed body)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self):
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                params = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
                kind = self.headers.get("Content-Type") or ""
                if "form" in kind:
                    params.update(urllib.parse.parse_qsl(body, keep_blank_values=True))
                elif body:
                    params = json.loads(body)
                h.stutter("double")
                with outer.cond:
                    status, answer = outer.answer(self.command, urllib.parse.unquote(path), params, self.headers)
                    outer.calls.append((self.command, urllib.parse.unquote(path), params))
                    outer.cond.notify_all()
                h.stutter("double")
                data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _any

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass            # the agent went away in the middle of an answer

        self.httpd = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.httpd.server_address[1]
        threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True).start()

    def wait(self, test, what):
        """The first call (method, path, params) that fits, from the beginning."""
        with self.cond:
            found = []

            def look():
                found[:] = [c for c in self.calls if test(*c)]
                return bool(found)
            assert self.cond.wait_for(look, h.PATIENCE), f"waited in vain for {what}; calls: {self.calls[-20:]}"
            return found[0]

    def forget(self):
        with self.cond:
            self.calls.clear()

    def stop(self):
        self.httpd.shutdown()
        self.httpd.server_close()


class Engine(Server):
    """Looks like vLLM."""

    def __init__(self, models=("m",)):
        self.health, self.running, self.waiting, self.kv = 200, 3, 2, 0.25
        self.started = 1764581611.5     # process start time
        self.models = [{"id": m, "object": "model", "max_model_len": 8192, "parent": None} for m in models]
        super().__init__()
        self.url = f"http://127.0.0.1:{self.port}"

    def answer(self, method, path, params, headers):
        if path == "/health":
            return self.health, ""
        if self.health != 200:
            return 503, ""
        if path == "/v1/models":
            return 200, {"object": "list", "data": self.models}
        if path == "/version":
            return 200, {"version": "0.11.0"}
        if path == "/metrics":
            labels = '{model_name="m",engine="0"}'
            return 200, (f"vllm:num_requests_running{labels} {self.running}\n"
                         f"vllm:num_requests_waiting{labels} {self.waiting}\n"
                         f"vllm:kv_cache_usage_perc{labels} {self.kv}\n"
                         'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",engine="0"} 1\n'
                         f"process_start_time_seconds {self.started}\n")
        return 404, ""


class Registry(Server):
    """Weir's native one, as the agent sees it."""

    def __init__(self):
        self.known = set()
        super().__init__()
        self.url = f"http://127.0.0.1:{self.port}"

    def answer(self, method, path, params, headers):
        parts = path.split("/")         # "", v1, endpoints, id, what
        if method == "PUT":
            self.known.add(parts[3])
            return 201, {}
        if parts[3] not in self.known:
            return 404, {}
        if method == "DELETE":
            self.known.discard(parts[3])
            return 204, ""
        if parts[-1] == "load":
            return 200, {"accepted": True, "epoch": params["epoch"], "seq": params["seq"]}
        return 200, {}

    def speak_tls(self, cert, key, client_ca):
        """From now on, and only with those who show a certificate of client_ca."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.port}"

    def wait_registered(self, *keys, **fields):
        """A registration that has these keys, and these values."""
        return self.wait(lambda m, p, b: m == "PUT" and all(k in b for k in keys)
                         and all(b.get(k) == v for k, v in fields.items()), f"a registration with {keys} {fields}")[2]

    def wait_load(self, **fields):
        """A load report with these values; a value of None must be absent."""
        return self.wait(lambda m, p, b: p.endswith("/load") and all(b.get(k) == v for k, v in fields.items()),
                         f"a load report with {fields}")[2]


class Nacos(Server):
    """A Nacos server as its versions differ for an agent: 3 refuses PUT and PATCH of instances, and GET of one."""

    def __init__(self, version=2, password=None):
        self.version, self.password = version, password
        self.hosts = {}                 # (service, ip, port) -> parameters
        self.tokens, self.refused = 0, []
        super().__init__()
        self.url = f"nacos://127.0.0.1:{self.port}"

    def put(self, ip, port, **metadata):
        """What somebody else registered."""
        self.hosts[("DEFAULT_GROUP@@llm", ip, str(port))] = {"clusterName": "DEFAULT", "metadata": json.dumps(metadata),
                                                             "enabled": "true", "weight": "1"}

    def metadata(self, port):
        with self.cond:
            for (_, _, p), host in self.hosts.items():
                if p == str(port):
                    return json.loads(host["metadata"])
        return None

    def answer(self, method, path, params, headers):
        if path == "/nacos/v1/auth/login":
            if params.get("username") != "nacos" or params.get("password") != self.password:
                return 403, "unknown user!"
            self.tokens += 1
            return 200, {"accessToken": f"token-{self.tokens}", "tokenTtl": 18000, "globalAdmin": True}
        if self.password and headers.get("Authorization") != f"Bearer token-{self.tokens}":
            return 403, "token invalid!"
        group = params.get("groupName", "DEFAULT_GROUP")
        key = (f"{group}@@{params.get('serviceName')}", params.get("ip"), params.get("port"))
        if path == "/nacos/v1/ns/instance/list" and method == "GET":
            hosts = [{"ip": k[1], "port": int(k[2]), "clusterName": v["clusterName"], "enabled": v["enabled"] == "true",
                      "metadata": json.loads(v["metadata"]), "serviceName": k[0], "healthy": True}
                     for k, v in self.hosts.items() if k[0] == key[0]]
            return 200, {"name": key[0], "clusters": "", "cacheMillis": 10000, "hosts": hosts}
        if path == "/nacos/v1/ns/instance/beat" and method == "PUT":
            code = 10200 if key in self.hosts else 20404
            return 200, {"clientBeatInterval": 200, "code": code, "lightBeatEnabled": True}
        if path == "/nacos/v1/ns/instance" and method == "POST":
            if sum(len(k) + len(v) for k, v in json.loads(params["metadata"]).items()) > 1024:
                return 400, "metadata too long"
            self.hosts[key] = params
            return 200, "ok"
        if path == "/nacos/v1/ns/instance" and method == "DELETE":
            self.hosts.pop(key, None)
            return 200, "ok"
        self.refused.append((method, path))
        if self.version == 3:
            return 410, {"code": 40000, "message": "API is off", "data": None}
        return 404, ""


class Gpus:
    """A script for the fake NVML; write() exchanges it whole."""

    def __init__(self, text):
        self.dir = tempfile.TemporaryDirectory(prefix="weir-nvml-")
        self.path = os.path.join(self.dir.name, "script")
        self.write(text)

    def write(self, text):
        with open(self.path + ".next", "w", encoding="ascii") as f:
            f.write(text)
        os.rename(self.path + ".next", self.path)

    def env(self):
        return {"WEIR_FAKE_NVML": self.path}

    def stop(self):
        self.dir.cleanup()


def one_gpu(i, free=21474836480, util=37, name="NVIDIA H100 80GB HBM3", more=""):
    return (f"{i} uuid GPU-{i:04}\n{i} name {name}\n{i} total 85899345920\n{i} free {free}\n{i} util {util}\n"
            f"{i} membusy 12\n{i} power 300000\n{more}")


class Agent(h.Process):
    def __init__(self, registry, engine_url, *args, advertise="10.0.0.5:8000", gpus=None, nvml=NVML, command=(), env=None,
                 interval="50ms"):
        # As h.Weir is patient: how long a double takes to answer, and a drain, is not what these tests are about.
        argv = [h.BIN, "agent", "--registry", registry, "--advertise", advertise, "--service", "llm", "--timeout", "4m",
                "--drain", "1h"]
        argv += ["--interval", interval] if interval else []
        if engine_url:
            argv += ["--engine-url", engine_url]
        argv += ["--nvml", nvml, "--sysfs-root", "/nonexistent"]
        env = {**(gpus.env() if gpus else {}), **(env or {})}
        super().__init__([*argv, *args, *(["--", *map(str, command)] if command else [])], env)
        self.ready()

    def stop(self, sig=h.signal.SIGTERM, expect=0):
        """A test that saw the end has checked the status itself."""
        return super().stop(sig, expect if self.running() else None)
