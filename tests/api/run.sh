#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The control socket, black box. Options as tests/kvm/run.sh.
# run.py does the work; see README.md.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1
exec "$python" "$here/run.py" "$@"
