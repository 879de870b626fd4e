# SPDX-License-Identifier: Apache-2.0
"""Fixtures: factories that start things and see them off, whatever the test did."""
import os
import random
import signal
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import weir_harness as h    # noqa: E402


def pytest_sessionstart(session):
    # Started in the background by a shell, we ignore SIGINT, and so would all we start: then Ctrl-C cannot be tested.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.access(h.BIN, os.X_OK):
        pytest.exit(f"{h.BIN} is not there: build it, or set WEIR_BIN", returncode=3)


@pytest.fixture(autouse=h.STUTTER > 0)
def behind():
    """Who does not keep pace: everybody, or one that all others run ahead of."""
    h.behind = random.choice((("test", "double", "program"), ("test",), ("double",), ("program",)))
    yield
    h.behind = ()


class Keeper:
    """Ends what a test started, last first; the first complaint is raised, none is lost."""

    def __init__(self):
        self.started = []

    def add(self, thing):
        self.started.append(thing)
        return thing

    def stop(self):
        complaints = []
        for thing in reversed(self.started):
            try:
                thing.stop()
            except AssertionError as e:
                complaints.append(str(e))
        assert not complaints, "\n\n".join(complaints)


@pytest.fixture
def keeper():
    k = Keeper()
    yield k
    k.stop()


@pytest.fixture
def start_weir(keeper, request):
    """
    start_weir(config=None, args=()): a running Weir, stopped and checked at the end, patient (see weir_harness.LONG). A module that says POLICY means that
    one where the test names none: what it asserts of shares and turns is what that policy promises.
    """
    policy = getattr(request.module, "POLICY", None)

    def start(config=None, args=(), env=None, plain=False):
        if policy and "--policy" not in args and "routes" not in (config or {}):
            args = ["--policy", policy, *args]
        return keeper.add(h.Weir(config, args, env, plain))
    return start


@pytest.fixture
def weir(start_weir):
    return start_weir()


@pytest.fixture
def start_worker(keeper):
    return lambda *args, **kw: keeper.add(h.Worker(*args, **kw))


@pytest.fixture
def upstream(keeper):
    """upstream(behaviour, name=...): a scripted server."""
    return lambda *args, **kw: keeper.add(h.FakeUpstream(*args, **kw))


@pytest.fixture
def client(keeper):
    """client(weir): a raw connection to its data port."""
    class Closing(h.RawClient):
        def stop(self):
            self.close()
    return lambda weir, **kw: keeper.add(Closing(weir.data, **kw))
