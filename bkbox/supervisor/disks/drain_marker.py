"""``<disk>/DRAINING``: present while a disk takes no new ledgers, so that a start knows it before the port opens.

It says *removed* once the disk no longer belongs to the bookie. A start that still finds such a disk in the
configuration reports it, and its absence does not count as a loss.
"""

from __future__ import annotations

from pathlib import Path

from bkbox.errors import DiskError
from bkbox.storage.checksummed_document import read_document, write_document
from bkbox.storage.files import Files, unlink_durably

DRAINING_NAME = "DRAINING"


def is_draining(files: Files, path: Path) -> bool:
    """True if the disk takes no new ledgers. An unreadable mark counts as True: it has no other purpose."""
    try:
        return read_document(files, path / DRAINING_NAME) is not None
    except DiskError:
        return True


def is_removed(files: Files, path: Path) -> bool:
    """True if the disk was removed from its bookie while it held no ledgers."""
    try:
        fields = read_document(files, path / DRAINING_NAME)
    except DiskError:
        return False
    return fields is not None and fields.get("removed") is True


def note(files: Files, path: Path, *, draining: bool, removed: bool = False) -> None:
    """Write the mark durably. Raises DiskError."""
    if draining or removed:
        write_document(files, path / DRAINING_NAME, {"removed": removed})
    else:
        unlink_durably(files, path / DRAINING_NAME)
