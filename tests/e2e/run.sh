#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real guests through `mote`: run.sh quick|full|soak [--filter GLOB]
# quick: a few boots, for hosts where the guest's kernel is emulated; full:
# everything, for the mainline host. See README.md here.
exec /usr/bin/python3 "$(dirname "$0")/run.py" "$@"
