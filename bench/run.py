#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nginx, HAProxy and Weir over the same fast backend, side by side in one run.

Each round runs every row on every proxy, in an order that rotates, so that all share the machine's moods; the
calibrator runs before and after every row (see rig.Calibrator). The proxy has CPU 1, load and backend CPU 0. CPU is
the proxy's own, all threads, from /proc. The tables are medians of the kept rows; ratios are to HAProxy.
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request

import rig

ROWS = {        # name -> (loadgen arguments, unit of the CPU column)
    "post-1": (["--connections", 1], "request"),
    "post-64": (["--connections", 64], "request"),
    "post-512": (["--connections", 512], "request"),
    "sse-200": (["--connections", 200, "--stream"], "event"),
    "post-220k": (["--connections", 16, "--body-bytes", 220_000], "request"),
}
TITLES = {
    "post-1": "small POST (210 B -> 139 B), 1 connection",
    "post-64": "small POST, 64 connections",
    "post-512": "small POST, 512 connections",
    "sse-200": "SSE, 200 streams, one event of 60 B per 20 ms each",
    "post-220k": "220 KB JSON prompt, 16 connections",
}

HAPROXY = """
global
    nbthread 1
    maxconn 9900
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-no-delay
    http-reuse always
listen proxy
    bind 127.0.0.1:{port}
    balance leastconn
{servers}
"""
NGINX = """
daemon off;
master_process off;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/f;
    uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
    keepalive_requests 1000000000;
    client_max_body_size 512m;
    client_body_buffer_size 512k;
    upstream workers {{ least_conn; {servers} keepalive 1024; keepalive_requests 1000000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://workers;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


def find(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        sys.exit(f"{name} is not installed; tools/deps.sh bench installs it")
    return path


def start_haproxy(backends, folder):
    port = rig.free_port()
    servers = "\n".join(f"    server s{i} {b}" for i, b in enumerate(backends))
    path = os.path.join(folder, "haproxy.cfg")
    with open(path, "w", encoding="ascii") as f:
        f.write(HAPROXY.format(port=port, servers=servers))
    program = rig.Program([find("haproxy"), "-db", "-f", path], cpu=1, log=os.path.join(folder, "haproxy.log"))
    rig.wait_port(port, program)
    return program, port


def start_nginx(backends, folder):
    port = rig.free_port()
    path = os.path.join(folder, "nginx.conf")
    with open(path, "w", encoding="ascii") as f:
        f.write(NGINX.format(port=port, dir=folder, servers=" ".join(f"server {b};" for b in backends)))
    program = rig.Program([find("nginx"), "-c", path, "-p", folder], cpu=1, log=os.path.join(folder, "nginx.log"))
    rig.wait_port(port, program)
    return program, port


def start_weir(backends, folder, extra=(), under=()):
    program = rig.Program([*under, os.path.join(rig.BUILD, "weir"), "serve", "--host", "127.0.0.1", "--port", 0,
                           "--admin-port", 0, "--registry-port", "off", "--threads", 1, *extra,
                           "--worker-urls", *[f"http://{b}" for b in backends]], cpu=1,
                          log=os.path.join(folder, "weir.log"))
    words = dict(w.split("=", 1) for w in program.ready())
    port = int(words["data"].rsplit(":", 1)[1])
    end = time.monotonic() + 15
    while time.monotonic() < end:       # its models come from the workers, by probing
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as r:
                if json.load(r)["data"]:
                    return program, port
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit("weir found no model on the backend")


START = {"haproxy": start_haproxy, "nginx": start_nginx, "weir": start_weir}


def measure(program, port, name, seconds, calibrate):
    args, unit = ROWS[name]
    before = calibrate()
    cpu = program.cpu_ns()
    got = rig.loadgen(port, [*args, "--seconds", seconds])
    cpu = program.cpu_ns() - cpu
    after = calibrate()
    count = got["events_total"] if unit == "event" else got["requests_total"]
    lat = got["relay_us"] if unit == "event" else got["latency_us"]
    rate = got["events"] / got["seconds"] if unit == "event" else got["rps"]
    return {"row": name, "speed": [max(a, b) for a, b in zip(before, after)], "cpu_us": cpu / 1e3 / count if count else float("nan"),
            "rate": rate, "p50": lat["p50"], "p99": lat["p99"], "errors": got["errors"],
            "events_per_read": got["events_per_read"], "rss_kb": program.rss_kb()}


def summarize(results, best, targets):
    """Tables of the kept rows, scaled to the machine's best speed. CPU goes by the calibrator's CPU time, rate and
    latency by its wall time: on a machine that others use too, the first may hold where the second does not."""
    CPU, WALL = 0, 1
    for r in results:
        r["kept"] = [r["errors"] == 0 and r["speed"][i] <= best[i] * rig.DROP_ABOVE for i in (CPU, WALL)]
    kept = [sum(r["kept"][i] for r in results) for i in (CPU, WALL)]
    out = [f"{rig.machine()}; of {len(results)} rows kept for CPU {kept[CPU]}, for rate and latency {kept[WALL]}", ""]
    for name, (_, unit) in ROWS.items():
        mine = {t: [r for r in results if r["row"] == name and r["target"] == t] for t in targets}
        if not any(mine.values()):
            continue

        def mid(target, key, clock, power, mine=mine):
            return rig.median([r[key] * (best[clock] / r["speed"][clock]) ** power
                               for r in mine[target] if r["kept"][clock]])
        rows = []
        for t in targets:
            ratio = mid(t, "cpu_us", CPU, 1) / mid("haproxy", "cpu_us", CPU, 1) if "haproxy" in targets else float("nan")
            n = "/".join(str(sum(r["kept"][i] for r in mine[t])) for i in (CPU, WALL))
            cells = [t, n, f"{mid(t, 'cpu_us', CPU, 1):.1f}", f"{ratio:.2f}", f"{mid(t, 'rate', WALL, 0 if unit == 'event' else -1):,.0f}",
                     f"{mid(t, 'p50', WALL, 1):,.0f}", f"{mid(t, 'p99', WALL, 1):,.0f}"]
            if unit == "event":
                cells.append(f"{mid(t, 'events_per_read', CPU, 0):.3f}")
            rows.append(cells)
        head = ["proxy", "n", f"CPU us/{unit}", "x HAProxy", f"{unit}s/s", "p50 us", "p99 us"]
        out += [f"**{TITLES[name]}**" + (" (p50, p99: relay time per event)" if unit == "event" else ""), "",
                rig.table(head + (["events/read"] if unit == "event" else []), rows), ""]
    lost = sum(r["errors"] for r in results)
    if lost:
        out.append(f"{lost} requests failed; rows with failures are not in the tables")
    return "\n".join(out)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--targets", default="haproxy,nginx,weir")
    ap.add_argument("--rows", default=",".join(ROWS))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--seconds", type=float, default=3)
    ap.add_argument("--json", help="write every row to this file")
    opt = ap.parse_args()
    targets, rows = opt.targets.split(","), opt.rows.split(",")
    for what, known, given in (("target", START, targets), ("row", ROWS, rows)):
        for name in given:
            if name not in known:
                ap.error(f"no {what} is called {name}; there are {', '.join(known)}")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two CPUs are needed: one for the proxy, one for load and backend")
    started, results, calibrate = [], [], rig.Calibrator()
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        try:
            backend = rig.Program([os.path.join(rig.BUILD, "bench", "backend"), "--ports", 3, "--spacing", 20], cpu=0)
            started.append(backend)
            backends = backend.ready()
            proxies = {}
            for t in targets:
                os.makedirs(os.path.join(folder, t))
                proxies[t] = START[t](backends, os.path.join(folder, t))
                started.append(proxies[t][0])
            for n in range(opt.rounds):
                for row in rows:
                    for i in range(len(targets)):
                        t = targets[(i + n) % len(targets)]
                        r = measure(*proxies[t], row, opt.seconds, calibrate)
                        results.append({"target": t, "round": n, **r})
                        print(f"round {n + 1} {row:10} {t:8} {r['rate']:9.0f}/s cpu {r['cpu_us']:6.1f} us "
                              f"calibrator {r['speed'][0]:.0f}/{r['speed'][1]:.0f} ns errors {r['errors']}", file=sys.stderr)
        finally:
            for program in reversed(started):
                program.stop()
    if opt.json:
        with open(opt.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    print(summarize(results, calibrate.best(), targets))


if __name__ == "__main__":
    main()
