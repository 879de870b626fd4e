# SPDX-License-Identifier: Apache-2.0
"""The data plane alone (tests/tools/proxy_only), scripted upstreams and raw clients, for test_proxy_*.py."""
import json
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import threading
import time

import weir_harness
from weir_harness import stutter

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(os.environ.get("WEIR_BIN", os.path.join(ROOT, "build", "weir")))
BIN = os.environ.get("WEIR_PROXY_ONLY", os.path.join(BUILD, "tests", "tools", "proxy_only"))
PATIENCE = max(60.0, 20.0 * float(os.environ.get("WEIR_SLOW", "1")))   # a bound on waiting, never an expectation


def wait_until(what, true):
    """Poll until it holds; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"waited in vain for: {what}"
        time.sleep(0.005)
    stutter("test")


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Reader:
    """Reads messages off a socket."""

    def __init__(self, sock, who="test"):
        self.sock, self.buf, self.raw, self.who = sock, bytearray(), bytearray(), who
        sock.settimeout(PATIENCE)

    def more(self):
        stutter(self.who)
        data = self.sock.recv(65536)
        self.buf += data
        self.raw += data
        return data

    def until(self, mark):
        while mark not in self.buf:
            if not self.more():
                raise EOFError(self.raw[-200:])
        return self.take(self.buf.index(mark) + len(mark))

    def take(self, n):
        out = bytes(self.buf[:n])
        del self.buf[:n]
        return out

    def exactly(self, n):
        while len(self.buf) < n:
            if not self.more():
                raise EOFError(self.raw[-200:])
        return self.take(n)

    def chunks(self):
        """Payload of a chunked body; EOFError when it is cut."""
        body = bytearray()
        while True:
            n = int(self.until(b"\r\n"), 16)
            data = self.exactly(n + 2)
            assert data[-2:] == b"\r\n"
            if n == 0:
                return bytes(body)
            body += data[:n]

    def to_eof(self):
        while self.more():
            pass
        return self.take(len(self.buf))


class Message:
    def __init__(self, reader, head_only=False, request=False):
        self.head = reader.until(b"\r\n\r\n")
        lines = self.head.decode("latin-1").split("\r\n")
        self.first = lines[0]
        self.fields = [tuple(p.strip() for p in line.split(":", 1)) for line in lines[1:] if line]
        self.body = b""
        if not request:
            self.status = int(self.first.split()[1])
        if head_only or (not request and (self.status < 200 or self.status in (204, 304))):
            return
        if self.get("transfer-encoding"):
            self.body = reader.chunks()
        elif self.get("content-length") is not None:
            self.body = reader.exactly(int(self.get("content-length")))
        elif not request:
            self.body = reader.to_eof()

    def all(self, name):
        return [v for k, v in self.fields if k.lower() == name.lower()]

    def get(self, name):
        found = self.all(name)
        return found[0] if found else None

    def code(self):
        return json.loads(self.body)["error"]["code"]


class Up:
    """A scripted server. `script(conn, request)` runs per request; `first(conn)`, if given, per connection before."""

    def __init__(self, script=None, first=None, backlog=256):
        self.script, self.first = script or (lambda c, r: c.reply()), first
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.port = self.sock.getsockname()[1]
        self.addr = f"127.0.0.1:{self.port}"
        self.requests, self.conns, self.lock = [], [], threading.Lock()
        self.seen = queue.Queue()       # one item per request
        self.gone = queue.Queue()       # one item per connection that ended
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            stutter("double")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn = Conn(self, sock)
            with self.lock:
                self.conns.append(conn)
            threading.Thread(target=conn.run, daemon=True).start()

    def hits(self):
        with self.lock:
            return len(self.requests)

    def close(self):
        # A listener that a thread still accepts on lives on after close(); shutdown() ends the accept.
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class Conn:
    def __init__(self, up, sock):
        self.up, self.sock, self.reader, self.served = up, sock, Reader(sock, "double"), 0
        sock.settimeout(None)

    def run(self):
        try:
            if self.up.first:
                self.up.first(self)
            while True:
                self.serve()
        except (EOFError, OSError):
            pass
        finally:
            self.sock.close()
            self.up.gone.put(self)

    def serve(self):
        r = Message(self.reader, request=True)
        self.served += 1
        stutter("double")
        with self.up.lock:
            self.up.requests.append(r)
        stutter("double")
        self.up.seen.put(r)
        stutter("double")
        self.up.script(self, r)

    def send(self, data):
        stutter("double")
        self.sock.sendall(data)

    def reply(self, body=b'{"ok":true}', status="200 OK", fields=""):
        self.send(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
                  .encode() + body)

    def start_stream(self, kind="text/event-stream"):
        self.send(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())

    def chunk(self, data):
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self):
        self.send(b"0\r\n\r\n")

    def wait_gone(self):
        """Until the peer closed or reset."""
        try:
            while self.sock.recv(65536):
                pass
        except OSError:
            pass

    def die(self):
        reset(self.sock)
        raise EOFError


class Proxy:
    def __init__(self, *upstreams, args=()):
        cmd = [BIN]
        for u in upstreams:
            cmd += ["--upstream", u if isinstance(u, str) else f"{u.addr},model=m"]
        self.p = subprocess.Popen([*cmd, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, bufsize=1)
        self.lines = queue.Queue()
        threading.Thread(target=self.pump, daemon=True).start()
        ready = self.lines.get(timeout=PATIENCE)
        assert ready and ready.startswith("ready data="), ready or self.p.stderr.read()
        host, port = ready.split("=", 1)[1].rsplit(":", 1)
        self.addr = (host, int(port))
        if weir_harness.STUTTER:
            threading.Thread(target=self.stutter, daemon=True).start()

    def stutter(self):
        while self.p.poll() is None:
            time.sleep(random.random() * 0.2)
            self.p.send_signal(signal.SIGSTOP)
            stutter("program")
            self.p.send_signal(signal.SIGCONT)

    def pump(self):
        for line in self.p.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def command(self, text):
        self.p.stdin.write(text + "\n")
        return self.lines.get(timeout=PATIENCE)

    def stats(self):
        return json.loads(self.command("stats"))

    def quiet(self):
        """Wait until nothing is under way; the ledger is then exactly empty."""
        s = {}

        def over():     # an exchange that is no longer active may still be about to give back what it had
            s.update(self.stats())
            return not any(s[what] for what in ("active", "total_inflight", "waiting", "buffered"))

        wait_until(["no exchange under way and nothing held, in", s], over)
        return s

    def stop(self):
        if self.p.poll() is None:
            self.p.stdin.close()
            try:
                self.p.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.p.kill()
                raise AssertionError("proxy_only did not end: " + self.p.stderr.read()) from None
        err = self.p.stderr.read()
        assert self.p.returncode == 0 and "Sanitizer" not in err, f"exit {self.p.returncode}: {err}"


class Client:
    def __init__(self, proxy):
        self.sock = socket.create_connection(proxy.addr, PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(self.sock)

    def send(self, data):
        stutter("test")
        self.sock.sendall(data)

    def post(self, body=b'{"model":"m"}', path="/v1/chat/completions", fields=(), version="1.1", length=True):
        head = [f"POST {path} HTTP/{version}", "Host: x", *fields]
        if length:
            head.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)

    def get(self, path, method="GET", fields=()):
        self.send("\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *fields]).encode() + b"\r\n\r\n")

    def answer(self, head_only=False):
        return Message(self.reader, head_only)

    def close(self):
        self.sock.close()

    def reset(self):
        reset(self.sock)

    def at_end(self):
        """True when the peer closes without another byte; a reset counts."""
        try:
            return self.reader.buf == b"" and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


def ask(proxy, *args, **kw):
    c = Client(proxy)
    try:
        c.post(*args, **kw)
        return c.answer()
    finally:
        c.close()
