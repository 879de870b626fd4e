# SPDX-License-Identifier: Apache-2.0
"""Today's Nacos SDKs, unchanged, against the embedded registry: they speak gRPC on its port + 1000."""
import os
import queue
import shutil
import subprocess
import threading

import pytest

import weir_harness as h

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build")
PYTHON = os.environ.get("WEIR_NACOS_PYTHON", os.path.join(BUILD, "venv-nacos", "bin", "python"))
JAVA_LIBS = os.environ.get("WEIR_NACOS_JAVA", os.path.join(BUILD, "nacos-java"))
JAVA = ("2.3.2", "3.0.3")
GO = os.environ.get("WEIR_NACOS_GO", os.path.join(BUILD, "go", "nacos"))


class Sdk:
    """One client program: a word in, lines out; events are kept apart."""

    def __init__(self, argv, cwd):
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                      text=True, cwd=cwd, env={**os.environ, "HOME": cwd})
        self.lines, self.events, self.cond = queue.Queue(), [], threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.word("ready").startswith("ready UP")

    def _read(self):
        for line in self.child.stdout:
            line = line.rstrip("\n")
            if line.startswith("event "):
                with self.cond:
                    self.events.append(line[6:])
                    self.cond.notify_all()
            elif line.split(" ")[0] in ("ready", "done", "list", "services", "config", "error", "bye", "unknown"):
                self.lines.put(line)
        self.lines.put("(end)")

    def word(self, start):
        line = self.lines.get(timeout=6 * h.PATIENCE)
        assert line.startswith(start), line
        return line

    def __call__(self, words, start="done"):
        self.child.stdin.write(words + "\n")
        self.child.stdin.flush()
        return self.word(start)

    def heard(self, what):
        with self.cond:
            assert self.cond.wait_for(lambda: what in self.events, 6 * h.PATIENCE), (what, self.events)

    def stop(self):
        self.child.kill()
        self.child.wait()


def python_sdk(weir, cwd, *more):
    if not os.access(PYTHON, os.X_OK):
        pytest.skip(f"{PYTHON} is not there: tools/deps.sh test makes it")
    return Sdk([PYTHON, os.path.join(HERE, "nacos3_client.py"), "%s:%d" % weir.registry, *more], cwd)


def java_sdk(version):
    def start(weir, cwd, *more):
        libs = os.path.join(JAVA_LIBS, version)
        if not shutil.which("javac") or not os.path.isdir(libs):
            pytest.skip(f"no javac, or no {libs}: tools/deps.sh java makes it")
        subprocess.run(["javac", "-proc:none", "-cp", libs + "/*", "-d", cwd,
                        os.path.join(HERE, "java", "NacosSdk.java")], check=True, timeout=300)
        return Sdk(["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", f"-DJM.LOG.PATH={cwd}", f"-Duser.home={cwd}", "-cp",
                    f"{libs}/*:{cwd}", "NacosSdk", "%s:%d" % weir.registry, *more], cwd)
    return start


def go_sdk(weir, cwd, *more):
    if not os.access(GO, os.X_OK):
        pytest.skip(f"{GO} is not there: tools/deps.sh go builds it, where there is a Go toolchain")
    return Sdk([GO, "%s:%d" % weir.registry, *more], cwd)


SDKS = [pytest.param(python_sdk, id="python-3.2.0"), pytest.param(go_sdk, id="go-2.3.5", marks=pytest.mark.long),
        *[pytest.param(java_sdk(v), id=f"java-{v}", marks=pytest.mark.long) for v in JAVA]]


@pytest.fixture(params=SDKS)
def sdk(request, keeper, tmp_path):
    return lambda weir, *more: keeper.add(request.param(weir, str(tmp_path), *more))


def by_hand(weir, method, service, port, **more):
    query = "&".join(f"{k}={v}" for k, v in {"serviceName": service, "ip": "127.0.0.1", "port": port, **more}.items())
    assert weir.registry_http(method, f"/nacos/v1/ns/instance?{query}").status == 200


def test_register_subscribe_push_deregister(start_weir, upstream, sdk):
    a, b = upstream(name="a"), upstream(name="b")
    weir = start_weir({"health": {"interval": "50ms", "timeout": "4m", "down_after": 1, "up_after": 1}})
    client = sdk(weir)
    client(f"register llm {a.port} m")
    weir.wait_up(a)
    assert weir.chat("m").header("x-worker") == "a"             # usable with no further ado
    one = f"127.0.0.1:{a.port} 2.0 true {{model_id=m}}"
    client("subscribe llm")
    client.heard(f"[{one}]")
    # Nobody beats for it: its lease is a long one.
    lasting = "preserved.heart.beat.timeout=3600000", "preserved.ip.delete.timeout=3600000"
    by_hand(weir, "POST", "llm", b.port, metadata=",".join(["model_id=m", *lasting]))
    two = sorted([one, f"127.0.0.1:{b.port} 1.0 true {{{', '.join(['model_id=m', *lasting])}}}"])
    client.heard("[" + ", ".join(two) + "]")
    assert client("list llm", "list") == "list [" + ", ".join(two) + "]"
    assert client("services", "services") == "services [llm]"
    client(f"deregister llm {a.port}")
    weir.wait_gone(a)
    client.heard(f"[{two[two.index(one) - 1]}]")
    client("quit", "bye")


def test_a_batch_is_the_whole_of_it(start_weir, sdk):
    weir = start_weir()
    client = sdk(weir)
    client("batch many 9001 9002 9003")
    ports = lambda: sorted(x["port"] for x in weir.registry_http(
        "GET", "/nacos/v1/ns/instance/list?serviceName=many").json()["hosts"])
    assert ports() == [9001, 9002, 9003]
    client("batch many 9002 9004")
    assert ports() == [9002, 9004]


def test_the_instance_lives_as_long_as_its_connection(start_weir, upstream, sdk):
    a = upstream(name="a")
    weir = start_weir()
    client = sdk(weir)
    client(f"register llm {a.port} m")
    weir.wait_up(a)
    client.child.kill()
    weir.wait_gone(a)
    h.wait_until(lambda: weir.log_contains("the connection that registered it is gone"), "the line")


@pytest.mark.long                                               # the SDKs take up to half a minute to try again
def test_after_a_restart_of_the_registry_the_client_is_back(start_weir, upstream, sdk):
    a = upstream(name="a")
    port = h.free_port(1000)            # gRPC is on port + 1000
    weir = start_weir(args=("--registry-port", str(port)))
    client = sdk(weir)
    client(f"register llm {a.port} m")
    weir.wait_up(a)
    weir.stop()
    weir = start_weir(args=("--registry-port", str(port)))
    h.wait_until(lambda: weir.up(a) == 1, "the SDK to register anew", timeout=6 * h.PATIENCE)
    assert weir.chat("m").status == 200


def test_a_token_is_asked_for(start_weir, upstream, sdk, tmp_path):
    a = upstream(name="a")
    (tmp_path / "token").write_text("s3cret\n")
    weir = start_weir({"registry": {"token": f"file:{tmp_path}/token"}})
    client = sdk(weir, "s3cret")
    client(f"register llm {a.port} m")
    weir.wait_up(a)
    other = sdk(weir, "wrong")
    other("register llm 9999 m", "error")


def test_configuration_is_refused_in_a_way_that_sdks_survive(start_weir, sdk):
    weir = start_weir()
    client = sdk(weir)
    program = client.child.args[0]
    if program in ("java", GO):
        assert client("config", "config") == ("config null" if program == "java" else 'config "" <nil>')
    client("register llm 9001 m")
