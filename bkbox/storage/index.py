"""The index of a disk: where each entry lies, and the state of each ledger. Derived from the entry
log, see rebuild.py.

Keys (ids big-endian, so that order is numeric) and values, whose first byte is their version (1):

    L ledger u64               flags u8 | master key                 state of a ledger
    R ledger u64 | first u64   segment u32 | offset u64 | length u32 per entry    a run
    X ledger u64               the packet                            explicit LAC of a ledger

A run is a row of consecutive entries whose records follow each other without a gap in one segment:
``offset`` is the header of the first one, the lengths are those of the bodies.

Invariant: runs of one ledger never overlap. What is written last wins: a run over entries that are
there already cuts, splits or deletes the runs below it. So a look-up is one seek: the last run
that begins at or before the entry.

Changes may be applied held: they are seen, but reach the store only with the next change that is
not. So the store never knows more than what is durable in the log, though entries are served that
are not, and an entry that it knows and the log has not is always one that was lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bkbox.errors import DamagedError, DiskError
from bkbox.limits import LAST_ENTRIES_CACHED_MAX, RUN_ENTRIES_MAX
from bkbox.storage.orderedstore import HoldingStore, OrderedStore
from bkbox.storage.records import (
    ENTRY_IDS,
    LAC_PACKET,
    STATE_KINDS,
    Buffer,
    Kind,
    LedgerRecord,
    Location,
    Record,
    decode_ledger,
    decode_ledger_id,
    decode_state,
    encode_state,
    lac_of,
)
from bkbox.storage.segment import RECORD_HEADER_BYTES

_ID = struct.Struct(">Q")
_RUN_HEAD = struct.Struct(">BIQ")
_VERSION = b"\x01"
_STATE, _RUN, _LAC = b"L", b"R", b"X"


@dataclass(slots=True)
class Run:
    """Consecutive entries of a ledger from ``first``, their records back to back from ``offset``
    of ``segment``.

    ``lengths`` are those of the bodies, in bytes, at least one and at most RUN_ENTRIES_MAX.
    """

    ledger: int
    first: int
    segment: int
    offset: int
    lengths: list[int]

    @property
    def last(self) -> int:
        return self.first + len(self.lengths) - 1

    @property
    def end(self) -> int:
        """Offset behind the last record."""
        return self.offset + sum(self.lengths) + RECORD_HEADER_BYTES * len(self.lengths)

    def part(self, first: int, last: int) -> Run:
        """The part of the run from entry ``first`` to entry ``last``, both in it."""
        skipped = self.lengths[: first - self.first]
        offset = self.offset + sum(skipped) + RECORD_HEADER_BYTES * len(skipped)
        lengths = self.lengths[first - self.first : last - self.first + 1]
        return Run(self.ledger, first, self.segment, offset, lengths)

    def key(self) -> bytes:
        return _RUN + _ID.pack(self.ledger) + _ID.pack(self.first)

    def value(self) -> bytes:
        head = _RUN_HEAD.pack(_VERSION[0], self.segment, self.offset)
        return head + struct.pack(f">{len(self.lengths)}I", *self.lengths)


Change = Run | Record
"""What an append changes in the index: a run of entries, or a record of STATE_KINDS."""


def changes_of(records: Sequence[Record], locations: Sequence[Location]) -> list[Change]:
    """The changes, in order, of records at their locations. Kinds that concern no ledger make
    none.
    """
    changes: list[Change] = []
    run: Run | None = None
    follows = (
        0,
        0,
        0,
        0,
    )  # ledger, entry, segment, offset with which the next record extends the run
    for record, (segment, offset, length) in zip(records, locations, strict=True):
        if record.kind is Kind.ENTRY:
            ledger, entry = ENTRY_IDS.unpack_from(record.body)
            if (
                run is not None
                and follows == (ledger, entry, segment, offset)
                and len(run.lengths) < RUN_ENTRIES_MAX
            ):
                run.lengths.append(length)
            else:
                run = Run(ledger, entry, segment, offset, [length])
                changes.append(run)
            follows = (ledger, entry + 1, segment, offset + RECORD_HEADER_BYTES + length)
        elif record.kind in STATE_KINDS:
            run = None
            changes.append(record)
    return changes


class LedgerIndex:
    """The index over an ordered store."""

    def __init__(self, store: OrderedStore) -> None:
        self._store = HoldingStore(store)
        self._last: dict[int, int] = {}

    # ---- changes ---------------------------------------------------------------

    def apply(self, changes: Sequence[Change], *, hold: bool = False) -> None:
        """Carry out changes in order. Applying the same ones again, in order and to the end,
        changes nothing.

        ``hold``: only show them, and store them together with what comes next without it.
        """
        self._store.hold(hold)
        pending: dict[bytes, bytes | None] = {}
        for change in changes:
            if isinstance(change, Run):
                self._put_run(change, pending)
            elif change.kind is Kind.LEDGER:
                self._put_state(*decode_ledger(change.body), pending)
            elif change.kind is Kind.LAC:
                self._put_lac(change.body, pending)
            elif change.kind is Kind.FORGET:
                self._flush(pending)
                self._forget(decode_ledger_id(change.body), pending)
        self._flush(pending)

    def _flush(self, pending: dict[bytes, bytes | None]) -> None:
        if pending:
            try:
                self._store.write(pending)
            except DiskError:
                self._last.clear()  # it ran ahead of what is stored
                raise
            pending.clear()

    @property
    def held(self) -> int:
        """Number of keys that are held."""
        return self._store.held

    def _put_run(self, run: Run, pending: dict[bytes, bytes | None]) -> None:
        if run.first <= self.last_entry_id(run.ledger):
            self._flush(pending)  # what it may overlap has to be seen
            self._cut_out(run.ledger, run.first, run.last, pending)
        pending[run.key()] = run.value()
        self._remember(run.ledger, max(run.last, self._last.get(run.ledger, -1)))

    def _cut_out(
        self, ledger: int, first: int, last: int, pending: dict[bytes, bytes | None]
    ) -> None:
        """Take entries first to last out of the runs that hold them."""
        for below in self._runs(ledger, last=last, reverse=True):
            if below.last >= first:
                pending[below.key()] = None
                if below.first < first:
                    left = below.part(below.first, first - 1)
                    pending[left.key()] = left.value()
                if below.last > last:
                    right = below.part(last + 1, below.last)
                    pending[right.key()] = right.value()
            if below.first < first:
                return

    def _put_state(
        self, ledger: int, state: LedgerRecord, pending: dict[bytes, bytes | None]
    ) -> None:
        key = _STATE + _ID.pack(ledger)
        old = self._decode_state(pending.get(key) or self._store.get(key))
        if old is not None:
            master_key = old.master_key if state.master_key is None else state.master_key
            state = LedgerRecord(master_key, state.fenced or old.fenced, state.limbo)
        pending[key] = _VERSION + encode_state(state)

    def _put_lac(self, packet: Buffer, pending: dict[bytes, bytes | None]) -> None:
        key = _LAC + _ID.pack(decode_ledger_id(packet))
        old = pending.get(key) or self._store.get(key)
        if old is None or lac_of(packet) >= lac_of(_decode_lac(old)):
            pending[key] = _VERSION + packet

    def _forget(self, ledger: int, pending: dict[bytes, bytes | None]) -> None:
        prefix = _RUN + _ID.pack(ledger)
        for key, _ in self._store.iterate(prefix, prefix + b"\xff" * 9):
            pending[key] = None
        pending[_STATE + _ID.pack(ledger)] = None
        pending[_LAC + _ID.pack(ledger)] = None
        self._flush(pending)
        self._last.pop(ledger, None)

    def _remember(self, ledger: int, last: int) -> None:
        if len(self._last) >= LAST_ENTRIES_CACHED_MAX:
            self._last.clear()
        self._last[ledger] = last

    # ---- entries ---------------------------------------------------------------

    def find(self, ledger: int, entry: int) -> Location | None:
        """Where an entry lies, None if the index has no such entry. DamagedError, DiskError."""
        prefix = _RUN + _ID.pack(ledger)
        rows = self._store.iterate(prefix, prefix + _ID.pack(entry) + b"\0", reverse=True)
        for key, value in rows:
            [first] = _ID.unpack_from(key, 9)
            count = entry - first + 1
            if len(value) < _RUN_HEAD.size + 4 * count:
                return None
            version, segment, offset = _RUN_HEAD.unpack_from(value)
            if version != _VERSION[0]:
                raise DamagedError(f"index: run {key!r} cannot be decoded")
            lengths = struct.unpack_from(f">{count}I", value, _RUN_HEAD.size)
            offset += sum(lengths[:-1]) + RECORD_HEADER_BYTES * (count - 1)
            return Location(segment, offset, lengths[-1])
        return None

    def last_entry_id(self, ledger: int) -> int:
        """The highest entry id of a ledger, -1 if it has no entries."""
        last = self._last.get(ledger)
        if last is None:
            run = next(self._runs(ledger, reverse=True), None)
            last = -1 if run is None else run.last
            self._remember(ledger, last)
        return last

    def entries(self, ledger: int) -> list[tuple[int, int]]:
        """Ranges (first, last), both included, of the entries of a ledger, ascending and merged."""
        ranges: list[tuple[int, int]] = []
        for run in self._runs(ledger):
            if ranges and ranges[-1][1] + 1 == run.first:
                ranges[-1] = ranges[-1][0], run.last
            else:
                ranges.append((run.first, run.last))
        return ranges

    def _runs(
        self, ledger: int, *, last: int | None = None, reverse: bool = False
    ) -> Iterator[Run]:
        """Runs of a ledger that begin at or before entry ``last``."""
        prefix = _RUN + _ID.pack(ledger)
        stop = prefix + (b"\xff" * 9 if last is None else _ID.pack(last) + b"\0")
        for key, value in self._store.iterate(prefix, stop, reverse=reverse):
            yield _decode_run(key, value)

    def find_gone(
        self, is_gone: Callable[[int, int, int], bool]
    ) -> tuple[dict[bytes, bytes | None], int]:
        """What takes out the entries whose records, at [start, end) of a segment, are gone, for
        ``drop``; and how many they are.
        """
        changes: dict[bytes, bytes | None] = {}
        gone = 0
        for key, value in self._store.iterate(_RUN, _RUN + b"\xff" * 17):
            run = _decode_run(key, value)
            if not is_gone(run.segment, run.offset, run.end):
                continue
            changes[key] = None
            for entry in range(run.first, run.last + 1):
                one = run.part(entry, entry)
                if is_gone(one.segment, one.offset, one.end):
                    gone += 1
                else:
                    changes[one.key()] = one.value()
        return changes, gone

    def drop(self, changes: dict[bytes, bytes | None]) -> None:
        """Carry out what ``find_gone`` found."""
        self._flush(changes)
        self._last.clear()

    # ---- ledgers ---------------------------------------------------------------

    def ledger_state(self, ledger: int) -> LedgerRecord | None:
        """State of a ledger, None if the disk does not know it."""
        return self._decode_state(self._store.get(_STATE + _ID.pack(ledger)))

    def ledgers(self, after: int = -1) -> Iterator[tuple[int, LedgerRecord]]:
        """All ledgers with an id > ``after`` that have a state, ascending."""
        for key, value in self._store.iterate(_STATE + _ID.pack(after + 1), _STATE + b"\xff" * 9):
            state = self._decode_state(value)
            assert state is not None
            yield _ID.unpack_from(key, 1)[0], state

    def explicit_lac(self, ledger: int) -> bytes | None:
        """The explicit LAC packet of a ledger, None if it has none."""
        value = self._store.get(_LAC + _ID.pack(ledger))
        return None if value is None else _decode_lac(value)

    def _decode_state(self, value: bytes | None) -> LedgerRecord | None:
        if value is None:
            return None
        if len(value) < 2 or value[:1] != _VERSION:
            raise DamagedError(f"index: ledger state {value!r} cannot be decoded")
        return decode_state(value[1:])

    # ---- the store ---------------------------------------------------------------

    def flush(self) -> None:
        """Make all changes durable, held ones too."""
        self._store.flush()

    def close(self) -> None:
        self._store.close()


def _decode_lac(value: bytes) -> bytes:
    if len(value) < 1 + LAC_PACKET.size or value[:1] != _VERSION:
        raise DamagedError(f"index: explicit LAC {value!r} cannot be decoded")
    return value[1:]


def _decode_run(key: bytes, value: bytes) -> Run:
    count, rest = divmod(len(value) - _RUN_HEAD.size, 4)
    if len(key) != 17 or rest or count < 1 or value[:1] != _VERSION:
        raise DamagedError(f"index: run {key!r} cannot be decoded")
    _, segment, offset = _RUN_HEAD.unpack_from(value)
    ledger, first = _ID.unpack_from(key, 1)[0], _ID.unpack_from(key, 9)[0]
    lengths = list(struct.unpack_from(f">{count}I", value, _RUN_HEAD.size))
    return Run(ledger, first, segment, offset, lengths)
