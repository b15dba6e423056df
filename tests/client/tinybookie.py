"""A bookie of both versions over real TCP that keeps everything in memory and can be told to
misbehave."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from struct import unpack_from
from typing import Any

from bkbox import metadata
from bkbox.base.ids import BookieId
from bkbox.client import Client, ClientOptions
from bkbox.metadata.base import MetadataStore, Registration
from bkbox.wire import availability, v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies, complete_frames
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.service_info import rpc_service_info


@dataclass
class TinyLedger:
    master_key: bytes
    fenced: bool = False
    entries: dict[int, bytes] = field(default_factory=dict)
    unsynced: set[int] = field(default_factory=set)
    lac_packet: bytes | None = None

    @property
    def lac(self) -> int:
        packet = self.lac_packet
        lacs = [unpack_from(">q", entry, 16)[0] for entry in self.entries.values()]
        return max([-1, *lacs, *([] if packet is None else [unpack_from(">q", packet, 8)[0]])])


def encoded(response: Any) -> bytes:
    """The frame of an answer of either version."""
    is_v3 = type(response).__module__ == v3.__name__
    return (v3 if is_v3 else v2).encode_response(response)


class _Connection(asyncio.Protocol):
    def __init__(self, bookie: TinyBookie) -> None:
        self.bookie = bookie
        self.data = bytearray()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self.bookie.lives:
            transport.abort()  # accepted before the end, and only now handed on
            return
        self.bookie.connections.add(self)
        self.bookie.connections_made += 1
        if self.bookie.deaf:
            # Not at once: asyncio of Python 3.11.2 begins to read after this call, paused or not.
            asyncio.get_running_loop().call_soon(transport.pause_reading)

    def connection_lost(self, _error: Exception | None) -> None:
        self.bookie.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self.data += data
        whole = bytes(self.data[: complete_frames(self.data)])
        del self.data[: len(whole)]
        for body in bodies(whole):
            is_v3 = body[0] >= v3.FIRST_BYTE_MIN
            if is_v3 and not self.bookie.speaks_v3:
                self.transport.abort()
                return
            request = v3.decode_request(body) if is_v3 else v2.decode_request(body)
            if isinstance(request, v2.BatchReadRequest) and not self.bookie.knows_batches:
                self.transport.abort()
                return
            self.bookie.requests.append(request)
            if self.bookie.hung:
                self.bookie.held.append((self, request))
            else:
                self.answer(request)

    def answer(self, request: Any) -> None:
        if self.bookie.raw:
            self.transport.write(self.bookie.raw)
        elif isinstance(request, v3.ReadRequest) and request.long_poll:
            self.bookie.poll(self, request)
        else:
            self.send(self.bookie.serve(request))
            self.bookie.end_polls()

    def send(self, response: Any) -> None:
        self.transport.write(encoded(response))


class TinyBookie:
    """Switches: ``hung`` (requests are held until ``release``), ``limbo`` (never says no),
    ``wrong_digest``, ``refusal`` (this code to every request), ``deaf`` (does not read new
    connections), ``raw`` (these bytes to every request), ``speaks_v3``, ``knows_batches``,
    ``lists`` (else EIO to a request for the list of entries), ``limbo_code`` (goes with entries that
    are sent over version 3), ``is_bkbox`` (says what only bkbox's bookies say)."""

    def __init__(self, store: MetadataStore, bookie: BookieId) -> None:
        self.id = bookie
        self.ledgers: dict[int, TinyLedger] = {}
        self.requests: list[Any] = []
        self.held: list[tuple[_Connection, Any]] = []
        self.connections: set[_Connection] = set()
        self.connections_made = 0
        self.hung = self.limbo = self.wrong_digest = self.deaf = False
        self.speaks_v3 = self.knows_batches = self.lists = True
        self.is_bkbox = False
        self.polls: list[tuple[_Connection, v3.ReadRequest, asyncio.TimerHandle]] = []
        self.refusal: Code | None = None
        self.limbo_code = Code.EOK
        self.raw = b""
        self.lives = False
        self._store = store
        self._server: asyncio.Server | None = None
        self._registration: Registration | None = None
        self.port = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.lives = True
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        info = rpc_service_info("127.0.0.1", self.port)
        self._registration = await self._store.register(self.id, info, read_only=False)

    async def kill(self) -> None:
        """Gone, with its connections and its registration; what it holds stays."""
        if self._server is None or self._registration is None:
            return
        # A connection that a server is accepting when it is closed is lost by asyncio, and stays open: it takes some
        # turns of the loop.
        for _ in range(10):
            await asyncio.sleep(0)
        self.lives = False
        self._server.close()
        self.drop_connections()
        await self._registration.close()
        await self._server.wait_closed()
        self._server = None

    def drop_connections(self) -> None:
        for connection in tuple(self.connections):
            connection.transport.abort()
        self.held.clear()
        for _, _, timer in self.polls:
            timer.cancel()
        self.polls.clear()

    def lose_host(self) -> None:
        """Gone and back at once, without what was not synced."""
        self.drop_connections()
        for ledger in self.ledgers.values():
            for entry in ledger.unsynced:
                del ledger.entries[entry]
            ledger.unsynced.clear()

    def release(self) -> None:
        """Answer what was held, and everything from now on."""
        self.hung = False
        held, self.held = self.held, []
        for connection, request in held:
            connection.answer(request)

    # ---- long polls -----------------------------------------------------------------------------

    def poll(self, connection: _Connection, request: v3.ReadRequest) -> None:
        ledger = self.ledgers.get(request.ledger_id)
        known = ledger is not None and self.refusal is None and not self.limbo
        wait_s = (request.timeout_ms or 0) / 1000 if known else 0.0
        timer = asyncio.get_running_loop().call_later(wait_s, self._time_is_up, request)
        self.polls.append((connection, request, timer))
        self.end_polls()

    def end_polls(self) -> None:
        """Answer those that have waited for what is there now."""
        for connection, request, timer in tuple(self.polls):
            ledger = self.ledgers.get(request.ledger_id)
            assert request.previous_lac is not None
            if ledger is not None and ledger.lac > request.previous_lac:
                timer.cancel()
                self._answer_poll(connection, request)

    def _time_is_up(self, request: v3.ReadRequest) -> None:
        for connection, waiting, _ in tuple(self.polls):
            if waiting is request:
                self._answer_poll(connection, request)

    def _answer_poll(self, connection: _Connection, request: v3.ReadRequest) -> None:
        self.polls = [poll for poll in self.polls if poll[1] is not request]
        ledger = self.ledgers.get(request.ledger_id)
        txn, number = request.header.txn_id, request.ledger_id
        if self.refusal is not None or self.limbo or ledger is None or not ledger.entries:
            code = Code.EUNKNOWNLEDGERSTATE if self.limbo else Code.ENOENTRY
            code = self.refusal or (Code.ENOLEDGER if ledger is None and not self.limbo else code)
            connection.send(v3.ReadResponse(txn, code, number, -1))
            return
        assert request.previous_lac is not None
        wanted = request.previous_lac + 1
        entry = ledger.entries.get(wanted) if ledger.lac >= wanted else None
        if entry is not None and self.wrong_digest:
            entry = entry[:-1] + bytes([entry[-1] ^ 1])
        found = -1 if entry is None else wanted
        connection.send(v3.ReadResponse(txn, Code.EOK, number, found, entry, ledger.lac))

    # ---- everything else ------------------------------------------------------------------------

    def serve(self, request: Any) -> Any:
        if isinstance(request, v2.AddRequest | v2.ReadRequest | v3.AddRequest | v3.ReadRequest):
            code, entry = self._serve(request)
            txn = getattr(getattr(request, "header", None), "txn_id", None)
            ids = request.ledger_id, request.entry_id
            match request:
                case v2.AddRequest():
                    return v2.AddResponse(2, code, *ids)
                case v2.ReadRequest():
                    return v2.ReadResponse(2, code, *ids, entry)
                case v3.AddRequest():
                    return v3.AddResponse(txn, code, *ids)
            return v3.ReadResponse(txn, self.limbo_code if entry else code, *ids, entry)
        if isinstance(request, v2.BatchReadRequest):
            return self._serve_batch(request)
        if self.refusal is not None:
            return v3.refusal(request, self.refusal)
        return self._serve_v3(request)

    def _serve_batch(self, request: v2.BatchReadRequest) -> v2.BatchReadResponse:
        code, entries, size = Code.EOK, [], 36
        while request.max_count <= 0 or len(entries) < request.max_count:
            entry_id = request.entry_id + len(entries)
            single = v2.ReadRequest(2, 0, request.ledger_id, entry_id, None)
            found, entry = self._serve(single)
            if entry is None:
                code = Code.EOK if entries else found
                break
            size += 4 + len(entry)
            if entries and size > request.max_size:
                break
            entries.append(entry)
        ids = request.ledger_id, request.entry_id, request.request_id
        return v2.BatchReadResponse(2, code, *ids, tuple(entries))

    def _serve_v3(self, request: Any) -> v3.Response:
        txn = request.header.txn_id
        if isinstance(request, v3.BookieInfoRequest):
            return v3.BookieInfoResponse(txn, Code.EOK, 1000, 400)
        ledger = self.ledgers.get(request.ledger_id)
        match request:
            case v3.ForceRequest(_, number):
                if ledger is not None:
                    ledger.unsynced.clear()
                return v3.ForceResponse(txn, Code.EOK, number)
            case v3.WriteLacRequest(_, number, _, key, body):
                ledger = self.ledgers.setdefault(number, TinyLedger(key))
                if ledger.master_key != key:
                    return v3.WriteLacResponse(txn, Code.EUA, number)
                ledger.lac_packet = bytes(body)
                return v3.WriteLacResponse(txn, Code.EOK, number)
            case v3.ReadLacRequest(_, number):
                packet = None if ledger is None else ledger.lac_packet
                last = ledger.entries[max(ledger.entries)] if ledger and ledger.entries else None
                code = Code.ENOENTRY if packet is None and last is None else Code.EOK
                if last is not None and self.wrong_digest:
                    last = last[:-1] + bytes([last[-1] ^ 1])
                code = Code.EUNKNOWNLEDGERSTATE if self.limbo else code
                if not self.is_bkbox or ledger is None:
                    return v3.ReadLacResponse(txn, code, number, packet, last)
                durable = None
                if request.persisted:
                    durable = max(ledger.entries, default=-1)
                    ledger.unsynced.clear()
                state = durable, ledger.fenced, self.limbo
                return v3.ReadLacResponse(txn, code, number, packet, last, *state)
            case v3.ListEntriesRequest() if not self.lists:
                return v3.refusal(request, Code.EIO)
            case v3.ListEntriesRequest(_, number) if ledger is not None:
                runs = availability.encode(availability.availability_of(sorted(ledger.entries)))
                code = Code.EUNKNOWNLEDGERSTATE if self.limbo else Code.EOK
                return v3.ListEntriesResponse(txn, code, number, runs)
            case v3.ListEntriesRequest() if self.limbo:
                return v3.refusal(request, Code.EUNKNOWNLEDGERSTATE)
        return v3.refusal(request, Code.ENOLEDGER)

    def _serve(self, request: Any) -> tuple[Code, bytes | None]:
        if self.refusal is not None:
            return self.refusal, None
        ledger = self.ledgers.get(request.ledger_id)
        if isinstance(request, v2.AddRequest | v3.AddRequest):
            ledger = self.ledgers.setdefault(request.ledger_id, TinyLedger(request.master_key))
            if ledger.master_key != request.master_key:
                return Code.EUA, None
            if ledger.fenced and not request.recovery:
                return Code.EFENCED, None
            ledger.entries[request.entry_id] = bytes(request.entry)
            if isinstance(request, v3.AddRequest) and request.deferred_sync:
                ledger.unsynced.add(request.entry_id)
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
            is_v3 = isinstance(request, v3.ReadRequest)
            return Code.EUNKNOWNLEDGERSTATE if is_v3 else Code.EIO, None
        if entry is None:
            return absent, None
        if self.wrong_digest:
            entry = entry[:-1] + bytes([entry[-1] ^ 1])
        return Code.EOK, entry


DEFAULT_OPTIONS: dict[str, Any] = {
    "backoff_initial_s": 0.01,
    "backoff_max_s": 0.05,
    "tail_poll_s": 0.01,
    "tail_wait_s": 0.5,
}


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
        options = DEFAULT_OPTIONS | options
        async with Client(self.store, ClientOptions(**options), random.Random(7)) as client:
            yield client

    async def every_copy(self, ledger: int, entries: int) -> None:
        """Wait until each bookie holds so many entries of the ledger."""
        while any(
            ledger not in bookie.ledgers or len(bookie.ledgers[ledger].entries) < entries
            for bookie in self.bookies.values()
        ):
            await asyncio.sleep(0.002)

    async def every_copy_of(self, metadata: LedgerMetadata, entries: int) -> None:
        """The same for the bookies of the last ensemble."""
        bookies = [self.bookies[bookie] for bookie in metadata.last_fragment.ensemble]
        while any(
            metadata.ledger_id not in bookie.ledgers
            or len(bookie.ledgers[metadata.ledger_id].entries) < entries
            for bookie in bookies
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


class Bookies:
    """A cluster on an event loop of its own."""

    def __init__(self, made: Cluster) -> None:
        self.uri = made.uri
        self.bookies = made.bookies
        self.loop = asyncio.get_running_loop()


@contextmanager
def bookies(folder: Path) -> Iterator[Bookies]:
    """A cluster that runs in a thread."""
    started: Future[Bookies] = Future()
    ended = threading.Event()

    async def run() -> None:
        async with cluster(folder) as made:
            started.set_result(Bookies(made))
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield started.result(30)
    finally:
        ended.set()
        thread.join(30)
