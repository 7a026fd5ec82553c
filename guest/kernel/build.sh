#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the guest kernel of one flavour, or takes it from the cache.
#
# The cache is ${MOTE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/mote}/kernel/KEY/
# with vmlinux, vmlinux.debug and config. One build runs at a time, under a
# lock; a finished one is renamed into place, so an entry is whole or absent.
# What the kernel is made of is the business of recipe.sh.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
scratch=
worker=

say() {
    echo "kernel $flavour: $*"
}

die() {
    echo "build.sh: $*" >&2
    exit 1
}

usage() {
    cat <<'TEXT'
usage: build.sh FLAVOUR [--out DIR]   build, or take from the cache
       build.sh --is-cached FLAVOUR   exit 0 if it needs no build, else 1
       build.sh --print-key FLAVOUR   the name of its cache entry
FLAVOUR is tiny or sandbox; DIR defaults to build/guest/FLAVOUR.
MOTE_LINUX_SRC=FILE|DIR replaces Debian's linux-source-6.12.
MOTE_CACHE=DIR replaces ~/.cache/mote.
TEXT
}

parse() {
    mode=build flavour='' out=''
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h)
            usage
            exit 0
            ;;
        --print-key | --is-cached) mode=${1#--} ;;
        --out)
            [ $# -ge 2 ] || die "--out needs a directory; see --help"
            out=$2
            shift
            ;;
        tiny | sandbox) flavour=$1 ;;
        *) die "$1: neither an option nor a flavour; see --help" ;;
        esac
        shift
    done
    [ -n "$flavour" ] || die "no flavour given: tiny or sandbox"
    out=${out:-$top/build/guest/$flavour}
}

find_store() {
    if [ -n "${MOTE_CACHE:-}" ]; then
        store=$MOTE_CACHE/kernel
    elif [ -n "${XDG_CACHE_HOME:-}" ]; then
        store=$XDG_CACHE_HOME/mote/kernel
    elif [ -n "${HOME:-}" ]; then
        store=$HOME/.cache/mote/kernel
    else
        die "no place for the cache: set MOTE_CACHE to a directory"
    fi
    mkdir -p "$store" 2>/dev/null ||
        die "$store: cannot be created; set MOTE_CACHE to another directory"
    # The recipe runs in another directory.
    store=$(cd "$store" && pwd)
}

find_source() {
    src=${MOTE_LINUX_SRC:-/usr/src/linux-source-6.12.tar.xz}
    if [ ! -r "$src" ] && [ -z "${MOTE_LINUX_SRC:-}" ]; then
        die "$src: missing; sudo apt-get install linux-source-6.12" \
            "(or set MOTE_LINUX_SRC to a kernel tarball or tree)"
    fi
    [ -r "$src" ] ||
        die "$src: cannot be read; set MOTE_LINUX_SRC to a tarball or tree"
    src=$(realpath "$src")
    if [ -d "$src" ] && [ ! -f "$src/Kbuild" ]; then
        die "$src: not a Linux source tree (no Kbuild in it);" \
            "check MOTE_LINUX_SRC"
    fi
}

# A tree is known by its files' names, sizes and times. A tarball is known by
# its hash, noted beside its size and time because hashing costs half a second.
source_id() {
    if [ -d "$src" ]; then
        find "$src" -name .git -prune -o -type f -printf '%P %s %T@\n' |
            sort | sha256sum | cut -c1-64
        return
    fi
    stamp=$(stat -c '%s %i %Y' "$src")
    note=$store/source-$(printf %s "$src" | cksum | cut -d' ' -f1)
    known=$(cat "$note" 2>/dev/null || true)
    if [ "${known% *}" != "$stamp" ]; then
        known="$stamp $(sha256sum <"$src" | cut -c1-64)"
        echo "$known" >"$note.$$"
        mv -f "$note.$$" "$note"
    fi
    echo "${known##* }"
}

cache_key() {
    {
        source_id
        gcc --version 2>/dev/null | head -n 1
        ld --version 2>/dev/null | head -n 1
        cd "$here"
        for f in recipe.sh "$flavour.config" patches/*.patch; do
            echo "== $f"
            cat "$f"
        done
    } | sha256sum | cut -c1-20
}

# Checks what only a build needs, so that a cached kernel needs none of it.
check_tools() {
    [ "$(uname -m)" = x86_64 ] ||
        die "$(uname -m): guest kernels are built on x86_64 only;" \
            "copy build/guest from such a machine"
    need=''
    want() {
        command -v "$1" >/dev/null || need="$need $2"
    }
    want gcc gcc
    want ld binutils
    want make make
    want patch patch
    want flex flex
    want bison bison
    want bc bc
    want xz xz-utils
    want perl perl
    if [ -z "$need" ]; then
        echo '#include <gelf.h>' | gcc -E - >/dev/null 2>&1 ||
            need=' libelf-dev'
    fi
    [ -z "$need" ] ||
        die "tools are missing; sudo apt-get install$need"
    free_kib=$(df -Pk "$store" | awk 'NR == 2 { print $4 }')
    [ "$free_kib" -ge 1500000 ] ||
        die "$store: only $((free_kib / 1024)) MiB free and a build needs" \
            "1500; make room, or set MOTE_CACHE to another file system"
}

stop_worker() {
    [ -z "$worker" ] || kill -KILL -- "-$worker" 2>/dev/null || true
    [ -z "$scratch" ] || rm -rf "$scratch"
    worker='' scratch=''
}

# One builder at a time: a kernel build takes every core there is.
take_lock() {
    exec 9>>"$store/lock"
    if ! flock -n 9; then
        say "waiting for another kernel build" \
            "($(cat "$store/builder" 2>/dev/null || true))"
        flock 9
    fi
    echo "process $$, $flavour" >"$store/builder"
    # Nobody else builds now, so what lies here is of a build that was killed.
    rm -rf "$store"/scratch.* 2>/dev/null || true
}

elapsed() {
    echo $(($(date +%s) - started))
}

# Draws the state of the build: a bar on a terminal, else a line every 10 s.
show_progress() {
    count=$(grep -c '^  [A-Z]' "$scratch/log" 2>/dev/null || true)
    [ "${count:-0}" -gt 0 ] || count=0
    [ "$count" -le "$expected" ] || expected=$count
    if [ "$count" -eq 0 ]; then
        text="unpacking the source, $(elapsed) s"
    else
        text="$count of about $expected objects, $(elapsed) s"
    fi
    if [ -t 1 ]; then
        bar=$(printf '%*s' $((count * 30 / expected)) '' | tr ' ' '#')
        printf '\r\033[Kkernel %s: [%-30s] %s' "$flavour" "$bar" "$text"
    elif [ "$(elapsed)" -ge "$next_line" ]; then
        say "$text"
        next_line=$(($(elapsed) + 10))
    fi
}

report_failure() {
    log=$store/failed-$flavour.log
    mv -f "$scratch/log" "$log"
    tail -n 15 "$log" >&2
    die "the build of the $flavour kernel failed; its log is $log"
}

build() {
    check_tools
    scratch=$(mktemp -d "$store/scratch.XXXXXX")
    started=$(date +%s) next_line=10
    expected=$(cat "$store/objects-$flavour" 2>/dev/null || true)
    # First time: what the kernels of today come to.
    [ -n "$expected" ] || case $flavour in
    tiny) expected=1560 ;;
    sandbox) expected=2050 ;;
    esac
    say "building from ${src##*/}, once; later builds use the cache"
    # A clean environment (no CC or MAKEFLAGS of our caller), a session of its
    # own (so that it can be stopped as a whole), and not our lock.
    env -i PATH="$PATH" HOME="${HOME:-/}" TMPDIR="${TMPDIR:-/tmp}" \
        setsid sh "$here/recipe.sh" \
        "$src" "$flavour" "$scratch" >"$scratch/log" 2>&1 </dev/null 9>&- &
    worker=$!
    while kill -0 "$worker" 2>/dev/null; do
        show_progress
        sleep 1
    done
    [ ! -t 1 ] || printf '\r\033[K'
    wait "$worker" || {
        worker=''
        report_failure
    }
    worker=''
    grep -c '^  [A-Z]' "$scratch/log" >"$store/objects-$flavour"
    mv -T "$scratch/out" "$entry"
    say "built in $(elapsed) s"
    rm -rf "$scratch"
    scratch=''
}

# A hard link shares the page cache with every other checkout.
install_kernel() {
    mkdir -p "$out" || die "$out: cannot be created; choose another --out"
    ours=$(stat -c %d:%i "$entry/vmlinux")
    if [ "$ours" != "$(stat -c %d:%i "$out/vmlinux" 2>/dev/null)" ]; then
        new=$out/.vmlinux.$$
        ln -f "$entry/vmlinux" "$new" 2>/dev/null ||
            cp "$entry/vmlinux" "$new" ||
            die "$new: cannot be written; choose another --out"
        mv -f "$new" "$out/vmlinux"
    fi
    say "$out/vmlinux ($1, ${key})"
}

parse "$@"
find_store
find_source
key=$(cache_key)
entry=$store/$key
case $mode in
print-key)
    echo "$key"
    exit 0
    ;;
is-cached)
    [ -f "$entry/vmlinux" ]
    exit
    ;;
esac
if [ -f "$entry/vmlinux" ]; then
    install_kernel cached
    exit 0
fi
trap stop_worker EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
take_lock
if [ -f "$entry/vmlinux" ]; then
    install_kernel 'built by another'
    exit 0
fi
build
install_kernel built
