"""Disk space usage of a bookie, as `bkbox gc` and `bkbox scrub` show it, and requests to a running bookie for it.

As in client.py every function takes the address of the admin API, and raises the bookie's own error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bkbox.api.admin.client import Address, ask
from bkbox.api.admin.socket_path import SPACE_URL
from bkbox.base.documents import from_document, json_kind
from bkbox.errors import EncodingError

NO_SUCH_SEGMENT = "no such segment"
"""Response of a disk about a segment that it neither has nor had."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """One disk. Sizes are bytes. ``segments``, ``segment_bytes``: of the sealed segments; ``active_segments``,
    ``active_bytes``: of those that may still be written to, the room that is filled ahead included.
    ``reclaimable_bytes``: garbage in its sealed segments by the last look through the
    index, None before the first; ``trash_ledgers``: deleted ones whose entries are kept for a while;
    ``emptied_ledgers``: those of which only that is known; ``quarantined``: segments with parts that cannot be read;
    ``kept``: segments that a compaction could not remove, and why; ``scrub_segment`` and ``scrub_ledger``: how far a
    pass has come, the second once it compares, 0 for not at all; ``…_ms``: wall-clock milliseconds since 1970, 0 for
    never.
    """

    path: str
    disk: str
    segments: int
    segment_bytes: int
    reclaimable_bytes: int | None
    ledgers: int
    trash_ledgers: int
    emptied_ledgers: int
    quarantined: tuple[int, ...]
    kept: dict[str, str]
    reserve_bytes: int
    reserve_bytes_max: int
    free_bytes: int
    total_bytes: int
    scrub_segment: int
    scrub_ledger: int
    scrub_began_ms: int
    scrub_completed_ms: int
    active_segments: int = 0
    active_bytes: int = 0


def space(address: Address) -> list[DiskSpace]:
    """Each disk in service."""
    found = ask(address, "GET", SPACE_URL)
    if not isinstance(found, list):
        raise EncodingError(f"{address} answered {json_kind(found)} where a list of disks is due")
    return [from_document(DiskSpace, item, "disk") for item in found]


def explain_segment(address: Address, segment: int) -> list[dict[str, Any]]:
    """The report of each disk about its segment with that id."""
    found = ask(address, "GET", f"{SPACE_URL}/segments/{segment}")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise EncodingError(f"{address} answered something else than what disks say of a segment")
    return found
