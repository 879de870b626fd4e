# SPDX-License-Identifier: Apache-2.0
"""The README's two commands on a bare Debian 12; for ./test.sh --long."""
import os
import re
import shutil
import subprocess

import pytest

import weir_harness as h

SCRIPT = os.path.join(h.ROOT, "tests", "e2e", "clean_root.sh")
pytestmark = [pytest.mark.long, pytest.mark.chroot]


@pytest.fixture
def folder(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("a chroot needs root")
    if not shutil.which("debootstrap"):
        pytest.skip("debootstrap is not installed")
    path = tmp_path_factory.mktemp("clean") / "root"
    yield str(path)
    mounts = open("/proc/mounts", encoding="utf-8").read()
    assert f" {path}/" not in mounts, "the script left mounts behind"
    shutil.rmtree(path, ignore_errors=True)


def clean_root(what, folder):
    done = subprocess.run([SCRIPT, what, folder], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout


def test_both_commands_in_one_fresh_root(folder):
    assert re.search(r"first streamed token after \d+ s", clean_root("run", folder))
    last = clean_root("test", folder).rstrip().splitlines()[-1]
    assert re.fullmatch(r"\d+ passed, 0 failed", last), last
