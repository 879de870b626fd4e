# SPDX-License-Identifier: Apache-2.0
"""Silences of minutes and soaks, for ./test.sh --long."""
import random
import threading

import pytest

import weir_harness as h
from test_show_it import abort_somewhere, dribble, settle

pytestmark = pytest.mark.long


def silent_for(seconds, stream):
    def behaviour(conn, request):
        threading.Event().wait(seconds)     # the silence under test
        if stream:
            conn.start_stream()
            conn.sse_event({"n": 1})
            conn.end_stream()
        else:
            conn.answer(request)
    return behaviour


@pytest.mark.parametrize("seconds, stream", [(130, True), (301, False)])
def test_reasoning_models_may_be_silent_for_minutes(start_weir, upstream, seconds, stream):
    weir = start_weir(plain=True)
    up = upstream(silent_for(seconds, stream), name="u")
    weir.register(up)
    c = h.RawClient(weir.data)
    c.sock.settimeout(seconds + 60 * h.SLOW)
    c.request(body={"model": "m", "stream": stream})
    assert c.response().status == 200
    c.close()
    assert up.hits() == 1


def test_50000_aborts_and_memory_stays(weir, upstream):
    """Counters return to zero, and what is resident after the second half is what was after the first."""
    for i in range(3):
        weir.register(upstream(dribble, name=f"e{i}"), max_concurrency=8)

    def storm(seed):
        rng = random.Random(seed)
        for _ in range(25_000 // 8):
            abort_somewhere(weir, rng)

    resident = []
    for half in range(2):
        threads = [threading.Thread(target=storm, args=(half * 8 + i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        settle(weir)
        with open(f"/proc/{weir.pid}/status", encoding="ascii") as f:
            resident.append(next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")))
    # AddressSanitizer keeps what was freed and ThreadSanitizer its shadow: there LeakSanitizer says it, at the end.
    if h.SLOW == 1:
        assert resident[1] <= resident[0] + 2048, resident     # kB; a leak of 100 bytes per request would show


def test_100000_unknown_models_add_no_series(weir, upstream):
    weir.register(upstream(name="u"))
    weir.chat("unknown")
    before = len(weir.metrics().samples)
    for i in range(100_000):
        assert weir.chat(f"unknown-{i}").status == 404
    assert len(weir.metrics().samples) == before


def test_idle_streams_survive_and_end_together(start_weir, upstream):
    """200 open streams, silent for 75 s and more, then one more event on each."""
    weir = start_weir(plain=True)
    go = threading.Event()

    def behaviour(conn, request):
        conn.start_stream()
        conn.sse_event({"n": 1})
        assert go.wait(300)
        conn.sse_event({"n": 2})
        conn.end_stream()

    weir.register(upstream(behaviour, name="u"))
    clients = [h.RawClient(weir.data) for _ in range(200)]
    for c in clients:
        c.request(body={"model": "m", "stream": True})
    for c in clients:
        c.head()
        assert c.event() == '{"n": 1}'
    threading.Event().wait(90)              # longer than the idle limit of connections without a request
    go.set()
    for c in clients:
        assert [c.event(), c.event(), c.event()] == ['{"n": 2}', "[DONE]", None]
        c.close()
