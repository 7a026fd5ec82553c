#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# recipe.sh SOURCE FLAVOUR SCRATCH: from a kernel source to a finished kernel.
#
# Started by build.sh, never by hand. Everything that decides what the kernel
# is made of stands here and not in build.sh: this file is part of the cache
# key, build.sh is not. Reads the fragment and the patches beside it; writes
# only below SCRATCH; leaves SCRATCH/out/{vmlinux,vmlinux.debug,config}.
# Standard output is the build log.
set -eu

source=$1
flavour=$2
scratch=$3
here=$(cd "$(dirname "$0")" && pwd)
tree=$scratch/tree
objects=$scratch/objects
fragment=$here/$flavour.config

# The same input gives the same vmlinux, whoever builds it.
LC_ALL=C
KBUILD_BUILD_USER=mote
KBUILD_BUILD_HOST=mote
KBUILD_BUILD_VERSION=1
export LC_ALL KBUILD_BUILD_USER KBUILD_BUILD_HOST KBUILD_BUILD_VERSION

fail() {
    echo "recipe: $*"
    exit 1
}

# If build.sh is killed, so that it cannot stop us, stop by ourselves.
watch_parent() {
    (
        while [ -d "/proc/$PPID" ]; do
            sleep 1
        done
        kill -KILL 0
    ) &
    watcher=$!
    trap 'kill "$watcher" 2>/dev/null || true' EXIT
}

# Sources of hardware that no guest of ours has. Only the code is left out:
# make and Kconfig walk through every folder. An option that needs one of
# these folders fails with "No rule to make target": take it from this list.
unneeded() {
    cat <<'LIST'
*/.git
*/Documentation/*/*
*/samples/*/*.c
*/drivers/accel/*.[ch]
*/drivers/clk/*/*.[ch]
*/drivers/gpu/*.[ch]
*/drivers/iio/*.[ch]
*/drivers/infiniband/*.[ch]
*/drivers/media/*.[ch]
*/drivers/net/ethernet/*.[ch]
*/drivers/net/wireless/*.[ch]
*/drivers/pinctrl/*/*.[ch]
*/drivers/scsi/*/*.[ch]
*/drivers/staging/*.[ch]
*/sound/*.[ch]
*/tools/perf
*/tools/testing
LIST
    for arch in alpha arc arm arm64 csky hexagon loongarch m68k microblaze \
        mips nios2 openrisc parisc powerpc riscv s390 sh sparc um xtensa; do
        echo "*/arch/$arch/*.[chS]"
        echo "*/arch/$arch/*.dts*"
    done
}

unpack() {
    echo "recipe: unpack $source"
    mkdir -p "$tree" "$objects"
    unneeded >"$scratch/unneeded"
    if [ -d "$source" ]; then
        tar -C "$source" -c -X "$scratch/unneeded" . | tar -C "$tree" -x
        make -s -C "$tree" mrproper
    else
        tar -C "$tree" -x -f "$source" --strip-components=1 \
            -X "$scratch/unneeded"
    fi
    [ -f "$tree/Kbuild" ] || fail "$source is not a Linux source"
}

apply_patches() {
    for p in "$here"/patches/*.patch; do
        echo "recipe: apply ${p##*/}"
        patch -d "$tree" -p1 -s -t --no-backup-if-mismatch <"$p" ||
            fail "${p##*/} does not apply to this source"
    done
}

kmake() {
    make -C "$tree" O="$objects" ARCH=x86_64 "$@"
}

# An option whose dependencies are not met vanishes without a word: find it.
check_config() {
    lost=$(
        grep -E '^(CONFIG_|# CONFIG_)' "$fragment" | while read -r line; do
            case $line in
            '# CONFIG_'*' is not set')
                name=${line#\# }
                ! grep -q "^${name%% *}=" "$objects/.config" || echo "$line"
                ;;
            *)
                grep -qxF "$line" "$objects/.config" || echo "$line"
                ;;
            esac
        done
    )
    [ -z "$lost" ] || fail "without effect in $flavour.config:
$lost"
}

configure() {
    twice=$(sed -n -E 's/^(# )?(CONFIG_[A-Za-z0-9_]+)[= ].*/\2/p' "$fragment" |
        sort | uniq -d)
    [ -z "$twice" ] || fail "set twice in $flavour.config: $twice"
    kmake -s tinyconfig
    (cd "$tree" && scripts/kconfig/merge_config.sh -m -O "$objects" \
        "$objects/.config" "$fragment")
    kmake -s olddefconfig
    check_config
}

watch_parent
unpack
# What uname -v shows: the date of the source, not of the build.
KBUILD_BUILD_TIMESTAMP=$(date -u -r "$tree/Makefile")
export KBUILD_BUILD_TIMESTAMP
apply_patches
configure
kmake -j"$(nproc)" vmlinux

mkdir "$scratch/out"
cp "$objects/.config" "$scratch/out/config"
cp "$objects/vmlinux" "$scratch/out/vmlinux.debug"
strip -o "$scratch/out/vmlinux" "$objects/vmlinux"
chmod 0444 "$scratch/out"/*
