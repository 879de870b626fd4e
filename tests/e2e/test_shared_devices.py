# SPDX-License-Identifier: Apache-2.0
"""Engines on one GPU: what is promised on one of them is not free on the other."""
import pytest

import weir_harness as h

POLICY = "chain"

pytestmark = [pytest.mark.sanitize, pytest.mark.race]

GIB = 1 << 30
ONE_GPU = [{"uuid": "GPU-5a3c", "type": "A100", "memory_total_bytes": 80 * GIB}]


def ask(weir, model, gb):
    c = h.RawClient(weir.data)
    c.request(body={"model": model}, headers={"X-Required-Memory": str(gb)})
    return c


def status(client):
    r = client.response()
    client.close()
    return r.status


def test_two_engines_on_one_gpu_share_its_free_memory(start_weir, upstream):
    """12 GiB free, 8 promised on the first: 8 more go to neither, 4 go to the other; the end of the first serves who
    waits, also for another model, of a pool that the first is not in."""
    behaviour, opened = h.gate()
    weir = start_weir({"routes": [{"name": "all"}]})
    one, two = upstream(behaviour, name="one"), upstream(name="two")
    for seq, (up, models) in enumerate([(one, ["m", "a"]), (two, ["m", "b"])], 1):
        weir.register(up, models=models, engine="llamacpp", devices=ONE_GPU)
        weir.load(up.name, seq, memory_free_bytes=12 * GIB, memory_total_bytes=80 * GIB)
    first = ask(weir, "a", 8)
    one.wait_hits(1)
    assert status(ask(weir, "b", 4)) == 200 and two.hits() == 1
    both, other = ask(weir, "m", 8), ask(weir, "b", 8)
    h.wait_until(lambda: weir.metrics().sum("weir_queue_length") == 2, "both to wait")
    assert (one.hits(), two.hits()) == (1, 1)
    opened.set()
    assert [status(c) for c in (first, both, other)] == [200] * 3
    assert one.hits() + two.hits() == 4


def test_a_gpu_of_its_own_is_nobody_elses(start_weir, upstream):
    behaviour, opened = h.gate()
    weir = start_weir()
    one, two = upstream(behaviour, name="one"), upstream(name="two")
    for seq, (up, uuid) in enumerate([(one, "GPU-1"), (two, "GPU-2")], 1):
        weir.register(up, engine="llamacpp", devices=[{"uuid": uuid}], models=[up.name, "m"])
        weir.load(up.name, seq, memory_free_bytes=12 * GIB)
    held = ask(weir, "one", 8)
    one.wait_hits(1)
    assert status(ask(weir, "m", 8)) == 200 and two.hits() == 1
    opened.set()
    assert status(held) == 200
