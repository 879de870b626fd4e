# SPDX-License-Identifier: Apache-2.0
"""The command line, the ready line, the signals, the metrics page."""
import os
import re
import shutil
import signal
import subprocess

import pytest

import weir_harness as h


@pytest.mark.parametrize("args", [("--help",), ("serve", "--help"), ("worker", "--help"), ("check", "--help")])
def test_help_is_an_answer_not_an_error(args):
    rc, out, err = h.run_weir(*args)
    assert rc == 0 and err == ""
    assert "usage" in out.lower()
    assert max(map(len, out.splitlines())) <= 120


def test_help_names_every_command_and_flag_of_the_contract():
    top = h.run_weir("--help")[1]
    assert all(re.search(rf"\b{c}\b", top) for c in ("serve", "worker", "check"))
    serve = h.run_weir("serve", "--help")[1]
    for flag in ("--config", "--host", "--port", "--admin-port", "--registry-port", "--threads", "--worker-urls",
                 "--policy", "--log-level"):
        assert flag in serve, flag
    worker = h.run_weir("worker", "--help")[1]
    for flag in ("--port", "--gpu", "--model", "--time-scale", "--fault", "--registry", "--service", "--report"):
        assert flag in worker, flag


def test_version():
    rc, out, _ = h.run_weir("--version")
    assert rc == 0 and re.fullmatch(r"weir \d+\.\d+\.\d+\S*\n", out)


@pytest.mark.parametrize("args, word", [((), "serve"), (("sevre",), "serve"), (("serve", "--prot", "1"), "--port"),
                                        (("serve", "--port"), "--port"), (("serve", "--port", "x"), "--port"),
                                        (("serve", "--port", "70000"), "--port"),
                                        (("serve", "--threads", "-1"), "--threads"),
                                        (("serve", "--policy", "best"), "best"),
                                        (("serve", "stray"), "stray"),
                                        (("serve", "--worker-urls", "gpu1"), "gpu1"),
                                        (("worker", "--gpu", "voodoo2"), "voodoo2"),
                                        (("check",), "file")])
def test_mistakes_are_named_and_end_with_2(args, word):
    rc, out, err = h.run_weir(*args)
    assert rc == 2, (rc, out, err)
    assert out == "" and word in err


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.sanitize
@pytest.mark.race
def test_ready_is_one_line_and_signals_end_it(start_weir, sig):
    weir = start_weir()
    assert [line for line in weir.lines if line.startswith("ready")] == [
        "ready data=127.0.0.1:%d admin=127.0.0.1:%d registry=127.0.0.1:%d nacos_grpc=127.0.0.1:%d" % (
            weir.data[1], weir.admin[1], weir.registry[1], weir.registry[1] + 1000)]
    for path in ("/health", "/liveness", "/readiness"):
        assert weir.http("GET", path).status in (200, 503)
    assert weir.http("GET", "/health").status == 200
    weir.stop(sig)


def test_without_a_registry(start_weir, upstream):
    up = upstream(name="u")
    weir = start_weir(args=["--registry-port", "off", "--worker-urls", up.url])
    assert weir.registry is None
    h.wait_until(lambda: weir.chat().status == 200, "the model to be probed")


def test_worker_urls_and_policy(start_weir, upstream):
    ups = [upstream(name=f"e{i}") for i in range(2)]
    weir = start_weir(args=["--policy", "round_robin", "--worker-urls", *(u.url for u in ups)])
    for u in ups:
        weir.wait_up(u)
    h.wait_until(lambda: {weir.chat().header("x-worker") for _ in range(2)} == {"e0", "e1"}, "both models to be probed")
    first, second = (weir.chat().header("x-worker") for _ in range(2))
    got = [weir.chat().header("x-worker") for _ in range(10)]
    assert got == [first, second] * 5


def test_worker_registers_itself_and_reports(start_weir, start_worker):
    weir = start_weir()
    registry = "http://%s:%d" % weir.registry
    worker = start_worker("--registry", registry, "--service", "demo", "--report", "50ms", gpu="t4", model="llama")
    h.wait_until(lambda: weir.chat("llama", max_tokens=1).status == 200, "the worker to be known")
    listed = weir.registry_http("GET", "/v1/endpoints?service=demo").json()
    assert worker.url.split("//")[1] in str(listed)
    h.wait_until(lambda: weir.metrics().all("weir_endpoint_gpu_util_percent"), "a load report to be seen")
    worker.stop()
    h.wait_until(lambda: weir.chat("llama").error() == (503, "no_endpoint"), "the worker to leave when it ends")


@pytest.mark.sanitize
def test_promtool_finds_nothing_to_say(weir, upstream):
    """Every family has help, type and a sound name, after every kind of outcome."""
    if not shutil.which("promtool"):
        pytest.fail("promtool is missing; tools/deps.sh test brings it")
    weir.register(upstream(name="u"), devices=[{"type": "A100", "memory_total_bytes": 80 << 30}])
    weir.load("u", 1, gpu_util_percent=50, memory_free_bytes=1 << 30, running=1, waiting=0)
    weir.register(upstream(name="v"))
    weir.load("v", 1, batch=4, running=9)
    h.wait_until(lambda: weir.metrics().value("weir_batch_size", model="m") == 2.5, "both reports to count")
    weir.deregister("v")
    weir.chat()
    weir.chat("unknown")
    page = weir.admin_http("GET", "/metrics")
    assert page.status == 200 and page.header("content-type").startswith("text/plain; version=0.0.4")
    done = subprocess.run(["promtool", "check", "metrics"], input=page.body, capture_output=True, timeout=h.PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    h.wait_until(lambda: (m := weir.metrics()).sum("weir_requests_total") == 2 and
                 m.sum("weir_rejections_total", code="model_not_found") == 1, "both to be counted")
    m = weir.metrics()
    assert m.sum("weir_requests_total", outcome="ok", model="m") == 1
    assert m.sum("weir_request_duration_seconds_count") >= 1
    for name in ("weir_inflight", "weir_endpoint_up", "weir_endpoints", "weir_build_info"):
        assert m.all(name), name


# What alerts and dashboards rely on.
FAMILIES = {
    "requests_total": "counter", "rejections_total": "counter", "request_duration_seconds": "histogram",
    "first_byte_seconds": "histogram", "queue_seconds": "histogram", "compute_seconds": "histogram",
    "decision_seconds": "histogram", "candidates_fit_ratio": "gauge", "inflight": "gauge", "queue_length": "gauge",
    "endpoint_up": "gauge", "endpoint_gpu_util_percent": "gauge", "endpoint_memory_free_bytes": "gauge",
    "endpoint_memory_total_bytes": "gauge", "endpoint_membw_util_percent": "gauge", "endpoint_sm_active_percent": "gauge",
    "endpoint_running": "gauge", "endpoint_waiting": "gauge", "endpoint_kv_used_ratio": "gauge",
    "endpoint_report_age_seconds": "gauge", "registry_update_delay_seconds": "gauge", "endpoints": "gauge",
    "batch_size": "gauge", "retries_total": "counter", "config_reloads_total": "counter", "build_info": "gauge"}


def test_every_promised_family_is_there_and_every_family_is_documented(weir, upstream):
    weir.register(upstream(name="u"), devices=[{"type": "A100", "memory_total_bytes": 80 << 30}])
    weir.load("u", 1, gpu_util_percent=50, membw_util_percent=40, sm_active_percent=30, memory_free_bytes=1 << 30, running=1,
              waiting=2, kv_capacity_tokens=1000, kv_used_tokens=250)
    weir.chat()
    m = weir.metrics()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", m.text, re.M))
    assert {n: types.get(f"weir_{n}") for n in FAMILIES} == FAMILIES
    labels = {"endpoint": "u", "model": "m", "gpu": "A100"}
    for name, value in (("gpu_util_percent", 50), ("membw_util_percent", 40), ("sm_active_percent", 30), ("running", 1),
                        ("memory_free_bytes", 1 << 30), ("memory_total_bytes", 80 << 30), ("waiting", 2),
                        ("kv_used_ratio", 0.25), ("up", 1)):
        assert m.all(f"weir_endpoint_{name}") == [(labels, value)], name
    with open(os.path.join(h.ROOT, "docs", "admin.md"), encoding="utf-8") as f:
        text = f.read()
    for name in types:
        short = name.removeprefix("weir_endpoint")
        assert f"`{name}" in text or f"`{short}`" in text, f"{name} is not in docs/admin.md"


def test_worker_metrics_have_vllm_names_and_pass_promtool(start_worker):
    worker = start_worker("--time-scale", "1000")
    r = worker.http("POST", "/v1/chat/completions", {"model": "m", "max_tokens": 3,
                                                     "messages": [{"role": "user", "content": "hi"}]})
    assert r.status == 200

    def over():
        page = worker.http("GET", "/metrics").body
        return page if h.Metrics(page.decode()).sum("vllm:num_requests_running") == 0 else None
    page = h.wait_until(over, "the request to be over")
    m = h.Metrics(page.decode())
    assert m.sum("vllm:generation_tokens_total") == 3
    for name in ("vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"):
        assert m.all(name), name
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=h.PATIENCE)
    # vLLM's names have a colon, which promtool frowns upon; it must find no other fault
    faults = [line for line in (done.stdout + done.stderr).decode().splitlines()
              if not line.endswith("metric names should not contain ':'")]
    assert not faults, faults
