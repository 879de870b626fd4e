# SPDX-License-Identifier: Apache-2.0
"""GET /api/v1/events: what happened, in order, resumable, and nobody who does not read holds anything up."""
import json
import signal
import socket

import pytest

import weir_harness as h

QUIET = {"interval": "1h", "timeout": "4m"}


class Events(h.RawClient):
    """One who follows."""

    def __init__(self, weir, since=None, headers=()):
        super().__init__(weir.admin)
        self.request("GET", "/api/v1/events" + ("" if since is None else f"?since={since}"), headers=headers)
        status, fields = self.head()
        assert status == 200 and dict((k.lower(), v) for k, v in fields)["content-type"] == "text/event-stream"
        self.text = b""
        self.last = None

    def next(self):
        """(type, data) of the next event; comments and retry are skipped."""
        while True:
            while b"\n\n" not in self.text:
                part = self.chunk()
                if not part:
                    return None
                self.text += part
            block, self.text = self.text.split(b"\n\n", 1)
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
            if "data" in fields:
                self.last = int(fields["id"]) if "id" in fields else self.last
                return fields["event"], json.loads(fields["data"])

    def wait_for(self, type):
        seen = []
        while True:
            event = self.next()
            seen.append(event[0])
            if event[0] == type:
                return event[1], seen


def config(*ups, **more):
    return json.dumps(h.patient({"health": QUIET, "discovery": [
        {"type": "static", "endpoints": [{"url": u.url, "models": ["m"]} for u in ups]}], **more}))


def apply(weir, text, status=200):
    assert weir.admin_http("POST", "/api/v1/config/apply", text).status == status


def test_the_life_of_an_endpoint_and_of_the_configuration(start_weir, upstream):
    a, b = upstream(name="a"), upstream(name="b")
    weir = start_weir(config(a))
    weir.wait_up(a)
    follower = Events(weir)
    id_b = f"127.0.0.1:{b.port}"
    apply(weir, json.dumps({**json.loads(config(a)), "discovery": [*json.loads(config(a))["discovery"],
                                                                   *json.loads(config(b))["discovery"]]}))
    assert follower.wait_for("source_ok")[0] == {"source": "static"}
    assert follower.wait_for("endpoint_joined")[0] == {"endpoint": id_b, "generation": 1, "health": "unknown"}
    assert follower.wait_for("endpoint_up")[0]["endpoint"] == id_b
    weir.admin_http("POST", f"/api/v1/endpoints/{id_b}/drain")
    assert follower.next() == ("endpoint_draining", {"endpoint": id_b, "generation": 1})
    weir.admin_http("POST", f"/api/v1/endpoints/{id_b}/undrain")
    assert follower.next() == ("endpoint_undrained", {"endpoint": id_b, "generation": 1})
    apply(weir, config(a))
    assert follower.next() == ("endpoint_left", {"endpoint": id_b, "generation": 1})
    assert follower.next() == ("config_reloaded", {"applied": True, "generation": 3, "changes": ["discovery"]})
    apply(weir, "nonsense: 1", 400)
    type, data = follower.next()
    assert type == "config_refused" and data["error"].startswith("body:1:1: unknown key")
    weir.kill(signal.SIGTERM)
    assert follower.next() == ("draining", {})
    follower.close()


def test_a_breaker_ejects_and_readmits(start_weir, upstream):
    def fail(conn, request):
        conn.hang_up()

    bad = upstream(fail, name="bad")
    weir = start_weir(config(bad, breaker={"consecutive": 1, "cooldown": "10ms"}))
    weir.wait_up(bad)
    follower = Events(weir)
    assert weir.chat().status == 502
    assert follower.next() == ("endpoint_ejected", {"endpoint": f"127.0.0.1:{bad.port}", "generation": 1})
    bad.behaviour = h.answer_at_once
    h.wait_until(lambda: weir.chat().status == 200, "a trial to go well")
    assert follower.wait_for("endpoint_readmitted")[1].count("endpoint_readmitted") == 1
    follower.close()


def test_a_source_that_fails_and_comes_back(start_weir, upstream, tmp_path):
    a = upstream(name="a")
    path = tmp_path / "endpoints.yaml"

    def put(text):                                  # whole: half a file would be another event
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)

    put(json.dumps({"endpoints": [{"url": a.url, "models": ["m"]}]}))
    conf = {"health": QUIET, "discovery": [{"type": "file", "name": "mine", "path": str(path), "interval": "10ms"}]}
    weir = start_weir(conf)
    weir.wait_up(a)
    follower = Events(weir)
    put("endpoints: nonsense")
    type, data = follower.next()
    assert type == "source_failed" and data["source"] == "mine" and str(path) in data["why"]
    apply(weir, json.dumps(h.patient({**conf, "limits": {"body": "1MiB"}})))    # the old configuration, with its texts, is freed
    assert follower.next()[0] == "config_reloaded"
    put(json.dumps({"endpoints": [{"url": a.url, "models": ["m"]}]}))
    assert follower.next() == ("source_ok", {"source": "mine"})
    assert weir.metrics().value("weir_endpoints", source="mine", state="up") == 1
    assert weir.chat().header("x-worker") == "a"
    follower.close()


@pytest.mark.sanitize
@pytest.mark.race
def test_one_who_comes_back_misses_nothing_or_is_told(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    follower = Events(weir)
    apply(weir, config(a))
    assert follower.wait_for("config_reloaded")[0]["generation"] == 2
    last = follower.last
    follower.close()
    for _ in range(3):
        apply(weir, config(a))
    again = Events(weir, headers={"Last-Event-ID": str(last)})
    assert [again.next()[1]["generation"] for _ in range(3)] == [3, 4, 5]
    assert again.last == last + 3
    by_query = Events(weir, since=last + 2)
    assert by_query.next()[1]["generation"] == 5
    for since in (last - 10**9, last + 10**9):      # of an earlier life; of no life at all
        stranger = Events(weir, since=since)
        type, data = stranger.next()
        assert type == "lost" and data["oldest"] <= last
        assert stranger.wait_for("config_reloaded")[0]["generation"] == 2
        stranger.close()
    for c in (again, by_query):
        c.close()
    assert weir.admin_http("GET", "/api/v1/events?since=soon").status == 400


def test_the_ring_is_bounded(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    first = Events(weir)
    for _ in range(1100):
        apply(weir, "x: 1", 400)
    refused = [first.wait_for("config_refused") for _ in range(1100)]
    assert len(refused) == 1100
    late = Events(weir, since=first.last - 1100)
    assert late.next() == ("lost", {"oldest": first.last - 1023})
    assert [late.next()[0] for _ in range(1024)] == ["config_refused"] * 1024
    first.close()
    late.close()


def test_who_does_not_read_is_cut_off_and_nobody_waits(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    deaf = h.RawClient(weir.admin, rcvbuf=4096)
    deaf.request("GET", "/api/v1/events")
    assert deaf.head()[0] == 200
    keen = Events(weir)
    bad = json.dumps({"discovery": [{"type": "static", "endpoints": [{"url": "x" * 400}] * 20}]})
    with open("/proc/sys/net/ipv4/tcp_wmem", encoding="ascii") as f:
        most = int(f.read().split()[2])             # what the kernel may hold for it
    for _ in range(most // 4096 + 2000):            # 4 KiB each: far beyond what sockets and Weir hold for one reader
        apply(weir, bad, 400)
        assert keen.next()[0] == "config_refused"
        if deaf.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            break                                   # a reset
    else:
        pytest.fail("it was never cut off")
    keen.close()
    deaf.close()


def test_there_are_not_too_many_readers(start_weir):
    weir = start_weir()
    readers = [Events(weir) for _ in range(64)]
    r = weir.admin_http("GET", "/api/v1/events")
    assert r.status == 503 and r.json()["error"]["message"] == "too many readers of events"
    for c in readers:
        c.close()
    h.wait_until(lambda: weir.admin_http("HEAD", "/api/v1/events").status == 200, "HEAD is answered")


def test_events_need_the_token(start_weir):
    weir = start_weir({"admin": {"token": "env:WEIR_TEST_EVENTS_TOKEN"}}, env={"WEIR_TEST_EVENTS_TOKEN": "secret-enough"})
    assert weir.admin_http("GET", "/api/v1/events").status == 401
    assert weir.admin_http("POST", "/api/v1/config/apply", "limits: {body: 1KiB}").status == 401
    Events(weir, headers={"Authorization": "Bearer secret-enough"}).close()
