#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install what is missing on a bare Debian 12; do nothing, and need no root, when all is there.
# usage: tools/deps.sh build|test|java|go|bench...
#
# A line of a set is PACKAGE or PACKAGE@PROBE: without a probe the package itself is asked for, with one any
# command of that name will do (a Node.js from another source brings its own npm, for instance).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/build/tools
say() { echo "deps: $*" >&2; }
die() { say "$*"; exit 1; }

set_build="gcc@gcc libc6-dev meson@meson ninja-build@ninja pkg-config@pkg-config curl@curl
libyaml-dev libjansson-dev libxxhash-dev libc-ares-dev libcurl4-openssl-dev libssl-dev libnghttp2-dev"
set_test="libcmocka-dev python3@python3 python3-venv@python3.venv nodejs@node npm@npm shellcheck@shellcheck valgrind@valgrind
openssl@openssl dnsmasq-base@dnsmasq"
set_java="maven@mvn default-jdk-headless@javac"
set_bench="python3@python3 haproxy@haproxy nginx-light@nginx strace@strace valgrind@valgrind"

has() { # PACKAGE[@PROBE]
	case $1 in
	*@python3.venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
	*@nginx | *@haproxy | *@dnsmasq) command -v "${1#*@}" >/dev/null || [ -x "/usr/sbin/${1#*@}" ] ;;
	*@*) command -v "${1#*@}" >/dev/null ;;
	*) dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed ;;
	esac
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

apt_get() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 "$@" </dev/null >&2
}

# Packages such as haproxy start a service on install; nobody asked for one. policy-rc.d is Debian's own way
# to say no; one that stands already is somebody's decision and is left alone.
forbid_services() {
	policy=/usr/sbin/policy-rc.d
	[ -e $policy ] && return 0
	trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
	as_root chmod 755 $policy
}

install_missing() { # PACKAGE[@PROBE]...
	missing=
	for p in "$@"; do
		has "$p" || missing="$missing ${p%@*}"
	done
	[ -n "$missing" ] || return 0
	command -v apt-get >/dev/null || die "missing:$missing; apt-get is not here, install them by hand"
	[ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
		die "missing:$missing; run as root, or install sudo, or install them by hand"
	say "installing$missing"
	forbid_services
	# The list is split on purpose. Old or absent package lists are refreshed once.
	# shellcheck disable=SC2086
	apt_get install -y --no-install-recommends $missing 2>/dev/null || {
		say "refreshing the package lists"
		apt_get update
		apt_get install -y --no-install-recommends $missing
	} || die "apt-get could not install:$missing"
}

# One program alone, out of its package: the package itself would bring a server, a user and a service.
fetch_tool() { # PROGRAM PACKAGE
	command -v "$1" >/dev/null && return 0
	[ -x "$tools/usr/bin/$1" ] && return 0
	say "unpacking $1 into build/tools"
	mkdir -p "$tools"
	(
		cd "$tools"
		apt-get -qq download "$2" 2>/dev/null || { apt_get update && apt-get -qq download "$2"; }
		dpkg-deb --fsys-tarfile "$2"_*.deb | tar -xf - "./usr/bin/$1"
		rm -f "$2"_*.deb
	) >&2 || die "cannot get $1 from the Debian package $2"
}

# stamped FOLDER FILE...: true when FOLDER was made from exactly these files.
stamped() {
	dir=$1
	shift
	[ -f "$dir/.made-from" ] && [ "$(cat "$@" | cksum)" = "$(cat "$dir/.made-from")" ]
}

make_venv() { # NAME REQUIREMENTS
	venv=$root/build/$1
	stamped "$venv" "$2" && return 0
	say "Python packages into build/$1"
	rm -rf "$venv"
	mkdir -p "$root/build"
	python3 -m venv "$venv" >&2
	"$venv/bin/pip" install --quiet --no-input --disable-pip-version-check -r "$2" </dev/null >&2 ||
		die "pip could not install $2"
	cksum <"$2" >"$venv/.made-from"
}

# For ./test.sh --long: each version of Nacos' Java client, and Spring Cloud Alibaba, with all that they need.
make_java() {
	for version in 2.3.2 3.0.3; do
		copy_maven tests/e2e/java "build/nacos-java/$version" -Dnacos.version=$version
	done
	copy_maven tests/e2e/java/spring build/spring
}

copy_maven() { # FOLDER_OF_POM TO MAVEN_ARGUMENT...
	pom=$root/$1 to=$root/$2
	shift 2
	stamped "$to" "$pom/pom.xml" && return 0
	say "Maven packages into ${to#"$root/"}"
	rm -rf "$to"
	(cd "$pom" && mvn -q -B "$@" -DoutputDirectory="$to" \
		org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies </dev/null >&2) ||
		die "Maven could not get what $pom/pom.xml names"
	cksum <"$pom/pom.xml" >"$to/.made-from"
}

# Clients in Go for ./test.sh --long: build/go/NAME of each tests/e2e/go/NAME. The toolchain is for the user to bring.
make_go() {
	command -v go >/dev/null || die "there is no Go toolchain here; the tests that need one are skipped"
	for module in "$root"/tests/e2e/go/*/; do
		name=$(basename "$module")
		say "Go modules into build/go/$name"
		(cd "$module" && GOTOOLCHAIN=local nice go build -trimpath -ldflags="-s -w" -o "$root/build/go/$name" . </dev/null >&2) ||
			die "Go could not build tests/e2e/go/$name"
	done
}

make_node_modules() {
	js=$root/tests/e2e/js
	stamped "$root/build/npm" "$js/package.json" "$js/package-lock.json" && return 0
	say "npm packages into build/npm"
	rm -rf "$root/build/npm"
	mkdir -p "$root/build/npm"
	cp "$js/package.json" "$js/package-lock.json" "$root/build/npm/"
	(cd "$root/build/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null >&2) ||
		die "npm could not install tests/e2e/js/package-lock.json"
	cat "$js/package.json" "$js/package-lock.json" | cksum >"$root/build/npm/.made-from"
}

[ $# -gt 0 ] || die "usage: tools/deps.sh build|test|java|go|bench..."
for set in "$@"; do
	# The sets are split on purpose.
	# shellcheck disable=SC2086
	case $set in
	build) install_missing $set_build ;;
	bench) install_missing $set_bench ;;
	test)
		install_missing $set_test
		fetch_tool promtool prometheus
		fetch_tool etcd etcd-server
		make_venv venv "$root/tests/e2e/requirements.txt"
		make_venv venv-nacos "$root/tests/e2e/requirements-nacos.txt"
		make_node_modules
		;;
	java)
		install_missing $set_java
		make_java
		;;
	go) make_go ;;
	*) die "no set is called $set; there are build, test, java, go and bench" ;;
	esac
done
