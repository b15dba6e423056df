"""Scrub: reads and verifies every record of a disk periodically, so that damage is found before a read needs it.

``<disk>/SCRUB`` stores the progress of the present pass, the end of the last complete one, the regions of segments
that were found bad and not removed since, and when the copies on the disk were last found complete. Losing it costs a
pass of each.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from bkbox.base.limits import SCRUB_STEP_BYTES
from bkbox.base.values import frozen_struct
from bkbox.errors import DamagedError
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.files import Files
from bkbox.storage.log.records import ENTRY_IDS, Kind
from bkbox.storage.log.segment import SEGMENT_HEADER_BYTES, ScannedRecord, Unwritten

SCRUB_NAME = "SCRUB"

_STEP_RECORDS = 256
"""Bounds of one step; SCRUB_STEP_BYTES bounds it as well."""


@frozen_struct
class ScrubState:
    """``segment``: all before it were checked in the present pass, 0 if none is in progress; ``began_ms`` and
    ``completed_ms``: when it began and when the last one ended, ms since 1970, 0 for never; ``bad``: (segment, start,
    end); ``ledger``: all before it were compared with those of other bookies. ``copies_checked_ms``: when a check last
    found every entry here that the metadata credits this bookie with, 0: never; ``copies_change``: the number of a
    change of the metadata store up to which it did, 0: the store counts none.
    """

    segment: int = 0
    began_ms: int = 0
    completed_ms: int = 0
    bad: tuple[tuple[int, int, int], ...] = ()
    ledger: int = 0
    copies_checked_ms: int = 0
    copies_change: int = 0


def read_scrub(files: Files, disk: Path) -> ScrubState:
    """The stored state; an unreadable one counts as none. FormatVersionError, DiskError."""
    try:
        fields = read_document(files, disk / SCRUB_NAME)
        if fields is None:
            return ScrubState()
        return ScrubState(
            int(fields["segment"]),
            int(fields["began_ms"]),
            int(fields["completed_ms"]),
            tuple((int(segment), int(start), int(end)) for segment, start, end in fields["bad"]),
            int(fields.get("ledger", 0)),
            int(fields.get("copies_checked_ms", 0)),
            int(fields.get("copies_change", 0)),
        )
    except (DamagedError, KeyError, ValueError, TypeError, OverflowError):
        return ScrubState()


def write_scrub(files: Files, disk: Path, state: ScrubState) -> None:
    """Store it durably. DiskError."""
    fields = {
        "segment": state.segment,
        "began_ms": state.began_ms,
        "completed_ms": state.completed_ms,
        "bad": [list(each) for each in state.bad],
        "ledger": state.ledger,
        "copies_checked_ms": state.copies_checked_ms,
        "copies_change": state.copies_change,
    }
    write_document(files, disk / SCRUB_NAME, fields)


@frozen_struct
class Verified:
    """The result of one step: where to go on, and whether there is more; bytes and records read; bad regions, as
    (segment, start, end); entries (ledger, id) whose records are good and that the index does not name.
    """

    offset: int
    done: bool
    read_bytes: int
    records: int
    bad: tuple[tuple[int, int, int], ...]
    unnamed: tuple[tuple[int, int], ...]


def verify(store: DiskStore, segment: int, offset: int) -> Verified:
    """Verify records of a segment from ``offset`` on, where one begins, as far as a checkpoint covers it. DiskError."""
    begun = at = max(offset, SEGMENT_HEADER_BYTES)
    covered = store.checkpoints.last
    end = covered.offset if segment == covered.segment else 1 << 63
    records = 0
    bad: list[tuple[int, int, int]] = []
    unnamed: list[tuple[int, int]] = []
    done = True
    with closing(store.log.scan(segment, begun)) as items:
        for item in items:
            start = item.start if not isinstance(item, ScannedRecord) else item.offset
            if isinstance(item, Unwritten) or start >= end:
                break
            at = item.end
            if isinstance(item, ScannedRecord):
                records += 1
                if item.kind is Kind.ENTRY:
                    ledger, entry = ENTRY_IDS.unpack_from(item.body)
                    if not store.has_entry(ledger, entry) and _is_wanted(store, ledger):
                        unnamed.append((ledger, entry))
            else:
                bad.append((segment, item.start, item.end))
            if at - begun >= SCRUB_STEP_BYTES or records >= _STEP_RECORDS:
                done = False
                break
    return Verified(at, done, at - begun, records, tuple(bad), tuple(unnamed))


def _is_wanted(store: DiskStore, ledger: int) -> bool:
    """True if the disk knows a ledger whose entries are not to be deleted."""
    state = store.ledger_state(ledger)
    return state is not None and not state.emptied
