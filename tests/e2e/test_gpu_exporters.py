# SPDX-License-Identifier: Apache-2.0
"""GPUs that an exporter on the host tells of, where no agent can run. Pages in the shape of NVIDIA's dcgm-exporter."""
import pytest

import engine_doubles as d
from weir_harness import wait_until

POLICY = "chain"

pytestmark = pytest.mark.sanitize

FAST = {"interval": "60ms", "scrape_interval": "50ms"}
GIB = 1 << 30


def gpu(index, util, free_gib, used_gib, uuid=None, more=""):
    labels = (f'gpu="{index}",UUID="{uuid or f"GPU-{index}{index}{index}{index}"}",pci_bus_id="00000000:0{index}:00.0",'
              f'device="nvidia{index}",modelName="NVIDIA A100-SXM4-80GB",Hostname="node-1"{more}')
    return (f"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
            f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {util}\n"
            f"DCGM_FI_DEV_FB_FREE{{{labels}}} {free_gib * 1024}\nDCGM_FI_DEV_FB_USED{{{labels}}} {used_gib * 1024}\n"
            f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.5\nDCGM_FI_PROF_DRAM_ACTIVE{{{labels}}} 0.25\n")


def exporter(*gpus):
    return d.Engine({"/metrics": (200, "".join(gpus))}, name="dcgm")


def port(engine):
    return engine.url.rsplit(":", 1)[1]


def shown(weir, engine):
    found = [e for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"] if e["url"] == engine.url]
    return found[0] if found else {}


def sample(weir, engine):
    return shown(weir, engine).get("sample", {})


@pytest.fixture
def host(start_weir, keeper):
    """host(interval, health): (weir, engines on GPU 0 and GPU 1 of one host, their exporter)."""
    def start(interval, **health):
        small, large, dcgm = d.llamacpp(), d.llamacpp(), exporter(gpu(0, 37, 4, 76), gpu(1, 5, 60, 20))
        for e in (small, large, dcgm):
            keeper.add(e)
        weir = start_weir({"health": {**FAST, **health}, "discovery": [{"type": "static", "endpoints": [
            {"url": small.url, "labels": {"gpus": "0"}}, {"url": large.url, "labels": {"gpus": "GPU-1111"}}]}],
            "gpu_exporters": {"urls": [f"http://{{host}}:{port(dcgm)}/metrics"], "interval": interval, "timeout": "4m"}})
        wait_until(lambda: shown(weir, large).get("gpu_type") == shown(weir, small).get("gpu_type") == "A100",
                   "types to be known")
        return weir, small, large, dcgm
    return start


@pytest.mark.race
def test_an_exporter_stands_in_for_agents(host):
    """Two engines on one host with two GPUs: utilization, memory and type of each one's own; a request goes where its
    memory is free."""
    weir, small, large, _ = host("10m", scrape_interval="10m")
    wait_until(lambda: all("gpu_util_percent" in sample(weir, e) for e in (small, large)), "the numbers of both")
    told = sample(weir, small)
    assert told["gpu_util_percent"] == 37 and told["sm_active_percent"] == 50 and told["membw_util_percent"] == 25
    assert told["memory_free_bytes"] == 4 * GIB and told["memory_total_bytes"] == 80 * GIB
    assert sample(weir, large)["gpu_util_percent"] == 5
    assert shown(weir, small)["memory_total_bytes"] == 80 * GIB
    weir.wait_up(small), weir.wait_up(large)
    wait_until(lambda: weir.chat().status == 200, "a first answer")
    counts = small.hits(), large.hits()
    for _ in range(6):
        assert weir.chat(headers={"X-Required-Memory": "8"}).status == 200
    assert (small.hits(), large.hits()) == (counts[0], counts[1] + 6)
    # Above every total: refused at once, by what the exporter told.
    assert weir.chat(headers={"X-Required-Memory": "81"}).json()["error"]["code"] == "exceeds_fleet_memory"


def test_an_exporter_that_fails_takes_its_word_back(host):
    """And nobody is down for that; later pages count again."""
    weir, small, large, dcgm = host("100ms")
    weir.wait_up(small), weir.wait_up(large)
    dcgm.pages["/metrics"] = (500, "no")
    wait_until(lambda: "gpu_util_percent" not in sample(weir, small), "the numbers to be gone")
    wait_until(lambda: weir.chat(headers={"X-Required-Memory": "8"}).status == 200, "an answer")
    assert weir.up(small) == weir.up(large) == 1
    dcgm.pages["/metrics"] = (200, gpu(0, 1, 70, 10) + gpu(1, 1, 2, 78))
    wait_until(lambda: sample(weir, large).get("memory_free_bytes") == 2 * GIB, "the new numbers")
    wait_until(lambda: sample(weir, small).get("memory_free_bytes") == 70 * GIB, "the new numbers")


def test_pods_and_registered_devices_find_their_gpus(start_weir, keeper):
    """A fixed URL: a Kubernetes pod by the exporter's labels, a registered device by its UUID, and one that nobody can
    place is left as it is."""
    pod, device, stray = d.llamacpp(), d.llamacpp(), d.llamacpp()
    dcgm = exporter(gpu(0, 11, 10, 70, more=',namespace="ml",pod="llm-0",container="c"'), gpu(1, 22, 20, 60),
                    gpu(2, 33, 30, 50, uuid="GPU-beef"))
    for e in (pod, device, stray, dcgm):
        keeper.add(e)
    weir = start_weir({"health": FAST, "gpu_exporters": {"urls": [f"{dcgm.url}/metrics"], "interval": "100ms",
                                                         "timeout": "4m"}})
    weir.register(pod, id="p", metadata={"pod": "llm-0", "namespace": "ml"}, wait=False)
    weir.register(device, id="d", devices=[{"uuid": "GPU-beef"}], wait=False)
    weir.register(stray, id="s", wait=False)
    wait_until(lambda: sample(weir, pod).get("gpu_util_percent") == 11, "numbers of the pod's GPU")
    wait_until(lambda: sample(weir, device).get("gpu_util_percent") == 33, "numbers of the registered GPU")
    wait_until(lambda: sample(weir, pod).get("memory_free_bytes") == 10 * GIB, "the memory of the pod's GPU")
    wait_until(lambda: shown(weir, pod).get("gpu_type") == "A100", "the type of the pod's GPU")
    assert "gpu_util_percent" not in sample(weir, stray) and "gpu_type" not in shown(weir, stray)

