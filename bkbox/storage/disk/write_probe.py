"""Tests that a disk stores and returns written data, with a small file of its own."""

from __future__ import annotations

from pathlib import Path

from bkbox.errors import DamagedError
from bkbox.storage.files import Files

PROBE_NAME = "PROBE"


def probe(files: Files, disk: Path, content: bytes) -> None:
    """Write a file, make it durable, read it from the disk and remove it. Raises DiskError.

    ``content`` should differ each time, so that the file of an earlier probe cannot pass for it.
    """
    path = disk / PROBE_NAME
    written = files.open_append(path)
    try:
        written.truncate(0)  # a crash may have left one behind
        written.append(content)
        written.fdatasync()
    finally:
        written.close()
    found = files.open_read(path)
    try:
        found.release(0, len(content))  # else it would come from the page cache
        if found.pread(0, len(content)) != content:
            raise DamagedError(f"{path} does not hold what was written to it just now")
    finally:
        found.close()
    files.unlink(path)
