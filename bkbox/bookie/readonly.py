"""Why a disk takes no ordinary writes: it is over its usage bound, had no room for a write, or failed.

A disk that is only over its bound still takes what fences, recovers and repairs: some room is kept for that.
"""

from __future__ import annotations

import logging

from bkbox.errors import DiskError
from bkbox.limits import RECORD_BODY_BYTES_MAX
from bkbox.storage.files import Space

log = logging.getLogger(__name__)

DISK_FULL = "disk full"
DISK_USAGE = "disk usage"
DISK_FAILED = "disk failed"


class ReadOnly:
    """True while there is a reason."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def allows(self, *, high_priority: bool) -> bool:
        """Whether an add is taken."""
        return not self.reasons or (high_priority and self.reasons <= {DISK_USAGE})

    def turn(self, reason: str, error: DiskError) -> None:
        """A write failed."""
        if reason not in self.reasons:
            log.error("the disk turns read-only (%s): %s", reason, error)
        self.reasons.add(reason)

    def watch(self, space: Space, usage_max: float, reserve_bytes: int) -> None:
        """Turn read-only before the disk is full, and writable again once there is room.

        ``usage_max`` is a share of the file system, ``reserve_bytes`` what stays free for fences and repair. A disk
        that had no room for a write is writable again when the largest entry fits.
        """
        free, total = space
        if free < reserve_bytes or 1 - free / max(total, 1) > usage_max:
            if DISK_USAGE not in self.reasons:
                log.warning(
                    "the disk turns read-only (%s): %d of %d bytes are free",
                    DISK_USAGE,
                    free,
                    total,
                )
            self.reasons.add(DISK_USAGE)
            return
        gone = {DISK_USAGE}
        if free >= RECORD_BODY_BYTES_MAX:
            gone.add(DISK_FULL)
        if self.reasons & gone:
            self.reasons -= gone
            if not self.reasons:
                log.warning("the disk is writable again: %d of %d bytes are free", free, total)
