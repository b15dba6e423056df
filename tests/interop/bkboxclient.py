"""bkbox's client on an event loop of its own, as a ``Client`` whose calls block."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from bkbox import errors, metadata
from bkbox.base.ids import BookieId, LedgerId
from bkbox.client import Client as AsyncClient
from bkbox.client import LedgerReader, LedgerWriter, connect
from bkbox.wire.metadata.ledger import DigestType
from tests.interop.clients import Client, Entries, Metadata, Reader, Refused, Writer, pattern

ANSWER_TIMEOUT_S = 60.0
DIGEST_TYPES = {
    "CRC32": DigestType.CRC32,
    "CRC32C": DigestType.CRC32C,
    "MAC": DigestType.HMAC,
    "DUMMY": DigestType.DUMMY,
}
KINDS: dict[type[errors.BkboxError], str] = {
    errors.LedgerFencedError: Refused.FENCED,
    errors.LedgerClosedError: Refused.CLOSED,
    errors.HandleClosedError: Refused.CLOSED,
    errors.UnauthorizedError: Refused.UNAUTHORIZED,
    errors.NoSuchLedgerError: Refused.NO_LEDGER,
    errors.NoSuchEntryError: Refused.PAST_END,
    errors.NotEnoughBookiesError: Refused.NOT_ENOUGH_BOOKIES,
    errors.EntryIdError: Refused.ENTRY_THERE,
    errors.LedgerExistsError: Refused.LEDGER_THERE,
}
T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._go_on: threading.Event | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result(ANSWER_TIMEOUT_S)
        except errors.BkboxError as error:
            raise Refused(KINDS.get(type(error), type(error).__name__), str(error)) from error

    def suspend(self) -> None:
        self._go_on = threading.Event()
        self.loop.call_soon_threadsafe(self._go_on.wait)

    def resume(self) -> None:
        if self._go_on is not None:
            self._go_on.set()

    def close(self) -> None:
        self.resume()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class BkboxClient(Client):
    def __init__(self, uri: str, protocol: str, **options: Any) -> None:
        self.name = f"bkbox-{protocol}"
        self.protocol = protocol
        self._uri = uri
        self._options = options
        self._loop = Loop()
        self._stack = AsyncExitStack()
        self._writers: list[LedgerWriter] = []
        self._client = self._loop.run(self._connect())

    async def _connect(self) -> AsyncClient:
        rng = random.Random(self._uri)
        context = connect(self._uri, rng=rng, protocol=self.protocol, **self._options)
        return await self._stack.enter_async_context(context)

    def create(
        self,
        e: int = 3,
        wq: int = 3,
        aq: int = 2,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        custom: Mapping[str, bytes] | None = None,
        deferred_sync: bool = False,
        adv: bool = False,
        ledger: int | None = None,
    ) -> BkboxWriter:
        created = self._loop.run(
            self._client.create_ledger(
                e,
                wq,
                aq,
                DIGEST_TYPES[digest],
                password,
                custom,
                deferred_sync=deferred_sync,
                ledger=ledger,
            )
        )
        self._writers.append(created)
        return BkboxWriter(self._loop, created)

    def open(
        self,
        ledger: int,
        *,
        digest: str = "CRC32C",
        password: bytes = b"",
        recovery: bool = True,
    ) -> BkboxReader:
        opened = self._loop.run(self._client.open_ledger(ledger, password, recovery=recovery))
        return BkboxReader(self._loop, opened)

    def recover(
        self, ledger: int, times: int, *, digest: str = "CRC32C", password: bytes = b""
    ) -> list[int]:
        async def all_at_once() -> list[int]:
            recoveries = [self._client.recover(ledger, password) for _ in range(times)]
            return [found.last_entry for found in await asyncio.gather(*recoveries)]

        return self._loop.run(all_at_once())

    def delete(self, ledger: int) -> None:
        self._loop.run(self._client.delete_ledger(ledger))

    def ledgers(self) -> list[int]:
        async def collect() -> list[int]:
            return [ledger async for ledger in self._client.ledgers()]

        return self._loop.run(collect())

    def metadata(self, ledger: int) -> Metadata:
        found = self._loop.run(self._client.metadata(ledger))
        (digest,) = (name for name, kind in DIGEST_TYPES.items() if kind is found.digest_type)
        assert found.password is not None
        return Metadata(
            ledger=found.ledger_id,
            e=found.ensemble_size,
            wq=found.write_quorum,
            aq=found.ack_quorum,
            state=found.state.name,
            last=found.last_entry,
            length=found.length,
            digest=digest,
            password=found.password,
            custom=dict(found.custom),
            ensembles={each.first_entry: list(each.ensemble) for each in found.fragments},
        )

    def bookie_info(self) -> dict[str, tuple[int, int]]:
        async def ask_all() -> dict[str, tuple[int, int]]:
            found = {}
            async with await metadata.connect(self._uri) as store:
                bookies = await store.bookies()
            for bookie in bookies:
                total, free = await self._client.pool.bookie_info(bookie)
                found[str(bookie)] = (free, total)
            return found

        return self._loop.run(ask_all())

    def entries_of(self, bookie: str, ledger: int, end: int) -> list[int]:
        pool = self._client.pool
        found = self._loop.run(pool.list_entries(BookieId(bookie), LedgerId(ledger)))
        return [entry for entry in range(end) if entry in found]

    def another(self, *, hangs_alone: bool = False, **settings: Any) -> BkboxClient:
        options = {}
        if "explicit_lac_ms" in settings:
            options["explicit_lac_interval_s"] = settings["explicit_lac_ms"] / 1000
        return BkboxClient(self._uri, self.protocol, **options)

    def suspend(self) -> None:
        self._loop.suspend()

    def resume(self) -> None:
        self._loop.resume()

    def close(self) -> None:
        async def leave() -> None:
            for writer in self._writers:
                await writer.abort()
            await self._stack.aclose()

        self._loop.resume()
        self._loop.run(leave())
        self._loop.close()


class BkboxWriter(Writer):
    def __init__(self, loop: Loop, writer: LedgerWriter) -> None:
        self.ledger = writer.ledger_id
        self._loop = loop
        self._writer = writer

    def append(self, payload: bytes) -> int:
        return self._loop.run(self._writer.append(payload))

    def append_async(self, count: int, size: int, *, first: int = 0, window: int = 1000) -> int:
        async def append() -> int:
            for start in range(first, first + count, window):
                numbers = range(start, min(start + window, first + count))
                entries = await self._writer.append_many(pattern(one, size) for one in numbers)
                assert entries == list(range(entries[0], entries[0] + len(numbers)))
            return self._writer.last_add_confirmed

        return self._loop.run(append())

    def write(self, entry: int, payload: bytes) -> int:
        return self._loop.run(self._writer.append(payload, entry_id=entry))

    def lac(self) -> int:
        return self._writer.last_add_confirmed

    def force(self) -> int:
        return self._loop.run(self._writer.force())

    def close(self) -> None:
        self._loop.run(self._writer.close())


class BkboxReader(Reader):
    def __init__(self, loop: Loop, reader: LedgerReader) -> None:
        self.ledger = reader.ledger_id
        self._loop = loop
        self._reader = reader

    def lac(self) -> int:
        return self._reader.last_add_confirmed

    def read_lac(self) -> int:
        return self._loop.run(self._reader.read_last_add_confirmed())

    def try_read_lac(self) -> int:
        return self.read_lac()

    def explicit_lac(self) -> int:
        return self._loop.run(self._reader.read_explicit_last_add_confirmed())

    def read(self, first: int, last: int) -> Entries:
        async def collect() -> Entries:
            return [(one.entry_id, one.payload) async for one in self._reader.read(first, last)]

        return self._loop.run(collect())

    def read_unconfirmed(self, first: int, last: int) -> Entries:
        async def collect() -> Entries:
            found = self._reader.read_unconfirmed(first, last)
            return [(one.entry_id, one.payload) async for one in found]

        return self._loop.run(collect())

    def batch_read(self, first: int, count: int, size: int) -> Entries:
        found = self._loop.run(self._reader.read_batch(first, count, size))
        return [(one.entry_id, one.payload) for one in found]

    def long_poll(self, entry: int, timeout_ms: int, *, parallel: bool) -> tuple[int, Entries]:
        wait = self._reader.read_last_add_confirmed_and_entry(entry, timeout_ms / 1000)
        lac, found = self._loop.run(wait)
        return lac, [(found.entry_id, found.payload)] if found else []
