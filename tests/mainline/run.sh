#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command on a mainline KVM, on any machine: QEMU's TCG emulates an AMD
# processor with SVM, Debian's stock kernel runs on it with kvm-amd, and the
# command finds this machine's root file system there. See README.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
    cat <<'EOF'
usage: run.sh [OPTION...] -- COMMAND [ARGUMENT...]
Runs COMMAND on a mainline KVM (kvm-amd inside QEMU TCG) in this directory.
  --cpus N              processors of the machine (default 2; 1 with --icount)
  --mem MIB             its memory in MiB (default 2048)
  --icount              its clock counts instructions, 1 ns each: repeatable
  --env NAME=VALUE      environment of COMMAND; NAME alone passes the caller's
  --forward HOST:GUEST  TCP port HOST of 127.0.0.1 reaches port GUEST inside;
                        the machine has eth0 only with this option
  --disk SIZE           scratch disk /dev/vda (512M, 4G, ...), sparse
  --timeout SECONDS     end of patience, exit code 124 (default 600, 0: never)
  --param MOD.NAME=V    module parameter, for instance kvm_amd.avic=0
  --console FILE        write the machine's kernel console there
  --keep                keep the run's directory, with a QEMU monitor socket
  -v                    show QEMU's command line and the time to boot
COMMAND sees end of file on standard input. Exit code: COMMAND's own (128+N
for signal N, 126/127 as a shell), 124 time limit, 125 the harness failed.
EOF
}

die() {
    echo "mainline: $*" >&2
    exit 125
}

number() {
    [[ $2 =~ ^[0-9]+$ ]] || die "$1 needs a number, not '$2'"
}

cpus='' mem=2048 icount='' disk='' limit=600 console='' keep='' verbose=''
forwards=() params=() envs=()

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
        --cpus | --mem | --env | --forward | --disk | --timeout | --param | \
            --console)
            [ $# -gt 1 ] || die "$1 needs a value; remedy: run.sh --help"
            ;;
        esac
        case $1 in
        --cpus) cpus=$2 && number "$1" "$2" && shift ;;
        --mem) mem=$2 && number "$1" "$2" && shift ;;
        --timeout) limit=$2 && number "$1" "$2" && shift ;;
        --disk) disk=$2 && shift ;;
        --console) console=$2 && shift ;;
        --env) envs+=("$2") && shift ;;
        --param) params+=("$2") && shift ;;
        --forward) forwards+=("$2") && shift ;;
        --icount) icount=1 ;;
        --keep) keep=1 ;;
        -v) verbose=1 ;;
        -h | --help) usage && exit 0 ;;
        --) shift && break ;;
        *) die "unknown option '$1'; remedy: run.sh [OPTION...] -- COMMAND" ;;
        esac
        shift
    done
    [ $# -gt 0 ] || die "no command; remedy: run.sh [OPTION...] -- COMMAND"
    command=("$@")
}

check() {
    local tool forward
    for tool in qemu-system-x86_64:qemu-system-x86 cpio:cpio flock:util-linux \
        setpriv:util-linux timeout:coreutils; do
        command -v "${tool%%:*}" >/dev/null ||
            die "${tool%%:*} is missing; remedy: apt-get install ${tool#*:}"
    done
    if [ -n "$icount" ]; then
        [ "${cpus:-1}" = 1 ] || die "--icount counts on one processor only"
        cpus=1
    fi
    cpus=${cpus:-2}
    if [ "$cpus" -lt 1 ] || [ "$cpus" -gt 32 ]; then
        die "--cpus takes 1 to 32"
    fi
    [ "$mem" -ge 512 ] || die "--mem takes 512 (MiB) or more"
    [[ -z $disk || $disk =~ ^[0-9]+[KMGT]?$ ]] ||
        die "--disk takes a size such as 512M or 4G, not '$disk'"
    for forward in "${forwards[@]}"; do
        [[ $forward =~ ^[0-9]{1,5}:[0-9]{1,5}$ ]] ||
            die "--forward takes HOST:GUEST, two port numbers, not '$forward'"
    done
    for forward in "${params[@]}"; do
        [[ $forward =~ ^[a-z0-9_]+\.[a-z0-9_]+=.*$ ]] ||
            die "--param takes MODULE.NAME=VALUE, not '$forward'"
    done
}

# The job that PID 1 reads, one NUL-terminated record each.
write_job() {
    local word name
    printf 'C%s\0' "$PWD"
    [ ! -d "$image/modules" ] || printf 'M%s\0' "$image/modules"
    [ ${#forwards[@]} = 0 ] || printf 'N\0'
    [ -z "$disk" ] || printf 'D\0'
    for name in PATH HOME USER LOGNAME SHELL LANG; do
        [ -z "${!name:-}" ] || printf 'E%s=%s\0' "$name" "${!name}"
    done
    printf 'EPWD=%s\0EMOTE_TEST_HOST=mainline\0' "$PWD"
    printf 'EMOTE_TEST_BZIMAGE=%s\0' "${MOTE_TEST_BZIMAGE:-$image/bzImage}"
    for word in "${envs[@]}"; do
        if [[ $word == *=* ]]; then
            printf 'E%s\0' "$word"
        elif [ -n "${!word+set}" ]; then
            printf 'E%s=%s\0' "$word" "${!word}"
        fi
    done
    [ ${#params[@]} = 0 ] || printf 'P%s\0' "${params[@]}"
    printf 'A%s\0' "${command[@]}"
}

# shellcheck disable=SC2054 # QEMU's arguments have commas
# Sets the array qemu. The port's device comes first on the bus, so that
# PID 1 finds it as virtio0. Paths are relative: the run's directory may have any
# name, and a socket's path only 107 bytes.
qemu_arguments() {
    local words="console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off"
    local netdev=user,id=net0 forward
    # Nothing here is attacked, and nothing but Landlock is tested.
    words+=" lsm=landlock audit=0 no_timer_check net.ifnames=0"
    qemu=(qemu-system-x86_64 -nodefaults -no-user-config -display none
        -no-reboot -M q35 -cpu "max,+svm,+npt" -smp "$cpus" -m "$mem")
    if [ -n "$icount" ]; then
        qemu+=(-accel tcg,thread=single -icount "shift=0,sleep=off"
            -rtc clock=vm)
    else
        qemu+=(-accel tcg,thread=multi)
        # A tick that comes in any case: this SVM loses an interrupt now and
        # then (README.md), and a kernel that armed one shot sleeps for ever.
        words+=" nohz=off highres=off"
    fi
    qemu+=(-kernel vmlinux -initrd initrd -append "$words"
        -serial file:console
        -device isa-debug-exit,iobase=0xf4,iosize=4
        -device virtio-serial-pci,max_ports=2,addr=1
        -chardev file,id=port,path=port -device virtserialport,nr=1,chardev=port)
    qemu+=(-virtfs "$(printf '%s,' local path=/ mount_tag=root readonly=on \
        security_model=none)multidevs=remap")
    if [ ${#forwards[@]} -gt 0 ]; then
        for forward in "${forwards[@]}"; do
            netdev+=",hostfwd=tcp:127.0.0.1:${forward%:*}-:${forward#*:}"
        done
        qemu+=(-netdev "$netdev" -device "virtio-net-pci,netdev=net0,romfile=")
    fi
    [ -z "$disk" ] || qemu+=(-drive
        "file=disk,if=none,id=disk,format=raw,cache=unsafe,discard=unmap"
        -device virtio-blk-pci,drive=disk)
    [ -z "$keep" ] || qemu+=(-monitor unix:monitor,server=on,wait=off)
}

tmp='' qemu_pid='' relay_pid=''

stop() {
    local pid
    for pid in $qemu_pid $relay_pid; do
        kill -TERM "$pid" 2>/dev/null || true
    done
    # shellcheck disable=SC2086 # empty or numbers
    wait $qemu_pid $relay_pid 2>/dev/null || true
    qemu_pid='' relay_pid=''
}

# shellcheck disable=SC2317 # traps call it
clean_up() {
    trap '' INT TERM HUP
    stop
    [ -n "$tmp" ] || return 0
    if [ -n "$keep" ]; then
        rm -f "$tmp"/{vmlinux,initrd,port}
        echo "mainline: kept $tmp" >&2
    else
        rm -rf "$tmp"
    fi
}

# shellcheck disable=SC2317 # traps call it
on_signal() {
    clean_up
    trap - EXIT "$1"
    kill "-$1" $$
}

prepare() {
    image=$("$here/image.sh") || exit 125
    tmp=$(mktemp -d "${TMPDIR:-/tmp}/mote-mainline.XXXXXX") ||
        die "no directory in ${TMPDIR:-/tmp}; remedy: TMPDIR=DIR"
    mkfifo "$tmp/port"
    if [ -n "$console" ]; then
        { : >"$console"; } 2>/dev/null || die "--console $console: not writable"
        ln -s "$(realpath "$console")" "$tmp/console"
    fi
    [ -z "$disk" ] || truncate -s "$disk" "$tmp/disk" ||
        die "--disk $disk: no such file can be made in $tmp"
    # An initial ramdisk may be several archives, one after the other.
    ln -s "$image/vmlinux" "$tmp/vmlinux"
    write_job >"$tmp/job"
    {
        cat "$image/initrd"
        cd "$tmp"
        echo job | cpio -o -H newc --quiet
    } >"$tmp/initrd"
}

# Why there is no exit code, in one line.
diagnose() {
    local reason log="$tmp/qemu.log" con="$tmp/console"
    reason=$(sed -n 's/^fail //p' "$tmp/notes" 2>/dev/null | tail -n 1) ||
        true
    [ -n "$reason" ] || reason=$(sed -n 's/.*mainline-init: fail //p' "$con" \
        2>/dev/null | tail -n 1 | tr -d '\r') || true
    if [ -n "$reason" ]; then
        die "the machine: $reason; remedy: look at --console FILE"
    fi
    reason=$(grep -a -m 1 -o 'Kernel panic.*' "$con" 2>/dev/null | tr -d '\r') ||
        true
    [ -z "$reason" ] || die "$reason; remedy: look at --console FILE"
    reason=$(grep -v 'terminating on signal' "$log" | head -n 1) || true
    [ -z "$reason" ] || die "$reason; remedy: QEMU's arguments are shown by -v"
    die "the machine ended without a word; remedy: look at --console FILE"
}

run() {
    local rc=0 relay=0 first=0 ended='' started code
    prepare
    qemu_arguments
    [ -z "$verbose" ] || echo "mainline: $(<"$image/version"): ${qemu[*]}" >&2
    started=$(date +%s%3N)
    "$image/relay" "$tmp/notes" <"$tmp/port" &
    relay_pid=$!
    # The signal at our death reaches timeout, which hands it on to QEMU.
    (cd "$tmp" && exec setpriv --pdeathsig TERM timeout -k 5 "$limit" \
        "${qemu[@]}") >"$tmp/qemu.log" 2>&1 </dev/null &
    qemu_pid=$!
    wait -n -p ended "$qemu_pid" "$relay_pid" || first=$?
    if [ "$ended" = "$qemu_pid" ]; then
        rc=$first qemu_pid=''
        # Frees a relay that still waits for somebody to open its pipe.
        exec 8<>"$tmp/port" 8>&-
        wait "$relay_pid" || relay=$?
    else
        relay=$first
    fi
    relay_pid=''
    case $relay in
    0) stop ;;
    3) [ -z "$qemu_pid" ] || wait "$qemu_pid" || rc=$? ;;
    4) die "the machine sent nonsense; remedy: look at --console FILE" ;;
    *) exit "$relay" ;; # whoever takes our output has gone away
    esac
    qemu_pid=''
    [ -z "$verbose" ] || report "$started"
    code=$(sed -n 's/^exit //p' "$tmp/notes" 2>/dev/null | tail -n 1) || true
    [ -z "$code" ] || exit "$code"
    if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then
        echo "mainline: no end within $limit s; remedy: --timeout SECONDS" >&2
        exit 124
    fi
    diagnose
}

report() {
    local total up
    total=$(($(date +%s%3N) - $1))
    up=$(sed -n 's/^up //p' "$tmp/notes" 2>/dev/null) || true
    echo "mainline: machine up in ${up:-?} ms by its clock," \
        "the whole run took $total ms" >&2
}

parse "$@"
check
trap clean_up EXIT
trap 'on_signal INT' INT
trap 'on_signal TERM' TERM
trap 'on_signal HUP' HUP
run
