"""Watches see what this and other processes do, outlive an outage, and end with their store."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import HandleClosedError, MetadataError
from bkbox.metadata import connect, create
from bkbox.metadata.base import MetadataStore
from bkbox.metadata.sqlite.watch import Changes, watch
from tests.metadata.metadata_peer import ledger_of, peer
from tests.metadata.until import until_bookies

ONE = LedgerId(1)
BOOKIE = BookieId("b:1")


@asynccontextmanager
async def store_at(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with await create(f"sqlite:{tmp_path}/cluster.db") as store:
        yield store


def test_a_bookie_that_is_killed_vanishes_though_nothing_is_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_at(tmp_path) as store:
            with peer(f"sqlite:{tmp_path}/cluster.db", "register", BOOKIE) as process:
                await until_bookies(store, lambda found: list(found) == [BOOKIE])
                process.send_signal(signal.SIGKILL)
                await until_bookies(store, lambda found: not found)

    asyncio.run(scenario())


def test_watches_share_one_poll_and_end_with_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with store_at(tmp_path) as store:
            watches = [store.watch_ledger(LedgerId(number)) for number in range(20)]
            for watch in watches:
                await anext(watch)
            polls = [
                task
                for task in asyncio.all_tasks()
                if task.get_name() == "the watch of the metadata store"
            ]
            assert len(polls) == 1
            waiting = [asyncio.ensure_future(anext(watch, "ended")) for watch in watches]
            await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == ["ended"] * 20
        assert polls[0].done()
        with pytest.raises(HandleClosedError):
            await anext(store.watch_ledger(ONE))
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_a_watch_outlives_an_outage(tmp_path: Path) -> None:
    path, away = tmp_path / "cluster.db", tmp_path / "away.db"

    async def scenario() -> None:
        async with store_at(tmp_path) as store:
            watch = store.watch_ledger(ONE)
            assert await anext(watch) is None
            path.rename(away)
            waiting = asyncio.ensure_future(anext(watch))
            with pytest.raises(MetadataError):
                await store.read_ledger(ONE)
            await asyncio.sleep(0.15)  # some polls fail
            assert not waiting.done()
            away.rename(path)
            async with await connect(f"sqlite:{path}") as other:
                created = await other.create_ledger(ledger_of(1))
            assert await waiting == created

    asyncio.run(scenario())


def test_a_value_is_read_once_for_each_change() -> None:
    async def scenario() -> None:
        polls = reads = 0
        enough = asyncio.Event()

        async def mark() -> int:
            nonlocal polls
            polls += 1
            if polls == 6:
                enough.set()
            return polls // 3  # 0 0 1 1 1 2

        async def read() -> int:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0)
            return 7

        changes = Changes(mark)
        values = watch(changes, read)
        assert await anext(values) == 7
        waiting = asyncio.ensure_future(anext(values))
        await enough.wait()
        assert not waiting.done(), "the value is the same"
        assert 1 < reads <= 4, "at first, for the first mark, and for two changes of it"
        waiting.cancel()
        await asyncio.wait([waiting])
        await changes.close()

    asyncio.run(scenario())
