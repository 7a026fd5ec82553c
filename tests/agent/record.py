#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records a session with an agent as hex lines, for session-vN.hex.

usage: record.py build/mote-agent > tests/agent/session-vN.hex

Only for a new version of the protocol: recordings of older ones never change.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import client as c
from harness import Agent


def mask(payload):
    """Ids and times, which differ each time, become 0xEE."""
    out = b""
    for kind, value in c.attrs(payload):
        if kind in (c.A_PID, c.A_USAGE, c.A_START_NS):
            value = b"\xee" * len(value)
        out += c.attr(kind, value)
    return out


def exchange(conn, comment, data, last):
    print("# " + comment)
    print("host  " + data.hex(" "))
    conn.send(data)
    while last is not None:
        kind, payload = conn.next()
        if kind in (c.STARTED, c.EXIT, c.ITEM):
            payload = mask(payload)
        print("agent " + c.frame(kind, payload).hex(" "))
        if kind == last:
            break


def main():
    print("# A session of protocol version 1, as it was recorded. What differs"
          "\n# from run to run is 0xEE. This file never changes.")
    with Agent(sys.argv[1]) as agent, agent.conn(hello=False) as conn:
        print("# HELLO both ways")
        print("host  " + c.HELLO.hex(" "))
        conn.send(c.HELLO)
        conn.hello()
        print("agent " + c.HELLO.hex(" "))
        exchange(conn, "PING with a token", c.frame(
            c.PING, c.attr(c.A_TOKEN, b"token")), c.OK)
        exchange(conn, "LIST: nothing runs", c.frame(c.LIST), c.END)
        body = c.start_payload(
            ["sh", "-c", "cat; echo gone >&2; exit 1"], env=["A=b", "LC_ALL=C"], cwd="/tmp",
            stdin=True, tag="first", limit_ms=60000, grace_ms=1000,
            umask=0o27, rlimits=[(7, 64, 64)], program="/bin/sh")
        exchange(conn, "START with nearly everything", c.frame(
            c.START, body + c.attr(0x7001, b"unknown, skipped")), c.STARTED)
        exchange(conn, "STDIN", c.frame(c.STDIN, b"line\n"), c.STDOUT)
        exchange(conn, "SIGNAL: SIGCONT to its group", c.frame(
            c.SIGNAL, c.u32(c.A_SIGNAL, 18) + c.u8(c.A_SCOPE, c.GROUP)), None)
        exchange(conn, "STDIN_EOF: STDERR, EXIT", c.frame(c.STDIN_EOF), c.EXIT)


if __name__ == "__main__":
    main()
