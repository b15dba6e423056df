"""The records of the entry log and the journal, by kind, and the layout of their bodies (big-endian).

=========  ==  ================================================================================
ENTRY       1  an entry as on the wire: ledger i64 | entry i64 | LAC i64 | length i64 |
               digest | payload
LEDGER      2  ledger i64 | flags u8 (1 fenced, 2 limbo, 4 key known, 8 deleted, 16 emptied,
               32 active) | ms since 1970 u64, if deleted | master key
SYNCED      3  offset u64: this segment was durable up to there before this record was written |
               filled u64: the file was durably filled up to there | ms since 1970 u64 of that
               sync | generation u64 of the start that wrote it. Segments of format 1: the offset
               alone
FORGET      4  ledger i64: everything before this record about the ledger is void
FOOTER      5  offset u64 of the footer before it in the segment (0 none) |
               (ledger i64 | entries u64 | bytes u64)*; a ledger that the segment only has
               other records about counts 0 entries
SEAL        6  offset u64 of the last footer (0 none); the last record of a full segment
GAP         7  start u64 | end u64 | lost u8: this part of the segment could not be read;
               lost = it had been durable
LAC         8  an explicit LAC packet as on the wire: ledger i64 | LAC i64 | digest
=========  ==  ================================================================================

The kinds of ``STATE_KINDS`` change the bookie's responses about a ledger: they are synced before any response, in
every mode. A fence is one-way: a LEDGER record without it does not lift an earlier one, only FORGET does. One with
*emptied* voids everything before it about the ledger: it is a FORGET that leaves a state, which is fenced. An
explicit LAC only grows. It is among them because no peer can repair it: after a lost host the entries come back from
the peers, but a LAC that readers have seen and acted upon would be gone for good.
"""

from __future__ import annotations

import struct
from enum import IntEnum, StrEnum
from typing import NamedTuple

from bkbox.base.ids import MAX_ID
from bkbox.base.values import frozen_struct

Buffer = bytes | bytearray | memoryview


class AckAfter(StrEnum):
    """When an entry is acknowledged: after a sync of the entry log, a write to it, or a sync of the journal."""

    SYNC = "sync"
    WRITE = "write"
    JOURNAL = "journal"


class Kind(IntEnum):
    """Kinds of record; see the table above."""

    ENTRY = 1
    LEDGER = 2
    SYNCED = 3
    FORGET = 4
    FOOTER = 5
    SEAL = 6
    GAP = 7
    LAC = 8


STATE_KINDS = frozenset({Kind.LEDGER, Kind.FORGET, Kind.LAC})

ENTRY_IDS = struct.Struct(">QQ")
"""Ledger and entry id at the start of an ENTRY body (unsigned: 2**63 or more is a negative id)."""

OFFSET = struct.Struct(">Q")
SYNCED_BODY = struct.Struct(">QQQQ")
"""Fields of a SYNCED record: offset, filled, ms since 1970, generation."""

GAP_BODY = struct.Struct(">QQB")
FOOTER_ITEM = struct.Struct(">qQQ")
LAC_PACKET = struct.Struct(">qq")
"""Ledger id and LAC at the start of a LAC body."""

_LEDGER_ID = struct.Struct(">q")
_FENCED, _LIMBO, _KEY_KNOWN, _DELETED, _EMPTIED, _ACTIVE = 1, 2, 4, 8, 16, 32
_DELETED_AT = struct.Struct(">Q")


class Record(NamedTuple):
    """A record to be appended."""

    kind: Kind
    body: Buffer


_BODY_BYTES = {
    Kind.ENTRY: ENTRY_IDS.size,
    Kind.LEDGER: _LEDGER_ID.size + 1,
    Kind.SYNCED: OFFSET.size,
    Kind.FORGET: _LEDGER_ID.size,
    Kind.FOOTER: OFFSET.size,
    Kind.SEAL: OFFSET.size,
    Kind.GAP: GAP_BODY.size,
    Kind.LAC: LAC_PACKET.size,
}
_LONGER = frozenset({Kind.ENTRY, Kind.LEDGER, Kind.FOOTER, Kind.LAC})
_OF_LEDGERS = frozenset({Kind.ENTRY, Kind.LEDGER, Kind.FORGET, Kind.LAC})


def is_sound(kind: Kind, body: Buffer) -> bool:
    """True if a body is valid for its kind. A record that verifies and is not sound is not bkbox's."""
    more = len(body) - _BODY_BYTES[kind]
    if kind is Kind.SYNCED:
        return len(body) in (OFFSET.size, SYNCED_BODY.size)
    if more < 0 or (more and kind not in _LONGER):
        return False
    if kind is Kind.ENTRY:
        return bool(max(ENTRY_IDS.unpack_from(body)) <= MAX_ID)
    if kind is Kind.FOOTER:
        return more % FOOTER_ITEM.size == 0
    if kind is Kind.LEDGER and not is_state(body[_LEDGER_ID.size :]):
        return False
    return kind not in _OF_LEDGERS or decode_ledger_id(body) >= 0


class Location(NamedTuple):
    """The location of a record: segment id, offset of its header, length of its body in bytes."""

    segment: int
    offset: int
    length: int


@frozen_struct
class LedgerRecord:
    """State of a ledger on this disk. ``master_key`` is None if only fencing or limbo made the ledger known.
    ``deleted_ms``: since when the ledger is in the trash, ms since 1970, 0 if it is not; it is fenced then.
    ``emptied``: it was in the trash, and its entries are gone. ``active``: it may have entries that were acknowledged
    before a sync (``ack_after = write``); without it all of them are durable.
    """

    master_key: bytes | None = None
    fenced: bool = False
    limbo: bool = False
    deleted_ms: int = 0
    emptied: bool = False
    active: bool = False


def entry_record(entry: Buffer) -> Record:
    """An entry as on the wire, at least 32 bytes; ids are not checked."""
    return Record(Kind.ENTRY, entry)


def ledger_record(ledger: int, state: LedgerRecord) -> Record:
    """The state of a ledger from here on."""
    return Record(Kind.LEDGER, _LEDGER_ID.pack(ledger) + encode_state(state))


def forget_record(ledger: int) -> Record:
    """The ledger is removed: entries and state."""
    return Record(Kind.FORGET, _LEDGER_ID.pack(ledger))


def lac_record(packet: Buffer) -> Record:
    """An explicit LAC packet as on the wire, at least 16 bytes; its ledger id is not checked."""
    return Record(Kind.LAC, packet)


def lac_of(packet: Buffer) -> int:
    """The LAC in an explicit LAC packet."""
    lac: int = LAC_PACKET.unpack_from(packet)[1]
    return lac


def encode_state(state: LedgerRecord) -> bytes:
    """flags u8 | ms since 1970 u64, if deleted | master key."""
    known = state.master_key is not None
    flags = _FENCED * state.fenced | _LIMBO * state.limbo | _KEY_KNOWN * known
    flags |= _ACTIVE * state.active
    deleted = b""
    if state.deleted_ms:
        flags |= _DELETED | _EMPTIED * state.emptied
        deleted = _DELETED_AT.pack(state.deleted_ms)
    return bytes((flags,)) + deleted + (state.master_key or b"")


def is_state(data: Buffer) -> bool:
    """True if data is as long as its flags demand, and so can be decoded."""
    return len(data) > (_DELETED_AT.size if len(data) and data[0] & _DELETED else 0)


def decode_state(data: Buffer) -> LedgerRecord:
    """Inverse of encode_state; ``is_state`` holds for data."""
    flags, at, deleted_ms = data[0], 1, 0
    if flags & _DELETED:
        [deleted_ms] = _DELETED_AT.unpack_from(data, at)
        at += _DELETED_AT.size
    key = bytes(data[at:]) if flags & _KEY_KNOWN else None
    emptied = bool(deleted_ms and flags & _EMPTIED)
    return LedgerRecord(
        key,
        bool(flags & _FENCED),
        bool(flags & _LIMBO),
        deleted_ms,
        emptied,
        bool(flags & _ACTIVE),
    )


def decode_ledger(body: Buffer) -> tuple[int, LedgerRecord]:
    """Ledger id and state of a LEDGER body."""
    return decode_ledger_id(body), decode_state(body[_LEDGER_ID.size :])


def decode_ledger_id(body: Buffer) -> int:
    """Ledger id of an ENTRY, LEDGER, FORGET or LAC body."""
    ledger: int = _LEDGER_ID.unpack_from(body)[0]
    return ledger
