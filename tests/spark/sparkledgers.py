"""What the tests of the data source write and read beside Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from bkbox.client.client import Client
from tests.repair.copies import Hands, hands, payload

T = TypeVar("T")


def in_cluster(uri: str, do: Callable[[Hands], Awaitable[T]]) -> T:
    async def go() -> T:
        async with hands(uri) as ours:
            return await do(ours)

    return asyncio.run(go())


def closed(uri: str, entries: int, *sizes: int, password: bytes = b"", custom: Any = None) -> int:
    """A closed ledger; its entries are those of ``payload``."""

    async def write(ours: Hands) -> int:
        e, wq, aq = sizes or (3, 3, 2)
        writer = await ours.client.create_ledger(e, wq, aq, password=password, custom=custom)
        await writer.append_many([payload(writer.ledger_id, entry) for entry in range(entries)])
        await writer.close()
        return writer.ledger_id

    return in_cluster(uri, write)


def expected(*ledgers: int, entries: int) -> list[tuple[int, int, bytes]]:
    return [
        (ledger, entry, payload(ledger, entry)) for ledger in ledgers for entry in range(entries)
    ]


def rows(frame: Any) -> list[tuple[int, int, bytes]]:
    """Ledger, entry, value, sorted."""
    found = frame.select("ledger_id", "entry_id", "value").collect()
    return sorted((row[0], row[1], bytes(row[2])) for row in found)


def reader(spark: Any, uri: str, **options: object) -> Any:
    found = spark.read.format("bookkeeper").option("metadata.uri", uri)
    for name, value in options.items():
        found = found.option(name.replace("__", "."), str(value))
    return found


def ledgers_of(client: Client) -> Awaitable[set[int]]:
    async def go() -> set[int]:
        return {int(ledger) async for ledger in client.ledgers()}

    return go()


def values(frame: Any) -> list[bytes]:
    return sorted(bytes(row[0]) for row in frame.select("value").collect())


def as_text(ledgers: Iterable[int]) -> str:
    return ",".join(map(str, ledgers))
