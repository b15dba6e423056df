"""Requests as clients send them, and as none would: any operation of both versions, with ids near the ends of their
range, right and wrong keys, flags that do not go together."""

from __future__ import annotations

import struct

from bkbox.wire import v2, v3
from bkbox.wire.v3_format import Operation
from tests.fuzz.target import KEY, Choices
from tests.fuzz.targets.logs import entry
from tests.harness.raw3 import lac_packet

WRONG = bytes(20)


def frames_from(choices: Choices) -> bytes:
    """A few whole frames, of one version and then perhaps of the other."""
    frames = []
    three = choices.below(2)
    while choices.more and len(frames) < 24:
        if choices.below(64) == 63:
            three = 1 - three
        make = _version_3 if three else _version_2
        frames.append(make(choices, choices.id(), choices.id()))
    return b"".join(frames)


def _key(choices: Choices) -> bytes:
    return WRONG if choices.below(8) == 7 else KEY


def _entry(choices: Choices, ledger: int, number: int) -> bytes:
    body = entry(ledger, number, bytes(choices.below(20)))
    return body[: choices.below(32)] if choices.below(16) == 15 else body


def _version_2(choices: Choices, ledger: int, number: int) -> bytes:
    kind, version, flags = choices.below(8), choices.one_of((2, 2, 2, 1, 0, 9)), choices.below(8)
    if kind < 4:
        flags = flags if kind == 3 else 0
        add = v2.AddRequest(version, flags, _key(choices), _entry(choices, ledger, number))
        return v2.encode_request(add)
    wanted = -1 if choices.below(8) == 7 else number
    key = _key(choices) if flags & 1 and version == 2 else None
    if kind < 6:
        return v2.encode_request(v2.ReadRequest(version, flags, ledger, wanted, key))
    count, size = choices.number(1), choices.one_of((1 << 20, 100, 0, -1))
    batch = v2.BatchReadRequest(version, flags, ledger, wanted, 5, count, size, key)
    return v2.encode_request(batch)


def _version_3(choices: Choices, ledger: int, number: int) -> bytes:
    kind, priority = choices.below(12), choices.one_of((0, 0, 100))
    if kind < 5:
        header = v3.Header(Operation.ADD_ENTRY, choices.id(), priority)
        flags = choices.below(4) if kind == 4 else 0
        body = _entry(choices, ledger, number)
        add = v3.AddRequest(
            header, ledger, number, _key(choices), body, bool(flags & 1), bool(flags & 2)
        )
        return v3.encode_request(add)
    if kind < 8:
        header = v3.Header(Operation.READ_ENTRY, choices.id(), priority)
        wanted = -1 if choices.below(4) == 3 else number
        how = choices.below(4)
        key = _key(choices) if how == 1 else None
        lac, wait = (choices.id() - 1, choices.id()) if how > 1 else (None, None)
        read = v3.ReadRequest(header, ledger, wanted, key, how == 1, how == 2, lac, wait)
        return v3.encode_request(read)
    if kind == 8:
        lac = lac_packet(ledger, number)
        write = v3.WriteLacRequest(
            v3.Header(Operation.WRITE_LAC, 1), ledger, number, _key(choices), lac
        )
        return v3.encode_request(write)
    if kind == 9:
        return v3.encode_request(v3.ReadLacRequest(v3.Header(Operation.READ_LAC, 2), ledger))
    if kind == 10:
        return v3.encode_request(v3.ForceRequest(v3.Header(Operation.FORCE_LEDGER, 3), ledger))
    header = v3.Header(Operation.GET_LIST_OF_ENTRIES_OF_LEDGER, 4)
    return v3.encode_request(v3.ListEntriesRequest(header, ledger))


def seeds() -> list[bytes]:
    """Each operation once, by its number, after two adds; and an add of the last id with a batch read of it."""
    made = []
    for three, kinds in ((0, 8), (1, 12)):
        add = (0, 1, 2, 0, 0, 0, 9)
        for kind in range(kinds):
            made.append(bytes((1, three, *add, *add, 0, 1, 2, kind, 0, 1, 1, 1, 1, 1, 1)))
    last = struct.pack(">8B", 0, 1, 9, 0, 0, 0, 0, 1)
    made.append(bytes((1, 0)) + last + bytes((0, 0, 1, 9, 6, 3, 0, 0, 5, 0)))
    return made + [seed + b"\0" for seed in made]
