#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layers, headers, format, clang-tidy and cppcheck over the product's sources.
# The last line is `N passed, N failed, N skipped`, one for each tool.
set -u
cd "$(dirname "$0")/../.." || exit 1
passed=0
failed=0
jobs=$(nproc)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM

step() { # step NAME COMMAND...
    name=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "not ok $name"
        grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header' \
            "$tmp/out" | head -60
        failed=$((failed + 1))
    fi
}

sources() { git ls-files "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }

format() {
    sources '*.c' '*.h' | xargs -P "$jobs" -n 16 clang-format --dry-run -Werror
}

# What the compilers are given (Makefile), but for warnings that they do.
flags='-std=c11 -D_GNU_SOURCE -I. -Ibuild -DMOTE_VERSION="0" -DHAVE_ZSTD -DHAVE_LZ4 -DHAVE_LZMA'

tidy() {
    # shellcheck disable=SC2086
    sources 'vmm/*.c' 'devices/*.c' 'boot/*.c' 'tools/*.c' 'guest/agent/*.c' |
        xargs -P "$jobs" -I{} clang-tidy --quiet {} -- $flags
}

# - missingIncludeSystem: system headers are not analysed
# - unmatchedSuppression: a file may have none of them
# - normalCheckLevelMaxBranches: information only
cpp() {
    cppcheck --quiet --error-exitcode=1 -j "$jobs" --std=c11 -I. -Ibuild -D_GNU_SOURCE \
        -DMOTE_VERSION='"0"' -D__x86_64__ --inline-suppr \
        --enable=warning,performance,portability \
        --suppress=missingIncludeSystem --suppress=unmatchedSuppression \
        --suppress=normalCheckLevelMaxBranches \
        --include="/usr/include/$(gcc -print-multiarch)/sys/queue.h" \
        vmm devices boot tools guest/agent
}

# Headers that a build makes.
make -s build/gen/seccomp_programs.h

step layers tests/lint/check-layers.sh
step headers tests/lint/check-headers.sh
step format format
step cppcheck cpp
step clang-tidy tidy
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
