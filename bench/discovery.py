#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What other people's registries cost: CPU of `weir serve`, time from a change to its use, memory per endpoint.

usage: build/venv/bin/python bench/discovery.py [--sources nacos-http,nacos-grpc,etcd,kubernetes,consul,file] [--seconds 20]

2,000 endpoints in 50 services change 100 times a second, open loop: half of the changes are weights, the other half leave
and come back some seconds later. Nacos is Weir's own registry in a process of its own, etcd is etcd; Kubernetes and Consul
are the doubles of tests/e2e. Nobody sends requests.

- CPU is the gateway's own while it all changes, less that of a gateway which has the same endpoints from a file that does
  not change. `unchanged` is the same while nothing changes. Endpoints are closed ports and checked once an hour, so only
  the first check of each one that comes back is in the figures.
- A change is usable when GET /api/v1/events tells of it, which happens once requests are routed by it; the time runs from
  the registry's answer to whoever made the change.
- Memory is the resident size with the endpoints less that without them, at rest and after all the changes.
"""
import argparse
import base64
import collections
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time
import urllib.parse

import rig

sys.path.insert(0, os.path.join(rig.ROOT, "tests", "e2e"))
import kube_double          # noqa: E402
import registries           # noqa: E402

WEIR = os.path.join(rig.BUILD, "weir")
PORT = 9                    # of all endpoints: discard, where nobody listens
BUDGETS = {"push": (5.0, 100.0), "poll": (15.0, 1000.0)}
MEMORY_BUDGET_KB = 4.0
QUIET = {"health": {"interval": "1h", "scrape_interval": "off", "down_after": 100}, "decisions": {"sample": "0/s"}}


class Endpoint:
    def __init__(self, service, i):
        self.service, self.i = service, i
        self.host = f"127.{1 + service}.{i // 250}.{1 + i % 250}"
        self.id = f"{self.host}:{PORT}"
        self.weight = 1
        self.there = True
        self.metadata = {"model_id": f"model-{service}", "gpu_type": "A100", "max_concurrency": "64", "engine": "vllm",
                         "team": "search", "version": "2026-11-30", "zone": "eu-west-1a"}

    @property
    def name(self):
        return f"llm-{self.service}"


class Http:
    """One connection that stays."""

    def __init__(self, url):
        self.conn = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30)

    def __call__(self, method, path, body=None, headers=None):
        self.conn.request(method, path, body, headers or {})
        answer = self.conn.getresponse()
        data = answer.read()
        if answer.status not in (200, 201):
            raise SystemExit(f"{method} {path}: {answer.status} {data[:200]!r}")
        return data


class Serve(rig.Program):
    def __init__(self, folder, name, discovery=(), registry=False):
        config = os.path.join(folder, name + ".yaml")
        with open(config, "w", encoding="utf-8") as f:
            json.dump({**QUIET, "discovery": list(discovery)} if discovery else QUIET, f)
        # Two ports in a row: Nacos' gRPC is 1,000 above its HTTP, and 0 finds such a pair.
        super().__init__([WEIR, "serve", "--config", config, "--host", "127.0.0.1", "--port", "0", "--admin-port", "0",
                          "--registry-port", "0" if registry else rig.free_port(), "--threads", "1"],
                         log=os.path.join(folder, name + ".log"))
        self.at = dict(word.split("=", 1) for word in self.ready())

    def admin(self):
        return Http("http://" + self.at["admin"])


# ------------------------------------------------------------------------------------------------ where changes are made

class Nacos:
    """Weir's registry, spoken to as a Nacos server."""

    def __init__(self, folder, services, protocol):
        self.server = Serve(folder, "registry", registry=True)
        self.url = "http://" + self.server.at["registry"]
        self.http = Http(self.url)
        self.source = {"type": "nacos", "servers": [self.url], "services": services, "protocol": protocol,
                       "interval": "500ms"}

    def call(self, method, e, **more):
        query = urllib.parse.urlencode({"serviceName": e.name, "ip": e.host, "port": PORT, "ephemeral": "false", **more})
        self.http(method, "/nacos/v1/ns/instance?" + query)

    def join(self, e):
        self.call("POST", e, weight=e.weight, metadata=json.dumps(e.metadata))

    def leave(self, e):
        self.call("DELETE", e)

    def change(self, e):
        self.call("PUT", e, weight=e.weight)

    def stop(self):
        self.server.stop()


class Etcd:
    def __init__(self, folder, services):
        del services
        self.server = registries.Etcd(os.path.join(folder, "etcd"))
        self.http = Http(self.server.url)
        self.source = {"type": "etcd", "servers": [self.server.url]}

    @staticmethod
    def key(e):
        return base64.b64encode(f"/weir/endpoints/{e.name}/{e.i}".encode()).decode()

    def join(self, e):
        document = {"url": f"http://{e.host}:{PORT}", "service": e.name, "weight": e.weight, "metadata": e.metadata}
        self.http("POST", "/v3/kv/put", json.dumps(
            {"key": self.key(e), "value": base64.b64encode(json.dumps(document).encode()).decode()}))

    change = join

    def leave(self, e):
        self.http("POST", "/v3/kv/deleterange", json.dumps({"key": self.key(e)}))

    def stop(self):
        self.server.stop()


class Kubernetes:
    """A slice for each service, and a pod for each endpoint, whose annotations change."""

    def __init__(self, folder, services):
        del folder
        self.server = kube_double.KubeApi()
        self.members = collections.defaultdict(dict)
        self.source = {"type": "kubernetes", "servers": [self.server.url], "services": services, "namespace": "ai"}

    def pod(self, e):
        self.server.pod(f"{e.name}-{e.i}", annotations={**{f"weir.dev/{k}": v for k, v in e.metadata.items()},
                                                        "weir.dev/weight": str(e.weight)})

    def slice(self, e):
        found = [dict(kube_double.endpoint(m.host, pod=f"{m.name}-{m.i}", node="node-1", ready=True), port=PORT)
                 for m in self.members[e.service].values()]
        self.server.slice(f"{e.name}-abc", found, service=e.name)
        with self.server.cond:
            del self.server.events[:-500]       # which are walked at each change

    def join(self, e):
        self.pod(e)
        self.members[e.service][e.i] = e
        self.slice(e)

    def leave(self, e):
        del self.members[e.service][e.i]
        self.slice(e)
        self.server.delete(kube_double.PODS, f"{e.name}-{e.i}")

    def change(self, e):
        self.pod(e)

    def stop(self):
        self.server.stop()


class PerService(registries.Consul):
    """As the real one: a query is woken by changes of its own service only."""

    def __init__(self):
        self.by_name = collections.defaultdict(dict)
        self.indexes = collections.defaultdict(lambda: 10)
        self.woken = {}
        super().__init__()

    def health(self, name, query, token):
        del token
        self.calls.clear()
        woken = self.woken.setdefault(name, threading.Condition(self.cond._lock))
        wanted, end = int(query.get("index", 0)), time.monotonic() + float(query["wait"].removesuffix("s"))
        life = self.life
        while wanted >= self.indexes[name] and life == self.life and time.monotonic() < end:
            woken.wait(min(1, max(0, end - time.monotonic())))
        return 200, list(self.by_name[name].values()), {"X-Consul-Index": str(self.indexes[name])}

    def set(self, name, id, entry):
        with self.cond:
            if entry:
                self.by_name[name][id] = entry
            else:
                del self.by_name[name][id]
            self.indexes[name] += 1
            if name in self.woken:
                self.woken[name].notify_all()


class Consul:
    def __init__(self, folder, services):
        del folder
        self.server = PerService()
        self.source = {"type": "consul", "servers": [self.server.url], "services": services}

    def join(self, e):
        self.server.set(e.name, e.id, registries.Consul.entry(
            {"ID": e.id, "Name": e.name, "Address": e.host, "Port": PORT, "Meta": e.metadata, "Tags": ["prod"],
             "Weights": {"Passing": e.weight, "Warning": 1}}, {"service:" + e.id: "passing"}))

    change = join

    def leave(self, e):
        self.server.set(e.name, e.id, None)

    def stop(self):
        self.server.stop()


class File:
    """One file with them all, written anew twice a second."""

    def __init__(self, folder, services):
        del services
        self.path, self.members = os.path.join(folder, "endpoints.json"), {}
        self.source = {"type": "file", "path": self.path}
        self.dirty = threading.Event()
        self.lock, self.ended = threading.Lock(), False
        self.write()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def write(self):
        with self.lock:
            text = json.dumps({"endpoints": list(self.members.values())}, indent=1)
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(self.path + ".new", self.path)

    def run(self):
        while not self.ended:
            self.dirty.wait()
            self.dirty.clear()
            self.write()
            time.sleep(0.5)

    def join(self, e):
        with self.lock:
            self.members[e.id] = {"url": f"http://{e.host}:{PORT}", "weight": e.weight,
                                  "models": [e.metadata["model_id"]], "gpu_type": "A100", "max_concurrency": 64,
                                  "engine": "vllm", "zone": "eu-west-1a", "labels": {"team": "search", "v": "2026-11-30"}}
        self.dirty.set()

    change = join

    def leave(self, e):
        with self.lock:
            del self.members[e.id]
        self.dirty.set()

    def stop(self):
        self.ended = True
        self.dirty.set()
        self.thread.join()


SOURCES = {
    "nacos-http": ("poll", lambda f, s: Nacos(f, s, "http")),
    "nacos-grpc": ("push", lambda f, s: Nacos(f, s, "grpc")),
    "etcd": ("push", Etcd),
    "kubernetes": ("push", Kubernetes),
    "consul": ("push", Consul),
    "file": ("poll", File),
}


# ------------------------------------------------------------------------------------------------------------ what is seen

class Watch:
    """The gateway's events: when did it tell of whom?"""

    def __init__(self, gateway):
        host, port = gateway.at["admin"].rsplit(":", 1)
        self.conn = http.client.HTTPConnection(host, int(port), timeout=120)
        self.conn.request("GET", "/api/v1/events")
        self.answer = self.conn.getresponse()
        self.cond = threading.Condition()
        self.there = set()
        self.seen = collections.defaultdict(collections.deque)      # (id, joined) -> times
        self.ended = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        kind = None
        try:
            for line in self.answer:
                if line.startswith(b"event: "):
                    kind = line[7:].strip()
                elif line.startswith(b"data: ") and kind in (b"endpoint_joined", b"endpoint_left"):
                    now = time.perf_counter()
                    id, joined = json.loads(line[6:])["endpoint"], kind == b"endpoint_joined"
                    with self.cond:
                        (self.there.add if joined else self.there.discard)(id)
                        self.seen[id, joined].append(now)
                        self.cond.notify_all()
        except (OSError, ValueError, AttributeError):
            pass

    def wait(self, n, seconds=120):
        with self.cond:
            if not self.cond.wait_for(lambda: len(self.there) == n, seconds):
                raise SystemExit(f"the gateway has {len(self.there)} endpoints, not {n}")
            self.seen.clear()

    def close(self):
        self.conn.sock and self.conn.sock.close()


def cpu_percent(program, seconds, work=time.sleep):
    before, began = program.cpu_ns(), time.perf_counter()
    work(seconds)
    return (program.cpu_ns() - before) / 1e7 / (time.perf_counter() - began)


class Load:
    """Changes at a fixed rate, in the same order each time."""

    def __init__(self, registry, endpoints, rate):
        self.registry, self.rate = registry, rate
        self.rng = random.Random(7)
        self.order = list(endpoints)
        self.rng.shuffle(self.order)
        self.present, self.absent = collections.deque(self.order), collections.deque()
        self.waits = []             # (id, joined, accepted)
        self.n = self.late = 0

    def one(self):
        kind = self.n % 4
        self.n += 1
        if kind % 2 == 0:
            e = self.present[0]
            self.present.rotate(-1)
            e.weight = e.weight % 9 + 1
            self.registry.change(e)
            return
        joins = kind == 3 and len(self.absent) > self.rate
        if joins:
            e = self.absent.popleft()
            self.registry.join(e)
            self.present.append(e)
        else:
            e = self.present.popleft()
            self.registry.leave(e)
            self.absent.append(e)
        self.waits.append((e.id, joins, time.perf_counter()))

    def __call__(self, seconds):
        began, n = time.perf_counter(), 0
        while n < seconds * self.rate:
            planned = began + n / self.rate
            n += 1
            now = time.perf_counter()
            if now < planned:
                time.sleep(planned - now)
            else:
                self.late += now - planned > 0.5
            self.one()

    def latencies(self, watch, patience=5):
        end = time.monotonic() + patience
        took, lost = [], 0
        for id, joined, accepted in self.waits:
            with watch.cond:
                watch.cond.wait_for(lambda: watch.seen[id, joined], max(0, end - time.monotonic()))
                if watch.seen[id, joined]:
                    took.append(max(0.0, watch.seen[id, joined].popleft() - accepted) * 1000)
                else:
                    lost += 1
        return sorted(took), lost


def fresh(o):
    return [Endpoint(s, i) for i in range(o.endpoints // o.services) for s in range(o.services)]


def baseline(o, folder):
    """CPU and memory of the same endpoints without anybody who changes them."""
    registry = File(folder, None)
    for e in fresh(o):
        registry.join(e)
    gateway = None
    try:
        time.sleep(1.5)
        gateway = Serve(folder, "baseline", [registry.source])
        watch = Watch(gateway)
        deadline = time.monotonic() + 60
        http_ = gateway.admin()
        while len(json.loads(http_("GET", "/api/v1/endpoints"))["endpoints"]) < o.endpoints:
            if time.monotonic() > deadline:
                raise SystemExit("the endpoints of the file do not come")
            time.sleep(0.2)
        time.sleep(3)
        percent = cpu_percent(gateway, o.seconds / 2)
        watch.close()
        return percent
    finally:
        registry.stop()
        if gateway:
            gateway.stop()


def measure(o, folder, name, base):
    kind, make = SOURCES[name]
    endpoints = fresh(o)
    registry = make(folder, [f"llm-{s}" for s in range(o.services)])
    gateway = None
    try:
        gateway = Serve(folder, "gateway", [registry.source])
        watch = Watch(gateway)
        time.sleep(1.5)
        empty = gateway.rss_kb()
        for e in endpoints:
            registry.join(e)
        watch.wait(len(endpoints))
        time.sleep(3)
        rest = gateway.rss_kb()
        unchanged = cpu_percent(gateway, o.seconds / 2) - base
        load = Load(registry, endpoints, o.rate)
        changing = cpu_percent(gateway, o.seconds, load) - base
        took, lost = load.latencies(watch)
        time.sleep(1)
        after = gateway.rss_kb()
        watch.close()
    finally:
        if gateway:
            gateway.stop()
        registry.stop()
    cpu_budget, wait_budget = BUDGETS[kind]
    n = len(endpoints)
    memory = max(rest, after) - empty
    p50, p99 = (took[int(len(took) * q)] if took else float("nan") for q in (0.5, 0.99))
    bad = [what for what, is_bad in (("CPU", changing > cpu_budget), ("time", not p99 <= wait_budget),
                                     ("memory", memory / n > MEMORY_BUDGET_KB), (f"{lost} not told", lost),
                                     (f"{load.late} changes were late", load.late > load.n // 20)) if is_bad]
    return [name, f"{changing:.2f} (<= {cpu_budget:g})", f"{unchanged:.2f}", f"{p50:.0f}", f"{p99:.0f} (<= {wait_budget:g})",
            f"{(rest - empty) / n:.2f}", f"{(after - empty) / n:.2f}", ", ".join(bad) or "kept"], bool(bad)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sources", default=",".join(SOURCES))
    options.add_argument("--endpoints", type=int, default=2000)
    options.add_argument("--services", type=int, default=50)
    options.add_argument("--rate", type=int, default=100, help="changes a second")
    options.add_argument("--seconds", type=float, default=20)
    o = options.parse_args()
    if unknown := set(o.sources.split(",")) - set(SOURCES):
        options.error(f"--sources: no {', '.join(sorted(unknown))}; there are {', '.join(SOURCES)}")
    rows, failed = [], False
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        base = baseline(o, folder)
        for name in o.sources.split(","):
            own = os.path.join(folder, name)
            os.mkdir(own)
            row, bad = measure(o, own, name, base)
            print("| " + " | ".join(row) + " |", file=sys.stderr)
            rows.append(row)
            failed |= bad
    print(f"{rig.machine()}, load {os.getloadavg()[0]:.1f}; {o.endpoints} endpoints in {o.services} services, "
          f"{o.rate} changes/s, {o.seconds:g} s; at rest {base:.2f} % of a core\n")
    print(rig.table(["source", "CPU, % of a core", "unchanged", "p50 ms", "p99 ms", "KB/endpoint", "after changes", "bars"],
                    rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
