#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each header compiles alone and has a guard named after its path; each source
# starts with its licence.
set -eu
cd "$(dirname "$0")/../.."
fails=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM

for h in $(git ls-files '*.h'); do
    [ -f "$h" ] || continue
    guard=$(printf '%s' "$h" | tr 'a-z/.-' 'A-Z___')
    case "$h" in
    tools/*) alt=${guard#TOOLS_} ;;
    *) alt=$guard ;;
    esac
    if ! grep -qE "^#ifndef ($guard|$alt)\$" "$h"; then
        echo "check-headers: $h: no guard $guard" >&2
        fails=$((fails + 1))
    fi
    printf '#include "%s"\n' "$h" >>"$tmp/all.lst"
    printf '#include "%s"\n#include "%s"\n' "$h" "$h" >"$tmp/t.c"
    case "$h" in
    guest/payloads/*) flags='-ffreestanding -mgeneral-regs-only' ;;
    *) flags= ;;
    esac
    # shellcheck disable=SC2086
    if ! ${CC:-gcc} -std=c11 -D_GNU_SOURCE -I. $flags -Wall -Wextra -Werror \
        -fsyntax-only "$tmp/t.c" 2>"$tmp/err"; then
        echo "check-headers: $h does not compile alone:" >&2
        head -5 "$tmp/err" >&2
        fails=$((fails + 1))
    fi
done
for f in $(git ls-files '*.c' '*.h' '*.S' '*.sh' '*.py'); do
    [ -f "$f" ] || continue
    head -3 "$f" | grep -q 'SPDX-License-Identifier:' || {
        echo "check-headers: $f: no SPDX line" >&2
        fails=$((fails + 1))
    }
done
[ "$fails" -eq 0 ] || exit 1
echo "check-headers: ok"
