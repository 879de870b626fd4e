# SPDX-License-Identifier: Apache-2.0
"""What the one who is woken at night reads: every message says what, where, and what to do; and what happens by itself."""
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

import weir_harness as h

QUICK = {"interval": "50ms", "timeout": "4m", "down_after": 2, "up_after": 1}


def static(*urls, models=None):
    return [{"type": "static", "endpoints": [{"url": u, **({"models": models} if models else {})} for u in urls]}]


def endpoint(weir, id):
    r = weir.admin_http("GET", f"/api/v1/endpoints/{id}")
    assert r.status == 200, r.body
    return r.json()


def host_port(up):
    return up.url.split("//", 1)[1]


# what does not start ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag, who, keys", [
    ("--port", "clients", "listeners.address or --host and --port"),
    ("--admin-port", "the admin API", "admin.address or --admin-port"),
    ("--registry-port", "the registry", "registry.address or --registry-port")])
def test_a_taken_port_names_itself_and_the_way_out(upstream, flag, who, keys):
    port = upstream(name="u").port
    ports = {"--port": "0", "--admin-port": "0", "--registry-port": "0", flag: str(port)}
    status, out, err = h.run_weir("serve", "--host", "127.0.0.1", *[w for kv in ports.items() for w in kv])
    assert (status, out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port} for {who}: Address already in use; choose another address with {keys}\n" in err


@pytest.mark.parametrize("config, words", [
    ({"admin": {"token": "env:WEIR_TEST_NOT_SET"}}, "admin.token: WEIR_TEST_NOT_SET: this environment variable is not set"),
    ({"registry": {"token": "file:/none/token"}}, "registry.token: /none/token"),
    ({"logging": {"access": "file:/none/access.jsonl"}},
     "cannot open the access log /none/access.jsonl (logging.access): No such file or directory")])
def test_what_cannot_be_read_names_its_key(tmp_path, config, words):
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps(config))
    status, out, err = h.run_weir("serve", "--config", path, "--host", "127.0.0.1", "--port", "0", "--admin-port", "0",
                                  "--registry-port", "0")
    assert (status, out) == (1, "") and words in err, err


@pytest.mark.parametrize("section, words", [
    ("listeners: [{tls: {cert: file:a.pem, key: file:a.key, client_cert: required}}]",
     "1:57: listeners[0].tls.client_cert: does nothing without client_ca, which says whose certificates are good"),
    ("admin: {tls: {cert: file:a.pem, key: file:a.key, client_cert: optional}}",
     "1:50: admin.tls.client_cert: does nothing without client_ca, which says whose certificates are good"),
    ("listeners: [{address: '127.0.0.1:0', socket_mode: '0600'}]",
     "1:38: listeners[0].socket_mode: only files of Unix sockets have it: address: unix:PATH")])
def test_a_key_that_would_do_nothing_is_an_error(tmp_path, section, words):
    path = tmp_path / "weir.yaml"
    path.write_text(section)
    status, out, err = h.run_weir("check", path)
    assert (status, out) == (1, "")
    assert re.sub(r"^(.*:1):\d+: ", r"\1: ", err) == f"{path}:1: {words.split(': ', 1)[1]}\n"


@pytest.mark.parametrize("name, reason", [
    ("weir.yaml", "what is there is no socket; Weir replaces only sockets"), ("none/weir.sock", "its folder does not exist")])
def test_a_unix_socket_that_cannot_be_says_why(tmp_path, name, reason):
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps({"listeners": [{"address": f"unix:{tmp_path / name}"}]}))
    status, _, err = h.run_weir("serve", "--config", path, "--admin-port", "0", "--registry-port", "0")
    assert status == 1 and f"cannot listen on unix:{tmp_path / name} for clients: {reason}; choose another address with" in err


# what runs, but not as it should ---------------------------------------------------------------------------------


def test_a_full_disk_loses_lines_and_no_request(start_weir, upstream):
    weir = start_weir({"logging": {"access": "file:/dev/full"}})
    weir.register(upstream(name="u"))
    assert weir.chat().status == 200
    weir.wait_line(r"error proxy: access log \(logging.access\): cannot write, lines are lost: No space left on device")
    assert weir.chat().status == 200
    # Every request is a line that was lost, and the operator can see how many.
    h.wait_until(lambda: (m := weir.metrics()).value("weir_access_log_lost_total") == m.sum("weir_requests_total") > 0,
                 "every lost line to be counted")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
def test_a_disk_that_was_full_costs_no_line_after_it(start_weir, upstream, tmp_path):
    """A full disk keeps half a line; the first line after it stands on a line of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], check=False, capture_output=True).returncode:
        pytest.skip("no mount here")
    try:
        path = disk / "access.jsonl"
        weir = start_weir({"logging": {"access": f"file:{path}"}})
        weir.register(upstream(name="u"))
        for _ in range(20):
            assert weir.chat().status == 200
        h.wait_until(lambda: weir.metrics().value("weir_access_log_lost_total") > 0, "the disk to be full")
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        assert weir.chat(headers=[("X-Request-Id", "after-it")]).status == 200
        h.wait_until(lambda: b"after-it" in path.read_bytes(), "the line after it")

        def adds_up():
            m = weir.metrics()
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            whole = [line for line in lines if line.endswith("}")]
            for line in whole:
                json.loads(line)
            assert len(lines) - len(whole) <= 1, lines
            return len(whole) + m.value("weir_access_log_lost_total") == m.sum("weir_requests_total")
        h.wait_until(adds_up, "all requests to be in the log or counted as lost")
        weir.stop()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_few_descriptors_are_said_with_the_way_out_and_hold(keeper, upstream, tmp_path):
    """256 descriptors: one connection a loop. Further clients are refused; whoever is served is served well."""
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps(h.patient({"discovery": static(upstream(name="u").url)})))
    weir = keeper.add(h.Process(["bash", "-c", f"ulimit -n 256; exec '{h.BIN}' serve --config '{path}' --host 127.0.0.1 --port 0 "
                                 "--admin-port 0 --registry-port 0 --threads 1"]))
    data = h.address(weir.ready()["data"])
    weir.wait_line("256 file descriptors carry 1: using that; raise the descriptor limit .ulimit -n, LimitNOFILE=. or lower "
                   "limits.connections")
    weir.wait_line("is up")
    first = h.RawClient(data)
    first.request(body={"model": "m"})
    h.wait_until(lambda: first.response().status == 200 or first.request(body={"model": "m"}), "the models to be known")
    second = h.RawClient(data)
    second.request(body={"model": "m"})
    assert second.response().error() == (503, "overloaded")
    weir.wait_line("connection limit of 1 reached")
    first.request(body={"model": "m"})
    assert first.response().status == 200
    first.close()
    second.close()


def test_a_name_that_does_not_resolve_is_told_where_it_is_looked_for(start_weir):
    url = "http://no-such-host.invalid:8000"
    weir = start_weir({"health": QUICK, "discovery": static(url)})
    weir.wait_line(f"warn control: endpoint no-such-host.invalid:8000 is down: .*esolv.* url={url}$", timeout=2 * h.PATIENCE)
    e = endpoint(weir, "no-such-host.invalid:8000")
    assert e["health"] == "down" and "esolv" in e["check_error"]
    assert weir.metrics().value("weir_endpoint_up", endpoint="no-such-host.invalid:8000") == 0


def test_a_sick_endpoint_says_why_until_it_is_well(start_weir, upstream):
    up = upstream(name="u")
    weir = start_weir({"health": QUICK, "discovery": static(up.url)})
    weir.wait_up(up)
    assert "check_error" not in endpoint(weir, host_port(up))
    up.healthy = False
    weir.wait_line(f"warn control: endpoint {host_port(up)} is down: status 503 url={up.url}$")
    assert (endpoint(weir, host_port(up))["health"], endpoint(weir, host_port(up))["check_error"]) == ("down", "status 503")
    up.healthy = True
    weir.wait_up(up)
    h.wait_until(lambda: "check_error" not in endpoint(weir, host_port(up)), "the reason to go")


def test_models_of_a_server_that_starts_late_are_asked_for_with_every_check(start_weir, upstream):
    """Not with every sixth only: it would be up, and its model unknown, for half a minute."""
    up = upstream(name="late")
    up.healthy = False
    weir = start_weir({"health": QUICK, "discovery": static(up.url)})

    def asked(path):
        with up.lock:
            return sum(p.path == path for p in up.probes)
    h.wait_until(lambda: asked("/v1/models") >= 24, "the models to be asked for again and again")
    assert asked("/health") < 96            # of one check in six it would be 138; a question under way is not asked twice
    up.healthy = True
    h.wait_until(lambda: weir.chat().status == 200, "its model to be known")


def test_a_worker_that_stands_still_is_left_out_and_comes_back(start_weir, start_worker):
    hung, well = start_worker("--time-scale", "1000"), start_worker("--time-scale", "1000")
    config = {"health": {**QUICK, "timeout": "200ms"}, "discovery": static(hung.url, well.url, models=["m"])}
    weir = start_weir(config)
    for w in (hung, well):
        weir.wait_up(w)
    with hung.frozen():
        def left_out():
            """200 ms are too little for the well one, too, when the machine is away: it has minutes while it is looked at."""
            for health, down in ((config["health"], hung), (QUICK, None)):
                applied = json.dumps(h.patient({**config, "health": health}))
                assert weir.admin_http("POST", "/api/v1/config/apply", applied).status == 200
                if down:
                    h.wait_until(lambda: weir.up(hung) == 0, "the hung one to be down")
            weir.wait_up(well)
            return weir.up(hung) == 0   # else that was an older miss, and an answer from before came in between
        h.wait_until(left_out, "the hung one alone to be down")
        weir.wait_line(f"endpoint {host_port(hung)} is down: .*timed out")
        assert [weir.chat(max_tokens=1).status for _ in range(20)] == [200] * 20
    weir.wait_up(hung)


def test_a_worker_that_restarts_on_its_port_is_used_again(start_weir, start_worker, keeper):
    port = h.free_port()
    old = start_worker("--time-scale", "1000", "--port", str(port))
    weir = start_weir({"health": QUICK, "discovery": static(old.url, models=["m"])})
    weir.wait_up(old)
    assert weir.chat(max_tokens=1).status == 200
    old.kill_9()
    weir.wait_line(f"endpoint {host_port(old)} is down: ")
    assert weir.chat().status == 502
    new = start_worker("--time-scale", "1000", "--port", str(port))
    assert new.url == old.url
    weir.wait_up(old)
    assert weir.chat(max_tokens=1).status == 200


def test_a_drained_endpoint_alone_is_503_and_shows_it(weir, upstream):
    weir.register(upstream(name="u"))
    assert weir.admin_http("POST", "/api/v1/endpoints/u/drain").status == 200
    r = weir.chat()
    assert r.error() == (503, "no_endpoint") and int(r.header("Retry-After")) >= 1
    assert endpoint(weir, "u")["draining"] is True
    assert weir.metrics().value("weir_endpoints", source="registry", state="draining") == 1
    weir.wait_line("info admin: endpoint u drains")
    assert weir.admin_http("POST", "/api/v1/endpoints/u/undrain").status == 200
    assert weir.chat().status == 200


def test_a_lease_that_ends_and_one_that_is_given_back_are_told(weir, upstream):
    up = upstream(name="u")
    weir.register(up, ttl_ms=1000, wait=False)
    weir.wait_line("warn registry: lease of native/u ended: not heard of for 1000 ms; it has to register again")
    h.wait_until(lambda: weir.chat().status == 503, "it to be gone")
    assert weir.chat().error() == (503, "no_endpoint")
    weir.register(up)
    assert weir.chat().status == 200
    weir.deregister("u")
    weir.wait_line("info registry: native/u deregistered")


def test_an_instance_without_beats_is_left_out_and_shows_it(weir, upstream):
    up = upstream(name="u")
    fast = "preserved.heart.beat.interval=100,preserved.heart.beat.timeout=300,preserved.ip.delete.timeout=3600000,model_id=m"
    call = f"/nacos/v1/ns/instance?serviceName=s&ip=127.0.0.1&port={up.port}"
    assert weir.registry_http("POST", f"{call}&metadata={fast}").body == b"ok"
    h.wait_until(lambda: weir.chat().status == 503, "its beats to be missed")
    assert weir.chat().error() == (503, "no_endpoint")
    assert endpoint(weir, host_port(up))["registry_healthy"] is False
    beat = f"/nacos/v1/ns/instance/beat?serviceName=s&ip=127.0.0.1&port={up.port}"
    h.wait_until(lambda: weir.registry_http("PUT", beat).status == 200 and weir.chat().status == 200, "a beat to bring it back")


def test_the_listener_that_is_taken_is_the_one_that_is_named(tmp_path, upstream):
    port = upstream(name="u").port
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps({"listeners": [{"address": "127.0.0.1:0"}, {"address": f"127.0.0.1:{port}"}]}))
    status, _, err = h.run_weir("serve", "--config", path, "--admin-port", "0", "--registry-port", "0")
    assert status == 1 and f"cannot listen on 127.0.0.1:{port} for clients: Address already in use" in err


@pytest.mark.parametrize("fault, stream, outcome, words, timeouts", [
    ("reset", False, "upstream_error", "broke off before its answer request_id=it-was-me", {}),
    ("reset_after=2", True, "upstream_aborted", "broke off in the middle of its answer", {}),
    ("hang", False, "timeout", r"did not begin to answer in time \(timeouts.first_byte\) request_id=it-was-me",
     {"first_byte": "500ms"}),
    ("hang_after=2", True, "timeout", r"fell silent in the middle of its answer \(timeouts.between_bytes\)",
     {"between_bytes": "500ms"})])
def test_the_log_names_the_endpoint_that_failed_a_request(start_weir, start_worker, fault, stream, outcome, words, timeouts):
    """The client is told no name, so the log is."""
    worker = start_worker("--time-scale", "100", "--fault", fault)
    weir = start_weir({"routes": [{"timeouts": timeouts}],
                       "discovery": static(worker.url, models=["m"])})
    weir.wait_up(worker)
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": stream, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
              headers={"X-Request-Id": "it-was-me"})
    c.wait_closed() if stream else c.response()
    c.close()
    assert b"[DONE]" not in c.received and not c.received.endswith(b"0\r\n\r\n")
    weir.wait_line(f"warn proxy: endpoint={host_port(worker)} {words}")
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total", model="m", outcome=outcome) == 1, "it to be counted")


@pytest.mark.parametrize("scheme", ["admin", "registry"])
def test_a_wrong_token_is_told_how_to_send_the_right_one(start_weir, scheme):
    weir = start_weir({scheme: {"token": "env:WEIR_TEST_TOKEN"}}, env={"WEIR_TEST_TOKEN": "sesame"})
    http, path = (weir.admin_http, "/metrics") if scheme == "admin" else (weir.registry_http, "/v1/endpoints")
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        r = http("GET", path, None, headers)
        assert (r.status, r.json()["error"]["code"]) == (401, "unauthorized")
        assert r.json()["error"]["message"] == f"send the {scheme} token as Authorization: Bearer TOKEN"
        assert b"sesame" not in r.body
    assert http("GET", path, None, {"Authorization": "Bearer sesame"}).status == 200
    assert not weir.log_contains("sesame")


def test_a_live_lease_is_used_before_its_first_check_a_static_url_after_it(start_weir, upstream):
    """Who registers says that it is ready; of a line in a file nobody knows."""
    registered, listed = upstream(name="r", models=("r",)), upstream(name="s", models=("s",))
    for u in (registered, listed):
        u.probe_gate.clear()                # their checks hang
    weir = start_weir({"health": {"timeout": "4m"}, "discovery": static(listed.url, models=["s"])})
    weir.register(registered, models=("r",), wait=False)
    h.wait_until(lambda: weir.chat("r").status == 200, "the registered one to be used")
    beats = "preserved.heart.beat.timeout=3600000,preserved.ip.delete.timeout=7200000"      # none are sent here
    r = weir.registry_http("POST", f"/nacos/v1/ns/instance?serviceName=s&ip=127.0.0.1&port={registered.port}"
                                   f"&metadata=model_id=n,{beats}")
    assert r.body == b"ok"
    h.wait_until(lambda: weir.chat("n").status == 200, "what Nacos clients add to it to be used")
    assert weir.chat("s").error() == (503, "no_endpoint")
    assert (endpoint(weir, host_port(listed))["health"], endpoint(weir, host_port(listed))["awaits_check"]) == ("unknown", True)
    for u in (registered, listed):
        u.probe_gate.set()
    weir.wait_up(listed)
    assert weir.chat("s").status == 200


# the end and the next beginning ----------------------------------------------------------------------------------


def test_the_second_signal_ends_a_drain_at_once(start_weir, upstream):
    def endless(conn, request):
        conn.start_stream()
        conn.sse_event({"n": 1})
        conn.wait_closed()

    weir = start_weir({"limits": {"drain": "10m"}})
    weir.register(upstream(endless, name="u"))
    c = h.RawClient(weir.data)
    c.request(body={"model": "m", "stream": True})
    assert c.head()[0] == 200 and c.event() == '{"n": 1}'
    weir.kill(signal.SIGTERM)
    weir.wait_line("info serve: SIGTERM: draining for at most 600 s; a second signal ends it at once")
    assert weir.running()
    weir.kill(signal.SIGTERM)
    assert weir.wait() == 0
    weir.wait_line("warn serve: SIGTERM, the second signal: ending now")
    c.wait_closed()
    assert b"[DONE]" not in c.received and not c.received.endswith(b"0\r\n\r\n")
    c.close()


@pytest.mark.sanitize
def test_kill_9_and_restart_who_is_used_when(start_weir, upstream, tmp_path):
    """Saved endpoints come back; one is used when its check passes, one when it renews, a dead one never."""
    path = str(tmp_path / "registry.json")
    config = {"registry": {"state_file": path}, "health": {**QUICK, "timeout": "4m"}}
    checked, renewed, dead = (upstream(name=n, models=(n,)) for n in ("checked", "renewed", "dead"))
    weir = start_weir(config)
    for u in (checked, renewed, dead):
        weir.register(u, models=(u.name,))

    def saved():
        try:
            with open(path, encoding="utf-8") as f:
                return len(json.load(f)["endpoints"]) == 3
        except FileNotFoundError:
            return False
    h.wait_until(saved, "the state to be saved")
    weir.kill_9()
    for u in (checked, renewed):
        u.probe_gate.clear()                # its checks hang
    dead.refuse()

    weir = start_weir(config)
    weir.wait_line("3 instances come back in probation")
    for name in ("checked", "renewed", "dead"):     # known, not used
        assert weir.chat(name).error() == (503, "no_endpoint")
        assert name == "dead" or endpoint(weir, name)["awaits_check"] is True   # that one's check may have failed by now
    assert weir.registry_http("POST", "/v1/endpoints/renewed/renew").status == 200
    h.wait_until(lambda: weir.chat("renewed").status == 200, "the one that renewed to be used")
    assert "awaits_check" not in endpoint(weir, "renewed")
    assert weir.chat("checked").error() == (503, "no_endpoint")
    checked.probe_gate.set()
    weir.wait_up(checked)
    assert weir.chat("checked").status == 200
    weir.wait_line("endpoint dead is down: ")
    assert weir.chat("dead").error() == (503, "no_endpoint")
    assert "check_error" in endpoint(weir, "dead")
    renewed.probe_gate.set()


@pytest.mark.skipif(h.SLOW > 1, reason="the second is one of the real time of a plain build")
def test_kill_9_loses_at_most_the_last_second(start_weir, tmp_path):
    """Registrations without a pause, then kill -9: each that was answered a second before is in the file."""
    path = str(tmp_path / "registry.json")
    weir = start_weir({"registry": {"state_file": path}})
    answered, saves, over = [], set(), threading.Event()

    def watch():
        """When each file was written and when it took its place, by the word of the kernel."""
        while not over.wait(0.005):
            with contextlib.suppress(FileNotFoundError):
                seen = os.stat(path)
                saves.add((seen.st_mtime, seen.st_ctime))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.time()
    while time.time() - began < 3:
        id = f"w{len(answered)}"
        r = weir.registry_http("PUT", f"/v1/endpoints/{id}", {"service": "s", "url": f"http://10.0.0.1:{1000 + len(answered)}"})
        assert r.status == 201
        answered.append((time.time(), id))
    killed = time.time()
    weir.kill_9()
    over.set()
    watcher.join()
    with open(path, encoding="utf-8") as f:
        kept = {e["endpoint"]["id"] for e in json.load(f)["endpoints"]}

    def longest(times):
        return max(b - a for a, b in zip(times, times[1:]))
    # A machine that was away for a while was away from the writing, too; and a disk may be slow: a save begins when the one
    # before it is done, every 0.7 s, and what comes while it is written is in the next one.
    away = longest([began, *(at for at, _ in answered), killed])
    slow = max(0.0, longest([began, *sorted(at for _, at in saves if began < at < killed), killed]) - 0.75)
    disk = max(placed - written for written, placed in saves)
    lost = [id for at, id in answered if killed - at > 1 + away + 2 * slow + disk and id not in kept]
    assert lost == [] and len(kept) > 0


@pytest.mark.parametrize("text", ['{"format":', "", '{"format":"other","version":1,"endpoints":[]}'])
def test_a_damaged_state_file_is_kept_aside_and_said(start_weir, tmp_path, text):
    path = tmp_path / "registry.json"
    path.write_text(text)
    weir = start_weir({"registry": {"state_file": str(path)}})
    weir.wait_line(f"warn registry: state file {re.escape(str(path))}: .*; kept as {re.escape(str(path))}.bad")
    assert (tmp_path / "registry.json.bad").read_text() == text


def test_a_state_file_that_cannot_be_written_is_said_once_and_tried_again(start_weir, tmp_path, upstream):
    folder = tmp_path / "later"
    path = folder / "registry.json"
    weir = start_weir({"registry": {"state_file": str(path)}})
    weir.register(upstream(name="u"))
    weir.wait_line(rf"warn registry: cannot save {re.escape(str(path))} \(registry.state_file\): No such file or directory; "
                   "going on without, trying again")
    assert weir.chat().status == 200
    os.mkdir(folder)
    weir.wait_line(f"info registry: saving {re.escape(str(path))} works again", timeout=2 * h.PATIENCE)
    assert [e["endpoint"]["id"] for e in json.loads(path.read_text())["endpoints"]] == ["u"]
    assert len(re.findall("cannot save", weir.output)) == 1


def test_a_worker_says_that_it_goes_on_trying(start_worker):
    port = h.free_port()
    worker = start_worker("--registry", f"http://127.0.0.1:{port}", "--service", "x")
    worker.wait_line(f"warn report: registration failed: .* url=http://127.0.0.1:{port}/v1/endpoints/.*; trying again until it works$")
