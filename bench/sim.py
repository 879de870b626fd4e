#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulator: what the policies reach (the tables of docs/scheduling.md), how fast it is, how close to closed forms.

    bench/sim.py --write docs/scheduling.md       every measured table of that page, again; --jobs, --seeds, --only
    bench/sim.py                                  speed and closed forms

Tables: each between marks in the page, `<!-- measured NAME -->` and `<!-- end -->`. All are means of --seeds seeds with
95 % intervals (Student). A highest rate is searched for each seed alone; two policies are compared seed by seed.

Speed: the 25-minute slice of Mooncake five times over (23,325 requests) on 8 workers, one thread; virtual by real
seconds of the run, without reading files. Theory: mean stay in service times of M/M/1, and of Poisson arrivals at many
servers by power of two choices against the limit sum of rho^(2^i - 2) (Mitzenmacher).
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

import rig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces"))
from unpack import unpack   # noqa: E402

WEIR = os.environ.get("WEIR_BIN", os.path.join(rig.BUILD, "weir"))
FLEETS = os.path.join(rig.ROOT, "examples", "fleets")
FLEET = os.path.join(FLEETS, "a100x8.yaml")
MIXED_JOBS = os.path.join(rig.ROOT, "examples", "workloads", "mixed.yaml")
CODE = "AzureLLMInferenceTrace_code_2023.csv"
CONVERSATION = "AzureLLMInferenceTrace_conv_2023.csv"

BASELINES = ["random", "round_robin", "least_request", "power_of_two", "prefix_cache", "response_time", "peak_ewma",
             "prequal", "cache_aware", "llm_d", "dynamo", "prefix_hash", "vllm"]
POLICIES = BASELINES + ["queued_work"]
MOONCAKE = [("8 x 5,860 blocks", 8, 5860), ("16 x 5,860", 16, 5860), ("8 x 820", 8, 820)]
# vLLM's engines report so often.
OF_POLICY = {"vllm": ("--report", "100ms")}
# The 97.5 % quantile of Student's distribution, by degrees of freedom; beyond them the normal one.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093]


def run(*args):
    done = subprocess.run([WEIR, "sim", *map(str, args)], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


# ------------------------------------------------------------------------------------------------- numbers

class Seeds:
    """One number for each seed."""

    def __init__(self, values):
        self.values = list(values)

    def mean(self):
        return sum(self.values) / len(self.values)

    def half(self):
        n = len(self.values)
        if n < 2:
            return 0.0
        m = self.mean()
        deviation = (sum((v - m) ** 2 for v in self.values) / (n - 1)) ** 0.5
        return (STUDENT[n - 2] if n - 2 < len(STUDENT) else 1.96) * deviation / n ** 0.5

    def __truediv__(self, other):
        return Seeds(a / b if b else float("inf") for a, b in zip(self.values, other.values))

    def __sub__(self, other):
        return Seeds(a - b for a, b in zip(self.values, other.values))

    def text(self, digits=2):
        half = f"{self.half():.{digits}f}"
        return f"{self.mean():.{digits}f}" + (f" ±{half}" if float(half) else "")


def mooncake_fleet(folder, workers, blocks):
    path = os.path.join(folder, f"a100x{workers}-{blocks}.yaml")
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as f:
            f.write(f"model: llama-3-8b\nworkers:\n  - {{gpu: a100, count: {workers}, kv_blocks: {blocks}}}\n")
    return path


class Bench:
    """Runs are asked for one by one, done by several processes, and done once however often they are asked for."""

    def __init__(self, folder, seeds, jobs):
        self.folder, self.seeds = folder, seeds
        self.traces = unpack(folder)
        self.mooncake = os.path.join(self.traces, "mooncake_conversation_first25min.jsonl")
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.asked, self.done = {}, 0

    def trace(self, name):
        return os.path.join(self.traces, name)

    def ask(self, key, work):
        if key not in self.asked:
            def counted():
                result = work()
                self.done += 1
                print(f"\r{self.done} of {len(self.asked)} runs", end="", file=sys.stderr, flush=True)
                return result
            self.asked[key] = self.pool.submit(counted)
        return self.asked[key]

    def sim(self, policy, trace, fleet, *more):
        """A future of {metric: Seeds}, and "workers"."""
        args = ("--trace", trace, "--fleet", fleet, "--jitter", "--policy", policy, "--seeds", self.seeds,
                *OF_POLICY.get(policy, ()), *more)

        def work():
            p = json.loads(run(*args, "--json")[0])["policies"][0]
            return {k: Seeds(m["seeds"]) for k, m in p["metrics"].items()}
        return self.ask(args, work)

    def highest(self, policy, trace, fleet, near, *more):
        """Futures, one for each seed, of the highest rate scale with goodput >= 90 %, and the lowest without."""
        futures = []
        for seed in range(1, self.seeds + 1):
            args = ("--trace", trace, "--fleet", fleet, "--jitter", "--policy", policy, "--seed", seed, "--saturation",
                    "--rate-scale", near, *OF_POLICY.get(policy, ()), *more)

            def work(args=args):
                s = json.loads(run(*args, "--json")[0])["saturation"][0]
                return s["good_scale"], s["bad_scale"]
            futures.append(self.ask(args, work))
        return futures


def rates(futures):
    return Seeds(f.result()[0] for f in futures)


# -------------------------------------------------------------------------------------------------- tables

def verdict(seeds, bar, digits=2):
    """Met or missed by the mean, and whether the interval is on one side."""
    sure = seeds.half() <= 0 or abs(seeds.mean() - bar) > seeds.half()
    return ("met" if seeds.mean() <= bar else "missed") + ("" if sure else " (within the interval)"), seeds.text(digits)


class Tables:
    def __init__(self, bench):
        self.b = bench
        self.bars = []      # rows of the last table

    def bar(self, case, what, seeds, bar, digits=2):
        word, text = verdict(seeds, bar, digits)
        self.bars.append([case, what, f"<= {bar:.3g}", text, word])

    # --- Mooncake

    def near(self, workers):
        return 1.5 * workers / 8

    def all_rates(self):
        return {(label, p): self.b.highest(p, self.b.mooncake, mooncake_fleet(self.b.folder, w, k), self.near(w))
                for label, w, k in MOONCAKE for p in POLICIES}

    def round_robins_limit(self, label):
        """The lowest rate at which round robin's goodput is below 90 %, mean of the seeds."""
        found = self.all_rates()[label, "round_robin"]
        return round(sum(f.result()[1] for f in found) / len(found), 3)

    def rates(self):
        found = self.all_rates()
        rows = []
        for p in POLICIES:
            row = [f"**{p}**" if p == "queued_work" else p]
            for label, _, _ in MOONCAKE:
                row.append(rates(found[label, p]).text())
            rows.append(row)
        for label, _, _ in MOONCAKE:
            ours = rates(found[label, "queued_work"])
            best = max(BASELINES, key=lambda p, label=label: rates(found[label, p]).mean())
            self.bar(label, f"highest rate of the best baseline ({best}) / ours", rates(found[label, best]) / ours, 1)
            self.bar(label, "highest rate of round_robin / ours", rates(found[label, "round_robin"]) / ours, 1 / 1.2)
        return rig.table(["policy", *(label for label, _, _ in MOONCAKE)], rows)

    LIMIT = ["random", "round_robin", "least_request", "prefix_cache", "cache_aware", "llm_d", "dynamo", "prefix_hash",
             "vllm", "queued_work"]

    def limit(self, label):
        _, workers, blocks = next(m for m in MOONCAKE if m[0] == label)
        fleet = mooncake_fleet(self.b.folder, workers, blocks)
        scale = self.round_robins_limit(label)
        asked = {p: self.b.sim(p, self.b.mooncake, fleet, "--rate-scale", scale) for p in self.LIMIT}
        oracle = self.b.sim("queued_work", self.b.mooncake, fleet, "--rate-scale", scale, "--oracle")
        alone = self.b.sim("round_robin", self.b.mooncake, mooncake_fleet(self.b.folder, 1, 400000), "--closed", 1)
        m = {p: f.result() for p, f in asked.items()}
        m["told lengths"], alone = oracle.result(), alone.result()
        ours, random = m["queued_work"], m["random"]["ttft_mean"]
        rows = []
        for name, metric, digits in [("first token, mean s", "ttft_mean", 2), ("first token, p99 s", "ttft_p99", 2),
                                     ("end to end, p95 s", "e2e_p95", 1), ("goodput", "goodput", 3),
                                     ("a token, mean ms", "tpot_mean", 1), ("prefix hits", "hit_ratio", 2),
                                     ("uncached work, max / mean", "uncached_spread", 2)]:
            rows.append([name] + [m[p][metric].text(digits) for p in [*self.LIMIT, "told lengths"]])
        case = f"{label}, rate {scale:g}"
        if blocks > 1000:   # a bar for caches that hold what the trace shares
            self.bar(case, "first token, mean / random", ours["ttft_mean"] / random, 0.25)
            self.bars.append([case, "the same of any policy: the bound", "", (alone["ttft_mean"] / random).text(), ""])
            self.bar(case, "first token, mean / least_request", ours["ttft_mean"] / m["least_request"]["ttft_mean"],
                     0.7)
        best = min((p for p in self.LIMIT if p != "queued_work"), key=lambda p: m[p]["e2e_p95"].mean())
        self.bar(case, f"p95 / best baseline ({best})", ours["e2e_p95"] / m[best]["e2e_p95"], 1)
        self.bar(case, "p95 / least_request", ours["e2e_p95"] / m["least_request"]["e2e_p95"], 1)
        self.bar(case, "uncached work, max / mean", ours["uncached_spread"], 1.1)
        return (f"{label}, rate {scale:g}. The bound of the first token is {alone['ttft_mean'].mean():.2f} s.\n\n"
                + rig.table(["", *self.LIMIT, "queued_work told lengths"], rows))

    def stale(self):
        label = MOONCAKE[0][0]
        fleet = mooncake_fleet(self.b.folder, *MOONCAKE[0][1:])
        scale = self.round_robins_limit(label)
        names = [("fresh", ()), ("100 ms late", ("--stale", "100ms")), ("1 s late", ("--stale", "1s"))]
        cases = [("Mooncake, " + label, self.b.mooncake, fleet, ("--rate-scale", scale)),
                 ("Azure conversation, mixed fleet", self.b.trace(CONVERSATION), os.path.join(FLEETS, "mixed.yaml"), ())]
        asked = {(c[0], n): self.b.sim("queued_work", c[1], c[2], *c[3], *more) for c in cases for n, more in names}
        rows = []
        for case, _, _, _ in cases:
            p99 = [asked[case, n].result()["ttft_p99"] for n, _ in names]
            rows.append([case] + [s.text(3) for s in p99])
            self.bar(case, "p99 of the first token, 100 ms late / fresh", p99[1] / p99[0], 1.1)
            self.bar(case, "p99 of the first token, 1 s late / fresh", p99[2] / p99[0], 1.25)
        return rig.table(["first token, p99 s", *(n for n, _ in names)], rows)

    # --- others

    OTHERS = ["random", "round_robin", "least_request", "response_time", "peak_ewma", "prequal", "dynamo", "vllm",
              "queued_work"]

    def others(self):
        idle = os.path.join(self.b.folder, "idle.yaml")
        with open(idle, "w", encoding="ascii") as f:
            f.write("workers: [{gpu: a100, count: 400}]\n")
        conversation, code, jobs = "Azure conversation, mixed fleet", "Azure code, 8 x A100", "mixed10"
        cases = [(conversation, self.b.trace(CONVERSATION), os.path.join(FLEETS, "mixed.yaml")),
                 (code, self.b.trace(CODE), FLEET), (jobs, MIXED_JOBS, os.path.join(FLEETS, "mixed10.yaml"))]
        asked = {(c[0], p): self.b.sim(p, *c[1:]) for c in cases for p in self.OTHERS}
        told = {c[0]: self.b.sim("queued_work", *c[1:], "--oracle") for c in cases}
        servers = self.b.sim("least_request", self.b.trace(CODE), idle)
        m = {k: f.result() for k, f in asked.items()}
        m.update({(c, "told"): f.result() for c, f in told.items()})
        columns = [*self.OTHERS, "told"]
        rows = []
        for case, _, _ in cases:
            for metric in ("e2e_p95", "e2e_p99"):
                rows.append([case, metric[4:] + " s"] + [m[case, p][metric].text() for p in columns])
        rows.append([jobs, "busy, least"] + [m[jobs, p]["busy_min"].text() for p in columns])
        rows.append([jobs, "busy, most"] + [m[jobs, p]["busy_max"].text() for p in columns])
        rows.append([jobs, "busy, farthest from the mean"] + [m[jobs, p]["busy_away"].text() for p in columns])

        def ratio(case, policy, other, metric):
            return m[case, policy][metric] / m[case, other][metric]
        self.bar(conversation, "p95 / round_robin", ratio(conversation, "queued_work", "round_robin", "e2e_p95"), 0.6)
        self.bar(conversation, "p95 / least_request", ratio(conversation, "queued_work", "least_request", "e2e_p95"),
                 0.8)
        self.bar(conversation, "p99 of response_time / round_robin",
                 ratio(conversation, "response_time", "round_robin", "e2e_p99"), 0.6)
        self.bar(conversation, "requests failed for memory", m[conversation, "queued_work"]["memory_failures"], 0, 0)
        self.bar(code, "p99 / round_robin", ratio(code, "queued_work", "round_robin", "e2e_p99"), 0.6)
        bound = servers.result()["e2e_p99"] / m[code, "round_robin"]["e2e_p99"]
        self.bars.append([code, "the same of 400 idle servers: the bound", "", bound.text(), ""])
        self.bar(jobs, "busy, farthest from the mean", m[jobs, "queued_work"]["busy_away"], 0.1)
        self.bar(jobs, "p95 / round_robin", ratio(jobs, "queued_work", "round_robin", "e2e_p95"), 0.1)
        return rig.table(["case", "", *columns], rows)

    # --- tenants

    def two_tenants(self, concurrency, calm, flood, seed, *more):
        """A future of ten minutes of two tenants, each at its rate of requests a second: (answered/s, the calm one)."""
        workload = os.path.join(self.b.folder, f"tenants-{calm:g}-{flood:g}.yaml")
        fleet = os.path.join(self.b.folder, f"four-{concurrency}.yaml")
        texts = {workload: "duration: 10m\nstreams:\n" + "".join(
                     f"  - {{rate: {rate:g}, tenant: {name}, prompt: 200..2000, output: exp 200}}\n"
                     for name, rate in [("calm", calm), ("flood", flood)]),
                 fleet: f"workers: [{{gpu: a100, count: 4, max_concurrency: {concurrency}}}]\n"}
        for path, text in texts.items():
            if not os.path.exists(path):     # else a run may be reading it
                with open(path, "w", encoding="ascii") as f:
                    f.write(text)
        args = ("--trace", workload, "--fleet", fleet, "--policy", "queued_work", "--seed", seed, *more)

        def work():
            policy = json.loads(run(*args, "--json")[0])["policies"][0]
            return (policy["metrics"]["requests_per_s"]["mean"],
                    next(t for t in policy["tenants"] if t["tenant"] == "calm"))
        return self.b.ask(args, work)

    def tenants(self):
        """One tenant floods 10 x its fair share; the other's waits against those when both offer exactly their fair
        share: half of what the servers do when both flood, or `load` of that."""
        cases = [(16, 1.0, ()), (16, 0.9, ()), (32, 1.0, ()), (16, 1.0, ("--one-tenant",))]
        seeds = range(1, self.b.seeds + 1)
        most = [self.two_tenants(c, 40, 40, 1, *more) for c, _, more in cases]
        asked = []
        for (c, load, more), m in zip(cases, most):
            share = m.result()[0] * load / 2
            asked.append([[self.two_tenants(c, share, times * share, s, *more) for s in seeds] for times in (1, 10)])
        rows = []
        for (c, load, more), futures in zip(cases, asked):
            both, flooded = ([f.result()[1] for f in fs] for fs in futures)
            row = [c, "not told apart" if more else "fair", f"{load:g}"]
            for key, what in (("wait_p95", "queue wait"), ("e2e_p95", "end to end")):
                a, b = Seeds(t[key] for t in both), Seeds(t[key] for t in flooded)
                ratio = b.mean() / a.mean()
                row += [a.text(), b.text(), f"{ratio:.2f}"]
                if not more:
                    self.bars.append([f"two tenants, one floods 10 x; max_concurrency {c}, load {load:g}",
                                      f"the other's p95 {what} / both at their share, of the means", "<= 1.2",
                                      f"{ratio:.2f}", "met" if ratio <= 1.2 else "missed"])
            rows.append(row + [f"{sum(t['ok'] for t in flooded) / sum(t['requests'] for t in flooded):.1%}"])
        return rig.table(["max_concurrency", "tenants", "load", "wait p95, both fair, s", "flooded", "ratio",
                          "end to end p95, both fair, s", "flooded", "ratio", "answered"], rows)

    # --- targets

    def slo(self):
        """At, and above, the lowest rate at which queued_work's own goodput is below 90 %: with targets and without."""
        label, workers, blocks = MOONCAKE[0]
        fleet = mooncake_fleet(self.b.folder, workers, blocks)
        found = self.b.highest("queued_work", self.b.mooncake, fleet, self.near(workers))
        limit = sum(f.result()[1] for f in found) / len(found)
        scales = [(times, round(limit * times, 3)) for times in (1.0, 1.25, 1.5)]
        asked = {(scale, more): self.b.sim("queued_work", self.b.mooncake, fleet, "--rate-scale", scale, *more)
                 for _, scale in scales for more in ((), ("--slo",))}
        rows = []
        for times, scale in scales:
            without, told = (asked[scale, more].result() for more in ((), ("--slo",)))
            refused = Seeds(100 * r / n for r, n in zip(told["rejected"].values, told["requests"].values))
            rows.append([f"{times:g} x ({scale:g})", without["goodput"].text(3), told["goodput"].text(3),
                         without["goodput_per_s"].text(), told["goodput_per_s"].text(), refused.text(1),
                         without["ttft_p95"].text(1), told["ttft_p95"].text(1), without["tpot_p95"].text(0),
                         told["tpot_p95"].text(0)])
            self.bar(f"{label}, rate {scale:g}, with targets", "goodput without targets / with",
                     without["goodput"] / told["goodput"], 1)
        return rig.table(["rate", "goodput, no targets", "targets", "good requests/s, no targets", "targets",
                          "refused, %", "first token, p95 s, no targets", "targets", "a token, p95 ms, no targets",
                          "targets"], rows)

    def reached(self):
        return rig.table(["case", "what", "bar", "queued_work", ""], self.bars)

    def all(self):
        """In the order of work; `reached` is of the others, so it stands last."""
        tables = {"rates": self.rates}
        for i, (label, _, _) in enumerate(MOONCAKE):
            tables[f"limit-{i + 1}"] = lambda label=label: self.limit(label)
        return {**tables, "stale": self.stale, "others": self.others, "tenants": self.tenants, "slo": self.slo,
                "reached": self.reached}


MARK = re.compile(r"<!-- measured ([\w-]+) -->\n.*?<!-- end -->\n", re.DOTALL)


def write(path, names, jobs, seeds):
    with open(path, encoding="utf-8") as f:
        page = f.read()
    places = MARK.findall(page)
    with tempfile.TemporaryDirectory(prefix="weir-sim-") as folder:
        tables = Tables(Bench(folder, seeds, jobs)).all()
        missing = sorted(set(tables) - set(places) | set(names) - set(tables))
        if missing:
            sys.exit(f"{path}: no mark, or no table, of the name {', '.join(missing)}")
        made = {name: make() for name, make in tables.items() if not names or name in names}
    print(file=sys.stderr)
    page = MARK.sub(lambda m: f"<!-- measured {m[1]} -->\n{made[m[1]].rstrip()}\n<!-- end -->\n" if m[1] in made
                    else m[0], page)
    with open(path, "w", encoding="utf-8") as f:
        f.write(page)


# --------------------------------------------------------------------------------------- speed and theory

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
    ap.add_argument("--policies", default="round_robin,least_request,chain", help="whose speed")
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--write", metavar="PAGE", help="replace the measured tables of this page")
    ap.add_argument("--only", default="", help="of these names; `reached` is made of the others made beside it")
    ap.add_argument("--jobs", type=int, default=os.cpu_count(), help="simulations at a time")
    ap.add_argument("--seeds", type=int, default=5)
    opt = ap.parse_args()
    if opt.write:
        write(opt.write, [n for n in opt.only.split(",") if n], opt.jobs, opt.seeds)
        return
    print(f"{rig.machine()}\n")
    with tempfile.TemporaryDirectory(prefix="weir-sim-") as folder:
        speed(folder, opt.policies.split(","), opt.runs)
        print()
        theory(folder)


if __name__ == "__main__":
    main()
