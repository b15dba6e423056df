"""The size of the bookie: the file systems of its disks, each counted once."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bkbox.errors import DiskError
from bkbox.storage.files import Space


def space_of(paths: Iterable[str]) -> Space:
    """Bytes free for an unprivileged process, and bytes in total. A disk that is gone counts as no space; raises
    DiskError only if all are gone."""
    spaces: dict[int, Space] = {}
    missing: DiskError | None = None
    for path in paths:
        try:
            device, found = os.stat(path).st_dev, os.statvfs(path)
        except OSError as error:
            missing = DiskError(f"size of {path}: {error.strerror}")
            continue
        unit = found.f_frsize
        spaces[device] = Space(unit * found.f_bavail, unit * found.f_blocks)
    if missing is not None and not spaces:
        raise missing
    return Space(
        sum(space.free for space in spaces.values()), sum(space.total for space in spaces.values())
    )
