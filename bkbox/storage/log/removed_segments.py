"""``<disk>/RETIRED``: the segments of the entry log that were removed on purpose, because they had no live records.

Rules:

- It is written, durably, before a segment is removed. A start removes the remains of such segments after a crash, and
  never reads them.
- Segment ids count up without gaps but for these, and none is used again. So a missing segment that is not in here is
  a loss.
- Losing this file loses no data: a start then only knows as missing what the index names, and a rebuild of the index
  counts every gap as a loss.
"""

from __future__ import annotations

from pathlib import Path

from bkbox.base.values import frozen_struct
from bkbox.errors import DamagedError
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files

RETIRED_NAME = "RETIRED"


@frozen_struct
class RemovedSegments:
    """Ranges (first, last), both included, of removed segments; ascending, with others between them."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, segment: int) -> bool:
        return any(first <= segment <= last for first, last in self.ranges)

    @property
    def last(self) -> int:
        """The highest removed segment, 0 if there is none."""
        return self.ranges[-1][1] if self.ranges else 0

    def with_segment(self, segment: int) -> RemovedSegments:
        """The list with one more segment."""
        joined: list[tuple[int, int]] = []
        for first, last in sorted((*self.ranges, (segment, segment))):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        return RemovedSegments(tuple(joined))


def read_retired(files: Files, disk: Path) -> RemovedSegments:
    """The removed segments of a disk. Raises DamagedError, FormatVersionError, DiskError."""
    path = disk / RETIRED_NAME
    fields = read_document(files, path)
    if fields is None:
        return RemovedSegments()
    try:
        return RemovedSegments(tuple((int(first), int(last)) for first, last in fields["segments"]))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedError(f"{path}: not a list of segments") from error


def write_retired(files: Files, disk: Path, retired: RemovedSegments) -> None:
    """Replace the list durably. DiskError."""
    fields = {"segments": [list(each) for each in retired.ranges]}
    write_document(files, disk / RETIRED_NAME, fields)
