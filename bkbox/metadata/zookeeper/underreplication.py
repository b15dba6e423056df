"""Ledgers that lack replicas, and who is at work on them: the tree below ``underreplication``.

A ledger is *marked* by a znode that names the bookies it lost. A worker *acquires* it by an
ephemeral lock, having noted the version of the mark before; it *finishes* by deleting the mark at
that version (marked again meanwhile: it stays, for the next worker) and then the lock, or
*releases* the lock alone. A lost session frees all its locks. The znode ``disable`` stops all.
Source: ZkLedgerUnderreplicationManager.java, ZkLedgerAuditorManager.java.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import NamedTuple

from bkbox.errors import EncodingError, MetadataError, MetadataUnavailableError
from bkbox.ids import LedgerId
from bkbox.metadata.zookeeper import writes
from bkbox.metadata.zookeeper.connection import Connection
from bkbox.metadata.zookeeper.nodes import BadVersionError, Node, NodeExistsError, NoNodeError
from bkbox.wire import underreplication as wire
from bkbox.wire.paths import (
    ledger_of_underreplicated,
    underreplicated_lock_path,
    underreplicated_path,
)
from bkbox.wire.underreplication import RereplicationLayout, UnderreplicatedLedger

_log = logging.getLogger(__name__)

_GROUP = re.compile("[0-9a-f]{4}")
_VOTE = re.compile("V_([0-9]{10})")


class Task(NamedTuple):
    """An acquired ledger: its mark as it was before, and the session that holds the lock."""

    ledger: LedgerId
    missing: UnderreplicatedLedger
    mark: Node
    session: int


class UnderReplication:
    """The re-replication tree of one cluster. All methods raise MetadataError."""

    def __init__(self, zk: Connection, root: str) -> None:
        self._zk = zk
        self._root = root
        self._base = f"{root}/underreplication"
        self._is_prepared = False

    # ---- marks ------------------------------------------------------------------------------

    async def mark(self, ledger: LedgerId, replicas: Collection[str], now_ms: int) -> None:
        """Say that these bookies' copies of a ledger are missing, beside those said before."""
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
                with suppress(NodeExistsError, NoNodeError, BadVersionError):  # look again
                    if node is None:
                        await writes.create_branch(self._zk, self._root, path, data)
                    else:
                        await writes.set_data(self._zk, path, data, node.version)
                    return

    async def marked(self) -> AsyncIterator[tuple[LedgerId, UnderreplicatedLedger]]:
        """All marked ledgers, ascending."""
        async for path in self._mark_paths(None):
            async with self._zk.deadline():
                node = await self._zk.find(path)
            if node is not None:
                yield ledger_of_underreplicated(path), _decoded(path, node)

    async def ledgers(self) -> AsyncIterator[LedgerId]:
        """All marked ledgers, ascending; the marks themselves are not read."""
        async for path in self._mark_paths(None):
            yield ledger_of_underreplicated(path)

    async def count(self) -> int:
        """How many ledgers are marked."""
        return sum([1 async for _ in self.ledgers()])

    async def find(self, ledger: LedgerId) -> UnderreplicatedLedger | None:
        """The mark of a ledger, or None."""
        path = underreplicated_path(self._root, ledger)
        async with self._zk.deadline():
            node = await self._zk.find(path)
        return None if node is None else _decoded(path, node)

    # ---- work -------------------------------------------------------------------------------

    async def acquire_any(self, holder: str | None, rng: random.Random) -> Task | None:
        """Take any marked ledger, in random order so that workers do not meet; None if there is
        none to take or replication is disabled. ``holder``: host name of the worker."""
        if not await self.enabled():
            return None
        async with self._zk.deadline():
            await self._prepare()
            locked = await self._names(f"{self._base}/locks")
        async for path in self._mark_paths(rng):
            if path.rpartition("/")[2] in locked:
                continue
            try:
                task = await self.acquire(ledger_of_underreplicated(path), holder)
            except MetadataUnavailableError:
                raise
            except MetadataError as error:
                _log.warning("skipped: %s", error)
                continue
            if task is not None:
                return task
        return None

    async def acquire(self, ledger: LedgerId, holder: str | None) -> Task | None:
        """Take a ledger; None if it is not marked or somebody else has it."""
        path = underreplicated_path(self._root, ledger)
        async with self._zk.deadline():
            await self._prepare()
            # The version has to be older than the lock: what is marked later is not done by us.
            node = await self._zk.find(path)
            if node is None:
                return None
            missing = _decoded(path, node)
            lock = underreplicated_lock_path(self._root, ledger)
            try:
                locked = await writes.create(
                    self._zk, lock, wire.encode_holder(holder), ephemeral=True
                )
            except NodeExistsError:
                return None
        return Task(ledger, missing, node, locked.owner)

    async def finish(self, task: Task) -> None:
        """The ledger has all its replicas again, as far as it was marked when it was taken."""
        path = underreplicated_path(self._root, task.ledger)
        async with self._zk.deadline():
            with suppress(BadVersionError):
                await writes.delete(self._zk, path, task.mark)
                await writes.delete_empty_parents(self._zk, f"{self._base}/ledgers", path)
            await self._unlock(task)

    async def release(self, task: Task) -> None:
        """Give a ledger back."""
        async with self._zk.deadline():
            await self._unlock(task)

    async def _unlock(self, task: Task) -> None:
        path = underreplicated_lock_path(self._root, task.ledger)
        found = await self._zk.exists(path)
        # A session that was lost took the lock with it: what is there now is somebody else's.
        if found is not None and found.owner == task.session:
            await writes.delete(self._zk, path)

    # ---- switches ---------------------------------------------------------------------------

    async def enabled(self) -> bool:
        """Whether auditor and workers may work."""
        async with self._zk.deadline():
            return await self._zk.exists(f"{self._base}/disable") is None

    async def set_enabled(self, enabled: bool) -> None:
        """Let auditor and workers work, or pause them."""
        async with self._zk.deadline():
            if enabled:
                await writes.delete(self._zk, f"{self._base}/disable")
            else:
                await self._prepare()
                await writes.ensure_branch(self._zk, self._root, f"{self._base}/disable")

    async def auditor(self) -> str | None:
        """The bookie id that the present auditor gave with its vote; None without an auditor."""
        election = f"{self._base}/auditorelection"
        async with self._zk.deadline():
            while True:
                votes = sorted(
                    (int(match[1]), name)
                    for name in await self._names(election)
                    if (match := _VOTE.fullmatch(name))
                )
                if not votes:
                    return None
                path = f"{election}/{votes[0][1]}"
                node = await self._zk.find(path)
                if node is None:
                    continue  # it has just ended: who is next
                try:
                    return wire.decode_holder(node.data)
                except EncodingError as error:
                    raise MetadataError(f"znode {path}: {error}") from error

    async def lost_bookie_recovery_delay_s(self) -> int | None:
        """How long the auditor waits for a lost bookie to come back; None if nobody has said."""
        path = f"{self._base}/lostBookieRecoveryDelay"
        async with self._zk.deadline():
            node = await self._zk.find(path)
        try:
            return None if node is None else wire.decode_recovery_delay(node.data)
        except EncodingError as error:
            raise MetadataError(f"znode {path}: {error}") from error

    async def set_lost_bookie_recovery_delay_s(self, seconds: int) -> None:
        """Writing the same value again tells the auditor to start at once."""
        path = f"{self._base}/lostBookieRecoveryDelay"
        data = wire.encode_recovery_delay(seconds)
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

    # ---- the tree ---------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """What has to be there, and in a form that we know."""
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

    async def _mark_paths(self, rng: random.Random | None) -> AsyncIterator[str]:
        """The paths of all marks: in order, or shuffled at each level."""
        folders = [f"{self._base}/ledgers"]
        while folders:
            folder = folders.pop()
            async with self._zk.deadline():
                names = await self._names(folder)
            if rng is not None:
                rng.shuffle(names)
            for name in names:
                path = f"{folder}/{name}"
                if name.startswith("urL") and self._is_mark(path):
                    yield path
            folders += [f"{folder}/{name}" for name in reversed(names) if _GROUP.fullmatch(name)]

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
