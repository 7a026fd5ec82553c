#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: mkinitrd.sh AGENT OUT.cpio
exec /usr/bin/python3 -B "$(dirname "$0")/mkinitrd.py" "$@"
