#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The agent's tests, on the agent as it ships and on one with sanitizers (the
# quick ones: not those of throughput). The last line sums up both.
# usage: run.sh [PART-OF-A-NAME]
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp)
trap 'rm -f "$out"' EXIT INT TERM
passed=0 failed=0 skipped=0

part() { # part COMMAND...
    "$@" >"$out" 2>&1
    rc=$?
    grep -vE '^[0-9]+ passed' "$out"
    # shellcheck disable=SC2046 # three numbers
    set -- $(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$out" | tail -1)
    [ $# -eq 3 ] || set -- 0 1 0
    [ "$rc" -ne 0 ] && [ "$2" -eq 0 ] && set -- "$1" 1 "$3"
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

part /usr/bin/python3 -B tests/agent/rootfs.py
part /usr/bin/python3 -B tests/agent/run.py --agent build/mote-agent "$@"
# glibc's own program: musl has no sanitizers.
mkdir -p build-asan
if ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O1 -g -I. -Wall -Wextra -Werror \
    -fsanitize=address,undefined -fno-sanitize-recover=all \
    guest/agent/*.c -o build-asan/mote-agent; then
    part /usr/bin/python3 -B tests/agent/run.py --quick --agent \
        build-asan/mote-agent "$@"
else
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
