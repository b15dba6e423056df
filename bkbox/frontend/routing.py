"""Which disk holds a ledger, as the front-end knows it.

The place of a ledger is recorded on its disk and never computed: the workers list their ledgers when they are
attached, and the table keeps what a disk listed while its worker is away. As long as some disk is not listed, nothing
is said about or created for a ledger that is in no list: it may be on that disk. The same holds while a disk goes
through phase one: the ledger may be about to be put into limbo there, and a ledger must never have two homes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from bkbox.kernel.routes import Routes
from bkbox.wire.codes import Code


class Purpose(Enum):
    """What a request does where the ledger is on no disk yet."""

    WRITE = "an ordinary write: creates it"
    RECOVER = "a fence or a recovery add: creates it, even where no new ledgers are wanted"
    READ = "reads: there is no such ledger"
    READ_LAC = "reads the LAC: there is none"
    FORCE = "syncs: there is nothing to sync"


ABSENT: dict[Purpose, Code] = {
    Purpose.READ: Code.ENOLEDGER,
    Purpose.READ_LAC: Code.ENOENTRY,
    Purpose.FORCE: Code.EOK,
}
"""The answer about a ledger that no disk has; whatever is not here creates it."""


class Unroutable(Enum):
    """Why a request has no disk."""

    UNLISTED = "the ledger may lie on a disk whose worker has not listed its ledgers"
    NO_DISK = "no disk is in service"


class Places:
    """Ledger to disk, by the disk's number; the table itself is that of ``routes``."""

    def __init__(self, disks: Sequence[str], routes: Routes) -> None:
        self.disks = tuple(disks)
        self.routes = routes
        self.routes.lanes[:] = [None] * len(self.disks)
        self._table = routes.table
        self._listed = [False] * len(self.disks)
        self._ledgers = [0] * len(self.disks)

    def listed(self, disk: int) -> None:
        """The disk's list is complete."""
        self._listed[disk] = True

    def unlisted(self, disk: int) -> None:
        """The disk goes through phase one: what it lists next may be more than it listed before."""
        self._listed[disk] = False

    def all_listed(self) -> bool:
        return all(self._listed)

    def record(self, disk: int, ledgers: Iterable[int]) -> None:
        """These ledgers lie on this disk."""
        for ledger in ledgers:
            before = self._table.put(ledger, disk)
            if before >= 0:
                self._ledgers[before] -= 1
            self._ledgers[disk] += 1

    def find(self, ledger: int) -> int | None:
        """The disk of a ledger, or None where no list names it."""
        disk = self._table.get(ledger)
        return disk if disk >= 0 else None

    def choose(
        self, ledger: int, in_service: Sequence[bool], writable: Sequence[bool]
    ) -> int | Unroutable:
        """The disk of a ledger; one that is in no list yet is given to the disk with the fewest ledgers."""
        place = self.find(ledger)
        if place is not None:
            return place
        if not self.all_listed():
            return Unroutable.UNLISTED
        candidates = [
            disk for disk in range(len(self.disks)) if in_service[disk] and writable[disk]
        ]
        if not candidates:
            candidates = [disk for disk in range(len(self.disks)) if in_service[disk]]
        if not candidates:
            return Unroutable.NO_DISK
        chosen = min(candidates, key=self._ledgers.__getitem__)
        self.record(chosen, (ledger,))
        return chosen
