"""The record of a ledger that an operator ended with loss accepted: JSON in its custom metadata.

It records the loss as far as it could be known, never more. If the last acknowledged entry of the ledger could not be
known, ``unknown_after`` says so. A ledger that is ended again, as when holes are filled later, has one record for
each time. Java's clients see the value as bytes of custom metadata and keep it.

``bkbox.ended`` = ``{"at_ms": …, …}``, of the first record, with the later ones under ``later``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

from bkbox.base.documents import from_document
from bkbox.errors import EncodingError
from bkbox.wire.metadata.ledger import LedgerMetadata

ENDED = "bkbox.ended"
"""Key of the custom metadata."""

_RANGE = re.compile(r"(?:^|, )([0-9]{1,19})(?:-([0-9]{1,19}))?(?=, | and |$)")
_YEAR_10000_MS = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class LossRecord:
    """The loss of one forced end. Ranges of entry ids are text, as ``3-5, 9``.

    ``at_ms``: wall-clock ms since 1970; ``by``: user and host; ``run``: an id that all ledgers ended by one command
    share. ``end``: the last entry then. ``last_add_confirmed``: the highest one proven. ``lost``: acknowledged, and
    given by no bookie; ``lost_entries`` of them. ``doubtful``: given by no bookie, and perhaps acknowledged.
    ``dropped``: found behind the end. ``plugged``: ids that got an entry without a payload. ``unknown_after``:
    entries after this one may have been acknowledged and lost; None: there were none. ``silent``: the bookies that
    could not tell, each with the reason.
    """

    at_ms: int
    end: int
    lost: str = ""
    dropped: str = ""
    plugged: str = ""
    by: str = ""
    run: str = ""
    last_add_confirmed: int | None = None
    lost_entries: int = 0
    doubtful: str = ""
    unknown_after: int | None = None
    silent: dict[str, str] = field(default_factory=dict)

    @property
    def when(self) -> str:
        """The time of the end, in UTC."""
        if not 0 <= self.at_ms < _YEAR_10000_MS:
            return "at a time that is not known"
        return datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

    @property
    def losses(self) -> str:
        """The loss, in one line; never empty."""
        found = []
        if self.lost:
            found.append(f"lost: entries {self.lost}")
        if self.doubtful:
            found.append(f"perhaps lost: entries {self.doubtful}")
        if self.dropped:
            found.append(f"dropped behind the end: entries {self.dropped}")
        if self.unknown_after is not None:
            found.append(unknown_beyond(self.unknown_after))
        return "; ".join(found) or "no entry is known to be lost"

    @property
    def text(self) -> str:
        """The whole record in one line."""
        by = f" by {self.by}" if self.by else ""
        run = f" (run {self.run})" if self.run else ""
        plugged = f"; no-op entries at {self.plugged}" if self.plugged else ""
        return f"ended at entry {self.end}, {self.when}{by}{run}: {self.losses}{plugged}"


def unknown_beyond(entry: int) -> str:
    """The sentence that entries after this one may be lost."""
    if entry < 0:
        return "unknown from entry 0 on: nothing tells whether any entry was acknowledged"
    return f"unknown beyond entry {entry}"


def losses_of(metadata: LedgerMetadata) -> tuple[LossRecord, ...]:
    """The records of a ledger, oldest first; none: it was never ended with loss accepted.

    An unreadable value counts as a record that knows nothing.
    """
    stored = dict(metadata.custom).get(ENDED)
    if stored is None:
        return ()
    try:
        value = json.loads(stored)
        later = value.pop("later", []) if isinstance(value, dict) else []
        found = [_record(each) for each in [value, *later]]
    except (ValueError, TypeError, EncodingError, RecursionError):
        return (LossRecord(-1, metadata.last_entry, unknown_after=-1),)
    return tuple(found)


def lost_entries(records: Iterable[LossRecord]) -> int:
    """The number of entries of a ledger that are known to be lost: those in several records count once. Records name so
    many ranges at most; of a ledger that was ended again with more, this is the least."""
    ids: set[tuple[int, int]] = set()
    count = 0
    for record in records:
        ids |= {(int(first), int(last or first)) for first, last in _RANGE.findall(record.lost)}
        count = max(count, record.lost_entries)
    named, after = 0, -1
    for first, last in sorted(ids):
        named += max(0, last - max(first, after + 1) + 1)
        after = max(after, last)
    return max(count, named)


def loss_warnings(metadata: LedgerMetadata) -> list[str]:
    """Warnings for readers of a ledger: a line for each record of loss."""
    return [
        f"ledger {metadata.ledger_id} does not hold all that was written to it: {record.text}"
        for record in losses_of(metadata)
    ]


def with_loss(metadata: LedgerMetadata, record: LossRecord) -> LedgerMetadata:
    """The metadata with one record more."""
    first, *later = map(asdict, (*losses_of(metadata), record))
    value = first | ({"later": later} if later else {})
    custom = dict(metadata.custom) | {ENDED: json.dumps(value).encode()}
    return replace(metadata, custom=tuple(sorted(custom.items())))


def _record(value: object) -> LossRecord:
    found = from_document(LossRecord, value, ENDED)
    if isinstance(value, dict) and "unknown_after" not in value:
        # Written before this was recorded: an empty ``lost`` did not prove that nothing was lost.
        return replace(found, unknown_after=found.end)
    return found
