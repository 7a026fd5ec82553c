#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `mote` without KVM: run.sh [--build DIR] [NAME...]
exec /usr/bin/python3 -B "$(dirname "$0")/run.py" "$@"
