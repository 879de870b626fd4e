#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The two commands of the README in a bare Debian 12 (debootstrap, chroot), with nothing installed but git.
# usage: clean_root.sh run|test [FOLDER]
#   run:  ./run.sh until the first streamed token; says how long that took
#   test: ./test.sh --fast
# Needs root and debootstrap. The mirror and the way to it are those of this machine's own apt.
set -euo pipefail
what=${1:?usage: clean_root.sh run|test [FOLDER]}
repo=$(cd "$(dirname "$0")/../.." && pwd)
made=
if [ $# -gt 1 ]; then
	root=$2
	mkdir -p "$root"
else
	root=$(mktemp -d)
	made=yes
fi
child=

die() {
	echo "clean_root: $*" >&2
	exit 1
}

# Ends what was started inside, by pid, then what was mounted, then the folder if it was made here.
# shellcheck disable=SC2317
cleanup() {
	if [ -n "$child" ]; then
		kill -TERM "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	for m in dev proc; do
		if mountpoint -q "$root/$m"; then
			umount "$root/$m"
		fi
	done
	# Never delete through a mount that could not be undone.
	if [ -n "$made" ] && ! grep -q " $root/" /proc/mounts; then
		rm -rf --one-file-system "$root"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

[ "$(id -u)" -eq 0 ] || die "needs root"
command -v debootstrap >/dev/null || die "needs the Debian package debootstrap"

# The first Debian archive that apt here knows, as it stands there.
mirror=$(apt-get indextargets --format '$(SITE) $(CREATED_BY) $(CODENAME)' 2>/dev/null |
	awk '$2 == "Packages" && $3 == "bookworm" {print $1; exit}')
[ -n "$mirror" ] || die "apt here names no archive of Debian 12 (bookworm); run apt-get update first"

if [ ! -x "$root/usr/bin/git" ]; then
	debootstrap --variant=minbase --include=git,ca-certificates bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
		{ tail -n 20 "$root.log" >&2; die "debootstrap failed"; }
	rm -f "$root.log"
	# The same ways out as this machine has: its sources, its certificates, its proxy, its registries.
	rm -f "$root/etc/apt/sources.list" "$root"/var/lib/apt/lists/*Packages
	cp -a /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d "$root/etc/apt/" 2>/dev/null || true
	rm -f "$root"/etc/apt/sources.list.d/*node*
	cp -a /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
	for f in /etc/pip.conf /etc/npmrc "${HOME:-/root}/.npmrc"; do
		[ ! -f "$f" ] || { mkdir -p "$root$(dirname "$f")" && cp -L "$f" "$root$f"; }
	done
fi
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev" || mount --bind /dev "$root/dev"

rm -rf "$root/srv/weir"
git clone -q "$repo" "$root/srv/weir"

# Only what leads out is passed on, so that nothing of this machine's tools leaks in.
env_in=(env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
while IFS='=' read -r name value; do
	case $name in
	http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY | PIP_* | npm_config_* | NPM_CONFIG_* | SSL_CERT_* | NODE_EXTRA_CA_CERTS)
		env_in+=("$name=$value")
		;;
	esac
done < <(env)
inside() { chroot "$root" "${env_in[@]}" /bin/sh -c "cd /srv/weir && $1"; }

case $what in
run)
	began=$SECONDS
	log=$(mktemp)
	chroot "$root" "${env_in[@]}" /bin/sh -c \
		'cd /srv/weir && exec ./run.sh --port 0 --admin-port 0 --registry-port 0' >"$log" 2>&1 </dev/null &
	child=$!
	for ((i = 0; i < 900; i++)); do
		if grep -q '^Ctrl-C ends it all' "$log"; then
			break
		fi
		kill -0 "$child" 2>/dev/null || { cat "$log" >&2; die "run.sh ended"; }
		sleep 1
	done
	# The command that a reader would paste, as run.sh printed it.
	paste=$(sed -n '/^curl -N/,/^  -d/p' "$log")
	[ -n "$paste" ] || { cat "$log" >&2; die "run.sh printed no curl command"; }
	# grep leaves after the first token; that curl then cannot write is no failure.
	{ chroot "$root" "${env_in[@]}" /bin/sh -c "$paste" 2>/dev/null || true; } | grep -q -m1 '^data: .*"content"' ||
		{ cat "$log" >&2; die "no token came"; }
	echo "clean_root: first streamed token after $((SECONDS - began)) s"
	kill -TERM "$child"
	wait "$child" || true
	child=
	# Processes come and go while find looks: what vanished is not left behind.
	left=$({ find /proc -maxdepth 2 -name root -lname "$root" 2>/dev/null || true; } | wc -l)
	[ "$left" -eq 0 ] || die "run.sh left $left processes behind"
	;;
test) inside './test.sh --fast </dev/null' ;;
*) die "run or test, not $what" ;;
esac
