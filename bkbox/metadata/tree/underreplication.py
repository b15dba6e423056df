"""Ledgers that lack replicas, in the tree below ``underreplication`` that BookKeeper's own processes use.

A mark is a node that names the lost bookies, a lock an ephemeral one beside it; a lost session releases all its
locks. The node ``disable`` pauses auditors and workers. Source: ZkLedgerUnderreplicationManager.java,
ZkLedgerAuditorManager.java.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import suppress

from bkbox.base.ids import LedgerId
from bkbox.errors import EncodingError, MetadataError, MetadataUnavailableError
from bkbox.metadata.tree.election import Election
from bkbox.metadata.tree.nodes import BadVersionError, Node, NodeExistsError, NoNodeError
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.underreplication import (
    Candidacy,
    Lock,
    Mark,
    RecoveryDelay,
    Task,
    UnderReplication,
)
from bkbox.wire.metadata import underreplication as wire
from bkbox.wire.metadata.paths import (
    ledger_of_underreplicated,
    underreplicated_lock_path,
    underreplicated_path,
)
from bkbox.wire.metadata.underreplication import RereplicationLayout, UnderreplicatedLedger

_FIRST_GROUPS = "/".join(["0000"] * 4)
_LAST_GROUPS = "/".join(["ffff"] * 4)


class TreeUnderReplication(UnderReplication):
    """See UnderReplication. ``Lock.owner`` is the owner of the lock's node, None for any session of this connection;
    ``Mark.version`` is the mark's Node.
    """

    def __init__(self, tree: Tree, root: str, auditors: Election) -> None:
        self._tree = tree
        self._root = root
        self._auditors = auditors
        self._base = f"{root}/underreplication"
        self._is_prepared = False
        self._orphans: set[Lock] = set()

    # ---- marks ------------------------------------------------------------------------------

    async def mark(self, ledger: LedgerId, replicas: Collection[str], now_ms: int) -> None:
        path = underreplicated_path(self._root, ledger)
        async with self._tree.deadline():
            await self._prepare()
            while True:
                node = await self._tree.find(path)
                before = (
                    self._decoded(path, node)
                    if node is not None
                    else UnderreplicatedLedger((), now_ms)
                )
                after = before.marked_again(tuple(replicas), now_ms)
                if node is not None and after is before:
                    return
                data = wire.encode_ledger(after)
                with suppress(NodeExistsError, NoNodeError, BadVersionError):  # read again
                    if node is None:
                        await self._tree.create_branch(self._root, path, data)
                    else:
                        await self._tree.set_data(path, data, node.version)
                    return

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        async for path in self._tree.leaves(f"{self._base}/ledgers", _FIRST_GROUPS, _LAST_GROUPS):
            if self._is_mark(path):
                yield ledger_of_underreplicated(path)

    async def read_mark(self, ledger: LedgerId) -> Mark | None:
        path = underreplicated_path(self._root, ledger)
        async with self._tree.deadline():
            node = await self._tree.find(path)
        return None if node is None else Mark(self._decoded(path, node), node)

    # ---- work -------------------------------------------------------------------------------

    async def _acquire_lock(self, ledger: LedgerId, holder: str | None) -> Lock | None:
        path = underreplicated_lock_path(self._root, ledger)
        data = wire.encode_holder(holder)
        try:
            async with self._tree.deadline():
                await self._prepare()
                await self._drop_orphans()
                locked = await self._tree.create(path, data, ephemeral=True)
        except NodeExistsError:
            return None
        except MetadataUnavailableError:
            self._orphans.add(Lock(ledger, None))
            raise
        return Lock(ledger, locked.owner)

    async def _give_back(self, lock: Lock) -> None:
        try:
            async with self._tree.deadline():
                await self._unlock(lock)
        except MetadataUnavailableError:
            self._orphans.add(lock)
            raise

    async def _unlock(self, lock: Lock) -> None:
        if await self._is_locked(lock):
            await self._tree.delete(underreplicated_lock_path(self._root, lock.ledger))

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
        async with self._tree.deadline():
            await self._drop_orphans()
            names = await self._tree.children_or_none(f"{self._base}/locks")
        found = set()
        for name in names:
            with suppress(EncodingError):
                found.add(ledger_of_underreplicated(f"{self._base}/locks/{name}"))
        return frozenset(found)

    async def holder(self, ledger: LedgerId) -> str | None:
        path = underreplicated_lock_path(self._root, ledger)
        async with self._tree.deadline():
            node = await self._tree.find(path)
        if node is None:
            return None
        try:
            return wire.decode_holder(node.data) or ""
        except EncodingError as error:
            raise MetadataError(f"{self._tree.noun} {path}: {error}") from error

    async def finish(self, task: Task) -> bool:
        seen = task.mark.version
        assert isinstance(seen, Node)
        path = underreplicated_path(self._root, task.ledger)
        removed = False
        async with self._tree.deadline():
            # A mark that was deleted by hand and created again by another party has our version again. A worker that
            # lost the lock cannot distinguish them, and leaves the mark.
            if await self._is_locked(task.lock):
                with suppress(BadVersionError):
                    await self._tree.delete(path, seen)
                    removed = True
                    await self._tree.delete_empty_parents(f"{self._base}/ledgers", path)
        await self.unlock(task.lock)
        return removed

    async def _is_locked(self, lock: Lock) -> bool:
        """True if the lock is ours. A lost session took the lock with it: a present lock is then another worker's."""
        found = await self._tree.exists(underreplicated_lock_path(self._root, lock.ledger))
        if found is None:
            return False
        return self._tree.is_own(found) if lock.owner is None else found.owner == lock.owner

    # ---- the auditor ------------------------------------------------------------------------

    def candidacy(self, name: str) -> Candidacy:
        return self._auditors.candidacy(name)

    async def auditor(self) -> str | None:
        async with self._tree.deadline():
            return await self._auditors.holder()

    async def last_full_check_ms(self) -> int | None:
        path = f"{self._base}/checkallledgersctime"
        async with self._tree.deadline():
            node = await self._tree.find(path)
        try:
            return None if node is None else wire.decode_check_time(node.data)
        except EncodingError as error:
            raise MetadataError(f"{self._tree.noun} {path}: {error}") from error

    async def set_last_full_check_ms(self, time_ms: int) -> None:
        await self._put("checkallledgersctime", wire.encode_check_time(time_ms))

    # ---- switches ---------------------------------------------------------------------------

    async def enabled(self) -> bool:
        async with self._tree.deadline():
            return await self._tree.exists(f"{self._base}/disable") is None

    async def set_enabled(self, enabled: bool) -> None:
        async with self._tree.deadline():
            if enabled:
                await self._tree.delete(f"{self._base}/disable")
            else:
                await self._prepare()
                await self._tree.ensure_branch(self._root, f"{self._base}/disable")

    async def recovery_delay(self) -> RecoveryDelay | None:
        path = f"{self._base}/lostBookieRecoveryDelay"
        async with self._tree.deadline():
            node = await self._tree.find(path)
        if node is None:
            return None
        try:
            return RecoveryDelay(wire.decode_recovery_delay(node.data), node.version)
        except EncodingError as error:
            raise MetadataError(f"{self._tree.noun} {path}: {error}") from error

    async def set_recovery_delay_s(self, seconds: int) -> None:
        await self._put("lostBookieRecoveryDelay", wire.encode_recovery_delay(seconds))

    # ---- the tree ---------------------------------------------------------------------------

    async def _put(self, name: str, data: bytes) -> None:
        """Set a node, whatever its version; created if missing."""
        path = f"{self._base}/{name}"
        async with self._tree.deadline():
            await self._prepare()
            while True:
                try:
                    await self._tree.set_data(path, data, None)
                except NoNodeError:
                    with suppress(NodeExistsError):
                        await self._tree.create(path, data)
                        return
                else:
                    return

    async def _prepare(self) -> None:
        """Create the required nodes, and check that their format is known."""
        if self._is_prepared:
            return
        path = f"{self._base}/LAYOUT"
        with suppress(NodeExistsError):
            await self._tree.create_branch(
                self._root, path, wire.encode_layout(RereplicationLayout())
            )
        for name in ("ledgers", "locks"):
            await self._tree.ensure_branch(self._root, f"{self._base}/{name}")
        node = await self._tree.get(path)
        try:
            found = wire.decode_layout(node.data)
        except EncodingError as error:
            raise MetadataError(f"{self._tree.noun} {path}: {error}") from error
        if found != RereplicationLayout():
            raise MetadataError(
                f"{self._tree.noun} {path}: the layout {found.type}, version {found.version}, is not known"
            )
        self._is_prepared = True

    def _is_mark(self, path: str) -> bool:
        try:
            return underreplicated_path(self._root, ledger_of_underreplicated(path)) == path
        except EncodingError:
            return False

    def _decoded(self, path: str, node: Node) -> UnderreplicatedLedger:
        try:
            return wire.decode_ledger(node.data)
        except EncodingError as error:
            raise MetadataError(f"{self._tree.noun} {path}: {error}") from error
