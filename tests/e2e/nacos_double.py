# SPDX-License-Identifier: Apache-2.0
"""A scripted Nacos server: the lists and the login of the HTTP API, in the shapes of 1.4, 2.x and 3.x."""
import base64
import hashlib
import hmac
import http.server
import json
import socket
import threading
import urllib.parse

import weir_harness as h


def host(up, **more):
    """An instance as a list shows it. `up` is an upstream or "ip:port"."""
    ip, port = up.rsplit(":", 1) if isinstance(up, str) else ("127.0.0.1", up.port)
    return {"ip": ip, "port": int(port), "weight": 1.0, "healthy": True, "enabled": True, "ephemeral": True,
            "clusterName": "DEFAULT", "metadata": {"model_id": "m"}, **more}


class NacosDouble:
    def __init__(self, shape="2.x", port=0):
        self.shape = shape
        self.lock = threading.Condition()
        self.lists = {}                     # "GROUP@@name" to a list of hosts
        self.protected = set()              # services whose threshold is reached
        self.asked = []                     # (method, path, {name: value}, headers)
        self.token, self.logins = None, 0   # token: what calls must show
        self.secret = None                  # of AK/SK
        self.answer = None                  # (method, path, fields) to None, (status, text) or "reset"
        self.before = None                  # called before each answer, without the lock
        self.time = 1764570000000
        double = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                path, _, query = self.path.partition("?")
                fields = dict(urllib.parse.parse_qsl(query) + urllib.parse.parse_qsl(body))
                if double.before:
                    double.before()
                result = double.reply(self.command, path, fields, dict(self.headers))
                if result == "reset":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                    self.close_connection = True
                    self.connection.close()
                    return
                status, text = result
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = serve

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", port or h.free_port()), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def put(self, *hosts, service="DEFAULT_GROUP@@llm"):
        with self.lock:
            self.lists[service] = list(hosts)

    def count(self, path):
        with self.lock:
            return sum(p.endswith(path) for _, p, _, _ in self.asked)

    def wait_polls(self, n=2):
        """Until n more lists were asked for: what the first of them said has been taken then."""
        before = self.count("/instance/list")
        with self.lock:
            assert self.lock.wait_for(
                lambda: sum(p.endswith("/instance/list") for _, p, _, _ in self.asked) >= before + n, h.PATIENCE)

    def reply(self, method, path, fields, headers):
        with self.lock:
            self.asked.append((method, path, fields, headers))
            self.lock.notify_all()
            special = self.answer(method, path, fields) if self.answer else None
            if special:
                return special
            if path.endswith("/login"):
                self.logins += 1
                if self.shape == "3.x" and "/v3/" not in path:
                    return 404, "gone"
                return 200, json.dumps({"accessToken": self.token, "tokenTtl": 18000, "globalAdmin": True})
            if self.token and headers.get("Authorization") != "Bearer " + self.token:
                return 403, json.dumps({"status": 403, "message": "token expired!"})
            if self.secret:
                want = hmac.new(self.secret.encode(), fields.get("data", "").encode(), hashlib.sha1).digest()
                if fields.get("signature") != base64.b64encode(want).decode():
                    return 403, "signature"
            if path.endswith("/v1/ns/instance/list") and self.shape == "3.x":
                return 410, json.dumps({"code": 40000, "message": "API is switched off", "data": None})
            if path.endswith("/instance/list"):
                return 200, self.list_of(fields)
            return 200, "ok"

    def list_of(self, fields):
        name = fields["serviceName"]
        grouped = name if "@@" in name else fields["groupName"] + "@@" + name
        hosts = self.lists.get(grouped, [])
        clusters = [c for c in (fields.get("clusters") or fields.get("clusterName") or "").split(",") if c]
        hosts = [x for x in hosts if not clusters or x["clusterName"] in clusters]
        self.time += 1
        if self.shape == "3.x":
            return json.dumps({"code": 0, "message": "success", "data": hosts})
        if self.shape == "1.4":
            return json.dumps({"dom": grouped, "name": grouped, "cacheMillis": 3000, "useSpecifiedURL": False,
                               "hosts": [dict(x, valid=x["healthy"], marked=False) for x in hosts], "checksum": "c",
                               "lastRefTime": self.time, "env": "", "clusters": "", "metadata": {}})
        return json.dumps({"name": grouped, "groupName": grouped.split("@@")[0], "clusters": "", "cacheMillis": 10000,
                           "hosts": hosts, "lastRefTime": self.time, "checksum": "", "allIPs": False,
                           "reachProtectionThreshold": grouped in self.protected, "valid": True})

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
