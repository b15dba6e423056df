"""Decides which faults may overlap, such that no acknowledged entry may be lost. This is the only place that does.

- An entry is acknowledged when AQ bookies hold it, and every ledger of a run has an ack quorum of at least ACK_QUORUM.
  So at most ACK_QUORUM - 1 bookies may be without data at a time: from when one may have lost something until it is
  up, on all its disks, and no ledger of it is in limbo. No more of them may be in limbo either, or a ledger could not
  be closed.
- A bookie is stopped and started by one fault at a time.
- All other faults lose nothing, and may hit all bookies at once: processes that are killed or stopped, networks, the
  metadata store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from proof.chaos.schedule import Fault

ACK_QUORUM = 2
"""Minimum ack quorum of all ledgers."""


class FaultBudget:
    """The active faults, by the names of bookies; "" stands for the metadata store."""

    def __init__(self) -> None:
        self.without_data: set[str] = set()
        self._restarting: set[str] = set()
        self._busy: Counter[str] = Counter()
        self._unsure: Counter[str] = Counter()

    def objection(self, fault: Fault, bookie: str) -> str:
        """The reason why a fault is not permitted now; "" if it is."""
        if bookie in self._restarting:
            return "it is being started by another fault"
        if bookie == "" and self._busy[""]:
            return "another fault has the metadata store"
        if fault.loses and len(self.without_data) >= ACK_QUORUM - 1:
            return f"{', '.join(self.without_data)} may be without data yet"
        return ""

    @contextmanager
    def reserve(
        self, bookie: str, *, restarts: bool = False, pauses: bool = False
    ) -> Iterator[None]:
        """Marks a fault as active inside the context."""
        unsure = restarts or pauses
        self._busy[bookie] += 1
        self._unsure[bookie] += unsure
        if restarts:
            self._restarting.add(bookie)
        try:
            yield
        finally:
            self._busy[bookie] -= 1
            self._unsure[bookie] -= unsure
            if restarts:
                self._restarting.discard(bookie)

    def is_unaffected(self, bookie: str) -> bool:
        """True if the bookie's own status is up to date."""
        return self._unsure[bookie] == 0

    def is_restarting(self, bookie: str) -> bool:
        return bookie in self._restarting
