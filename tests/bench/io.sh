#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Disk, network and vsock speed, mote beside QEMU's microvm in one run.
#
# usage: tests/bench/io.sh [--here] [-n RUNS] [--only blk,net,vsock] [--ios N]
#                          [--mib N]
# On the mainline host under the instruction clock (see tests/mainline): same
# kernel, same image, same disk, both command lines printed. --here measures
# mote alone on this machine's own /dev/kvm. Prints; judges nothing.
# Packages: fio iperf3 busybox-static qemu-system-x86 musl-tools iproute2.
set -eu
cd "$(dirname "$0")/../.."

here=
qemu=yes
[ "${1:-}" = --help ] && { sed -n '4,10s/^# *//p' "$0"; exit 0; }
[ "${1:-}" = --here ] && { here=1 qemu=no; shift; }

for tool in fio iperf3 busybox musl-gcc ip; do
    command -v $tool >/dev/null || {
        echo "io.sh: no $tool; apt-get install fio iperf3 busybox-static musl-tools iproute2" >&2
        exit 1
    }
done
for f in build/mote-vmm build/guest/sandbox/vmlinux; do
    [ -e $f ] || { echo "io.sh: no $f; run: make && make kernel-sandbox" >&2; exit 1; }
done

work=build/bench-io
mkdir -p $work
musl-gcc -std=c11 -D_GNU_SOURCE -O2 -static -idirafter /usr/include \
    -idirafter "/usr/include/$(gcc -print-multiarch)" \
    -o $work/stream tests/bench/io/stream.c
tests/bench/io/image.py $work/stream $work/bench.img
cp -L build/guest/sandbox/vmlinux $work/vmlinux

if [ -n "$here" ]; then
    exec /usr/bin/python3 tests/bench/io/measure.py --qemu no "$@" $work
fi
# The image and the kernel are read over 9p once, then lie in that machine's
# memory like the disk.
exec tests/mainline/run.sh --icount --mem 3072 --timeout 7200 -- \
    sh -c 'd=/tmp/bench-io; mkdir -p $d; cp '$work'/* $d/; exec setarch -R /usr/bin/python3 tests/bench/io/measure.py --qemu '$qemu' "$@" $d' sh "$@"
