# SPDX-License-Identifier: Apache-2.0
"""An application of Spring Cloud Alibaba that knows Weir from its application.yml alone: it registers, and looks others up."""
import os
import re
import shutil
import subprocess

import pytest

import weir_harness as h
from test_discovery_file import QUICK, listed

pytestmark = pytest.mark.long

HERE = os.path.join(h.ROOT, "tests", "e2e", "java", "spring")
LIBS = os.environ.get("WEIR_SPRING", os.path.join(h.ROOT, "build", "spring"))
PATIENCE = 6 * h.PATIENCE               # a JVM, and a client that takes its time


class App(h.Process):
    def __init__(self, weir, folder):
        super().__init__(["java", "-Xmx192m", "-XX:TieredStopAtLevel=1", f"-DJM.LOG.PATH={folder}/log", f"-Duser.home={folder}",
                          "-cp", f"{LIBS}/*:{folder}", "weir.App"], {"WEIR_REGISTRY": "%s:%d" % weir.registry})
        try:
            port = self.wait_line(r"Tomcat started on port (\d+)", PATIENCE)[1]
            self.wait_line("Started App in", PATIENCE)
        except AssertionError:
            self.kill()
            raise
        self.id = f"127.0.0.1:{port}"
        self.http = h.Http(("127.0.0.1", int(port)))

    def instances(self, service):
        return self.http("GET", "/instances/" + service).json()

    def stop(self):
        self.http.close()
        super().stop(expect=None)       # 143: SIGTERM, after its shutdown hooks


@pytest.fixture
def app(keeper, tmp_path):
    if not shutil.which("javac") or not os.path.isdir(LIBS):
        pytest.skip(f"no javac, or no {LIBS}: tools/deps.sh java makes it")
    subprocess.run(["javac", "-proc:none", "-parameters", "-cp", LIBS + "/*", "-d", str(tmp_path),
                    os.path.join(HERE, "App.java")], check=True, timeout=300)
    shutil.copy(os.path.join(HERE, "application.yml"), tmp_path)
    return lambda weir: keeper.add(App(weir, tmp_path))


def test_it_registers_answers_looks_up_and_leaves(start_weir, upstream, app):
    weir = start_weir({"health": QUICK})
    one, two = app(weir), app(weir)
    h.wait_until(lambda: listed(weir) == {one.id, two.id}, "both to be registered")
    found = weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]
    assert [(e["service"], e["weight"], e["metadata"]["gpu_type"]) for e in found] == [("llm", 2, "A100")] * 2
    h.wait_until(lambda: [e["health"] for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]] == ["up"] * 2,
                 "their health")
    answer = weir.chat()
    assert answer.status == 200 and answer.json()["choices"][0]["message"]["content"] == "from spring"
    # What others registered is found, and changes are heard of.
    assert one.instances("llm") == {one.id: "m", two.id: "m"}
    other = upstream(name="other", models=("n",))
    weir.register(other, models=("n",))
    h.wait_until(lambda: "llm" in one.http("GET", "/services").json(), "the service")
    h.wait_until(lambda: one.instances("llm") == {one.id: "m", two.id: "m", f"127.0.0.1:{other.port}": "n"},
                 "the native endpoint", PATIENCE)
    two.stop()                          # an application that ends deregisters
    h.wait_until(lambda: two.id not in listed(weir), "its deregistration", PATIENCE)
    assert re.search("De-registering.*finished", two.output.replace("\n", " "))
    h.wait_until(lambda: two.id not in one.instances("llm"), "the push", PATIENCE)
    assert weir.chat().status == 200
