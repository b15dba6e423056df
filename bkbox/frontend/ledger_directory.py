"""The front-end's directory of ledgers: which disk has a ledger.

The disk of a ledger is recorded on that disk and never computed. Workers list their ledgers when they are attached,
and the table keeps a disk's list while its worker is away. As long as some disk is not listed, a ledger that is in no
list may be on that disk: nothing is reported about it, and it is not created. The same holds while a disk goes through
phase one: the ledger may be about to be put into limbo there. Invariant: a ledger never has two disks.

Disk numbers are stable: a disk that joins gets the next number; one that leaves keeps its own, which is not reused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from bkbox.frontend.disk_selection import DiskSelection
from bkbox.frontend.loop.routing import LedgerTable, Routes
from bkbox.wire.codes import Code

MIGRATING = 1 << 30
"""The disk number of a ledger that is migrating between two disks: it is on none."""


class Purpose(Enum):
    """The effect of a request for a ledger that is on no disk yet."""

    WRITE = "a normal add: creates it"
    WRITE_LAC = "writes the LAC: creates it"
    RECOVER = "a fence or a recovery add: creates it, even where no new ledgers are wanted"
    READ = "reads: there is no such ledger"
    READ_LAC = "reads the LAC: there is none"
    FORCE = "syncs: there is nothing to sync"


ABSENT: dict[Purpose, Code] = {
    Purpose.READ: Code.ENOLEDGER,
    Purpose.READ_LAC: Code.ENOENTRY,
    Purpose.FORCE: Code.EOK,
}
"""The response for a ledger that no disk has. A purpose that is not listed here creates it."""


def creates(purpose: Purpose, *, new_ledgers: bool) -> bool:
    """True if a request creates the ledger where no disk has it. ``new_ledgers``: normal writes may."""
    if purpose in (Purpose.WRITE, Purpose.WRITE_LAC):
        return new_ledgers
    return purpose not in ABSENT


class Link(Protocol):
    """The state of the link to a disk's worker."""

    @property
    def in_service(self) -> bool: ...

    @property
    def writable(self) -> bool: ...


class Unroutable(Enum):
    """The reason why a request has no disk."""

    UNLISTED = "the ledger may lie on a disk whose worker has not listed its ledgers"
    NO_DISK = "no disk is in service that takes new ledgers"


class LedgerDirectory:
    """Maps ledgers to disk numbers; the table itself belongs to ``routes``."""

    def __init__(self, disks: Sequence[str], routes: Routes) -> None:
        self.disks: list[str | None] = list(disks)
        """Uuids by number, None where the disk has left."""
        self.routes = routes
        self.routes.lanes[:] = [None] * len(self.disks)
        self._table = routes.table
        self._listed = [False] * len(self.disks)
        self._spread = DiskSelection()
        self._coming_over = LedgerTable()
        self._free: Mapping[str, int] = {}
        self._closed: Collection[str] = ()

    # ---- disks --------------------------------------------------------------------------------------

    def join(self, disk: str) -> int:
        """Adds a disk that has no ledgers yet; returns its number."""
        self.disks.append(disk)
        self.routes.lanes.append(None)
        self._listed.append(True)
        return len(self.disks) - 1

    def replace(self, before: str, after: str) -> None:
        """Replaces a disk under its number. The new disk counts as unlisted: the old one's ledgers are looked up on it
        once it has listed its own."""
        number = self.disks.index(before)
        self.disks[number] = after
        self._listed[number] = False

    def leave(self, disk: str) -> None:
        """Removes a disk that has no ledgers."""
        number = self.disks.index(disk)
        self.disks[number] = None
        self._listed[number] = True

    def listed(self, disk: int) -> None:
        """The disk's list is complete."""
        self._listed[disk] = True

    def on_list_lost(self, disk: int) -> None:
        """The disk goes through phase one: its next list may be longer than its last one."""
        self._listed[disk] = False

    def all_listed(self) -> bool:
        return all(self._listed)

    def set_free_space(self, free: Mapping[str, int], closed: Collection[str]) -> None:
        """``free``: bytes for new ledgers per disk. ``closed``: disks that accept no new ledgers, whatever the others
        do."""
        self._free = free
        self._closed = closed

    # ---- ledgers ------------------------------------------------------------------------------------

    def record(self, disk: int, ledgers: Iterable[int]) -> None:
        """Records that these ledgers are on this disk."""
        for ledger in ledgers:
            self._table.put(ledger, disk)

    def record_list(self, disk: int, ledgers: Iterable[int]) -> None:
        """Records a part of a disk's list, which may have been made before a ledger was paused."""
        for ledger in ledgers:
            if self._table.put(ledger, disk) == MIGRATING:
                self._table.put(ledger, MIGRATING)

    def mark_migrating(self, ledger: int) -> int:
        """Marks the ledger as migrating between two disks; returns its previous disk number."""
        return self._table.put(ledger, MIGRATING)

    def mark_over_quota(self, ledgers: Iterable[int], *, more: bool) -> None:
        """Adds a page of the ledgers whose owner is over its quota. The last set applies while there is ``more``."""
        for ledger in ledgers:
            self._coming_over.put(ledger, 0)
        if not more:
            self.routes.over = self._coming_over if self._coming_over.count else None
            self._coming_over = LedgerTable()

    def find(self, ledger: int) -> int | None:
        """The disk number of a ledger, MIGRATING while it migrates, or None if no list names it."""
        disk = self._table.get(ledger)
        return disk if disk >= 0 else None

    def route(
        self, ledger: int, purpose: Purpose, links: Mapping[int, Link], *, new_ledgers: bool
    ) -> int | Code:
        """The number of the disk that a request goes to (MIGRATING: between two), or the code to refuse it with.

        ``links``: the links to the workers by disk number. ``new_ledgers``: normal writes may create ledgers.
        """
        if ledger < 0:
            return Code.EBADREQ
        if purpose is Purpose.WRITE and self.routes.is_over(ledger):
            return Code.ETOOMANYREQUESTS
        place = self.find(ledger)
        if place is not None:
            return place
        if not self.all_listed():
            return Code.EIO
        if not creates(purpose, new_ledgers=new_ledgers):
            return ABSENT.get(purpose, Code.EREADONLY)
        known = [links.get(number) for number in range(len(self.disks))]
        chosen = self.choose(
            ledger,
            [link is not None and link.in_service for link in known],
            [link is not None and link.writable for link in known],
        )
        return Code.EIO if isinstance(chosen, Unroutable) else chosen

    def is_unlisted(self, ledger: int) -> bool:
        """True if every disk's list is known, and none names this ledger."""
        return ledger >= 0 and self.find(ledger) is None and self.all_listed()

    def choose(
        self, ledger: int, in_service: Sequence[bool], writable: Sequence[bool]
    ) -> int | Unroutable:
        """The disk of a ledger. A ledger in no list is assigned to a disk, weighted by the disks' free space."""
        place = self.find(ledger)
        if place is not None:
            return place
        if not self.all_listed():
            return Unroutable.UNLISTED
        candidates = {
            number: self._free.get(disk, 0)
            for number, disk in enumerate(self.disks)
            if disk is not None and in_service[number] and disk not in self._closed
        }
        if not candidates:
            return Unroutable.NO_DISK
        writable_candidates = {
            number: free for number, free in candidates.items() if writable[number]
        }
        chosen = self._spread.choose(writable_candidates or candidates)
        self.record(chosen, (ledger,))
        return chosen
