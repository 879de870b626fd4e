#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the simulator right? The same slice of a trace twice: over HTTP through a real Weir to emulated workers in fast
motion, and through `weir sim`. Printed are mean and p90 time to first token and the throughput of both, and by how
much they differ; the exit status is 1 when one differs by more than --within.

Both sides get the same arrivals (jittered within the trace's 3 s slots here, once), the same engines and caches. Over
HTTP everything else is real: parsing, connections, the scheduler on its own clock, reports on their way. A real
machine has to keep up: late clients are counted, and a smaller --time-scale gives it more time.
"""
import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile

import rig
from policies import MODEL, address, quantile, wait_for_all

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces"))
from unpack import unpack   # noqa: E402

BLOCK = 2048                # bytes of prompt that a trace's id stands for: 512 tokens of 4 bytes
WEIR = os.path.join(rig.BUILD, "weir")


def load(path, seconds, seed):
    """(arrival s, prompt tokens, output tokens, ids), sorted, jittered within the slot."""
    draw, rows = random.Random(seed), []
    with open(path, encoding="utf-8") as f:
        for line in f:
            r = json.loads(line)
            if r["timestamp"] < seconds * 1000:
                rows.append((r["timestamp"] + draw.randrange(3000), r["input_length"], r["output_length"], r["hash_ids"]))
    return sorted(rows)


def prompt(ids, tokens):
    """Equal ids, equal text."""
    text = "".join(random.Random(i).randbytes(BLOCK // 2).hex() for i in ids)
    return text[:tokens * 4].ljust(tokens * 4, "x")


async def one(target, body):
    """(first, end) in seconds of the loop's clock; None: it failed."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(*target, limit=1 << 20)
    try:
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
                     b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        first, last = loop.time(), b""
        while part := await reader.read(1 << 18):
            last = (last + part)[-64:]
        return (first, loop.time()) if b" 200 " in head[:16] and b"[DONE]" in last else None
    finally:
        writer.close()


async def drive(target, rows, scale):
    loop = asyncio.get_running_loop()
    bodies = [json.dumps({"model": MODEL, "stream": True, "max_tokens": out, "prompt": prompt(ids, tokens)}).encode()
              for _, tokens, out, ids in rows]
    start = loop.time() + 0.2
    late = []

    async def planned(at, body):
        due = start + at / 1000 / scale
        await asyncio.sleep(max(0.0, due - loop.time()))
        late.append(loop.time() - due)
        try:
            times = await one(target, body)
        except (OSError, asyncio.IncompleteReadError):
            times = None
        return times and ((times[0] - due) * scale, (times[1] - start) * scale)

    results = await asyncio.gather(*(planned(r[0], b) for r, b in zip(rows, bodies)))
    return results, quantile(late, 0.99) * scale


def over_http(rows, opt, policy, folder):
    started = []
    try:
        config = os.path.join(folder, "weir.yaml")
        with open(config, "w", encoding="ascii") as f:      # JSON is YAML
            json.dump({"registry": {"address": "127.0.0.1:0"}, "admin": {"address": "127.0.0.1:0"},
                       "routes": [{"policy": policy}]}, f)
        started.append(rig.Program([WEIR, "serve", "--host", "127.0.0.1", "--port", 0, "--config", config]))
        bound = dict(w.split("=", 1) for w in started[0].ready())
        for _ in range(opt.workers):
            w = rig.Program([WEIR, "worker", "--port", 0, "--gpu", opt.gpu, "--model", MODEL,
                             "--time-scale", opt.time_scale, "--kv-tokens", opt.kv_blocks * 512,
                             "--registry", "http://" + bound["registry"],
                             "--report", f"{max(10, int(500 / opt.time_scale))}ms"])
            started.append(w)
            w.ready()
        wait_for_all(address(bound["admin"]), opt.workers)
        results, late = asyncio.run(drive(address(bound["data"]), rows, opt.time_scale))
    finally:
        for program in reversed(started):
            program.stop()
    good = [r for r in results if r]
    return {"failed": len(results) - len(good), "late_p99": late, "ttft_mean": sum(r[0] for r in good) / len(good),
            "ttft_p90": quantile([r[0] for r in good], 0.9), "requests_per_s": len(good) / max(r[1] for r in good)}


def simulated(rows, opt, policy, folder):
    trace, fleet = os.path.join(folder, "trace.jsonl"), os.path.join(folder, "fleet.yaml")
    with open(trace, "w", encoding="ascii") as f:
        for at, tokens, out, ids in rows:
            f.write(json.dumps({"timestamp": at, "input_length": tokens, "output_length": out, "hash_ids": ids}) + "\n")
    with open(fleet, "w", encoding="ascii") as f:
        json.dump({"model": MODEL, "workers": [{"gpu": opt.gpu, "count": opt.workers, "kv_blocks": opt.kv_blocks}]}, f)
    # --oracle: over HTTP every client says max_tokens, and gets as many.
    done = subprocess.run([WEIR, "sim", "--trace", trace, "--fleet", fleet, "--policy", policy, "--oracle", "--json"],
                          capture_output=True, text=True, check=True)
    m = json.loads(done.stdout)["policies"][0]["metrics"]
    return {"failed": int(m["requests"]["mean"] - m["ok"]["mean"]),
            **{k: m[k]["mean"] for k in ("ttft_mean", "ttft_p90", "requests_per_s")}}


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--trace", help="a Mooncake trace; by default the one in bench/traces")
    ap.add_argument("--minutes", type=float, default=5, help="from the start of the trace")
    ap.add_argument("--policies", default="round_robin,least_request")
    ap.add_argument("--gpu", default="a100")
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--kv-blocks", type=int, default=5860)
    ap.add_argument("--time-scale", type=float, default=5)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--within", type=float, default=0.1)
    opt = ap.parse_args()
    table, fine = [], True
    with tempfile.TemporaryDirectory(prefix="weir-fidelity-") as folder:
        trace = opt.trace or os.path.join(unpack(folder), "mooncake_conversation_first25min.jsonl")
        rows = load(trace, opt.minutes * 60, opt.seed)
        for policy in opt.policies.split(","):
            real, sim = over_http(rows, opt, policy, folder), simulated(rows, opt, policy, folder)
            for key in ("ttft_mean", "ttft_p90", "requests_per_s"):
                off = sim[key] / real[key] - 1
                fine = fine and abs(off) <= opt.within
                table.append([policy, key, f"{real[key]:.3f}", f"{sim[key]:.3f}", f"{off:+.1%}"])
            print(f"{policy}: failed {real['failed']} over HTTP, {sim['failed']} simulated; clients late by "
                  f"{real['late_p99']:.3f} emulated s (p99)", file=sys.stderr)
    print(f"{rig.machine()}; {len(rows)} requests of {opt.minutes:g} min on {opt.workers} x {opt.gpu}, time scale "
          f"{opt.time_scale:g}\n")
    print(rig.table(["policy", "what", "over HTTP", "simulated", "off by"], table))
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
