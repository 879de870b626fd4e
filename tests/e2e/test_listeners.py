# SPDX-License-Identifier: Apache-2.0
"""Where Weir listens and connects: IPv6, Unix sockets, sockets of a service manager; and what it gives up afterwards."""
import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile

import pytest

from tls_util import UnixUpstream
from weir_harness import BIN, PATIENCE, Process, RawClient, Wire, free_port, patient, wait_until

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class UnixClient(RawClient):
    def __init__(self, path):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(PATIENCE)
        sock.connect(str(path))
        Wire.__init__(self, sock)
        self.chunked, self.length = False, None


def settings(config):
    return json.dumps(patient({"admin": {"address": "127.0.0.1:0"}, "registry": {"address": "off"}, "threads": 2, **config}))


class Gateway(Process):
    """`weir serve` with exactly this configuration; .data is what its ready line says, in order."""

    def __init__(self, tmp_path, config, env=None, wait=True, name="weir.yaml"):
        self.path = tmp_path / name
        self.rewrite(config)
        argv = [BIN, "serve", "--config", str(self.path)]
        super().__init__(argv, env)
        if wait:
            try:
                line = self.wait_line(r"^ready (.*)$").group(1)
            except AssertionError:
                self.kill()
                raise
            self.data = [w.split("=", 1)[1] for w in line.split() if w.startswith("data=")]

    def rewrite(self, config):
        self.path.write_text(settings(config), encoding="utf-8")


def static(*upstreams):
    return [{"type": "static", "endpoints": [{"url": u.url, "models": ["m"]} for u in upstreams]}]


def served(client):
    """Until the endpoint's first check has passed the answer is 503."""
    def ask():
        c = client()
        c.request(body=CHAT, headers=[("Connection", "close")])
        r = c.response()
        c.close()
        return r.status == 200 and r
    return wait_until(ask, "an answer from the worker")


@pytest.mark.sanitize
def test_unix_sockets_on_both_sides(keeper, tmp_path):
    """10 MB through two Unix sockets, by two loops that share one of them; the worker is told no path."""
    big = os.urandom(1 << 20) * 10

    def behaviour(conn, request):
        conn.respond(200, request.body if request.path == "/v1/big" else b"hello")

    up = keeper.add(UnixUpstream(str(tmp_path / "up.sock"), behaviour=behaviour))
    path = tmp_path / "weir.sock"
    g = keeper.add(Gateway(tmp_path, {"listeners": [{"address": f"unix:{path}", "socket_mode": "0600"}],
                                      "discovery": static(up), "health": {"interval": "50ms"}}))
    assert g.data == [f"unix:{path}"]
    served(lambda: UnixClient(path))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    before = up.hits()
    clients = [UnixClient(path) for _ in range(16)]
    for c in clients:
        c.request(body=CHAT)
    assert [c.response().status for c in clients] == [200] * 16
    body = b'{"model":"m","pad":"' + big + b'"}'
    clients[0].request(path="/v1/big", body=body)
    assert clients[0].response().body == body
    assert up.hits() == before + 17
    assert up.requests[-1].header("host") == "localhost"
    for c in clients:
        c.close()
    g.stop()
    assert not path.exists()                            # removed at the end


def test_a_stale_socket_file_is_replaced_and_a_living_one_is_not(keeper, tmp_path):
    path = tmp_path / "weir.sock"
    config = {"listeners": [{"address": f"unix:{path}"}]}
    first = keeper.add(Gateway(tmp_path, config))
    second = Gateway(tmp_path, config, wait=False, name="second.yaml")
    assert second.wait() == 1
    assert second.log_contains(rf"cannot listen on unix:{path} for clients: Address already in use")
    c = UnixClient(path)                                # the first is not disturbed
    c.request("GET", "/nothing")
    assert c.response().status == 404
    c.close()
    first.kill_9()
    assert path.exists()                                # nobody removed it
    third = keeper.add(Gateway(tmp_path, config))
    third.stop()
    assert not path.exists()
    path.write_text("precious", encoding="ascii")       # no socket: not ours to remove
    fourth = Gateway(tmp_path, config, wait=False)
    assert fourth.wait() == 1
    assert fourth.log_contains(r"what is there is no socket; Weir replaces only sockets")
    assert path.read_text(encoding="ascii") == "precious"


def test_a_unix_listener_comes_and_goes_by_reload(keeper, tmp_path, upstream):
    path = tmp_path / "weir.sock"
    both = {"listeners": [{"address": "127.0.0.1:0"}, {"address": f"unix:{path}"}],
            "discovery": static(upstream()), "health": {"interval": "50ms"}}
    one = {**both, "listeners": both["listeners"][:1]}
    g = keeper.add(Gateway(tmp_path, one))
    host, port = g.data[0].rsplit(":", 1)
    served(lambda: RawClient((host, int(port))))
    g.rewrite(both)
    g.kill(signal.SIGHUP)
    g.wait_line(rf"listening on unix:{path} for clients")
    served(lambda: UnixClient(path))
    held = UnixClient(path)
    held.request(body=CHAT)
    assert held.response().status == 200
    g.rewrite(one)
    g.kill(signal.SIGHUP)

    def refused():
        try:
            UnixClient(path).close()
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        return False
    wait_until(refused, "the listener to be gone")
    held.request(body=CHAT)                             # who is there goes on
    assert held.response().status == 200
    wait_until(lambda: not path.exists(), "the socket file to be removed")
    held.close()


def test_the_end_does_not_remove_the_socket_of_a_successor(keeper, tmp_path):
    path = tmp_path / "weir.sock"
    g = keeper.add(Gateway(tmp_path, {"listeners": [{"address": f"unix:{path}"}]}))
    os.unlink(path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        g.stop()
        assert path.exists()


def test_ipv6_is_a_listener_of_its_own(keeper, tmp_path, upstream):
    """[::] takes IPv6 alone, so that 0.0.0.0 with the same port can be listed beside it."""
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    with socket.socket(socket.AF_INET6) as s:
        try:
            s.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 loopback here")
    port = free_port()
    g = keeper.add(Gateway(tmp_path, {"listeners": [{"address": f"[::]:{port}"}, {"address": f"0.0.0.0:{port}"}],
                                      "discovery": static(upstream()), "health": {"interval": "50ms"}}))
    assert g.data == [f"[::]:{port}", f"0.0.0.0:{port}"]

    def v6():
        c = RawClient.__new__(RawClient)
        c.chunked, c.length = False, None
        Wire.__init__(c, socket.create_connection(("::1", port), PATIENCE))
        return c
    served(v6)
    served(lambda: RawClient(("127.0.0.1", port)))


def start_passed(keeper, tmp_path, config, sockets, names, env=None):
    """Start it with these sockets as descriptors 3, 4, ... as a service manager does."""
    path = tmp_path / "weir.yaml"
    path.write_text(settings(config), encoding="utf-8")
    code = ("import fcntl,os,sys\n"
            f"fds={[s.fileno() for s in sockets]}\n"
            "held=[fcntl.fcntl(f, fcntl.F_DUPFD, 64) for f in fds]\n"
            "for i,f in enumerate(held): os.dup2(f, 3+i, inheritable=True)\n"
            "os.environ['LISTEN_PID']=str(os.getpid())\n"
            "os.execv(sys.argv[1], sys.argv[1:])\n")
    argv = [sys.executable, "-c", code, BIN, "serve", "--config", str(path)]
    real = subprocess.Popen
    keep = [s.fileno() for s in sockets]

    def popen(*args, **kw):
        return real(*args, **kw, pass_fds=keep)
    subprocess.Popen = popen
    try:
        p = Process(argv, {**(env or {}), "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": ":".join(names)})
    finally:
        subprocess.Popen = real
    return keeper.add(p)


def test_sockets_of_a_service_manager_are_used_by_name(keeper, tmp_path, upstream):
    tcp = socket.create_server(("127.0.0.1", 0))
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(tmp_path / "sd.sock"))
    local.listen(16)
    spare = socket.create_server(("127.0.0.1", 0))
    early = RawClient(tcp.getsockname())                # before it runs: waits in the backlog
    early.request("GET", "/nothing")
    p = start_passed(keeper, tmp_path, {"listeners": [{"address": "systemd:http"}, {"address": "systemd:local"}],
                                        "discovery": static(upstream()), "health": {"interval": "50ms"}},
                     [local, tcp, spare], ["local", "http", "spare"])
    p.wait_line(r"^ready data=127\.0\.0\.1:%d data=unix:%s/sd\.sock " % (tcp.getsockname()[1], tmp_path))
    assert early.response().status == 404
    served(lambda: RawClient(tcp.getsockname()))
    served(lambda: UnixClient(tmp_path / "sd.sock"))
    p.wait_line(r"socket spare was passed by the service manager, but no listener has systemd:spare")
    p.stop()
    assert (tmp_path / "sd.sock").exists()              # whoever made it removes it


def test_a_socket_that_was_not_passed_is_an_error_that_names_it(tmp_path):
    g = Gateway(tmp_path, {"listeners": [{"address": "systemd:http"}]}, wait=False)
    assert g.wait() == 1
    assert g.log_contains(r"systemd:http was not passed by the service manager \(FileDescriptorName= of the socket unit, "
                          r"LISTEN_FDNAMES\)$")
    assert not g.log_contains("cannot listen for clients")      # said once


def test_the_service_manager_is_told(keeper, tmp_path):
    """READY once it serves, WATCHDOG while its loops turn, RELOADING and READY around SIGHUP, STOPPING at the end."""
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    told.settimeout(PATIENCE)
    g = keeper.add(Gateway(tmp_path, {"listeners": [{"address": "127.0.0.1:0"}]},
                           env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}))

    def wait_for(word):
        while True:
            lines = told.recv(4096).decode().split("\n")
            if lines[0] == word:
                return lines
            assert lines[0] == "WATCHDOG=1", lines
    wait_for("READY=1")
    for _ in range(3):
        wait_for("WATCHDOG=1")
    g.kill(signal.SIGHUP)
    assert wait_for("RELOADING=1")[1].startswith("MONOTONIC_USEC=")
    wait_for("READY=1")
    g.kill(signal.SIGTERM)
    wait_for("STOPPING=1")
    assert g.wait() == 0


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_is_given_up_once_all_is_open(keeper, tmp_path, upstream):
    """Another user, no capability in any set, no way back, no core; and it still serves."""
    os.chmod(tmp_path, 0o755)
    g = keeper.add(Gateway(tmp_path, {"listeners": [{"address": "127.0.0.1:0"}], "user": "nobody",
                                      "discovery": static(upstream()), "health": {"interval": "50ms"}}))
    host, port = g.data[0].rsplit(":", 1)
    served(lambda: RawClient((host, int(port))))
    for task in os.listdir(f"/proc/{g.pid}/task"):      # every thread
        status = status_of(f"{g.pid}/task/{task}")
        assert set(status["Uid"].split()) == {str(pwd.getpwnam("nobody").pw_uid)}
        assert "0" not in status["Gid"].split() + status["Groups"].split()
        assert status["NoNewPrivs"] == "1"
        assert {int(status[c], 16) for c in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    assert os.stat(f"/proc/{g.pid}/mem").st_uid == 0    # not dumpable: its memory is root's alone
    assert not g.log_contains("running as root")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_user_can_open_its_access_log_again(keeper, tmp_path):
    """Root makes the file; SIGUSR1 and reloads open it as the user."""
    with tempfile.TemporaryDirectory() as folder:       # one that the user may enter
        os.chmod(folder, 0o755)
        log = os.path.join(folder, "access.jsonl")
        g = keeper.add(Gateway(tmp_path, {"listeners": [{"address": "127.0.0.1:0"}], "user": "nobody",
                                          "logging": {"access": f"file:{log}"}}))
        assert os.stat(log).st_uid == pwd.getpwnam("nobody").pw_uid
        g.kill(signal.SIGUSR1)
        g.wait_line("info serve: SIGUSR1: the access log is opened again")
        g.stop()


def test_a_user_that_is_not_known_keeps_it_from_starting(tmp_path):
    g = Gateway(tmp_path, {"listeners": [{"address": "127.0.0.1:0"}], "user": "nobody-of-that-name"}, wait=False)
    assert g.wait() == 1
    assert g.log_contains(r"user: nobody-of-that-name is not known on this machine")


def test_the_units_are_what_systemd_accepts(tmp_path):
    """examples/systemd: no line that systemd does not know, and little exposure."""
    if not os.path.exists("/usr/bin/systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    here = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "systemd")
    for name in ("weir.service", "weir.socket"):
        text = open(os.path.join(here, name), encoding="utf-8").read().replace("/usr/local/bin/weir", BIN)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "weir.service"), str(tmp_path / "weir.socket")],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "weir." in line]
    assert not ours, done.stderr
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=20", str(tmp_path / "weir.service")],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
