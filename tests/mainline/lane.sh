#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make test` runs inside the mainline machine: the jailer (which finds
# cgroup v2 there), the bare-metal programs, the control socket and the
# end-to-end cases. The last line sums up all.
set -u
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp)
passed=0
failed=0
skipped=0
for part in 'tests/jail/run.sh' 'tests/kvm/run.sh' 'tests/api/run.sh --kvm with' \
    'tests/e2e/run.sh full'; do
    echo "== $part"
    # shellcheck disable=SC2086 # a command with its argument
    { $part 2>&1; echo "$?" >"$out.rc"; } | tee "$out"
    rc=$(cat "$out.rc")
    # shellcheck disable=SC2046 # three numbers
    set -- $(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$out" | tail -1)
    [ $# -eq 3 ] || set -- 0 1 0
    [ "$rc" -ne 0 ] && [ "$2" -eq 0 ] && set -- "$1" 1 "$3"
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
done
rm -f "$out" "$out.rc"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
