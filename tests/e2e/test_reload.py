# SPDX-License-Identifier: Apache-2.0
"""Another configuration takes over while everything runs: what changed is in force, what did not is untouched."""
import json
import os
import re
import resource
import signal
import socket
import threading

import pytest

import weir_harness as h

QUIET = {"interval": "1h", "timeout": "4m"}         # one check when an endpoint joins, and no other


def static(*ups, **more):
    return [{"type": "static", "endpoints": [{"url": u.url, "models": ["m"], **more} for u in ups]}]


def config(*ups, **more):
    return {"health": QUIET, "discovery": static(*ups), **more}


def text(conf):
    """As the harness wrote the first one; words stay as they are."""
    return conf if isinstance(conf, str) else json.dumps(h.patient(conf))


def write(weir, conf):
    with open(weir.config_path, "w", encoding="utf-8") as f:
        f.write(text(conf))


def reloads(weir):
    m = weir.metrics()
    return (m.value("weir_config_reloads_total", result="ok"), m.value("weir_config_reloads_total", result="failed"))


def hup(weir, conf=None):
    """SIGHUP, to its end. Returns (ok, failed) as they are then."""
    before = sum(reloads(weir))
    if conf is not None:
        write(weir, conf)
    weir.kill(signal.SIGHUP)
    h.wait_until(lambda: sum(reloads(weir)) > before, "the reload")
    return reloads(weir)


def apply(weir, conf, status=200):
    r = weir.admin_http("POST", "/api/v1/config/apply", text(conf))
    assert r.status == status, (r.status, r.body)
    return r.json()


def endpoint(weir, up):
    r = weir.admin_http("GET", f"/api/v1/endpoints/127.0.0.1:{up.port}")
    return r.json() if r.status == 200 else None


# one after the other ---------------------------------------------------------------------------------------------


def test_a_changed_file_is_in_force_after_sighup(start_weir, upstream):
    a, b = upstream(name="a"), upstream(name="b")
    weir = start_weir(config(a))
    weir.wait_up(a)
    assert weir.chat().header("x-worker") == "a"
    assert hup(weir, config(b)) == (1, 0)
    weir.wait_up(b)
    assert {weir.chat().header("x-worker") for _ in range(4)} == {"b"}
    assert endpoint(weir, a) is None
    weir.wait_line(r'configuration taken over from SIGHUP: {"applied":true,"generation":2,"changes":\["discovery"\]}')


def test_apply_says_what_changed_and_the_answer_is_the_moment(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    new = config(a, limits={"body": "1KiB"}, routes=[{"match": {"path": "/v1/**"}, "queue": {"size": 7}}])
    assert apply(weir, new) == {"applied": True, "generation": 2, "changes": ["routes", "limits.body"]}
    assert weir.chat(padding="x" * 2048).error() == (413, "body_too_large")
    running = weir.admin_http("GET", "/api/v1/config").json()
    assert running["limits"]["body"] == "1KiB" and running["routes"][0]["queue"]["size"] == 7
    assert apply(weir, new) == {"applied": True, "generation": 3, "changes": []}
    # The file is the truth again at the next SIGHUP.
    assert hup(weir) == (3, 0)
    assert weir.chat(padding="x" * 2048).status == 200


BROKEN = [("routes: [", 400, "body:2:1: not valid YAML"), ("nonsense: 1", 400, "body:1:1: unknown key"),
          ("limits: {body: 1KiB}\nhealth: {interval: 5}", 400, "body:2:"),
          ("admin: {token: 'file:/none/token'}", 400, "admin.token: /none/token"),
          ("logging: {access: 'file:/none/log'}", 400, "cannot open the access log /none/log"),
          ("", 400, "send a configuration")]


@pytest.mark.parametrize("text, status, words", BROKEN)
def test_a_broken_one_is_kept_out_and_says_where(start_weir, upstream, text, status, words):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    assert words in apply(weir, text, status)["error"]["message"]
    assert weir.chat().header("x-worker") == "a"
    assert weir.admin_http("GET", "/api/v1/config").json()["discovery"][0]["endpoints"][0]["url"] == a.url


def test_a_broken_file_is_told_with_its_place(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    assert hup(weir, "limits:\n  body: lots\n") == (0, 1)
    weir.wait_line(r"error serve: configuration from SIGHUP refused, the old one stays: .*/weir.yaml:2:9: ")
    os.unlink(weir.config_path)
    assert hup(weir) == (0, 2)
    weir.wait_line(r"refused, the old one stays: .*weir.yaml")
    assert weir.chat().status == 200
    assert hup(weir, config(a)) == (1, 2)


@pytest.mark.parametrize("change, name", [({"registry": {"state_file": "/nowhere/state"}}, "registry.state_file")])
def test_what_needs_a_restart_is_refused_whole_and_named(start_weir, upstream, change, name):
    a, b = upstream(name="a"), upstream(name="b")
    weir = start_weir(config(a))
    weir.wait_up(a)
    error = apply(weir, config(b, **change), 409)["error"]
    assert error["code"] == "restart_required"
    assert error["message"] == f"{name}: cannot change without a restart; nothing was applied\n"
    assert weir.chat().header("x-worker") == "a" and endpoint(weir, b) is None
    validated = weir.admin_http("POST", "/api/v1/config/validate", text(config(b, **change))).json()
    assert validated == {"valid": True, "changes": ["discovery"], "needs_restart": [name]}


def test_flags_beat_the_new_file_too(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a), args=["--queue-size", "3"])
    weir.wait_up(a)
    hup(weir, config(a, threads=1, routes=[{"queue": {"size": 9}}]))    # --threads 2 is a flag: nothing changed there
    assert reloads(weir) == (1, 0)
    assert weir.admin_http("GET", "/api/v1/config").json()["routes"][0]["queue"]["size"] == 3


def test_tokens_are_read_again_though_the_yaml_is_the_same(start_weir, upstream, tmp_path):
    token = tmp_path / "token"
    token.write_text("first-token\n")
    a = upstream(name="a")
    conf = config(a, admin={"token": f"file:{token}"}, registry={"token": f"file:{token}"})
    weir = start_weir(conf)

    def status(word):
        return weir.admin_http("GET", "/metrics", headers={"Authorization": f"Bearer {word}"}).status, weir.registry_http(
            "PUT", "/v1/endpoints/x", {"id": "x", "service": "llm", "url": a.url, "models": [{"id": "m"}], "ttl_ms": 600000},
            {"Authorization": f"Bearer {word}"}).status

    assert status("first-token")[0] == 200 and status("second-token") == (401, 401)
    token.write_text("second-token\n")
    weir.kill(signal.SIGHUP)
    weir.wait_line("configuration taken over from SIGHUP")
    assert status("first-token") == (401, 401) and status("second-token")[0] == 200 and status("second-token")[1] in (200, 201)
    token.write_text("\n")
    weir.kill(signal.SIGHUP)
    weir.wait_line("refused, the old one stays: admin.token: .*the secret is empty")
    assert status("second-token")[0] == 200
    shown = weir.admin_http("GET", "/api/v1/config", headers={"Authorization": "Bearer second-token"}).body
    assert b"second-token" not in shown and b"file:" in shown


# what is under way -----------------------------------------------------------------------------------------------


def test_a_removed_endpoint_ends_what_it_has_and_gets_nothing_new(start_weir, upstream):
    behaviour, opened = h.gate()
    a, b = upstream(behaviour, name="a"), upstream(name="b")
    weir = start_weir(config(a))
    weir.wait_up(a)
    old = h.RawClient(weir.data)
    old.request(body={"model": "m"})
    a.wait_hits(1)
    apply(weir, config(b))
    weir.wait_up(b)
    assert {weir.chat().header("x-worker") for _ in range(20)} == {"b"}
    opened.set()
    assert old.response().header("x-worker") == "a"
    old.request(body={"model": "m"})                # the same connection goes elsewhere now
    assert old.response().header("x-worker") == "b"
    assert (a.hits(), b.hits()) == (1, 21)
    assert sum(p.path == "/health" for p in a.probes) == 1          # the one of its time
    old.close()


def test_checks_follow_the_configuration_one_reader_for_each(start_weir, upstream):
    """K6: none to one that left, at once to one that came, and reloads leave no second reader behind."""
    a, c = upstream(name="a"), upstream(name="c")
    weir = start_weir(config(a))
    weir.wait_up(a)
    for i in range(2):
        apply(weir, config(a, c, limits={"body": f"{i + 1}MiB"}))
    weir.wait_up(c)

    def checks(up):
        with up.lock:
            return sum(p.path == "/health" for p in up.probes)

    assert (checks(a), checks(c)) == (1, 1)
    apply(weir, {**config(a, c), "health": {**QUIET, "interval": "30m"}})     # anew, once each
    h.wait_until(lambda: (checks(a), checks(c)) == (2, 2), "one more check of each")
    apply(weir, {**config(c), "health": {**QUIET, "interval": "50ms"}})
    gone = checks(a)
    h.wait_until(lambda: checks(c) >= 6, "c to be checked often")
    assert checks(a) == gone


@pytest.mark.sanitize
def test_an_endpoint_that_stays_keeps_its_generation_and_its_count(start_weir, upstream):
    behaviour, opened = h.gate()
    a, b = upstream(behaviour, name="a"), upstream(name="b")
    weir = start_weir(config(a))
    weir.wait_up(a)
    old = h.RawClient(weir.data)
    old.request(body={"model": "m"})
    a.wait_hits(1)
    before = endpoint(weir, a)
    # It moves to another source, gets another weight, and is the same all along.
    conf = config(b)
    conf["discovery"].append(static(a, weight=3)[0])
    apply(weir, conf)
    after = endpoint(weir, a)
    assert (after["generation"], after["weight"]) == (before["generation"], 3)
    assert weir.inflight() == 1
    opened.set()
    assert old.response().status == 200
    h.wait_until(lambda: weir.inflight() == 0, "the count to fall")
    old.close()


def test_those_who_wait_are_served_when_their_route_is_gone(start_weir, upstream):
    behaviour, opened = h.gate()
    a = upstream(behaviour, name="a")
    conf = {"health": QUIET, "discovery": static(a, max_concurrency=1), "routes": [{"match": {"path": "/v1/chat/**"}}]}
    weir = start_weir(conf)
    weir.wait_up(a)
    clients = [h.RawClient(weir.data) for _ in range(3)]
    for c in clients:
        c.request(body={"model": "m"})
    a.wait_hits(1)
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 2, "two to wait")
    apply(weir, {**conf, "routes": [{"match": {"path": "/v1/completions"}}]})
    assert weir.chat().error() == (404, "route_not_found")
    opened.set()
    assert [c.response().status for c in clients] == [200] * 3
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", route="/v1/chat/**", outcome="ok") == 3, "all to be counted")
    for c in clients:
        c.close()


def test_those_who_wait_for_an_endpoint_that_leaves_get_an_answer(start_weir, upstream):
    behaviour, opened = h.gate()
    a = upstream(behaviour, name="a")
    conf = {"health": QUIET, "models": {"m": {}}, "discovery": static(a, max_concurrency=1)}
    weir = start_weir(conf)
    weir.wait_up(a)
    served, waits = h.RawClient(weir.data), h.RawClient(weir.data)
    served.request(body={"model": "m"})
    a.wait_hits(1)
    waits.request(body={"model": "m"})
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 1, "one to wait")
    apply(weir, {"health": QUIET, "models": {"m": {}}})
    answer = waits.response()
    assert answer.error() == (503, "no_endpoint") and answer.header("retry-after")
    opened.set()
    assert served.response().status == 200
    for c in (served, waits):
        c.close()


def test_a_larger_limit_lets_the_waiting_in_at_once(start_weir, upstream):
    behaviour, opened = h.gate()
    a = upstream(behaviour, name="a")
    weir = start_weir({"health": QUIET, "discovery": static(a, max_concurrency=1)})
    weir.wait_up(a)
    clients = [h.RawClient(weir.data) for _ in range(3)]
    for c in clients:
        c.request(body={"model": "m"})
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 2, "two to wait")
    apply(weir, {"health": QUIET, "discovery": static(a, max_concurrency=3)})
    a.wait_hits(3)
    opened.set()
    assert [c.response().status for c in clients] == [200] * 3
    for c in clients:
        c.close()


def test_rotation_goes_on_where_it_was(start_weir, upstream):
    ups = [upstream(name=n) for n in "abc"]
    base = config(*ups, routes=[{"policy": "weighted_round_robin"}])
    for e, w in zip(base["discovery"][0]["endpoints"], (5, 3, 1)):
        e["weight"] = w
    base["slow_start"] = "off"

    def order(reload):
        weir = start_weir(base, args=["--threads", "1"])
        for u in ups:
            weir.wait_up(u)
        names = ""
        for i in range(27):
            names += weir.chat().header("x-worker")
            if reload:
                apply(weir, {**base, "limits": {"body": f"{1 + i % 2}MiB"}})
        return names

    plain = order(False)
    assert sorted(plain[:9]) == list("aaaaabbbc") and plain[:9] == plain[9:18]
    assert order(True) == plain


def test_another_policy_takes_over(start_weir, upstream):
    a, b = upstream(name="a"), upstream(name="b")
    weir = start_weir(config(a, b, slow_start="off", routes=[{"policy": "round_robin"}]))
    for u in (a, b):
        weir.wait_up(u)
    assert {weir.chat().header("x-worker") for _ in range(4)} == {"a", "b"}
    apply(weir, config(a, b, slow_start="off", routes=[{"policy": "consistent_hash"}]))
    assert len({weir.chat(headers={"X-Session-Id": "s"}).header("x-worker") for _ in range(6)}) == 1


# listeners -------------------------------------------------------------------------------------------------------


def listen_on(*ports):
    return {"listeners": [{"address": f"127.0.0.1:{p}"} for p in ports]}


def start_on(keeper, conf, tmp_path, port):
    """A Weir whose listeners stand in the file, so that a reload can change them."""
    path = tmp_path / "weir.yaml"
    path.write_text(text({**conf, **listen_on(port), "threads": 2}))
    weir = keeper.add(h.Process([h.BIN, "serve", "--config", path, "--admin-port", "0", "--registry-port", "0"]))
    bound = weir.ready()
    weir.admin_http = h.Http(h.address(bound["admin"]))
    weir.config_path = path
    return weir


def test_listeners_come_and_go_and_the_others_do_not_notice(keeper, upstream, tmp_path):
    behaviour, opened = h.gate()
    a = upstream(behaviour, name="a")
    kept, old, new = h.free_port(), h.free_port(), h.free_port()
    weir = start_on(keeper, config(a), tmp_path, kept)
    weir.wait_line("is up")
    conf = {**config(a), "threads": 2}
    apply(weir, {**conf, **listen_on(kept, old)})
    stay, leave = h.RawClient(("127.0.0.1", kept)), h.RawClient(("127.0.0.1", old))
    for c in (stay, leave):
        c.request(body={"model": "m"})
    a.wait_hits(2)
    assert apply(weir, {**conf, **listen_on(kept, new)})["changes"] == ["listeners"]
    weir.wait_line(f"listening on 127.0.0.1:{new} for clients")
    opened.set()
    for c in (stay, leave):                         # connections outlive their listener
        assert c.response().status == 200
        c.request(body={"model": "m"})
        assert c.response().status == 200
    assert h.Http(("127.0.0.1", new))("GET", "/health").status == 200

    def refused():
        try:
            socket.create_connection(("127.0.0.1", old), h.PATIENCE).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:                # it was in the backlog of the socket that was closed
            pass
        return False

    h.wait_until(refused, "the old port to be closed")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        message = apply(weir, {**conf, **listen_on(kept, taken)}, 400)["error"]["message"]
        assert message == f"listeners: cannot listen on 127.0.0.1:{taken}: Address already in use\n"
    assert h.Http(("127.0.0.1", new))("GET", "/health").status == 200
    for c in (stay, leave):
        c.close()


def test_listeners_change_many_times(keeper, upstream, tmp_path):
    a = upstream(name="a")
    kept = h.free_port()
    weir = start_on(keeper, config(a), tmp_path, kept)
    weir.wait_line("is up")
    conf = {**config(a), "threads": 2}
    for _ in range(40):                             # far more than there are places
        apply(weir, {**conf, **listen_on(kept, 0)})
        apply(weir, {**conf, **listen_on(kept)})
    fds = len(os.listdir(f"/proc/{weir.pid}/fd"))
    apply(weir, {**conf, **listen_on(kept, 0)})
    apply(weir, {**conf, **listen_on(kept)})
    h.wait_until(lambda: len(os.listdir(f"/proc/{weir.pid}/fd")) <= fds, "no descriptor to be left over")


# many, at once, at bad times -------------------------------------------------------------------------------------


@pytest.mark.race
def test_a_hundred_reloads_under_load_lose_nothing(start_weir, upstream):
    """Streams run through all of them, byte for byte; what was sent was counted; what did not change did not move."""
    stop = threading.Event()

    def serve(conn, request):
        if not request.asks("stream"):
            conn.answer(request)
            return
        conn.start_stream()
        n = 0
        while not stop.wait(0.01):
            conn.sse_event(f"{conn.upstream.name}-{n}")
            n += 1
        conn.sse_event(f"last-{n}")
        conn.end_stream()

    ups = [upstream(serve, name=n) for n in "ab"]
    spare = upstream(serve, name="spare")
    base = config(*ups, slow_start="off")
    weir = start_weir(base)
    for u in ups:
        weir.wait_up(u)
    generations = [endpoint(weir, u)["generation"] for u in ups]
    streams, failures, sent = [], [], [0] * 4

    def follow(c, out):
        try:
            c.request(body={"model": "m", "stream": True})
            status, _ = c.head()
            out.append(status)
            while (event := c.event()) is not None:
                out.append(event)
        except Exception as e:
            failures.append(e)

    def ask(i):
        http = h.Http(weir.data)
        while not stop.is_set():
            try:
                r = http("POST", "/v1/chat/completions", {"model": "m", "messages": []})
                sent[i] += 1
                if r.status != 200:
                    failures.append(r.body)
            except Exception as e:
                failures.append(e)
                return
        http.close()

    for _ in range(4):
        out = []
        t = threading.Thread(target=follow, args=(h.RawClient(weir.data), out))
        streams.append((t, out))
    askers = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for t in [t for t, _ in streams] + askers:
        t.start()
    h.wait_until(lambda: all(len(out) > 2 for _, out in streams), "the streams to run")
    for i in range(100):
        new = [
            {**base, "limits": {"body": f"{i + 1}MiB"}},
            {**base, "discovery": static(*ups, spare)},
            {**base, "routes": [{"match": {"path": "/v1/**"}, "queue": {"size": i + 1}}, {"match": {"path": f"/other{i}"}}]},
            {**base, "routes": [{"policy": ["chain", "least_request", "power_of_two"][i % 3]}]},
        ][i % 4]
        served = sum(sent)
        apply(weir, new)
        h.wait_until(lambda: sum(sent) > served + 3 or failures, "requests between two reloads")
    apply(weir, base)
    stop.set()
    for t in [t for t, _ in streams] + askers:
        t.join(4 * h.PATIENCE)
        assert not t.is_alive()
    assert not failures, failures[:3]
    for _, out in streams:
        assert out[0] == 200 and out[-1] == "[DONE]" and out[-2] == f"last-{len(out) - 3}"
        name = out[1].split("-")[0]
        assert out[1:-2] == [f"{name}-{n}" for n in range(len(out) - 3)]
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total") == sum(sent) + 4, "all to be counted")
    m = weir.metrics()
    assert m.sum("weir_requests_total", outcome="ok") == sum(sent) + 4 == sum(u.hits() for u in (*ups, spare))
    assert m.sum("weir_inflight") == 0 and m.sum("weir_queue_length") == 0
    assert [endpoint(weir, u)["generation"] for u in ups] == generations
    assert reloads(weir) == (101, 0)


@pytest.mark.race
def test_signals_at_once_and_calls_between(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    for i in range(10):
        weir.kill(signal.SIGHUP)
        weir.kill(signal.SIGHUP)
        apply(weir, config(a, limits={"body": f"{i + 1}MiB"}))
    h.wait_until(lambda: sum(reloads(weir)) >= 11, "at least one reload for each pair")
    assert reloads(weir)[1] == 0 and weir.chat().status == 200


def test_a_reload_while_draining_is_refused_and_the_stream_ends_well(start_weir, upstream):
    goes_on = threading.Event()

    def serve(conn, request):
        conn.start_stream()
        conn.sse_event("one")
        assert goes_on.wait(4 * h.PATIENCE)
        conn.sse_event("two")
        conn.end_stream()

    a, b = upstream(serve, name="a"), upstream(name="b")
    weir = start_weir(config(a, limits={"drain": "1h"}))
    weir.wait_up(a)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200 and c.event() == "one"
    weir.kill(signal.SIGTERM)
    weir.wait_line("draining for at most")
    assert "draining" in apply(weir, config(b), 503)["error"]["message"]
    weir.kill(signal.SIGHUP)
    weir.wait_line("configuration from SIGHUP refused, the old one stays: this Weir is draining")
    goes_on.set()
    assert [c.event(), c.event(), c.event()] == ["two", "[DONE]", None]
    c.close()
    assert weir.wait() == 0


def test_timeouts_of_idle_connections_count_from_the_reload(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a, limits={"idle": "1h"}))
    weir.wait_up(a)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m"})
    assert c.response().status == 200
    apply(weir, config(a, limits={"idle": "1ms"}))
    c.wait_closed()
    c.close()


def test_a_longer_head_is_taken_on_a_connection_from_before(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a, limits={"headers": "4KiB"}))
    weir.wait_up(a)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m"})
    assert c.response().status == 200
    apply(weir, config(a, limits={"headers": "512KiB"}))
    c.request(body={"model": "m"}, headers={"X-Long": "x" * 300_000})
    assert c.response().status == 200
    c.close()


def test_hundreds_of_reloads_leave_nothing_behind(start_weir, upstream):
    """Also while a request from the first one is under way: only its own configuration is kept."""
    behaviour, opened = h.gate(h.PATIENCE * 40)      # held over all the reloads, however slow the machine
    a = upstream(behaviour, name="a")
    weir = start_weir(config(a, routes=[{"timeouts": {"first_byte": "2h"}}]))
    weir.wait_up(a)
    old = h.RawClient(weir.data)
    old.request(body={"model": "m"})
    a.wait_hits(1)

    def resident():
        with open(f"/proc/{weir.pid}/status", encoding="utf-8") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    def many(n):
        for i in range(n):
            apply(weir, config(a, models={f"model-{k}": {"aliases": [f"alias-{k}"]} for k in range(300)},
                               limits={"body": f"{i + 1}MiB"}))

    def descriptors():
        return len(os.listdir(f"/proc/{weir.pid}/fd"))

    many(50)
    before = resident(), descriptors()
    many(250)                                       # a configuration of this size takes some 100 KiB
    # The last ones may be about to go.
    if h.SLOW == 1:                                 # sanitizers keep what was freed
        h.wait_until(lambda: resident() < before[0] + 10 * 1024, "the memory of all but the first and the last")
    h.wait_until(lambda: descriptors() <= before[1], "no descriptor to be left over")
    opened.set()
    assert old.response().status == 200
    old.close()


def test_aliases_and_the_default_model_follow(start_weir, upstream):
    a, b = upstream(name="a", models=("m",)), upstream(name="b", models=("n",))
    two = [{"type": "static", "endpoints": [{"url": a.url, "models": ["m"]}, {"url": b.url, "models": ["n"]}]}]
    weir = start_weir({"health": QUIET, "discovery": two})
    for u in (a, b):
        weir.wait_up(u)
    assert weir.chat(model="gpt").error() == (404, "model_not_found")
    assert weir.chat(model=None).error() == (400, "model_required")
    new = {"health": QUIET, "discovery": two, "models": {"n": {"aliases": ["gpt"]}}, "routes": [{"default_model": "m"}]}
    apply(weir, new)
    assert weir.chat(model="gpt").header("x-worker") == "b" and b.requests[-1].json()["model"] == "n"
    assert weir.chat(model=None).header("x-worker") == "a"
    assert [m["id"] for m in weir.http("GET", "/v1/models").json()["data"]] == ["gpt", "m", "n"]
    apply(weir, {**new, "models": {"m": {"aliases": ["gpt"]}}, "routes": [{"default_model": "n"}]})
    assert weir.chat(model="gpt").header("x-worker") == "a"
    assert weir.chat(model=None).header("x-worker") == "b"


def test_fewer_connections_let_nobody_new_in_and_throw_nobody_out(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    clients = [h.RawClient(weir.data) for _ in range(9)]
    for c in clients:
        c.request(body={"model": "m"})
        assert c.response().status == 200
    apply(weir, config(a, limits={"connections": 8}))
    new = h.RawClient(weir.data)
    new.request(body={"model": "m"})
    assert new.response().error() == (503, "overloaded")
    for c in clients:
        c.request(body={"model": "m"})
        assert c.response().status == 200
    apply(weir, config(a, limits={"connections": 100}))
    assert weir.chat().status == 200
    for c in (new, *clients):
        c.close()


def test_the_decision_log_follows(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a, decisions={"sample": "0/s"}))
    weir.wait_up(a)

    def logged():
        return len(weir.admin_http("GET", "/api/v1/decisions").json()["decisions"])

    assert weir.chat().status == 200 and logged() == 0
    apply(weir, config(a, decisions={"sample": "1000/s"}))
    assert weir.chat().status == 200 and logged() == 1


def test_without_a_file_sighup_goes_back_to_the_flags(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(args=["--worker-urls", a.url, "--health-check-timeout-secs", "240"], plain=True)
    weir.wait_up(a)
    apply(weir, json.dumps({"limits": {"body": "1KiB"}}))
    assert weir.chat(padding="x" * 2048).error() == (413, "body_too_large")
    assert hup(weir) == (2, 0)
    assert weir.chat(padding="x" * 2048).status == 200


def test_what_was_added_by_hand_or_registered_stays(start_weir, upstream):
    a, b, c = upstream(name="a"), upstream(name="b"), upstream(name="c")
    weir = start_weir(config(a))
    weir.wait_up(a)
    weir.register(b)
    assert weir.admin_http("POST", "/workers", {"url": c.url, "model_id": "m"}).status == 200
    weir.wait_up(c)
    weir.admin_http("POST", f"/api/v1/endpoints/127.0.0.1:{c.port}/drain")
    apply(weir, {"health": QUIET, "limits": {"body": "1MiB"}})
    assert endpoint(weir, a) is None
    assert endpoint(weir, c)["draining"] is True
    assert {weir.chat().header("x-worker") for _ in range(4)} == {"b"}


def test_whoever_is_in_the_backlog_of_a_listener_that_goes_is_served(keeper, upstream, tmp_path):
    a = upstream(name="a")
    kept, old = h.free_port(), h.free_port()
    weir = start_on(keeper, config(a), tmp_path, kept)
    weir.wait_line("is up")
    conf = {**config(a), "threads": 2}
    apply(weir, {**conf, **listen_on(kept, old)})
    with weir.frozen():
        waiting = [h.RawClient(("127.0.0.1", port)) for port in (old, kept) for _ in range(8)]
        for c in waiting:
            c.request(body={"model": "m"})
        write(weir, {**conf, **listen_on(kept)})
        weir.kill(signal.SIGHUP)
    assert [c.response().status for c in waiting] == [200] * 16
    weir.wait_line("configuration taken over from SIGHUP")
    for c in waiting:
        c.close()


# logs ------------------------------------------------------------------------------------------------------------


def requests_in(path):
    return [json.loads(line)["path"] for line in path.read_text().splitlines()] if path.exists() else []


def test_the_access_log_is_opened_again_by_sigusr1(start_weir, upstream, tmp_path):
    a = upstream(name="a")
    log, rotated = tmp_path / "access.jsonl", tmp_path / "access.jsonl.1"
    weir = start_weir(config(a, logging={"access": f"file:{log}"}))
    weir.wait_up(a)
    assert weir.http("GET", "/v1/one").status == 200
    h.wait_until(lambda: requests_in(log) == ["/v1/one"], "the first line")
    assert json.loads(log.read_text(encoding="utf-8"))["route"] == "/v1/**"
    log.rename(rotated)
    assert weir.http("GET", "/v1/two").status == 200
    h.wait_until(lambda: requests_in(rotated) == ["/v1/one", "/v1/two"], "the second line, in the renamed file")
    weir.kill(signal.SIGUSR1)
    weir.wait_line("SIGUSR1: the access log is opened again")
    assert weir.http("GET", "/v1/three").status == 200
    h.wait_until(lambda: requests_in(log) == ["/v1/three"], "the third line, in a new file")
    assert requests_in(rotated) == ["/v1/one", "/v1/two"]


def test_the_access_log_comes_moves_and_goes_by_reload(start_weir, upstream, tmp_path):
    a = upstream(name="a")
    first, second = tmp_path / "first", tmp_path / "second"
    weir = start_weir(config(a))
    weir.wait_up(a)
    weir.kill(signal.SIGUSR1)
    weir.wait_line("SIGUSR1: there is no log file to open again")
    apply(weir, config(a, logging={"access": f"file:{first}"}))
    assert weir.http("GET", "/v1/one").status == 200
    h.wait_until(lambda: requests_in(first) == ["/v1/one"], "the first line")
    apply(weir, config(a, logging={"access": f"file:{second}"}))
    assert weir.http("GET", "/v1/two").status == 200
    h.wait_until(lambda: requests_in(second) == ["/v1/two"], "the second line")
    apply(weir, config(a))
    assert weir.http("GET", "/v1/three").status == 200
    apply(weir, config(a, logging={"access": f"file:{second}"}))
    assert weir.http("GET", "/v1/four").status == 200
    h.wait_until(lambda: requests_in(second)[-1] == "/v1/four", "the fourth line")
    assert (requests_in(first), requests_in(second)) == (["/v1/one"], ["/v1/two", "/v1/four"])


def test_the_log_level_changes(start_weir, upstream):
    a = upstream(name="a")
    weir = start_weir(config(a))
    weir.wait_up(a)
    apply(weir, config(a, logging={"level": "error"}))
    weir.kill(signal.SIGUSR1)
    apply(weir, config(a, logging={"level": "info"}))
    weir.kill(signal.SIGUSR1)
    weir.wait_line("SIGUSR1")
    h.wait_until(lambda: weir.log_contains('"changes":..logging.level'), "the second change to be told")
