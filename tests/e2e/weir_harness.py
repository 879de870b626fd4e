# SPDX-License-Identifier: Apache-2.0
"""What the black-box tests are made of: the real binary, upstreams that do what a script says, raw clients.

Order comes from events and counters. Every wait has an end, which is a failure; none is a measurement. Whatever a test
does not set itself has limits of time that no machine is too slow for: see patient().
"""
import contextlib
import glob
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("WEIR_BIN", os.path.join(ROOT, "build", "weir"))
SLOW = float(os.environ.get("WEIR_SLOW", "1"))      # sanitized builds are slower: bounds grow by this
PATIENCE = max(60.0, 15.0 * SLOW)                   # the bound of a wait that normally ends at once
ENDING = 25.0 * SLOW                                # the same for a process told to end: below limits.drain, which hides leaks

STUTTER = float(os.environ.get("WEIR_STUTTER", "0"))    # the share of steps that wait: see stutter()

SANITIZER_REPORT = re.compile(r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:")


def wait_until(predicate, what="the condition", timeout=None):
    """The first truthy value of predicate(); a bounded poll for what no event announces."""
    end = time.monotonic() + (timeout or PATIENCE)
    while True:
        value = predicate()
        if value:
            stutter("test")
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain for {what}; last value {value!r}")
        time.sleep(0.01)


behind = ()         # who does not keep pace in this test: some of "test", "double", "program"


def stutter(who):
    """
    Where a busy machine may take a thread off its core. With WEIR_STUTTER=0.1 one step in ten of whoever is `behind`
    waits, most of them for moments, some for a second: what holds only while all keep pace fails then, not once in a
    hundred runs. The harness calls it at every step of a test and of a double, and stops programs by it.
    """
    if who in behind and random.random() < STUTTER:
        time.sleep(random.choices((0.01, 0.1, 0.4, 1.2), (70, 20, 8, 2))[0])


def many(n):
    """So many rounds, one after the other: fewer where each step waits."""
    return n if not STUTTER else n // 20


def stutter_program(child, signals=None):
    """Let a program (subprocess.Popen) stand still now and then, except while `signals` is held."""
    def run():
        while child.poll() is None:
            time.sleep(random.random() * 0.2)
            with signals or contextlib.nullcontext():
                child.send_signal(signal.SIGSTOP)
                stutter("program")
                child.send_signal(signal.SIGCONT)
    if STUTTER:
        threading.Thread(target=run, daemon=True).start()


def address(text):
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    return ("127.0.0.1" if host == "0.0.0.0" else host, int(port))


claims = []


def claim(port):
    """Whether this process has the port from now on, of all that ask this way; nobody listens on it yet."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0weir-test-port-{port}")
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as s:
                if kind == socket.SOCK_STREAM:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("", port))
    except OSError:
        name.close()
        return False
    claims.append(name)
    return True


def free_port(span=0):
    """A port, for TCP and UDP, that nobody else gets while these tests run: it may be closed and opened again. It lies
    below those that the kernel gives to port 0 and to connections. With a span the port that much higher is free, too."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        end = int(f.read().split()[0])
    while True:
        port = random.SystemRandom().randrange(max(end - 20000, 1025), max(end, 2050))
        if claim(port) and (not span or claim(port + span)):
            return port


# ---------------------------------------------------------------------------------------------- processes


class Process:
    """A program of ours: its lines are collected, its `ready` line awaited, its end checked."""

    def __init__(self, argv, env=None):
        self.argv = [str(a) for a in argv]
        self.lines = []                 # both streams, in the order they were read
        self.cond = threading.Condition()
        self.proc = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
        self.pid = self.proc.pid
        self.readers = [threading.Thread(target=self._read, args=(f,), daemon=True)
                        for f in (self.proc.stdout, self.proc.stderr)]
        for r in self.readers:
            r.start()
        self.signals = threading.Lock()     # held while it stands still for a reason
        stutter_program(self.proc, self.signals)

    def _read(self, stream):
        for raw in stream:
            with self.cond:
                self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                self.cond.notify_all()
        with self.cond:
            self.cond.notify_all()

    @property
    def output(self):
        with self.cond:
            return "\n".join(self.lines)

    def log_contains(self, pattern):
        return re.search(pattern, self.output) is not None

    def wait_line(self, pattern, timeout=None):
        """The match of the first line that fits; fails when the program ends without one."""
        rx = re.compile(pattern)
        end = time.monotonic() + (timeout or PATIENCE)
        seen = 0
        with self.cond:
            while True:
                for line in self.lines[seen:]:
                    m = rx.search(line)
                    if m:
                        return m
                seen = len(self.lines)
                left = end - time.monotonic()
                dead = not any(r.is_alive() for r in self.readers)
                if left <= 0 or (dead and seen == len(self.lines)):
                    state = "ended" if dead else "is silent"
                    raise AssertionError(f"{self.argv} {state}, no line fits {pattern!r}:\n" + "\n".join(self.lines))
                self.cond.wait(min(left, 0.2))

    def ready(self):
        """The key=value words of the one line `ready ...`."""
        line = self.wait_line(r"^ready (.*)$").group(1)
        return dict(w.split("=", 1) for w in line.split() if "=" in w)

    def running(self):
        return self.proc.poll() is None

    def wait(self, timeout=None):
        try:
            rc = self.proc.wait(timeout or PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.argv} did not end:\n{self.output}") from None
        for r in self.readers:
            r.join(PATIENCE)
        return rc

    def kill(self, sig=signal.SIGKILL):
        if self.running():
            self.proc.send_signal(sig)

    @contextlib.contextmanager
    def frozen(self):
        """No thread of it runs: what is sent to it meanwhile it finds all at once, in the order in which it was sent."""
        def states():
            paths = glob.glob(f"/proc/{self.pid}/task/*/stat")
            return {pathlib.Path(path).read_text().rpartition(")")[2].split()[0] for path in paths}

        with self.signals:
            self.kill(signal.SIGSTOP)
            try:
                wait_until(lambda: states() == {"T"}, "every thread to stand still")
                yield
            finally:
                self.kill(signal.SIGCONT)

    killed = False

    def kill_9(self):
        """End it as a crash would; stop() has nothing to do then."""
        self.killed = True
        self.kill()
        assert self.wait() == -signal.SIGKILL

    def stop(self, sig=signal.SIGTERM, expect=0):
        """End it politely and insist on a clean end: exit status, no sanitizer report."""
        if self.killed:
            return self.proc.returncode
        self.kill(sig)
        try:
            rc = self.wait(ENDING)
        except AssertionError:
            self.kill()
            self.proc.wait()
            raise
        report = SANITIZER_REPORT.search(self.output)
        assert not report, f"sanitizer report from {self.argv}:\n{self.output}"
        assert expect is None or rc == expect, f"{self.argv} ended with {rc}, not {expect}:\n{self.output}"
        return rc


def run_weir(*args, timeout=None, env=None, stdin=None):
    """A short command to its end: (exit status, standard output, standard error)."""
    done = subprocess.run([BIN, *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=timeout or PATIENCE, env={**os.environ, **(env or {})},
                          stdin=subprocess.DEVNULL if stdin is None else None)
    assert not SANITIZER_REPORT.search(done.stderr), done.stderr
    return done.returncode, done.stdout, done.stderr


# ------------------------------------------------------------------------------------------ HTTP, the easy way


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        """(status, code) of an OpenAI-shaped error; its shape is checked on the way."""
        err = self.json()["error"]
        assert set(err) >= {"message", "type", "code", "param"}, err
        assert isinstance(err["message"], str) and err["message"], err
        return self.status, err["code"]

    def header(self, name):
        """The value; None when absent; repeated fields are joined by a comma."""
        values = [v for k, v in self.headers if k.lower() == name.lower()]
        return ", ".join(values) if values else None


class Http:
    """Requests over one kept connection; reconnects when the peer has closed it in between."""

    def __init__(self, addr):
        self.addr = addr
        self.conn = None

    def __call__(self, method, path, body=None, headers=None):
        head = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            head.setdefault("Content-Type", "application/json")
        fresh = self.conn is None
        stutter("test")
        while True:
            if self.conn is None:
                self.conn = http.client.HTTPConnection(*self.addr, timeout=PATIENCE)
            try:
                self.conn.request(method, path, body, head)
                r = self.conn.getresponse()
                out = Response(r.status, r.getheaders(), r.read())
                if r.will_close:
                    self.close()
                return out
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.close()
                if fresh:
                    raise
                fresh = True

    def close(self):
        if self.conn is not None:
            self.conn.close()
            self.conn = None


# ----------------------------------------------------------------------------------------------- metrics


class Metrics:
    """A parsed Prometheus page."""

    LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
    LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:\\.|[^"\\])*)",?')

    def __init__(self, text):
        self.text = text
        self.samples = []               # (name, labels, value)
        for line in text.split("\n"):    # no other line end counts, and labels may hold one
            if line and not line.startswith("#"):
                m = self.LINE.match(line)
                assert m, f"not a sample: {line!r}"
                labels = {k: re.sub(r"\\(.)", lambda e: {"n": "\n"}.get(e.group(1), e.group(1)), v)
                          for k, v in self.LABEL.findall(m.group(2) or "")}
                self.samples.append((m.group(1), labels, float(m.group(3))))

    def all(self, name, **labels):
        return [(l, v) for n, l, v in self.samples
                if n == name and all(l.get(k) == w for k, w in labels.items())]

    def sum(self, name, **labels):
        return sum(v for _, v in self.all(name, **labels))

    def value(self, name, **labels):
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name}{labels}: {found}"
        return found[0][1]


# -------------------------------------------------------------------------------------------------- weir


# What a check, a stalled engine or a slow client gets in a test that is not about them. An upstream of these tests is
# Python, and shares its cores with many: seconds without a word are nothing.
LONG = {"health": {"timeout": "4m"}, "breaker": {"stall": "1h"},
        "limits": {"header_read": "10m", "body_read": "10m", "idle": "10m", "tls_handshake": "10m"}}
LONG_ROUTE = {"timeouts": {"connect": "2m"}, "queue": {"timeout": "1h"}}


def patient(config):
    """The configuration of a test with long limits where it sets none; text is taken as it is."""
    def filled(given, long):
        return {**given, **{section: {**keys, **given.get(section, {})} for section, keys in long.items()}}
    if isinstance(config, str):
        return config
    routes = {"routes": [filled(r, LONG_ROUTE) for r in config["routes"]]} if "routes" in config else {}
    return {**filled(config, LONG), **routes}


class Weir(Process):
    """`weir serve` on free ports of loopback. What the test does not configure is patient; plain=True: as it is shipped."""

    def __init__(self, config=None, args=(), env=None, plain=False):
        self.dir = tempfile.TemporaryDirectory(prefix="weir-test-")
        argv = [BIN, "serve"]
        if config is None and not plain:
            config = {}
        if config is not None:
            config = config if plain else patient(config)
            path = os.path.join(self.dir.name, "weir.yaml")
            with open(path, "w", encoding="utf-8") as f:
                f.write(config if isinstance(config, str) else json.dumps(config))  # JSON is YAML
            argv += ["--config", path]
        self.config_path = None if config is None else path
        given = " ".join(map(str, args))
        defaults = [("--host", "127.0.0.1"), ("--port", "0"), ("--admin-port", "0"), ("--registry-port", "0"),
                    ("--threads", "2")]
        for flag, value in defaults:
            if flag not in given:
                argv += [flag, value]
        super().__init__(argv + list(args), env)
        try:
            bound = self.ready()
        except AssertionError:
            self.kill()
            raise
        self.data = address(bound["data"])
        self.admin = address(bound["admin"])
        self.registry = address(bound["registry"]) if bound.get("registry", "off") != "off" else None
        self.url = "http://%s:%d" % self.data
        self.http = Http(self.data)
        self.registry_http = Http(self.registry) if self.registry else None
        self.admin_http = Http(self.admin)

    def metrics(self):
        r = self.admin_http("GET", "/metrics")
        assert r.status == 200, r.body
        return Metrics(r.body.decode())

    def chat(self, model="m", headers=None, **more):
        body = {"messages": [{"role": "user", "content": "hi"}], **more}
        if model is not None:
            body["model"] = model
        return self.http("POST", "/v1/chat/completions", body, headers)

    # The native registry, as an application or an agent would use it.

    def register(self, upstream, id=None, models=("m",), wait=True, **more):
        """PUT the endpoint and, by default, wait until the data plane knows it. Returns its id."""
        id = id or upstream.name
        body = {"id": id, "service": "llm", "url": upstream.url, "models": [{"id": m} for m in models],
                "ttl_ms": 3_600_000, **more}
        r = self.registry_http("PUT", f"/v1/endpoints/{id}", body)
        assert r.status in (200, 201), (r.status, r.body)
        if wait:
            self.wait_up(upstream)
        return id

    def wait_up(self, upstream):
        wait_until(lambda: self.up(upstream) == 1, f"{upstream.name} to be up")

    def wait_gone(self, upstream):
        wait_until(lambda: self.up(upstream) is None, f"{upstream.name} to be gone")

    def up(self, upstream):
        """weir_endpoint_up of this upstream, None when the data plane does not know it."""
        host_port = upstream.url.split("//", 1)[1]
        for labels, value in self.metrics().all("weir_endpoint_up"):
            if host_port in labels["endpoint"] or labels["endpoint"] == upstream.name:
                return value
        return None

    def inflight(self):
        return self.metrics().sum("weir_inflight")

    def load(self, id, seq, epoch=1, interval_ms=600_000, **fields):
        """A native load report; a huge interval keeps it fresh for the whole test."""
        r = self.registry_http("POST", f"/v1/endpoints/{id}/load",
                               {"epoch": epoch, "seq": seq, "interval_ms": interval_ms, **fields})
        assert r.status == 200, (r.status, r.body)
        return r.json()

    def deregister(self, id):
        r = self.registry_http("DELETE", f"/v1/endpoints/{id}")
        assert r.status in (200, 204), (r.status, r.body)

    def stop(self, sig=signal.SIGTERM, expect=0):
        for h in (self.http, self.registry_http, self.admin_http):
            if h:
                h.close()
        try:
            return super().stop(sig, expect)
        finally:
            self.dir.cleanup()


class Worker(Process):
    """`weir worker` on a free port. Its lease is a long one: not lost because the machine was away for some seconds."""

    def __init__(self, *args, gpu="a100", model="m", env=None):
        lease = ["--ttl", "1h"] if "--registry" in args and "--ttl" not in args else []
        super().__init__([BIN, "worker", "--port", "0", "--gpu", gpu, "--model", model, "--timeout", "4m", *lease, *args],
                         env)
        try:
            self.url = self.ready()["worker"]
        except AssertionError:
            self.kill()
            raise
        self.name = f"worker-{self.pid}"
        self.http = Http(address(self.url.split("//", 1)[1]))


# ---------------------------------------------------------------------------------------------- raw bytes


class Wire:
    """A socket with a read buffer: reads lines, exact lengths, heads, chunks, events. Bounded by PATIENCE."""

    who = "test"

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(PATIENCE)
        if sock.family != socket.AF_UNIX:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = bytearray()          # grown in place: bodies may have many megabytes
        self.eof = False
        self.received = bytearray()     # every byte ever read

    def send(self, data):
        stutter(self.who)
        self.sock.sendall(data.encode() if isinstance(data, str) else data)

    def fill(self):
        """One read; False at the end of the stream. A reset counts as an end and is remembered."""
        if self.eof:
            return False
        stutter(self.who)
        try:
            got = self.sock.recv(1 << 18)
        except ConnectionResetError:
            self.was_reset = True
            got = b""
        self.eof = not got
        self.buf += got
        self.received += got
        return bool(got)

    was_reset = False

    def until(self, mark):
        """Bytes up to and including mark; EOFError when the peer ends before."""
        while mark not in self.buf:
            if not self.fill():
                raise EOFError(f"stream ended before {mark!r}; had {self.buf[:200]!r}")
        return self._take(self.buf.index(mark) + len(mark))

    def _take(self, n):
        out = bytes(memoryview(self.buf)[:n])
        del self.buf[:n]
        return out

    def exactly(self, n):
        while len(self.buf) < n:
            if not self.fill():
                raise EOFError(f"stream ended, {len(self.buf)} of {n} bytes")
        return self._take(n)

    def rest(self):
        while self.fill():
            pass
        return self._take(len(self.buf))

    def wait_closed(self):
        """Read until the peer has ended; anything it still sends stays in buf."""
        while self.fill():
            pass

    def chunk(self):
        """The next chunk's bytes; b'' is the last chunk (trailers are read too)."""
        size = int(self.until(b"\r\n").split(b";")[0], 16)
        if size == 0:
            while self.until(b"\r\n") != b"\r\n":
                pass
            return b""
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def rst(self):
        """Close with a reset instead of a FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.sock.close()


def parse_head(raw):
    """(first line, [(name, value)...]) of a head that ends with an empty line."""
    lines = raw.decode("latin-1").split("\r\n")
    fields = []
    for line in lines[1:]:
        if line:
            name, _, value = line.partition(":")
            fields.append((name, value.strip()))
    return lines[0], fields


class RawClient(Wire):
    """A client that sends exactly the bytes it is given."""

    def __init__(self, addr, rcvbuf=None):
        sock = socket.socket()
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(PATIENCE)
        sock.connect(addr)
        super().__init__(sock)
        self.chunked = False
        self.length = None

    def request(self, method="POST", path="/v1/chat/completions", body=None, headers=(), version="HTTP/1.1"):
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        head = [f"{method} {path} {version}", "Host: weir.test"]
        head += [f"{k}: {v}" for k, v in (headers.items() if isinstance(headers, dict) else headers)]
        if body is not None:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.send("\r\n".join(head).encode() + b"\r\n\r\n" + (body or b""))

    def head(self):
        """(status, headers) of the next response; 1xx come as they are."""
        line, fields = parse_head(self.until(b"\r\n\r\n"))
        status = int(line.split()[1])
        low = {k.lower(): v for k, v in fields}
        self.chunked = "chunked" in low.get("transfer-encoding", "").lower()
        self.length = int(low["content-length"]) if "content-length" in low else None
        return status, fields

    def body(self):
        if self.chunked:
            out = b""
            while True:
                part = self.chunk()
                if not part:
                    return out
                out += part
        return self.rest() if self.length is None else self.exactly(self.length)

    def response(self):
        status, fields = self.head()
        if status in (204, 304) or status < 200:
            return Response(status, fields, b"")
        return Response(status, fields, self.body())

    def event(self):
        """The data of the next event of a chunked stream; None after the last chunk. Chunks may cut anywhere."""
        while b"\n\n" not in self._events:
            part = self.chunk()
            if not part:
                return None
            self._events += part
        event, self._events = self._events.split(b"\n\n", 1)
        return event.removeprefix(b"data: ").decode()

    _events = b""


# ---------------------------------------------------------------------------------------------- upstreams


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def json(self):
        return json.loads(self.body)

    def asks(self, key):
        """The value of a key of the body; None when the body is no JSON object."""
        try:
            return self.json().get(key)
        except (ValueError, AttributeError):
            return None

    def header(self, name):
        values = [v for k, v in self.headers if k.lower() == name.lower()]
        return ", ".join(values) if values else None


class UpstreamConn(Wire):
    """One connection that Weir opened. A behaviour gets it and the request and does what it likes."""

    who = "double"

    def __init__(self, sock, upstream):
        super().__init__(sock)
        self.upstream = upstream
        self.closed = threading.Event()
        self.keep = True
        self.inside = False             # a behaviour has a request that is not answered yet

    def read_request(self):
        """The next request with its whole body (100-continue is answered); None at the end."""
        request = self.read_head()
        if request is None:
            return None
        if (request.header("expect") or "").lower() == "100-continue":
            self.send("HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in (request.header("transfer-encoding") or "").lower():
            while True:
                part = self.chunk()
                if not part:
                    break
                request.body += part
        else:
            request.body = self.exactly(int(request.header("content-length") or 0))
        return request

    def read_head(self):
        try:
            line, fields = parse_head(self.until(b"\r\n\r\n"))
        except (EOFError, OSError):
            return None
        method, path, _ = line.split(" ", 2)
        return Request(method, path, fields, b"")

    def respond(self, status=200, body=b"", headers=(), reason="OK"):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
            headers = [("Content-Type", "application/json"), *headers]
        body = body.encode() if isinstance(body, str) else body
        head = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body)}", f"x-worker: {self.upstream.name}"]
        head += [f"{k}: {v}" for k, v in headers]
        self.leave()
        self.send("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    def enter(self):
        with self.upstream.cond:
            self.inside = True
            self.upstream.active += 1
            self.upstream.peak = max(self.upstream.peak, self.upstream.active)

    def leave(self):
        """No longer active, before the last byte goes out: with it Weir may send the next request at once."""
        with self.upstream.cond:
            if self.inside:
                self.inside = False
                self.upstream.active -= 1
                self.upstream.cond.notify_all()

    def answer(self, request, text="hello"):
        """What an OpenAI-like server says to this request."""
        self.respond(200, {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request.asks("model"),
                           "choices": [{"index": 0, "message": {"role": "assistant", "content": text},
                                        "finish_reason": "stop"}],
                           "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})

    def start_stream(self):
        self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
                  f"x-worker: {self.upstream.name}\r\n\r\n")

    def send_chunk(self, data):
        data = data.encode() if isinstance(data, str) else data
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def sse_event(self, data):
        self.send_chunk("data: " + (data if isinstance(data, str) else json.dumps(data)) + "\n\n")

    def end_stream(self, done=True):
        if done:
            self.sse_event("[DONE]")
        self.leave()
        self.send("0\r\n\r\n")

    def hang_up(self):
        """Close after the behaviour returns."""
        self.keep = False


def answer_at_once(conn, request):
    if request.asks("stream"):
        conn.start_stream()
        for word in ("one", "two"):
            conn.sse_event({"choices": [{"index": 0, "delta": {"content": word}}]})
        conn.end_stream()
    else:
        conn.answer(request)


def listen(host, port=0, backlog=1024):
    """
    (listener, guard): the guard is bound to the same port and never listens. When the listener is closed, connects are
    refused for as long as the guard lives; without it the kernel might give the port to another test's server.
    """
    listener, guard = (socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) for _ in range(2))
    for s in (listener, guard):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    guard.bind(listener.getsockname())
    listener.listen(backlog)
    return listener, guard


class FakeUpstream:
    """A scripted server: `behaviour(conn, request)` per request, in a thread per connection.

    Weir's own probes (GETs of health, models and metrics paths) are answered here and kept apart in `probes`,
    so that `requests` holds what clients sent. A behaviour set to run per connection (`raw=True`) gets
    (conn, None) before anything is read.
    """

    def __init__(self, behaviour=answer_at_once, name="up", models=("m",), raw=False, port=0, host="127.0.0.1"):
        self.behaviour, self.name, self.models, self.raw = behaviour, name, models, raw
        self.lock = threading.Lock()
        self.cond = threading.Condition(self.lock)
        self.conns, self.requests, self.probes, self.errors = [], [], [], []
        self.active = self.peak = 0     # requests inside a behaviour now, and at most
        self.healthy = True
        self.probe_gate = threading.Event()     # cleared: probes are left without an answer
        self.probe_gate.set()
        self.listener, self.guard = listen(host, port)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    probe_posts = ()                    # POSTs that are Weir's questions too

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            stutter("double")
            conn = UpstreamConn(sock, self)
            with self.lock:
                self.conns.append(conn)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        try:
            if self.raw:
                self.behaviour(conn, None)
                return
            while conn.keep:
                conn.sock.settimeout(None)      # an idle pooled connection is no fault
                request = conn.read_request()
                conn.sock.settimeout(PATIENCE)
                if request is None:
                    return
                if (request.method == "GET" or request.path in self.probe_posts) and self._probe(conn, request):
                    continue
                stutter("double")
                conn.enter()
                stutter("double")
                with self.cond:
                    self.requests.append(request)
                    self.cond.notify_all()
                stutter("double")
                try:
                    self.behaviour(conn, request)
                finally:
                    conn.leave()
        except (EOFError, OSError):
            pass                                # the peer went away: often what the test is about
        except Exception as e:                  # a mistake in the behaviour: shown at stop()
            self.errors.append(e)
        finally:
            conn.closed.set()
            conn.close()

    def _probe(self, conn, request):
        path = request.path.split("?")[0]
        if path not in ("/health", "/healthz", "/v1/models", "/metrics", "/", "/ping", "/version", "/get_model_info",
                        "/v2/health/ready", "/load", "/v2", "/info", "/api/version", "/api/tags", "/slots",
                        "/prometheus/metrics", "/monitoring/prometheus/metrics", "/sdapi/v1/progress",
                        "/worker_get_status"):
            return False
        with self.lock:
            self.probes.append(request)
        if not self.probe_gate.wait(4 * PATIENCE):
            return True
        if not self.healthy:
            conn.respond(503, b"", reason="Service Unavailable")
        elif path == "/v1/models":
            conn.respond(200, {"object": "list", "data": [{"id": m, "object": "model", "created": 1,
                                                           "owned_by": "test"} for m in self.models]})
        elif path == "/health":
            conn.respond(200)
        else:
            conn.respond(404, b"", reason="Not Found")
        return True

    def hits(self):
        with self.lock:
            return len(self.requests)

    def wait_hits(self, n):
        """Until n requests have arrived since the start."""
        with self.cond:
            ok = self.cond.wait_for(lambda: len(self.requests) >= n, PATIENCE)
            assert ok, f"{self.name}: {len(self.requests)} requests, waited for {n}"

    def wait_idle(self):
        with self.cond:
            assert self.cond.wait_for(lambda: self.active == 0, PATIENCE), f"{self.name}: {self.active} still active"

    def refuse(self):
        """Stop listening and end all connections: from now on a connect fails."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)    # wakes the thread in accept; close alone would not
        except OSError:
            pass
        self.thread.join(PATIENCE)
        self.listener.close()
        for conn in list(self.conns):
            try:
                conn.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop(self):
        self.probe_gate.set()
        self.refuse()
        self.guard.close()
        assert not self.errors, f"behaviour of {self.name} failed: {self.errors}"


def one_answer_per_connection():
    """(behaviour, list): closes when a second request arrives, as a server whose keep-alive timeout just ran out; the
    connections on which one arrived in vain."""
    seen, in_vain = [], []

    def behaviour(conn, request):
        if conn in seen:
            in_vain.append(conn)
            conn.hang_up()
        else:
            seen.append(conn)
            conn.answer(request)

    return behaviour, in_vain


def gate(patience=PATIENCE * 4):
    """(behaviour, event): requests are held until the event is set, then answered."""
    opened = threading.Event()

    def behaviour(conn, request):
        assert opened.wait(patience), "the gate was never opened"
        answer_at_once(conn, request)

    return behaviour, opened
