#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test.sh [cache|boot]...: the tests of the guest kernel (all by default).
#
#   cache  build.sh against a toy kernel source: cache, lock, errors. Seconds.
#   boot   the real kernels in QEMU without KVM: why a machine ends, what is
#          in it. Takes the kernels from build.sh, so builds them if need be.
#
# Prints "ok", "not ok" or "# skip" lines and "N passed, N failed, N skipped";
# exits 1 if one failed. With CI=true a skip is a failure.
set -u

here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/mote-kernel-test.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
passed=0 failed=0 skipped=0
got=0 # status of the command under test; set by the parts

ok() {
    passed=$((passed + 1))
    echo "ok $((passed + failed + skipped)) - $*"
}

# not_ok NAME FILE: what went wrong is in FILE.
not_ok() {
    failed=$((failed + 1))
    echo "not ok $((passed + failed + skipped)) - $1"
    sed 's/^/#   /' "$2" | tail -n 20
}

skip() {
    if [ "${CI:-}" = true ]; then
        echo "$2" >"$tmp/why"
        not_ok "$1 (a skip, and CI allows none)" "$tmp/why"
        return
    fi
    skipped=$((skipped + 1))
    echo "ok $((passed + failed + skipped)) - $1 # skip $2"
}

# expect NAME STATUS FILE [TEXT...]: the last command's status is STATUS (in
# $got), and FILE, its output, has each TEXT.
expect() {
    name=$1 want=$2 file=$3
    shift 3
    if [ "$got" != "$want" ]; then
        echo "expected status $want, got $got" >>"$file"
        not_ok "$name" "$file"
        return
    fi
    for text in "$@"; do
        if ! grep -qaF -e "$text" "$file"; then
            echo "expected the text: $text" >>"$file"
            not_ok "$name" "$file"
            return
        fi
    done
    ok "$name"
}

[ $# -gt 0 ] || set -- cache boot
for part in "$@"; do
    case $part in
    cache | boot)
        # shellcheck source=/dev/null
        . "$here/test_$part.sh"
        ;;
    *)
        echo "test.sh: $part: no such part; cache or boot" >&2
        exit 2
        ;;
    esac
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
