# SPDX-License-Identifier: Apache-2.0
"""The README's first command: it starts everything, says what to paste, and ends everything."""
import os
import re
import signal
import subprocess

import pytest

import weir_harness as h

pytestmark = pytest.mark.skipif(h.BIN != os.path.join(h.ROOT, "build", "weir"), reason="run.sh runs the plain build")
ANY_PORT = ["--port", "0", "--admin-port", "0", "--registry-port", "0"]


class RunSh(h.Process):
    def __init__(self, *args):
        super().__init__([os.path.join(h.ROOT, "run.sh"), *args])

    def stop(self, sig=signal.SIGTERM, expect=None):
        return super().stop(sig, expect)    # its own tests say which status it has to be

    def children(self):
        """Process ids below run.sh, with their command lines."""
        found, todo = {}, [self.pid]
        while todo:
            pid = todo.pop()
            try:
                with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                    below = [int(p) for p in f.read().split()]
                for p in below:
                    with open(f"/proc/{p}/cmdline", "rb") as f:
                        found[p] = f.read().replace(b"\0", b" ").decode()
            except OSError:
                continue
            todo += below
        return found


def ended(pid):
    """Gone, or a zombie that its parent has not asked about: either way its sockets are closed."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):     # also when it ends while it is looked at
        return True


def alive(pids):
    return [p for p in pids if not ended(p)]


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_it_starts_streams_and_ends_all(keeper, sig):
    run = keeper.add(RunSh(*ANY_PORT))
    run.wait_line("^Ctrl-C ends it all", timeout=300 * h.SLOW)
    below = run.children()
    assert sum("weir worker" in c for c in below.values()) == 3
    assert sum("weir serve" in c for c in below.values()) == 1
    assert all(any(f"--gpu {g} " in c for c in below.values()) for g in ("a100", "3090", "t4"))
    paste = re.search(r"^curl -N .*\n  -d .*$", run.output, re.M).group()
    done = subprocess.run(["bash", "-c", paste], capture_output=True, text=True, timeout=4 * h.PATIENCE)
    events = [line for line in done.stdout.splitlines() if line.startswith("data: ")]
    assert done.returncode == 0 and len(events) > 2 and events[-1] == "data: [DONE]", done
    metrics = re.search(r"^metrics +http://(\S+)/metrics$", run.output, re.M).group(1)
    page = h.Http(h.address(metrics))
    h.wait_until(lambda: h.Metrics(page("GET", "/metrics").body.decode()).sum("weir_endpoint_up") == 3, "all three to be up")
    page.close()
    run.kill(sig)
    assert run.wait() == 128 + sig
    assert alive(below) == []


def test_with_worker_urls_no_worker_is_emulated(keeper, upstream):
    up = upstream(name="u")
    run = keeper.add(RunSh(*ANY_PORT, "--worker-urls", up.url))
    run.wait_line("^Ctrl-C ends it all", timeout=300 * h.SLOW)
    below = run.children()
    assert not any("weir worker" in c for c in below.values())
    weir = h.Http(h.address(re.search(r"^Weir +http://(\S+)$", run.output, re.M).group(1)))
    h.wait_until(lambda: weir("POST", "/v1/chat/completions", {"model": "m", "messages": []}).status == 200, "the worker")
    weir.close()
    run.kill(signal.SIGTERM)
    assert run.wait() == 143
    assert alive(below) == []


def test_a_taken_port_is_said_and_nothing_is_left(upstream):
    run = RunSh("--host", "127.0.0.1", "--port", str(upstream(name="u").port), "--admin-port", "0", "--registry-port", "0")
    assert run.wait(300 * h.SLOW) == 1
    assert run.log_contains("--port 0")
    assert run.children() == {}


def test_a_mistake_in_the_arguments_is_said_once_and_is_no_taken_port():
    run = RunSh("--prot", "1")
    assert run.wait(300 * h.SLOW) == 2
    assert run.output == "weir: unknown flag --prot; did you mean --port?"


def test_a_worker_that_dies_is_left_out_and_the_others_serve(keeper):
    run = keeper.add(RunSh(*ANY_PORT, "--health-check-interval-secs", "1", "--health-check-timeout-secs", "240"))
    run.wait_line("^Ctrl-C ends it all", timeout=300 * h.SLOW)
    below = run.children()
    (t4,) = (p for p, c in below.items() if "--gpu t4 " in c)
    os.kill(t4, signal.SIGKILL)
    # Dead, its port closed: a request that meets it while it dies may have been begun, and is rightly not repeated.
    h.wait_until(lambda: ended(t4), "the worker to be dead")
    weir = h.Http(h.address(re.search(r"^Weir +http://(\S+)$", run.output, re.M).group(1)))
    for _ in range(10):
        body = {"model": "llama-3-8b", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
        assert weir("POST", "/v1/chat/completions", body).status == 200
    weir.close()
    run.wait_line("is down: |cannot connect to|lease of .* ended")
    assert run.running()
    run.kill(signal.SIGTERM)
    assert run.wait() == 143
    assert alive(below) == []
