# SPDX-License-Identifier: Apache-2.0
"""Engines that answer the questions of gateway and agent with what no engine should: too much, too slowly, for ever, or
nonsense. None of it may cost more than that engine's own numbers."""
import json
import threading
import time

import pytest

import agent_util as u
import engine_doubles as d
import weir_harness as h
from test_engines import FAST, gauge, gateway, models, wait_gauge, wait_models, wait_serving  # noqa: F401

pytestmark = pytest.mark.sanitize

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


def endless(piece, pause=0.0):
    """A body without an end; fast, or a byte now and then."""
    def page(conn):
        try:
            conn.sock.sendall(HEAD + b"\r\n")
            while True:
                conn.sock.sendall(piece)
                if pause:
                    time.sleep(pause)
        except OSError:
            conn.upstream.given_up.set()
    return page


def endless_head(conn):
    try:
        conn.sock.sendall(HEAD)
        while True:
            conn.sock.sendall(b"X-Pad: " + b"a" * 1000 + b"\r\n")
    except OSError:
        conn.upstream.given_up.set()


def raw(data):
    def page(conn):
        conn.sock.sendall(data)
        conn.hang_up()
    return page


def rss_mib(weir):
    """Resident memory; 0 under a sanitizer, which keeps what was freed."""
    if h.SLOW > 1:
        return 0
    with open(f"/proc/{weir.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) // 1024


LINE = b"vllm:num_requests_running 1\n"

NUMBERS = {
    "endless": endless(LINE * 1000),
    "endless-line": endless(b"a" * 65536),
    "drip": endless(b"v", 0.01),
    "endless-head": endless_head,
    "too-long": (200, LINE * (9 * 1024 * 1024 // len(LINE))),
    "not-utf8": (200, b"\xff\xfe\x00\x80{\"\xc3\x28\"} 1\n" * 50),
    "cut-off": raw(HEAD + b"Content-Length: 1000\r\n\r\nvllm:num_requests_running 1"),
    "no-http": raw(b"\x16\x03\x01\x00garbage\r\n\r\n"),
    "labels-open": (200, b"vllm:num_requests_running{a=\"" + b"\\" * 100000),
    "nan": (200, "vllm:num_requests_running NaN\nvllm:num_requests_waiting -Inf\nvllm:kv_cache_usage_perc NaN\n"),
    "negative": (200, "vllm:num_requests_running -1\nvllm:num_requests_waiting -1e308\nvllm:kv_cache_usage_perc -0.5\n"),
    "huge": (200, "vllm:num_requests_running 1e308\nvllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc 1e308\n"
                  'vllm:cache_config_info{block_size="1e300",num_gpu_blocks="1e300"} 1\n'
                  "process_start_time_seconds 1e308\n"),
}


def hasty(weir):
    """From now on what hangs is given up soon; who answers late because the machine is slow is not taken out for it."""
    with open(weir.config_path, encoding="utf-8") as f:
        config = json.load(f)
    config["health"].update(timeout="300ms", down_after=100)
    assert weir.admin_http("POST", "/api/v1/config/apply", json.dumps(config)).status == 200


@pytest.mark.parametrize("what", sorted(NUMBERS))
def test_numbers_that_are_none(gateway, what):
    bad, good = d.vllm(), d.vllm()
    bad.given_up = threading.Event()
    bad.pages["/metrics"] = (200, "") if what == "drip" else NUMBERS[what]
    weir = gateway(bad, good)
    wait_gauge(weir, "weir_endpoint_running", good, 0)
    wait_serving(weir, bad, good)
    if what == "drip":                  # the only one that hangs
        hasty(weir)
        bad.pages["/metrics"] = NUMBERS[what]
    before = rss_mib(weir)
    bad.wait_asked("/metrics", 4)
    good.wait_asked("/metrics", 10)
    h.wait_until(lambda: gauge(weir, "weir_endpoint_running", bad) is None, "its numbers to be none")
    assert gauge(weir, "weir_endpoint_up", bad) == 1
    assert [weir.chat().status for _ in range(5)] == [200] * 5
    assert rss_mib(weir) - before < 64
    if what.startswith("endless") or what == "drip":
        assert bad.given_up.wait(h.PATIENCE)


def test_numbers_at_the_edge_are_held_within_bounds(gateway):
    """As large as is taken at all: nothing overflows, and who seems full is asked last."""
    bad, good = d.vllm(), d.vllm()
    bad.pages["/metrics"] = (200, "vllm:num_requests_running 1e18\nvllm:num_requests_waiting 1e18\n"
                                  "vllm:kv_cache_usage_perc 1e18\n"
                                  'vllm:cache_config_info{block_size="1e9",num_gpu_blocks="1e9"} 1\n')
    weir = gateway(bad, good, health={"scrape_interval": "10m"})       # the first look counts for three of them
    wait_gauge(weir, "weir_endpoint_running", bad, 4294967295)
    wait_gauge(weir, "weir_endpoint_kv_used_ratio", bad, 1)
    wait_serving(weir, good)
    before = bad.hits()
    assert [weir.chat().status for _ in range(10)] == [200] * 10
    assert bad.hits() == before


LISTS = {
    "endless": endless(b'{"data":[' + b'{"id":"x"},' * 1000),
    "drip": endless(b" ", 0.01),
    "too-long": (200, b'{"data":[' + b'{"id":"x"},' * 900000 + b'{"id":"y"}]}'),
    "deep": (200, b'{"data":' + b"[" * 100000),
    "not-utf8": (200, b'{"data":[{"id":"\xff\xfe"}]}'),
    "html": (200, "<html><body>hello</body></html>"),
    "redirect": raw(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/v1/models\r\nContent-Length: 0\r\n\r\n"),
    "empty-names": (200, {"data": [{"id": ""}, {}, {"id": None}, {"id": []}, 7, "x"]}),
}


@pytest.mark.parametrize("what", sorted(LISTS))
def test_model_lists_that_are_none(gateway, what):
    """The neighbour's model stays, and the engine with the bad list serves on what it had before."""
    bad, good = d.vllm(models=("bad",)), d.vllm(models=("good",))
    bad.given_up = threading.Event()
    weir = gateway(bad, good)
    wait_models(weir, "bad", "good")
    if what == "drip":
        hasty(weir)
    bad.pages["/v1/models"] = LISTS[what]
    bad.wait_asked("/v1/models", 3)
    assert "good" in models(weir) and "bad" in models(weir)
    assert weir.chat("good").status == 200
    assert weir.chat("bad").status == 200


def test_ten_thousand_models_are_cut_and_said(gateway):
    bad = d.vllm(models=tuple(f"model-{i}" for i in range(10000)))
    bad.pages["/v1/models"][1]["data"].insert(0, {"id": "a" * 513, "owned_by": "vllm"})
    weir = gateway(bad)
    h.wait_until(lambda: len(models(weir)) == 256, "the list")
    weir.wait_line(r"lists \d+ models too many")
    assert weir.chat("model-0").status == 200
    assert weir.chat("model-9999").error() == (404, "model_not_found")


def test_a_redirect_is_not_followed(gateway):
    """An engine sends its checks somewhere else: nobody goes there."""
    target, bad, good = d.vllm(), d.vllm(), d.vllm()
    away = raw(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: %s/health\r\nContent-Length: 0\r\n\r\n" % target.url.encode())
    bad.pages = {p: away for p in ("/health", "/metrics", "/v1/models")}
    weir = gateway(bad, good)
    wait_serving(weir, good)
    bad.wait_asked("/health", 4)
    h.wait_until(lambda: gauge(weir, "weir_endpoint_up", bad) == 0, "a redirect to count as a failed check")
    assert target.probes == []
    target.stop()


@pytest.mark.parametrize("what", ["endless", "drip", "huge", "not-utf8"])
def test_the_agent_goes_on(keeper, what):
    engine = keeper.add(d.vllm())
    registry = keeper.add(u.Registry())
    engine.given_up = threading.Event()
    patience = ["--timeout", "1s"] if what == "drip" else []        # where it is to be overrun
    agent = keeper.add(u.Agent(registry.url, engine.url, "--gpus", "none", *patience))
    registry.wait_load(running=0)
    engine.pages["/metrics"] = NUMBERS[what]
    h.wait_until(lambda: engine.asked("/metrics") > 2 and "running" not in registry.calls[-1][2], "numbers to be gone")
    registry.forget()
    load = registry.wait(lambda m, p, b: p.endswith("/load") and b["state"] == "healthy" and "running" not in b, "a report")
    assert "kv_used_tokens" not in load[2]
    assert rss_mib(agent) < 64
    engine.pages["/metrics"] = d.vllm(running=4).pages["/metrics"]
    registry.wait_load(running=4)
    assert agent.stop() == 0
    assert registry.calls[-1][0] == "DELETE"
