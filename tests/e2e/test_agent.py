# SPDX-License-Identifier: Apache-2.0
"""`weir agent`: against a scripted engine, a scripted NVML of our own, and registries of both kinds."""
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import agent_util as u
import engine_doubles as d
import tls_util
import weir_harness as h


@pytest.fixture
def engine(keeper):
    return keeper.add(u.Engine())


@pytest.fixture
def registry(keeper):
    return keeper.add(u.Registry())


@pytest.fixture
def gpus(keeper):
    return lambda text: keeper.add(u.Gpus(text))


@pytest.fixture
def agent(keeper):
    return lambda *args, **kw: keeper.add(u.Agent(*args, **kw))


def loads(registry):
    return [b for m, p, b in registry.calls if p.endswith("/load")]


# ------------------------------------------------------------------------------------ what is told to Weir


@pytest.mark.sanitize
@pytest.mark.race
def test_every_field_is_reported_exactly(agent, engine, registry, gpus):
    g = gpus("count 1\n" + u.one_gpu(0, more="0 gpm 1\n0 sm 71.25\n0 dram 33.5\n0 engine 80\n"))
    agent(registry.url, engine.url, "--id", "w1", "--model-version", "3", "--metadata", "rack=7", "--label", "tier=gold",
          "--weight", "2.5", "--zone", "z1", "--max-concurrency", "64", gpus=g, interval="120ms")
    body = registry.wait(lambda m, p, b: m == "PUT" and "membw_basis" in b.get("metadata", {}), "a registration")[2]
    assert body["epoch"] > 10 ** 18
    registry.wait_load(sm_active_percent=71.25)
    # GPM has its first result after the second sample; then the registration says what membw_util stands on.
    body = registry.wait(lambda m, p, b: m == "PUT" and b["metadata"].get("membw_basis") == "dram_bandwidth"
                         and b.keys() >= {"models", "engine", "devices"}, "GPM")[2]
    assert {k: v for k, v in body.items() if k != "epoch"} == {
        "id": "w1", "service": "llm", "url": "http://10.0.0.5:8000",
        "models": [{"id": "m", "version": "3", "max_model_len": 8192}],
        "devices": [{"uuid": "GPU-0000", "type": "H100", "memory_total_bytes": 85899345920}],
        "weight": 2.5, "engine": "vllm", "max_concurrency": 64, "zone": "z1", "ttl_ms": 5000,
        "metadata": {"rack": "7", "membw_basis": "dram_bandwidth"}, "labels": {"tier": "gold"}}
    load = registry.wait_load(sm_active_percent=71.25, running=3)
    assert {k: v for k, v in load.items() if k not in ("epoch", "seq", "tokens_per_s")} == {
        "interval_ms": 120, "gpu_util_percent": 37, "membw_util_percent": 33.5, "sm_active_percent": 71.25,
        "memory_free_bytes": 21474836480, "memory_total_bytes": 85899345920, "kv_capacity_tokens": 16000,
        "kv_used_tokens": 4000, "running": 3, "waiting": 2, "state": "healthy"}
    assert load["epoch"] == body["epoch"]


@pytest.mark.sanitize
def test_epoch_and_sequence_rise_and_the_end_comes_in_order(agent, engine, registry):
    a = agent(registry.url, engine.url, "--ttl", "1s", "--gpus", "none")
    registry.wait(lambda m, p, b: p.endswith("/renew"), "a renewal")
    registry.wait(lambda m, p, b: p.endswith("/load") and b["seq"] >= 3, "three reports")
    assert a.stop() == 0
    seqs = [b["seq"] for b in loads(registry)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len({b["epoch"] for b in loads(registry)}) == 1
    methods = [(m, p.rsplit("/", 1)[-1]) for m, p, _ in registry.calls]
    assert methods[0] == ("PUT", "10.0.0.5:8000")
    assert methods[-1] == ("DELETE", "10.0.0.5:8000")
    assert methods.count(methods[-1]) == 1


def test_by_default_it_reports_every_500_ms(agent, engine, registry):
    agent(registry.url, engine.url, "--gpus", "none", interval=None)
    assert registry.wait_registered()["ttl_ms"] == 5000
    assert registry.wait_load(seq=3)["interval_ms"] == 500


def test_it_registers_once_the_engine_is_healthy(agent, engine, registry):
    engine.health = 503
    a = agent(registry.url, engine.url, "--gpus", "none")
    a.wait_line("engine (loading|not answering)")
    engine.wait(lambda m, p, b: p == "/health" and len([c for c in engine.calls if c[1] == "/health"]) >= 4, "checks")
    assert registry.calls == []
    engine.health = 200
    registry.wait_registered(models=[{"id": "m", "max_model_len": 8192}])
    # Later it is told, not deregistered.
    engine.health = 500
    registry.wait_load(state="unhealthy")
    registry.forget()
    engine.health = 200
    registry.wait_load(state="healthy", running=3)
    assert not [c for c in registry.calls if c[0] == "DELETE"]


def test_several_models_and_loras_are_told_apart_and_followed(agent, engine, registry):
    engine.models = [{"id": "base", "max_model_len": 4096}, {"id": "sql", "parent": "base", "max_model_len": 4096}]
    agent(registry.url, engine.url, "--gpus", "none")
    registry.wait_registered(models=[{"id": "base", "max_model_len": 4096},
                                     {"id": "sql", "lora_base": "base", "max_model_len": 4096}])
    engine.models = [{"id": "base", "max_model_len": 4096}, {"id": "law", "parent": "base", "max_model_len": 4096}]
    registry.wait_registered(models=[{"id": "base", "max_model_len": 4096},
                                     {"id": "law", "lora_base": "base", "max_model_len": 4096}])


@pytest.mark.sanitize
def test_an_engine_that_was_restarted_behind_the_agent_is_a_new_epoch(agent, engine, registry):
    def restarted(by):
        """Later reports, once the other start time has been told."""
        engine.started += by
        engine.forget()
        engine.wait(lambda m, p, b: len([c for c in engine.calls if c[1] == "/metrics"]) >= 3, "looks at it")
        registry.forget()
        registry.wait(lambda m, p, b: len(loads(registry)) >= 3, "three reports")
        return {b["epoch"] for b in loads(registry)}
    a = agent(registry.url, engine.url, "--gpus", "none")
    first = registry.wait_registered()["epoch"]
    registry.wait_load(running=3)
    assert restarted(1) == {first}      # a clock that was adjusted
    registry.forget()
    engine.started += 60
    second = registry.wait_registered()["epoch"]
    assert second > first
    registry.wait_load(epoch=second)    # none of the old one is on its way, then
    assert restarted(-30) == {second}   # another process behind the same address: not a later one
    seqs = [b["seq"] for b in loads(registry)]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    assert a.stop() == 0
    assert registry.calls[-1][0] == "DELETE"


def test_models_can_be_named(agent, engine, registry):
    agent(registry.url, engine.url, "--gpus", "none", "--model", "m", "--model", "other")
    registry.wait_registered(models=[{"id": "m", "max_model_len": 8192}, {"id": "other"}])


def test_a_registry_that_forgot_us_hears_of_us_again(agent, engine, registry):
    agent(registry.url, engine.url, "--gpus", "none")
    registry.wait_load(running=3)
    with registry.cond:
        registry.known.clear()
        registry.calls.clear()
    registry.wait_registered()
    registry.wait_load(running=3)


def test_a_registry_that_does_not_answer_in_time(agent, engine):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        a = agent("http://127.0.0.1:%d" % silent.getsockname()[1], engine.url, "--gpus", "none", "--timeout", "200ms")
        a.wait_line("registration failed: .*time")
        assert a.stop() == 0
        a.wait_line("deregistration failed: .*time")


# --------------------------------------------------------------------------------------------- devices


def test_tensor_parallel_memory_is_the_least_times_the_number(agent, engine, registry, gpus):
    g = gpus("count 3\n" + u.one_gpu(0, free=10 << 30, util=20) + u.one_gpu(1, free=8 << 30, util=90) + u.one_gpu(2))
    agent(registry.url, engine.url, "--gpus", "0,GPU-0001", gpus=g)
    load = registry.wait_load(gpu_util_percent=90)
    assert load["memory_free_bytes"] == 2 * (8 << 30)
    assert load["memory_total_bytes"] == 2 * 85899345920
    assert load["membw_util_percent"] == 12
    assert [d["uuid"] for d in registry.wait_registered("devices")["devices"]] == ["GPU-0000", "GPU-0001"]


def test_engines_on_one_device_say_so(agent, registry, gpus, keeper):
    g = gpus("count 1\n" + u.one_gpu(0))
    for port in (8000, 8001):
        engine = keeper.add(u.Engine(models=[f"m{port}"]))
        agent(registry.url, engine.url, advertise=f"10.0.0.5:{port}", gpus=g)
        body = registry.wait(lambda m, p, b: m == "PUT" and p.endswith(str(port)) and b.keys() >= {"devices", "models"},
                             "a registration")[2]
        assert [d["uuid"] for d in body["devices"]] == ["GPU-0000"]
        assert body["models"][0]["id"] == f"m{port}"


def test_cuda_visible_devices_is_respected_unless_gpus_is_given(agent, engine, registry, gpus):
    g = gpus("count 2\n" + u.one_gpu(0) + u.one_gpu(1))
    a = agent(registry.url, engine.url, gpus=g, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert [d["uuid"] for d in registry.wait_registered("devices")["devices"]] == ["GPU-0001"]
    a.stop()
    registry.forget()
    agent(registry.url, engine.url, "--gpus", "0", gpus=g, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert [d["uuid"] for d in registry.wait_registered("devices")["devices"]] == ["GPU-0000"]


@pytest.mark.sanitize
@pytest.mark.race
def test_a_device_that_vanishes_makes_the_endpoint_unhealthy(agent, engine, registry, gpus):
    world = "count 1\n" + u.one_gpu(0)
    g = gpus(world)
    a = agent(registry.url, engine.url, gpus=g)
    registry.wait_load(gpu_util_percent=37, running=3, state="healthy")
    registry.forget()
    g.write(world + "0 handle !15\n")
    load = registry.wait_load(state="unhealthy")
    assert "memory_free_bytes" not in load and "gpu_util_percent" not in load
    assert load["running"] == 3
    a.wait_line("GPU-0000 is lost")


def test_a_driver_that_hangs_stops_neither_reports_nor_the_end(agent, engine, registry, gpus):
    world = "count 1\n" + u.one_gpu(0)
    g = gpus(world)
    a = agent(registry.url, engine.url, gpus=g)
    registry.wait_load(gpu_util_percent=37, running=3)
    g.write(world + "0 power hang\n")
    load = registry.wait(lambda m, p, b: p.endswith("/load") and "gpu_util_percent" not in b and "running" in b
                         and b["seq"] > 5, "a report without the devices")[2]
    assert load["state"] == "healthy" and load["running"] == 3
    a.stop()
    assert "the driver does not answer" in a.output
    assert registry.calls[-1][0] == "DELETE"


def test_a_driver_that_hangs_from_the_start_does_not_keep_the_engine_out(agent, engine, registry, gpus):
    """The devices are waited for, so that the first registration has them, but not for ever."""
    g = gpus("count 1\n" + u.one_gpu(0) + "0 free hang\n")
    agent(registry.url, engine.url, gpus=g)
    assert "devices" not in registry.wait_registered()
    assert len([c for c in engine.calls if c[1] == "/health"]) >= 5
    assert "memory_free_bytes" not in registry.wait_load(running=3)


def test_an_old_driver_gives_what_it_has(agent, engine, registry, gpus):
    g = gpus("count 1\n" + u.one_gpu(0, more="0 gpm 1\n0 sm 50\n0 dram 50\n"))
    agent(registry.url, engine.url, gpus=g, nvml=u.NVML_OLD)
    load = registry.wait_load(gpu_util_percent=37)
    assert load["membw_util_percent"] == 12 and "sm_active_percent" not in load


def test_the_library_is_found_by_its_name(engine, registry, gpus, keeper):
    """The way of the real one: dlopen by name."""
    g = gpus("count 1\n" + u.one_gpu(0))
    rc, out, _ = h.run_weir("agent", "--devices", env={**g.env(), "LD_LIBRARY_PATH": os.path.dirname(u.NVML)})
    assert rc == 0
    assert out == ('0 uuid=GPU-0000 type=H100 name="NVIDIA H100 80GB HBM3" memory_total_bytes=85899345920 '
                   'memory_free_bytes=21474836480 gpu_util_percent=37.00 memory_busy_percent=12.00 '
                   'power_watts=300.000\n')


def test_no_gpu_is_said_once(agent, engine, registry):
    a = agent(registry.url, engine.url, nvml="/nonexistent/libnvidia-ml.so.1")
    load = registry.wait_load(running=3)
    assert not [k for k in load if "gpu" in k or "memory" in k]
    a.wait_line("no NVIDIA devices are read")
    assert a.output.count("no NVIDIA devices are read") == 1


def test_amd_cards_are_read_from_sysfs(engine, registry, keeper, tmp_path):
    card = tmp_path / "class" / "drm" / "card1" / "device"
    card.mkdir(parents=True)
    for name, text in [("vendor", "0x1002"), ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0"),
                       ("unique_id", "aa55"), ("product_name", "AMD Instinct MI300X"),
                       ("mem_info_vram_total", "1000"), ("mem_info_vram_used", "400"), ("gpu_busy_percent", "55"),
                       ("mem_busy_percent", "9")]:
        (card / name).write_text(text + "\n")
    keeper.add(u.Agent(registry.url, engine.url, "--sysfs-root", str(tmp_path)))
    load = registry.wait_load(gpu_util_percent=55)
    assert load["memory_free_bytes"] == 600 and load["membw_util_percent"] == 9
    assert registry.wait_registered("devices")["devices"] == [{"uuid": "AMD-aa55", "type": "MI300X", "memory_total_bytes": 1000}]


# ------------------------------------------------------------------------------------- the command it starts

# A child that tells what happens to it, and lives until it is told to end.
CHILD = """
import os, signal, sys, time
def say(*words):
    print("child", *words, flush=True)
def on(sig, _):
    say("got", signal.Signals(sig).name)
    if sig == signal.SIGTERM and sys.argv[1] != "stubborn":
        os._exit(int(sys.argv[1]))
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(s, on)
say("runs", os.getpid() == os.getpgid(0), len(os.listdir("/proc/self/fd")) - 1,
    len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
while True:
    time.sleep(3600)
"""


def child(what):
    return (sys.executable, "-c", CHILD, what)


@pytest.mark.sanitize
def test_signals_are_passed_on_and_the_exit_status_is_the_childs(agent, engine, registry):
    engine.running = engine.waiting = 0
    a = agent(registry.url, engine.url, "--gpus", "none", command=child("7"))
    a.wait_line("^child runs True 3 0$")        # own group, stdio alone, no signal blocked
    registry.wait_registered()
    for name in ("HUP", "USR1", "USR2"):
        a.kill(getattr(signal, "SIG" + name))
        a.wait_line(f"^child got SIG{name}$")
    a.kill(signal.SIGTERM)
    a.wait_line("^child got SIGTERM$")
    assert registry.calls[-1][0] == "DELETE"    # first
    assert a.wait() == 7


def test_it_drains_before_the_child_ends(agent, engine, registry):
    a = agent(registry.url, engine.url, "--gpus", "none", command=child("0"))
    a.wait_line("^child runs")
    registry.wait_registered()
    a.kill(signal.SIGTERM)
    registry.wait(lambda m, p, b: m == "DELETE", "the deregistration")
    engine.forget()
    engine.wait(lambda m, p, b: len([c for c in engine.calls if c[1] == "/metrics"]) > 25, "scrapes")
    assert a.running() and "child got" not in a.output      # 3 requests are running
    engine.running = engine.waiting = 0
    a.wait_line("^child got SIGTERM$")
    assert a.wait() == 0


def test_the_drain_and_the_childs_patience_have_an_end(agent, engine, registry):
    a = agent(registry.url, engine.url, "--gpus", "none", "--drain", "100ms", "--kill-after", "200ms",
              command=child("stubborn"))
    a.wait_line("^child runs")
    registry.wait_registered()
    a.kill(signal.SIGTERM)
    a.wait_line("drain time is over")
    a.wait_line("killed")               # whether or not it found the time to say that it had been asked to end
    assert a.wait() == 128 + signal.SIGKILL


def test_a_second_signal_skips_the_drain(agent, engine, registry):
    a = agent(registry.url, engine.url, "--gpus", "none", command=child("5"))
    a.wait_line("^child runs")
    registry.wait_registered()
    a.kill(signal.SIGTERM)
    registry.wait(lambda m, p, b: m == "DELETE", "the deregistration")
    a.wait_line("deregistered")
    a.kill(signal.SIGTERM)
    assert a.wait() == 5


def test_a_child_that_dies_is_deregistered_and_not_restarted(agent, engine, registry):
    a = agent(registry.url, engine.url, "--gpus", "none", command=child("3"))
    a.wait_line("^child runs")
    registry.wait_registered()
    pid = int(open(f"/proc/{a.pid}/task/{a.pid}/children", encoding="ascii").read().split()[0])
    os.kill(pid, signal.SIGKILL)
    assert a.wait() == 128 + signal.SIGKILL
    assert registry.calls[-1][0] == "DELETE"
    assert a.output.count("child runs") == 1


def test_what_the_child_started_goes_with_it(agent, engine, registry):
    script = "sleep 3600 & echo grandchild $!; exec sleep 3600"
    a = agent(registry.url, engine.url, "--gpus", "none", command=("sh", "-c", script))
    pid = int(a.wait_line(r"^grandchild (\d+)$").group(1))
    engine.running = engine.waiting = 0
    a.kill(signal.SIGTERM)
    assert a.wait() == 128 + signal.SIGTERM

    def gone():
        try:
            return open(f"/proc/{pid}/stat", encoding="ascii").read().split()[2] == "Z"
        except OSError:
            return True
    h.wait_until(gone, "the grandchild's end")


def test_the_child_does_not_outlive_a_killed_agent(engine, registry):
    a = u.Agent(registry.url, engine.url, "--gpus", "none", command=child("0"))
    a.wait_line("child runs")
    a.kill(signal.SIGKILL)
    a.wait_line("^child got SIGTERM$")
    a.wait()


@pytest.mark.parametrize("command, status", [("/nonexistent/engine", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_started(registry, command, status):
    rc, _, err = h.run_weir("agent", "--registry", registry.url, "--advertise", "10.0.0.5:1", "--gpus", "none", "--", command)
    assert rc == status
    assert err.startswith(f"weir agent: cannot start {command}: ")
    assert registry.calls == []


# --------------------------------------------------------------------------------------------------- Nacos


@pytest.mark.sanitize
@pytest.mark.parametrize("version", [2, 3])
def test_nacos_is_registered_beaten_updated_and_left(agent, engine, gpus, keeper, version):
    n = keeper.add(u.Nacos(version))
    a = agent(n.url + "?namespace=prod&group=ai&cluster=c1", engine.url, "--metadata", "rack=7",
              gpus=gpus("count 1\n" + u.one_gpu(0, free=3 << 29)))
    call = n.wait(lambda m, p, b: m == "POST" and "gpu_util" in b.get("metadata", ""), "a registration")[2]
    metadata = json.loads(call["metadata"])
    assert {k: v for k, v in call.items() if k != "metadata"} == {"serviceName": "llm", "ip": "10.0.0.5", "port": "8000", "clusterName": "c1", "groupName": "ai",
                    "namespaceId": "prod", "ephemeral": "true", "weight": "1", "enabled": "true"}
    h.wait_until(lambda: n.metadata(8000) == {
        "registered_by": "weir-agent", "health_status": "healthy", "remaining_memory": "1.5", "gpu_util": "37",
        "current_requests": "3", "queue_length": "2", "model_id": "m", "max_model_len": "8192", "gpu_type": "H100",
        "engine": "vllm", "rack": "7", "membw_basis": "time_busy"}, f"the metadata; {metadata}")
    n.wait(lambda m, p, b: p.endswith("/beat"), "a beat")
    # No news, no registration, also after three more beats. (News may be that the double did not answer for a second.)
    n.wait(lambda m, p, b: len([c for c in n.calls if c[1].endswith("/beat")]) >= 4, "beats")
    with n.cond:
        told = [p["metadata"] for m, _, p in n.calls if m == "POST"]
    assert all(one != next for one, next in zip(told, told[1:]))
    engine.running = 9
    h.wait_until(lambda: n.metadata(8000).get("current_requests") == "9", "the update")
    # Lost beats: registered again.
    with n.cond:
        n.hosts.clear()
    h.wait_until(lambda: n.metadata(8000), "the registration to come back")
    engine.health = 500
    h.wait_until(lambda: n.metadata(8000)["health_status"] == "unhealthy", "unhealthy")
    assert list(n.hosts.values())[0]["enabled"] == "false"
    a.stop()
    assert n.hosts == {} and n.calls[-1][0] == "DELETE"
    assert n.refused == []          # nothing that a default 3.x refuses was tried


def test_an_instance_of_someone_else_is_never_touched(agent, engine, keeper):
    n = keeper.add(u.Nacos())
    n.put("10.0.0.5", 8000, owner="the app")
    n.put("10.0.0.6", 8000, owner="another machine")
    a = agent(n.url, engine.url, "--gpus", "none")
    a.wait_line("10.0.0.5:8000 is registered by someone else")
    n.wait(lambda m, p, b: len([c for c in n.calls if c[1].endswith("/list")]) >= 2, "another look")
    assert {m for m, _, _ in n.calls} == {"GET"}
    assert n.metadata(8000) == {"owner": "the app"}
    a.stop()
    assert {m for m, _, _ in n.calls} == {"GET"}     # nor deregistered
    # Free again, it is taken; and what an agent left behind is its own.
    with n.cond:
        n.hosts.clear()
    n.put("10.0.0.5", 8000, registered_by="weir-agent", health_status="busy")
    agent(n.url, engine.url, "--gpus", "none")
    h.wait_until(lambda: (n.metadata(8000) or {}).get("health_status") == "healthy", "the takeover")


def test_nacos_login_and_a_token_that_is_no_more(agent, engine, keeper):
    n = keeper.add(u.Nacos(password="s3cret"))
    a = agent(n.url, engine.url, "--gpus", "none",
              env={"WEIR_NACOS_USERNAME": "nacos", "WEIR_NACOS_PASSWORD": "s3cret"})
    h.wait_until(lambda: n.metadata(8000), "the registration")
    with n.cond:
        n.tokens += 1           # the server was restarted: it knows no token of before
    h.wait_until(lambda: n.tokens >= 3, "a new login")
    engine.running = 11
    h.wait_until(lambda: n.metadata(8000).get("current_requests") == "11", "an update with the new token")
    assert "s3cret" not in a.output
    a.stop()
    assert n.hosts == {}


def test_metadata_stays_within_what_nacos_takes(agent, engine, keeper):
    n = keeper.add(u.Nacos())
    a = agent(n.url, engine.url, "--gpus", "none", "--metadata", "a=" + "x" * 900, "--metadata", "b=" + "y" * 400)
    h.wait_until(lambda: n.metadata(8000), "the registration")
    assert "b" not in n.metadata(8000) and n.metadata(8000)["model_id"] == "m"
    a.wait_line("metadata keys find no room")


# ---------------------------------------------------------------------------------------- the whole of it


@pytest.mark.sanitize
def test_with_weir_itself_both_ways(agent, start_weir, start_worker):
    """An emulated engine with its agent, in Weir's registry by the native API and by Nacos' at once."""
    w = start_weir()
    engine = start_worker("--time-scale", "200")
    at = engine.url.split("//", 1)[1]
    agent("http://%s:%d" % w.registry, engine.url, "--gpus", "none", "--ttl", "1h", advertise=at)
    h.wait_until(lambda: w.metrics().all("weir_endpoint_up") and w.metrics().sum("weir_endpoint_up") == 1, "it to be up")
    assert w.chat().status == 200
    second = start_worker("--time-scale", "200")
    agent("nacos://%s:%d" % w.registry, second.url, "--gpus", "none", advertise=second.url.split("//", 1)[1])
    h.wait_until(lambda: w.metrics().sum("weir_endpoint_up") == 2, "the second to be up")


def test_the_engine_as_a_command(agent, start_weir):
    """`weir agent -- weir worker`: up, used, drained, gone."""
    w = start_weir()
    port = h.free_port()
    a = agent("http://%s:%d" % w.registry, None, "--gpus", "none", "--ttl", "1h", advertise=f"127.0.0.1:{port}",
              command=(h.BIN, "worker", "--port", port, "--model", "m", "--time-scale", "200"))
    h.wait_until(lambda: w.metrics().sum("weir_endpoint_up") == 1, "it to be up")
    assert w.chat().status == 200
    a.kill(signal.SIGTERM)
    assert a.wait() == 0
    h.wait_until(lambda: not w.metrics().all("weir_endpoint_up"), "it to be gone")


# --------------------------------------------------------------------------------------------- bad input

GOOD = ("--registry", "http://127.0.0.1:1", "--advertise", "10.0.0.5:8000", "--gpus", "none")


@pytest.mark.parametrize("args, words", [
    ((), "--registry is needed"),
    (("--registry", "http://127.0.0.1:1"), "--advertise is needed"),
    (("--advertise", "10.0.0.5"), '--advertise: "10.0.0.5" is not HOST:PORT'),
    (("--advertise", "0.0.0.0:8000"), "is not an address that others can reach"),
    ((*GOOD, "--registry", "ftp://x"), '--registry: "ftp://x" is no URL'),
    ((*GOOD, "--registry", "nacos://h:8848?tenant=x"), "is no URL"),
    ((*GOOD, "--registry", "nacos://h:8848?cluster=a_b"), "is no URL"),
    ((*GOOD, "--engine", "vlm"), '--engine: "vlm" is not auto'),
    ((*GOOD, "--engine-url", "127.0.0.1:8000"), '--engine-url: "127.0.0.1:8000" is not a URL'),
    ((*GOOD, "--interval", "5"), '--interval: "5" is not a duration'),
    ((*GOOD, "--interval", "1ms"), "is not 10ms or more"),
    ((*GOOD, "--timeout", "1ms"), "is not 10ms or more"),
    ((*GOOD, "--weight", "-1"), "is not a number from 0 to 10000"),
    ((*GOOD, "--metadata", "x"), "is not KEY=VALUE"),
    ((*GOOD, "--token", "s3cret"), "--token: not env:NAME or file:PATH"),
    ((*GOOD, "--token", "env:WEIR_TWO_LINES"), "is not a token of one line"),
    ((*GOOD, "--token", "env:WEIR_BLANK"), "is not a token of one line"),
    ((*GOOD, "--registry", "http://me:s3cret@h:8848"), "--registry: not a URL without user name"),
    ((*GOOD, "--engine-url", "http://me:s3cret@h:8000"), "--engine-url: not a URL without user name"),
    ((*GOOD, "--id", b"\xff"), "UTF-8"),
    ((*GOOD, "--model", b"\xff"), "UTF-8"),
    ((*GOOD, "--metadata", b"k=\xff"), "UTF-8"),
    ((*GOOD, "--gpus", "x"), '--gpus x: "x" is neither'),
    ((*GOOD, "--gpus", "0,9", "--nvml", "/nonexistent", "--sysfs-root", "/nonexistent"), '--gpus 0,9: "0" is no device'),
    ((*GOOD, "--frobnicate", "1"), "unknown argument --frobnicate"),
    ((*GOOD, "--gpus"), "--gpus needs a value"),
    ((*GOOD, "--"), "a command is needed"),
])
def test_bad_input_is_said_clearly(args, words):
    done = subprocess.run([h.BIN, "agent", *args], capture_output=True, stdin=subprocess.DEVNULL, timeout=h.PATIENCE,
                          env={**os.environ, "WEIR_TWO_LINES": "s3cret\r\nX-More: 1", "WEIR_BLANK": "\n"})
    err = done.stderr.decode(errors="replace")
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in err
    assert "s3cret" not in err


def test_help_names_every_option():
    rc, out, err = h.run_weir("agent", "--help")
    assert (rc, err) == (0, "")
    for flag in ("--registry", "--service", "--advertise", "--engine", "--engine-url", "--gpus", "--interval", "--model"):
        assert flag in out


# --------------------------------------------------------------------------------- GPUs from an exporter, and TLS


PAGE = "".join(f"{name}{{gpu=\"{i}\",UUID=\"GPU-{i:04}\",modelName=\"NVIDIA L4\",Hostname=\"h\"}} {value}\n"
               for i in range(2) for name, value in (
                   ("DCGM_FI_DEV_GPU_UTIL", 10 + i), ("DCGM_FI_DEV_FB_FREE", 1024 * (i + 1)),
                   ("DCGM_FI_DEV_FB_USED", 1024), ("DCGM_FI_PROF_SM_ACTIVE", 0.5)))


@pytest.mark.sanitize
def test_gpus_come_from_an_exporter(agent, keeper, engine, registry):
    dcgm = keeper.add(d.Engine({"/metrics": (200, PAGE)}, name="dcgm"))
    agent(registry.url, engine.url, "--dcgm", dcgm.url + "/metrics", "--gpus", "1")
    body = registry.wait(lambda m, p, b: m == "PUT" and b.get("devices"), "a registration with devices")[2]
    assert body["devices"] == [{"uuid": "GPU-0001", "type": "L4", "memory_total_bytes": 3 << 30}]
    load = registry.wait_load(gpu_util_percent=11, running=3)
    assert load["memory_free_bytes"] == 2 << 30 and load["sm_active_percent"] == 50


def test_devices_of_an_exporter_are_printed(keeper):
    dcgm = keeper.add(d.Engine({"/metrics": (200, PAGE)}, name="dcgm"))
    rc, out, err = h.run_weir("agent", "--devices", "--gpus", "all", "--dcgm", dcgm.url + "/metrics")
    assert (rc, err) == (0, "") and [line.split()[1] for line in out.splitlines()] == ["uuid=GPU-0000", "uuid=GPU-0001"]
    dcgm.pages["/metrics"] = (404, "")
    rc, out, err = h.run_weir("agent", "--devices", "--gpus", "all", "--dcgm", dcgm.url + "/metrics")
    assert rc == 1 and "status 404" in err


@pytest.mark.parametrize("args, said", [(("--dcgm", "h:9400"), "--dcgm"), (("--ca", "/nonexistent.pem"), "/nonexistent.pem"),
                                        (("--cert", "/dev/null"), "--key is needed")])
def test_wrong_words_about_exporters_and_certificates(args, said):
    rc, out, err = h.run_weir("agent", "--registry", "http://127.0.0.1:1", "--advertise", "10.0.0.5:8000", *args)
    assert rc == 2 and out == "" and said in err


@pytest.mark.sanitize
def test_a_registry_of_ones_own_authority(agent, keeper, engine, registry):
    """--ca, --cert and --key count for the registry; without them its certificate is nobody's."""
    pki = keeper.add(tls_util.Authority())
    registry.speak_tls(*pki.make("registry", "IP:127.0.0.1"), pki.ca)
    cert, key = pki.make("agent")
    agent(registry.url, engine.url, "--ca", pki.ca, "--cert", cert, "--key", key)
    assert registry.wait_registered()["url"] == "http://10.0.0.5:8000"
    registry.wait_load(running=3)
