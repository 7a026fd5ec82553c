#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The guest's first process in tests/bench/io.sh. `bench` comes from the
# kernel command line: words joined by commas, the first names the work. It
# talks by the console: `mark NAME` before and after, `result NAME VALUE`.
mount -t proc proc /proc
mount -t devtmpfs dev /dev 2>/dev/null
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
ip link set lo up
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/tmp

old_ifs=$IFS
IFS=,
# shellcheck disable=SC2154,SC2086 # from the command line; split on purpose
set -- $bench
IFS=$old_ifs
work=$1
shift

# The other end counts between two marks: let it come to rest around them.
mark() {
    echo "mark $1"
    sleep 0.3
}

case "$work" in
fio) # fio NAME RW DEPTH BATCH IOS ENGINE
    fio --name="$1" --filename=/dev/vdb --direct=1 --rw="$2" --bs=4k \
        --iodepth="$3" --iodepth_batch_submit="$4" \
        --iodepth_batch_complete_min=1 --iodepth_batch_complete_max="$4" \
        --ioengine="$6" --number_ios=64 --randseed=1 --minimal >/dev/null
    mark start
    fio --name="$1" --filename=/dev/vdb --direct=1 --rw="$2" --bs=4k \
        --iodepth="$3" --iodepth_batch_submit="$4" \
        --iodepth_batch_complete_min=1 --iodepth_batch_complete_max="$4" \
        --ioengine="$6" --number_ios="$5" --randseed=1 --minimal >/tmp/out
    mark end
    case "$2" in
    *write) echo "result iops $(cut -d';' -f49 /tmp/out)" ;;
    *) echo "result iops $(cut -d';' -f8 /tmp/out)" ;;
    esac
    ;;
net) # net OWN-ADDRESS PEER MIB DIRECTION
    ip addr add "$1/24" dev eth0
    ip link set eth0 up
    # Until the first answer: ARP, and the host's end may still be starting.
    until iperf3 -c "$2" -n 1K >/dev/null 2>&1; do sleep 0.1; done
    reverse=
    [ "$4" = in ] && reverse=-R
    mark start
    # shellcheck disable=SC2086 # empty or one word
    iperf3 -c "$2" -n "$3M" $reverse -J >/tmp/out
    mark end
    awk '/"sum_received"/ { f = 1 }
         f && /bits_per_second/ { gsub(/[^0-9.e+]/, "", $2); print "result mbit " $2 / 1e6; exit }' /tmp/out
    ;;
vsock) # vsock send|recv PORT BYTES
    mark start
    case "$1" in
    send) stream send "vsock:2:$2" "$3" ;;
    recv) stream recv "vsock:4294967295:$2" ;;
    esac
    mark end
    ;;
idle)
    mark start
    sleep 1
    mark end
    ;;
esac
echo done
sleep 1000
