"""The ledgers of a run: written through the client, and looked at again copy by copy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.client import Client
from bkbox.client.connection.response_matcher import BATCH_ENTRIES_AT
from bkbox.client.options import ClientOptions
from bkbox.errors import BenchError
from bkbox.metadata import connect
from bkbox.wire.digest import DIGEST_BYTES, HEADER_BYTES, DigestManager
from bkbox.wire.metadata.ledger import DigestType

T = TypeVar("T")

REPLICAS = 3
_AT_ONCE = 16
_APPENDED = 100
_BATCH_BYTES = 1 << 20
_PATIENT = ClientOptions(add_timeout_s=60.0)


@dataclass(frozen=True, slots=True)
class Data:
    """So many closed ledgers, each with so many entries of so many bytes, on three bookies."""

    ledgers: int
    entries: int
    size: int

    @property
    def total(self) -> int:
        return self.ledgers * self.entries

    @property
    def entry_bytes(self) -> int:
        return HEADER_BYTES + DIGEST_BYTES[DigestType.CRC32C] + self.size


async def _in_parallel(work: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    left = iter(work)

    async def some() -> None:
        for item in left:
            await do(item)

    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))


def write(uri: str, data: Data) -> list[LedgerId]:
    """Every copy of every entry is acknowledged; the ledgers' ids."""
    payload = random.Random(1).randbytes(data.size)
    made: list[LedgerId] = []

    async def go() -> None:
        async with (
            await connect(uri) as store,
            Client(store, _PATIENT, random.Random(2)) as client,
        ):

            async def one(_number: int) -> None:
                writer = await client.create_ledger(
                    REPLICAS, REPLICAS, REPLICAS, DigestType.CRC32C, b""
                )
                for start in range(0, data.entries, _APPENDED):
                    count = min(_APPENDED, data.entries - start)
                    await writer.append_many([payload] * count)
                await writer.close()
                made.append(writer.ledger_id)

            await _in_parallel(range(data.ledgers), one)

    asyncio.run(go())
    return sorted(made)


class Looks:
    """At what a bookie has, and at whom the metadata name."""

    def __init__(self, uri: str, ledgers: Sequence[LedgerId], data: Data) -> None:
        self._uri = uri
        self._ledgers = ledgers
        self._data = data

    def count_whole(self, bookie: str, ledgers: Sequence[LedgerId] | None = None) -> int:
        """How many of the ledgers the bookie has the last entry of."""

        async def has(client: Client, ledger: LedgerId) -> bool:
            last = EntryId(self._data.entries - 1)
            reply = await client.pool.read(BookieId(bookie), ledger, last, None)
            return reply.entry is not None

        return self._count(has, ledgers)

    def count_without(self, bookie: str, ledgers: Sequence[LedgerId] | None = None) -> int:
        """How many of the ledgers do not name the bookie any more."""

        async def lacks(client: Client, ledger: LedgerId) -> bool:
            return bookie not in (await client.metadata(ledger)).bookies()

        return self._count(lacks, ledgers)

    def check(self, bookie: str) -> None:
        """That a bookie has every entry of every ledger, with a digest that is right. Raises BenchError."""

        async def whole(client: Client, ledger: LedgerId) -> bool:
            digests = DigestManager(ledger, DigestType.CRC32C, b"")
            first = 0
            while first < self._data.entries:
                reply = await client.pool.read_batch(
                    BookieId(bookie), ledger, first, self._data.entries - first, _BATCH_BYTES
                )
                if not isinstance(reply.response, bytes):
                    return False
                found = digests.verify_batch(
                    reply.response, BATCH_ENTRIES_AT, first, self._data.entries - first
                )
                if not found:
                    return False
                first += len(found)
            return True

        count = self._count(whole, None)
        if count != len(self._ledgers):
            raise BenchError(f"{bookie} has {count} of {len(self._ledgers)} ledgers whole")

    def _count(
        self,
        holds: Callable[[Client, LedgerId], Awaitable[bool]],
        ledgers: Sequence[LedgerId] | None,
    ) -> int:
        count = 0

        async def go() -> None:
            async with (
                await connect(self._uri) as store,
                Client(store, ClientOptions(), random.Random(3)) as client,
            ):

                async def one(ledger: LedgerId) -> None:
                    nonlocal count
                    held = await holds(client, ledger)  # before it is added: others count meanwhile
                    count += held

                await _in_parallel(self._ledgers if ledgers is None else ledgers, one)

        asyncio.run(go())
        return count
