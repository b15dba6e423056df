"""A real ZooKeeper on loopback, and a proxy in front of it that loses messages as a test tells it.

``zookeeper`` is the fixture: one server per test process, started when the first test needs it. A
test takes a root of its own: ``zookeeper.new_root()``.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from bkbox.metadata.zookeeper import ZooKeeperStore
from tests.harness.java import JavaProcess, java_command, require_java
from tests.harness.processes import free_port

TICK_MS = 100
"""Session timeouts are at least two and at most MAX_SESSION_TIMEOUT_MS."""
MAX_SESSION_TIMEOUT_MS = 40_000

_CLOSE_SESSION = -11
"""ZooDefs.OpCode.closeSession."""


class ZooKeeper(JavaProcess):
    """One standalone server with its data in a folder; it keeps its port over restarts."""

    def __init__(self, folder: Path) -> None:
        super().__init__("zookeeper", folder / "zookeeper.log")
        self._folder = folder
        self._roots = itertools.count()
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> ZooKeeper:
        """Starts the server; returns when it serves."""
        configuration = self._folder / "zoo.cfg"
        configuration.write_text(
            f"tickTime={TICK_MS}\n"
            f"dataDir={self._folder / 'data'}\n"
            f"clientPortAddress=127.0.0.1\nclientPort={self.port}\n"
            f"minSessionTimeout={2 * TICK_MS}\nmaxSessionTimeout={MAX_SESSION_TIMEOUT_MS}\n"
            "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,wchs\n"
            "forceSync=no\n"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.launch(java_command(main, str(configuration), heap_mb=256))
        self.wait_until(self._serves)
        return self

    def restart(self) -> None:
        """Kills the server, and starts it again with its stored data."""
        self.kill()
        self.start()

    def new_root(self) -> str:
        """A path that no other test uses; it does not exist."""
        return f"/test{next(self._roots)}/ledgers"

    def uri(self, root: str | None = None, *, layout: str = "", port: int | None = None) -> str:
        """The metadata URI of a root, a new one by default. ``layout`` ``metadata-store``: for Pulsar's driver, whose
        root is ``ledgers`` below the path that is named."""
        address, root = f"127.0.0.1:{port or self.port}", root or self.new_root()
        if layout == "metadata-store":
            return f"metadata-store:zk:{address}{root.removesuffix('/ledgers')}"
        scheme = f"zk+{layout}" if layout else "zk"
        return f"{scheme}://{address}{root}"

    @contextmanager
    def client(self, **options: Any) -> Iterator[KazooClient]:
        """A plain client, to read and write the tree by hand."""
        client = KazooClient(self.address, **options)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def tree(self, root: str) -> dict[str, tuple[str, bytes]]:
        """All znodes from ``root`` on: path below it, kind (persistent, ephemeral), data."""
        found = {}
        with self.client() as client:
            paths = [root] if client.exists(root) else []
            while paths:
                path = paths.pop()
                data, stat = client.get(path)
                kind = "ephemeral" if stat.ephemeralOwner else "persistent"
                found[path.removeprefix(root)] = (kind, data)
                paths += [f"{path}/{name}" for name in client.get_children(path)]
        return found

    def watches(self) -> int:
        """The number of watches that the server keeps, for all sessions."""
        found = re.search(rb"Total watches:(\d+)", self._ask(b"wchs"))
        assert found is not None
        return int(found[1])

    def _serves(self) -> bool:
        try:
            return b"Mode:" in self._ask(b"srvr")
        except OSError:
            return False

    def _ask(self, word: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 5) as link:
            link.settimeout(5)
            link.sendall(word)
            answer = b""
            while piece := link.recv(4096):
                answer += piece
            return answer


def expire(store: ZooKeeperStore) -> None:
    """Ends the store's session without its client, which learns it from the server."""
    host, port = store._zk.hosts.rsplit(":", 1)
    _end_session((host, int(port)), *store._zk._client.client_id)


def root_of(uri: str) -> str:
    """The path in a metadata URI."""
    return "/" + uri.partition("//")[2].partition("/")[2]


def expire_session(server: ZooKeeper, session_id: int) -> None:
    """Ends the session of any client: the server derives its password from its id."""
    _end_session(("127.0.0.1", server.port), session_id, _session_password(session_id))


def _end_session(address: tuple[str, int], session_id: int, password: bytes) -> None:
    """Takes a session over and closes it in one message: its own client would take it back in between."""
    connect = struct.pack(
        ">iqiqi16s?", 0, 0, MAX_SESSION_TIMEOUT_MS, session_id, len(password), password, False
    )
    close = struct.pack(">ii", 1, _CLOSE_SESSION)
    with socket.create_connection(address, 60) as link:
        link.sendall(b"".join(struct.pack(">i", len(each)) + each for each in (connect, close)))
        while link.recv(4096):
            pass


def _session_password(session_id: int) -> bytes:
    """ZooKeeperServer.generatePasswd: sixteen bytes of a java.util.Random."""
    state = (session_id ^ 0xB3415C00 ^ 0x5DEECE66D) & (1 << 48) - 1
    password = b""
    while len(password) < 16:
        state = (state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        password += (state >> 16).to_bytes(4, "little")
    return password


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """The server of this test process. A test that suspends or stops it has to restart it."""
    require_java()
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        yield server.start()
    finally:
        server.kill()


# ---- proxy --------------------------------------------------------------------------------------

CREATE, DELETE, SET, SYNC, MULTI, CREATE2 = 1, 2, 5, 9, 14, 15
"""Types of requests (ZooDefs.OpCode)."""

_PREFIX = struct.Struct(">i")
_REQUEST = struct.Struct(">ii")


class Proxy:
    """Forwards to a ZooKeeper. ``lose_reply`` and ``lose_request`` break the connection at the next
    request of a type, after or before it was executed; ``rewrite`` replaces bytes in replies by as many; ``garble``
    replaces the next reply by nonsense."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self.port = 0
        self.lose_reply: Counter[int] = Counter()
        self.lose_request: Counter[int] = Counter()
        self.rewrite: dict[bytes, bytes] = {}
        self.seen: Counter[int] = Counter()
        self.is_away = False
        self.garble = False

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._link, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        if self._links:
            await asyncio.wait(self._links)

    def cut(self) -> None:
        """Breaks all connections."""
        for link in self._links:
            link.cancel()

    async def _link(
        self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        writers = [client_out]
        try:
            if self.is_away:
                return
            server_in, server_out = await asyncio.open_connection("127.0.0.1", self._server_port)
            writers.append(server_out)
            losing: set[int] = set()
            await _first(
                self._requests(client_in, server_out, losing),
                self._replies(server_in, client_out, losing),
            )
        except asyncio.CancelledError:
            pass
        finally:
            self._links.discard(task)
            for writer in writers:
                writer.transport.abort()

    async def _requests(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, losing: set[int]
    ) -> None:
        is_first = True  # the session request has no header
        async for frame in _frames(source):
            if not is_first:
                xid, kind = _REQUEST.unpack_from(frame)
                self.seen[kind] += 1
                if self.lose_request[kind]:
                    self.lose_request[kind] -= 1
                    return
                if self.lose_reply[kind]:
                    self.lose_reply[kind] -= 1
                    losing.add(xid)
            is_first = False
            sink.write(_PREFIX.pack(len(frame)) + frame)

    async def _replies(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, losing: set[int]
    ) -> None:
        async for frame in _frames(source):
            if _PREFIX.unpack_from(frame)[0] in losing:
                return
            if self.garble:
                self.garble = False
                frame = b"\0\0\0"
            for old, new in self.rewrite.items():
                frame = frame.replace(old, new)
            sink.write(_PREFIX.pack(len(frame)) + frame)


async def _frames(source: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        try:
            (size,) = _PREFIX.unpack(await source.readexactly(_PREFIX.size))
            yield await source.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            return


async def _first(*waits: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
