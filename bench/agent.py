#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU of `weir agent`: 8 devices of the scripted NVML, a vLLM-like engine, reports every 500 ms to `weir serve`.

usage: bench/agent.py [--seconds 20]
The NVML is our own library with the real one's symbols (tests/nvml): the cost of a real driver's calls is not in it.
"""
import argparse
import os
import sys
import tempfile
import time

import rig

BUDGET_PERCENT = 0.5


def script(devices):
    lines = [f"count {devices}"]
    for i in range(devices):
        lines += [f"{i} name NVIDIA H100 80GB HBM3", f"{i} total 85899345920", f"{i} free 21474836480", f"{i} util 37",
                  f"{i} membusy 12", f"{i} power 412000", f"{i} gpm 1", f"{i} sm 71.2", f"{i} dram 33.5", f"{i} engine 90"]
    return "\n".join(lines) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=20)
    options.add_argument("--devices", type=int, default=8)
    o = options.parse_args()
    weir = os.path.join(rig.BUILD, "weir")
    registry_port, engine_port = rig.free_port(), rig.free_port()
    programs = []
    with tempfile.NamedTemporaryFile("w", prefix="weir-nvml-") as nvml:
        nvml.write(script(o.devices))
        nvml.flush()
        os.environ["WEIR_FAKE_NVML"] = nvml.name
        try:
            for argv in (
                [weir, "serve", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--registry-port",
                 registry_port, "--threads", "1"],
                [weir, "worker", "--port", engine_port],
                [weir, "agent", "--registry", f"http://127.0.0.1:{registry_port}", "--advertise",
                 f"127.0.0.1:{engine_port}", "--interval", "500ms", "--nvml",
                 os.path.join(rig.BUILD, "tests", "nvml", "current", "libnvidia-ml.so.1")],
            ):
                programs.append(rig.Program(argv))
                programs[-1].ready()
            time.sleep(2)       # registered, and GPM has its samples
            agent = programs[-1]
            before, began = agent.cpu_ns(), time.perf_counter_ns()
            time.sleep(o.seconds)
            percent = (agent.cpu_ns() - before) / (time.perf_counter_ns() - began) * 100
            rss = agent.rss_kb()
        finally:
            for p in reversed(programs):
                p.stop()
    print(f"agent CPU: {percent:.3f} % of a core over {o.seconds:g} s, {o.devices} devices of the scripted NVML, "
          f"reports every 500 ms, RSS {rss / 1024:.1f} MB (budget {BUDGET_PERCENT} %)")
    return 0 if percent <= BUDGET_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
