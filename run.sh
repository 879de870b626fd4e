#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Build Weir and start it with three emulated workers of different GPUs. Ctrl-C ends everything.
# usage: ./run.sh [flags of `weir serve`]
# With --worker-urls no emulated worker is started; see `build/weir serve --help` for the other flags.
set -euo pipefail
cd "$(dirname "$0")"

model=llama-3-8b
gpus=(a100 3090 t4)
pids=()
dir=

say() { printf '%s\n' "$*"; }

stop_all() {
	trap '' INT TERM HUP
	# Workers first: Weir then drains with nobody left to wait for. Only what was started here, by its pid.
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		kill -TERM "${pids[i]}" 2>/dev/null || true
	done
	wait
	if [ -n "$dir" ]; then
		rm -rf "$dir"
	fi
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# In sessions of their own: a Ctrl-C reaches this script alone, which then ends them in order, with one signal each.
# start NAME COMMAND...: runs it, waits for its one line "ready ..." and leaves that line in $ready.
# Its standard error stays on the terminal for weir itself and goes to a log for the workers.
start() {
	local name=$1 log line fd
	shift
	mkfifo "$dir/$name"
	log=$dir/$name.log
	if [ "$name" = weir ]; then
		setsid "$@" >"$dir/$name" &
	else
		setsid "$@" >"$dir/$name" 2>"$log" &
	fi
	pids+=($!)
	exec {fd}<"$dir/$name"
	ready=
	while IFS= read -r -t 60 line <&"$fd"; do
		case $line in
		"ready "*)
			ready=$line
			break
			;;
		*) say "$name: $line" ;;
		esac
	done
	if [ -z "$ready" ]; then
		[ ! -f "$log" ] || cat "$log" >&2
		kill -TERM "${pids[-1]}" 2>/dev/null || true
		local rc=0
		wait "${pids[-1]}" || rc=$?
		unset 'pids[-1]'
		[ "$rc" -eq 2 ] && return 2 # the command line or the configuration: it has said what
		return 1
	fi
	cat <&"$fd" & # ends with its writer
	exec {fd}<&-
}

# field KEY: the value of KEY= in the ready line.
field() {
	local word
	for word in $ready; do
		case $word in
		"$1="*) say "${word#*=}" ;;
		esac
	done
}

# here ADDRESS: one that listens on every address is reached on loopback.
here() {
	say "${1/#0.0.0.0:/127.0.0.1:}"
}

tools/deps.sh build
mkdir -p build
build() {
	[ -f build/build.ninja ] || meson setup build -Ddebug=false || return 1
	ninja -C build weir
}
if ! build >build/run.log 2>&1; then
	cat build/run.log >&2
	exit 1
fi

emulate=yes
for arg in "$@"; do
	case $arg in
	--worker-urls | --worker-urls=*) emulate=no ;;
	-h | --help) exec build/weir serve --help ;;
	esac
done

dir=$(mktemp -d)
rc=0
start weir build/weir serve "$@" || rc=$?
if [ $rc -ne 0 ]; then
	[ $rc -eq 2 ] || say "run.sh: weir did not start. If a port is taken: ./run.sh --port 0 --admin-port 0 --registry-port 0 takes free ones." >&2
	exit $rc
fi
data=$(here "$(field data)")
admin=$(here "$(field admin)")
registry=$(here "$(field registry)")

if [ $emulate = yes ]; then
	if [ -z "$registry" ] || [ "$registry" = off ]; then
		say "run.sh: the emulated workers register themselves, so they need the registry: drop --registry-port off, or give --worker-urls." >&2
		exit 1
	fi
	for gpu in "${gpus[@]}"; do
		if ! start "$gpu" build/weir worker --port 0 --gpu "$gpu" --model "$model" \
			--registry "http://$registry" --service demo --report 500ms; then
			say "run.sh: the emulated $gpu worker did not start." >&2
			exit 1
		fi
		say "worker   $gpu at $(field worker)"
	done
	# A worker is ready when it can serve; Weir answers for the model once the registration has reached the data plane.
	if ! curl -fsS --retry 30 --retry-delay 1 --retry-all-errors -o /dev/null -X POST "http://$data/v1/completions" \
		-H 'Content-Type: application/json' -d "{\"model\":\"$model\",\"prompt\":\"ready?\",\"max_tokens\":1}" 2>/dev/null; then
		say "run.sh: weir does not answer for $model." >&2
		exit 1
	fi
fi

say ""
say "Weir     http://$data"
say "metrics  http://$admin/metrics"
[ -z "$registry" ] || say "registry http://$registry"
say ""
if [ $emulate = yes ]; then
	say "Try a streaming chat:"
else
	say "Try a streaming chat (put in one of the models of http://$data/v1/models):"
	model=MODEL
fi
say ""
say "curl -N http://$data/v1/chat/completions -H 'Content-Type: application/json' \\"
say "  -d '{\"model\":\"$model\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Why do weirs hum?\"}]}'"
say ""
say "Ctrl-C ends it all."

# A worker that ends, or that you kill to see what happens, is Weir's matter; without Weir there is nothing left to do.
rc=0
wait "${pids[0]}" || rc=$?
exit "$rc"
