# SPDX-License-Identifier: Apache-2.0
"""Layer-7 routes: by path, method, host, header, query and Content-Type; the first that fits counts."""
import json

import pytest

import weir_harness as h

FORM = (b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n')
AUDIO = {"Content-Type": "multipart/form-data; boundary=b"}


@pytest.mark.sanitize
def test_json_and_multipart_go_to_different_pools(start_weir, upstream):
    weir = start_weir({"routes": [{"name": "audio", "labels": {"pool": "audio"},
                                   "match": {"content_types": ["multipart/form-data", "audio/*"]}},
                                  {"labels": {"pool": "text"}}]})
    for name, labels in (("a", {"pool": "audio"}), ("t", {"pool": "text"}), ("n", {})):
        weir.register(upstream(name=name), labels=labels)
    for _ in range(6):
        assert weir.chat().header("x-worker") == "t"
        r = weir.http("POST", "/v1/audio/transcriptions", FORM, AUDIO)
        assert (r.status, r.header("x-worker")) == (200, "a")
    assert weir.http("POST", "/v1/x", b"RIFF", {"Content-Type": "Audio/wav", "X-Model-Id": "m"}).header("x-worker") == "a"
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total") == 13, "all to be counted")
    m = weir.metrics()
    assert m.value("weir_requests_total", route="audio", model="m", outcome="ok") == 7
    assert m.value("weir_requests_total", route="/v1/**", model="m", outcome="ok") == 6


def test_each_model_of_each_route_has_counters_of_its_own(start_weir, upstream):
    weir = start_weir({"routes": [{"name": "a", "match": {"path": "/v1/a"}}, {"name": "b", "match": {"path": "/v1/b"}}]})
    weir.register(upstream(name="u"), models=("m", "n"))
    want = {("a", "m"): 1, ("a", "n"): 2, ("b", "m"): 3, ("b", "n"): 4}
    for (route, model), n in want.items():
        for _ in range(n):
            assert weir.http("POST", f"/v1/{route}", {"model": model}).status == 200
    h.wait_until(lambda: weir.metrics().sum("weir_requests_total") == 10, "all to be counted")
    got = {(l["route"], l["model"]): v for l, v in weir.metrics().all("weir_requests_total", outcome="ok") if v}
    assert got == want


def test_a_pool_without_a_labelled_endpoint_is_empty_until_one_comes(start_weir, upstream):
    weir = start_weir({"routes": [{"labels": {"tier": "gold"}}]})
    weir.register(upstream(name="plain"), labels={"tier": "tin"})
    assert weir.chat().error() == (503, "no_endpoint")
    asked = weir.admin_http("POST", "/api/v1/explain", {"model": "m"}).json()
    assert [(e["endpoint"], e["rule"]) for e in asked["elsewhere"]] == [("plain", "labels")]
    gold = upstream(name="gold")
    weir.register(gold, labels={"tier": "gold", "more": "x"})
    assert weir.chat().header("x-worker") == "gold"
    weir.register(gold, wait=False, labels={"tier": "tin"})
    h.wait_until(lambda: weir.chat().status == 503, "the changed label to count")


def test_the_first_route_whose_every_condition_holds(start_weir, upstream):
    def label(name):
        return {"name": name, "labels": {"r": name}}

    weir = start_weir({"routes": [
        {**label("host"), "match": {"hosts": ["eu.example.com", "*.wild.org"]}},
        {**label("header"), "match": {"headers": {"X-Team": "blue", "X-Any": "*"}}},
        {**label("query"), "match": {"query": {"tier": "a b"}}},
        {**label("both"), "match": {"methods": ["PUT"], "path": "/v1/files/**", "content_types": ["text/plain"]}},
        {**label("method"), "match": {"methods": ["PUT", "PATCH"]}},
        {**label("rest"), "match": {"path": "/v1/chat/completions"}}]})
    for name in ("host", "header", "query", "both", "method", "rest"):
        weir.register(upstream(name=name), labels={"r": name})

    def goes(method="POST", path="/v1/chat/completions", **headers):
        r = weir.http(method, path, json.dumps({"model": "m"}), {k.replace("_", "-"): v for k, v in headers.items()})
        return r.header("x-worker") or r.error()

    assert goes(Host="EU.example.com:8080") == goes(Host="a.b.wild.org") == "host"
    assert goes(Host="wild.org") == goes(Host="us.example.com") == "rest"
    assert goes(X_Team="blue", X_Any="") == "header"
    assert goes(X_Team="Blue", X_Any="1") == goes(X_Team="blue") == "rest"
    assert goes(path="/v1/chat/completions?x=1&tier=a%20b") == goes(path="/v1/chat/completions?tier=a+b") == "query"
    assert goes(path="/v1/chat/completions?tier=ab") == "rest"
    assert goes(method="PUT", path="/v1/files/1", Content_Type="text/plain; charset=utf-8") == "both"
    assert goes(method="PUT", path="/v1/files/1", Content_Type="text/html") == goes(method="PATCH") == "method"
    assert goes(X_Team="blue", X_Any="1", Host="eu.example.com") == "host"     # both fit: the first counts
    assert goes(method="PUT", path="/v1/files/1", Content_Type="text/plain", X_Team="blue", X_Any="1") == "header"
    assert goes(path="/v1/files/1") == (404, "route_not_found")
    # what is only asked about takes the same way
    for question, route in (({"path": "/v1/chat/completions?tier=a+b"}, "query"),
                            ({"headers": {"Host": "eu.example.com"}}, "host"),
                            ({"method": "PUT", "path": "/v1/files/1", "headers": {"Content-Type": "text/plain"}}, "both")):
        asked = weir.admin_http("POST", "/api/v1/explain", {**question, "model": "m"})
        assert asked.json()["route"] == route


@pytest.mark.parametrize("routes, complaint", [
    ([{"match": {"methods": ["POST", "GET"]}}, {"name": "b", "match": {"methods": ["GET"]}}],
     'routes[1].match.path: "/v1/**" is never reached: routes[0] takes all of it with "/v1/**"'),
    ([{"match": {"path": "/readiness"}}],
     'routes[0].match.path: "/readiness" is never reached: Weir answers it itself'),
    ([{"match": {"methods": ["CONNECT"]}}], 'routes[0].match.methods[0]: "CONNECT" is never reached: Weir refuses it'),
    ([{"match": {"headers": {"Host": "x"}}}], 'routes[0].match.headers.Host: "Host" is matched by hosts'),
    ([{"match": {"methods": ["GET"]}}, {}],
     'routes[1].name: "/v1/**" is what routes[0] is called already; give this one a name of its own'),
])
def test_what_cannot_match_is_an_error(tmp_path, routes, complaint):
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps({"routes": routes}))
    rc, out, err = h.run_weir("check", path)
    assert rc != 0 and complaint in out + err
