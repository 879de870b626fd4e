#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build r-nacos, a Nacos server of other people in Rust, out of its crate, into build/tools/rnacos/bin, for the long tests.
# Takes some six minutes of a core, once. Does nothing when one is there already; brings no Rust toolchain.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
to=$root/build/tools/rnacos

[ -z "${WEIR_RNACOS:-}" ] || exit 0
[ ! -x "$to/bin/rnacos" ] || exit 0
! command -v rnacos >/dev/null || exit 0
command -v cargo >/dev/null || { echo "rnacos: there is no cargo here" >&2; exit 1; }

# Not optimized: half of the time to build, and fast enough for a test.
mkdir -p "$to"
CARGO_TARGET_DIR=$to/target CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 nice -n 19 \
	cargo install rnacos --version 0.8.8 --locked --debug --root "$to" >"$to/build.log" 2>&1 ||
	{ tail -n 20 "$to/build.log" >&2; echo "rnacos: cargo could not build it" >&2; exit 1; }
rm -rf "$to/target"
