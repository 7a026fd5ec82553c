#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes what the mainline test machine boots from, once, and prints the
# directory that holds it:
#   vmlinux   Debian's stock kernel, unpacked (QEMU enters it by its PVH note:
#             a decompressor under TCG would take six seconds)
#   bzImage   the same as packaged, for tests that boot a distribution's kernel
#   initrd    the program in pid1/ and the modules that it loads
#   relay     what takes the command's output from the machine
#   modules/  the rest of the modules, for modprobe inside the machine
#   version   package and version
#
# MOTE_MAINLINE_DEB=FILE  take this linux-image package instead of the archive's
# MOTE_CACHE=DIR          default ${XDG_CACHE_HOME:-$HOME/.cache}/mote
#
# Any number of these may run at a time: one builds under a lock, and the
# directory gets its name when it is whole.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${MOTE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/mote}/mainline

# One line per group that pid1/init.c loads. Dependencies come from the package itself.
declare -A groups=(
    [base]="virtio_pci virtio_console 9pnet_virtio 9p overlay"
    [kvm]="kvm_amd tun"
    [net]="virtio_net"
    [disk]="virtio_blk"
)
# What modprobe may find inside the machine; 250 MB of drivers for hardware
# that QEMU does not have stay out.
kept=(arch block crypto fs lib mm net virt drivers/block drivers/char
    drivers/dax drivers/md drivers/net/*.ko drivers/net/ipvlan
    drivers/net/wireguard drivers/nvdimm drivers/vhost drivers/virtio)

die() {
    echo "mainline: $*" >&2
    exit 125
}

need() {
    local tool=$1 package=$2
    PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
        die "$tool is missing; remedy: apt-get install $package"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# The name of the newest stock kernel package, empty if apt knows none.
package_name() {
    apt-cache depends linux-image-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1
}

# Prints "PACKAGE VERSION".
find_package() {
    local name version
    need apt-cache apt
    name=$(package_name)
    if [ -z "$name" ]; then
        echo "mainline: apt has no package lists, fetching them" >&2
        as_root apt-get -qq update >&2 ||
            die "apt knows no linux-image-amd64; remedy: sudo apt-get update," \
                "or MOTE_MAINLINE_DEB=FILE with a linux-image package"
        name=$(package_name)
    fi
    [ -n "$name" ] || die "apt knows no linux-image-amd64; remedy:" \
        "MOTE_MAINLINE_DEB=FILE with a Debian linux-image package"
    version=$(apt-cache show --no-all-versions "$name" |
        sed -n 's/^Version: //p')
    echo "$name $version"
}

# Fetches package $1 at version $2 into the directory $3, prints the file.
fetch_package() {
    local options=()
    # As root apt drops to the user _apt, who cannot write to our directory.
    [ "$(id -u)" != 0 ] || options=(-o APT::Sandbox::User=root)
    echo "mainline: downloading $1 $2 (once, 70 MB)" >&2
    (cd "$3" && apt-get -qq "${options[@]}" download "$1=$2" >&2) ||
        die "download of $1 failed; remedy: look at the network, run" \
            "apt-get update, or set MOTE_MAINLINE_DEB=FILE"
    echo "$3"/*.deb
}

# le32 FILE OFFSET
le32() {
    od -An -tu4 -j "$2" -N 4 --endian=little "$1" | tr -d ' '
}

# Unpacks the ELF that bzImage $1 carries into $2 (spec: x86-boot, fields
# setup_sects, payload_offset, payload_length; the payload ends with its
# unpacked size).
unpack_kernel() {
    local setup offset length size magic unpack
    setup=$(od -An -tu1 -j 497 -N 1 "$1" | tr -d ' ')
    [ "$setup" != 0 ] || setup=4
    offset=$(((setup + 1) * 512 + $(le32 "$1" 584)))
    length=$(le32 "$1" 588)
    size=$(le32 "$1" $((offset + length - 4)))
    magic=$(od -An -tx1 -j "$offset" -N 4 "$1" | tr -d ' ')
    case $magic in
    fd377a58) unpack=(xz --single-stream -dc) ;;
    28b52ffd) unpack=(zstd -qdc) ;;
    1f8b*) unpack=(gzip -dc) ;;
    *) die "the kernel's compression (magic $magic) is not known here" ;;
    esac
    # What follows the stream makes some of these tools complain: the size
    # tells whether all of it was there.
    tail -c "+$((offset + 1))" "$1" | head -c "$length" |
        "${unpack[@]}" 2>/dev/null >"$2" || true
    [ "$(stat -c %s "$2")" = "$size" ] ||
        die "the kernel in the package does not unpack with ${unpack[0]}"
}

# Writes the module list of every group and the modules to directory $2.
# $1: unpacked package, $3: kernel release.
collect_modules() {
    local group module line file base
    mkdir -p "$2/modules"
    for group in "${!groups[@]}"; do
        for module in ${groups[$group]}; do
            modprobe -C /dev/null -d "$1" -S "$3" --show-depends "$module" ||
                die "the kernel package has no module $module"
        done | while read -r line file; do
            [ "$line" = insmod ] || continue
            file=${file%% *}
            base=$(basename "$file")
            # Unsigned and without BTF they load in a third of the time.
            [ -e "$2/modules/$base" ] ||
                objcopy --strip-debug --remove-section=.BTF "$file" \
                    "$2/modules/$base"
            echo "/modules/$base"
        done | awk '!seen[$0]++' >"$2/modules/$group"
    done
}

# Copies the modules worth keeping from package $1 to directory $2.
keep_modules() {
    local source=$1/lib/modules/$3 target=$2/$3 path
    mkdir -p "$target"
    cp "$source"/modules.{order,builtin,builtin.modinfo} "$target/"
    (
        cd "$source/kernel"
        shopt -s nullglob
        # shellcheck disable=SC2068 # one of the entries is a pattern
        for path in ${kept[@]}; do
            mkdir -p "$target/kernel/$(dirname "$path")"
            cp -r "$path" "$target/kernel/$path"
        done
    )
    mkdir -p "$2/base/lib"
    ln -s ../.. "$2/base/lib/modules"
    depmod -b "$2/base" "$3"
    rm -r "$2/base"
}

# compile OUTPUT ARGUMENT...
compile() {
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -Os -s -I "$here/../.." -o "$@" ||
        die "$1 does not build; remedy: apt-get install gcc libc6-dev"
}

# build DIR PACKAGE VERSION DEB: fills DIR. DEB may be empty.
build() {
    local work=$1/work deb=$4 release
    export PATH=$PATH:/usr/sbin:/sbin
    need dpkg dpkg
    need modprobe kmod
    need depmod kmod
    need cpio cpio
    need objcopy binutils
    need xz xz-utils
    need "${CC:-cc}" gcc
    mkdir -p "$work/deb" "$work/root" "$work/initrd"
    [ -n "$deb" ] || deb=$(fetch_package "$2" "$3" "$work/deb")
    echo "mainline: preparing $2 $3 (once)" >&2
    dpkg -x "$deb" "$work/root" || die "$deb is not a Debian package"
    release=$(basename "$(echo "$work"/root/lib/modules/*)")
    [ -e "$work/root/boot/vmlinuz-$release" ] ||
        die "$deb holds no kernel; remedy: a linux-image-*-amd64 package"
    depmod -b "$work/root" "$release"
    unpack_kernel "$work/root/boot/vmlinuz-$release" "$1/vmlinux"
    cp "$work/root/boot/vmlinuz-$release" "$1/bzImage"
    collect_modules "$work/root" "$work/initrd" "$release"
    keep_modules "$work/root" "$1/modules" "$release"
    compile "$work/initrd/init" -static "$here"/pid1/*.c
    compile "$1/relay" "$here/relay.c"
    (cd "$work/initrd" && find . -mindepth 1 | LC_ALL=C sort |
        cpio -o -H newc -R 0:0 --quiet) >"$1/initrd"
    echo "$2 $3" >"$1/version"
    rm -r "$work"
}

# The directory of this package and these scripts.
dir_for() {
    echo "$cache/$({
        echo "$1 $2 ${CC:-cc}"
        cat "$here"/{image.sh,frame.h,relay.c,pid1/*}
    } | sha256sum | cut -c 1-16)"
}

# Asking apt takes a second, so its answer is kept until its lists change.
known_package() {
    local lists=/var/lib/apt/lists stamp
    stamp=$(stat -c %Y "$lists" 2>/dev/null) || stamp=0
    if ! { read -r seen package version <"$cache/package"; } 2>/dev/null ||
        [ "$seen" != "$stamp" ]; then
        package=$(find_package)
        version=${package#* }
        package=${package%% *}
        # "apt-get update" may just have changed them
        stamp=$(stat -c %Y "$lists" 2>/dev/null) || stamp=0
        echo "$stamp $package $version" >"$cache/package.$$"
        mv "$cache/package.$$" "$cache/package"
    fi
}

main() {
    local package version seen dir deb=${MOTE_MAINLINE_DEB:-}
    mkdir -p "$cache" 2>/dev/null || true
    [ -w "$cache" ] ||
        die "cache $cache is not writable; remedy: MOTE_CACHE=DIR"
    if [ -n "$deb" ]; then
        [ -r "$deb" ] || die "MOTE_MAINLINE_DEB=$deb is not readable"
        package=$(dpkg-deb -f "$deb" Package 2>/dev/null) ||
            die "MOTE_MAINLINE_DEB=$deb is not a Debian package"
        version=$(dpkg-deb -f "$deb" Version)
        deb=$(realpath "$deb")
    else
        known_package
    fi
    dir=$(dir_for "$package" "$version")
    if [ ! -e "$dir/version" ]; then
        exec 9>"$cache/lock"
        flock 9
        if [ ! -e "$dir/version" ]; then
            # Left by a build that was killed: nobody else holds the lock.
            rm -rf "$cache"/new.*
            new=$(mktemp -d "$cache/new.XXXXXX")
            trap 'rm -rf "$new"' EXIT
            build "$new" "$package" "$version" "$deb"
            chmod 755 "$new"
            mv "$new" "$dir"
        fi
        # Versions that nothing has used for a month.
        find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +30 \
            -exec rm -rf {} +
    fi
    touch "$dir" 2>/dev/null || true
    echo "$dir"
}

main
