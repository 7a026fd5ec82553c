# SPDX-License-Identifier: Apache-2.0
"""`make install`: what a package of it would hold, and a stranger's program."""
import os
import re
import subprocess

from harness import GUARD, TOP, Skip, test

PROGRAM = """
#include <mote.h>
#include <stdio.h>
int main(void) { puts(mote_version()); return 0; }
"""


def run(*argv, **kw):
    p = subprocess.run(argv, capture_output=True, text=True, timeout=GUARD, check=False, **kw)
    assert p.returncode == 0, (argv, p.stdout, p.stderr)
    return p.stdout


def make(box, target):
    run("make", "-s", target, "DESTDIR=" + box.dir + "/root", "PREFIX=/usr", cwd=TOP,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")})


@test
def install_library_serves_a_program_and_uninstall_leaves_nothing(box):
    if not box.mote.startswith(os.path.join(TOP, "build") + "/"):
        raise Skip("make install takes build/, not this one")
    root = box.dir + "/root"
    make(box, "install")
    with open(box.dir + "/p.c", "w") as f:
        f.write(PROGRAM)
    env = dict(os.environ, PKG_CONFIG_LIBDIR=root + "/usr/lib/pkgconfig",
               PKG_CONFIG_SYSROOT_DIR=root)
    flags = run("pkg-config", "--cflags", "--libs", "libmote", env=env).split()
    run("gcc", "-o", box.dir + "/p", box.dir + "/p.c", *flags)
    out = run(box.dir + "/p", env=dict(os.environ, LD_LIBRARY_PATH=root + "/usr/lib"))
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", out), out
    assert "libmote.so.0" in run("readelf", "-d", box.dir + "/p")
    run(root + "/usr/bin/mote", "--help")
    make(box, "uninstall")
    left = [os.path.join(d, f) for d, _, files in os.walk(root) for f in files]
    assert not left, left


@test
def library_exports_what_its_header_declares_and_nothing_else(box):
    library = os.path.join(os.path.dirname(box.mote), "lib", "libmote.so.0")
    if not os.path.exists(library):
        raise Skip("no libmote.so.0 in this build")
    with open(os.path.join(TOP, "tools", "libmote", "mote.h")) as f:
        declared = set(re.findall(r"\b(mote_[a-z0-9_]+)\(", f.read()))
    exported = {line.split()[-1].split("@")[0]
                for line in run("nm", "-D", "--defined-only", library).splitlines()}
    exported -= {"LIBMOTE_0"}
    assert exported == declared, exported ^ declared
