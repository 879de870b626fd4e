#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what is missing, build, and run the tests.
# usage: ./test.sh [--fast | --long] [-k EXPRESSION]
#   (nothing)  everything in a plain build; units, fuzz corpora and the tests marked for it under the sanitizers
#   --fast     plain build only
#   --long     every black-box test under both sanitizers, the tests marked long, a fresh chroot
#   -k         only the black-box tests whose names fit (pytest's -k)
# Ends with "N passed, N failed"; what was skipped stands above it with its reason.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

mode=normal
only=()
while [ $# -gt 0 ]; do
	case $1 in
	--fast) mode=fast ;;
	--long) mode=long ;;
	-k)
		[ $# -gt 1 ] || { echo "test.sh: -k needs an expression" >&2; exit 2; }
		only=(-k "$2")
		shift
		;;
	-h | --help)
		sed -n '3,9s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	*)
		echo "test.sh: unknown argument $1 (see --help)" >&2
		exit 2
		;;
	esac
	shift
done

export ASAN_OPTIONS=abort_on_error=0:halt_on_error=1:detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export PYTHONDONTWRITEBYTECODE=1
export PATH="$PWD/build/tools/usr/bin:$PATH"

results=build/results
failed_stages=0
say() { printf '== %s\n' "$*"; }

# stage NAME COMMAND...: says how long it took. The cases that failed are counted from the result files; a stage that
# failed without leaving such a case (a build that breaks) is counted by broken().
stage() {
	local name=$1 began=$SECONDS
	shift
	say "$name"
	if "$@"; then
		say "$name: done in $((SECONDS - began)) s"
		return 0
	fi
	say "$name: FAILED after $((SECONDS - began)) s"
	return 1
}

broken() {
	echo "FAILED: $1"
	failed_stages=$((failed_stages + 1))
}

setup() { # DIR MESON_OPTION...
	local dir=$1 werror=false
	shift
	[ "${CI:-}" != true ] || werror=true
	if [ -f "$dir/build.ninja" ]; then
		meson configure "$dir" -Dtests=enabled -Dwerror=$werror
	else
		meson setup "$dir" -Dtests=enabled -Dwerror=$werror "$@"
	fi
}

compile() { # DIR MESON_OPTION...
	local log=$results/compile-$1.log
	if setup "$@" >"$log" 2>&1 && ninja -C "$1" >>"$log" 2>&1; then
		return 0
	fi
	tail -n 60 "$log"
	return 1
}

compile_sanitized() {
	compile build-asan -Db_sanitize=address,undefined -Db_lundef=false &&
		compile build-tsan -Db_sanitize=thread -Db_lundef=false
}

units() { # DIR MESON_TEST_ARGUMENT...
	local dir=$1
	shift
	rm -f "$dir/meson-logs/testlog.json" "$dir/meson-logs/testlog.junit.xml"
	meson test -C "$dir" --no-rebuild --print-errorlogs "$@" >"$results/units-$dir.log" 2>&1 && return 0
	cat "$results/units-$dir.log"
	return 1
}

blackbox() { # DIR SLOWNESS PYTEST_ARGUMENT...
	local dir=$1 slow=$2
	shift 2
	WEIR_BIN=$PWD/$dir/weir WEIR_SLOW=$slow build/venv/bin/python -m pytest tests/e2e -q -n 4 --dist=worksteal \
		-p no:cacheprovider --junitxml="$results/e2e-$dir.xml" "${only[@]}" "$@"
	local rc=$?
	# 5: nothing was selected. That is what -k may do; without it, it is a mistake.
	[ $rc -eq 0 ] || { [ $rc -eq 5 ] && [ ${#only[@]} -gt 0 ]; }
}

finish() {
	python3 tools/tally.py --stages-failed "$failed_stages" "$results"/*.xml -- \
		build build-asan build-tsan
	exit $?
}

rm -rf "$results"
rm -rf build-asan/meson-logs/testlog.* build-tsan/meson-logs/testlog.* build/meson-logs/testlog.*
stage "install what is missing" tools/deps.sh build test || { broken "tools/deps.sh"; mkdir -p $results; finish; }
mkdir -p $results
# Without it the tests that need it say so and are skipped.
if [ $mode = long ]; then
	stage "Java clients" tools/deps.sh java || true
	stage "Go clients" tools/deps.sh go || true
fi

stage "build" compile build -Ddebug=false || { broken "build"; finish; }

# The sanitized builds are made beside what is about no time at all; the black-box tests have the machine to themselves.
sanitized=
if [ $mode != fast ]; then
	compile_sanitized >"$results/compile-sanitized.log" 2>&1 &
	sanitized=$!
fi

stage "lint" tools/lint --junit "$results/lint.xml" || broken "lint"
stage "units" units build -t 4 || broken "units"

# A figure to watch from commit to commit, no test: it says so when valgrind is missing.
stage "instructions per request" python3 bench/instructions.py || say "instructions per request: could not be counted"

marks="not long"
if [ $mode = long ]; then
	marks="long or not long"
	stage "a real engine" tools/llama_server.sh || say "no llama-server: the tests that need one are skipped"
	stage "a real Consul" tools/go_server.sh consul || say "no consul: the tests that need one are skipped"
	stage "a real API server" tools/go_server.sh kube-apiserver || say "no kube-apiserver: the tests that need one are skipped"
	stage "another Nacos server" tools/rnacos.sh || say "no rnacos: the tests that need one are skipped"
fi

if [ -n "$sanitized" ] && ! stage "the rest of the sanitized builds" wait "$sanitized"; then
	cat "$results/compile-sanitized.log"
	broken "sanitized builds"
	sanitized=
fi
stage "black box" blackbox build 1 -m "$marks" || broken "black box, see above"

if [ -n "$sanitized" ]; then
	stage "units, ASan+UBSan" units build-asan -t 4 --no-suite lint || broken "units under ASan+UBSan"
	stage "units, TSan" units build-tsan -t 8 --no-suite lint || broken "units under TSan"
	asan="sanitize and not long" tsan="race and not long"
	[ $mode != long ] || asan="not chroot" tsan="not chroot"
	stage "black box, ASan+UBSan" blackbox build-asan 4 -m "$asan" || broken "black box under ASan+UBSan, see above"
	stage "black box, TSan" blackbox build-tsan 8 -m "$tsan" || broken "black box under TSan, see above"
fi
finish
