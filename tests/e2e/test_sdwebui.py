# SPDX-License-Identifier: Apache-2.0
"""Stable Diffusion webui goes on when its client leaves, and /sdapi/v1/interrupt stops whatever runs: it is called for
a job that is ours, and for nothing else."""
import json
import socket
import threading

import pytest

import engine_doubles as d
from weir_harness import PATIENCE, Http, wait_until

INTERRUPT = "/sdapi/v1/interrupt"


class Painter:
    """A webui behind a gateway. Prompts that begin with "hold" are painted until `release` is set."""

    def __init__(self, start_weir, keeper, endpoint=None, more=None, **kw):
        self.release = threading.Event()
        self.engine = keeper.add(d.sdwebui(behaviour=self.paint, **{"jobs": 1, **kw}))
        self.weir = start_weir({"health": {"interval": "60ms", "scrape_interval": "500ms"}, "discovery": [
            {"type": "static", "endpoints": [{"url": self.engine.url, "engine": "sdwebui", **(endpoint or {})}]}],
            **(more or {})})
        wait_until(lambda: self.ask("warm") == 200, "the webui to be up")

    def paint(self, conn, request):
        if json.loads(request.body)["prompt"].startswith("hold"):
            self.release.wait(4 * PATIENCE)
        conn.respond(200, {"images": ["aGk="], "parameters": {}, "info": "{}"})

    def ask(self, prompt):
        http = Http(self.weir.data)
        try:
            return http("POST", "/sdapi/v1/txt2img", {"prompt": prompt}).status
        finally:
            http.close()

    def hold(self, path="txt2img"):
        """A client whose job runs. close() it to leave."""
        before = self.engine.hits()
        body = b'{"prompt":"hold"}'
        sock = socket.create_connection(self.weir.data)
        sock.sendall(b"POST /sdapi/v1/%s HTTP/1.1\r\nHost: w\r\nX-Tenant-Id: t\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body))
        self.engine.wait_hits(before + 1)
        return sock

    def later(self, prompt):
        """Somebody who has to wait in Weir. @return join(): the status."""
        told = []
        t = threading.Thread(target=lambda: told.append(self.ask(prompt)))
        t.start()
        wait_until(lambda: self.weir.metrics().sum("weir_queue_length") == 1, "the second to wait")

        def join():
            t.join(PATIENCE)
            return told[0]
        return join

    def interrupts(self):
        return self.engine.asked(INTERRUPT)


@pytest.fixture
def painter(start_weir, keeper):
    made = []

    def start(**kw):
        made.append(Painter(start_weir, keeper, **kw))
        return made[-1]
    yield start
    for p in made:
        p.release.set()


@pytest.mark.race
@pytest.mark.sanitize
def test_a_job_whose_client_left_is_interrupted_once(painter):
    p = painter(more={"routes": [{"match": {"path": "/sdapi/**"}, "trust": ["tenant"]}], "tenants": {"t": {}}})
    seen, answer = [], threading.Event()

    def interrupt(conn):
        seen.append(p.engine.hits())
        assert answer.wait(PATIENCE)
        conn.respond(200, {})
    p.engine.pages[INTERRUPT] = interrupt
    for n, path in enumerate(("txt2img", "img2img?x=1"), 1):
        answer.clear()
        before = p.engine.hits()
        client = p.hold(path)
        join = p.later("next")
        client.close()
        wait_until(lambda: p.interrupts() == n, "the interrupt")
        # As long as it is on its way nothing else of ours is there that it could hit.
        wait_until(lambda: len(seen) == n, "the interrupt to be looked at")
        assert seen[-1] == before + 1 and p.weir.inflight() == 1
        wait_until(lambda: p.weir.metrics().value("weir_tenant_in_flight", tenant="t") == 0, "it to have left all the same")
        answer.set()
        assert join() == 200 and p.engine.hits() == before + 2
        assert p.ask("done") == 200         # its client leaves, too, when it has its image
    wait_until(lambda: p.weir.inflight() == 0, "all to be over")
    assert p.interrupts() == 2


@pytest.mark.parametrize("kw", [{"job": "task(k3x)"}, {"job": "Batch 1 out of 2"}, {"jobs": 0}, {"job": None},
                                {"jobs": "many"}], ids=["of its own page", "anybody's", "idle", "unnamed", "uncounted"])
def test_a_job_that_is_not_ours_goes_on(painter, kw):
    p = painter(**kw)
    client = p.hold()
    join = p.later("next")
    client.close()
    assert join() == 200                    # it was let in once that was decided
    wait_until(lambda: p.weir.inflight() == 0, "all to be over")
    assert p.interrupts() == 0


@pytest.mark.sanitize
def test_a_webui_that_does_not_answer_harms_nobody(painter):
    p = painter()
    for status in (500, None):
        p.engine.pages[INTERRUPT] = (lambda conn: conn.close()) if status is None else (status, "")
        client = p.hold()
        join = p.later("next")
        client.close()
        assert join() == 200
    p.engine.pages["/sdapi/v1/progress"] = (500, "")
    before = p.interrupts()
    client = p.hold()
    join = p.later("next")
    client.close()
    assert join() == 200 and p.interrupts() == before


def test_where_several_requests_may_be_there_none_is_interrupted(painter):
    p = painter(endpoint={"max_concurrency": 2})
    first, second = p.hold(), p.hold()
    first.close()
    wait_until(lambda: p.weir.inflight() == 1, "the first to be gone")
    second.close()
    wait_until(lambda: p.weir.inflight() == 0, "the second to be gone")
    assert p.interrupts() == 0


@pytest.mark.race
@pytest.mark.sanitize
def test_weir_ends_while_an_interrupt_is_under_way(painter):
    p = painter()
    asked, answer = threading.Event(), threading.Event()

    def interrupt(conn):
        asked.set()
        answer.wait(PATIENCE)
        conn.close()
    p.engine.pages[INTERRUPT] = interrupt
    p.hold().close()
    assert asked.wait(PATIENCE)
    assert p.weir.stop() in (0, None)
    answer.set()
