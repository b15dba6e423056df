"""The metadata store on ZooKeeper: each method is one operation with one deadline.

The parts: cluster.py (root, layout), ledgers.py, ids.py, cookies.py, bookies.py, registration.py,
underreplication.py, loglists.py, election.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from bkbox.base.ids import BookieId, LedgerId
from bkbox.base.limits import ZOOKEEPER_SESSION_TIMEOUT_S
from bkbox.config.metadata_uri import ZooKeeperUri
from bkbox.errors import NoSuchLedgerError
from bkbox.metadata.base import MetadataStore, RegisteredBookie, Registration
from bkbox.metadata.liveness import this_process
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.maintenance import MaintenanceWindows
from bkbox.metadata.underreplication import UnderReplication
from bkbox.metadata.versioned import Versioned
from bkbox.metadata.zookeeper import bookies, cluster
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.cookies import DISK_RECORDS, Cookies
from bkbox.metadata.zookeeper.ids import LedgerIds
from bkbox.metadata.zookeeper.ledgers import Ledgers
from bkbox.metadata.zookeeper.loglists import ZooKeeperLogLists
from bkbox.metadata.zookeeper.maintenance import ZooKeeperMaintenanceWindows
from bkbox.metadata.zookeeper.registration import ZooKeeperRegistration
from bkbox.metadata.zookeeper.underreplication import ZooKeeperUnderReplication
from bkbox.metadata.zookeeper.watches import follow
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.paths import PathLayout
from bkbox.wire.metadata.service_info import ServiceInfo


async def init_cluster(uri: ZooKeeperUri, instance_id: UUID, *, wait_s: float) -> None:
    """Create a new cluster. Raises OperatorError (its root exists), MetadataUnavailableError."""
    zk = await Connection.open(uri.hosts, wait_s=wait_s, access=uri.access)
    try:
        async with zk.deadline():
            await cluster.init(zk, uri, instance_id)
    finally:
        await zk.close()


class ZooKeeperStore(MetadataStore):
    """See MetadataStore; made by ``open``."""

    def __init__(
        self, zk: Connection, root: str, layout: PathLayout, *, pulsar: bool = False
    ) -> None:
        """``pulsar``: other processes reach the tree by Pulsar's driver."""
        self._zk = zk
        self._root = root
        self.layout = layout
        self._ids = LedgerIds(zk, root, layout)
        self._ledgers = Ledgers(zk, root, layout)
        self._cookies = Cookies(zk, root)
        self._disk_records = Cookies(zk, root, DISK_RECORDS)
        self._under_replication = ZooKeeperUnderReplication(zk, root, pulsar=pulsar)
        self._process = this_process()
        self._registrations: list[ZooKeeperRegistration] = []

    @classmethod
    async def open(
        cls,
        uri: ZooKeeperUri,
        *,
        wait_s: float,
        session_timeout_s: float = ZOOKEEPER_SESSION_TIMEOUT_S,
    ) -> ZooKeeperStore:
        """Connect to an existing cluster; each operation may take ``wait_s``.

        Raises MetadataUnavailableError, OperatorError (no cluster), ConfigError (another layout),
        MetadataError.
        """
        zk = await Connection.open(
            uri.hosts, wait_s=wait_s, session_timeout_s=session_timeout_s, access=uri.access
        )
        try:
            async with zk.deadline():
                layout = await cluster.open_root(zk, uri)
        except BaseException:
            await zk.close()
            raise
        return cls(zk, uri.root, layout, pulsar=uri.pulsar)

    async def instance_id(self) -> str:
        async with self._zk.deadline():
            return await cluster.instance_id(self._zk, self._root)

    # ---- ledgers ----------------------------------------------------------------------------

    async def new_ledger_id(self) -> LedgerId:
        async with self._zk.deadline():
            return await self._ids.next()

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        async with self._zk.deadline():
            return await self._ledgers.create(metadata)

    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        async with self._zk.deadline():
            if linearizable:
                await self._zk.sync(self._ledgers.path(ledger))
            found = await self._ledgers.find(ledger)
        if found is None:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")
        return found

    async def write_ledger(
        self, metadata: LedgerMetadata, expected_version: int
    ) -> Versioned[LedgerMetadata]:
        async with self._zk.deadline():
            return await self._ledgers.write(metadata, expected_version)

    async def delete_ledger(self, ledger: LedgerId) -> None:
        async with self._zk.deadline():
            await self._ledgers.delete(ledger)

    def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        return self._ledgers.pages()

    def watch_ledger(self, ledger: LedgerId) -> AsyncIterator[Versioned[LedgerMetadata] | None]:
        return follow(self._zk, lambda watch: self._ledgers.find(ledger, watch))

    async def ended_ledgers(self) -> list[LedgerId]:
        async with self._zk.deadline():
            return await self._ledgers.ended()

    @property
    def under_replication(self) -> UnderReplication:
        return self._under_replication

    @property
    def maintenance_windows(self) -> MaintenanceWindows:
        return ZooKeeperMaintenanceWindows(self._zk, self._root, self._under_replication)

    @property
    def logs(self) -> LogLists:
        return ZooKeeperLogLists(self._zk, self._root)

    # ---- cookies ----------------------------------------------------------------------------

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        async with self._zk.deadline():
            return await self._cookies.find(bookie)

    async def write_cookie(
        self, bookie: BookieId, cookie: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        async with self._zk.deadline():
            return await self._cookies.write(bookie, cookie, expected_version)

    async def delete_cookie(self, bookie: BookieId) -> None:
        async with self._zk.deadline():
            await self._cookies.delete(bookie)

    async def cookies(self) -> dict[BookieId, Versioned[bytes]]:
        async with self._zk.deadline():
            return await self._cookies.all()

    # ---- records of disks -------------------------------------------------------------------

    async def read_disk_record(self, bookie: BookieId) -> Versioned[bytes] | None:
        async with self._zk.deadline():
            return await self._disk_records.find(bookie)

    async def write_disk_record(
        self, bookie: BookieId, record: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        async with self._zk.deadline():
            return await self._disk_records.write(bookie, record, expected_version)

    # ---- registration -----------------------------------------------------------------------

    async def register(
        self, bookie: BookieId, service_info: ServiceInfo, *, read_only: bool
    ) -> Registration:
        mine = ZooKeeperRegistration(
            self._zk, self._root, bookie, service_info, self._process, read_only
        )
        await mine.begin()
        self._registrations.append(mine)
        return mine

    async def bookies(self) -> dict[BookieId, RegisteredBookie]:
        async with self._zk.deadline():
            return await bookies.read(self._zk, self._root)

    # ---- other software ---------------------------------------------------------------------

    async def read_znode(self, path: str) -> bytes:
        async with self._zk.deadline():
            return (await self._zk.get(path)).data

    # ---- lifetime ---------------------------------------------------------------------------

    async def close(self) -> None:
        while self._registrations:
            await self._registrations.pop().close()
        await self._zk.close()
