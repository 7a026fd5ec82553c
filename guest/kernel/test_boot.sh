# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154,SC2034
#
# Part of test.sh: the real kernels in QEMU, without KVM. QEMU's
# isa-debug-exit ends with status 2 * byte + 1 when a byte is written to its
# port, so its status is the reason that the guest gave.

STATUS_POWER_OFF=3 # 1 power off
STATUS_RESTART=5   # 2 restart
STATUS_HALT=7      # 3 halt
STATUS_PANIC=9     # 4 panic
STATUS_RESET=0     # the machine was reset: nothing was written

make_ramdisk() {
    mkdir -p "$tmp/root/dev"
    "$libc" -std=c11 -D_GNU_SOURCE -O2 -static -Wall -Wextra -Werror \
        -o "$tmp/root/init" "$here/test_init.c" || exit 1
    (cd "$tmp/root" && find . | cpio -o -H newc --quiet) >"$tmp/initrd"
}

# boot MACHINE WORDS [QEMU OPTIONS]: status in $got, the console in $log.
boot() {
    log=$tmp/console
    machine=$1 words=$2
    shift 2
    got=0
    timeout 120 qemu-system-x86_64 -accel tcg -cpu max -M "$machine" -m 256 \
        -nodefaults -display none -no-reboot -serial stdio \
        -device isa-debug-exit,iobase=0x500,iosize=1 \
        -kernel "$kernel" -initrd "$tmp/initrd" \
        -append "console=ttyS0 no_timer_check $words" "$@" </dev/null >"$log" 2>&1 || got=$?
}

test_reasons() {
    boot pc 'mote.exit=0x500 test=poweroff'
    expect "$flavour: power off" $STATUS_POWER_OFF "$log" 'user space'
    boot pc 'mote.exit=0x500 test=restart'
    expect "$flavour: restart" $STATUS_RESTART "$log" 'user space'
    boot pc 'mote.exit=0x500 test=halt' -smp "$cpus"
    expect "$flavour: halt" $STATUS_HALT "$log" 'System halted'
    boot pc 'mote.exit=0x500 test=panic panic=-1' -smp "$cpus"
    expect "$flavour: panic, its text first, not a restart" $STATUS_PANIC \
        "$log" 'Kernel panic - not syncing: Attempted to kill init'
    boot pc 'mote.exit=0x500 rdinit=/absent quiet'
    expect "$flavour: panic during boot" $STATUS_PANIC "$log" \
        'Kernel panic - not syncing: VFS: Unable to mount root fs'
}

test_inactive_without_words() {
    boot pc 'test=restart'
    expect "$flavour: without mote.exit nothing is written" $STATUS_RESET \
        "$log" 'user space'
    boot pc 'mote.exit=banana test=restart'
    expect "$flavour: a bad mote.exit is named and ignored" $STATUS_RESET \
        "$log" 'mote.exit: not an I/O port: banana'
}

test_forged_system_call() {
    if [ -z "$entry" ]; then
        skip "$flavour: forged system calls" 'nm is missing: install binutils'
        return
    fi
    boot pc "mote.exit=0x500 test=forge entry=$entry"
    expect "$flavour: a jump to the kernel's entry is a fault" \
        $STATUS_POWER_OFF "$log" 'forge plain: fault' 'forge iopl: fault'
    boot pc "mote.exit=0x500 mote.ring0=emulated test=forge entry=$entry"
    expect "$flavour: with mote.ring0=emulated it is a system call" \
        $STATUS_POWER_OFF "$log" 'forge plain: result 0 iopl 0 if 1'
    expect "$flavour: and it gives no right that SYSCALL does not" \
        $STATUS_POWER_OFF "$log" \
        'forge iopl: result 0 iopl 0 if 1' \
        'forge interrupts-off: result 0 iopl 0 if 1' \
        'forge to-kernel: fault' 'forge to-nowhere: fault'
    boot pc "mote.exit=0x500 mote.ring0=native test=forge entry=$entry"
    expect "$flavour: another value of mote.ring0 changes nothing" \
        $STATUS_POWER_OFF "$log" 'forge plain: fault'
}

# The machine is described by virtio_mmio.device= words, which QEMU adds.
test_machine_and_contents() {
    truncate -s 1M "$tmp/disk"
    boot microvm,acpi=off 'mote.exit=0x500 test=show' -smp "$cpus" \
        -drive "id=d,file=$tmp/disk,format=raw,if=none" \
        -device virtio-blk-device,drive=d -device virtio-rng-device \
        -device virtio-serial-device -device virtconsole
    expect "$flavour: disk, rng and console by command line words" \
        $STATUS_POWER_OFF "$log" vda 'device /dev/hwrng: present' \
        'device /dev/hvc0: present'
    expect "$flavour: what every guest needs" $STATUS_POWER_OFF "$log" \
        'device /dev/vsock: present' 'device /dev/ptmx: present' \
        'protocol: AF_VSOCK' 'protocol: TCP' ext4 erofs overlay tmpfs devtmpfs
    [ "$flavour" = sandbox ] || return 0
    expect "$flavour: two CPUs and what containers need" $STATUS_POWER_OFF \
        "$log" 'cpus: 2' cgroup2 fuse squashfs mqueue \
        'device /dev/net/tun: present' 'protocol: TCPv6'
    expect "$flavour: CPU mitigations are on" $STATUS_POWER_OFF "$log" \
        'spectre_v2: Mitigation:'
}

test_flavour() {
    "$here/build.sh" "$flavour" --out "$tmp/$flavour" || exit 1
    kernel=$tmp/$flavour/vmlinux
    cache=${MOTE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mote}
    debug=$cache/kernel/$("$here/build.sh" --print-key "$flavour")/vmlinux.debug
    entry=$(nm "$debug" | awk '$3 == "entry_SYSCALL_64" { print $1 }')
    cpus=1
    [ "$flavour" = tiny ] || cpus=2
    test_reasons
    test_inactive_without_words
    test_forged_system_call
    test_machine_and_contents
}

missing=
for t in qemu-system-x86_64 cpio; do
    command -v $t >/dev/null || missing="$missing $t"
done
libc=musl-gcc
command -v $libc >/dev/null || libc=gcc
if [ -n "$missing" ]; then
    skip 'the kernels in QEMU' \
        "missing:$missing; sudo apt-get install qemu-system-x86 cpio"
else
    make_ramdisk
    for flavour in tiny sandbox; do
        test_flavour
    done
fi
