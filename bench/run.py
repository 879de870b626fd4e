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
import sys
import tempfile

import idle_streams
import rig
import threads
from proxies import START

ROWS = {        # name -> (loadgen arguments, unit of the CPU column)
    "post-1": (["--connections", 1], "request"),
    "post-64": (["--connections", 64], "request"),
    "post-512": (["--connections", 512], "request"),
    "sse-200": (["--connections", 200, "--stream"], "event"),
    "post-220k": (["--connections", 16, "--body-bytes", 220_000], "request"),
    "open-64": (["--connections", 64, "--rate", None], "request"),   # the rate is set from HAProxy's saturation
}
OTHERS = {      # measured by programs of their own, after the rows
    "idle-streams": lambda targets, rounds: idle_streams.report(targets),
    "threads": lambda targets, rounds: threads.report(rounds=rounds),
}
TITLES = {
    "post-1": "small POST (210 B -> 139 B), 1 connection",
    "post-64": "small POST, 64 connections",
    "post-512": "small POST, 512 connections",
    "sse-200": "SSE, 200 streams, one event of 60 B per 20 ms each",
    "post-220k": "220 KB JSON prompt, 16 connections",
    "open-64": "small POST, open loop at half of HAProxy's saturation, 64 connections",
}

def measure(program, port, name, seconds, calibrate, rate):
    args, unit = ROWS[name]
    args = [rate if a is None else a for a in args]
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
            if name == "open-64" and "haproxy" in targets:
                cells += [f"{mid(t, key, WALL, 1) / mid('haproxy', key, WALL, 1):.2f}" for key in ("p50", "p99")]
            rows.append(cells)
        head = ["proxy", "n", f"CPU us/{unit}", "x HAProxy", f"{unit}s/s", "p50 us", "p99 us"]
        more = ["events/read"] if unit == "event" else []
        if name == "open-64" and "haproxy" in targets:
            more = ["p50 x HAProxy", "p99 x HAProxy"]
        out += [f"**{TITLES[name]}**" + (" (p50, p99: relay time per event)" if unit == "event" else ""), "",
                rig.table(head + more, rows), ""]
    lost = sum(r["errors"] for r in results)
    if lost:
        out.append(f"{lost} requests failed; rows with failures are not in the tables")
    return "\n".join(out)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--targets", default="haproxy,nginx,weir")
    ap.add_argument("--rows", default=",".join([*ROWS, *OTHERS]))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--seconds", type=float, default=3)
    ap.add_argument("--json", help="write every row to this file")
    opt = ap.parse_args()
    targets, rows = opt.targets.split(","), opt.rows.split(",")
    for what, known, given in (("target", START, targets), ("row", {**ROWS, **OTHERS}, rows)):
        for name in given:
            if name not in known:
                ap.error(f"no {what} is called {name}; there are {', '.join(known)}")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("two CPUs are needed: one for the proxy, one for load and backend")
    others = [r for r in rows if r in OTHERS]
    rows = [r for r in rows if r in ROWS]
    started, results, calibrate, rate = [], [], rig.Calibrator(), None
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
            if "open-64" in rows:
                first = "haproxy" if "haproxy" in targets else targets[0]
                rate = int(threads.saturation(*proxies[first], opt.seconds) / 2)
                print(f"open loop at {rate}/s, half of what {first} can do", file=sys.stderr)
            for n in range(opt.rounds if rows else 0):
                for row in rows:
                    for i in range(len(targets)):
                        t = targets[(i + n) % len(targets)]
                        r = measure(*proxies[t], row, opt.seconds, calibrate, rate)
                        results.append({"target": t, "round": n, **r})
                        print(f"round {n + 1} {row:10} {t:8} {r['rate']:9.0f}/s cpu {r['cpu_us']:6.1f} us "
                              f"calibrator {r['speed'][0]:.0f}/{r['speed'][1]:.0f} ns errors {r['errors']}", file=sys.stderr)
        finally:
            for program in reversed(started):
                program.stop()
    if opt.json:
        with open(opt.json, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    if rows:
        print(summarize(results, calibrate.best(), targets))
    for other in others:
        print(OTHERS[other](targets, opt.rounds) + "\n", flush=True)


if __name__ == "__main__":
    main()
