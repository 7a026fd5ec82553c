#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs unit test programs: run.sh DIR [NAME...] (default: all in DIR). The last
# line is `N passed, N failed, N skipped`, counted from cmocka's own lines.
set -u
dir=$1
shift
[ $# -gt 0 ] || set -- $(cd "$dir" && ls -1 | grep '^test_[a-z0-9_]*$')
passed=0
failed=0
skipped=0
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT INT TERM

count() { # count WORD: the last number behind it
    sed -n "s/^\[  $1 *\] \([0-9]*\) test(s).*/\1/p" "$tmp" | tail -1
}

for t in "$@"; do
    timeout 300 "$dir/$t" >"$tmp" 2>&1
    rc=$?
    p=$(count PASSED) f=$(count FAILED) s=$(count SKIPPED)
    p=${p:-0} f=${f:-0} s=${s:-0}
    [ "$rc" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" -gt 0 ]; then
        echo "not ok $t (exit code $rc)"
        grep -vE '^\[ RUN|^\[       OK' "$tmp" | tail -40
    else
        echo "ok $t ($p)"
        sed -n "s/^\[  SKIPPED \] test_/skip $t test_/p" "$tmp" | sort -u |
            sed 's/$/ (this host does not have what it needs)/'
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
