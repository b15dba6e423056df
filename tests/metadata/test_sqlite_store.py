"""Ledgers and cookies in the SQLite store: compare-and-set, alone and among several processes."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from metadata_peer import count_of, ledger_of, peer

from bkbox.errors import (
    EncodingError,
    HandleClosedError,
    LedgerExistsError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    VersionConflictError,
)
from bkbox.ids import MAX_ID, BookieId, EntryId, LedgerId
from bkbox.metadata import connect, create, database, sqlite
from bkbox.metadata.base import RANGE_LEDGERS_MAX
from bkbox.wire import ledger_metadata
from bkbox.wire.ledger import DigestType, Fragment, LedgerState

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


def test_a_ledger_from_creation_to_deletion(uri: str) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            ledger = await store.new_ledger_id()
            created = await store.create_ledger(ledger_of(ledger))
            assert created.version == 0
            assert created.value.ctime_ms > 0
            assert await store.read_ledger(ledger) == created

            closed = replace(
                created.value, state=LedgerState.CLOSED, last_entry=EntryId(41), length=1000
            )
            written = await store.write_ledger(closed, 0)
            assert (written.value, written.version) == (closed, 1)
            assert await store.read_ledger(ledger) == written

            await store.delete_ledger(ledger)
            await store.delete_ledger(ledger)
            with pytest.raises(NoSuchLedgerError, match=str(ledger)):
                await store.read_ledger(ledger)
            with pytest.raises(NoSuchLedgerError):
                await store.write_ledger(closed, 1)

    asyncio.run(scenario())


def test_all_that_metadata_holds_comes_back_after_a_restart(uri: str) -> None:
    rich = ledger_of(
        MAX_ID,
        fragments=(
            Fragment(EntryId(0), (BookieId("a:1"), BookieId("b:2"), BookieId("c:3"))),
            Fragment(EntryId(17), (BookieId("a:1"), BookieId("d:4"), BookieId("c:3"))),
        ),
        digest_type=DigestType.HMAC,
        custom=(("name", b"\x00\xff"),),
        ctime_ms=1234,
        store_ctime=True,
        creator_token=99,
    )
    text = ledger_of(1, format_version=2)

    async def write() -> None:
        async with await create(uri) as store:
            await store.create_ledger(rich)
            await store.create_ledger(text)

    async def read() -> None:
        async with await connect(uri) as store:
            assert (await store.read_ledger(rich.ledger_id)).value == rich
            found = (await store.read_ledger(text.ledger_id)).value
            assert found.format_version == 2
            written = await store.write_ledger(found, 0)
            assert written.value.format_version == 2, "an update keeps the version"

    asyncio.run(write())
    asyncio.run(read())


def test_creation_repeated_with_the_same_token_is_the_same_success(uri: str) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            mine = ledger_of(5, creator_token=77)
            first = await store.create_ledger(mine)
            assert await store.create_ledger(mine) == first
            with pytest.raises(LedgerExistsError, match="5"):
                await store.create_ledger(replace(mine, creator_token=78))

            written = await store.write_ledger(mine, 0)
            assert written.value.creator_token == 0
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(mine)

            await store.create_ledger(ledger_of(6))
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(ledger_of(6))

    asyncio.run(scenario())


def test_a_write_that_expects_another_version_changes_nothing(uri: str) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            await store.create_ledger(ledger_of(1))
            first = await store.write_ledger(ledger_of(1, custom=(("by", b"first"),)), 0)
            for wrong in (0, 2, -1):
                with pytest.raises(VersionConflictError, match="version 1"):
                    await store.write_ledger(ledger_of(1, custom=(("by", b"late"),)), wrong)
            assert await store.read_ledger(LedgerId(1)) == first

    asyncio.run(scenario())


def test_metadata_that_nobody_could_read_is_refused(uri: str) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            with pytest.raises(EncodingError):
                await store.create_ledger(ledger_of(1, fragments=()))
            await store.create_ledger(ledger_of(1))
            with pytest.raises(EncodingError):
                await store.write_ledger(ledger_of(1, ack_quorum=4), 0)
            assert (await store.read_ledger(LedgerId(1))).version == 0

    asyncio.run(scenario())


def test_stored_metadata_that_is_damaged_is_named(uri: str, path: Path) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            await store.create_ledger(ledger_of(7))
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE ledger SET metadata = x'00'")
            with pytest.raises(MetadataError, match=r"cluster\.db.*ledger 7"):
                await store.read_ledger(LedgerId(7))

    asyncio.run(scenario())


def test_ledger_ids_are_given_out_once(uri: str) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            first = await store.new_ledger_id()
            await store.create_ledger(ledger_of(first))
            await store.delete_ledger(first)
            await store.create_ledger(ledger_of(first + 1))  # chosen by a caller
            assert await store.new_ledger_id() == first + 2

    asyncio.run(scenario())


def test_ledger_ids_of_several_processes_differ(uri: str) -> None:
    async def prepare() -> None:
        await (await create(uri)).close()

    asyncio.run(prepare())
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(uri, "ids", 40)) for _ in range(3)]
        ids = [line for process in peers if process.stdout for line in process.stdout]
    assert len(ids) == len(set(ids)) == 120


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


def test_every_increment_of_four_processes_counts_once(uri: str) -> None:
    async def prepare() -> None:
        async with await create(uri) as store:
            await store.create_ledger(ledger_of(1))

    async def check() -> None:
        async with await connect(uri) as store:
            found = await store.read_ledger(LedgerId(1))
            assert (count_of(found.value), found.version) == (100, 100)

    asyncio.run(prepare())
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(uri, "increment", 1, 25)) for _ in range(4)]
        told = [int(line) for process in peers if process.stdout for line in process.stdout]
    assert sorted(told) == list(range(1, 101))
    asyncio.run(check())


def test_what_a_killed_process_was_answered_stays(uri: str) -> None:
    async def prepare() -> None:
        async with await create(uri) as store:
            await store.create_ledger(ledger_of(1))

    async def count() -> int:
        async with await connect(uri) as store:
            return count_of((await store.read_ledger(LedgerId(1))).value)

    asyncio.run(prepare())
    with peer(uri, "increment", 1, 1_000_000) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        answered = 20 + len(process.stdout.readlines())
    assert asyncio.run(count()) in (answered, answered + 1)


def test_cookies_are_compared_and_set(uri: str) -> None:
    async def scenario() -> None:
        async with await create(uri) as store:
            assert await store.read_cookie(BOOKIE) is None
            with pytest.raises(VersionConflictError, match="absent"):
                await store.write_cookie(BOOKIE, b"never", 0)
            first = await store.write_cookie(BOOKIE, b"one", None)
            assert (first.value, first.version) == (b"one", 0)
            with pytest.raises(VersionConflictError):
                await store.write_cookie(BOOKIE, b"again", None)
            second = await store.write_cookie(BOOKIE, b"two", 0)
            with pytest.raises(VersionConflictError):
                await store.write_cookie(BOOKIE, b"late", 0)
            assert second.version == 1
            assert await store.read_cookie(BOOKIE) == second
            other = await store.write_cookie(BookieId("b:2"), b"other", None)
            assert await store.cookies() == {BOOKIE: second, BookieId("b:2"): other}
            await store.delete_cookie(BOOKIE)
            await store.delete_cookie(BOOKIE)
            assert await store.cookies() == {BookieId("b:2"): other}

    asyncio.run(scenario())


def test_a_closed_store_says_so(uri: str) -> None:
    async def scenario() -> None:
        store = await create(uri)
        await store.close()
        await store.close()
        with pytest.raises(HandleClosedError):
            await store.instance_id()
        with pytest.raises(HandleClosedError):
            await store.new_ledger_id()

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
        raw = await database.Database.open(path, sqlite.SCHEMA_VERSION)

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
