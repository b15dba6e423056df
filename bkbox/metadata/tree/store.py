"""A metadata store on a tree: each method is one operation with one deadline.

The parts: ledgers.py, cookies.py, bookies.py, registration.py, underreplication.py, maintenance.py, loglists.py. What
differs between trees is the set-up of a cluster, its ledger ids and its elections.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol
from uuid import UUID

from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.text import quoted
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.metadata.base import MetadataStore, RegisteredBookie, Registration
from bkbox.metadata.liveness import this_process
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.maintenance import MaintenanceWindows
from bkbox.metadata.tree import bookies
from bkbox.metadata.tree.cookies import DISK_RECORDS, Cookies
from bkbox.metadata.tree.election import Election
from bkbox.metadata.tree.ledgers import Ledgers
from bkbox.metadata.tree.loglists import TreeLogLists
from bkbox.metadata.tree.maintenance import TreeMaintenanceWindows
from bkbox.metadata.tree.registration import TreeRegistration
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.tree.underreplication import TreeUnderReplication
from bkbox.metadata.tree.watches import follow
from bkbox.metadata.underreplication import UnderReplication
from bkbox.metadata.versioned import Versioned
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.paths import PathLayout
from bkbox.wire.metadata.service_info import ServiceInfo


class LedgerIds(Protocol):
    """The generator of new ledger ids."""

    async def next(self) -> LedgerId: ...


class TreeStore(MetadataStore):
    """See MetadataStore; ``layout`` is that of its ledgers."""

    def __init__(
        self,
        tree: Tree,
        root: str,
        layout: PathLayout,
        ids: LedgerIds,
        election: Callable[[str], Election],
        auditors: Election,
    ) -> None:
        """``election``: that of a log, whose path below the root is named."""
        self._tree = tree
        self._root = root
        self.layout = layout
        self._ids = ids
        self._ledgers = Ledgers(tree, root, layout)
        self._cookies = Cookies(tree, root)
        self._disk_records = Cookies(tree, root, DISK_RECORDS)
        self._under_replication = TreeUnderReplication(tree, root, auditors)
        self._election = election
        self._process = this_process()
        self._registrations: list[TreeRegistration] = []

    async def instance_id(self) -> str:
        async with self._tree.deadline():
            return await instance_id(self._tree, self._root)

    # ---- ledgers ----------------------------------------------------------------------------

    async def new_ledger_id(self) -> LedgerId:
        async with self._tree.deadline():
            return await self._ids.next()

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        async with self._tree.deadline():
            return await self._ledgers.create(metadata)

    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        async with self._tree.deadline():
            if linearizable:
                await self._tree.sync(self._ledgers.path(ledger))
            found = await self._ledgers.find(ledger)
        if found is None:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")
        return found

    async def write_ledger(
        self, metadata: LedgerMetadata, expected_version: int
    ) -> Versioned[LedgerMetadata]:
        async with self._tree.deadline():
            return await self._ledgers.write(metadata, expected_version)

    async def delete_ledger(self, ledger: LedgerId) -> None:
        async with self._tree.deadline():
            await self._ledgers.delete(ledger)

    def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        return self._ledgers.pages()

    def watch_ledger(self, ledger: LedgerId) -> AsyncIterator[Versioned[LedgerMetadata] | None]:
        return follow(self._tree, lambda watch: self._ledgers.find(ledger, watch))

    async def ended_ledgers(self) -> list[LedgerId]:
        async with self._tree.deadline():
            return await self._ledgers.ended()

    @property
    def under_replication(self) -> UnderReplication:
        return self._under_replication

    @property
    def maintenance_windows(self) -> MaintenanceWindows:
        return TreeMaintenanceWindows(self._tree, self._root, self._under_replication)

    @property
    def logs(self) -> LogLists:
        return TreeLogLists(self._tree, self._root, self._election)

    # ---- cookies ----------------------------------------------------------------------------

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        async with self._tree.deadline():
            return await self._cookies.find(bookie)

    async def write_cookie(
        self, bookie: BookieId, cookie: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        async with self._tree.deadline():
            return await self._cookies.write(bookie, cookie, expected_version)

    async def delete_cookie(self, bookie: BookieId) -> None:
        async with self._tree.deadline():
            await self._cookies.delete(bookie)

    async def cookies(self) -> dict[BookieId, Versioned[bytes]]:
        async with self._tree.deadline():
            return await self._cookies.all()

    # ---- records of disks -------------------------------------------------------------------

    async def read_disk_record(self, bookie: BookieId) -> Versioned[bytes] | None:
        async with self._tree.deadline():
            return await self._disk_records.find(bookie)

    async def write_disk_record(
        self, bookie: BookieId, record: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        async with self._tree.deadline():
            return await self._disk_records.write(bookie, record, expected_version)

    # ---- registration -----------------------------------------------------------------------

    async def register(
        self, bookie: BookieId, service_info: ServiceInfo, *, read_only: bool
    ) -> Registration:
        mine = TreeRegistration(
            self._tree, self._root, bookie, service_info, self._process, read_only
        )
        await mine.begin()
        self._registrations.append(mine)
        return mine

    async def bookies(self) -> dict[BookieId, RegisteredBookie]:
        async with self._tree.deadline():
            return await bookies.read(self._tree, self._root)

    # ---- other software ---------------------------------------------------------------------

    async def read_znode(self, path: str) -> bytes:
        async with self._tree.deadline():
            return (await self._tree.get(path)).data

    # ---- lifetime ---------------------------------------------------------------------------

    async def close(self) -> None:
        while self._registrations:
            await self._registrations.pop().close()
        await self._tree.close()


async def instance_id(tree: Tree, root: str) -> str:
    """The identity of the cluster. Raises MetadataError if it has none."""
    path = f"{root}/INSTANCEID"
    node = await tree.find(path)
    if node is None:
        raise MetadataError(f"the cluster has no instance id: there is no {tree.noun} {path}")
    try:
        return str(UUID(node.data.decode("ascii").strip()))
    except ValueError:
        raise MetadataError(
            f"{tree.noun} {path} is no instance id: {quoted(node.data[:100])}"
        ) from None
