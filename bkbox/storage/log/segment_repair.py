"""Repairs of a replay to segments that are complete, or that must be cut before the next append.

Both calls leave the segment durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bkbox.base.limits import FOOTER_LEDGERS_MAX
from bkbox.errors import DiskError
from bkbox.storage.files import Files
from bkbox.storage.log.ledger_counts import LedgerCounts
from bkbox.storage.log.records import FOOTER_ITEM, GAP_BODY, OFFSET, Kind, Record
from bkbox.storage.log.scan import Region
from bkbox.storage.log.segment import RECORD_HEADER_BYTES, SegmentName, put_record


def cut_segment(files: Files, path: Path, size: int) -> None:
    """Cut a segment to its first ``size`` bytes."""
    file = files.open_append(path)
    try:
        file.truncate(size)
        file.fdatasync()
    finally:
        file.close()


def sync_segment(files: Files, path: Path) -> None:
    """Make a segment durable as it is."""
    file = files.open_append(path)
    try:
        file.fdatasync()
    finally:
        file.close()


def finish_segment(
    files: Files,
    path: Path,
    name: SegmentName,
    size: int,
    *,
    gaps: Sequence[Region],
    footer: int,
    counts: LedgerCounts,
) -> None:
    """Note gaps, count the records after the last footer, at ``footer``, and seal a segment of ``size`` bytes.

    DiskFullError: nothing has changed.
    """
    records = [Record(Kind.GAP, GAP_BODY.pack(*gap)) for gap in gaps]
    end = size + sum(RECORD_HEADER_BYTES + len(record.body) for record in records)
    items = [FOOTER_ITEM.pack(*item) for item in counts.items()]
    for start in range(0, len(items), FOOTER_LEDGERS_MAX):
        body = OFFSET.pack(footer) + b"".join(items[start : start + FOOTER_LEDGERS_MAX])
        records.append(Record(Kind.FOOTER, body))
        footer = end
        end += RECORD_HEADER_BYTES + len(body)
    records.append(Record(Kind.SEAL, OFFSET.pack(footer)))
    buffer = bytearray(end - size + RECORD_HEADER_BYTES + OFFSET.size)
    at = 0
    for record in records:
        at = put_record(buffer, at, record, name.seed, name.segment, size + at)
    file = files.open_append(path)
    try:
        try:
            file.append(buffer)
        except DiskError:
            with suppress(DiskError):
                file.truncate(size)
            raise
        file.fdatasync()
    finally:
        file.close()
