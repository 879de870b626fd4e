#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install into a fresh folder, build the example against nothing but that, once shared and once static, and run both.
# usage: run.sh BUILD_DIR EXAMPLE.c CC
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
meson install -C "$1" --destdir "$dir" --no-rebuild --quiet
pc=$(find "$dir" -name weir.pc)
prefix=$dir$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH="${pc%/*}"
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs weir)
lib=$(find "$dir" -name libweir.a)
# shellcheck disable=SC2086
$3 -Wall -Werror "$2" -o "$dir/shared" $flags
# shellcheck disable=SC2046
$3 -Wall -Werror "$2" -o "$dir/static" $(pkg-config --define-variable=prefix="$prefix" --cflags weir) "$lib"
for how in shared static; do
	got=$(LD_LIBRARY_PATH="${lib%/*}" "$dir/$how")
	[ "$got" = gpu3:8000 ] || { echo "$how: got '$got', want gpu3:8000"; exit 1; }
done
echo "libweir: shared and static chose gpu3:8000"
