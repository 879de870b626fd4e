# SPDX-License-Identifier: Apache-2.0
"""Certificates made on the spot with the openssl program, and scripted peers that speak TLS."""
import datetime
import os
import socket
import ssl
import subprocess
import tempfile
import threading

from weir_harness import PATIENCE, FakeUpstream, RawClient, UpstreamConn

CONFIG = """
[ca]
default_ca = root
[root]
database = {dir}/index.txt
serial = {dir}/serial
new_certs_dir = {dir}
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
"""


def openssl(*args):
    done = subprocess.run(["openssl", *args], capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    assert done.returncode == 0, (args, done.stderr)


class Authority:
    """A root in a folder of its own; make() signs with it."""

    def __init__(self, name="root"):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-tls-")
        self.dir = self.folder.name
        self.ca = self.path("ca.pem")
        with open(self.path("openssl.cnf"), "w", encoding="ascii") as f:
            f.write(CONFIG.format(dir=self.dir))
        with open(self.path("index.txt"), "w", encoding="ascii"):
            pass
        with open(self.path("serial"), "w", encoding="ascii") as f:
            f.write("1000\n")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                "-subj", f"/CN={name}", "-keyout", self.path("ca.key"), "-out", self.ca)

    def path(self, name):
        return os.path.join(self.dir, name)

    def make(self, name, *hosts, expired=False, file=None):
        """NAME.pem and NAME.key for these hosts ("DNS:a.test", "IP:127.0.0.1"): (cert, key)."""
        file = file or name
        cert, key, csr = (self.path(f"{file}.{end}") for end in ("pem", "key", "csr"))
        more = ["-addext", "subjectAltName=" + ",".join(hosts)] if hosts else []
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-config", self.path("openssl.cnf"), "-keyout", key, "-out", csr, *more)
        now = datetime.datetime.now(datetime.timezone.utc)
        days = (-20, -10) if expired else (-1, 30)
        start, end = ((now + datetime.timedelta(days=d)).strftime("%y%m%d%H%M%SZ") for d in days)
        openssl("ca", "-batch", "-notext", "-config", self.path("openssl.cnf"), "-cert", self.ca, "-keyfile",
                self.path("ca.key"), "-startdate", start, "-enddate", end, "-in", csr, "-out", cert)
        return cert, key

    def client(self, cert=None, check=True):
        """What a client of ours trusts and shows."""
        context = ssl.create_default_context(cafile=self.ca)
        if not check:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if cert:
            context.load_cert_chain(*cert)
        return context

    def stop(self):
        self.folder.cleanup()


class TlsClient(RawClient):
    """RawClient over TLS."""

    def __init__(self, addr, context, host="weir.test", session=None):
        super().__init__(addr)
        self.sock = context.wrap_socket(self.sock, server_hostname=host, session=session)

    def half_close(self):
        """Announce the end and go on reading."""
        raise NotImplementedError("Python's ssl cannot half-close")


class TlsUpstream(FakeUpstream):
    """FakeUpstream over TLS. @param accept_client root whose client certificates are required."""

    def __init__(self, cert, accept_client=None, **kw):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*cert)
        if accept_client:
            self.context.load_verify_locations(accept_client)
            self.context.verify_mode = ssl.CERT_REQUIRED
        self.handshakes = self.resumed = self.refused = 0
        super().__init__(**kw)
        self.url = f"https://127.0.0.1:{self.port}"

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._shake, args=(sock,), daemon=True).start()

    def _shake(self, sock):
        sock.settimeout(PATIENCE)
        try:
            sock = self.context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False)
        except (ssl.SSLError, OSError):
            with self.lock:
                self.refused += 1
            sock.close()
            return
        conn = UpstreamConn(sock, self)
        with self.lock:
            self.handshakes += 1
            self.resumed += bool(sock.session_reused)
            self.conns.append(conn)
        self._serve(conn)


class UnixUpstream(FakeUpstream):
    """FakeUpstream on a Unix socket."""

    def __init__(self, path, **kw):
        super().__init__(**kw)
        self.refuse()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(64)
        self.url = f"http+unix://{path}"
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()
