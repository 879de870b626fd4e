# SPDX-License-Identifier: Apache-2.0
"""TLS on both sides: who is let in, who is believed, what a cut looks like, and certificates that change."""
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import warnings

import pytest

from tls_util import Authority, TlsClient, TlsUpstream, openssl
from weir_harness import BIN, PATIENCE, Process, RawClient, address, answer_at_once, patient, run_weir, wait_until

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def pki():
    a = Authority()
    a.server = a.make("weir", "DNS:weir.test", "IP:127.0.0.1")
    a.other = a.make("other", "DNS:other.test", "DNS:*.wild.test")
    a.up = a.make("up", "DNS:localhost", "IP:127.0.0.1")
    a.alice = a.make("alice")
    yield a
    a.stop()


def tls(pair, **more):
    return {"cert": "file:" + pair[0], "key": "file:" + pair[1], **more}


def config(listener_tls=None, **more):
    """One listener, with or without TLS."""
    return {"listeners": [{"tls": listener_tls} if listener_tls else {}], **more}


def start(start_weir, upstreams, *args, threads=2, **more):
    """A gateway that has these endpoints, registered: their leases speak for them, so no check has to pass first."""
    w = start_weir(config(*args, **more), args=["--threads", str(threads)])
    for up in upstreams:
        w.register(up, wait=False)
    wait_until(lambda: len(w.metrics().all("weir_endpoint_up")) == len(upstreams), "the endpoints to be known")
    return w


def ask(weir, context, host="weir.test", session=None, body=None):
    """One request over a fresh connection: (status, body, the TLS socket)."""
    c = TlsClient(weir.data, context, host, session)
    c.request(body=body or CHAT, headers=[("Connection", "close")])
    r = c.response()
    return r.status, r.body, c.sock


def names_of(cert):
    return {v for k, v in cert["subjectAltName"] if k == "DNS"}


@pytest.mark.sanitize
def test_requests_streams_and_10_mb_both_ways_over_tls_on_both_sides(start_weir, keeper, pki):
    big = os.urandom(1 << 20) * 10
    release = threading.Event()

    def behaviour(conn, request):
        if request.asks("stream"):
            conn.start_stream()
            conn.sse_event("first")
            assert release.wait(4 * PATIENCE)
            conn.end_stream()
        elif request.path == "/v1/big":
            conn.respond(200, hashlib.sha256(request.body).digest() + big, reason="OK")
        else:
            conn.answer(request)

    up = keeper.add(TlsUpstream(pki.up, behaviour=behaviour))
    w = start(start_weir, [up], tls(pki.server), upstream_tls={"ca": "file:" + pki.ca})
    context = pki.client()
    c = TlsClient(w.data, context)
    for _ in range(3):                                  # keep-alive, and the pooled connection behind it
        c.request(body=CHAT)
        assert c.response().status == 200
    assert c.sock.version() == "TLSv1.3"
    c.request(body={**CHAT, "stream": True})
    assert c.head()[0] == 200
    assert c.event() == "first"                         # the worker waits for us: nothing held it back
    release.set()
    c.body()
    body = b'{"model":"m","pad":"' + big.hex().encode()[:10 << 20] + b'"}'
    c.request(path="/v1/big", body=body, headers=[("Content-Type", "application/json")])
    r = c.response()
    assert r.status == 200
    assert r.body[:32] == hashlib.sha256(body).digest()
    assert r.body[32:] == big
    assert up.hits() == 5
    assert [r.header("x-forwarded-proto") for r in up.requests] == ["https"] * 5


def test_the_name_that_is_asked_for_selects_the_certificate(start_weir, keeper, upstream, pki):
    w = start(start_weir, [upstream()], tls(pki.server, more=[tls(pki.other)]))
    seen = {}
    for host in ("weir.test", "other.test", "a.wild.test"):
        status, _, sock = ask(w, pki.client(), host)
        assert status == 200
        seen[host] = names_of(sock.getpeercert())
    assert seen == {"weir.test": {"weir.test"}, "other.test": {"other.test", "*.wild.test"},
                    "a.wild.test": {"other.test", "*.wild.test"}}
    with pytest.raises(ssl.SSLCertVerificationError):   # the default one, which is not for that name
        ask(w, pki.client(), "nobody.test")
    nameless = pki.client(check=False)
    assert ask(w, nameless, None)[0] == 200             # no name at all: the default one


def test_old_protocols_and_foreign_alpn_are_refused(start_weir, keeper, upstream, pki):
    w = start(start_weir, [upstream()], tls(pki.server))
    old = pki.client()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        ask(w, old)
    plain_aes = pki.client()
    plain_aes.maximum_version = ssl.TLSVersion.TLSv1_2
    plain_aes.set_ciphers("ECDHE-ECDSA-AES128-SHA256:AES128-GCM-SHA256")
    with pytest.raises((ssl.SSLError, ConnectionResetError)):   # neither CBC nor static keys
        ask(w, plain_aes)
    h2 = pki.client()
    h2.set_alpn_protocols(["h2"])
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        ask(w, h2)
    both = pki.client()
    both.set_alpn_protocols(["h2", "http/1.1"])
    status, _, sock = ask(w, both)
    assert (status, sock.selected_alpn_protocol()) == (200, "http/1.1")
    # Plain HTTP on this port is no request, and nobody else is disturbed.
    with socket.create_connection(w.data, PATIENCE) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        s.settimeout(PATIENCE)
        try:
            assert b"HTTP/1.1 2" not in s.recv(4096)
        except ConnectionResetError:
            pass
    assert ask(w, pki.client())[0] == 200
    w.wait_line(r"TLS handshake with client=127\.0\.0\.1:\d+ failed: ")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed(start_weir, upstream, pki, version):
    w = start(start_weir, [upstream()], tls(pki.server))
    context = pki.client()
    context.minimum_version = context.maximum_version = version
    _, _, first = ask(w, context)
    assert not first.session_reused
    _, _, second = ask(w, context, session=first.session)
    assert second.session_reused


def test_client_certificates_required_and_optional(start_weir, keeper, upstream, pki):
    stranger = keeper.add(Authority("stranger"))
    mallory = stranger.make("mallory")
    up = upstream()
    w = start(start_weir, [up], tls(pki.server, client_ca="file:" + pki.ca))
    assert ask(w, pki.client(pki.alice))[0] == 200
    for cert in (None, mallory):
        with pytest.raises((ssl.SSLError, ConnectionResetError, BrokenPipeError, EOFError)):
            ask(w, pki.client(cert))
    assert up.hits() == 1
    # A resumed session does not get around it: without a certificate there is none to resume.
    optional = start(start_weir, [up], tls(pki.server, client_ca="file:" + pki.ca, client_cert="optional"))
    assert ask(optional, pki.client())[0] == 200
    assert ask(optional, pki.client(pki.alice))[0] == 200
    with pytest.raises((ssl.SSLError, ConnectionResetError, BrokenPipeError, EOFError)):
        ask(optional, pki.client(mallory))
    assert up.hits() == 3


@pytest.mark.race
def test_new_certificates_are_taken_without_touching_open_streams(start_weir, keeper, pki, upstream):
    """SIGHUP: new connections get the new certificate, an open stream ends as it began, a wrong file changes nothing."""
    release = threading.Event()

    def behaviour(conn, request):
        if not request.asks("stream"):
            answer_at_once(conn, request)
            return
        conn.start_stream()
        conn.sse_event("before")
        assert release.wait(4 * PATIENCE)
        conn.sse_event("after")
        conn.end_stream()

    here = keeper.add(Authority("live"))
    pair = here.make("one", "DNS:weir.test", file="live")
    w = start(start_weir, [upstream(behaviour)], tls(pair))
    context = here.client()
    stream = TlsClient(w.data, context)
    stream.request(body={**CHAT, "stream": True})
    assert stream.head()[0] == 200 and stream.event() == "before"
    serial = stream.sock.getpeercert()["serialNumber"]

    new = here.make("two", "DNS:weir.test")
    for a, b in zip(new, pair):
        shutil.copyfile(a, b)
    w.kill(signal.SIGHUP)
    w.wait_line(r"configuration taken over from SIGHUP")
    _, _, sock = ask(w, context)
    fresh = sock.getpeercert()["serialNumber"]
    assert fresh != serial

    with open(pair[0], "w", encoding="ascii") as f:
        f.write("no certificate\n")
    w.kill(signal.SIGHUP)
    w.wait_line(r"from SIGHUP refused, the old one stays: listeners\[0\]\.tls: " + pair[0] +
                ": cannot be used as a certificate")
    assert ask(w, context)[2].getpeercert()["serialNumber"] == fresh

    release.set()
    assert stream.event() == "after"
    assert stream.event() == "[DONE]" and stream.event() is None
    assert stream.sock.getpeercert()["serialNumber"] == serial


def test_a_listener_changes_between_plain_and_tls_by_reload(start_weir, pki, upstream):
    """The same socket: who comes after the reload speaks the new way, who is there goes on."""
    w = start(start_weir, [upstream()])
    before = RawClient(w.data)
    before.request(body=CHAT)
    assert before.response().status == 200
    for section, reloads in ((tls(pki.server), 1), (None, 2)):
        with open(w.config_path, "w", encoding="utf-8") as f:
            json.dump(config(section), f)
        w.kill(signal.SIGHUP)
        wait_until(lambda n=reloads: w.metrics().value("weir_config_reloads_total", result="ok") == n,
                   "the reload")
        if section:
            assert ask(w, pki.client())[0] == 200
        else:
            assert w.chat().status == 200
    before.request(body=CHAT)
    assert before.response().status == 200


@pytest.mark.sanitize
@pytest.mark.parametrize("announced", [True, False])
def test_a_tls_client_that_leaves_is_noticed_in_the_middle_of_a_stream(start_weir, keeper, pki, announced):
    gone = threading.Event()

    def behaviour(conn, request):
        conn.start_stream()
        conn.sse_event("one")
        conn.wait_closed()                              # Weir hangs up on us: the request is cancelled
        gone.set()

    up = keeper.add(TlsUpstream(pki.up, behaviour=behaviour))
    w = start(start_weir, [up], tls(pki.server), upstream_tls={"ca": "file:" + pki.ca})
    c = TlsClient(w.data, pki.client())
    c.request(body={**CHAT, "stream": True})
    assert c.head()[0] == 200 and c.event() == "one"
    if announced:
        c.sock.setblocking(False)
        try:
            c.sock.unwrap()                             # close_notify, and no FIN yet
        except (ssl.SSLError, OSError):
            pass
    else:
        c.close()
    assert gone.wait(PATIENCE)
    wait_until(lambda: w.inflight() == 0, "the counters to be back at 0")


def test_wrong_files_are_refused_with_the_file_and_the_reason(pki, tmp_path):
    gone = pki.make("gone", "DNS:weir.test", expired=True)
    locked = str(tmp_path / "locked.key")
    openssl("pkey", "-in", pki.server[1], "-aes256", "-passout", "pass:x", "-out", locked)
    cases = [
        (tls((str(tmp_path / "none.pem"), pki.server[1])), rf"{tmp_path}/none\.pem: cannot be used as a certificate"),
        (tls((pki.server[0], pki.other[1])), rf"{pki.other[1]}: is not the key of the certificate in {pki.server[0]}"),
        (tls((pki.server[0], pki.server[0])), rf"{pki.server[0]}: cannot be used as a key \(PEM, without a passphrase\): there is none in it$"),
        (tls((pki.server[0], locked)), rf"{locked}: the key has a passphrase, and nobody is here to type it; take it off with "
         rf"openssl pkey -in {locked} -out FILE$"),
        (tls((pki.server[1], pki.server[1])), rf"{pki.server[1]}: cannot be used as a certificate \(PEM\): there is none in it$"),
        (tls(gone), rf"{gone[0]}: the certificate expired on "),
        (tls(pki.server, client_ca="file:" + pki.server[1]), rf"{pki.server[1]}: cannot be used as certificates"),
    ]
    for section, reason in cases:
        path = tmp_path / "weir.yaml"
        path.write_text(json.dumps(config(section)), encoding="utf-8")
        p = Process([BIN, "serve", "--config", str(path), "--port", "0", "--admin-port", "0", "--registry-port", "0"])
        assert p.wait() == 1, p.output
        assert p.log_contains(r"weir: listeners\[0\]\.tls: " + reason), p.output
    status, _, err = run_weir("check", str(path))
    assert status == 0, err                             # files are not read there


def test_plain_http_to_a_tls_listener_is_told_in_the_log(start_weir, pki):
    w = start(start_weir, [], tls(pki.server))
    c = RawClient(w.data)
    c.request("GET", "/v1/models")
    w.wait_line(r"info net: TLS handshake with client=\S+ failed: it speaks plain HTTP, here is https$")
    c.close()


def test_the_end_of_certificates_is_a_metric_and_a_warning(start_weir, keeper):
    here = keeper.add(Authority("soon"))
    late, early = here.make("late", "DNS:a.test", file="late"), here.make("early", "DNS:b.test", file="early")

    def end(cert):
        return ssl.cert_time_to_seconds(ssl._ssl._test_decode_cert(cert)["notAfter"])
    openssl("x509", "-in", early[0], "-signkey", early[1], "-days", "3", "-out", early[0])
    w = start(start_weir, [], tls(late, more=[{"cert": "file:" + early[0], "key": "file:" + early[1]}]))
    w.wait_line(rf"warn tls: listeners\[0\]\.tls: {early[0]}: the certificate ends in [23] days; renew it and send SIGHUP$")
    assert w.metrics().all("weir_tls_certificate_end_seconds") == [({"where": "listeners[0].tls"}, end(early[0]))]


def test_endpoints_are_believed_only_with_the_right_certificate(start_weir, keeper, pki):
    """Unknown root, wrong host and expired: 502, with the reason in the log, and nothing sent; named: taken all the same."""
    stranger = keeper.add(Authority("stranger"))
    bad = {"unknown root": stranger.make("up", "IP:127.0.0.1"),
           "wrong host": pki.make("wrong", "DNS:wrong.test", "IP:127.0.0.9"),
           "expired": pki.make("expired", "IP:127.0.0.1", expired=True)}
    reasons = {"unknown root": "unable to get local issuer certificate", "wrong host": "IP address mismatch",
               "expired": "certificate has expired"}
    for what, pair in bad.items():
        up = keeper.add(TlsUpstream(pair))
        w = start(start_weir, [up], upstream_tls={"ca": "file:" + pki.ca}, health={"interval": "1h"})
        r = w.chat()
        assert r.error() == (502, "upstream_failed"), what
        w.wait_line(rf"TLS handshake with endpoint=127\.0\.0\.1:{up.port} name=127\.0\.0\.1 failed: "
                    rf"the certificate is refused: {reasons[what]}")
        assert up.hits() == 0
        w.stop()
        trusting = start(start_weir, [up], upstream_tls={"insecure_skip_verify": True})
        assert trusting.chat().status == 200, what
        assert up.hits() == 1


def test_a_failed_handshake_is_a_failed_connect_and_another_endpoint_answers(start_weir, keeper, pki):
    stranger = keeper.add(Authority("stranger"))
    bad = keeper.add(TlsUpstream(stranger.make("up", "IP:127.0.0.1"), name="bad"))
    good = keeper.add(TlsUpstream(pki.up, name="good"))
    w = start(start_weir, [bad, good], upstream_tls={"ca": "file:" + pki.ca}, health={"interval": "1h"})
    assert [w.chat().status for _ in range(4)] == [200] * 4
    assert (bad.hits(), good.hits()) == (0, 4)
    wait_until(lambda: w.inflight() == 0, "the counters to be back at 0")


def test_our_certificate_is_shown_to_endpoints_that_ask_and_sessions_are_resumed(start_weir, keeper, pki):
    def once(conn, request):
        conn.respond(200, {"ok": True}, [("Connection", "close")])
        conn.hang_up()

    up = keeper.add(TlsUpstream(pki.up, accept_client=pki.ca, behaviour=once))
    alone = start(start_weir, [up], upstream_tls={"ca": "file:" + pki.ca}, health={"interval": "1h"})
    assert alone.chat().status == 502
    assert up.hits() == 0
    alone.stop()
    w = start(start_weir, [up], threads=1, health={"interval": "1h"},
              upstream_tls={"ca": "file:" + pki.ca, "cert": "file:" + pki.alice[0], "key": "file:" + pki.alice[1]})
    before = up.resumed
    assert [w.chat().status for _ in range(3)] == [200] * 3
    assert up.hits() == 3
    assert up.resumed - before >= 1                     # one lane, one endpoint: the last session is offered


def test_the_name_asked_for_can_be_given_and_checks_use_it_too(start_weir, keeper, pki):
    pair = pki.make("named", "DNS:workers.test")
    up = keeper.add(TlsUpstream(pair))
    w = start(start_weir, [up], upstream_tls={"ca": "file:" + pki.ca, "server_name": "workers.test"},
              health={"interval": "100ms"})
    w.wait_up(up)                                       # a check has passed
    assert w.chat().status == 200


@pytest.mark.parametrize("announced", [True, False])
def test_an_end_without_announcement_is_a_cut(start_weir, keeper, pki, announced):
    """A body delimited by close is whole only if the worker said so: a FIN alone could be anybody's."""
    def behaviour(conn, request):
        conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhalf")
        if announced:
            try:
                conn.sock.unwrap()
            except (OSError, ssl.SSLError):
                pass
        else:
            conn.sock.shutdown(socket.SHUT_WR)
        conn.hang_up()

    up = keeper.add(TlsUpstream(pki.up, behaviour=behaviour))
    w = start(start_weir, [up], tls(pki.server), upstream_tls={"ca": "file:" + pki.ca})
    c = TlsClient(w.data, pki.client())
    c.request(body=CHAT)
    assert c.head()[0] == 200
    if announced:
        assert c.body() == b"half"
    else:
        with pytest.raises((EOFError, ssl.SSLError, ConnectionResetError)):
            c.body()
    wait_until(lambda: w.inflight() == 0, "the counters to be back at 0")


def test_a_client_that_shakes_hands_slowly_is_closed_and_too_many_are_refused(start_weir, upstream, pki):
    w = start(start_weir, [upstream()], tls(pki.server), limits={"tls_handshake": "300ms", "tls_handshakes": 2})
    silent = [socket.create_connection(w.data, PATIENCE) for _ in range(2)]
    for s in silent:
        s.settimeout(PATIENCE)
        assert s.recv(1) == b""                         # closed by the server, having said nothing

    def served():
        try:
            return ask(w, pki.client())[0] == 200
        except (OSError, EOFError):                     # it has 300 ms, too, and the machine may be away for longer
            return False
    wait_until(served, "their places to be free")


def test_admin_and_registry_speak_tls(keeper, pki, tmp_path):
    path = tmp_path / "weir.yaml"
    path.write_text(json.dumps(patient({"admin": {"address": "127.0.0.1:0", "tls": tls(pki.server)},
                                        "registry": {"address": "127.0.0.1:0", "tls": tls(pki.server)}})), encoding="utf-8")
    ready = keeper.add(Process([BIN, "serve", "--config", path, "--host", "127.0.0.1", "--port", "0"])).ready()
    for which, page in (("admin", "/metrics"), ("registry", "/v1/endpoints")):
        url = "https://{}:{}{}".format(*address(ready[which]), page)
        done = subprocess.run(["curl", "-sS", "--cacert", pki.ca, "-o", "/dev/null", "-w", "%{http_code}", url],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.stdout == "200", (which, done)
    admin = "https://%s:%d" % address(ready["admin"])
    rc, _, err = run_weir("explain", "--admin", admin, "--model", "nobody", "--ca", pki.ca)
    assert rc == 3, err
    rc, _, err = run_weir("explain", "--admin", admin, "--model", "nobody")
    assert rc == 1 and "certificate" in err


def test_openssl_s_client_agrees(start_weir, upstream, pki):
    """Another TLS client than Python's: verification by name, and a chain that it accepts."""
    w = start(start_weir, [upstream()], tls(pki.server))
    done = subprocess.run(["openssl", "s_client", "-connect", "%s:%d" % w.data, "-servername", "weir.test", "-CAfile",
                           pki.ca, "-verify_hostname", "weir.test", "-verify_return_error", "-quiet"],
                          input=b"GET /nothing HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n",
                          capture_output=True, timeout=PATIENCE, check=False)
    assert done.stdout.startswith(b"HTTP/1.1 404 "), done
