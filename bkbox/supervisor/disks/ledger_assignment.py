"""The disks of the ledgers that were created or have migrated in this run, where a bookie has several front-ends.

One front-end assigns new ledgers itself. Of several none could: two would assign one ledger to two disks. So they ask
here. Invariants:

- a ledger is assigned here before a front-end is told of it, so before a request for it reaches a worker. A front-end
  that does not know a ledger therefore learns of it here, however new it is;
- a ledger keeps its disk for ever, or until it migrates. While it migrates nothing is answered about it;
- a front-end asks only for ledgers that no disk has listed to it. All others are listed, or were assigned here. While a
  disk goes through phase one, or takes the place of another, nothing is assigned and nothing is denied: the ledger may
  be about to be put into limbo there.

The table is that of the front-ends (ledger_directory.py), and so are its size, 24 to 48 bytes for a ledger, and the
choice of a disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from bkbox.frontend.ledger_directory import MIGRATING, LedgerDirectory, Unroutable
from bkbox.frontend.ledger_queries import Answer
from bkbox.frontend.loop.routing import Routes
from bkbox.ipc.messages.frontend import NewLedgers
from bkbox.ipc.messages.items import LEDGER_ITEM, PLACEMENT_ITEM
from bkbox.supervisor.disks.disks import Disk


class LedgerAssignments:
    """The table. ``disks``: the bookie's, a live list."""

    def __init__(self, disks: Sequence[Disk]) -> None:
        self._disks = disks
        uuids = [disk.uuid for disk in disks]
        self._directory = LedgerDirectory(uuids, Routes())
        for number in range(len(uuids)):
            self._directory.listed(number)

    @property
    def uuids(self) -> list[str]:
        """The disks by index; empty for one that has left."""
        return [disk or "" for disk in self._directory.disks]

    # ---- ledgers ------------------------------------------------------------------------------------

    def find(self, ledger: int) -> int | None:
        """The index of the ledger's disk, MIGRATING, or None if it is not in the table."""
        return self._directory.find(ledger)

    def disk_of(self, ledger: int) -> Disk | None:
        """The ledger's disk; None if it is not in the table, or migrates."""
        number = self._directory.find(ledger)
        if number is None or number == MIGRATING:
            return None
        uuid = self._directory.disks[number]
        return next((disk for disk in self._disks if disk.uuid == uuid), None)

    def resolve(self, query: bytes) -> tuple[bytes, bytes]:
        """Answers a query of LEDGER_ITEM each, whose flag is 1 if the ledger is to be assigned to a disk where it has
        none. Returns PLACEMENT_ITEM each: the answers, without ledgers that migrate; and those assigned just now."""
        answers, assigned = bytearray(), bytearray()
        for ledger, creates in LEDGER_ITEM.iter_unpack(query):
            index = self.find(ledger)
            if index is None:
                index = self.assign(ledger, creates=bool(creates))
                if index >= 0:
                    assigned += PLACEMENT_ITEM.pack(ledger, index)
            if index != MIGRATING:
                answers += PLACEMENT_ITEM.pack(ledger, index)
        return bytes(answers), bytes(assigned)

    def assign(self, ledger: int, *, creates: bool) -> int:
        """The index of a disk for a ledger that is not in the table, which it then is; or a value of Answer.

        ``creates``: without it no disk is assigned.
        """
        if not self._directory.all_listed():
            return Answer.UNKNOWN.value
        if not creates:
            return Answer.NOWHERE.value
        by_uuid = {disk.uuid: disk for disk in self._disks}
        disks = [by_uuid.get(uuid or "") for uuid in self._directory.disks]
        chosen = self._directory.choose(
            ledger,
            [disk is not None and disk.in_service for disk in disks],
            [disk is not None and not disk.stats.get("read_only") for disk in disks],
        )
        return Answer.UNKNOWN.value if isinstance(chosen, Unroutable) else chosen

    def pause(self, ledger: int) -> None:
        """The ledger migrates from now on."""
        self._directory.mark_migrating(ledger)

    def place(self, ledger: int, disk: Disk) -> None:
        """The ledger is on this disk."""
        self._directory.record(self._directory.disks.index(disk.uuid), (ledger,))

    # ---- disks --------------------------------------------------------------------------------------

    def set_free_space(self, message: NewLedgers) -> None:
        """The space and the closed disks, as front-ends are told them."""
        self._directory.set_free_space(message.free, message.closed)

    def hold(self, disk: Disk) -> None:
        """The disk goes through phase one."""
        self._directory.on_list_lost(self._directory.disks.index(disk.uuid))

    def release(self, disk: Disk) -> None:
        """The disk's worker is about to list its ledgers to all front-ends."""
        self._directory.listed(self._directory.disks.index(disk.uuid))

    def join(self, disk: Disk, *, replaces: str = "") -> None:
        """Adds a disk without ledgers, or one that takes the place of another and is held."""
        if replaces:
            self._directory.replace(replaces, disk.uuid)
        elif disk.uuid not in self._directory.disks:
            self._directory.join(disk.uuid)

    def leave(self, disk: Disk) -> None:
        """Removes a disk without ledgers."""
        self._directory.leave(disk.uuid)
