"""Ledgers that are wrong in a way that a test has chosen: written copy by copy, with metadata made by hand."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.client import Client
from bkbox.client.connection.pool import Add
from bkbox.client.options import ClientOptions
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager, master_key
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from bkbox.wire.metadata.service_info import rpc_service_info
from bkbox.wire.write_set import write_set

PASSWORD = b"secret"

Place = tuple[int, str]
"""An entry, and a bookie."""


def payload(ledger: int, entry: int, size: int = 200) -> bytes:
    return random.Random(ledger * 100_003 + entry).randbytes(size)


@dataclass
class Forge:
    """Makes ledgers in one cluster, and keeps book of what is wrong with them: (ledger, entry, bookie)."""

    store: MetadataStore
    client: Client
    missing: set[tuple[int, int, str]] = field(default_factory=set)
    flipped: set[tuple[int, int, str]] = field(default_factory=set)
    divergent: set[tuple[int, int, str]] = field(default_factory=set)
    orphaned: set[tuple[int, str]] = field(default_factory=set)
    entries: int = 0

    async def ledger(
        self,
        ensemble: Sequence[str],
        entries: int,
        *,
        write_quorum: int | None = None,
        ack_quorum: int = 2,
        missing: Iterable[Place] = (),
        flipped: Iterable[Place] = (),
        divergent: Iterable[Place] = (),
        digest_type: DigestType = DigestType.CRC32C,
        custom: Mapping[str, bytes] | None = None,
        silent: Iterable[str] = (),
    ) -> LedgerId:
        """A closed one. ``silent``: bookies that are named and to which nothing is written."""
        write_quorum = write_quorum or len(ensemble)
        ledger = await self.store.new_ledger_id()
        digests = DigestManager(ledger, digest_type, PASSWORD)
        lacking, flips, others = set(missing), set(flipped), set(divergent)
        adds: dict[str, list[Add]] = {bookie: [] for bookie in ensemble}
        length = 0
        key = master_key(PASSWORD)
        for entry in range(entries):
            content = payload(ledger, entry)
            length += len(content)
            good = digests.package(entry, entry - 1, length, content)
            for at in write_set(entry, len(ensemble), write_quorum):
                bookie = ensemble[at]
                place = (entry, bookie)
                data = good
                if place in lacking or bookie in silent:
                    continue
                if place in flips:
                    data = good[:-5] + bytes([good[-5] ^ 1]) + good[-4:]
                if place in others:
                    other = payload(ledger, entry + 1_000_000)
                    data = digests.package(entry, entry - 1, length, other)
                adds[bookie].append(
                    Add(ledger, EntryId(entry), key, memoryview(data), recovery=True)
                )
        await asyncio.gather(*(self._send(bookie, some) for bookie, some in adds.items() if some))
        self.missing |= {(ledger, *place) for place in lacking}
        self.flipped |= {(ledger, *place) for place in flips}
        self.divergent |= {(ledger, *place) for place in others}
        self.entries += entries
        metadata = LedgerMetadata(
            ledger,
            len(ensemble),
            write_quorum,
            min(ack_quorum, write_quorum),
            LedgerState.CLOSED,
            (Fragment(EntryId(0), tuple(map(BookieId, ensemble))),),
            last_entry=EntryId(entries - 1),
            length=length,
            digest_type=digest_type,
            password=PASSWORD,
            custom=tuple((custom or {}).items()),
        )
        await self.store.create_ledger(metadata)
        return ledger

    async def faulty(self, ensemble: Sequence[str]) -> LedgerId:
        """One of 40 entries on three bookies, of which the first misses ten, ten are flipped on the second, and the
        third has another last one."""
        first, second, third = ensemble
        return await self.ledger(
            ensemble,
            40,
            missing=[(entry, first) for entry in range(10, 20)],
            flipped=[(entry, second) for entry in (*range(5), *range(25, 30))],
            divergent=[(39, third)],
        )

    async def orphan(self, bookies: Sequence[str], entries: int = 3) -> LedgerId:
        """A ledger whose metadata are gone."""
        ledger = await self.ledger(bookies, entries, ack_quorum=1)
        await self.store.delete_ledger(ledger)
        self.entries -= entries
        self.orphaned |= {(ledger, bookie) for bookie in bookies}
        return ledger

    async def _send(self, bookie: str, adds: Sequence[Add]) -> None:
        for at in range(0, len(adds), 500):
            replies = await asyncio.gather(
                *(self.client.pool.add(BookieId(bookie), add) for add in adds[at : at + 500])
            )
            assert {reply.status for reply in replies} == {Code.EOK}, replies[:3]


@asynccontextmanager
async def forge(uri: str) -> AsyncIterator[Forge]:
    async with (
        await connect(uri) as store,
        Client(store, ClientOptions(), random.Random(4)) as client,
    ):
        yield Forge(store, client)


@contextmanager
def silent_bookie(uri: str) -> Iterator[str]:
    """A bookie that is registered, takes connections and never answers; its id."""
    ready = threading.Event()
    ids: list[str] = []
    ends: list[Callable[[], None]] = []

    async def serve() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(stopped.set))

        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(65_536):
                pass
            writer.close()

        server = await asyncio.start_server(swallow, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        async with await connect(uri) as store:
            bookie = BookieId(f"{host}:{port}")
            registration = await store.register(
                bookie, rpc_service_info(host, port), read_only=True
            )
            ids.append(bookie)
            ready.set()
            await stopped.wait()
            await registration.close()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield ids[0]
    finally:
        ends[0]()
        thread.join(30)
