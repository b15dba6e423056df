"""Registrations: leases with real processes behind them, some of which are killed or stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId
from bkbox.errors import OperatorError
from bkbox.metadata.base import RegisteredBookie
from bkbox.metadata.liveness import Process, boottime_ms, this_process
from bkbox.metadata.sqlite import database, registration
from bkbox.metadata.sqlite.registration import LEASE_MS, Row, SqliteRegistration
from bkbox.metadata.sqlite.store import SqliteStore, create
from bkbox.wire.metadata.service_info import rpc_service_info
from tests.metadata.metadata_peer import peer
from tests.metadata.until import until_bookies

BOOKIE = BookieId("127.0.0.1:3181")
INFO = rpc_service_info("127.0.0.1", 3181)
PEER = RegisteredBookie(False, rpc_service_info("peer", 3181))


@asynccontextmanager
async def store_at(path: Path) -> AsyncIterator[SqliteStore]:
    await create(path)
    async with await SqliteStore.open(path) as store:
        yield store


def put_row(path: Path, process: Process, expires_ms: int) -> None:
    """A registration as another process would have left it."""
    row = Row(BOOKIE, 0, b"", "other", expires_ms, *astuple(process))
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("INSERT OR REPLACE INTO registration VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def expiry_of(path: Path) -> int | None:
    with closing(sqlite3.connect(path)) as other:
        row = other.execute("SELECT expires_ms FROM registration").fetchone()
    return None if row is None else int(row[0])


def test_a_living_process_keeps_its_id_and_a_killed_one_loses_it_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        async with store_at(path) as store:
            with peer(f"sqlite:{path}", "register", BOOKIE) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "registered\n"
                assert await store.bookies() == {BOOKIE: PEER}
                with pytest.raises(OperatorError, match=f"process {process.pid}, which is alive"):
                    await store.register(BOOKIE, INFO, read_only=False)

                process.send_signal(signal.SIGKILL)
                process.wait()
                lease = expiry_of(path)
                assert lease is not None
                assert lease > boottime_ms(), "else the lease and not the death was seen"
                assert await store.bookies() == {}
                await store.register(BOOKIE, INFO, read_only=False)
                assert await store.bookies() == {BOOKIE: RegisteredBookie(False, INFO)}

    asyncio.run(scenario())


def test_a_process_that_hangs_is_gone_when_its_lease_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        later = 0
        async with store_at(path):
            pass
        async with await SqliteStore.open(path, boottime_ms=lambda: boottime_ms() + later) as store:
            with peer(f"sqlite:{path}", "register", BOOKIE) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "registered\n"
                process.send_signal(signal.SIGSTOP)
                assert await store.bookies() == {BOOKIE: PEER}
                later = LEASE_MS
                assert await store.bookies() == {}
                await store.register(BOOKIE, INFO, read_only=False)
                assert await store.bookies() == {BOOKIE: RegisteredBookie(False, INFO)}

    asyncio.run(scenario())


def test_a_row_of_an_earlier_boot_is_nobodys(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        async with store_at(path) as store:
            put_row(path, replace(this_process(), boot_id="earlier"), boottime_ms() + 10**9)
            assert await store.bookies() == {}
            await store.register(BOOKIE, INFO, read_only=False)
            assert BOOKIE in await store.bookies()

    asyncio.run(scenario())


def elsewhere() -> Process:
    """A process in another container, as it seems from here."""
    here = this_process()
    return replace(here, pid_namespace=here.pid_namespace + 1, pid=1)


def test_the_lease_of_another_container_is_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        await create(path)
        put_row(path, elsewhere(), 1020)
        now = 1000
        async with await SqliteStore.open(path, boottime_ms=lambda: now) as store:
            attempt = asyncio.create_task(store.register(BOOKIE, INFO, read_only=False))
            await asyncio.wait([attempt], timeout=0.1)
            assert not attempt.done(), "the lease has not ended"
            now = 1020
            await attempt
            assert await store.bookies() == {BOOKIE: RegisteredBookie(False, INFO)}

    asyncio.run(scenario())


def test_a_lease_that_another_container_renews_is_respected(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        await create(path)
        put_row(path, elsewhere(), 1020)
        async with await SqliteStore.open(path, boottime_ms=lambda: 1000) as store:
            attempt = asyncio.create_task(store.register(BOOKIE, INFO, read_only=False))
            await asyncio.wait([attempt], timeout=0.1)
            assert not attempt.done()
            put_row(path, elsewhere(), 1020 + LEASE_MS)
            with pytest.raises(OperatorError, match="alive"):
                await attempt
            assert expiry_of(path) == 1020 + LEASE_MS

    asyncio.run(scenario())


def test_a_row_that_was_lost_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RENEWAL_INTERVAL_S", 0.01)

    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        async with store_at(path) as store:
            await store.register(BOOKIE, INFO, read_only=True)
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("DELETE FROM registration")
            await until_bookies(store, {BOOKIE: RegisteredBookie(True, INFO)}.__eq__)

    asyncio.run(scenario())


def test_a_bookie_whose_renewal_has_a_fault_knows_that_it_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration, "RENEWAL_INTERVAL_S", 0.01)

    def fault(*_: object) -> None:
        raise ZeroDivisionError("of no use")

    async def scenario() -> None:
        async with store_at(tmp_path / "cluster.db") as store:
            mine = await store.register(BOOKIE, INFO, read_only=False)
            monkeypatch.setattr(SqliteRegistration, "_claim", fault)
            async with asyncio.timeout(60):
                while not mine.unregistered_s():
                    await asyncio.sleep(0.01)
            assert "the registration has ended, which is a fault" in caplog.text

    asyncio.run(scenario())


def test_a_store_that_is_not_there_for_a_while_raises_nothing_into_the_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration, "RENEWAL_INTERVAL_S", 0.01)
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 1)
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        async with store_at(path) as store:
            mine = await store.register(BOOKIE, INFO, read_only=False)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                await mine.set_read_only(True)
                assert await store.bookies() == {BOOKIE: RegisteredBookie(False, INFO)}
                other.execute("ROLLBACK")
            assert "is not renewed" in caplog.text
            await until_bookies(store, lambda found: found[BOOKIE].read_only)

    asyncio.run(scenario())


def test_who_lost_the_id_says_so_and_leaves_it_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registration, "RENEWAL_INTERVAL_S", 3600)

    async def scenario() -> None:
        path = tmp_path / "cluster.db"
        async with store_at(path) as store:
            mine = await store.register(BOOKIE, INFO, read_only=False)
            ends = boottime_ms() + LEASE_MS
            put_row(path, elsewhere(), ends)
            await mine.set_read_only(True)
            assert "was taken by process 1" in caplog.text
            await mine.close()
            assert expiry_of(path) == ends

    asyncio.run(scenario())
