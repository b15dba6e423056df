"""Lists of logs, on both stores: replaced by compare-and-set, watched, with elections of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from bkbox.errors import VersionConflictError
from bkbox.metadata import connect, init_cluster
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.versioned import Versioned


def on(uri: str, scenario: Callable[[LogLists, LogLists], Awaitable[None]]) -> None:
    async def go() -> None:
        async with await connect(uri) as one, await connect(uri) as other:
            await scenario(one.logs, other.logs)

    asyncio.run(asyncio.wait_for(go(), 60))


def test_a_list_is_replaced_by_who_saw_it(uri: str) -> None:
    async def scenario(one: LogLists, other: LogLists) -> None:
        assert await one.find("a") is None
        assert await one.names() == []
        assert await one.write("a", b"first", None) == 0
        with pytest.raises(VersionConflictError):
            await other.write("a", b"mine", None)
        found = await other.find("a", linearizable=True)
        assert found == Versioned(b"first", 0)
        assert await other.write("a", b"second", 0) == 1
        with pytest.raises(VersionConflictError):
            await one.write("a", b"late", 0)
        with pytest.raises(VersionConflictError):
            await one.write("b", b"not there", 0)
        assert await one.find("a", linearizable=True) == Versioned(b"second", 1)
        await one.write("b-2.x", b"", None)
        assert await other.names() == ["a", "b-2.x"]

    on(uri, scenario)


def test_of_many_at_once_one_wins(uri: str) -> None:
    async def scenario(one: LogLists, other: LogLists) -> None:
        await one.write("a", b"", None)

        async def attempt(lists: LogLists, number: int) -> bool:
            try:
                await lists.write("a", b"%d" % number, 0)
            except VersionConflictError:
                return False
            return True

        won = await asyncio.gather(*(attempt((one, other)[n % 2], n) for n in range(20)))
        assert won.count(True) == 1
        found = await one.find("a", linearizable=True)
        assert found == Versioned(b"%d" % won.index(True), 1)

    on(uri, scenario)


def test_a_list_is_watched(uri: str) -> None:
    async def scenario(one: LogLists, other: LogLists) -> None:
        watch = one.watch("a")
        assert await anext(watch) is None
        await other.write("a", b"first", None)
        assert await anext(watch) == Versioned(b"first", 0)
        await other.write("a", b"second", 0)
        assert await anext(watch) == Versioned(b"second", 1)
        await watch.aclose()  # type: ignore[attr-defined]

    on(uri, scenario)


def test_every_log_has_an_election_of_its_own(uri: str) -> None:
    async def scenario(one: LogLists, other: LogLists) -> None:
        mine, yours = one.candidacy("a", "me"), other.candidacy("a", "you")
        elsewhere = other.candidacy("b", "you")
        assert await mine.is_elected()
        assert await elsewhere.is_elected()
        assert not await yours.is_elected()
        assert (await other.leader("a"), await one.leader("b")) == ("me", "you")
        assert await one.leader("c") is None
        await mine.close()
        while not await yours.is_elected():
            await yours.changed(5.0)
        assert await one.leader("a") == "you"
        await yours.close()
        await elsewhere.close()
        assert await one.leader("a") is None
        assert await one.names() == [], "an election is no log"

    on(uri, scenario)


def test_a_file_of_before_there_were_logs_gets_the_table(tmp_path: Path) -> None:
    uri = f"sqlite:{tmp_path}/cluster.db"
    asyncio.run(init_cluster(uri))
    with closing(sqlite3.connect(tmp_path / "cluster.db")) as old, old:
        old.execute("DROP TABLE log")
        old.execute("DROP TABLE disk_record")
        old.execute("DROP TABLE ended")
        old.execute("PRAGMA user_version = 2")

    async def scenario(one: LogLists, other: LogLists) -> None:
        await one.write("a", b"first", None)
        assert await other.names() == ["a"]

    on(uri, scenario)
