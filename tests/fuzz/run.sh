#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes each target for a while: run.sh DIR-OF-LIBFUZZER-PROGRAMS SECONDS
# New inputs stay in the folder `corpus` beside the programs.
set -u
dir=$1
seconds=$2
here=$(dirname "$0")
passed=0
failed=0
for prog in "$dir"/fuzz_*; do
    [ -x "$prog" ] || continue
    name=$(basename "$prog")
    seeds=$here/seeds/$name
    corpus=$dir/corpus/$name
    mkdir -p "$corpus"
    echo "fuzzing $name for $seconds s"
    if "$prog" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$dir/$name-" "$corpus" "$seeds" \
        >"$dir/$name.log" 2>&1; then
        echo "ok $name ($(sed -n 's/^stat::number_of_executed_units: *//p;s/^Done \([0-9]*\) runs.*/\1 runs/p' "$dir/$name.log" | tail -1))"
        passed=$((passed + 1))
    else
        echo "not ok $name: see $dir/$name.log"
        tail -20 "$dir/$name.log"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
