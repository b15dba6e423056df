"""Why a disk takes no ordinary writes: named reasons, each of which comes and goes by itself.

A disk that is only over its bound still takes what fences, recovers and repairs: some room is kept for that. So does
one that somebody wants to take no more (INTENTS), for as long as he wants it. Where a reason is about room, there has
to be more of it before the reason goes than when it came, so that a disk at its bound does not turn to and fro.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from bkbox.base.limits import RECORD_BODY_BYTES_MAX
from bkbox.errors import DiskError
from bkbox.storage.files import Space

log = logging.getLogger(__name__)

DISK_FULL = "disk full"
DISK_USAGE = "disk usage"
DISK_FAILED = "disk failed"
RESERVE_SPENT = "reserve spent"
OPERATOR = "operator"
DECOMMISSION = "decommission"

INTENTS = frozenset({OPERATOR, DECOMMISSION})
"""What somebody wants, and takes back; everything else comes and goes with the disk."""

_REPAIR_GOES_ON = INTENTS | {DISK_USAGE}

_USAGE_STEP = 0.02
_RESERVE_AGAIN = 1.25
"""Of the reserve, so much has to be free before a disk is writable again."""


class ReadOnly:
    """True while there is a reason."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def allows(self, *, high_priority: bool) -> bool:
        """Whether an add is taken."""
        return not self.reasons or (high_priority and self.reasons <= _REPAIR_GOES_ON)

    def turn(self, reason: str, error: DiskError) -> None:
        """A write failed."""
        if reason not in self.reasons:
            log.error("the disk turns read-only (%s): %s", reason, error)
        self.reasons.add(reason)

    def set(self, reason: str, *, present: bool) -> None:
        """Whether there is this reason, from now on."""
        if present and reason not in self.reasons:
            log.warning("the disk turns read-only (%s)", reason)
            self.reasons.add(reason)
        elif not present and reason in self.reasons:
            self.reasons.remove(reason)
            if not self.reasons:
                log.info("the disk is writable again (%s has gone)", reason)

    def intend(self, reasons: Collection[str]) -> None:
        """Of INTENTS these are there from now on, and no others."""
        for reason in sorted(INTENTS):
            self.set(reason, present=reason in reasons)

    def watch(
        self, space: Space, usage_max: float, reserve_bytes: int, usage_resume: float = 0.0
    ) -> None:
        """Turn read-only before the disk is full, and writable again once there is room.

        ``usage_max`` is a share of the file system, ``usage_resume`` the one below which the reason goes (0: a little
        less), ``reserve_bytes`` what stays free for fences and repair. A disk that had no room for a write is writable
        again when the largest entry fits.
        """
        free, total = space.free, space.total
        usage = 1 - free / max(total, 1)
        if free < reserve_bytes or usage > usage_max:
            self.set(DISK_USAGE, present=True)
        elif free >= reserve_bytes * _RESERVE_AGAIN and (
            usage_max >= 1 or usage < (usage_resume or usage_max - _USAGE_STEP)
        ):
            self.set(DISK_USAGE, present=False)
        if free >= max(reserve_bytes, RECORD_BODY_BYTES_MAX):
            self.set(DISK_FULL, present=False)
