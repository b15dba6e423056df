"""Compaction: copies the live records out of a segment, so that the segment can be removed.

Live in a segment are:

- entries that the index locates there. They are appended again, and the index follows;
- the states of ledgers. For every ledger that the segment's footers name, its present state and its explicit LAC are
  appended again: a state only ever adds to the one before it, so the newest is enough;
- that a ledger was forgotten, as long as an older segment holds records about it: a replay of the rest would bring
  them back. A FORGET is appended again if the disk does not know the ledger. If it does, because the ledger came back
  later, a FORGET would void the ledger's new data; the segment then stays until the older ones are gone.

Compaction runs in steps, each of which reads and copies a bounded amount, so that other work gets its turn in
between. One step finds and copies live records together: an entry that is overwritten meanwhile is newer in the log,
too. A crash leaves records twice, the newer ones last, and never loses one. The segment is removed
(``remove_segment``) only when a checkpoint covers all copies, and an index scan that began after that checkpoint
found no entry in the segment.

A bad region is skipped. If the index has entries there, the index scan finds them, and the segment stays until repair
has refilled them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing

from bkbox.base.text import counted
from bkbox.base.values import frozen_struct
from bkbox.errors import DamagedError
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import (
    ENTRY_IDS,
    Kind,
    LedgerRecord,
    Location,
    Record,
    decode_ledger,
    decode_ledger_id,
    forget_record,
    lac_record,
    ledger_record,
)
from bkbox.storage.log.segment import SEGMENT_HEADER_BYTES, ScannedRecord, Unwritten
from bkbox.storage.maintenance.index_scan import IndexScan

STEP_BYTES = 1 << 20
STEP_RECORDS = 1_024
"""Upper bound on the records that one step reads or writes."""

_STEP_FOOTERS = 4

STATE_BYTES = 80
"""Approximate size, in bytes, of a ledger state in a segment: it is live, though no index scan finds it."""

StateOf = Callable[[int], LedgerRecord | None]
"""Returns the newest state written for a ledger, durable or not, visible or not; None if there is none."""


@frozen_struct
class Step:
    """The result of one step: bytes read, entries and bytes copied."""

    read_bytes: int = 0
    entries: int = 0
    bytes: int = 0


class Compaction:
    """The compaction of one segment.

    ``bad``: regions [start, end) of it that cannot be read. ``needs``: once everything is copied, the location that a
    checkpoint must cover. ``kept``: the reason that the segment must stay even then, as text.
    """

    def __init__(self, store: DiskStore, state_of: StateOf, segment: int) -> None:
        """Raises DamagedError if the segment's contents cannot be determined, DiskError."""
        ledgers = store.log.ledgers_of(segment)
        if ledgers is None:
            raise DamagedError(
                f"{store.log.path_of(segment)}: its footers cannot be read; what is in it is not known"
            )
        self.segment = segment
        self.bad: list[tuple[int, int]] = []
        self.needs: Location | None = None
        self.kept = ""
        self._store = store
        self._state_of = state_of
        self._ledgers = sorted(ledgers)
        self._ended: set[int] = set()
        self._unknown: set[int] = set()
        self._revived: set[int] = set()
        self._steps = self._work()

    def step(self) -> Step:
        """Do a bounded amount; ``needs`` is set once nothing is left to do. DiskError, DiskFullError: the compaction
        can be tried again from the beginning.
        """
        return next(self._steps, Step())

    def close(self) -> None:
        """Abandon the compaction."""
        self._steps.close()

    def _work(self) -> Generator[Step, None, None]:
        yield from self._copy_entries()
        yield from self._copy_states()
        yield from self._keep_voids()
        self.needs = self._store.log.position

    # ---- entries ----------------------------------------------------------------------------

    def _copy_entries(self) -> Iterator[Step]:
        segment, index = self.segment, self._store.index
        live: list[Record] = []
        begun = at = SEGMENT_HEADER_BYTES
        records = size = 0
        with closing(self._store.log.scan(segment, begun)) as items:
            for item in items:
                if isinstance(item, ScannedRecord):
                    at, records = item.end, records + 1
                    if item.kind is Kind.ENTRY:
                        place = Location(segment, item.offset, len(item.body))
                        if index.find(*ENTRY_IDS.unpack_from(item.body)) == place:
                            live.append(Record(Kind.ENTRY, item.body))
                            size += len(item.body)
                    else:
                        self._note_end(item)
                elif not isinstance(item, Unwritten):
                    at = item.end
                    self.bad.append((item.start, item.end))
                if at - begun >= STEP_BYTES or records >= STEP_RECORDS:
                    self._copy(live)
                    yield Step(at - begun, len(live), size)
                    live, begun, records, size = [], at, 0, 0
        self._copy(live)
        yield Step(at - begun, len(live), size)

    def _note_end(self, record: ScannedRecord) -> None:
        empties = record.kind is Kind.LEDGER and decode_ledger(record.body)[1].emptied
        if empties or record.kind is Kind.FORGET:
            self._ended.add(decode_ledger_id(record.body))

    # ---- states -----------------------------------------------------------------------------

    def _copy_states(self) -> Iterator[Step]:
        for start in range(0, len(self._ledgers), STEP_RECORDS):
            records: list[Record] = []
            for ledger in self._ledgers[start : start + STEP_RECORDS]:
                state = self._state_of(ledger)
                if state is None:
                    self._unknown.add(ledger)
                    continue
                if ledger in self._ended and not state.emptied:
                    self._revived.add(ledger)
                records.append(ledger_record(ledger, state))
                packet = self._store.explicit_lac(ledger)
                if packet is not None:
                    records.append(lac_record(packet))
            self._copy(records)
            yield Step()

    # ---- forgotten ledgers ------------------------------------------------------------------

    def _keep_voids(self) -> Iterator[Step]:
        wanted = self._unknown | self._revived
        held: set[int] = set()
        older = [segment for segment in self._store.log.segments() if segment < self.segment]
        for number, segment in enumerate(older):
            if held == wanted:
                break
            ledgers = None
            if segment not in self._store.log.retired:
                ledgers = self._store.log.ledgers_of(segment)
                held |= wanted if ledgers is None else wanted & ledgers.keys()
            if number % _STEP_FOOTERS == _STEP_FOOTERS - 1:
                yield Step()
        forgotten = sorted(held & self._unknown)
        back = held & self._revived
        for start in range(0, len(forgotten), STEP_RECORDS):
            records = []
            for ledger in forgotten[start : start + STEP_RECORDS]:
                if self._state_of(ledger) is None:
                    records.append(forget_record(ledger))
                else:
                    back.add(ledger)
            self._copy(records)
            yield Step()
        if back:
            self.kept = (
                f"ledger {min(back)} was forgotten here and came back, and older segments hold what was "
                "forgotten of it: they have to go first"
            )

    def _copy(self, records: list[Record]) -> None:
        if records:
            self._store.copy(records)


def remove_segment(store: DiskStore, compaction: Compaction, survey: IndexScan) -> str:
    """Remove a segment that was compacted. Returns empty once it is removed, else the reason, as text. DiskError."""
    segment = compaction.segment
    if compaction.needs is None:
        return "it is not copied yet"
    if compaction.kept:
        return compaction.kept
    if segment >= store.checkpoints.last.segment:
        return "it may be written to"
    if not survey.is_complete or not survey.began.covers(compaction.needs):
        return "the index was not looked through since the copies were stored"
    found = survey.live.get(segment)
    if found is not None:
        return f"{counted(found.entries, 'entry', 'lie')} in it by the index"
    store.retire(segment)
    return ""
