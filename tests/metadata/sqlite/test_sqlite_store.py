"""What is special about the SQLite store; what every store promises: test_store_contract.py."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import UUID

import pytest

from bkbox.base.ids import MAX_ID, BookieId, LedgerId
from bkbox.errors import (
    MetadataError,
    MetadataUnavailableError,
)
from bkbox.metadata import connect, create
from bkbox.metadata.base import RANGE_LEDGERS_MAX
from bkbox.metadata.sqlite import database
from bkbox.metadata.sqlite import store as sqlite
from bkbox.wire.metadata import ledger_metadata
from bkbox.wire.metadata.loss import LossRecord, with_loss
from tests.metadata.metadata_peer import ledger_of, peer

BOOKIE = BookieId("127.0.0.1:3181")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.db"


@pytest.fixture
def uri(path: Path) -> str:
    return f"sqlite:{path}"


def test_create_makes_an_instance_id_once(uri: str) -> None:
    async def scenario() -> None:
        stores = await asyncio.gather(*(create(uri) for _ in range(8)))
        ids = {await store.instance_id() for store in stores}
        for store in stores:
            await store.close()
        async with await create(uri) as again:
            ids.add(await again.instance_id())
        async with await connect(uri) as again:
            ids.add(await again.instance_id())
        assert len(ids) == 1
        assert UUID(ids.pop()).version == 4

    asyncio.run(scenario())


def test_processes_that_create_at_once_agree(uri: str) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(uri, "instance")) for _ in range(3)]
        assert len({process.stdout.read() for process in peers if process.stdout}) == 1


def test_stored_metadata_that_is_damaged_is_named(uri: str, path: Path) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            await store.create_ledger(ledger_of(7))
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE ledger SET metadata = x'00'")
            with pytest.raises(MetadataError, match=r"cluster\.db.*ledger 7"):
                await store.read_ledger(LedgerId(7))

    asyncio.run(scenario())


def test_a_file_of_before_there_were_records_of_disks_gets_the_table(uri: str, path: Path) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            await store.write_cookie(BookieId("b:1"), b"cookie", None)
        with closing(sqlite3.connect(path)) as old, old:
            old.execute("DROP TABLE disk_record")
            old.execute("DROP TABLE ended")
            old.execute("PRAGMA user_version = 3")
        stores = await asyncio.gather(*(connect(uri) for _ in range(3)))
        for number, store in enumerate(stores):
            expected = None if number == 0 else number - 1
            await store.write_disk_record(BookieId("b:1"), b"%d" % number, expected)
            assert await store.read_cookie(BookieId("b:1")) is not None
        found = await stores[0].read_disk_record(BookieId("b:1"))
        assert found is not None
        assert found.value == b"2"
        for store in stores:
            await store.close()

    asyncio.run(scenario())


def test_a_file_of_before_ended_ledgers_were_listed_gets_the_list(uri: str, path: Path) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            for number in range(3):
                await store.create_ledger(ledger_of(number))
            lost = with_loss(ledger_of(1), LossRecord(at_ms=1, end=-1))
            await store.write_ledger(lost, 0)
        with closing(sqlite3.connect(path)) as old, old:
            old.execute("DROP TABLE ended")
            old.execute("PRAGMA user_version = 4")
        async with await connect(uri) as store:
            assert await store.ended_ledgers() == [1]

    asyncio.run(scenario())


def test_ledger_ids_end_at_the_largest(uri: str, path: Path) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE cluster SET next_ledger_id = ?", (MAX_ID - 1,))
            assert await store.new_ledger_id() == MAX_ID - 1
            with pytest.raises(MetadataError, match="used up"):
                await store.new_ledger_id()

    asyncio.run(scenario())


def test_ranges_are_ascending_bounded_pages(uri: str, path: Path) -> None:
    numbers = [*range(2 * RANGE_LEDGERS_MAX), MAX_ID]
    data = ledger_metadata.encode(ledger_of(0))

    async def scenario() -> None:
        async with await create(uri) as store:
            assert [page async for page in store.ledger_ranges()] == []
            with closing(sqlite3.connect(path)) as other, other:
                other.executemany(
                    "INSERT INTO ledger VALUES (?, 0, 0, ?)",
                    [(number, data) for number in reversed(numbers)],
                )
            pages = []
            async for page in store.ledger_ranges():
                pages.append(page)
                await store.delete_ledger(page[0])  # behind: changes nothing of what comes
            assert [len(page) for page in pages] == [RANGE_LEDGERS_MAX, RANGE_LEDGERS_MAX, 1]
            assert [number for page in pages for number in page] == numbers

    asyncio.run(scenario())


def test_a_cancelled_call_leaves_the_store_usable(uri: str, path: Path) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                call = asyncio.create_task(store.create_ledger(ledger_of(1)))
                for _ in range(100):  # the loop goes on while the call waits for the lock
                    await asyncio.sleep(0)
                assert not call.done()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                other.execute("ROLLBACK")
            await store.create_ledger(ledger_of(2))

    asyncio.run(scenario())


def test_a_lock_that_is_never_released_is_reported(
    uri: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 20)

    async def scenario() -> None:
        async with await create(uri) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(MetadataUnavailableError, match=r"cluster\.db: busy"):
                    await store.create_ledger(ledger_of(1))
                other.execute("ROLLBACK")
            await store.create_ledger(ledger_of(1))

    asyncio.run(scenario())


def test_a_write_that_fails_half_way_is_rolled_back(uri: str) -> None:
    async def scenario() -> None:
        path = Path(uri.partition(":")[2])
        await sqlite.create(path)
        raw = await database.Database.open(path, sqlite.SCHEMA_VERSION, {})

        def fail(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM cluster")
            connection.execute("no such statement")

        with pytest.raises(MetadataError, match="syntax error"):
            await raw.write(fail)
        assert await raw.read(lambda c: c.execute("SELECT count(*) FROM cluster").fetchone()) == (
            1,
        )
        # A power cut after an answered commit loses nothing: 2 is FULL.
        assert await raw.read(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (2,)
        await raw.close()

    asyncio.run(scenario())
