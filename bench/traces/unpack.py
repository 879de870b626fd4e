#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpack the traces of this folder into a directory: bench/traces/unpack.py DIRECTORY"""
import lzma
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent


def unpack(to):
    """Every trace that is not there yet. Returns the directory."""
    to = pathlib.Path(to)
    to.mkdir(parents=True, exist_ok=True)
    for packed in sorted(HERE.glob("*.xz")):
        out = to / packed.stem
        if not out.exists():
            out.write_bytes(lzma.decompress(packed.read_bytes()))
    return to


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(unpack(sys.argv[1]))
