#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build a real server out of its Go module, into build/tools/go/bin, for the long tests that want one.
# usage: tools/go_server.sh consul|kube-apiserver
# Takes some five minutes of a core each, once. Does nothing when one is there already; brings no Go toolchain.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/build/tools/go/bin
die() { echo "go_server: $*" >&2; exit 1; }

# A module that a server is built from cannot be installed by name: its own go.mod replaces parts of it by folders beside it.
# So there is one of ours, which names the published parts. Go checks what it gets against its checksum database.
consul_mod() {
	cat <<-'END'
		module weir/consul
		go 1.22.12
		require github.com/hashicorp/consul v1.20.6
		exclude (
			github.com/hashicorp/go-msgpack v1.1.5
			github.com/hashicorp/go-msgpack v1.1.6
		)
	END
}

kube_mod() {
	cat <<-'END'
		module weir/kube
		go 1.24.0
		require k8s.io/kubernetes v1.34.0
	END
	file=$(go mod download -json k8s.io/kubernetes@v1.34.0 | sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",$/\1/p')
	sed -n 's|^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging/.*|replace \1 => \1 v0.34.0|p' "$file"
}

case ${1:-} in
consul) path=github.com/hashicorp/consul mod=consul_mod given=${WEIR_CONSUL:-} ;;
kube-apiserver) path=k8s.io/kubernetes/cmd/kube-apiserver mod=kube_mod given=${WEIR_KUBE_APISERVER:-} ;;
*) die "usage: tools/go_server.sh consul|kube-apiserver" ;;
esac
[ -z "$given" ] || exit 0
[ ! -x "$bin/$1" ] || exit 0
! command -v "$1" >/dev/null || exit 0
command -v go >/dev/null || die "there is no Go toolchain here"
export GOTOOLCHAIN=local GOFLAGS=-mod=mod

# Not optimized: a third of the time to build, and fast enough for a test.
mkdir -p "$bin" "$root/build/tools/go/$1"
cd "$root/build/tools/go/$1"
$mod >go.mod
nice -n 19 go build -p 2 -trimpath -gcflags='all=-N -l -dwarf=false' -gcflags='std=-dwarf=false' -ldflags='-s -w' \
	-o "$bin/$1" "$path" >build.log 2>&1 || { tail -n 20 build.log >&2; die "Go could not build $path"; }
rm -rf "$root/build/tools/go/$1"
