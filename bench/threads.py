#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a second thread costs: CPU per request with two threads against one, at the same fixed rate.

The rate is a quarter of what HAProxy's one thread can do, open loop, 64 connections per thread. HAProxy and Weir in
the same run, rounds interleaved; what counts is the ratio of the two ratios. All programs may use both CPUs, so the
figures are for this comparison only. Futex calls are counted by strace, in a run of their own, because it slows all.
"""
import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time

import rig
from proxies import START


def cpu_per_request(program, port, connections, rate, seconds):
    before = program.cpu_ns()
    got = rig.loadgen(port, ["--connections", connections, "--rate", rate, "--seconds", seconds], cpu=None)
    return (program.cpu_ns() - before) / got["requests_total"] / 1e3, got["errors"]


def saturation(program, port, seconds):
    """Requests per second of one thread with 64 connections, closed loop."""
    return rig.loadgen(port, ["--connections", 64, "--seconds", seconds])["rps"]


def futexes(program, port, connections, rate, seconds):
    """Futex calls per request; None without strace."""
    if not shutil.which("strace"):
        return None
    load = rig.loadgen_start(port, ["--connections", connections, "--rate", rate, "--seconds", seconds], cpu=None)
    counter = subprocess.Popen(["strace", "-f", "-c", "-e", "trace=futex,recvfrom", "-p", str(program.proc.pid)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(seconds / 2)
    counter.send_signal(signal.SIGINT)
    table = counter.communicate()[1]
    load.wait()
    calls = {"futex": 0, "recvfrom": 0}
    for line in table.splitlines():
        words = line.split()
        if words and words[-1] in calls and words[3].isdigit():
            calls[words[-1]] = int(words[3])
    if not calls["recvfrom"]:
        return None
    return calls["futex"] / (calls["recvfrom"] / 2)     # a request is read once from each side


def report(targets=("haproxy", "weir"), rounds=5, seconds=2):
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        started = [rig.Program([os.path.join(rig.BUILD, "bench", "backend"), "--ports", 3])]
        try:
            backends = started[0].ready()
            proxies = {}
            for t in targets:
                for n in (1, 2):
                    mine = os.path.join(folder, f"{t}-{n}")
                    os.makedirs(mine)
                    proxies[t, n] = START[t](backends, mine, threads=n, cpu=None)
                    started.append(proxies[t, n][0])
            rate = int(saturation(*proxies["haproxy" if "haproxy" in targets else targets[0], 1], seconds) / 4)
            costs = {key: [] for key in proxies}
            errors = 0
            for r in range(rounds):
                keys = list(proxies)
                for i in range(len(keys)):
                    key = keys[(i + r) % len(keys)]
                    cost, failed = cpu_per_request(*proxies[key], 64 * key[1], rate, seconds)
                    costs[key].append(cost)
                    errors += failed
            rows = []
            for t in targets:
                ratio = rig.median([two / one for one, two in zip(costs[t, 1], costs[t, 2])])
                f = futexes(*proxies[t, 2], 128, rate, seconds)
                rows.append([t, f"{rig.median(costs[t, 1]):.1f}", f"{rig.median(costs[t, 2]):.1f}", f"{ratio:.2f}",
                             "no strace" if f is None else f"{f:.4f}"])
        finally:
            for program in reversed(started):
                program.stop()
    return (f"**two threads against one** ({rate:,} requests/s open loop, 64 connections per thread, {rounds} rounds, "
            f"errors {errors})\n\n" +
            rig.table(["proxy", "1 thread, CPU us/request", "2 threads", "ratio", "futex calls/request"], rows))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--seconds", type=float, default=2)
    opt = ap.parse_args()
    print(report(rounds=opt.rounds, seconds=opt.seconds))


if __name__ == "__main__":
    main()
