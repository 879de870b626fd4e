# SPDX-License-Identifier: Apache-2.0
"""The registry alone (tests/tools/registry_only.c) and ways to talk to it."""
import http.client
import json
import os
import queue
import signal
import subprocess
import threading
import urllib.parse

from weir_harness import stutter, stutter_program

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(os.environ.get("WEIR_BIN", os.path.join(ROOT, "build", "weir")))
PROGRAM = os.path.join(BUILD, "tests", "unit", "registry", "registry_only")
PATIENCE = max(60.0, 20.0 * float(os.environ.get("WEIR_SLOW", "1")))     # how long to wait for what must come


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


class Registry:
    """The program, its sink's words as lines in order, and HTTP calls on one kept connection."""

    def __init__(self, *args):
        self.child = subprocess.Popen([PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.seen = []          # every line so far
        self.log = []
        self.readers = [threading.Thread(target=self._read, args=(self.child.stdout, self.lines.put), daemon=True),
                        threading.Thread(target=self._read, args=(self.child.stderr, self.log.append), daemon=True)]
        for r in self.readers:
            r.start()
        stutter_program(self.child)
        ready = self.until(lambda line: line.startswith("ready "))
        host, port = ready.split("registry=")[1].rsplit(":", 1)
        self.host, self.port = host, int(port)
        self.connection = None

    def _read(self, stream, put):
        for line in stream:
            put(line.rstrip("\n"))
        put("(end)")

    def until(self, test):
        """The next line that fits; what comes before it stays in `seen`."""
        while True:
            line = self.lines.get(timeout=PATIENCE)
            self.seen.append(line)
            assert line != "(end)", "\n".join(self.seen + self.log)
            if test(line):
                return line

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def __call__(self, method, path, body=None, headers=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        stutter("test")
        for fresh in (False, True):
            if self.connection is None or fresh:
                self.connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
                fresh = True
            try:
                self.connection.request(method, path, body, headers or {})
                r = self.connection.getresponse()
                return Reply(r.status, dict(r.getheaders()), r.read())
            except (ConnectionError, http.client.BadStatusLine):
                self.connection.close()
                self.connection = None
                if fresh:
                    raise

    def nacos(self, method, path, form=False, headers=None, **fields):
        """A Nacos v1 naming call: everything in the query, or in a form body."""
        text = urllib.parse.urlencode(fields)
        if form:
            return self(method, "/nacos/v1/ns/" + path, text,
                        {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})})
        return self(method, f"/nacos/v1/ns/{path}?{text}", None, headers)

    def hosts(self, service="llm", **fields):
        r = self.nacos("GET", "instance/list", serviceName=service, **fields)
        assert r.status == 200, r.text
        return r.json()["hosts"]

    def stop(self):
        """SIGTERM; it must end well, without a word from a sanitizer."""
        if self.connection:
            self.connection.close()
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(PATIENCE) == 0, "\n".join(self.log)
        for r in self.readers:
            r.join(PATIENCE)            # all that it said is in `log`

    def kill(self):
        """kill -9: nothing is written any more."""
        self.child.kill()
        self.child.wait(PATIENCE)


class Watch:
    """One event stream: next() gives (id, event, data)."""

    def __init__(self, registry, since=None, last_event_id=None):
        self.connection = http.client.HTTPConnection(registry.host, registry.port, timeout=PATIENCE)
        query = "" if since is None else f"?since={since}"
        headers = {"Last-Event-ID": str(last_event_id)} if last_event_id is not None else {}
        self.connection.request("GET", "/v1/watch" + query, headers=headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        assert self.response.getheader("Content-Type") == "text/event-stream"

    def next(self):
        event = {}
        while True:
            line = self.response.readline().decode().rstrip("\n")
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif "data" in event:
                return int(event["id"]), event["event"], json.loads(event["data"])
            else:
                event = {}

    def close(self):
        self.connection.close()
