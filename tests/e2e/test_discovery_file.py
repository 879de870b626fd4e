# SPDX-License-Identifier: Apache-2.0
"""Endpoints from a file; and what is the same for every source: last good list, mass removal, saved state, reload."""
import json
import os

import pytest

import weir_harness as h
from test_reload import hup

QUICK = {"interval": "50ms", "timeout": "4m", "down_after": 1, "up_after": 1}


def put(path, *ups, text=None):
    """Replace the file as an operator's tool would: whole, by rename."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text if text is not None else
                json.dumps({"endpoints": [{"url": u.url, "models": ["m"]} for u in ups]}))
    os.rename(path + ".new", path)


def source(path, **more):
    return {"health": QUICK, "discovery": [{"type": "file", "path": path, "interval": "50ms", **more}]}


def listed(weir):
    return {e["id"] for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]}


def ids(*ups):
    return {f"127.0.0.1:{u.port}" for u in ups}


def becomes(weir, *ups):
    h.wait_until(lambda: listed(weir) == ids(*ups), "the list")


def stat(weir, name, source="file"):
    return weir.metrics().value("weir_source_" + name, source=source)


def test_a_replaced_file_is_the_new_list(start_weir, upstream, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    path = str(tmp_path / "endpoints.yaml")
    put(path, a)
    weir = start_weir(source(path))
    weir.wait_up(a)
    assert weir.chat().header("x-worker") == "a"
    put(path, b, a)
    becomes(weir, a, b)
    put(path, b)
    becomes(weir, b)
    weir.wait_up(b)
    assert weir.chat().header("x-worker") == "b"


def test_a_bad_file_changes_nothing_and_is_told(start_weir, upstream, tmp_path):
    a = upstream(name="a")
    path = str(tmp_path / "endpoints.yaml")
    put(path, a)
    weir = start_weir(source(path))
    weir.wait_up(a)
    put(path, text="endpoints:\n- url: http://127.0.0.1:1\n  wieght: 2\n")
    h.wait_until(lambda: stat(weir, "errors_total") == 1, "the error")
    assert stat(weir, "up") == 0
    weir.wait_line(r"source=file: .*endpoints.yaml:3:3: .*wieght.* did you mean .weight")
    # What spans keys, too: in the file itself there is no discovery[0].
    for text, words in ((f"endpoints:\n- url: {a.url}\n- url: {a.url}\n", "3:8: endpoints.1..url: .* earlier endpoint"),
                        ("endpoints:\n- url: host\n", "2:8: endpoints.0..url: \"host\""),
                        ("endpoints:\n- weight: 2\n", "2:3: endpoints.0..url: is missing")):
        put(path, text=text)
        weir.wait_line(r"source=file: \S*endpoints.yaml:" + words)
    put(path, text="")                              # somebody is about to write it
    weir.wait_line(r"source=file: .*endpoints.yaml: it is empty")
    os.unlink(path)
    h.wait_until(lambda: weir.log_contains("No such file"), "the missing file")
    os.mkfifo(path)                                 # nobody ever writes to it
    weir.wait_line(r"endpoints.yaml: is a pipe, socket or device")
    os.unlink(path)
    assert listed(weir) == ids(a)
    assert weir.chat().status == 200
    put(path, a)
    h.wait_until(lambda: stat(weir, "up") == 1, "the source")


def test_an_empty_file_keeps_those_that_pass(start_weir, upstream, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    path = str(tmp_path / "endpoints.yaml")
    put(path, a, b)
    weir = start_weir(source(path, empty_grace="1h"))
    weir.wait_up(a)
    weir.wait_up(b)
    put(path)
    h.wait_until(lambda: stat(weir, "held_endpoints") == 2, "both to be held")
    assert weir.chat().status == 200
    b.refuse()                                      # fails our checks now: goes at once
    becomes(weir, a)
    assert weir.chat().header("x-worker") == "a"
    put(path, a)
    h.wait_until(lambda: stat(weir, "held_endpoints") == 0, "the list to count again")


def test_without_grace_an_empty_file_is_believed(start_weir, upstream, tmp_path):
    a = upstream(name="a")
    path = str(tmp_path / "endpoints.yaml")
    put(path, a)
    weir = start_weir(source(path, empty_grace="off"))
    weir.wait_up(a)
    put(path)
    becomes(weir)
    assert weir.chat().error() == (503, "no_endpoint")


def test_the_last_list_is_used_when_the_file_is_gone_at_the_start(start_weir, upstream, tmp_path):
    a = upstream(name="a")
    path, state = str(tmp_path / "endpoints.yaml"), str(tmp_path / "state.json")
    put(path, a)
    weir = start_weir(source(path, state_file=state))
    weir.wait_up(a)
    weir.stop()
    os.unlink(path)
    weir = start_weir(source(path, state_file=state))
    weir.wait_up(a)
    assert weir.chat().status == 200
    assert stat(weir, "up") == 0


@pytest.mark.sanitize
@pytest.mark.race
def test_reload_changes_the_source_and_loses_nobody(start_weir, upstream, tmp_path):
    a, b = upstream(name="a"), upstream(name="b")
    one, other = str(tmp_path / "one.yaml"), str(tmp_path / "other.yaml")
    put(one, a)
    put(other, a, b)
    weir = start_weir(source(one))
    weir.wait_up(a)
    before = weir.admin_http("GET", f"/api/v1/endpoints/127.0.0.1:{a.port}").json()
    assert hup(weir, json.dumps(source(other))) == (1, 0)
    becomes(weir, a, b)
    after = weir.admin_http("GET", f"/api/v1/endpoints/127.0.0.1:{a.port}").json()
    assert after["generation"] == before["generation"]
    assert hup(weir, json.dumps({"health": QUICK, "discovery": []})) == (2, 0)
    becomes(weir)
