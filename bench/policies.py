#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten unequal emulated workers, one mixed load, several policies side by side.

Every policy gets the same requests at the same planned moments (seeded Poisson arrivals, open loop: latency counts
from the planned moment), on fresh workers and a fresh Weir, once per seed. Printed per policy, as medians over the
seeds: p50 and p95 latency and first event, busy share of each endpoint while requests arrive, and its spread (standard
deviation); and what failed, with how much of it for lack of memory, summed over the seeds. Times are those of the
emulated world: measured times x --time-scale.

round_robin and least_request are Weir's own, with all the filters of chain; the blind_ ones do what balancers without
knowledge of memory do: they pick among all endpoints that are up and have the model.
"""
import argparse
import asyncio
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
import urllib.request

import rig

GPUS = ["a100"] * 3 + ["3090"] * 3 + ["l4"] * 2 + ["t4"] * 2
MODEL = "llama-3-8b"
MIX = [                 # share, prompt tokens (4 bytes each), output tokens: a spread around each is drawn
    (0.60, 400, 120),   # chat
    (0.25, 3000, 200),  # retrieval
    (0.12, 150, 700),   # writing
    (0.03, 45000, 60),  # whole documents: more KV than the small cards have
]

# What the emulated cards serve of this mix, one against the other: seconds per average request alone, by the profiles of
# the engine, are 2.4 (A100), 4.9 (3090), 5.5 (T4), 7.8 (L4).
CONFIG = {
    "gpu_weights": {"A100": 3.3, "3090": 1.6, "T4": 1.4, "L4": 1},
    "policies": {
        "blind_round_robin": {"filters": ["usable", "model"], "pick": "round_robin"},
        "blind_least_request": {"filters": ["usable", "model"], "scores": [{"name": "load"}], "pick": "lowest"},
    },
}

# What a server, or Weir, says when a request needs more KV memory than it has.
NO_ROOM = re.compile(rb"maximum context length|exceeds_fleet_memory")


def draw_load(n, rate, seed):
    """[(planned second, prompt tokens, output tokens)...]"""
    rng, at, load = random.Random(seed), 0.0, []
    for _ in range(n):
        at += rng.expovariate(rate)
        _, prompt, output = rng.choices(MIX, [share for share, _, _ in MIX])[0]
        spread = rng.uniform(0.7, 1.3)
        load.append((at, int(prompt * spread), max(1, int(output * rng.uniform(0.5, 1.5)))))
    return load


async def one_request(address, prompt, output):
    """(status, error code or None, first-event seconds, whole seconds) of one streamed chat."""
    body = json.dumps({"model": MODEL, "stream": True, "max_tokens": output, "messages": [
        {"role": "user", "content": f"{random.random()} " + "word" * prompt}]}).encode()
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
                     b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split()[1])
        first = await reader.read(65536)
        first_at = time.perf_counter() - began
        rest = [first]
        while True:
            part = await reader.read(65536)
            if not part:
                break
            rest.append(part)
        data = b"".join(rest)
        code = None
        if status != 200 or b"[DONE]" not in data:
            code = "memory" if NO_ROOM.search(data) else f"status {status}" if status != 200 else "broken"
        return status, code, first_at, time.perf_counter() - began
    finally:
        writer.close()


async def drive(address, load, scale, workers):
    """Send the load on time; sample which workers are busy meanwhile."""
    loop, results, busy, samples = asyncio.get_running_loop(), [], [0] * len(workers), 0
    start = loop.time() + 0.1

    async def planned(at, prompt, output):
        due = start + at / scale
        await asyncio.sleep(max(0.0, due - loop.time()))
        late = loop.time() - due
        try:
            status, code, first, whole = await one_request(address, prompt, output)
            results.append((status, code, (first + late) * scale, (whole + late) * scale))
        except (OSError, asyncio.IncompleteReadError) as e:
            results.append((0, type(e).__name__, 0.0, 0.0))

    async def running(worker):
        reader, writer = await asyncio.open_connection(*worker)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
        page = await reader.read(-1)
        writer.close()
        return sum(float(v) for v in re.findall(rb"^vllm:num_requests_running\S* (\S+)", page, re.M))

    jobs = asyncio.gather(*(planned(*r) for r in load))
    last = start + load[-1][0] / scale      # what comes after it is a fleet running dry
    while loop.time() < last and not jobs.done():
        for i, r in enumerate(await asyncio.gather(*map(running, workers))):
            busy[i] += r > 0
        samples += 1
        await asyncio.wait([jobs], timeout=0.05)
    await jobs
    return results, [b / samples for b in busy]


def address(url):
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def run_policy(policy, load, scale, folder):
    started = []
    config = os.path.join(folder, f"{policy}.yaml")
    with open(config, "w", encoding="ascii") as f:
        json.dump({**CONFIG, "routes": [{"policy": policy}]}, f)    # JSON is YAML
    binary = os.path.join(rig.BUILD, "weir")
    try:
        weir = rig.Program([binary, "serve", "--host", "127.0.0.1", "--port", 0, "--admin-port", 0, "--registry-port", 0,
                            "--config", config])
        started.append(weir)
        bound = dict(w.split("=", 1) for w in weir.ready())
        workers = []
        for gpu in GPUS:
            w = rig.Program([binary, "worker", "--port", 0, "--gpu", gpu, "--model", MODEL, "--time-scale", scale,
                             "--registry", "http://" + bound["registry"], "--service", "bench",
                             "--report", f"{max(10, int(500 / scale))}ms"])
            started.append(w)
            workers.append(address(dict(x.split("=", 1) for x in w.ready() if "=" in x)["worker"]))
        wait_for_all(address(bound["admin"]), len(GPUS))
        return asyncio.run(drive(address(bound["data"]), load, scale, workers))
    finally:
        for program in reversed(started):
            program.stop()


def wait_for_all(admin, n):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with urllib.request.urlopen(f"http://{admin[0]}:{admin[1]}/metrics", timeout=5) as r:
            up = re.findall(rb"^weir_endpoint_up\{[^}]*\} 1$", r.read(), re.M)
        if len(up) >= n:
            return
        time.sleep(0.05)
    sys.exit("the workers did not all come up")


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * q))] if values else float("nan")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--policies", default="blind_round_robin,blind_least_request,round_robin,least_request,chain")
    ap.add_argument("--requests", type=int, default=500)
    ap.add_argument("--rate", type=float, default=1.5, help="requests per emulated second")
    ap.add_argument("--time-scale", type=float, default=25)
    ap.add_argument("--seeds", default="1,2,3,4,5")
    ap.add_argument("--json")
    opt = ap.parse_args()
    seeds = [int(s) for s in opt.seeds.split(",")]
    rows, raw = [], {}
    for policy in opt.policies.split(","):
        runs = []
        for seed in seeds:
            with tempfile.TemporaryDirectory(prefix="weir-policies-") as folder:
                results, busy = run_policy(policy, draw_load(opt.requests, opt.rate, seed), opt.time_scale, folder)
            good = [r for r in results if r[0] == 200 and r[1] is None]
            failed = [r for r in results if r not in good]
            runs.append({"seed": seed, "answered": len(good), "failed": len(failed),
                         "memory": sum(r[1] == "memory" for r in failed), "busy": busy,
                         "codes": sorted({str(r[1]) for r in failed}), "spread": statistics.pstdev(busy),
                         "p50": quantile([r[3] for r in good], 0.5), "p95": quantile([r[3] for r in good], 0.95),
                         "first50": quantile([r[2] for r in good], 0.5), "first95": quantile([r[2] for r in good], 0.95)})
            print(f"{policy}, seed {seed}: p95 {runs[-1]['p95']:.2f} s, spread {runs[-1]['spread']:.3f}", file=sys.stderr)
        raw[policy] = runs

        def middle(key):
            return statistics.median(r[key] for r in runs)
        share = [statistics.median(r["busy"][i] for r in runs) for i in range(len(GPUS))]
        rows.append([policy, *(f"{middle(k):.2f}" for k in ("p50", "p95", "first50", "first95")),
                     " ".join(f"{b:.0%}" for b in share), f"{middle('spread'):.3f}",
                     sum(r["failed"] for r in runs), sum(r["memory"] for r in runs)])
    print(f"{rig.machine()}; {opt.requests} requests at {opt.rate}/s, seeds {opt.seeds}, time scale {opt.time_scale}; "
          f"workers: {' '.join(GPUS)}\n")
    print(rig.table(["policy", "p50 s", "p95 s", "first event p50 s", "p95 s", "busy share per endpoint", "spread",
                     "failed", "for memory"], rows))
    if opt.json:
        with open(opt.json, "w", encoding="utf-8") as f:
            json.dump(raw, f)


if __name__ == "__main__":
    main()
