"""Registration of a bookie in a tree: an ephemeral node that one task keeps in the right list.

The task owns the wanted state (list and payload) and compares it with the tree at the start, whenever it changes,
when the connection broke and when the node was changed. Changing lists registers on the new one first. An expired
session takes the node with it; the task restores it with the next session.

A node of another session blocks the registration. It is *stale*, deleted and taken over at once, if an earlier
session of this very registration made it, or if its service info names, in the property PROCESS_PROPERTY, a process
of this boot that is dead. The task waits for any other node, since a dead owner's vanishes with its session. An
owner that is still registered then, or is seen to be alive, keeps the id. Source: ZKRegistrationManager.java,
BookieStateManager.java.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from bkbox.base import background
from bkbox.base.ids import BookieId
from bkbox.errors import (
    EncodingError,
    HandleClosedError,
    MetadataError,
    OperatorError,
)
from bkbox.metadata.base import Registration
from bkbox.metadata.liveness import Process, ProcessIdentity, life_of
from bkbox.metadata.tree.bookies import available_path
from bkbox.metadata.tree.nodes import BadVersionError, Node, NodeExistsError
from bkbox.metadata.tree.tree import Tree
from bkbox.metadata.tree.watches import Watch, first_of
from bkbox.wire.metadata import service_info
from bkbox.wire.metadata.service_info import ServiceInfo

PROCESS_PROPERTY = "bkbox.process"
"""Property of the service info: boot id, PID namespace, pid and start time, as in liveness.py."""

RETRY_PAUSE_S = 1.0
LEAVE_TIMEOUT_S = 2.0
"""Time, in seconds, to delete the node when the bookie unregisters; otherwise the end of the session does it."""

_log = logging.getLogger(__name__)


class NodeOwner(NamedTuple):
    """The other owner of the bookie's node. ``text`` is for operators."""

    text: str
    is_former: bool
    process: Process | None

    def __str__(self) -> str:
        return self.text


class TreeRegistration(Registration):
    """See Registration; made by ``begin``."""

    def __init__(
        self,
        tree: Tree,
        root: str,
        bookie: BookieId,
        info: ServiceInfo,
        process: Process,
        read_only: bool,
    ) -> None:
        self._tree = tree
        self._root = root
        self._bookie = bookie
        self._data = payload(bookie, info, process)
        self._process = process
        self._read_only = read_only
        self._absent_since: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._done = asyncio.Event()

    async def begin(self) -> None:
        """Create the bookie's node and keep it from now on.

        Raises OperatorError (another owner has it), MetadataError.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + 2 * self._tree.session_timeout_s
        watch = Watch()
        try:
            while (holder := await self._claim_in_time(watch)) is not None:
                left_s = until - loop.time()
                if left_s <= 0 or self._is_seen_alive(holder):
                    raise OperatorError(
                        f"bookie {self._bookie} is registered by {holder}, which is alive: stop "
                        "it, or give this bookie another bookie_id"
                    )
                await watch.wait(left_s)
                watch.fired.clear()
        finally:
            self._tree.forget(watch)
        self._task = background.start(self._keep(), "the registration")
        self._task.add_done_callback(self._ended)

    async def set_read_only(self, read_only: bool) -> None:
        if self._task is None:
            raise HandleClosedError(f"the registration of bookie {self._bookie} was closed")
        if read_only == self._read_only:
            return
        self._read_only = read_only
        self._done.clear()
        self._wake.set()
        await first_of(
            self._done.wait(), self._tree.until_disconnected(), timeout_s=self._tree.wait_s
        )

    def unregistered_s(self) -> float:
        since = [self._absent_since, self._tree.disconnected_since]
        known = [time for time in since if time is not None]
        return asyncio.get_running_loop().time() - min(known) if known else 0.0

    async def close(self) -> None:
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])
        if not self._tree.connected:
            _log.warning("bookie %s stays registered until its session ends", self._bookie)
            return
        try:
            async with self._tree.deadline(LEAVE_TIMEOUT_S):
                for path in self._paths():
                    found = await self._tree.exists(path)
                    if found is not None and self._tree.is_own(found):
                        await self._tree.delete(path)
        except MetadataError as error:
            _log.warning(
                "bookie %s stays registered until its session ends: %s", self._bookie, error
            )

    # ---- the task ---------------------------------------------------------------------------

    async def _keep(self) -> None:
        watch = Watch(self._wake)
        reported: NodeOwner | None = None
        try:
            while True:
                self._wake.clear()
                read_only = self._read_only
                try:
                    holder = await self._claim(watch)
                except HandleClosedError:
                    return
                except MetadataError as error:
                    _log.warning("bookie %s is not registered: %s", self._bookie, error)
                    self._note_absence()
                    self._done.set()
                    await asyncio.sleep(RETRY_PAUSE_S)
                    continue
                if holder is None:
                    self._absent_since = None
                else:
                    self._note_absence()
                    if holder != reported:
                        _log.error("bookie %s was registered by %s", self._bookie, holder)
                reported = holder
                if read_only == self._read_only:
                    self._done.set()
                await self._wake.wait()
                if not self._tree.connected:
                    self._note_absence()
        finally:
            self._tree.forget(watch)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._note_absence()

    def _note_absence(self) -> None:
        if self._absent_since is None:
            self._absent_since = asyncio.get_running_loop().time()

    async def _claim_in_time(self, watch: Watch) -> NodeOwner | None:
        async with self._tree.deadline():
            return await self._claim(watch)

    async def _claim(self, watch: Watch) -> NodeOwner | None:
        """Bring the tree to the wanted state; or return the owner that blocks it, with the watch on its node."""
        while True:
            own, other = self._paths()
            session = self._tree.session
            here, there = await self._tree.find(own, watch), await self._tree.find(other, watch)
            for path, node in ((own, here), (other, there)):
                if node is None or self._tree.is_own(node):
                    continue
                holder = self._owner(path, node)
                if not self._is_stale(holder):
                    return holder
                _log.info("bookie %s takes its node over from %s", self._bookie, holder)
                await self._delete(path, node)
                break
            else:
                if here is None:
                    if there is None and self._task is not None:
                        self._note_absence()
                    with suppress(NodeExistsError):
                        await self._tree.create_branch(self._root, own, self._data, ephemeral=True)
                elif there is not None:
                    await self._delete(other, there)
                elif self._tree.session == session:
                    return None

    def _owner(self, path: str, node: Node) -> NodeOwner:
        process = process_of(self._bookie, node.data)
        if process is not None:
            text = f"process {process.pid} ({self._tree.noun} {path})"
        elif node.owner:
            text = f"{self._tree.owner_text(node)} ({self._tree.noun} {path})"
        else:
            text = f"a persistent {self._tree.noun} ({path})"
        return NodeOwner(text, self._tree.is_former(node), process)

    async def _delete(self, path: str, node: Node) -> None:
        with suppress(BadVersionError):  # then it has changed by now: it is read again
            await self._tree.delete(path, node)

    def _paths(self) -> tuple[str, str]:
        """The path where the bookie is to be registered, and the one where it is not."""
        return (
            available_path(self._root, self._bookie, read_only=self._read_only),
            available_path(self._root, self._bookie, read_only=not self._read_only),
        )

    def _is_stale(self, holder: NodeOwner) -> bool:
        return holder.is_former or self._life(holder) is ProcessIdentity.DEAD

    def _is_seen_alive(self, holder: NodeOwner) -> bool:
        return holder.process != self._process and self._life(holder) is ProcessIdentity.ALIVE

    def _life(self, holder: NodeOwner) -> ProcessIdentity:
        """The owner's liveness. A process of another boot is UNKNOWN: it may be on another host."""
        if holder.process is None or holder.process.boot_id != self._process.boot_id:
            return ProcessIdentity.UNKNOWN
        return life_of(holder.process, self._process)


# ---- the payload ------------------------------------------------------------------------------


def payload(bookie: BookieId, info: ServiceInfo, process: Process) -> bytes:
    """The bytes to register. Raises EncodingError for what no client could read."""
    # An empty info stands for the address in the id; with a property it would stand for none.
    read_back = service_info.decode(bookie, service_info.encode(info))
    fields = (process.boot_id, process.pid_namespace, process.pid, process.started)
    named = [each for each in read_back.properties if each[0] != PROCESS_PROPERTY]
    named.append((PROCESS_PROPERTY, " ".join(map(str, fields))))
    return service_info.encode(replace(read_back, properties=tuple(named)))


def process_of(bookie: BookieId, data: bytes) -> Process | None:
    """The process that registered this payload, if it says so."""
    try:
        text = dict(service_info.decode(bookie, data).properties).get(PROCESS_PROPERTY, "")
        boot_id, *numbers = text.split(" ")
        namespace, pid, started = map(int, numbers)
    except (EncodingError, ValueError):
        return None
    return Process(boot_id, namespace, pid, started)
