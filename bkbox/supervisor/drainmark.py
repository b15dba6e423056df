"""``<disk>/DRAINING``: there while a disk is to take no new ledgers, so that a start knows it before the port opens.

It says *removed* once the disk is no part of the bookie any more: a start that still finds it in the configuration
says so, and nobody takes its absence for a loss.
"""

from __future__ import annotations

from pathlib import Path

from bkbox.errors import DiskError
from bkbox.storage.files import Files, unlink_durably
from bkbox.storage.sealed import read_document, write_document

DRAINING_NAME = "DRAINING"
_FORMAT = 1


def is_draining(files: Files, path: Path) -> bool:
    """Whether the disk takes no new ledgers. One that cannot be read says yes: it stands there for nothing else."""
    try:
        return read_document(files, path / DRAINING_NAME, _FORMAT) is not None
    except DiskError:
        return True


def is_removed(files: Files, path: Path) -> bool:
    """Whether the disk was taken out of its bookie, with nothing on it."""
    try:
        fields = read_document(files, path / DRAINING_NAME, _FORMAT)
    except DiskError:
        return False
    return fields is not None and fields.get("removed") is True


def note(files: Files, path: Path, *, draining: bool, removed: bool = False) -> None:
    """Durably. DiskError."""
    if draining or removed:
        write_document(files, path / DRAINING_NAME, _FORMAT, {"removed": removed})
    else:
        unlink_durably(files, path / DRAINING_NAME)
