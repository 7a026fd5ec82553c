#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: build.sh OUT.img
# Makes the default root file system. BUSYBOX names the static busybox;
# default: Debian's busybox-static, wherever it has put it.
set -eu
[ $# = 1 ] || { sed -n 3p "$0" | cut -c3- >&2; exit 2; }
here=$(dirname "$0")
for busybox in "${BUSYBOX:-}" /usr/bin/busybox /bin/busybox; do
    [ -x "$busybox" ] && exec /usr/bin/python3 -B "$here/build.py" "$busybox" "$1"
done
echo "build.sh: no busybox here; install the package busybox-static" >&2
exit 1
