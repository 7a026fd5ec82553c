#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs the guest programs and the monitor's own cases on this host's KVM.
# run.py does the work; see README.md.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1
exec "$python" "$here/run.py" "$@"
