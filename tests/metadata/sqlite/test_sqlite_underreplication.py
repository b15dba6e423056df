"""What is special about re-replication in the SQLite store: leases, and files of before there were any."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from bkbox.base.ids import LedgerId
from bkbox.errors import MetadataError
from bkbox.metadata import connect, create
from bkbox.metadata.liveness import Process, boottime_ms, this_process
from bkbox.metadata.sqlite.store import SqliteStore
from tests.metadata.metadata_peer import ledger_of

LEDGER = LedgerId(7)


def put_lock(path: Path, process: Process, expires_ms: int) -> None:
    """A lock as another process would have left it."""
    row = (f"ledger:{LEDGER}", "other", "nonce", expires_ms, *astuple(process))
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


@pytest.mark.parametrize("is_seen", [True, False], ids=["hangs", "in another container"])
def test_a_lock_that_is_not_renewed_ends(tmp_path: Path, is_seen: bool) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        await (await create(f"sqlite:{path}")).close()
        now_ms = [boottime_ms()]
        async with await SqliteStore.open(path, boottime_ms=lambda: now_ms[0]) as store:
            holder = this_process()
            if not is_seen:
                holder = replace(holder, pid_namespace=1, pid=1)
            put_lock(path, holder, now_ms[0] + 500)
            tree = store.under_replication
            assert await tree.lock(LEDGER, "host") is None
            now_ms[0] += 501
            lock = await tree.lock(LEDGER, "host")
            assert lock is not None
            await tree.unlock(lock)

    asyncio.run(scenario())


def test_a_lock_is_renewed_for_as_long_as_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("bkbox.metadata.sqlite.leases.RENEWAL_INTERVAL_S", 0.05)
        path = tmp_path / "cluster.db"
        await (await create(f"sqlite:{path}")).close()
        now = [1_000]
        async with await SqliteStore.open(path, boottime_ms=lambda: now[0]) as store:
            tree = store.under_replication
            lock = await tree.lock(LEDGER, "host")
            assert lock is not None
            for _ in range(4):
                now[0] += 6_000  # half its time and more
                await asyncio.sleep(0.3)
                assert await tree.locked() == {LEDGER}
            await tree.unlock(lock)
            await asyncio.sleep(0.3)
            assert not await tree.locked(), "nobody brings back what was given back"

    asyncio.run(scenario())


def test_a_lock_that_was_taken_over_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("bkbox.metadata.sqlite.leases.RENEWAL_INTERVAL_S", 0.05)
        path = tmp_path / "cluster.db"
        async with await create(f"sqlite:{path}") as store:
            tree = store.under_replication
            await tree.mark(LEDGER, ["a:1"], 1)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            put_lock(path, this_process(), boottime_ms() + 60_000)
            await asyncio.sleep(0.3)
            assert await tree.holder(LEDGER) == "other"
            assert not await tree.finish(task)
            assert await tree.find(LEDGER) is not None
            assert await tree.holder(LEDGER) == "other"

    asyncio.run(scenario())


def test_closing_the_store_gives_locks_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        uri = f"sqlite:{tmp_path}/cluster.db"
        async with await create(uri) as store:
            assert await store.under_replication.lock(LEDGER, "host") is not None
            assert await store.under_replication.candidacy("a:1").is_elected()
        async with await connect(uri) as store:
            assert not await store.under_replication.locked()
            assert await store.under_replication.auditor() is None

    asyncio.run(scenario())


def test_a_file_of_before_there_was_re_replication_is_taken_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        uri = f"sqlite:{path}"
        async with await create(uri) as store:
            await store.create_ledger(ledger_of(7))
        with closing(sqlite3.connect(path)) as old, old:
            for table in (
                "underreplicated",
                "setting",
                "lease",
                "rest",
                "log",
                "disk_record",
                "ended",
            ):
                old.execute(f"DROP TABLE {table}")
            old.execute("PRAGMA user_version = 1")
        stores = await asyncio.gather(*(connect(uri) for _ in range(4)))
        for number, store in enumerate(stores):
            await store.under_replication.mark(LEDGER, [f"a:{number}"], 1)
            assert (await store.read_ledger(LEDGER)).version == 0
        found = await stores[0].under_replication.find(LEDGER)
        assert found is not None
        assert found.replicas == ("a:0", "a:1", "a:2", "a:3")
        for store in stores:
            await store.close()

    asyncio.run(scenario())


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        async with await create(f"sqlite:{path}") as store:
            tree = store.under_replication
            await tree.mark(LEDGER, ["a:1"], 1)
            await tree.set_recovery_delay_s(5)
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE underreplicated SET mark = x'ff'")
                other.execute("UPDATE setting SET value = x'ff'")
            with pytest.raises(MetadataError, match=r"cluster\.db.*ledger 7"):
                await tree.find(LEDGER)
            with pytest.raises(MetadataError, match=r"cluster\.db"):
                await tree.recovery_delay()

    asyncio.run(scenario())
