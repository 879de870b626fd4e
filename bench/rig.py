# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: starting and ending programs, their CPU time, the calibrator, tables."""
import hashlib
import json
import os
import platform
import socket
import statistics
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
DROP_ABOVE = 1.15       # rows whose calibrator is above this times its minimum are dropped


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Program:
    """A child, pinned to one CPU, ended by its own handle."""

    def __init__(self, argv, cpu=None, stdout=subprocess.PIPE, log=None):
        self.argv = [str(a) for a in argv]
        pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
        self.log = open(log, "wb") if log else None
        self.proc = subprocess.Popen(pin + self.argv, stdin=subprocess.DEVNULL, stdout=stdout,
                                     stderr=self.log or subprocess.DEVNULL, text=True)

    def ready(self):
        """The words after `ready` on the first line that starts so."""
        for line in self.proc.stdout:
            if line.startswith("ready"):
                return line.split()[1:]
        raise SystemExit(f"{self.argv[0]} ended without a ready line (status {self.proc.wait()})")

    def cpu_ns(self):
        """CPU time of all its threads so far, in nanoseconds."""
        total = 0
        base = f"/proc/{self.proc.pid}/task"
        for task in os.listdir(base):
            with open(f"{base}/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total

    def rss_kb(self):
        with open(f"/proc/{self.proc.pid}/status", encoding="ascii", errors="replace") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    def wait_sockets(self, n, seconds=30):
        """Until it holds at least n sockets."""
        end = time.monotonic() + seconds
        base = f"/proc/{self.proc.pid}/fd"
        while time.monotonic() < end:
            if len(os.listdir(base)) >= n:
                return
            time.sleep(0.05)
        raise SystemExit(f"{self.argv[0]} has {len(os.listdir(base))} descriptors, not {n}")

    def stop(self):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(10)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        if self.log:
            self.log.close()


def wait_port(port, program, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if program.proc.poll() is not None:
            raise SystemExit(f"{program.argv} ended with {program.proc.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"{program.argv} does not listen on {port}")


class Calibrator:
    """How fast is this machine right now? The time of a fixed piece of work, much like a proxy's: loopback send,
    receive, hash. Machines change speed under us; a ratio of neighbours in time does not care, an absolute figure
    does. Two clocks: CPU time says how fast the CPU is, wall time says whether others also wanted it."""

    def __init__(self, cpu=1):
        self.cpu = cpu
        listener = socket.create_server(("127.0.0.1", 0))
        self.a = socket.create_connection(listener.getsockname())
        self.b, _ = listener.accept()
        listener.close()
        for s in (self.a, self.b):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.seen = []

    def __call__(self):
        """(CPU ns, wall ns) per piece of work."""
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.cpu} & mine or mine)
        data = bytes(range(256))
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        for _ in range(3000):
            self.a.send(data)
            hashlib.blake2b(self.b.recv(4096)).digest()
        took = ((time.thread_time_ns() - cpu) / 3000, (time.perf_counter_ns() - wall) / 3000)
        os.sched_setaffinity(0, mine)
        self.seen.append(took)
        return took

    def best(self):
        return tuple(min(s[i] for s in self.seen) for i in (0, 1))


def loadgen_start(port, args, cpu=0):
    """The load generator, started: a Popen whose standard output is its JSON."""
    pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
    return subprocess.Popen([*pin, os.path.join(BUILD, "bench", "loadgen"), "--target", f"127.0.0.1:{port}",
                             *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def loadgen_result(started):
    """Wait for its end; its JSON as a dict."""
    out, err = started.communicate()
    if not out.startswith("{"):
        raise SystemExit(f"loadgen failed: {err}")
    return json.loads(out)


def loadgen(port, args, cpu=0):
    """Run the load generator; its JSON as a dict."""
    return loadgen_result(loadgen_start(port, args, cpu))


def median(values):
    return statistics.median(values) if values else float("nan")


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] +
                     ["| " + " | ".join(map(str, r)) + " |" for r in rows])


def machine():
    """One line about where the figures come from."""
    cpu = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    return f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} x {cpu}, Linux {platform.release()}"
