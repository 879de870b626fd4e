#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proxies at the same time on the same CPU, each with a backend and a load of its own: what disturbs one disturbs all.

A difference of a few per cent shows on a machine on which runs one after the other, as bench/run.py has them, differ by
more. Rates and latencies are those of proxies that share a CPU. Each second is one ratio to the first target; printed are
their median and quartiles. Targets are haproxy, nginx, weir, or NAME=PATH of another weir.
"""
import argparse
import os
import statistics
import tempfile
import time

import rig
from proxies import START, start_weir


def start(target, backends, folder):
    os.makedirs(folder)
    name, _, binary = target.partition("=")
    return start_weir(backends, folder, binary=binary) if binary else START[name](backends, folder)


def watch(programs, seconds):
    """CPU ns of each program in each second."""
    last = {t: p.cpu_ns() for t, p in programs.items()}
    took = {t: [] for t in programs}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        for t, p in programs.items():
            now = p.cpu_ns()
            took[t].append(now - last[t])
            last[t] = now
    return took


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    ap.add_argument("--targets", default="haproxy,weir")
    ap.add_argument("--seconds", type=int, default=20, help="at least 5")
    ap.add_argument("--spacing", type=float, default=20, help="ms between the events of a stream")
    ap.add_argument("--rate", type=int, help="small POST at so many a second instead of streams")
    opt = ap.parse_args()
    if opt.seconds < 5:
        ap.error("--seconds: at least 5, for quartiles of seconds")
    targets = opt.targets.split(",")
    args = ["--connections", 64, "--rate", opt.rate] if opt.rate else ["--connections", 200, "--stream"]
    started, programs, loads = [], {}, {}
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        try:
            for i, t in enumerate(targets):
                backend = rig.Program([os.path.join(rig.BUILD, "bench", "backend"), "--ports", 3, "--spacing", opt.spacing],
                                      cpu=0)
                started.append(backend)
                programs[t], port = start(t, backend.ready(), os.path.join(folder, str(i)))
                started.append(programs[t])
                loads[t] = port
            before = {t: p.cpu_ns() for t, p in programs.items()}
            loads = {t: rig.loadgen_start(port, [*args, "--seconds", opt.seconds]) for t, port in loads.items()}
            seconds = watch(programs, opt.seconds)
            got = {t: rig.loadgen_result(load) for t, load in loads.items()}
            cpu = {t: p.cpu_ns() - before[t] for t, p in programs.items()}
        finally:
            for program in reversed(started):
                program.stop()
    rows = []
    for t in targets:
        unit, lat = ("requests_total", "latency_us") if opt.rate else ("events_total", "relay_us")
        ratios = sorted(a / b for a, b in zip(seconds[t][1:], seconds[targets[0]][1:]) if b)
        low, mid, high = statistics.quantiles(ratios, n=4)
        rows.append([t.partition("=")[0], f"{cpu[t] / 1e3 / got[t][unit]:.2f}", f"{mid:.3f}", f"{low:.3f} to {high:.3f}",
                     f"{got[t][lat]['p50']:,.0f}", f"{got[t][lat]['p99']:,.0f}", f"{got[t]['events_per_read']:.3f}",
                     got[t]["errors"]])
    print(rig.machine() + "\n\n" + rig.table(["proxy", "CPU us", f"x {targets[0]}", "quartiles", "p50 us", "p99 us",
                                              "events/read", "errors"], rows))


if __name__ == "__main__":
    main()
