# SPDX-License-Identifier: Apache-2.0
"""Who gets traffic when things go wrong: probes, breakers, panic, slow start. Each as the field reported it."""
import collections
import json
import select
import socket
import threading
import time

import pytest

import weir_harness as h

POLICY = "chain"

ROUND_ROBIN = {"policy": "round_robin"}


def endpoint(weir, up):
    listed = weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]
    return next(e for e in listed if e["id"] == up.name or e["url"] == up.url)


def breaker(weir, up):
    return endpoint(weir, up)["breaker"]


def wait_breaker(weir, up, state):
    h.wait_until(lambda: breaker(weir, up)["state"] == state, f"the breaker of {up.name} to be {state}")


def together(weir, n, threads=8, path="/v1/chat/completions", **more):
    """n requests from several clients at once; who answered, by status and worker."""
    left = iter(range(n))
    lock = threading.Lock()
    seen = collections.Counter()

    def work():
        http = h.Http(weir.data)
        while True:
            with lock:
                if next(left, None) is None:
                    break
            r = http("POST", path, {"model": "m", "messages": [{"role": "user", "content": "x"}], **more})
            with lock:
                seen[r.status, r.header("x-worker")] += 1
        http.close()

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    return seen


def status(code, headers=()):
    def behaviour(conn, request):
        conn.respond(code, {"error": {"message": "no", "type": "t", "code": "c", "param": None}}, headers, "Whatever")
    return behaviour


class Switch:
    """A behaviour that can be changed while it is in use."""

    def __init__(self, to):
        self.to = to

    def __call__(self, conn, request):
        self.to(conn, request)


def hang(conn, request):
    conn.wait_closed()


def apply(weir, config):
    r = weir.admin_http("POST", "/api/v1/config/apply", json.dumps(h.patient(config)))
    assert r.status == 200, r.body


class Asked(h.FakeUpstream):
    """Knows who waits for the answer to a check of its health."""

    def __init__(self, *args, **kw):
        self.checked = []
        super().__init__(*args, **kw)

    def _probe(self, conn, request):
        if request.path != "/health":
            return super()._probe(conn, request)
        with self.lock:
            self.checked.append(conn)
        try:
            return super()._probe(conn, request)
        finally:
            with self.lock:
                self.checked.remove(conn)

    def asked_by(self):
        """How many wait. Who does not any more has closed its connection: then there is something to read."""
        with self.lock:
            poll = select.poll()
            for conn in self.checked:
                poll.register(conn.sock, select.POLLIN)
            return len(self.checked) - len(poll.poll(0))


# ------------------------------------------------------------------------------------------------------ K: health


@pytest.mark.sanitize
def test_k1_a_busy_engine_with_a_slow_health_check_stays_while_its_streams_move(start_weir, upstream):
    weir = start_weir({"health": {"interval": "100ms", "timeout": "300ms", "down_after": 2, "up_after": 1}})
    stop = threading.Event()

    def stream(conn, request):
        conn.start_stream()
        while not stop.wait(0.01):
            conn.sse_event({"t": 1})
        conn.end_stream()

    up = upstream(stream, name="a")
    weir.register(up)
    client = h.RawClient(weir.data)
    client.request(body={"model": "m", "stream": True})
    assert client.head()[0] == 200
    weir.wait_up(up)                    # a double may be too slow for its checks, until it streams
    up.probe_gate.clear()
    asked = len(up.probes)
    reader = threading.Thread(target=client.body)
    reader.start()
    h.wait_until(lambda: len(up.probes) >= asked + 4, "three checks without an answer")
    assert weir.up(up) == 1
    # Idle and red: down. It is the last one, so it is used all the same, and that is said.
    stop.set()
    reader.join()
    client.close()
    h.wait_until(lambda: weir.up(up) == 0, "it to be down")
    up.behaviour = h.answer_at_once
    assert weir.chat().status == 200
    h.wait_until(lambda: weir.metrics().value("weir_panic", model="m") == 1, "panic")
    weir.wait_line(r"model m: panic, 1 of 1 endpoints are red")
    up.probe_gate.set()
    h.wait_until(lambda: weir.up(up) == 1, "it to be up")
    weir.wait_line(r"model m: panic is over")
    h.wait_until(lambda: weir.metrics().value("weir_panic", model="m") == 0, "the end of the panic to be shown")


@pytest.mark.sanitize
@pytest.mark.race
def test_k2_a_hung_engine_with_a_green_health_check_is_ejected_and_readmitted_by_one_trial(start_weir, upstream):
    # Only what is to hang goes where time is short: what is slow there only because the machine is would fail as well.
    weir = start_weir({"breaker": {"cooldown": "1s"},
                       "routes": [{"match": {"path": "/v1/completions"}, "timeouts": {"first_byte": "500ms"}}, ROUND_ROBIN]})
    switch = Switch(hang)
    a, b = upstream(switch, name="a"), upstream(name="b")
    weir.register(a)
    assert together(weir, 3, threads=3, path="/v1/completions") == {(504, None): 3}
    assert weir.up(a) == 1                                  # its checks are green
    a.wait_hits(3)
    h.wait_until(lambda: breaker(weir, a).get("cause") == "silent", "its breaker to be open")
    weir.register(b)
    # Half-open: one request at a time, here one that is held.
    opened = threading.Event()

    def held(conn, request):
        assert opened.wait(h.PATIENCE)
        h.answer_at_once(conn, request)

    switch.to = held
    wait_breaker(weir, a, "half-open")
    assert weir.metrics().value("weir_breaker_state", endpoint="a") == 1
    before = a.hits()
    trial = []
    crew = [threading.Thread(target=lambda: trial.append(together(weir, 12, threads=6)))]
    crew[0].start()
    a.wait_hits(before + 1)
    h.wait_until(lambda: b.hits() >= 11, "the others to be served elsewhere")
    assert a.hits() == before + 1
    assert breaker(weir, a)["trial"] is True
    opened.set()
    crew[0].join()
    assert trial == [{(200, "a"): 1, (200, "b"): 11}]
    wait_breaker(weir, a, "closed")
    assert weir.metrics().value("weir_breaker_state", endpoint="a") == 0
    assert together(weir, 20, threads=1) == {(200, "a"): 10, (200, "b"): 10}
    weir.wait_line(r"endpoint=a: breaker opened, no byte came")
    weir.wait_line(r"endpoint=a: breaker closed")


def test_k2_a_trial_that_fails_waits_longer_and_one_whose_client_leaves_gives_its_place_back(start_weir, upstream):
    # Time is short only where nobody but the one that hangs is asked.
    weir = start_weir({"breaker": {"cooldown": "300ms", "first_byte_timeouts": 1},
                       "routes": [{"match": {"path": "/v1/completions"}, "labels": {"hangs": "yes"},
                                   "timeouts": {"first_byte": "500ms"}}, ROUND_ROBIN]})
    switch = Switch(hang)
    a, b = upstream(switch, name="a"), upstream(name="b")
    weir.register(a, labels={"hangs": "yes"})
    weir.register(b)
    for trips in (1, 2, 3):
        assert together(weir, 1, threads=1, path="/v1/completions") == {(504, None): 1}
        h.wait_until(lambda: breaker(weir, a).get("trips") == trips, f"it to have opened {trips} times")
        wait_breaker(weir, a, "half-open")
    a.wait_hits(3)                                          # that they were given up does not say that they have arrived
    seen = a.hits()
    clients = [h.RawClient(weir.data) for _ in range(2)]
    for client in clients:
        client.request(body={"model": "m"})
    a.wait_hits(seen + 1)
    for client in clients:
        client.rst()
    h.wait_until(lambda: breaker(weir, a)["trial"] is False, "the trial's place to be free")
    switch.to = h.answer_at_once
    h.wait_until(lambda: weir.chat().status == 200 and breaker(weir, a)["state"] == "closed", "it to be readmitted")
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")


@pytest.mark.sanitize
def test_k2_a_hang_is_noticed_long_before_the_first_byte_timeout(start_weir, upstream):
    """With the default of ten minutes: by the silence of all that it was sent."""
    def stall(limit):
        return {"breaker": {"stall": limit, "cooldown": "1h", "cooldown_max": "1h"}, "routes": [ROUND_ROBIN]}
    weir = start_weir(stall("500ms"))
    gate, opened = h.gate()
    a, b = upstream(gate, name="a"), upstream(name="b")
    weir.register(a)
    clients = [h.RawClient(weir.data) for _ in range(2)]
    for client in clients:
        client.request(body={"model": "m"})
    wait_breaker(weir, a, "open")
    assert breaker(weir, a)["cause"] == "silent"
    a.wait_hits(2)
    apply(weir, stall("1h"))                                # the other one may be slow
    weir.register(b)
    assert together(weir, 20) == {(200, "b"): 20}
    # It was only slow: its first byte brings it back, long before the cooldown ends; the waiting client lost nothing.
    opened.set()
    for client in clients:
        assert client.response().status == 200
        client.close()
    wait_breaker(weir, a, "closed")
    assert together(weir, 20, threads=1) == {(200, "a"): 10, (200, "b"): 10}


@pytest.mark.sanitize
def test_k2_a_trial_that_hangs_is_over_long_before_the_first_byte_timeout(start_weir, upstream):
    """For the breaker, after `stall`: the next one may try then. Its client waits on, and loses nothing."""
    # Only the one that hangs is asked, for how long an answer may take is the same for all.
    weir = start_weir({"breaker": {"stall": "500ms", "cooldown": "100ms", "cooldown_max": "200ms"},
                       "routes": [{**ROUND_ROBIN, "labels": {"hangs": "yes"}}]})
    gate, opened = h.gate()
    a, b = upstream(gate, name="a"), upstream(name="b")
    weir.register(a, labels={"hangs": "yes"})
    weir.register(b)
    clients = []
    for trials in (0, 1, 2):
        client = h.RawClient(weir.data)
        client.request(body={"model": "m"})
        clients.append(client)
        a.wait_hits(1 + trials)
        h.wait_until(lambda: weir.output.count("endpoint=a: breaker stays open after a trial, no byte came") >= trials, "its end")
        h.wait_until(lambda: breaker(weir, a).get("trips") == 1 + trials, "it to be counted")
        wait_breaker(weir, a, "half-open")
    opened.set()
    for client in clients:
        assert client.response().status == 200
        client.close()
    wait_breaker(weir, a, "closed")


@pytest.mark.parametrize("code", [400, 401, 404, 422])
def test_k3_4xx_never_count(start_weir, upstream, code):
    weir = start_weir({"routes": [ROUND_ROBIN]})
    a, b = upstream(status(code), name="a"), upstream(name="b")
    weir.register(a)
    weir.register(b)
    assert together(weir, 200, threads=1) == {(code, "a"): 100, (200, "b"): 100}
    assert breaker(weir, a) == {"state": "closed"}


@pytest.mark.parametrize("code", [429, 503])
def test_k4_busy_is_not_broken(start_weir, upstream, code):
    weir = start_weir()
    switch = Switch(status(code, [("Retry-After", "1")]))
    a = upstream(switch, name="a")
    weir.register(a)
    assert together(weir, 100) == {(code, "a"): 100}
    assert breaker(weir, a) == {"state": "closed"}
    switch.to = h.answer_at_once
    assert weir.chat().status == 200                       # the very next one


@pytest.mark.sanitize
def test_k6_who_left_is_checked_no_more_and_who_came_is_checked_by_one(start_weir, upstream, keeper):
    weir = start_weir({"health": {"interval": "50ms", "scrape_interval": "off"}})
    a, b = keeper.add(Asked(name="a")), upstream(name="b")
    weir.register(a)
    weir.register(b)

    def checks(up):
        with up.lock:
            return sum(p.path == "/health" for p in up.probes)

    def asked_by_while_b_is_checked():
        until, seen = checks(b) + 10, set()
        h.wait_until(lambda: seen.add(a.asked_by()) or checks(b) >= until, "checks of b")
        return seen
    h.wait_until(lambda: checks(a) >= 3 and checks(b) >= 3, "both to be checked")
    weir.deregister("a")
    weir.wait_gone(a)
    a.probe_gate.clear()                # whoever checks it from now on has a check under way that is not answered
    h.wait_until(lambda: a.asked_by() == 0, "nobody to ask")
    assert asked_by_while_b_is_checked() == {0}
    for epoch in (1, 2, 3, 4, 5):
        weir.register(a, epoch=epoch, wait=False)
    weir.register(upstream(name="c"))   # the fifth is known before this one
    h.wait_until(lambda: a.asked_by() == 1, "one to ask")
    assert asked_by_while_b_is_checked() == {1}
    a.probe_gate.set()
    weir.wait_up(a)


def test_k7_all_workers_down_at_the_start(start_weir, upstream):
    port = h.free_port()                                   # nobody listens: connections are refused
    weir = start_weir({"health": {"interval": "100ms"},
                       "discovery": [{"type": "static", "endpoints": [{"url": f"http://127.0.0.1:{port}", "models": ["m"]}]}]})
    for _ in range(20):
        assert weir.chat().status in (502, 503)
    assert weir.http("GET", "/liveness").status == 200
    assert weir.http("GET", "/readiness").status == 503
    up = upstream(name="late", port=port)
    h.wait_until(lambda: up.probes, "the first check")
    h.wait_until(lambda: weir.http("GET", "/readiness").status == 200, "readiness")
    assert weir.chat().status == 200


# --------------------------------------------------------------------------------------------- D12, F11: breakers


@pytest.mark.parametrize("policy", ["least_request", "chain", "power_of_two"])
def test_d12_an_endpoint_that_fails_fast_attracts_no_traffic(start_weir, upstream, policy):
    weir = start_weir({"breaker": {"cooldown": "1h", "cooldown_max": "1h"}, "routes": [{"policy": policy}]})

    def slow(conn, request):
        time.sleep(0.02)                                   # the work
        h.answer_at_once(conn, request)

    a, b, c = upstream(status(500), name="a"), upstream(slow, name="b"), upstream(slow, name="c")
    for up in (a, b, c):
        weir.register(up)
    h.wait_until(lambda: together(weir, 40) and breaker(weir, a)["state"] == "open", "its breaker to be open")
    failed = a.hits()
    # F11: nothing reaches it during its whole cooldown.
    seen = together(weir, 200)
    assert a.hits() == failed
    assert set(seen) == {(200, "b"), (200, "c")}


def test_d12_without_breakers_it_does(start_weir, upstream):
    """What the breaker is good for."""
    weir = start_weir({"routes": [{"policy": "least_request"}]}, args=["--disable-circuit-breaker"])
    gate, opened = h.gate()
    a, b = upstream(status(500), name="a"), upstream(gate, name="b")
    weir.register(a)
    weir.register(b)
    late = threading.Thread(target=lambda: (a.wait_hits(80), opened.set()))
    late.start()
    seen = together(weir, 100)
    late.join()
    assert seen[500, "a"] >= 80
    assert breaker(weir, a) == {"state": "closed"}


def test_d12_a_share_of_failures_is_enough(start_weir, upstream):
    weir = start_weir({"breaker": {"consecutive": "off", "min_requests": 20, "window": "5m", "cooldown": "1h",
                                   "cooldown_max": "1h"}, "routes": [ROUND_ROBIN]})
    turn = iter(range(1 << 30))

    def every_other(conn, request):
        (status(500) if next(turn) % 2 == 0 else h.answer_at_once)(conn, request)

    a, b = upstream(every_other, name="a"), upstream(name="b")
    weir.register(a)
    weir.register(b)
    assert together(weir, 36, threads=1) == {(500, "a"): 9, (200, "a"): 9, (200, "b"): 18}
    assert breaker(weir, a)["state"] == "closed"
    together(weir, 8, threads=1)
    wait_breaker(weir, a, "open")


def test_d12_a_black_hole_costs_a_few_connect_timeouts(start_weir, upstream):
    """An address that drops what is sent to it: here a full accept queue."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hole:
        full = threading.Event()

        def greet():                                       # its first checks pass
            while True:
                conn, _ = hole.accept()
                with conn:
                    if full.is_set():
                        return
                    conn.recv(65536)
                    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

        greeter = threading.Thread(target=greet)
        greeter.start()
        weir = start_weir({"health": {"interval": "10m"},
                           "breaker": {"cooldown": "1h", "cooldown_max": "1h"},
                           "routes": [{**ROUND_ROBIN, "timeouts": {"connect": "200ms"}}]})
        b = upstream(name="b")
        weir.register(b)

        class Hole:
            name, url = "hole", "http://127.0.0.1:%d" % hole.getsockname()[1]

        weir.register(Hole)
        full.set()
        fillers = []

        def fill():
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(hole.getsockname())
            fillers.append(s)
        fill()                                             # the last one that is taken, or another was in its place
        greeter.join()
        for _ in range(4):
            fill()
        assert together(weir, 40) == {(200, "b"): 40}       # each went on to the other one
        wait_breaker(weir, Hole, "open")
        assert breaker(weir, Hole)["cause"] == "connect"
        retries = weir.metrics().value("weir_retries_total", reason="connect")
        assert together(weir, 100) == {(200, "b"): 100}
        assert weir.metrics().value("weir_retries_total", reason="connect") == retries
        for s in fillers:
            s.close()


def test_f11_all_of_them_cooling_down_are_all_used(start_weir, upstream):
    """The documented choice: refusing everything cannot be better than trying."""
    weir = start_weir({"breaker": {"cooldown": "1h", "cooldown_max": "1h"}, "routes": [ROUND_ROBIN]})
    switch = Switch(status(500))
    a, b = upstream(switch, name="a"), upstream(switch, name="b")
    weir.register(a)
    weir.register(b)
    assert together(weir, 10, threads=1) == {(500, "a"): 5, (500, "b"): 5}
    h.wait_until(lambda: weir.metrics().sum("weir_breaker_state") == 4, "both to be open")
    weir.wait_line(r"model m: panic, 2 of 2 endpoints are red")
    h.wait_until(lambda: weir.metrics().value("weir_panic", model="m") == 1, "panic")
    assert together(weir, 10, threads=1) == {(500, "a"): 5, (500, "b"): 5}
    switch.to = h.answer_at_once
    assert together(weir, 10, threads=1) == {(200, "a"): 5, (200, "b"): 5}


def test_broken_answers_open_the_breaker_and_a_restart_comes_back_by_its_trial(start_weir, upstream):
    weir = start_weir({"breaker": {"cooldown": "500ms"}, "routes": [ROUND_ROBIN]})

    switch = Switch(lambda conn, request: conn.rst())
    a, b = upstream(switch, name="a"), upstream(name="b")
    weir.register(a)
    weir.register(b)
    assert together(weir, 10, threads=1) == {(502, None): 5, (200, "b"): 5}
    h.wait_until(lambda: breaker(weir, a).get("cause") == "failed", "its breaker to be open")
    wait_breaker(weir, a, "half-open")
    switch.to = h.answer_at_once
    h.wait_until(lambda: weir.chat().status == 200 and breaker(weir, a)["state"] == "closed", "it to be readmitted")


# ------------------------------------------------------------------------------------------ C1, D7: newcomers


def test_c1_a_restarted_worker_gets_its_share_and_no_more(start_weir, upstream):
    weir = start_weir({"slow_start": "off"})
    ups = [upstream(name=f"e{i}") for i in range(4)]
    for up in ups:
        weir.register(up)
    together(weir, 100)
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
    weir.deregister("e0")
    weir.wait_gone(ups[0])
    weir.register(ups[0])
    assert endpoint(weir, ups[0])["generation"] == 2
    seen = together(weir, 400, threads=1)
    assert 80 <= seen[200, "e0"] <= 120
    assert sum(seen.values()) == 400


def test_c1_the_state_of_the_old_generation_is_not_the_new_ones(start_weir, upstream):
    weir = start_weir({"breaker": {"cooldown": "1h", "cooldown_max": "1h"}, "slow_start": "off", "routes": [ROUND_ROBIN]})
    switch = Switch(status(500))
    a, b = upstream(switch, name="a"), upstream(name="b")
    weir.register(a)
    weir.register(b)
    together(weir, 10, threads=1)
    wait_breaker(weir, a, "open")
    weir.deregister("a")
    weir.wait_gone(a)
    switch.to = h.answer_at_once
    weir.register(a)
    assert breaker(weir, a) == {"state": "closed"}
    assert together(weir, 10, threads=1) == {(200, "a"): 5, (200, "b"): 5}


@pytest.mark.parametrize("policy", ["chain", "least_request", "weighted_round_robin", "power_of_two"])
def test_d7_a_joiner_starts_slowly_and_ends_with_its_share(start_weir, upstream, policy):
    """The exact ramp is a unit test; here that it begins low, ends full and is left alone."""
    def slow_start(length):
        conf = {"slow_start": length, "routes": [{"policy": policy}]}
        assert weir.admin_http("POST", "/api/v1/config/apply", json.dumps(h.patient(conf))).status == 200

    def work(conn, request):
        time.sleep(0.003)
        h.answer_at_once(conn, request)

    weir = start_weir({"slow_start": "1ms", "routes": [{"policy": policy}]})
    switch = Switch(work)
    ups = [upstream(switch, name=f"e{i}") for i in range(5)]

    def grow():
        """Those that are there have been offered, and a request came when their millisecond was over."""
        together(weir, 8)
        time.sleep(0.01)
        together(weir, 8)

    for up in ups[:4]:
        weir.register(up)
    grow()
    slow_start("1h")
    weir.register(ups[4])
    seen = together(weir, 100)
    assert seen[200, "e4"] <= 10, seen                      # a fair share is 20
    slow_start("1ms")
    grow()
    switch.to, opened = h.gate()
    before = {up: up.hits() for up in ups}
    crew = threading.Thread(target=together, args=(weir, 50), kwargs={"threads": 50})
    crew.start()
    h.wait_until(lambda: sum(up.hits() - before[up] for up in ups) == 50, "all of them to be held")
    held = [up.hits() - before[up] for up in ups]
    opened.set()
    crew.join()
    assert all(6 <= n <= 14 for n in held), held


def test_d7_the_first_fleet_has_no_slow_start(start_weir, upstream):
    weir = start_weir({"slow_start": "1h"})
    ups = [upstream(name=f"e{i}") for i in range(3)]
    for up in ups:
        weir.register(up)
    seen = together(weir, 300, threads=1)
    assert all(95 <= seen[200, up.name] <= 105 for up in ups), seen
