"""Read-only state of a disk: named reasons, each of which comes and goes by itself.

A disk that is only over its usage bound still accepts fences, recovery adds and repair: some space is reserved for
them. So does a disk that the operator has made read-only (INTENTS), until the operator revokes it. A reason about space
has a hysteresis: it needs more free space to go than it had when it came, so that a disk at its bound does not flap.
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
"""Reasons that are operator requests and persist until revoked; all others are set and cleared by the disk's
condition.
"""

_REPAIR_GOES_ON = INTENTS | {DISK_USAGE}

_USAGE_STEP = 0.02
_RESERVE_AGAIN = 1.25
"""Multiple of the reserve that must be free before a disk is writable again."""


class ReadOnly:
    """The read-only reasons of a disk; true while there is one."""

    def __init__(self) -> None:
        self.reasons: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def allows(self, *, high_priority: bool) -> bool:
        """True if an add is accepted."""
        return not self.reasons or (high_priority and self.reasons <= _REPAIR_GOES_ON)

    def turn(self, reason: str, error: DiskError) -> None:
        """Set a reason after a failed write."""
        if reason not in self.reasons:
            log.error("the disk turns read-only (%s): %s", reason, error)
        self.reasons.add(reason)

    def set(self, reason: str, *, present: bool) -> None:
        """Set or clear a reason."""
        if present and reason not in self.reasons:
            log.warning("the disk turns read-only (%s)", reason)
            self.reasons.add(reason)
        elif not present and reason in self.reasons:
            self.reasons.remove(reason)
            if not self.reasons:
                log.info("the disk is writable again (%s has gone)", reason)

    def intend(self, reasons: Collection[str]) -> None:
        """Replace the reasons among INTENTS by these."""
        for reason in sorted(INTENTS):
            self.set(reason, present=reason in reasons)

    def watch(
        self, space: Space, usage_max: float, reserve_bytes: int, usage_resume: float = 0.0
    ) -> None:
        """Turn read-only before the disk is full, and writable again once there is space.

        ``usage_max`` is a share of the file system; ``usage_resume`` is the share below which the reason is cleared
        (0: a little less). ``reserve_bytes`` stay free for fences and repair. A disk that had no space for a write is
        writable again when the largest entry fits.
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
