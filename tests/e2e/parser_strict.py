# SPDX-License-Identifier: Apache-2.0
"""Reads bytes as a client that forgives nothing would, and runs Node as the judge, for test_parser_*.py."""
import base64
import json
import os
import re
import subprocess

import weir_harness as h


class Strict:
    """Reads answers as a client that forgives nothing."""

    def __init__(self, data):
        self.data = data

    def line(self):
        line, mark, self.data = self.data.partition(b"\r\n")
        assert mark and b"\n" not in line and b"\r" not in line, line
        return line

    def body(self, status, fields, method):
        lengths = [v for k, v in fields if k == b"content-length"]
        codings = [v for k, v in fields if k == b"transfer-encoding"]
        assert len(lengths) + len(codings) <= 1, fields
        if method == "HEAD" or status < 200 or status in (204, 304):
            return b""
        if codings:
            assert codings == [b"chunked"]
            body = b""
            while n := int(self.line(), 16):
                body, self.data = body + self.data[:n], self.data[n:]
                assert self.line() == b""
            assert self.line() == b""
            return body
        n = int(lengths[0])
        assert len(self.data) >= n, "an answer was cut short"
        body, self.data = self.data[:n], self.data[n:]
        return body

    def answer(self, method):
        """(status, fields, body) of the next final answer, or None at the end."""
        while self.data:
            m = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [ -~]*", self.line())
            assert m, "not a status line"
            fields = []
            while line := self.line():
                assert re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*", line), line
                name, _, value = line.partition(b":")
                fields.append((name.lower(), value.strip()))
            status = int(m.group(1))
            by_name = dict(fields)
            if by_name.get(b"connection") == b"close" and b"x-judge" not in by_name:
                # A refusal: whether it had been a HEAD is not known to all. It has its whole body, or none.
                body, self.data = self.data, b""
                assert len(body) in (0, int(by_name[b"content-length"]))
            else:
                body = self.body(status, fields, method)
            if status >= 200:
                return status, by_name, body
        return None


def run_judge(script, weir, cases):
    """What the script of js/ says about each of these cases through this Weir, and the lines after them."""
    path = os.path.join(h.ROOT, "tests", "e2e", "js", script)
    lines = [{"host": weir.data[0], "port": weir.data[1]}, *cases]
    with subprocess.Popen(["node", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        port = json.loads(node.stdout.readline())["port"]
        weir.register(type("Judge", (), {"name": "judge", "url": f"http://127.0.0.1:{port}"}))
        out, _ = node.communicate("".join(json.dumps(line) + "\n" for line in lines), timeout=10 * h.PATIENCE)
    assert node.returncode == 0
    out = [json.loads(line) for line in out.splitlines()]
    return out[:len(cases)], out[len(cases):]


def encoded(data):
    return base64.b64encode(data).decode()
