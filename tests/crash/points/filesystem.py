"""What a file system may leave of a folder when the host is lost, for any point of what was done to it.

A ``Volume`` follows the log of shim.c. For each file it knows the bytes as of the last sync and what was done to it
since, for each folder the names as of its last sync and the changes of names since. From these it makes trees of files:

- ``written``: everything, as a killed process leaves it.
- ``crashed``: what a lost host may leave. All that it does with what was not synced is in ``Loss``:

  - *Names.* Each change of names (creation, rename, removal, new folder) is whole or absent, a rename with both its
    names; each for itself (``SINGLY``), which is the least that POSIX promises.
  - *Bytes.* Each block of 512 or 4096 bytes is as it was at the last sync or as any write since has left it, each for
    itself. One that the file did not have before, and that did not reach the disk, is zeros.
  - *Size.* Any that the file has had since the last sync, or a whole number of blocks on the way to a larger one.
  - *Truncation* is in order: where it did not happen, nothing that was done to the file after it did.

  ``JOURNALED`` is what ext4 and xfs do instead: changes of names and sizes happen in one order, for all files and
  folders, at least up to the last that a sync of its file or folder has forced; and what a file has grown by was
  written before its size. What is overwritten in place is as above.

What was synced is never touched. A file without a name is gone, whatever of it was synced.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

HEADER = struct.Struct("<BQqqHHI")
PAGE_BYTES = 4096
SECTOR_BYTES = 512

Tree = dict[str, bytes | None]
"""Path below the watched folder -> bytes of a file, None for a folder. Folders come before what is in them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the log, see shim.c."""

    kind: str
    inode: int = 0
    a: int = 0
    b: int = 0
    path: str = ""
    second: str = ""
    data: bytes = b""

    def __str__(self) -> str:
        where = " -> ".join(filter(None, (self.path, self.second))) or f"inode {self.inode}"
        return f"{self.kind} {where} {self.a} {len(self.data) or self.b}"


def read_log(log: Path) -> list[Call]:
    """The calls of a log, in order; one that was cut short by a kill is left out."""
    data, calls, at = log.read_bytes(), [], 0
    while at + HEADER.size <= len(data):
        kind, inode, a, b, path, second, size = HEADER.unpack_from(data, at)
        at += HEADER.size
        ends = at + path, at + path + second, at + path + second + size
        if ends[2] > len(data):
            break
        names = os.fsdecode(data[at : ends[0]]), os.fsdecode(data[ends[0] : ends[1]])
        calls.append(Call(chr(kind), inode, a, b, *names, data[ends[1] : ends[2]]))
        at = ends[2]
    return calls


class Order(Enum):
    """Which changes of names have happened."""

    SYNCED = "synced"
    ALL = "all"
    JOURNALED = "journaled"
    SINGLY = "singly"


@dataclass(frozen=True, slots=True)
class Loss:
    """How a host is lost. ``kept``: the chance of a block to have reached the disk, 0 and 1 included."""

    names: Order
    kept: float
    block: int = PAGE_BYTES

    def __str__(self) -> str:
        return f"names {self.names.value}, {self.kept:.0%} of {self.block} bytes"


@dataclass(frozen=True, slots=True)
class Write:
    """``at``: its place among all changes of names and sizes, 0 where it changes no size."""

    at: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A truncate."""

    at: int
    size: int


@dataclass(slots=True)
class File:
    """``durable`` as of the last sync, ``pending`` since. ``last``: the last change of its size, or its creation."""

    durable: bytes = b""
    pending: list[Write | Resize] = field(default_factory=list)
    current: bytearray = field(default_factory=bytearray)
    last: int = 0

    def write(self, at: int, offset: int, data: bytes) -> None:
        grows = offset + len(data) > len(self.current)
        _put(self.current, offset, data)
        self.pending.append(Write(at if grows else 0, offset, data))
        self.last = at if grows else self.last

    def resize(self, at: int, size: int) -> None:
        _resize(self.current, size)
        self.pending.append(Resize(at, size))
        self.last = at

    def sync(self) -> None:
        if self.pending:
            self.durable = bytes(self.current)
            self.pending = []

    def torn(self, loss: Loss, until: int, rng: random.Random) -> bytes:
        """What may be left of it. ``until``: the last change that has happened, where they are journaled."""
        if not self.pending:
            return self.durable
        if loss.names is Order.JOURNALED:
            torn = _Torn(self.durable, loss, rng)
            torn.follow_journal(self.pending, until)
            return torn.outcome()
        if loss.kept == 0:
            return self.durable
        if loss.kept == 1:
            return bytes(self.current)
        torn = _Torn(self.durable, loss, rng)
        torn.follow(self.pending)
        return torn.outcome()


class _Torn:
    """One outcome for the bytes of one file: the versions that each block has had since the last sync, which of them
    the disk has at least, and the sizes.
    """

    def __init__(self, durable: bytes, loss: Loss, rng: random.Random) -> None:
        self._loss, self._rng = loss, rng
        self._base = bytearray(durable)
        self._data = bytearray(durable)
        self._versions: dict[int, list[bytes]] = {}
        self._least: dict[int, int] = {}
        self._sizes = [len(self._data)]

    def follow(self, changes: list[Write | Resize]) -> None:
        """Up to one of the truncates, or the end."""
        cuts = [n for n, change in enumerate(changes) if isinstance(change, Resize)]
        happened = self._rng.randint(0, len(cuts))
        for change in changes[: cuts[happened] if happened < len(cuts) else None]:
            if isinstance(change, Resize):
                self._resize(change.size)
            else:
                self._write(change.offset, change.data)
                self._sizes.append(len(self._data))

    def follow_journal(self, changes: list[Write | Resize], until: int) -> None:
        """All changes of the size up to one of them, and, of the next one, perhaps some whole pages."""
        grows = True
        for change in changes:
            if isinstance(change, Resize):
                if change.at > until:
                    break
                self._resize(change.size)
                continue
            size, data = len(self._data), change.data
            if change.at > until:
                pages = range(-(-size // PAGE_BYTES), (change.offset + len(data)) // PAGE_BYTES + 1)
                end = self._rng.choice(pages) * PAGE_BYTES if grows and pages else size
                data, grows = data[: max(0, max(end, size) - change.offset)], False
            if data:
                self._write(change.offset, data)
            for number in range(size // self._loss.block, -(-len(self._data) // self._loss.block)):
                if number in self._versions and len(self._data) > size:
                    self._least[number] = len(self._versions[number]) - 1
        self._sizes = [len(self._data)]

    def _write(self, offset: int, data: bytes) -> None:
        _put(self._data, offset, data)
        block = self._loss.block
        for number in range(offset // block, -(-(offset + len(data)) // block)):
            version = bytes(self._data[number * block : (number + 1) * block])
            self._versions.setdefault(number, []).append(version)

    def _resize(self, size: int) -> None:
        _resize(self._data, size)
        del self._base[size:]
        self._sizes = [size]
        block = self._loss.block
        for number in [number for number in self._versions if (number + 1) * block > size]:
            left = size - number * block
            versions = self._versions.pop(number)
            least = self._least.pop(number, None)
            if left > 0:
                self._versions[number] = [version[:left] for version in versions]
                if least is not None:
                    self._least[number] = least

    def outcome(self) -> bytes:
        block, rng = self._loss.block, self._rng
        size = self._size()
        out = bytearray(self._base[:size])
        out += bytes(size - len(out))
        for number, versions in self._versions.items():
            least = self._least.get(number)
            version = None if least is None else versions[least]
            if rng.random() < self._loss.kept:
                possible = versions[least or 0 :]
                version = possible[-1] if rng.random() < 0.7 else rng.choice(possible)
            if version is not None:
                out[number * block : number * block + len(version)] = version
        return bytes(out[:size])

    def _size(self) -> int:
        least, most = min(self._sizes), max(self._sizes)
        way = self._rng.random()
        if way < 0.35:
            return most
        if way < 0.6:
            return self._rng.choice(self._sizes)
        between = range(-(-least // self._loss.block), most // self._loss.block + 1)
        return self._rng.choice(between) * self._loss.block if between else most


@dataclass(slots=True)
class Change:
    """One change of the names in a folder; ``at``: its place among all changes."""

    at: int
    names: dict[str, Node | None]


@dataclass(slots=True)
class Folder:
    """Names as of the last sync, the changes since, and as they are. ``last``: the last change, or its creation."""

    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)
    current: dict[str, Node] = field(default_factory=dict)
    last: int = 0

    def change(self, at: int, names: dict[str, Node | None]) -> None:
        self.pending.append(Change(at, names))
        self.last = at
        _apply(self.current, names)

    def sync(self) -> None:
        self.durable = dict(self.current)
        self.pending = []


Node = File | Folder


class Volume:
    """The watched folder ``root``; everything that is there at the beginning is durable."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inodes: dict[int, Node] = {}
        self._changes = 0
        self._forced = 0
        self.top = self._read(root)

    def _read(self, path: Path) -> Folder:
        folder = Folder()
        self._inodes[path.stat().st_ino] = folder
        for entry in sorted(os.scandir(path), key=lambda each: each.name):
            node: Node
            if entry.is_dir(follow_symlinks=False):
                node = self._read(Path(entry.path))
            else:
                data = Path(entry.path).read_bytes()
                node = self._inodes[entry.inode()] = File(data, [], bytearray(data))
            folder.durable[entry.name] = folder.current[entry.name] = node
        return folder

    # ---- following the log -----------------------------------------------------------------------

    def apply(self, call: Call) -> None:
        """Do what a call did."""
        if call.kind == "F":
            self._sync_all()
        elif call.kind in "WTAS":
            self._apply_to_node(call)
        elif call.kind not in "BN":
            self._apply_to_names(call)

    def _apply_to_node(self, call: Call) -> None:
        node = self._inodes[call.inode]
        if call.kind == "S":
            self._forced = max(self._forced, node.last)
            node.sync()
            return
        assert isinstance(node, File)
        self._changes += 1
        if call.kind == "W":
            node.write(self._changes, call.a, call.data)
        elif call.kind == "T":
            node.resize(self._changes, call.a)
        elif call.a + call.b > len(node.current):
            size = len(node.current)
            node.write(self._changes, size, bytes(call.a + call.b - size))

    def _sync_all(self) -> None:
        self._forced = self._changes
        for node in self._inodes.values():
            node.sync()

    def _apply_to_names(self, call: Call) -> None:
        folder, name = self._place(call.path)
        if call.kind in "CM":
            node: Node = File() if call.kind == "C" else Folder()
            self._inodes[call.inode] = node
            self._change(folder, {name: node})
            node.last = self._changes
        elif call.kind in "UD":
            self._change(folder, {name: None})
        else:
            target, new = self._place(call.second)
            moved: dict[str, Node | None] = {new: folder.current[name]}
            gone: dict[str, Node | None] = {name: None} if call.kind == "R" else {}
            if target is folder:
                self._change(folder, gone | moved)
            else:
                self._change(target, moved)
                self._change(folder, gone)

    def _change(self, folder: Folder, names: dict[str, Node | None]) -> None:
        self._changes += 1
        folder.change(self._changes, names)

    def _place(self, path: str) -> tuple[Folder, str]:
        *parts, name = Path(path).relative_to(self._root).parts
        folder = self.top
        for part in parts:
            below = folder.current[part]
            assert isinstance(below, Folder)
            folder = below
        return folder, name

    # ---- what may be left ------------------------------------------------------------------------

    def written(self) -> Tree:
        """All of it."""
        return self._tree(Loss(Order.ALL, 1), random.Random(0))

    def crashed(self, loss: Loss, rng: random.Random) -> Tree:
        """What a lost host may leave."""
        return self._tree(loss, rng)

    def _tree(self, loss: Loss, rng: random.Random) -> Tree:
        until = rng.randint(self._forced, self._changes)
        chance = rng.choice((0.2, 0.5, 0.8))

        def happened(change: Change) -> bool:
            if loss.names is Order.JOURNALED:
                return change.at <= until
            if loss.names is Order.SINGLY:
                return rng.random() < chance
            return loss.names is Order.ALL

        def walk(folder: Folder, prefix: str) -> Iterator[tuple[str, bytes | None]]:
            names = dict(folder.durable)
            for change in folder.pending:
                if happened(change):
                    _apply(names, change.names)
            for name, node in sorted(names.items(), key=lambda pair: pair[0]):
                if isinstance(node, Folder):
                    yield prefix + name, None
                    yield from walk(node, f"{prefix}{name}/")
                else:
                    yield prefix + name, node.torn(loss, until, rng)

        return dict(walk(self.top, ""))


def _apply(names: dict[str, Node], changes: dict[str, Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _put(data: bytearray, offset: int, part: bytes) -> None:
    if offset > len(data):
        data += bytes(offset - len(data))
    data[offset : offset + len(part)] = part


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data += bytes(size - len(data))


def build(tree: Tree, root: Path) -> None:
    """Make a tree in an empty folder."""
    for path, data in tree.items():
        if data is None:
            os.mkdir(root / path, 0o700)
        else:
            fd = os.open(root / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
