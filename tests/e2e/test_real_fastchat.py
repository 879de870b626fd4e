# SPDX-License-Identifier: Apache-2.0
"""The real FastChat from PyPI: its base model worker (around a model that says what it was asked) and its API server,
with Weir in the place of its controller. Needs no torch; skipped with a clear line where the packages cannot be had."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from weir_harness import ROOT, Http, Process, free_port, wait_until

pytestmark = pytest.mark.long

PACKAGES = ["fastapi==0.99.1", "pydantic==1.10.27", "uvicorn", "requests", "aiohttp", "httpx", "shortuuid", "tiktoken",
            "numpy"]
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def python():
    """An interpreter that has fschat; kept in build/ between runs."""
    venv = os.path.join(ROOT, "build", "fastchat-venv")
    binary = os.path.join(venv, "bin", "python")
    mark = os.path.join(venv, "complete")
    if not os.path.exists(mark):
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        for more in (["--no-deps", "fschat==0.2.36"], PACKAGES):
            done = subprocess.run([binary, "-m", "pip", "install", "-q", *more], capture_output=True, text=True)
            if done.returncode:
                pytest.skip("fschat 0.2.36 cannot be installed from PyPI: " + done.stderr.strip()[-200:])
        open(mark, "w").close()
    return binary


class Cwd(Process):
    """In a folder of its own: FastChat writes its log files where it runs."""

    def __init__(self, argv, keeper):
        self.dir = tempfile.TemporaryDirectory(prefix="weir-fastchat-")
        super().__init__(["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.dir.name, *argv])
        keeper.add(self)

    def stop(self, **_):
        self.kill()
        self.wait()
        self.dir.cleanup()


def worker(python, keeper, weir, models, template):
    return Cwd([python, os.path.join(HERE, "fastchat_worker.py"), "http://%s:%d" % weir.registry, free_port(), models,
                template], keeper)


@pytest.fixture
def fleet(python, start_weir, keeper):
    weir = start_weir({"health": {"interval": "200ms", "scrape_interval": "100ms", "timeout": "10s"}})
    for _ in range(3):
        worker(python, keeper, weir, "vicuna-7b", "vicuna_v1.1")
    controller = Http(weir.registry)
    wait_until(lambda: controller("POST", "/worker_get_status", b"").json()["speed"] == 3, "three workers", 180)
    wait_until(lambda: weir.http("POST", "/v1/completions", {"prompt": "warm"}).status == 200, "a first answer", 60)
    yield weir
    controller.close()


def test_three_workers_and_a_chat_without_a_model(fleet):
    for _ in range(6):
        r = fleet.http("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello there"}]})
        assert r.status == 200, r.body
        said = r.json()["choices"][0]
        assert said["finish_reason"] == "stop"
        assert said["message"]["content"].endswith("questions. USER: Hello there ASSISTANT:")
        assert r.json()["usage"]["total_tokens"] == 30
    r = fleet.http("POST", "/v1/embeddings", {"input": [str(n) for n in range(6)]})
    assert [d["embedding"] for d in r.json()["data"]] == [[1, 2]] * 6
    assert r.json()["usage"] == {"prompt_tokens": 4, "total_tokens": 4}        # it tells 2 for a batch
    r = fleet.http("POST", "/v1/chat/completions",
                   {"stream": True, "messages": [{"role": "user", "content": "Hello there"}]})
    events = r.body.decode().split("\n\n")
    told = [json.loads(e[6:]) for e in events[:-2]]
    assert events[-2] == "data: [DONE]"
    assert "".join(t["choices"][0]["delta"].get("content", "") for t in told) == said["message"]["content"]
    bad = fleet.http("POST", "/v1/completions", {"prompt": "FAIL"})
    assert bad.error() == (503, "cuda_out_of_memory")


def test_its_api_server_runs_unchanged(python, fleet, keeper):
    port = free_port()
    Cwd([python, "-m", "fastchat.serve.openai_api_server", "--port", port, "--controller-address",
         "http://%s:%d" % fleet.registry], keeper)
    api = Http(("127.0.0.1", port))

    def up():
        try:
            return api("GET", "/v1/models").status == 200
        except OSError:
            api.close()
            return False
    wait_until(up, "FastChat's API server", 180)
    assert [m["id"] for m in api("GET", "/v1/models").json()["data"]] == ["vicuna-7b"]
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Tell me"}]
    body = {"model": "vicuna-7b", "messages": messages, "max_tokens": 5}
    theirs = api("POST", "/v1/chat/completions", body)
    ours = fleet.http("POST", "/v1/chat/completions", body)
    assert theirs.status == ours.status == 200, (theirs.body, ours.body)
    assert ours.json()["choices"] == theirs.json()["choices"] and ours.json()["usage"] == theirs.json()["usage"]
    stream = api("POST", "/v1/chat/completions", {**body, "stream": True}).body.decode()
    assert stream.rstrip().endswith("data: [DONE]") and '"finish_reason": "stop"' in stream
    assert api("POST", "/v1/completions", {"model": "vicuna-7b", "prompt": "x y"}).json()["choices"][0]["text"] \
        == "[vicuna-7b:16]x y"
    assert api("POST", "/v1/embeddings", {"model": "vicuna-7b", "input": "x"}).json()["data"][0]["embedding"] == [1, 2]
    api.close()


TEMPLATES = """
import json, sys
from fastchat.conversation import conv_templates
seen = {}
for name, conv in conv_templates.items():
    if conv.sep_style is None:      # of remote APIs: no prompt is made
        continue
    seen.setdefault(int(conv.sep_style), []).append(name)
out = []
for style, names in sorted(seen.items()):
    for name in names[:2]:
        for system in (None, "Be kind {x}."):
            conv = conv_templates[name].copy()
            told = {"name": conv.name, "system_template": conv.system_template, "system_message": conv.system_message,
                    "roles": list(conv.roles), "messages": [list(m) for m in conv.messages], "offset": conv.offset,
                    "sep_style": style, "sep": conv.sep, "sep2": conv.sep2, "stop_str": conv.stop_str,
                    "stop_token_ids": conv.stop_token_ids}
            if system is not None:
                conv.set_system_message(system)
            messages = [{"role": "system", "content": system}] if system is not None else []
            for i, text in enumerate(("one\\r\\n\\r\\ntwo", " ok ", "three")):
                conv.append_message(conv.roles[i % 2], text)
                messages.append({"role": ("user", "assistant")[i % 2], "content": text})
            conv.append_message(conv.roles[1], None)
            out.append([name, told, messages, conv.get_prompt()])
print(json.dumps(out))
"""


def test_prompts_are_those_of_its_own_templates(python, start_weir, keeper):
    """Two templates of every style that it uses, with and without a system message of the client's."""
    import engine_doubles as d
    done = subprocess.run([python, "-c", TEMPLATES], capture_output=True, text=True, check=True,
                          cwd=keeper.add(Folder()).name)
    cases = json.loads(done.stdout.splitlines()[-1])
    assert len({c[1]["sep_style"] for c in cases}) >= 17, "styles of the release"
    weir = start_weir({"health": {"interval": "200ms", "scrape_interval": "off"}})
    controller = Http(weir.registry)
    for n, (name, conv, messages, prompt) in enumerate(cases):
        model = f"m{n}"
        engine = keeper.add(d.FastChat((model,), conv=conv, context=None))
        assert controller("POST", "/register_worker", {
            "worker_name": engine.url, "check_heart_beat": True,
            "worker_status": {"model_names": [model], "speed": 1, "queue_length": 0}}).status == 200
        wait_until(lambda: weir.http("POST", "/v1/chat/completions", {"model": model, "messages": messages}).status == 200,
                   f"an answer of {name}", 30)
        assert engine.generated()[-1]["prompt"] == prompt, name
    controller.close()


class Folder(tempfile.TemporaryDirectory):
    def stop(self, **_):
        self.cleanup()
