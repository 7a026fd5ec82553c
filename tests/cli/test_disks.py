# SPDX-License-Identifier: Apache-2.0
"""mote disk: copy-on-write files made, shown, merged."""
import json
import os
import re

from harness import check, one_line, test


def base_of(box, name="base"):
    path = box.touch(name)
    with open(path, "wb") as f:
        f.write(bytes(range(256)) * 1024)
    return path


@test
def a_cow_disk_is_made_shown_and_merged(box):
    base = base_of(box)
    low, top = base + ".low", base + ".top"
    check(box.run("disk", "create", "--base", base, low), 0, b"")
    check(box.run("disk", "create", "-b", low + ":cow", "-s", "1G", top), 0, b"")
    shown = json.loads(box.run("disk", "info", "--json", top)[1])
    assert shown["format"] == "cow" and shown["depth"] == 2, shown
    assert shown["size_bytes"] == 1 << 30 and shown["allocated_bytes"] == 0, shown
    assert shown["base"] == low and shown["base_format"] == "cow", shown
    assert not shown["frozen"]
    assert json.loads(box.run("disk", "info", "--json", low)[1])["frozen"]
    assert re.search(rb"depth +2 of at most 16\n", box.run("disk", "info", top)[1])
    check(box.run("disk", "flatten", top, base + ".out"), 0, b"")
    with open(base, "rb") as f, open(base + ".out", "rb") as g:
        assert g.read(256 * 1024) == f.read()
        assert os.stat(g.name).st_size == 1 << 30
    assert os.stat(base + ".out").st_blocks * 512 <= 320 * 1024
    check(box.run("disk", "flatten", top, base + ".one:cow"), 0, b"")
    shown = json.loads(box.run("disk", "info", "--json", base + ".one")[1])
    assert shown["depth"] == 1 and shown["base"] == base, shown
    assert not [n for n in os.listdir(os.path.dirname(base)) if "partial" in n]


@test
def disk_refusals_name_the_file_and_the_remedy(box):
    base = base_of(box)
    top = base + ".top"
    check(box.run("disk"), 2, b"", one_line(rb"create, info or flatten"))
    check(box.run("disk", "shrink", base), 2, b"", one_line(rb"'shrink'"))
    check(box.run("disk", "create", top), 2, b"", one_line(rb"--base or --size"))
    check(box.run("disk", "create", "-s", "1M"), 2, b"", one_line(rb"1 file"))
    check(box.run("disk", "create", "-b", base + "x", top), 1, b"",
          one_line(rb"basex: cannot open this base"))
    check(box.run("disk", "create", "-b", base + ":cow", top), 1, b"",
          one_line(rb"no copy-on-write disk"))
    check(box.run("disk", "info", base), 1, b"", one_line(rb"no copy-on-write disk"))
    err = json.loads(box.run("disk", "info", "--json", top)[2])["error"]
    assert top in err["message"] and err["remedy"], err
    check(box.run("disk", "create", "-b", base, top), 0)
    check(box.run("disk", "create", "-b", base, top), 1, b"", one_line(rb"exists"))
    check(box.run("disk", "create", "-b", top, top + "2"), 1, b"", one_line(rb":cow"))
    check(box.run("disk", "flatten", top, base), 1, b"", one_line(rb"exists"))
    with open(base, "r+b") as f:
        f.write(b"!")
    check(box.run("disk", "flatten", top, top + ".out"), 1, b"",
          one_line(rb"is not the base"))
    assert not os.path.exists(top + ".out")
