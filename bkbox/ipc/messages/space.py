"""What the repair worker and the supervisor ask of a disk's worker (worker/disk_maintenance.py): use of space,
garbage collection, compaction, scrub.
"""

from __future__ import annotations

from typing import Any

from bkbox.ipc.messages.message import Message


class GetSpace(Message, to="worker"):
    """Reply: Space."""


class Space(Message):
    """The use of the disk's space, and the progress of scrub and compaction."""

    values: dict[str, Any]


class ExplainSegment(Message, to="worker"):
    """Asks why a segment is kept. Reply: Space."""

    segment: int


class ListDeleted(Message, to="worker"):
    """One page of deleted ledgers with an id > ``after``, in order. Reply: Page of DELETED_ITEM."""

    after: int = -1


class ListBytes(Message, to="worker"):
    """Lists the usage on the disk of ledgers with an id > ``after``, in order, without those in the trash. The reply to
    the first page (-1) may be empty with ``more`` set: the disk is still counting; ask again. Reply: Page of
    BYTES_ITEM.
    """

    after: int = -1


class ChangeLedgers(Message, to="worker"):
    """Changes the state of the ledgers of the payload (LEDGER_ID_ITEM each), durably. ``action``: 'trash' (``now_ms``:
    the time of deletion), 'restore', 'empty' (removes the entries of those in the trash) or 'forget' (those that are
    empty). A ledger whose state has changed meanwhile is left alone. Reply: Changed.
    """

    action: str
    now_ms: int = 0


class Changed(Message):
    ledgers: int


class ScanIndex(Message, to="worker"):
    """Continues the scan of the index, or starts one with ``begin``. It looks for entries in the regions of the payload
    (REGION_ITEM each), or in segments that do not exist. Reply: IndexScanned.
    """

    begin: bool = False


class IndexScanned(Message):
    """The payload has the entries that were found and cannot be read (ENTRY_ITEM each)."""

    done: bool


class ListSegments(Message, to="worker"):
    """One page of sealed segments with an id > ``after``, in order, with the results of the last index scan. Reply:
    Page of SEGMENT_ITEM.
    """

    after: int = 0


class CompactSegment(Message, to="worker"):
    """Continues copying the live data out of a segment, or starts to with ``begin``. Reply: Compacted."""

    segment: int
    begin: bool = False


class Compacted(Message):
    """``wait``: nothing was done, as too many writes are pending. Payload, when ``done``: bad regions."""

    done: bool
    wait: bool = False
    read_bytes: int = 0
    entries: int = 0
    bytes: int = 0


class StoreAll(Message, to="worker"):
    """Takes a checkpoint that covers everything written before the call with ``begin``. Reply: Stored; repeat the call
    until it is ``done``."""

    begin: bool = False


class Stored(Message):
    done: bool


class SpendReserve(Message, to="worker"):
    """Releases the disk's reserve to the calling compaction. Reply: Stored; not ``done`` if there is no reserve."""


class RemoveSegment(Message, to="worker"):
    """Removes a segment that was copied, if a later index scan found nothing in it. Reply: Removed."""

    segment: int


class Removed(Message):
    """``why``: the reason why it was not removed; empty if it was."""

    why: str = ""
    bytes: int = 0


class ScrubSegment(Message, to="worker"):
    """Verifies some records of a segment from ``offset`` on. Reply: Scrubbed."""

    segment: int
    offset: int = 0


class Scrubbed(Message):
    """``offset``: where to continue. ``done``: the end is reached. ``regions``: the number of bad ones. Payload: these
    regions (REGION_ITEM each), then entries that the index does not name (ENTRY_ITEM each)."""

    offset: int
    done: bool
    read_bytes: int
    records: int
    regions: int


class RecordScrub(Message, to="worker"):
    """Records durably that the scrub has finished all segments before this one; 0: all there were. ``now_ms``: the
    present time. ``bad``: the unreadable regions of the last finished segment, (segment, start, end) each. Reply: Done.
    """

    segment: int
    now_ms: int
    bad: list[tuple[int, int, int]]


class RecordComparison(Message, to="worker"):
    """Records durably that in the present pass all ledgers before this one were compared with other bookies.

    Reply: Done.
    """

    ledger: int


class RecordCopies(Message, to="worker"):
    """Records durably that at ``now_ms`` every entry was here that the metadata credits this bookie with, as of the
    ``change`` of the metadata store; 0: the store counts none. Reply: Done.
    """

    now_ms: int
    change: int
