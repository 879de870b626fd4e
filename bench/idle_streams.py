#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resident memory of an open stream that is silent most of the time, in each proxy.

A proxy started fresh, its memory read, then so many streams opened through it, each with its answer's head and a few
events passed on, and its memory read again while all are open. The difference, divided.
"""
import argparse
import os
import subprocess
import tempfile
import time

import rig
from proxies import START

SPACING_MS = 1000


def measure(target, folder, streams):
    """Bytes per open stream."""
    started = [rig.Program([os.path.join(rig.BUILD, "bench", "backend"), "--ports", 3, "--spacing", SPACING_MS])]
    try:
        proxy, port = START[target](started[0].ready(), folder, cpu=None)
        started.append(proxy)
        before = proxy.rss_kb()
        load = rig.loadgen_start(port, ["--connections", streams, "--stream", "--seconds", 30], cpu=None)
        try:
            proxy.wait_sockets(2 * streams)
            time.sleep(3 * SPACING_MS / 1000)   # events pass through all of them
            after = proxy.rss_kb()
        finally:
            load.kill()
            load.wait()
        return (after - before) * 1024 / streams
    finally:
        for program in reversed(started):
            program.stop()


def report(targets, streams=2000, rounds=3):
    rows = []
    for t in targets:
        with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
            rows.append([t, f"{rig.median([measure(t, folder, streams) for _ in range(rounds)]) / 1024:.2f}"])
    return f"**memory of an idle stream** ({streams} open, median of {rounds})\n\n" + rig.table(["proxy", "KB per stream"], rows)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--targets", default="haproxy,nginx,weir")
    ap.add_argument("--streams", type=int, default=2000)
    ap.add_argument("--rounds", type=int, default=3)
    opt = ap.parse_args()
    print(report(opt.targets.split(","), opt.streams, opt.rounds))


if __name__ == "__main__":
    main()
