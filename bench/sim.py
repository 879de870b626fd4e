#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulator itself: how fast it is, and how close to closed forms.

Speed: the 25-minute slice of Mooncake five times over (23,325 requests) on 8 workers, one thread; virtual by real
seconds of the run, without reading files. Theory: mean stay in service times of M/M/1, and of Poisson arrivals at many
servers by power of two choices against the limit sum of rho^(2^i - 2) (Mitzenmacher).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import rig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces"))
from unpack import unpack   # noqa: E402

WEIR = os.path.join(rig.BUILD, "weir")
FLEET = os.path.join(rig.ROOT, "examples", "fleets", "a100x8.yaml")


def run(*args):
    done = subprocess.run([WEIR, "sim", *map(str, args)], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def speed(folder, policies, runs):
    trace = os.path.join(unpack(folder), "mooncake_conversation_first25min.jsonl")
    rows = []
    for policy in policies:
        seen = []
        for _ in range(runs):
            _, err = run("--trace", trace, "--fleet", FLEET, "--repeat", 5, "--jitter", "--policy", policy, "--timing")
            seen.append(float(re.search(r"([\d.]+) x real time", err).group(1)))
        rows.append([policy, f"{max(seen):,.0f}", f"{rig.median(seen):,.0f}"])
    print(rig.table(["policy", "x real time, best", "median"], rows))


def stay(folder, policy, servers, rho, seconds, seeds):
    """Mean stay in service times of 1 ms, and its 95 % interval."""
    workload, fleet = os.path.join(folder, "jobs.yaml"), os.path.join(folder, "servers.yaml")
    with open(workload, "w", encoding="ascii") as f:
        f.write(f"duration: {seconds}s\nstreams:\n  - {{rate: {rho * servers * 1000:g}, prompt: 1, work: exp 1ms}}\n")
    with open(fleet, "w", encoding="ascii") as f:
        f.write(f"workers: [{{gpu: one, count: {servers}, fixed: 1ns}}]\n")
    out, _ = run("--trace", workload, "--fleet", fleet, "--policy", policy, "--seeds", seeds, "--json")
    m = json.loads(out)["policies"][0]["metrics"]["e2e_mean"]
    return m["mean"] * 1000, m["ci95"] * 1000


def closed_form(rho):
    return sum(rho ** (2 ** i - 2) for i in range(1, 40))


def theory(folder):
    rows = []
    for policy, servers, rho, seconds, seeds, exact in [
            ("random", 1, 0.5, 300, 5, 2.0), ("random", 1, 0.9, 1000, 10, 10.0),
            ("power_of_two", 500, 0.9, 1, 3, closed_form(0.9)), ("power_of_two", 500, 0.99, 4, 3, closed_form(0.99))]:
        mean, half = stay(folder, policy, servers, rho, seconds, seeds)
        rows.append([policy, servers, rho, f"{exact:.3f}", f"{mean:.3f} ± {half:.3f}", f"{mean / exact - 1:+.1%}"])
    print(rig.table(["policy", "servers", "rho", "closed form", "simulated", "off by"], rows))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    ap.add_argument("--policies", default="round_robin,least_request,chain")
    ap.add_argument("--runs", type=int, default=5)
    opt = ap.parse_args()
    print(f"{rig.machine()}\n")
    with tempfile.TemporaryDirectory(prefix="weir-sim-") as folder:
        speed(folder, opt.policies.split(","), opt.runs)
        print()
        theory(folder)


if __name__ == "__main__":
    main()
