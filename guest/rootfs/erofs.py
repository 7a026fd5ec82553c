# SPDX-License-Identifier: Apache-2.0
"""Writes an uncompressed EROFS image from a tree in memory.

No root, no mkfs: owners and modes are what the tree says, and the same tree
gives the same bytes. Only what a small root needs: directories, files,
symbolic and hard links; 32-byte inodes; short contents kept beside their
inode, so that a directory costs no block of its own.
spec: linux 6.12 fs/erofs/erofs_fs.h (dual licensed GPL-2.0 or Apache-2.0)
"""
import struct

BLOCK = 4096
SUPER_OFFSET = 1024
MAGIC = 0xE0F5E1E2
INODE = 32
PLAIN, INLINE = 0, 2  # data layouts
S_IFDIR, S_IFREG, S_IFLNK = 0o040000, 0o100000, 0o120000
FILE_TYPES = {S_IFREG: 1, S_IFDIR: 2, S_IFLNK: 7}


class Node:
    """A file, directory or symbolic link; linked several times it is a hard
    link. data: content or target; entries: name to Node of a directory."""

    def __init__(self, kind, mode, data=b"", uid=0, gid=0):
        self.kind, self.mode, self.data = kind, mode, data
        self.uid, self.gid = uid, gid
        self.entries = {}
        self.links = 0
        self.nid = self.parent = self.block = None

    def directory(self, path, mode=0o755, uid=0, gid=0):
        """Makes (or finds) the directory at a relative path."""
        node = self
        for name in path.split("/"):
            if name not in node.entries:
                node.entries[name] = Node(S_IFDIR, 0o755)
            node = node.entries[name]
        node.mode, node.uid, node.gid = mode, uid, gid
        return node

    def put(self, path, node):
        head, _, name = path.rpartition("/")
        parent = self.directory(head) if head else self
        assert name not in parent.entries, path
        parent.entries[name] = node

    def file(self, path, data, mode=0o644):
        if isinstance(data, str):
            data = data.encode()
        node = Node(S_IFREG, mode, data)
        self.put(path, node)
        return node

    def symlink(self, path, target):
        self.put(path, Node(S_IFLNK, 0o777, target.encode()))


def new_root():
    return Node(S_IFDIR, 0o755)


def walk(root):
    """Every node once, parents first; counts links on the way."""
    order, queue = [], [root]
    root.parent = root
    root.links = 2  # "." and its name (or ".." of itself)
    while queue:
        node = queue.pop(0)
        order.append(node)
        for name in sorted(node.entries):
            child = node.entries[name]
            child.links += 1
            if child.kind == S_IFDIR:
                child.parent = node
                child.links += 1
                node.links += 1
                queue.append(child)
            elif child.links == 1:
                queue.append(child)
    return order


def dir_blocks(node):
    """The entries of a directory cut into blocks: [[(name, node)]]. Sorted
    by bytes, dots included: the kernel searches by halving."""
    everything = dict(node.entries)
    everything["."], everything[".."] = node, node.parent
    blocks, used = [[]], 0
    for name, child in sorted((n.encode(), c) for n, c in everything.items()):
        if used + 12 + len(name) > BLOCK:
            blocks.append([])
            used = 0
        blocks[-1].append((name, child))
        used += 12 + len(name)
    return blocks


def dir_data(node):
    out = b""
    for block in dir_blocks(node):
        out += b"\0" * (-len(out) % BLOCK)
        offset, heads, names = 12 * len(block), b"", b""
        for name, child in block:
            heads += struct.pack("<QHBB", child.nid or 0, offset + len(names),
                                 FILE_TYPES[child.kind], 0)
            names += name
        out += heads + names
    return out


def content(node):
    return dir_data(node) if node.kind == S_IFDIR else node.data


def place(order):
    """Gives each node its inode number; returns the bytes of the inode area.
    An inode and the rest of its data after whole blocks share a block."""
    at = 0
    for node in order:
        size = len(content(node))
        tail = size % BLOCK
        node.inline = 0 < tail <= BLOCK - INODE
        need = INODE + (tail if node.inline else 0)
        if at % BLOCK + need > BLOCK:
            at += -at % BLOCK
        node.nid = at // INODE
        at += need + -need % INODE
    return at


def image(root, uuid, label, time):
    """The image as bytes. uuid: 16 bytes; time: of all files, seconds."""
    order = walk(root)
    meta = bytearray(place(order))
    meta.extend(b"\0" * (-len(meta) % BLOCK))
    data = bytearray()
    first_data = 1 + len(meta) // BLOCK
    for number, node in enumerate(order, 1):
        body = content(node)
        whole = len(body) - len(body) % BLOCK if node.inline else len(body)
        block = first_data + len(data) // BLOCK if whole else 0
        data += body[:whole] + b"\0" * (-whole % BLOCK)
        layout = INLINE if node.inline else PLAIN
        inode = struct.pack(
            "<HHHHIIIIHHI", layout << 1, 0, node.kind | node.mode, node.links,
            len(body), 0, block, number, node.uid, node.gid, 0)
        at = node.nid * INODE
        meta[at:at + INODE] = inode
        if node.inline:
            meta[at + INODE:at + INODE + len(body) - whole] = body[whole:]
    assert root.nid < 1 << 16
    super_block = struct.pack(
        "<IIIBBHQQIIII16s16sI", MAGIC, 0, 0, 12, 0, root.nid, len(order), time,
        0, first_data + len(data) // BLOCK, 1, 0, uuid, label.encode(), 0)
    head = bytearray(BLOCK)
    head[SUPER_OFFSET:SUPER_OFFSET + len(super_block)] = super_block
    return bytes(head + meta + data)
