#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The include direction: base <- core <- {devices, boot} <- root; guest/ stands
# alone; tools/ sees base, tools/ and guest/abi.h; nobody includes tests/.
set -eu
cd "$(dirname "$0")/../.."

base='util le cleanup counter log errmsg args stop tally lock unix_listen state snapshot_mem snapshot_pair
      evloop evloop_int cow_format cow_create cow_file cow_merge'
core='kvm guest_mem pagemap bus irq vcpu cpu_x86 quirks_x86 xsave_x86 probe_x86 layout_x86 register_pages
      cpu_state_x86 cpu_id_state_x86 chip_state_x86 dirty'
kvm_users='kvm vcpu irq cpu_x86 quirks_x86 xsave_x86 probe_x86 seccomp_gen cpu_state_x86
      cpu_id_state_x86 chip_state_x86 dirty'
fails=0

fail() {
    echo "check-layers: $*" >&2
    fails=$((fails + 1))
}

has() { # has WORD LIST
    case " $(echo $2) " in *" $1 "*) return 0 ;; esac
    return 1
}

layer_of() { # layer_of PATH-OF-SOURCE
    m=$(basename "$1")
    m=${m%.*}
    case "$1" in
    vmm/*)
        case "$m" in evloop_*) m=evloop ;; esac
        if has "$m" "$base"; then echo base
        elif has "$m" "$core"; then echo core
        else echo root; fi
        ;;
    *) echo "${1%%/*}" ;;
    esac
}

allowed() { # allowed FROM-LAYER TO-PATH
    to=$(layer_of "$2")
    case "$1" in
    base) [ "$to" = base ] ;;
    core) [ "$to" = base ] || [ "$to" = core ] ;;
    devices)
        [ "$to" = base ] || [ "$to" = devices ] ||
            has "$2" 'vmm/guest_mem.h vmm/bus.h vmm/irq.h'
        ;;
    boot)
        [ "$to" = base ] || [ "$to" = boot ] ||
            has "$2" 'vmm/guest_mem.h vmm/layout_x86.h'
        ;;
    root) [ "$to" != tools ] && [ "$to" != guest ] && [ "$to" != tests ] ;;
    guest) [ "$to" = guest ] ;;
    tools) [ "$to" = base ] || [ "$to" = tools ] || [ "$2" = guest/abi.h ] ;;
    *) false ;;
    esac
}

for f in $(git ls-files 'vmm/*.[ch]' 'devices/*.[ch]' 'boot/*.[ch]' \
    'guest/*.[ch]' 'tools/*.[ch]'); do
    [ -f "$f" ] || continue
    from=$(layer_of "$f")
    for inc in $(sed -n 's/^#include "\(.*\)"$/\1/p' "$f"); do
        case "$inc" in
        */*) ;;
        *) fail "$f: \"$inc\": includes name the folder" ;;
        esac
        allowed "$from" "$inc" || fail "$f ($from) must not include $inc"
    done
    if grep -q '^#include <linux/kvm\.h>' "$f"; then
        m=$(basename "$f")
        { [ "${f%%/*}" = vmm ] && has "${m%.*}" "$kvm_users"; } ||
            fail "$f: <linux/kvm.h> belongs to: $kvm_users"
    fi
done
[ "$fails" -eq 0 ] || exit 1
echo "check-layers: ok"
