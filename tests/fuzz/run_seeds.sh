#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target over its seeds: run_seeds.sh DIR-OF-SEED-PROGRAMS
set -u
dir=$1
here=$(dirname "$0")
passed=0
failed=0
for prog in "$dir"/fuzz_*; do
    [ -x "$prog" ] || continue
    name=$(basename "$prog")
    seeds=$here/seeds/$name
    if [ ! -d "$seeds" ]; then
        echo "not ok $name (no seeds)"
        failed=$((failed + 1))
    elif timeout 120 "$prog" "$seeds"/* >/dev/null 2>"$dir/$name.err"; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "not ok $name"
        tail -30 "$dir/$name.err"
        failed=$((failed + 1))
    fi
done
if [ $((passed + failed)) -eq 0 ]; then
    echo "not ok seeds (no programs in $dir: make seed-bins)"
    failed=1
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
