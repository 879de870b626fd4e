# SPDX-License-Identifier: Apache-2.0
"""What docs/threat-model.md claims and no other test tries."""
import json
import os
import re
import urllib.parse

import pytest

import weir_harness as h

TOKEN = "t0ken-7261"
NO_BEATS = {"preserved.heart.beat.timeout": "3600000", "preserved.ip.delete.timeout": "7200000"}
EVIL = "m\r\nX-Evil: 1\r\n\r\nHTTP/1.1 200 OK\n\x1b[31m\"<script>"


def parse_limits(pid):
    with open(f"/proc/{pid}/limits", encoding="ascii") as f:
        return {line[:26].strip(): line[26:].split()[:2] for line in f}


def test_no_core_is_written(weir):
    """A core would hold prompts and tokens; the hard limit stays, so that an operator can still ask for one."""
    import resource
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    soft, told = parse_limits(weir.pid)["Max core file size"]
    assert (soft, told) == ("0", "unlimited" if hard == resource.RLIM_INFINITY else str(hard))


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "[::]", "224.0.0.1",
                                  "255.255.255.255", "[ff02::1]", "0.1.2.3"])
def test_who_registers_cannot_name_addresses_of_nobody(weir, host):
    """Link-local (the machine's own credentials in a cloud), unspecified, multicast: by either API."""
    r = weir.registry_http("PUT", "/v1/endpoints/x", {"service": "s", "url": f"http://{host}:80", "models": ["m"]})
    assert r.status == 409 and r.json()["error"]["code"] == "refused"
    ip = urllib.parse.quote(host.strip("[]"))
    r = weir.registry_http("POST", f"/nacos/v1/ns/instance?serviceName=s&ip={ip}&port=80&metadata=model_id%3Dm")
    assert r.status in (400, 403)
    assert weir.registry_http("GET", "/v1/endpoints").json()["endpoints"] == []
    assert weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"] == []


def test_other_spellings_of_an_address_are_names_that_do_not_resolve(start_weir):
    weir = start_weir({"routes": [{"timeouts": {"connect": "2s"}}]})     # a resolver that is out of reach may take longer
    for n, host in enumerate(("2852039166", "0xa9fea9fe", "169.254.43518", "0251.0376.0251.0376")):
        r = weir.registry_http("PUT", f"/v1/endpoints/x{n}", {"service": "s", "url": f"http://{host}:80", "models": [f"m{n}"]})
        if r.status == 201:
            h.wait_until(lambda n=n: f"m{n}" in weir.admin_http("GET", "/api/v1/endpoints").body.decode(), "it to be known")
            assert weir.chat(model=f"m{n}").status in (502, 503)


@pytest.mark.sanitize
def test_registered_words_break_no_line_anywhere(start_weir, upstream):
    """Names and metadata with line ends, quotes and escapes: heads, logs, metrics, lists and pages stay whole."""
    weir = start_weir({"logging": {"level": "debug"}})
    up = upstream(name="u")
    for field in ("service", "id", "region"):
        r = weir.registry_http("PUT", "/v1/endpoints/x", {"service": "s", "url": up.url, "models": ["m"], field: EVIL})
        assert r.status == 400, field
    for models in ([EVIL], [{"id": EVIL}], [{"id": "m", "version": EVIL}]):
        assert weir.registry_http("PUT", "/v1/endpoints/x", {"service": "s", "url": up.url, "models": models}).status == 400
    words = {"model_id": EVIL, "model_version": EVIL, "gpu_type": EVIL, "engine": EVIL, EVIL: EVIL, "health_status": EVIL}
    query = urllib.parse.urlencode({"serviceName": "s", "ip": "127.0.0.1", "port": up.port, "metadata": json.dumps(words)})
    assert weir.registry_http("POST", f"/nacos/v1/ns/instance?{query}").status in (200, 400)
    query = urllib.parse.urlencode({"serviceName": "s", "ip": "127.0.0.1", "port": up.port,
                                    "metadata": json.dumps({"model_id": "m", "gpu_type": EVIL, EVIL: EVIL, **NO_BEATS})})
    r = weir.registry_http("POST", f"/nacos/v1/ns/instance?{query}")
    if r.status == 200:
        h.wait_until(lambda: weir.chat().status == 200, "the model to be known")
        c = h.RawClient(weir.data)
        c.request(body={"model": "m"}, headers=[("X-Weir-Explain", "1")])
        status, head = c.head()
        assert status == 200 and not [k for k, _ in head if k.lower() == "x-evil"], head
        c.close()
    c = h.RawClient(weir.data)
    c.request(body={"model": EVIL, "messages": []})     # a client's word comes back in the error
    answer = c.response()
    assert answer.status in (404, 503) and not answer.header("X-Evil")
    c.close()
    for page in ("/api/v1/endpoints", "/api/v1/decisions"):
        r = weir.admin_http("GET", page)
        assert r.json() and r.header("Content-Type") == "application/json"
    assert weir.http("GET", "/v1/models").header("Content-Type") == "application/json"
    assert weir.metrics().samples                       # every line of it is a sample
    weir.stop()
    assert not [line for line in weir.lines if "\x1b" in line or line.startswith(("X-Evil", "HTTP/1.1"))]


@pytest.mark.sanitize
def test_what_each_port_serves_without_and_with_a_token(start_weir, upstream):
    """The table of the threat model."""
    weir = start_weir({"admin": {"token": "env:WEIR_T"}, "registry": {"token": "env:WEIR_T"}}, env={"WEIR_T": TOKEN})
    up = upstream(name="u")
    body = {"service": "s", "url": up.url, "models": ["m"], "ttl_ms": 600000}
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    almost = [{}, {"Authorization": TOKEN}, {"Authorization": "Bearer " + TOKEN[:-1]}, {"Authorization": f"Bearer {TOKEN}x"},
              {"Authorization": "Bearer "}, {"Authorization": f"Basic {TOKEN}"}, {"X-Weir-Token": TOKEN[:-1]}]
    admin = [("GET", "/metrics"), ("GET", "/api/v1/endpoints"), ("GET", "/api/v1/decisions"), ("GET", "/api/v1/config"),
             ("POST", "/api/v1/explain"), ("POST", "/api/v1/endpoints/x/drain"), ("GET", "/workers"), ("POST", "/workers"),
             ("DELETE", "/workers/x")]
    for headers in almost:
        for method, path in admin:
            r = weir.admin_http(method, path, b"{}" if method == "POST" else None, headers)
            assert r.status == 401, (method, path, headers, r.status)
            assert TOKEN not in r.body.decode() + str(r.headers)
        for method, path in (("PUT", "/v1/endpoints/x"), ("GET", "/v1/endpoints"), ("DELETE", "/v1/endpoints/x"), ("GET", "/v1/watch"),
                             ("POST", "/v1/endpoints/x/load"), ("POST", "/v1/endpoints/x/renew")):
            assert weir.registry_http(method, path, body if method != "GET" else None, headers).status == 401
    assert weir.registry_http("PUT", "/v1/endpoints/x", body, bearer).status == 201
    assert weir.admin_http("GET", "/metrics", headers=bearer).status == 200
    # The data port has no admin path, with the token neither: they go to nobody.
    h.wait_until(lambda: weir.chat().status == 200, "the endpoint to be used")
    before = up.hits()
    for path in ("/metrics", "/api/v1/endpoints", "/workers", "/v1/endpoints"):
        r = weir.http("GET", path, headers=bearer)
        assert b"weir_" not in r.body and b"ttl_ms" not in r.body, path
    assert all(TOKEN not in str(vars(r)) or r.path.startswith(("/metrics", "/api", "/workers", "/v1/endpoints"))
               for r in up.requests[before:])
    weir.stop()
    assert TOKEN not in weir.output


def test_the_tokens_place_is_told_and_never_the_token(start_weir, tmp_path):
    """What the process shows of itself: its command line and its configuration page."""
    secret = tmp_path / "token"
    secret.write_text(TOKEN + "\n")
    weir = start_weir({"admin": {"token": f"file:{secret}"}})
    r = weir.admin_http("GET", "/api/v1/config", headers={"Authorization": f"Bearer {TOKEN}"})
    assert TOKEN not in r.body.decode()
    with open(f"/proc/{weir.pid}/cmdline", "rb") as f:
        assert TOKEN.encode() not in f.read()


def test_every_test_that_the_threat_model_names_exists():
    with open(os.path.join(h.ROOT, "docs", "threat-model.md"), encoding="utf-8") as f:
        page = f.read()
    named = set(re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", page))
    assert len(named) > 15
    for name, test in named:
        with open(os.path.join(h.ROOT, "tests", "e2e", name), encoding="utf-8") as f:
            assert not test or f"def {test}(" in f.read(), (name, test)
