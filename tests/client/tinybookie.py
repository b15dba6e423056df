"""A bookie of version 2 over real TCP that keeps everything in memory and can be told to misbehave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkbox import metadata
from bkbox.client import Client, ClientOptions
from bkbox.ids import BookieId
from bkbox.metadata.base import MetadataStore, Registration
from bkbox.wire import v2
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies, complete_frames
from bkbox.wire.service_info import rpc_service_info


@dataclass
class TinyLedger:
    master_key: bytes
    fenced: bool = False
    entries: dict[int, bytes] = field(default_factory=dict)


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: TinyBookie) -> None:
        self.bookie = bookie
        self.data = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.bookie.connections.add(self)
        self.bookie.connections_made += 1
        if self.bookie.deaf:
            transport.pause_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self.bookie.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self.data += data
        whole = bytes(self.data[: complete_frames(self.data)])
        del self.data[: len(whole)]
        for body in bodies(whole):
            request = v2.decode_request(body)
            self.bookie.requests.append(request)
            if self.bookie.hung:
                self.bookie.held.append((self, request))
            else:
                self.answer(request)

    def answer(self, request: Any) -> None:
        self.transport.write(self.bookie.raw or v2.encode_response(self.bookie.serve(request)))


class TinyBookie:
    """Switches: ``hung`` (requests are held until ``release``), ``limbo`` (never says no),
    ``wrong_digest``, ``refusal`` (this code to every request), ``deaf`` (does not read new
    connections), ``raw`` (these bytes to every request)."""

    def __init__(self, store: MetadataStore, bookie: BookieId) -> None:
        self.id = bookie
        self.ledgers: dict[int, TinyLedger] = {}
        self.requests: list[Any] = []
        self.held: list[tuple[_Connection, Any]] = []
        self.connections: set[_Connection] = set()
        self.connections_made = 0
        self.hung = self.limbo = self.wrong_digest = self.deaf = False
        self.refusal: Code | None = None
        self.raw = b""
        self._store = store
        self._server: asyncio.Server | None = None
        self._registration: Registration | None = None
        self.port = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        info = rpc_service_info("127.0.0.1", self.port)
        self._registration = await self._store.register(self.id, info, read_only=False)

    async def kill(self) -> None:
        """Gone, with its connections and its registration; what it holds stays."""
        if self._server is None or self._registration is None:
            return
        self._server.close()
        self.drop_connections()
        await self._registration.close()
        await self._server.wait_closed()
        self._server = None

    def drop_connections(self) -> None:
        for connection in tuple(self.connections):
            connection.transport.abort()
        self.held.clear()

    def release(self) -> None:
        """Answer what was held, and everything from now on."""
        self.hung = False
        held, self.held = self.held, []
        for connection, request in held:
            connection.answer(request)

    def serve(self, request: Any) -> v2.Response:
        code, entry = self._serve(request)
        if isinstance(request, v2.AddRequest):
            return v2.AddResponse(2, code, request.ledger_id, request.entry_id)
        return v2.ReadResponse(2, code, request.ledger_id, request.entry_id, entry)

    def _serve(self, request: Any) -> tuple[Code, bytes | None]:
        if self.refusal is not None:
            return self.refusal, None
        ledger = self.ledgers.get(request.ledger_id)
        if isinstance(request, v2.AddRequest):
            ledger = self.ledgers.setdefault(request.ledger_id, TinyLedger(request.master_key))
            if ledger.master_key != request.master_key:
                return Code.EUA, None
            if ledger.fenced and not request.recovery:
                return Code.EFENCED, None
            ledger.entries[request.entry_id] = bytes(request.entry)
            return Code.EOK, None
        if request.fencing:
            ledger = self.ledgers.setdefault(request.ledger_id, TinyLedger(request.master_key))
            if ledger.master_key != request.master_key:
                return Code.EUA, None
            ledger.fenced = True
        return self._read(ledger, request)

    def _read(self, ledger: TinyLedger | None, request: Any) -> tuple[Code, bytes | None]:
        absent = Code.ENOLEDGER if ledger is None else Code.ENOENTRY
        entry = None
        if ledger is not None and ledger.entries:
            wanted = max(ledger.entries) if request.entry_id == -1 else request.entry_id
            entry = ledger.entries.get(wanted)
        if self.limbo and (entry is None or request.entry_id == -1):
            return Code.EIO, None
        if entry is None:
            return absent, None
        if self.wrong_digest:
            entry = entry[:-1] + bytes([entry[-1] ^ 1])
        return Code.EOK, entry


@dataclass
class Cluster:
    store: MetadataStore
    bookies: dict[BookieId, TinyBookie]
    uri: str

    def of(self, bookie: str) -> TinyBookie:
        return self.bookies[BookieId(bookie)]

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        """Another client, as in another process: with connections of its own."""
        quick = {"backoff_initial_s": 0.01, "backoff_max_s": 0.05, "tail_poll_s": 0.01}
        async with Client(
            self.store, ClientOptions(**(quick | options)), random.Random(7)
        ) as client:
            yield client

    async def every_copy(self, ledger: int, entries: int) -> None:
        """Wait until each bookie holds so many entries of the ledger."""
        while any(
            ledger not in bookie.ledgers or len(bookie.ledgers[ledger].entries) < entries
            for bookie in self.bookies.values()
        ):
            await asyncio.sleep(0.002)

    async def start_bookie(self) -> TinyBookie:
        bookie = TinyBookie(self.store, BookieId(f"bookie-{len(self.bookies)}"))
        await bookie.start()
        self.bookies[bookie.id] = bookie
        return bookie


@asynccontextmanager
async def cluster(folder: Path, bookies: int = 3) -> AsyncIterator[Cluster]:
    """Bookies named bookie-0, bookie-1, … over a metadata file."""
    uri = f"sqlite:{folder / 'cluster.db'}"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await metadata.create(uri))
        made = Cluster(store, {}, uri)
        for _ in range(bookies):
            await made.start_bookie()
        try:
            yield made
        finally:
            for bookie in made.bookies.values():
                await bookie.kill()
