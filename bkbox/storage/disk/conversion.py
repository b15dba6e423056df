"""``<disk>/CONVERSION``: `bkbox takeover` or `bkbox handback` has begun to convert the disk and has not finished.

No bookie starts on such a disk. The document is written first and removed last.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from bkbox.base.values import as_dict, frozen_struct
from bkbox.errors import DamagedError
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files

CONVERSION_NAME = "CONVERSION"


class Direction(StrEnum):
    """The command that converts the disk."""

    TAKEOVER = "takeover"
    HANDBACK = "handback"


class Phase(StrEnum):
    """COPYING: data is converted, file by file. FINISHING: all of it has been; cookies and what is left over follow."""

    COPYING = "copying"
    FINISHING = "finishing"


@frozen_struct
class Conversion:
    """The progress of a conversion. ``losses``: what was found missing, as text. ``fence_all``: every ledger is fenced,
    because the states of ledgers could not be read.
    """

    direction: Direction
    phase: Phase = Phase.COPYING
    losses: tuple[str, ...] = ()
    fence_all: bool = False


def read_conversion(files: Files, disk: Path) -> Conversion | None:
    """The conversion of a disk, None if there is none. Raises DamagedError, FormatVersionError, DiskError."""
    path = disk / CONVERSION_NAME
    fields = read_document(files, path)
    if fields is None:
        return None
    try:
        return Conversion(
            Direction(fields["direction"]),
            Phase(fields["phase"]),
            tuple(map(str, fields["losses"])),
            bool(fields["fence_all"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise DamagedError(f"{path}: not the record of a conversion") from error


def write_conversion(files: Files, disk: Path, conversion: Conversion) -> None:
    """Replace the record durably."""
    write_document(files, disk / CONVERSION_NAME, as_dict(conversion))
