#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prove that a pure room's archive calls nothing but a short allowlist.
# usage: check_pure.sh libsched.a [more.a ...]   (non-sanitized build)
set -eu
allow='^(mem(cpy|move|set|cmp|chr)|str(len|nlen|cmp|ncmp|chr)|__stack_chk_fail|(weir|base|base64|model|wire|conf|fleet|sched|peek|engine|des|arena|buf|err|hash|heap|map|mem|num|pairing|slice|utf8|fastchat)_.*|_GLOBAL_OFFSET_TABLE_|__aarch64_.*|__u?(div|mod)ti3|__fixuns[sd]fti|__popcountdi2|__mem(cpy|move|set)_chk)$'
rc=0
for a in "$@"; do
	bad=$(nm -u "$a" | awk '$1=="U"{print $2}' | sort -u | grep -Ev "$allow" || true)
	if [ -n "$bad" ]; then
		echo "$a reaches outside the pure world:" $bad
		rc=1
	fi
done
[ $rc -eq 0 ] && echo "pure: $# archive(s) ok"
exit $rc
