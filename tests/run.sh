#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the lanes of a tier: run.sh check|test|soak, or run.sh lane NAME...
# Each lane prints a line of its own; the last line sums up:
# `N passed, N failed, N skipped`. Logs: build/test-logs/LANE.log
set -u
cd "$(dirname "$0")/.." || exit 1
logs=build/test-logs
mkdir -p "$logs"
jobs=$(nproc)

check_lanes='build-gcc build-clang lint unit unit-clang build-asan unit-asan seeds build-tsan unit-tsan agent cli api jail'
kvm_lanes='kernel guest-kernel kvm-here api-here e2e-here mainline'

# A lane is a command whose last matching line gives its counts; a lane that
# only builds counts as one test.
lane() {
    case "$1" in
    build-gcc) make -j"$jobs" build-gcc guest ;;
    build-clang) make -j"$jobs" build-clang-all ;;
    build-asan) make -j"$jobs" build-asan-all ;;
    build-tsan) make -j"$jobs" build-tsan-all ;;
    lint) tests/lint/lint.sh ;;
    unit) tests/unit/run.sh build/unit ;;
    unit-clang) tests/unit/run.sh build-clang/unit ;;
    unit-asan) tests/unit/run.sh build-asan/unit ;;
    unit-tsan)
        tests/unit/run.sh build-tsan/unit test_evloop test_virtio_mmio \
            test_uart test_exit_port test_i8042 test_api_server
        ;;
    seeds) tests/fuzz/run_seeds.sh build-asan/seeds ;;
    agent) tests/agent/run.sh ;;
    cli) tests/cli/run.sh ;;
    api) tests/api/run.sh --kvm without ;;
    api-here) tests/api/run.sh --kvm with ;;
    jail) tests/jail/run.sh ;;
    kernel) guest/kernel/build.sh tiny && guest/kernel/build.sh sandbox ;;
    guest-kernel) guest/kernel/test.sh ;;
    kvm-here) tests/kvm/run.sh ;;
    e2e-here) tests/e2e/run.sh quick ;;
    mainline)
        # One CPU: with several, QEMU's threads can keep a stale translation
        # of code that the kernel patches, and the machine stands still.
        tests/mainline/run.sh --timeout 2400 --cpus 1 --mem 6144 -- \
            tests/mainline/lane.sh
        ;;
    soak-vsock) tests/e2e/run.sh soak ;;
    soak-snapshots) CYCLES=200 tests/api/run.sh --filter 'snap_chain*' ;;
    *)
        echo "run.sh: no lane $1" >&2
        return 2
        ;;
    esac
}

case "${1:-}" in
check) lanes=$check_lanes ;;
test) lanes="$check_lanes $kvm_lanes" ;;
soak) lanes='build-gcc kernel soak-vsock soak-snapshots' ;;
lane)
    shift
    lanes=$*
    ;;
*)
    echo 'usage: run.sh check|test|soak | run.sh lane NAME...' >&2
    exit 2
    ;;
esac

passed=0
failed=0
skipped=0
failures=$logs/failures.txt
: >"$failures"
for name in $lanes; do
    log=$logs/$name.log
    start=$(date +%s)
    [ -t 1 ] && printf '%-14s ...\r' "$name"
    lane "$name" >"$log" 2>&1 </dev/null
    rc=$?
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$log" | tail -1)
    if [ -z "$counts" ]; then
        [ "$rc" -eq 0 ] && counts='1 0 0' || counts='0 1 0'
    fi
    # shellcheck disable=SC2086 # three numbers
    set -- $counts
    p=$1 f=$2 s=$3
    # A lane that fails without naming a test has failed as a whole, and so has
    # one that found nothing to run.
    [ "$rc" -ne 0 ] && [ "$f" -eq 0 ] && f=1
    [ $((p + f + s)) -eq 0 ] && f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    word=ok
    [ "$f" -gt 0 ] && word=FAILED
    printf '%-14s %-6s %4d passed %3d failed %3d skipped  %4d s\n' \
        "$name" "$word" "$p" "$f" "$s" "$(($(date +%s) - start))"
    grep -E '^skip ' "$log" | sed 's/^/    /'
    if [ "$f" -gt 0 ]; then
        # By name first: what reads this output may keep only a part of it.
        grep -E '^(not ok|FAIL|\[  FAILED  \] test)' "$log" | sort -u | tee -a "$failures" | sed 's/^/    /'
        echo "    the end of $log:"
        tail -n 60 "$log" | sed 's/^/    | /'
    fi
done
if [ -s "$failures" ]; then
    echo 'failed:'
    sed 's/^/    /' "$failures"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
