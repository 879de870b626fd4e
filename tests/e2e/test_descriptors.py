# SPDX-License-Identifier: Apache-2.0
"""Few file descriptors: the limit is said once, newcomers are refused, whoever is served goes on being served."""
import json
import os
import resource
import threading

import weir_harness as h

QUIET = {"interval": "1h", "timeout": "4m", "scrape_interval": "off"}   # descriptors are counted: nothing comes and goes


def config(*ups):
    return {"health": QUIET, "discovery": [{"type": "static", "endpoints": [
        {"url": u.url, "models": [u.name]} for u in ups]}]}


def limit(weir, n):
    """@return the limits before."""
    return resource.prlimit(weir.pid, resource.RLIMIT_NOFILE, (n, resource.prlimit(weir.pid, resource.RLIMIT_NOFILE)[1]))


def lowest_free(weir):
    used = {int(name) for name in os.listdir(f"/proc/{weir.pid}/fd")}
    return next(n for n in range(len(used) + 1) if n not in used)


def test_as_many_connections_as_descriptors_carry(keeper, upstream, tmp_path):
    a = upstream(name="a")
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps(h.patient(config(a))))
    weir = keeper.add(h.Process(["bash", "-c", f"ulimit -n 300; exec '{h.BIN}' serve --config '{path}' --host 127.0.0.1 "
                                 "--port 0 --admin-port 0 --registry-port 0 --threads 2"]))
    bound = weir.ready()
    weir.wait_line("is up")
    clients = [h.RawClient(h.address(bound["data"])) for _ in range(22)]    # (300 - 256) / 2, whatever loop they meet
    for c in clients:
        c.request(body={"model": "a"})
        assert c.response().status == 200
    for _ in range(3):
        one_more = h.RawClient(h.address(bound["data"]))
        one_more.request(body={"model": "a"})
        assert one_more.response().error() == (503, "overloaded")
        one_more.close()
    for c in clients:
        c.request(body={"model": "a"})
        assert c.response().status == 200
    clients.pop().close()

    def taken():
        c = h.RawClient(h.address(bound["data"]))
        c.request(body={"model": "a"})
        status = c.response().status
        c.close()
        return status == 200

    h.wait_until(taken, "room for one who comes later")
    admin = h.Http(h.address(bound["admin"]))
    assert admin("POST", "/api/v1/config/apply", path.read_text()).status == 200
    weir.wait_line("300 file descriptors carry 22: using that")
    assert weir.output.count("300 file descriptors carry 22: using that") == 1       # a reload does not say it again
    for c in clients:
        c.close()
    admin.close()


def test_without_a_descriptor_accepting_rests_and_goes_on(start_weir, upstream):
    go_on = threading.Event()

    def stream(conn, request):
        if not request.asks("stream"):
            conn.answer(request)
            return
        conn.start_stream()
        conn.sse_event("one")
        assert go_on.wait(4 * h.PATIENCE)
        conn.sse_event("two")
        conn.end_stream()

    a = upstream(stream, name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    served = h.RawClient(weir.data)
    served.request(body={"model": "a", "stream": True})
    assert served.head()[0] == 200 and served.event() == "one"
    before = limit(weir, lowest_free(weir))
    waiting = []

    def starved():
        """The kernel takes them; Weir cannot, unless an idle connection of its checks has just ended."""
        limit(weir, lowest_free(weir))
        waiting.append(h.RawClient(weir.data))
        waiting[-1].request(body={"model": "a"})
        return weir.log_contains("warn net: cannot accept: out of file descriptors; resting 100 ms$")
    h.wait_until(starved, "accepting to rest")
    go_on.set()
    assert served.event() == "two" and served.event() == "[DONE]"
    again = weir.wait_line("cannot accept: out of file descriptors; resting 100 ms .said ([1-9][0-9]*) times less.$")
    assert int(again.group(1)) < 1000               # tries in at least one second: a spin makes a hundred thousand
    limit(weir, before[0])
    assert [c.response().status for c in waiting] == [200] * len(waiting)
    for c in (served, *waiting):
        c.close()


def test_a_request_is_worth_more_than_an_idle_connection(start_weir, upstream):
    a, b = upstream(name="a"), upstream(name="b")
    weir = start_weir(config(a, b), args=["--threads", "1"])
    for u in (a, b):
        weir.wait_up(u)
    c = h.RawClient(weir.data)
    c.request(body={"model": "a"})
    assert c.response().header("x-worker") == "a"   # its connection stays, idle
    before = limit(weir, lowest_free(weir))
    c.request(body={"model": "b"})
    assert c.response().header("x-worker") == "b"
    limit(weir, before[0])
    c.close()
