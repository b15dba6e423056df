"""The stored part of the index: the locations of entries that a checkpoint has covered, and the states of ledgers.

Keys (ids big-endian, so that order is numeric) and values, whose first byte is their version:

    L ledger u64               1 | flags u8 | master key    state of a ledger
    R ledger u64 | first u64   an extent (storage/index/extents.py)
    X ledger u64               1 | the packet               explicit LAC of a ledger
    !stamp                     1 | number u64 | segment u64 | offset u64: the checkpoint that it was flushed for last

Invariant: the spans (first to last entry) of the extents of one ledger never overlap. So a look-up is one seek: the
last extent that begins at or before the entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from bkbox.base import values
from bkbox.base.ids import MAX_ID
from bkbox.base.text import quoted
from bkbox.errors import DamagedError, IndexDamagedError
from bkbox.storage.index.extents import RUN_VERSION, Extent, ExtentEncoder
from bkbox.storage.index.ordered_store import OrderedStore
from bkbox.storage.log.records import LAC_PACKET, LedgerRecord, decode_state, encode_state, is_state
from bkbox.storage.log.segment import RECORD_HEADER_BYTES

Changes = dict[bytes, bytes | None]
"""Values to be put by key, None where the key is deleted."""

_ID = struct.Struct(">Q")
_RUN_KEY = struct.Struct(">cQQ")
_VERSION = b"\x01"
_STATE, _RUN, _LAC = b"L", b"R", b"X"
_STAMP_KEY = b"!stamp"
_STAMP = struct.Struct(">QQQ")
_END = b"\xff" * 17


@values.frozen_struct
class Stamp:
    """The checkpoint that an index was flushed for: its number, and its position in the log."""

    number: int = 0
    segment: int = 0
    offset: int = 0


def put_stamp(changes: Changes, stamp: Stamp) -> None:
    changes[_STAMP_KEY] = _VERSION + _STAMP.pack(stamp.number, stamp.segment, stamp.offset)


def run_key(run: Extent) -> bytes:
    return _RUN_KEY.pack(_RUN, run.ledger, run.first)


def put_state(changes: Changes, ledger: int, state: LedgerRecord) -> None:
    changes[_STATE + _ID.pack(ledger)] = _VERSION + encode_state(state)


def put_lac(changes: Changes, ledger: int, packet: bytes) -> None:
    changes[_LAC + _ID.pack(ledger)] = _VERSION + packet


def encode_runs(ledger: int, places: Iterable[tuple[int, int, int, int]]) -> Iterator[Extent]:
    """Extents of (entry, segment, offset, length), ascending."""
    encoder = ExtentEncoder()
    for place in places:
        if not encoder.add(*place):
            yield encoder.end(ledger)
            encoder.add(*place)
    if encoder.count:
        yield encoder.end(ledger)


class StoredIndex:
    """The contents of the store. Every method raises DiskError, and IndexDamagedError if a value cannot be decoded."""

    def __init__(self, store: OrderedStore) -> None:
        """Raises IndexDamagedError for an index of another version; the store stays open."""
        self._store = store
        for _, value in store.iterate(_RUN, _RUN + _END):
            if value[:1] != bytes((RUN_VERSION,)):
                raise IndexDamagedError("the index is of an older version")
            break

    @property
    def damage(self) -> str:
        """The part that was found unreadable, as text; empty if none was."""
        return self._store.damage

    # ---- entries ---------------------------------------------------------------

    def run_before(self, ledger: int, entry: int) -> Extent | None:
        """The last extent that begins at or before an entry."""
        return next(self._runs(ledger, entry, reverse=True), None)

    def run_with(self, ledger: int, entry: int) -> Extent | None:
        """The extent whose span includes an entry."""
        run = self.run_before(ledger, entry)
        return run if run is not None and entry <= run.last else None

    def first_after(self, ledger: int, entry: int) -> int | None:
        """The first entry of the first extent that begins after an entry."""
        start = _RUN_KEY.pack(_RUN, ledger, entry + 1)
        stop = _RUN + _ID.pack(ledger) + _END
        for key, _ in self._store.iterate(start, stop):
            first: int = _ID.unpack_from(key, 9)[0]
            return first
        return None

    def runs(self, ledger: int) -> Iterator[Extent]:
        """The extents of a ledger, ascending."""
        return self._runs(ledger, None)

    def runs_after(self, ledger: int, first: int) -> Iterator[Extent]:
        """All extents, by ledger and first entry, after the one that begins there; (-1, -1): from the first one on."""
        start = _RUN if ledger < 0 else _RUN_KEY.pack(_RUN, ledger, first) + b"\0"
        for key, value in self._store.iterate(start, _RUN + _END):
            yield self._decode_run(key, value)

    def last(self, ledger: int) -> int:
        """The highest entry id of a ledger, -1 if it has no entries."""
        run = next(self._runs(ledger, None, reverse=True), None)
        return -1 if run is None else run.last

    def _runs(self, ledger: int, until: int | None, *, reverse: bool = False) -> Iterator[Extent]:
        """Extents that begin at or before ``until``."""
        prefix = _RUN + _ID.pack(ledger)
        stop = prefix + (_END if until is None else _ID.pack(until) + b"\0")
        for key, value in self._store.iterate(prefix, stop, reverse=reverse):
            yield self._decode_run(key, value)

    def find_lost(
        self,
        is_lost: Callable[[int, int, int], bool],
        is_superseded: Callable[[int, int], bool],
    ) -> tuple[Changes, int]:
        """The changes that remove the entries whose records, at [start, end) of a segment, are gone; and the number
        of them that are not superseded.
        """
        changes: Changes = {}
        lost = 0
        for key, value in self._store.iterate(_RUN, _RUN + _END):
            run = self._decode_run(key, value)
            if not is_lost(run.segment, run.offset, 1 << 63):
                continue
            remaining = []
            for entry, offset, length in run.entries():
                if not is_lost(run.segment, offset, offset + RECORD_HEADER_BYTES + length):
                    remaining.append((entry, run.segment, offset, length))
                else:
                    lost += not is_superseded(run.ledger, entry)
            if len(remaining) < run.count:
                changes[key] = None
                changes.update(
                    (run_key(one), one.value) for one in encode_runs(run.ledger, remaining)
                )
        return changes, lost

    # ---- ledgers ---------------------------------------------------------------

    def state(self, ledger: int) -> LedgerRecord | None:
        """State of a ledger, None if there is none."""
        value = self._store.get(_STATE + _ID.pack(ledger))
        return None if value is None else self._decode_state(value)

    def states(self, after: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Ledgers with an id > ``after`` that have a state, ascending, as of this call."""
        pairs = self._store.iterate(_STATE + _ID.pack(after + 1), _STATE + _END)
        return ((_ID.unpack_from(key, 1)[0], self._decode_state(value)) for key, value in pairs)

    def lac(self, ledger: int) -> bytes | None:
        """The explicit LAC packet of a ledger, None if it has none."""
        value = self._store.get(_LAC + _ID.pack(ledger))
        if value is None:
            return None
        if len(value) < 1 + LAC_PACKET.size or value[:1] != _VERSION:
            raise self._cannot_decode(f"explicit LAC {quoted(value)}")
        return value[1:]

    def stamp(self) -> Stamp:
        """The checkpoint that it was flushed for last; number 0 if unknown."""
        value = self._store.get(_STAMP_KEY)
        if value is None:
            return Stamp()
        if len(value) != 1 + _STAMP.size or value[:1] != _VERSION:
            raise self._cannot_decode(f"stamp {quoted(value)}")
        return Stamp(*_STAMP.unpack_from(value, 1))

    def forget(self, changes: Changes, ledger: int) -> None:
        """Add the changes that remove a ledger."""
        prefix = _RUN + _ID.pack(ledger)
        changes.update((key, None) for key, _ in self._store.iterate(prefix, prefix + _END))
        changes[_STATE + _ID.pack(ledger)] = None
        changes[_LAC + _ID.pack(ledger)] = None

    # ---- the store ---------------------------------------------------------------

    def write(self, changes: Changes) -> None:
        """Carry out changes, all or nothing."""
        if changes:
            self._store.write(changes)

    def flush(self) -> None:
        """Make everything written durable."""
        self._store.flush()

    def renew(self) -> None:
        """See OrderedStore."""
        self._store.renew()

    def close(self) -> None:
        self._store.close()

    # ---- values --------------------------------------------------------------------

    def _decode_run(self, key: bytes, value: bytes) -> Extent:
        if len(key) != _RUN_KEY.size:
            raise self._cannot_decode(f"run {quoted(key)}")
        _, ledger, first = _RUN_KEY.unpack(key)
        if max(ledger, first) > MAX_ID:
            raise self._cannot_decode(f"run {quoted(key)}")
        try:
            return Extent(ledger, first, value)
        except DamagedError as error:
            raise self._cannot_decode(f"run {quoted(key)} ({error})") from error

    def _decode_state(self, value: bytes) -> LedgerRecord:
        if value[:1] != _VERSION or not is_state(value[1:]):
            raise self._cannot_decode(f"ledger state {quoted(value)}")
        return decode_state(value[1:])

    def _cannot_decode(self, what: str) -> IndexDamagedError:
        self._store.damage = f"index: {what} cannot be decoded"
        return IndexDamagedError(self._store.damage)
