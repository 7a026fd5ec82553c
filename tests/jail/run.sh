#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The jailer: run.sh [--build DIR] [--vmm FILE] [NAME...]
exec /usr/bin/python3 -B "$(dirname "$0")/run.py" "$@"
