"""One session with ZooKeeper for asyncio, held by kazoo.

kazoo runs its own threads. A request is handed to them and its response comes back through the event loop, which
never waits for a lock, a socket or a thread. Rules:

- Reads (``get``, ``exists``, ``children``, ``sync``) are retried until they succeed. Writes here are single attempts
  (``try_…``) that raise LostReplyError when the connection breaks under them; writes.py makes them certain.
- Nothing gives up by itself. ``deadline()`` bounds its block, and raises MetadataUnavailableError.
- A session outlives broken connections for SESSION_TIMEOUT_S. When it has expired the next one is opened
  automatically; ephemeral znodes and watches have to be set up anew.
- A thread of kazoo that dies of an unexpected error is replaced, with a new session.
- A watch fires once, for a change of its znode *or* because the connection broke: its owner reads again (Watch).
- ``close()`` ends the session, and with it all ephemeral znodes; no thread is left.

The used parts of kazoo, and their adaptation: kazoo_patches.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from bkbox.base import wait_notices
from bkbox.base.limits import METADATA_SESSION_TIMEOUT_S
from bkbox.config.metadata_uri import OPEN, ZooKeeperAccess
from bkbox.errors import HandleClosedError, MetadataUnavailableError
from bkbox.metadata.tree.nodes import LostReplyError, NoNodeError
from bkbox.metadata.tree.watches import Watch
from bkbox.metadata.zookeeper.kazoo_patches import (
    CuttableHandler,
    EventType,
    KazooState,
    KeeperState,
    RemoveDataWatches,
    first_failure,
    new_client,
    translated,
)
from bkbox.metadata.zookeeper.nodes import Znode

CLOSE_GRACE_S = 2.0
"""Time, in seconds, that a server is given to confirm the end of the session."""

RETRY_PAUSE_S = 0.01

_log = logging.getLogger(__name__)


class Connection:
    """A session with ZooKeeper, described above; made by ``open``."""

    def __init__(
        self,
        hosts: Sequence[str],
        wait_s: float,
        session_timeout_s: float,
        access: ZooKeeperAccess = OPEN,
    ) -> None:
        self.hosts = ",".join(hosts)
        self.wait_s = wait_s
        self.session_timeout_s = session_timeout_s
        self.session_id = 0
        self.sessions: set[int] = set()
        self.disconnected_since: float | None = None
        self.closed = False
        self._wait_logged = False
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._disconnected = asyncio.Event()
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._watches: defaultdict[str, set[Watch]] = defaultdict(set)
        # Restarting and stopping block, and run one after the other.
        self._thread = ThreadPoolExecutor(1, "bkbox-zookeeper")
        self._handler = CuttableHandler()
        self._client = new_client(self.hosts, session_timeout_s, self._handler, access)
        self._client.add_listener(self._on_state)

    @classmethod
    async def open(
        cls,
        hosts: Sequence[str],
        *,
        wait_s: float,
        session_timeout_s: float = METADATA_SESSION_TIMEOUT_S,
        access: ZooKeeperAccess = OPEN,
    ) -> Connection:
        """Connect to any of the servers within ``wait_s``. Raises MetadataUnavailableError, and ConfigError for
        unusable files of ``access``.
        """
        connection = cls(hosts, wait_s, session_timeout_s, access)
        connection._client.start_async()
        try:
            async with connection.deadline():
                await connection._until_connected()
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def connected(self) -> bool:
        return self._connected.is_set() and not self.closed

    @asynccontextmanager
    async def deadline(self, wait_s: float | None = None) -> AsyncIterator[None]:
        """Bound the block by ``wait_s``, else by the time-out of the connection."""
        seconds = self.wait_s if wait_s is None else wait_s
        waiting = self._loop.call_later(wait_notices.NOTICE_AFTER_S, self._log_wait, seconds)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            how = "does not answer" if self.connected else "cannot be reached"
            raise MetadataUnavailableError(
                f"ZooKeeper ({self.hosts}) {how} after {seconds:g} s: check that it runs, has a "
                "quorum, and can be reached from this host"
            ) from None
        finally:
            waiting.cancel()

    def _log_wait(self, seconds: float) -> None:
        """Logs a lost connection once each time."""
        if not (self._wait_logged or self.closed):
            self._wait_logged = True
            wait_notices.notify(f"waiting for ZooKeeper ({self.hosts}), for {seconds:g} s at most")

    async def until_disconnected(self) -> None:
        """Wait until the connection breaks or is closed."""
        await self._disconnected.wait()

    async def close(self) -> None:
        """End the session and the threads. Idempotent."""
        if self.closed:
            return
        grace_s = CLOSE_GRACE_S if self.connected else 0.0
        self.closed = True
        self._connected.set()
        self._disconnected.set()
        for future in self._in_flight:
            if not future.done():
                future.set_exception(self._closed_error())
        self._fire_all()
        try:
            await asyncio.shield(self._loop.run_in_executor(self._thread, self._stop, grace_s))
        finally:
            self._thread.shutdown(wait=False)

    # ---- reads ------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        """Read a znode. Raises NoNodeError; the watch is then not set."""
        hook = self._hook(path, watch)
        data, stat = await self._read(path, lambda: self._client.get_async(path, hook))
        return _node(data, stat)

    async def exists(self, path: str, watch: Watch | None = None) -> Znode | None:
        """The znode without its data. The watch is set in either case."""
        hook = self._hook(path, watch)
        stat = await self._read(path, lambda: self._client.exists_async(path, hook))
        return None if stat is None else _node(b"", stat)

    async def find(self, path: str, watch: Watch | None = None) -> Znode | None:
        """The znode, or None; the watch is set in either case."""
        while True:
            try:
                return await self.get(path, watch)
            except NoNodeError:
                if watch is None or await self.exists(path, watch) is None:
                    return None

    async def children(self, path: str) -> tuple[list[str], Znode]:
        """Names of the children, sorted, and the znode without its data. Raises NoNodeError."""
        names, stat = await self._read(
            path, lambda: self._client.get_children_async(path, include_data=True)
        )
        return sorted(names), _node(b"", stat)

    async def sync(self, path: str) -> None:
        """Reads after this call are linearizable: they see every write acknowledged to any client before it."""
        await self._read(path, lambda: self._client.sync_async(path))

    # ---- single attempts of writes ------------------------------------------------------------

    async def try_create(self, path: str, data: bytes, *, ephemeral: bool = False) -> Znode:
        """Create a znode. Raises LostReplyError, NodeExistsError, NoNodeError (no parent)."""
        _, stat = await self._ask(
            path,
            lambda: self._client.create_async(path, data, ephemeral=ephemeral, include_data=True),
        )
        return _node(data, stat)

    async def try_create_sequential(self, prefix: str, data: bytes = b"") -> str:
        """Create an ephemeral znode; its path is ``prefix`` and a number of ten digits.

        Raises LostReplyError, NoNodeError (no parent).
        """
        path: str = await self._ask(
            prefix, lambda: self._client.create_async(prefix, data, ephemeral=True, sequence=True)
        )
        return path

    async def try_set(self, path: str, data: bytes, version: int) -> Znode:
        """Set the data of a znode. Raises LostReplyError, BadVersionError, NoNodeError."""
        stat = await self._ask(path, lambda: self._client.set_async(path, data, version))
        return _node(data, stat)

    async def try_delete(self, path: str, version: int) -> None:
        """Delete a znode. Raises LostReplyError, BadVersionError, NotEmptyError, NoNodeError."""
        await self._ask(path, lambda: self._client.delete_async(path, version))

    async def try_create_all(self, nodes: Sequence[tuple[str, bytes]]) -> None:
        """Create all of the persistent znodes, or none. Raises as ``try_create``."""
        transaction = self._client.transaction()
        for path, data in nodes:
            transaction.create(path, data)
        results = await self._ask(nodes[0][0], transaction.commit_async)
        failure = first_failure(results)
        if failure is not None:
            place, error = failure
            raise translated(nodes[place][0], error)

    def delete_later(self, path: str) -> None:
        """Delete, in the background, a znode that does no harm if it stays."""
        if self.connected:
            self._client.delete_async(path)

    # ---- watches ------------------------------------------------------------------------------

    def forget(self, watch: Watch) -> None:
        """Drop a watch: it fires no more, and ZooKeeper need not keep what only it watched."""
        for path, watches in list(self._watches.items()):
            watches.discard(watch)
            if not watches:
                del self._watches[path]
                self._remove_watches(path)

    def _hook(self, path: str, watch: Watch | None) -> Callable[[Any], None] | None:
        """The callback for kazoo; recorded before the request is sent, since the event may come before its response
        is seen here.
        """
        if watch is None:
            return None
        self._watches[path].add(watch)
        return self._on_event

    def _remove_watches(self, path: str) -> None:
        self._client._data_watchers.pop(path, None)
        if self.connected:
            request = RemoveDataWatches(path)
            # The response is 'no watcher' if it has fired meanwhile: it is gone in either case.
            self._client._call(request, self._handler.async_result())

    def _fire(self, event_type: str, path: str | None) -> None:
        if event_type == EventType.NONE or path is None:
            self._fire_all()
            return
        for watch in self._watches.pop(path, ()):
            watch.fired.set()

    def _fire_all(self) -> None:
        watches, self._watches = self._watches, defaultdict(set)
        for waiting in watches.values():
            for watch in waiting:
                watch.fired.set()

    # ---- requests -----------------------------------------------------------------------------

    async def _read(self, path: str, submit: Callable[[], Any]) -> Any:
        while True:
            try:
                return await self._ask(path, submit)
            except LostReplyError:
                continue

    async def _ask(self, path: str, submit: Callable[[], Any]) -> Any:
        """One attempt; raises the errors of nodes.py."""
        await self._until_connected()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._in_flight.add(future)
        submit().rawlink(partial(self._on_result, future))
        try:
            result = await future
        finally:
            self._in_flight.discard(future)
        if result.exception is None:
            return result.value
        meaning = translated(path, result.exception)
        if isinstance(meaning, LostReplyError):
            # The event of the broken connection may still be in flight.
            await asyncio.sleep(RETRY_PAUSE_S)
        raise meaning

    async def _until_connected(self) -> None:
        await self._connected.wait()
        if self.closed:
            raise self._closed_error()

    def _closed_error(self) -> HandleClosedError:
        return HandleClosedError(f"the connection to ZooKeeper ({self.hosts}) was closed")

    # ---- in the threads of kazoo ----------------------------------------------------------------

    def _on_result(self, future: asyncio.Future[Any], result: Any) -> None:
        self._tell(_set_result, future, result)

    def _on_event(self, event: Any) -> None:
        self._tell(self._fire, event.type, event.path)

    def _on_state(self, state: str) -> None:
        client_id = self._client.client_id
        self._tell(self._note_state, state, client_id[0] if client_id else 0)

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop was closed under an open connection
            self._loop.call_soon_threadsafe(call, *arguments)

    def _stop(self, grace_s: float) -> None:
        cutter = threading.Timer(grace_s, self._handler.cut)
        cutter.start()
        try:
            self._client.stop()
            self._client.close()
        finally:
            cutter.cancel()
            cutter.join()

    def _start_anew(self) -> None:
        # kazoo reports that its thread has failed before that thread is through with its last steps: it fails what is
        # under way, and fires the watches. Stopped meanwhile, the handler would forget both.
        self._client._connection.stop()
        self._client.start_async()

    # ---- back in the loop -------------------------------------------------------------------------

    def _note_state(self, state: str, session_id: int) -> None:
        if self.closed:
            return
        if state == KazooState.CONNECTED and session_id:
            if self.disconnected_since is not None:
                same = "the same" if session_id == self.session_id else "a new"
                outage_s = self._loop.time() - self.disconnected_since
                _log.warning(
                    "ZooKeeper (%s) is back after %.1f s, with %s session",
                    self.hosts,
                    outage_s,
                    same,
                )
            self.session_id = session_id
            self.sessions.add(session_id)
            self.disconnected_since = None
            self._disconnected.clear()
            self._connected.set()
            self._wait_logged = False
            return
        if self.session_id:
            if state == KazooState.LOST:
                _log.warning("the session with ZooKeeper (%s) has expired", self.hosts)
            elif self.disconnected_since is None:
                _log.warning("the connection to ZooKeeper (%s) is lost", self.hosts)
            if self.disconnected_since is None:
                self.disconnected_since = self._loop.time()
        self._connected.clear()
        self._disconnected.set()
        if self._client.client_state == KeeperState.CLOSED:
            _log.error("the connection to ZooKeeper (%s) has failed: starting anew", self.hosts)
            self._loop.run_in_executor(self._thread, self._start_anew)


def _set_result(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _node(data: bytes | None, stat: Any) -> Znode:
    return Znode(
        data=data or b"",
        version=stat.version,
        ctime_ms=stat.ctime,
        owner=stat.ephemeralOwner,
        changed=stat.mzxid,
        created=stat.czxid,
        children_version=stat.cversion,
    )
