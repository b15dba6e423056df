"""``<disk>/CHECKPOINT``: how far the logs are durable *and* durably indexed. A start re-reads only what lies past it.

Writing a checkpoint is ordered: the entry log is synced, then the index flushed, then this file replaced. Losing the
file costs time, never data: without it a start re-reads every segment. The index is stamped with the checkpoint that it
was flushed for, so that an index from an older copy of the disk can be recognized.
"""

from __future__ import annotations

from pathlib import Path

from bkbox.base.values import as_dict, frozen_struct
from bkbox.errors import DamagedError
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files
from bkbox.storage.log.records import Location

CHECKPOINT_NAME = "CHECKPOINT"


@frozen_struct
class Checkpoint:
    """The position that the last checkpoint covers: everything before (segment, offset) of the entry log, and every
    journal segment before ``journal``.

    ``footer`` is the offset of the last footer before that in the segment, 0 if it has none. ``journal`` is None if
    no journal has to be read. ``number`` counts the checkpoints of the disk. ``held``: a replay from here found data
    missing, and the consequences are not durable yet. ``index``: the number of the last checkpoint that the index was
    flushed for.
    """

    number: int
    segment: int
    offset: int
    footer: int
    journal: int | None
    held: bool = False
    index: int = 0

    def covers(self, place: Location) -> bool:
        """True if everything appended before a location is durable and stored."""
        return (self.segment, self.offset) >= (place.segment, place.offset)


def read_checkpoint(files: Files, disk: Path) -> Checkpoint | None:
    """The last checkpoint, None if there is none. Raises DamagedError, FormatVersionError, DiskError."""
    path = disk / CHECKPOINT_NAME
    fields = read_document(files, path)
    if fields is None:
        return None
    try:
        journal = fields["journal"]
        return Checkpoint(
            int(fields["number"]),
            int(fields["segment"]),
            int(fields["offset"]),
            int(fields["footer"]),
            None if journal is None else int(journal),
            bool(fields["held"]),
            int(fields.get("index", 0)),
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedError(f"{path}: not a checkpoint") from error


def write_checkpoint(files: Files, disk: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint durably. Raises DiskError."""
    write_document(files, disk / CHECKPOINT_NAME, as_dict(checkpoint))
