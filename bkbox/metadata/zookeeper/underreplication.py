"""Ledgers that lack replicas, in the tree below ``underreplication`` that BookKeeper's own processes use.

A mark is a znode that names the lost bookies, a lock an ephemeral one beside it; a lost session releases all its
locks. The znode ``disable`` pauses auditors and workers. Source: ZkLedgerUnderreplicationManager.java,
ZkLedgerAuditorManager.java.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from bkbox.base.ids import LedgerId
from bkbox.errors import EncodingError, MetadataError, MetadataUnavailableError
from bkbox.metadata.underreplication import (
    Candidacy,
    Lock,
    Mark,
    RecoveryDelay,
    Task,
    UnderReplication,
)
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.election import ZooKeeperCandidacy, auditor_election, present_holder
from bkbox.metadata.zookeeper.leader import LeaderCandidacy, leader_znode, present_leader
from bkbox.metadata.zookeeper.nodes import BadVersionError, Node, NodeExistsError, NoNodeError
from bkbox.wire.metadata import underreplication as wire
from bkbox.wire.metadata.paths import (
    ledger_of_underreplicated,
    underreplicated_lock_path,
    underreplicated_path,
)
from bkbox.wire.metadata.underreplication import RereplicationLayout, UnderreplicatedLedger

_GROUP = re.compile("[0-9a-f]{4}")
_GROUPS = 4
_LISTS_AT_ONCE = 64


class ZooKeeperUnderReplication(UnderReplication):
    """See UnderReplication. ``Lock.owner`` is a session, ``Mark.version`` the mark's Node."""

    def __init__(self, zk: Connection, root: str, *, pulsar: bool = False) -> None:
        """``pulsar``: the auditor is elected as by Pulsar's driver."""
        self._zk = zk
        self._root = root
        self._pulsar = pulsar
        self._base = f"{root}/underreplication"
        self._is_prepared = False
        self._orphans: set[Lock] = set()

    # ---- marks ------------------------------------------------------------------------------

    async def mark(self, ledger: LedgerId, replicas: Collection[str], now_ms: int) -> None:
        path = underreplicated_path(self._root, ledger)
        async with self._zk.deadline():
            await self._prepare()
            while True:
                node = await self._zk.find(path)
                before = (
                    _decoded(path, node) if node is not None else UnderreplicatedLedger((), now_ms)
                )
                after = before.marked_again(tuple(replicas), now_ms)
                if node is not None and after is before:
                    return
                data = wire.encode_ledger(after)
                with suppress(NodeExistsError, NoNodeError, BadVersionError):  # read again
                    if node is None:
                        await writes.create_branch(self._zk, self._root, path, data)
                    else:
                        await writes.set_data(self._zk, path, data, node.version)
                    return

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        folders = [f"{self._base}/ledgers"]
        for _ in range(_GROUPS):
            folders = [
                path
                async for path in self._below(folders)
                if _GROUP.fullmatch(path.rpartition("/")[2])
            ]
        async for path in self._below(folders):
            if self._is_mark(path):
                yield ledger_of_underreplicated(path)

    async def read_mark(self, ledger: LedgerId) -> Mark | None:
        path = underreplicated_path(self._root, ledger)
        async with self._zk.deadline():
            node = await self._zk.find(path)
        return None if node is None else Mark(_decoded(path, node), node)

    # ---- work -------------------------------------------------------------------------------

    async def _acquire_lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        path = underreplicated_lock_path(self._root, ledger)
        data = wire.encode_holder(holder)
        session = self._zk.session_id
        try:
            async with self._zk.deadline():
                await self._prepare()
                await self._drop_orphans()
                session = self._zk.session_id
                locked = await writes.create(self._zk, path, data, ephemeral=True)
        except NodeExistsError:
            return None
        except MetadataUnavailableError:
            self._orphans.add(Lock(ledger, session))
            raise
        return Lock(ledger, locked.owner)

    async def _give_back(self, lock: Lock) -> None:
        try:
            async with self._zk.deadline():
                await self._unlock(lock)
        except MetadataUnavailableError:
            self._orphans.add(lock)
            raise

    async def _unlock(self, lock: Lock) -> None:
        if await self._is_locked(lock):
            await writes.delete(self._zk, underreplicated_lock_path(self._root, lock.ledger))

    async def _drop_orphans(self) -> None:
        """Delete locks that were released while ZooKeeper did not respond; they would last as long as the session."""
        while self._orphans:
            lock = self._orphans.pop()
            try:
                await self._unlock(lock)
            except BaseException:
                self._orphans.add(lock)
                raise

    async def locked(self) -> frozenset[LedgerId]:
        async with self._zk.deadline():
            await self._drop_orphans()
            names = await self._names(f"{self._base}/locks")
        found = set()
        for name in names:
            with suppress(EncodingError):
                found.add(ledger_of_underreplicated(f"{self._base}/locks/{name}"))
        return frozenset(found)

    async def holder(self, ledger: LedgerId) -> str | None:
        path = underreplicated_lock_path(self._root, ledger)
        async with self._zk.deadline():
            node = await self._zk.find(path)
        if node is None:
            return None
        try:
            return wire.decode_holder(node.data) or ""
        except EncodingError as error:
            raise MetadataError(f"znode {path}: {error}") from error

    async def finish(self, task: Task) -> bool:
        seen = task.mark.version
        assert isinstance(seen, Node)
        path = underreplicated_path(self._root, task.ledger)
        removed = False
        async with self._zk.deadline():
            # A mark that was deleted by hand and created again by another party has our version again. A worker that
            # lost the lock cannot distinguish them, and leaves the mark.
            if await self._is_locked(task.lock):
                with suppress(BadVersionError):
                    await writes.delete(self._zk, path, seen)
                    removed = True
                    await writes.delete_empty_parents(self._zk, f"{self._base}/ledgers", path)
        await self.unlock(task.lock)
        return removed

    async def _is_locked(self, lock: Lock) -> bool:
        """True if the lock is ours. A lost session took the lock with it: a present lock is then another worker's."""
        found = await self._zk.exists(underreplicated_lock_path(self._root, lock.ledger))
        return found is not None and found.owner == lock.owner

    # ---- the auditor ------------------------------------------------------------------------

    def candidacy(self, name: str) -> Candidacy:
        if self._pulsar:
            return LeaderCandidacy(self._zk, self._root, name)
        return ZooKeeperCandidacy(self._zk, self._root, auditor_election(self._root), name)

    async def auditor(self) -> str | None:
        async with self._zk.deadline():
            if self._pulsar:
                return await present_leader(self._zk, leader_znode(self._root))
            return await present_holder(self._zk, auditor_election(self._root))

    async def last_full_check_ms(self) -> int | None:
        path = f"{self._base}/checkallledgersctime"
        async with self._zk.deadline():
            node = await self._zk.find(path)
        try:
            return None if node is None else wire.decode_check_time(node.data)
        except EncodingError as error:
            raise MetadataError(f"znode {path}: {error}") from error

    async def set_last_full_check_ms(self, time_ms: int) -> None:
        await self._put("checkallledgersctime", wire.encode_check_time(time_ms))

    # ---- switches ---------------------------------------------------------------------------

    async def enabled(self) -> bool:
        async with self._zk.deadline():
            return await self._zk.exists(f"{self._base}/disable") is None

    async def set_enabled(self, enabled: bool) -> None:
        async with self._zk.deadline():
            if enabled:
                await writes.delete(self._zk, f"{self._base}/disable")
            else:
                await self._prepare()
                await writes.ensure_branch(self._zk, self._root, f"{self._base}/disable")

    async def recovery_delay(self) -> RecoveryDelay | None:
        path = f"{self._base}/lostBookieRecoveryDelay"
        async with self._zk.deadline():
            node = await self._zk.find(path)
        if node is None:
            return None
        try:
            return RecoveryDelay(wire.decode_recovery_delay(node.data), node.version)
        except EncodingError as error:
            raise MetadataError(f"znode {path}: {error}") from error

    async def set_recovery_delay_s(self, seconds: int) -> None:
        await self._put("lostBookieRecoveryDelay", wire.encode_recovery_delay(seconds))

    # ---- the tree ---------------------------------------------------------------------------

    async def _put(self, name: str, data: bytes) -> None:
        """Set a znode, whatever its version; created if missing."""
        path = f"{self._base}/{name}"
        async with self._zk.deadline():
            await self._prepare()
            while True:
                try:
                    await writes.set_data(self._zk, path, data, None)
                except NoNodeError:
                    with suppress(NodeExistsError):
                        await writes.create(self._zk, path, data)
                        return
                else:
                    return

    async def _prepare(self) -> None:
        """Create the required znodes, and check that their format is known."""
        if self._is_prepared:
            return
        path = f"{self._base}/LAYOUT"
        with suppress(NodeExistsError):
            await writes.create_branch(
                self._zk, self._root, path, wire.encode_layout(RereplicationLayout())
            )
        for name in ("ledgers", "locks"):
            await writes.ensure_branch(self._zk, self._root, f"{self._base}/{name}")
        node = await self._zk.get(path)
        try:
            found = wire.decode_layout(node.data)
        except EncodingError as error:
            raise MetadataError(f"znode {path}: {error}") from error
        if found != RereplicationLayout():
            raise MetadataError(
                f"znode {path}: the layout {found.type}, version {found.version}, is not known"
            )
        self._is_prepared = True

    async def _below(self, folders: list[str]) -> AsyncIterator[str]:
        """The paths of all children of these folders, in order; many requests are in flight at once, as each ledger
        has its own folder.
        """
        for start in range(0, len(folders), _LISTS_AT_ONCE):
            some = folders[start : start + _LISTS_AT_ONCE]
            async with self._zk.deadline():
                lists = await asyncio.gather(*map(self._names, some))
            for folder, names in zip(some, lists, strict=True):
                for name in names:
                    yield f"{folder}/{name}"

    def _is_mark(self, path: str) -> bool:
        try:
            return underreplicated_path(self._root, ledger_of_underreplicated(path)) == path
        except EncodingError:
            return False

    async def _names(self, path: str) -> list[str]:
        try:
            return (await self._zk.children(path))[0]
        except NoNodeError:
            return []


def _decoded(path: str, node: Node) -> UnderreplicatedLedger:
    try:
        return wire.decode_ledger(node.data)
    except EncodingError as error:
        raise MetadataError(f"znode {path}: {error}") from error
