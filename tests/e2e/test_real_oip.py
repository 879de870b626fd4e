# SPDX-License-Identifier: Apache-2.0
"""Real servers of the Open Inference Protocol that run on CPUs: Triton (the binary inside PyPI's nvidia-pytriton, with its
Python backend) and MLServer. Skipped with a clear line where the packages cannot be had."""
import glob
import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from weir_harness import ROOT, Http, Process, wait_until

pytestmark = pytest.mark.long

INFER = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1.5, 2.5]}]}

TRITON_MODEL = '''
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy())]) for r in requests]
'''

TRITON_CONFIG = '''
name: "echo"
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU } ]
dynamic_batching { priority_levels: 2 default_priority_level: 2 }
'''

MLSERVER_MODEL = '''
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Echo(MLModel):
    async def load(self):
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        i = payload.inputs[0]
        return InferenceResponse(model_name=self.name, model_version=self.version,
                                 outputs=[ResponseOutput(name="y", shape=i.shape, datatype=i.datatype, data=i.data)])
'''


def venv(name, *packages):
    """A folder under build/ with these packages, kept between runs."""
    folder = os.path.join(ROOT, "build", name)
    mark = os.path.join(folder, "complete")
    if not os.path.exists(mark):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        done = subprocess.run([os.path.join(folder, "bin", "python"), "-m", "pip", "install", "-q", *packages],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{packages[0]} cannot be installed from PyPI: {done.stderr.strip()[-200:]}")
        with open(mark, "w", encoding="ascii"):
            pass
    return folder


def free_ports(n):
    """Beside one another, as Triton's metrics are two above its API."""
    for _ in range(100):
        held = []
        try:
            held.append(socket.create_server(("127.0.0.1", 0)))
            first = held[0].getsockname()[1]
            for i in range(1, n):
                held.append(socket.create_server(("127.0.0.1", first + i)))
            return first
        except (OSError, OverflowError):
            continue
        finally:
            for s in held:
                s.close()
    raise AssertionError("no free ports")


class Server(Process):
    def __init__(self, argv, env, port):
        super().__init__(argv, env)
        self.url = f"http://127.0.0.1:{port}"
        self.api = Http(("127.0.0.1", port))

    def wait_ready(self):
        def ready():
            try:
                return self.api("GET", "/v2/health/ready").status == 200
            except OSError:
                self.api.close()
                assert self.running(), "the server has ended"
                return False
        wait_until(ready, "the server to be ready", 180)

    def stop(self, **_):
        self.api.close()
        self.kill()
        self.wait()


@pytest.fixture
def triton(keeper, tmp_path):
    packages = glob.glob(os.path.join(venv("triton-venv", "nvidia-pytriton==0.7.0"), "lib", "python3*", "site-packages"))[0]
    home = os.path.join(packages, "pytriton", "tritonserver")
    stub = os.path.join(home, "python_backend_stubs", "%d.%d" % sys.version_info[:2], "triton_python_backend_stub")
    if not os.path.exists(stub):
        pytest.skip("nvidia-pytriton has no Python backend for this Python")
    # Its Python backend looks for what it needs beside itself.
    backend = tmp_path / "backends" / "python"
    shutil.copytree(os.path.join(home, "backends", "python"), backend)
    shutil.copy(stub, backend)
    for name in ("numpy", "numpy.libs"):
        os.symlink(os.path.join(packages, name), backend / name)
    model = tmp_path / "models" / "echo"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(TRITON_CONFIG, encoding="ascii")
    (model / "1" / "model.py").write_text(TRITON_MODEL, encoding="ascii")
    port = free_ports(3)
    server = keeper.add(Server(
        [os.path.join(home, "bin", "tritonserver"), f"--model-repository={tmp_path / 'models'}",
         f"--backend-directory={tmp_path / 'backends'}", "--http-address=127.0.0.1", f"--http-port={port}",
         "--allow-grpc=false", "--metrics-address=127.0.0.1", f"--metrics-port={port + 2}",
         "--disable-auto-complete-config", "--model-control-mode=explicit", "--load-model=echo"],
        {"LD_LIBRARY_PATH": os.path.join(packages, "nvidia_pytriton.libs")}, port))
    server.wait_ready()
    return server


@pytest.fixture
def mlserver(keeper, tmp_path):
    folder = venv("mlserver-venv", "mlserver==1.7.1")
    port = free_ports(3)
    (tmp_path / "settings.json").write_text(json.dumps(
        {"host": "127.0.0.1", "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2, "parallel_workers": 0,
         "debug": False}), encoding="ascii")
    (tmp_path / "model-settings.json").write_text(json.dumps(
        {"name": "echo", "implementation": "weir_echo.Echo", "parameters": {"version": "1"}}), encoding="ascii")
    (tmp_path / "weir_echo.py").write_text(MLSERVER_MODEL, encoding="ascii")
    server = keeper.add(Server([os.path.join(folder, "bin", "mlserver"), "start", str(tmp_path)],
                               {"PYTHONPATH": str(tmp_path)}, port))
    server.wait_ready()
    return server


@pytest.fixture
def gateway(start_weir):
    def start(server):
        return start_weir({"health": {"interval": "200ms", "scrape_interval": "100ms", "timeout": "10s"},
                           "discovery": [{"type": "static", "endpoints": [{"url": server.url}]}]})
    return start


def models(weir):
    return [m["id"] for m in weir.http("GET", "/v1/models").json()["data"]]


def serves(weir, server, kind):
    """Found out, up, listed, and asked for by name and version; what it unloads is not offered, until it is loaded again."""
    wait_until(lambda: models(weir) == ["echo"], "its model to be listed")
    weir.wait_line(rf"info probe: {server.url} is {kind}$")
    wait_until(lambda: weir.http("POST", "/v2/models/echo/infer", INFER).status == 200, "a first answer")
    r = weir.http("POST", "/v2/models/echo/versions/1/infer", INFER)
    assert r.status == 200 and r.json()["outputs"][0]["data"] == [1.5, 2.5], r.body
    assert weir.http("POST", "/v2/models/echo/versions/9/infer", INFER).status in (404, 503)
    assert weir.http("POST", "/v2/models/nobody/infer", INFER).error() == (404, "model_not_found")
    assert weir.http("POST", "/v2/models/echo/infer", {"inputs": "no"}).status in (400, 422, 500)   # Triton's is 500
    assert weir.up(server) == 1
    r = server.api("POST", "/v2/repository/models/echo/unload", {})
    assert r.status == 200, r.body
    wait_until(lambda: models(weir) == [], "its model to be gone", 60)
    assert weir.http("POST", "/v2/models/echo/infer", INFER).status == 503
    assert server.api("POST", "/v2/repository/models/echo/load", {}).status == 200
    wait_until(lambda: models(weir) == ["echo"], "its model to be back", 60)
    wait_until(lambda: weir.http("POST", "/v2/models/echo/infer", INFER).status == 200, "an answer again")


def test_triton(triton, gateway):
    weir = gateway(triton)
    serves(weir, triton, "triton")
    # Its numbers come from two ports above, and a priority from the body.
    wait_until(lambda: weir.metrics().sum("weir_endpoint_waiting") == 0, "its queue to be known")
    assert weir.http("POST", "/v2/models/echo/infer", {**INFER, "parameters": {"priority": 1}}).status == 200


def test_mlserver(mlserver, gateway):
    serves(gateway(mlserver), mlserver, "oip")
