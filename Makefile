# SPDX-License-Identifier: Apache-2.0
# The face of the Meson build. Everything here is one command you could type yourself.
.PHONY: all build check asan tsan fuzz bench fmt tidy docs clean

all: build

build/build.ninja:
	meson setup build -Ddebug=false

build: build/build.ninja
	ninja -C build

check:
	./test.sh --fast

asan:
	test -f build-asan/build.ninja || meson setup build-asan -Db_sanitize=address,undefined -Db_lundef=false
	ninja -C build-asan && meson test -C build-asan --no-suite lint --print-errorlogs

tsan:
	test -f build-tsan/build.ninja || meson setup build-tsan -Db_sanitize=thread -Db_lundef=false
	ninja -C build-tsan && meson test -C build-tsan --no-suite lint --print-errorlogs

fuzz:
	test -f build-fuzz/build.ninja || CC=clang meson setup build-fuzz -Dfuzz=true -Db_lundef=false
	ninja -C build-fuzz

bench: build
	tools/deps.sh bench && python3 bench/run.py

fmt:
	clang-format -i $$(git ls-files -co --exclude-standard '*.c' '*.h')

tidy: build
	clang-tidy -p build --quiet $$(git ls-files 'src/*.c' 'bench/*.c')

docs:
	doxygen Doxyfile

clean:
	rm -rf build build-asan build-tsan build-fuzz
