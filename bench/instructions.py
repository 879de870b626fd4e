#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""User-space instructions per proxied request and per relayed event, counted by callgrind.

A count, not a time: the same on a loaded machine as on an idle one, so that CI can print it. Counted is the data loop's
thread alone, from warm to the end of the load, with the default policy. The decision log is off: it takes 100
decisions a second, which are few of 60,000 requests and many of the hundreds that valgrind lets through.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import rig
import proxies

ROWS = {        # name -> (loadgen arguments, what is counted)
    "post": (["--connections", 16, "--requests", 2000], "request"),
    "post-220k": (["--connections", 4, "--requests", 100, "--body-bytes", 220_000], "request"),
    "sse": (["--connections", 40, "--requests", 40, "--stream"], "event"),
}
CONFIG = "decisions: {sample: 0/s}\n"


def control(pid, what):
    subprocess.run(["callgrind_control", what, str(pid)], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60)


def data_loop(folder, dump):
    """Instructions of the thread that parses requests, and its profile."""
    for path in glob.glob(os.path.join(folder, f"out.{dump}-*")):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if "wire_http1_" in text:
            found = re.search(r"^(?:totals|summary): (\d+)", text, re.M)
            return int(found.group(1)), path
    sys.exit("callgrind saw no thread that parses requests")


def count(program, port, folder, row, dump, top, profile):
    args, unit = ROWS[row]
    rig.loadgen(port, [*args, "--seconds", 60, "--warmup", 0], cpu=None)    # buffers and connections as they will be
    control(program.proc.pid, "-z")
    got = rig.loadgen(port, [*args, "--seconds", 60, "--warmup", 0], cpu=None)
    control(program.proc.pid, "-d")
    total, path = data_loop(folder, dump)
    n = got["events_total" if unit == "event" else "requests_total"]
    print(f"instructions per {unit} ({row}): {total / n:,.0f} (of {n}, errors {got['errors']})", flush=True)
    if profile:
        shutil.copyfile(path, profile)
    if not top:
        return
    listing = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", path], capture_output=True, text=True,
                             check=True)
    # "cost (share)  file:function [object]", after the total; what only calls others is no news
    found = re.findall(r"^ *([\d,]+) \([ \d.]+%\) +\S*?:(\S+)", listing.stdout, re.M)
    costs = [(int(c.replace(",", "")), name) for c, name in found]
    for cost, name in [x for x in costs if x[0] < total][:top]:
        print(f"  {cost / n:10.1f}  {name}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--rows", default="post,sse", help=f"of {', '.join(ROWS)}")
    ap.add_argument("--top", type=int, default=0, help="also the functions that cost most")
    ap.add_argument("--profile", help="copy the last row's profile there, for callgrind_annotate")
    ap.add_argument("--build", help="the build folder (build)")
    opt = ap.parse_args()
    if opt.build:
        rig.BUILD = os.path.abspath(opt.build)
    if not shutil.which("valgrind"):
        print("instructions per request: not counted, valgrind is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="weir-instructions-") as folder:
        config = os.path.join(folder, "weir.yaml")
        with open(config, "w", encoding="ascii") as f:
            f.write(CONFIG)
        started = [rig.Program([os.path.join(rig.BUILD, "bench", "backend"), "--ports", 3, "--spacing", 10])]
        try:
            program, port = proxies.start_weir(
                started[0].ready(), folder, extra=["--config", config], cpu=None,
                under=["valgrind", "--tool=callgrind", "--separate-threads=yes", "-q",
                       f"--callgrind-out-file={folder}/out"])
            started.append(program)
            for i, row in enumerate(opt.rows.split(",")):
                count(program, port, folder, row, i + 1, opt.top, opt.profile)
        finally:
            for program in reversed(started):
                program.stop()


if __name__ == "__main__":
    main()
