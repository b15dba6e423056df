"""Batch reads, lists of entries, sizes of disks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.client import Client
from bkbox.client.connection.pool import DiskSpace
from bkbox.errors import NoSuchEntryError, UnknownEntryError
from bkbox.protocol.events import NoResponse
from bkbox.wire import v2, v3
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Code
from tests.client.tinybookie import Cluster, cluster

pytestmark = pytest.mark.usefixtures("protocol")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def written(
    client: Client, payloads: list[bytes], sizes: tuple[int, int, int] = (3, 3, 2)
) -> LedgerId:
    async with await client.create_ledger(*sizes) as writer:
        await writer.append_many(payloads)
    return writer.ledger_id


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


def reads(made: Cluster) -> tuple[int, int]:
    """Single and batch reads that came to the bookies."""
    requests = [request for bookie in made.bookies.values() for request in bookie.requests]
    singles = sum(isinstance(request, v2.ReadRequest | v3.ReadRequest) for request in requests)
    return singles, sum(isinstance(request, v2.BatchReadRequest) for request in requests)


def forget_requests(made: Cluster) -> None:
    for bookie in made.bookies.values():
        bookie.requests.clear()


def test_a_batch_is_bounded_by_count_and_size_and_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(client, [bytes([65 + n]) * 100 for n in range(10)])
            reader = await client.open_ledger(ledger)
            forget_requests(made)
            assert [e.entry_id for e in await reader.read_batch(2, 5)] == [2, 3, 4, 5, 6]
            assert [e.entry_id for e in await reader.read_batch(8, 100)] == [8, 9]
            entry_bytes = 4 + 32 + 4 + 100
            found = await reader.read_batch(0, 100, 36 + 3 * entry_bytes)
            assert [(e.entry_id, e.payload[:1]) for e in found] == [(0, b"A"), (1, b"B"), (2, b"C")]
            assert [e.entry_id for e in await reader.read_batch(0, 100, 0)] == [0]
            assert reads(made) == (0, 4)
            with pytest.raises(NoSuchEntryError):
                await reader.read_batch(10, 1)

    go(test())


def test_an_open_ledger_gives_no_more_than_is_confirmed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            for payload in numbers(0, 5):
                await writer.append(payload)
            await made.every_copy(writer.ledger_id, 5)
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            assert [e.entry_id for e in await reader.read_batch(1, 100)] == [1, 2, 3]
            await writer.close()

    go(test())


def test_reading_a_ledger_takes_few_requests(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(client, numbers(0, 3000))
            reader = await client.open_ledger(ledger)
            forget_requests(made)
            assert [e.payload async for e in reader.read()] == numbers(0, 3000)
            singles, batches = reads(made)
            assert singles == 1
            assert batches <= 15
            assert all(bookie.requests for bookie in made.bookies.values())  # evenly

    go(test())


def test_striped_entries_are_read_one_by_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(client, numbers(0, 30), (3, 2, 2))
            reader = await client.open_ledger(ledger)
            forget_requests(made)
            assert [e.payload async for e in reader.read()] == numbers(0, 30)
            assert [e.payload for e in await reader.read_batch(3, 10)] == [b"3"]
            assert await reader.read_columns(3, 10) is None
            assert reads(made) == (31, 0)

    go(test())


def test_batch_reads_can_be_switched_off(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(batch_reads=False) as client:
            ledger = await written(client, numbers(0, 30))
            reader = await client.open_ledger(ledger)
            forget_requests(made)
            assert [e.payload async for e in reader.read()] == numbers(0, 30)
            assert reads(made) == (30, 0)

    go(test())


def test_a_batch_ends_before_an_entry_with_a_wrong_digest(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(client, numbers(0, 100))
            for bookie, entry in (("bookie-0", 40), ("bookie-1", 40), ("bookie-2", 70)):
                entries = made.of(bookie).ledgers[ledger].entries
                entries[entry] = entries[entry][:-1] + b"!"
            reader = await client.open_ledger(ledger)
            assert [e.payload async for e in reader.read()] == numbers(0, 100)
            for bookie in ("bookie-0", "bookie-1"):
                made.of(bookie).ledgers[ledger].entries[70] = b"rot"
            seen: list[bytes] = []

            async def read() -> None:
                async for entry in reader.read():
                    seen.append(entry.payload)

            with pytest.raises(UnknownEntryError, match="entry 70"):
                await read()
            assert seen == numbers(0, 70)
            assert len(await reader.read_batch(69, 10)) == 1
            columns = await reader.read_columns(69, 10)
            assert columns is not None
            assert len(columns) == 1
            assert await reader.read_columns(70, 10) is None

    go(test())


def test_gaps_dead_bookies_and_empty_ones(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(client, numbers(0, 200))
            for number, bookie in enumerate(made.bookies.values()):
                for entry in range(number, 200, 10):
                    del bookie.ledgers[ledger].entries[entry]
            reader = await client.open_ledger(ledger)
            assert [e.payload async for e in reader.read()] == numbers(0, 200)
            made.of("bookie-0").ledgers.clear()
            assert [e.payload async for e in reader.read(0, 0)] == numbers(0, 1)
            await made.of("bookie-0").kill()
            again = await client.open_ledger(ledger)
            assert [e.payload async for e in again.read()] == numbers(0, 200)

    go(test())


def test_bookies_that_do_not_know_batch_reads(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(client, numbers(0, 100))
            for bookie in made.bookies.values():
                bookie.knows_batches = False
            reader = await client.open_ledger(ledger)
            made_before = sum(bookie.connections_made for bookie in made.bookies.values())
            assert [e.payload async for e in reader.read()] == numbers(0, 100)
            assert [e.payload for e in await reader.read_batch(3, 10)] == [b"3"]
            assert not client.pool.suspects()
            connections = sum(bookie.connections_made for bookie in made.bookies.values())
            assert (
                connections <= made_before + 3 + 3
            )  # the first reads, and one try of a batch each

    go(test())


def test_a_hung_bookie_is_not_asked_for_batches_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client(read_timeout_s=25, speculative_read_s=0.05) as client,
        ):
            ledger = await written(client, numbers(0, 500))
            made.of("bookie-0").hung = True
            reader = await client.open_ledger(ledger)
            assert [e.payload async for e in reader.read()] == numbers(0, 500)
            assert [e.payload async for e in reader.read()] == numbers(0, 500)
            held = [request for _, request in made.of("bookie-0").held]
            batches = sum(isinstance(request, v2.BatchReadRequest) for request in held)
            assert 1 <= batches <= 4  # those of the first runs

    go(test())


def test_batches_do_not_cross_a_change_of_the_ensemble(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 6) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many(numbers(0, 50))
                for bookie in writer.metadata.last_fragment.ensemble:
                    await made.of(bookie).kill()
                await writer.append_many(numbers(50, 100))
            first, *_, last = writer.metadata.fragments
            assert last.first_entry == 50
            for bookie in first.ensemble:
                await made.of(bookie).start()
            async with made.client() as other:
                reader = await other.open_ledger(writer.ledger_id)
                assert [e.payload async for e in reader.read()] == numbers(0, 100)
                assert [e.payload for e in await reader.read_batch(40, 100)] == numbers(40, 50)

    go(test())


def test_read_ahead_of_batches_is_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(read_ahead_bytes=200_000) as client:
            ledger = await written(client, [bytes(10_000)] * 100)
            reader = await client.open_ledger(ledger)
            forget_requests(made)

            def asked() -> int:
                return max(
                    request.entry_id + getattr(request, "max_count", 1)
                    for bookie in made.bookies.values()
                    for request in bookie.requests
                )

            read = 0
            async with aclosing(reader.read()) as entries:
                async for _ in entries:
                    read += 1
                    await asyncio.sleep(0)
                    assert asked() <= read + 20
            assert read == 100
            assert reads(made)[1] <= 25

    go(test())


def test_lists_and_sizes(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await written(client, numbers(0, 9), (3, 2, 2))
            bookie = BookieId("bookie-1")
            listed = await client.pool.list_entries(bookie, ledger)
            assert isinstance(listed, Availability)
            assert list(listed) == sorted(made.of(bookie).ledgers[ledger].entries)
            assert listed.total == 6
            assert await client.pool.list_entries(bookie, 999) is Code.ENOLEDGER
            assert await client.pool.bookie_info(bookie) == DiskSpace(1000, 400)
            made.of(bookie).refusal = Code.EIO
            assert await client.pool.bookie_info(bookie) is Code.EIO
            assert await client.pool.list_entries(bookie, ledger) is Code.EIO
            await made.of(bookie).kill()
            lost = await client.pool.list_entries(bookie, ledger)
            assert lost in (NoResponse.NOT_REACHED, NoResponse.CONNECTION_LOST)

    go(test())
