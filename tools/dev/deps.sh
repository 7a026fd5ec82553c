#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a goal needs: deps.sh run|test
# On another distribution it prints the list and stops.
set -eu

run_packages="
    gcc binutils make perl libc6-dev linux-libc-dev pkg-config musl-tools
    liburing-dev libfdt-dev libjansson-dev libseccomp-dev
    zlib1g-dev libzstd-dev liblz4-dev liblzma-dev
    linux-source-6.12 xz-utils patch flex bison bc libelf-dev
    busybox-static python3 passt
"
test_packages="
    clang clang-format clang-tidy libclang-rt-14-dev cppcheck
    libcmocka-dev
    qemu-system-x86 cpio kmod device-tree-compiler
    python3-yaml
    iproute2 ethtool util-linux procps erofs-utils e2fsprogs xfsprogs strace git
"

case "${1:-}" in
run) packages=$run_packages ;;
test) packages="$run_packages $test_packages" ;;
*)
    echo "usage: deps.sh run|test" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
    [ "${MOTE_NO_DEPS:-}" = 1 ] && exit 0
    echo "deps: this is no Debian; install what these packages hold, then set MOTE_NO_DEPS=1:" >&2
    # shellcheck disable=SC2086 # a list of words
    printf ' %s' $packages >&2
    echo >&2
    exit 1
fi

# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $packages 2>/dev/null |
    sed -n 's/ installed$//p')
missing=
for p in $packages; do
    printf '%s\n' "$installed" | grep -qxF "$p" || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "deps: not root and no sudo; as root: apt-get install$missing" >&2
        exit 1
    }
    sudo="sudo"
fi
echo "deps: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
if ! $sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1; then
    $sudo apt-get update -q >&2
    $sudo apt-get install -y --no-install-recommends $missing >&2
fi
