# SPDX-License-Identifier: Apache-2.0
"""Bad input anywhere gets an answer that says what and where, and loses nothing that was there."""
import json
import re
import socket

import pytest

import weir_harness as h

POLICY = "chain"

pytestmark = pytest.mark.sanitize

BODY = b'{"model":"m","messages":[]}'


def post(*fields, body=BODY, length=True, version="HTTP/1.1"):
    head = [f"POST /v1/chat/completions {version}", "Host: x", *fields]
    if length:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


BAD_HEADS = {
    "no_method": b" / HTTP/1.1\r\nHost: x\r\n\r\n",
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "http_9": b"GET / HTTP/9.1\r\nHost: x\r\n\r\n",
    "no_version": b"GET /\r\n\r\n",
    "bare_cr_in_value": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
    "nul_in_value": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    "space_before_colon": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX : a\r\n\r\n",
    "folded": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
    "no_host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "two_hosts": b"GET /v1/models HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "length_twice": post("Content-Length: 5"),
    "length_negative": post("Content-Length: -1", length=False),
    "length_plus": post("Content-Length: +27", length=False),
    "length_huge": post("Content-Length: 99999999999999999999999", length=False),
    "length_list": post("Content-Length: 27, 28", length=False),
    "both_framings": post("Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "chunked_not_last": post("Transfer-Encoding: chunked, gzip", length=False),
    "chunked_twice": post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked", length=False),
    "unknown_coding": post("Transfer-Encoding: xchunked", length=False),
    "chunked_on_1_0": post("Transfer-Encoding: chunked", length=False, version="HTTP/1.0"),
}


@pytest.mark.parametrize("name", BAD_HEADS)
def test_bad_heads_are_refused_and_never_reach_a_worker(weir, upstream, name):
    up = upstream(name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.send(BAD_HEADS[name])
    r = c.response()
    status, code = r.error()
    assert status in (400, 501, 505) and code == "invalid_request", (status, code)
    c.wait_closed()                                     # a peer that frames badly is not listened to further
    c.close()
    assert up.hits() == 0
    assert weir.chat().status == 200


BAD_CHUNKS = [b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\nx", b"3\r\nabcd\r\n0\r\n\r\n", b"3\nabc\r\n0\r\n\r\n",
              b"3 \r\nabc\r\n0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"\r\n0\r\n\r\n"]


@pytest.mark.parametrize("chunk", BAD_CHUNKS)
def test_bad_chunks_are_refused(weir, upstream, chunk):
    up = upstream(name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Model-Id: m\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
    try:
        assert c.response().error() == (400, "invalid_request")
    except EOFError:
        # the head alone decided the endpoint, so the connection may end without an answer; never with a success
        assert b" 200 " not in c.received
    c.close()
    h.wait_until(lambda: weir.inflight() == 0, "the ledger to be empty")
    assert weir.chat().status == 200


def test_byte_by_byte_is_as_good_as_at_once(weir, upstream):
    weir.register(upstream(name="u"))
    c = h.RawClient(weir.data)
    for b in post("X-Session-Id: s"):
        c.send(bytes([b]))
    assert c.response().status == 200
    c.close()


def test_pipelined_requests_are_answered_in_order(weir, upstream):
    weir.register(upstream(name="u"))
    c = h.RawClient(weir.data)
    c.send(b"".join(post(f"X-Request-Id: id-{i}") for i in range(20)))
    assert [c.response().header("X-Request-Id") for i in range(20)] == [f"id-{i}" for i in range(20)]
    c.close()


def test_http_1_0_is_answered_and_closed(weir, upstream):
    weir.register(upstream(name="u"))
    c = h.RawClient(weir.data)
    c.send(post(version="HTTP/1.0"))
    assert c.response().status == 200
    c.wait_closed()
    c.close()


@pytest.mark.parametrize("header, value", [("X-Required-Memory", "-1"), ("X-Required-Memory", "8GB"),
                                           ("X-Request-Timeout-Ms", "soon"), ("X-Request-Timeout-Ms", "-5"),
                                           ("X-Required-Memory", "nan"), ("X-Required-Memory", "")])
def test_a_header_that_cannot_be_read_names_itself(weir, upstream, header, value):
    weir.register(upstream(name="u"))
    r = weir.chat(headers={header: value})
    assert r.error() == (400, "invalid_header")
    assert header.lower() in r.json()["error"]["message"].lower() or r.json()["error"]["param"] == header


# the registry -----------------------------------------------------------------------------------------------------

GOOD = {"service": "llm", "url": "http://127.0.0.1:1", "models": [{"id": "m"}], "ttl_ms": 600000}
BAD_ENDPOINTS = {
    "not_json": b"{",
    "not_an_object": b"[]",
    "empty": b"",
    "no_url": {**GOOD, "url": None},
    "bad_scheme": {**GOOD, "url": "ftp://h:1"},
    "bad_port": {**GOOD, "url": "http://h:99999"},
    "ttl_negative": {**GOOD, "ttl_ms": -1},
    "ttl_text": {**GOOD, "ttl_ms": "soon"},
    "weight_negative": {**GOOD, "weight": -0.5},
    "models_not_a_list": {**GOOD, "models": "m"},
    "model_without_id": {**GOOD, "models": [{}]},
    "too_many_models": {**GOOD, "models": [{"id": f"m{i}"} for i in range(300)]},
    "long_name": {**GOOD, "service": "s" * 600},
    "concurrency_text": {**GOOD, "max_concurrency": "many"},
    "deep": b'{"metadata":' + b"[" * 5000 + b"]" * 5000 + b"}",
}


def listed(weir):
    """What the registry has, without the time that is left of each lease."""
    return re.sub(rb'"expires_in_ms":\d+', b"", weir.registry_http("GET", "/v1/endpoints").body)


@pytest.mark.parametrize("name", BAD_ENDPOINTS)
def test_bad_registrations_lose_nothing_that_was_there(weir, upstream, name):
    up = upstream(name="u")
    weir.register(up, metadata={"keep": "me"})
    before = listed(weir)
    r = weir.registry_http("PUT", "/v1/endpoints/u", BAD_ENDPOINTS[name])
    assert 400 <= r.status < 500, (r.status, r.body)
    assert r.body.strip(), "an error says what is wrong"
    assert listed(weir) == before
    assert weir.chat().status == 200 and up.hits() == 1


@pytest.mark.parametrize("body", [b"{", b"[]", {"seq": 2}, {"epoch": 1}, {"epoch": 1, "seq": "x"},
                                  {"epoch": 1, "seq": 2, "gpu_util_percent": 400}, {"epoch": 1, "seq": 2, "running": -1},
                                  {"epoch": 1, "seq": 2, "memory_free_bytes": "lots"}])
def test_bad_load_reports_change_nothing(weir, upstream, body):
    for name, running in (("u", 0), ("v", 5)):
        weir.register(upstream(name=name))
        weir.load(name, 1, running=running)
    r = weir.registry_http("POST", "/v1/endpoints/u/load", body)
    assert r.status == 400, (r.status, r.body)
    assert weir.load("u", 1)["accepted"] is False       # still the newest it knows
    assert {weir.chat().header("x-worker") for _ in range(4)} == {"u"}


def test_reports_and_renewals_of_nobody(weir):
    assert weir.registry_http("POST", "/v1/endpoints/nobody/load", {"epoch": 1, "seq": 1}).status == 404
    assert weir.registry_http("POST", "/v1/endpoints/nobody/renew").status == 404
    assert weir.registry_http("DELETE", "/v1/endpoints/nobody").status in (204, 404)
    assert weir.registry_http("GET", "/no/such/path").status == 404


def test_an_endpoint_that_is_weir_itself_is_refused(weir):
    before = listed(weir)
    r = weir.registry_http("PUT", "/v1/endpoints/me", {**GOOD, "url": weir.url})
    assert r.status in (400, 409), (r.status, r.body)
    assert listed(weir) == before


# the admin API ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"GARBAGE\r\n\r\n", b"GET /metrics HTTP/1.1\r\nContent-Length: x\r\n\r\n",
                                 b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n"])
def test_admin_and_registry_survive_garbage(weir, raw):
    for addr in (weir.admin, weir.registry):
        c = h.RawClient(addr)
        try:
            c.send(raw)
            assert 400 <= c.head()[0] < 500
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass                                        # closing at once is an answer too
        c.close()
    assert weir.metrics().value("weir_build_info") == 1


# configuration ----------------------------------------------------------------------------------------------------

BAD_CONFIGS = {     # text -> (line, what the message has to name)
    "unknown_key": ("listenerz: []\n", 1, "listeners"),
    "nested_unknown_key": ("limits:\n  body: 1MiB\n  bodyy: 2MiB\n", 3, "body"),
    "wrong_type": ("limits: 5\n", 1, "limits"),
    "no_unit": ("limits:\n  body: 5\n", 2, "body"),
    "bad_duration": ("health:\n  interval: soon\n", 2, "interval"),
    "unknown_policy": ("routes:\n  - policy: fastest\n", 2, "fastest"),
    "bad_url": ("discovery:\n  - type: static\n    endpoints:\n      - url: gpu1\n", 4, "url"),
    "unknown_source": ("discovery:\n  - type: carrier-pigeon\n", 2, "carrier-pigeon"),
    "broken_yaml": ("limits: {body: 1MiB\n", None, ""),
    "twice": ("threads: 1\nthreads: 2\n", 2, "threads"),
    "secret_in_plain": ("registry:\n  token: hunter2\n", 2, "token"),
    "open_without_token": ("admin:\n  address: 0.0.0.0:0\n", None, "token"),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_bad_configs_are_refused_with_place_and_name(tmp_path, name):
    text, line, word = BAD_CONFIGS[name]
    path = tmp_path / "weir.yaml"
    path.write_text(text)
    for command in (["check", path], ["serve", "--config", path]):
        rc, out, err = h.run_weir(*command)
        said = out + err
        assert rc != 0, command
        assert f"{path}:{line}:" in said if line else str(path) in said, said
        assert word in said, said
        assert "hunter2" not in said                    # a secret is not repeated


def test_a_config_that_is_not_there(tmp_path):
    rc, _, err = h.run_weir("serve", "--config", tmp_path / "none.yaml")
    assert rc != 0 and "none.yaml" in err


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        rc, _, err = h.run_weir("serve", "--host", "127.0.0.1", "--port", port, "--admin-port", 0, "--registry-port", 0)
        assert rc != 0 and str(port) in err


def test_a_good_config_passes_check(tmp_path):
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps({"gpu_weights": {"A100": 3, "T4": 1}, "routes": [{"policy": "chain"}]}))
    rc, out, err = h.run_weir("check", path)
    assert rc == 0, out + err
