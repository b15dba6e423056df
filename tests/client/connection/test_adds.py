"""Runs of adds on a connection: answers in pieces, in any order, late, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import NO_ENTRY, EntryId
from bkbox.client.connection.adds import AddFrames
from bkbox.client.connection.framed_connection import FramedConnection
from bkbox.protocol.effects import SendAdds
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import DigestType
from tests.client.connection.test_bookie_connection import ENTRIES, KEY, Pool, one_bookie
from tests.client.tinybookie import cluster
from tests.harness.waiting import until

pytestmark = pytest.mark.usefixtures("protocol")

Answers = list[tuple[list[int], RequestStatus, int]]


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def run_of(pool: Pool, first: int, count: int) -> AddFrames:
    payloads = [b"%d" % entry for entry in range(first, first + count)]
    packer = pool.packer(ENTRIES, KEY)
    return packer.pack(SendAdds(EntryId(first), NO_ENTRY, 0, payloads, False, ()))


def send(pool: Pool, frames: AddFrames) -> Answers:
    """The answers, as they come."""
    answers: Answers = []

    def answered(first: int, last: int, answer: RequestStatus, connection: int) -> None:
        answers.append(([*frames.entries[first : last + 1]], answer, connection))

    pool.add_run(pool.id, frames, answered)
    return answers


def test_a_run_is_answered_run_by_run(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            bookie.hung = True
            answers = send(pool, run_of(pool, 0, 10))
            await until(lambda: len(bookie.held) == 10)
            order = (0, 1, 2, 5, 4, 3, 9, 6, 7, 8)
            for place in order:
                bookie.held[place][0].answer(bookie.held[place][1])
            await until(lambda: sum(len(each[0]) for each in answers) == 10)
            assert [entry for entries, _, _ in answers for entry in entries] == [*order]
            assert {each[1:] for each in answers} == {(Code.EOK, 1)}
            assert sorted(bookie.ledgers[7].entries) == [*range(10)]

    go(test())


def test_parts_of_a_run(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            frames = run_of(pool, 5, 8)
            parts: list[range | tuple[int, ...]] = [range(7, 9), (5, 9, 10, 12), (6,), (11,)]
            answers = [send(pool, frames.of(part)) for part in parts]
            await until(lambda: all(sum(len(one[0]) for one in each) for each in answers))
            for part, each in zip(parts, answers, strict=True):
                assert [entry for entries, _, _ in each for entry in entries] == [*part]
            stored = bookie.ledgers[7].entries
            assert sorted(stored) == [*range(5, 13)]
            for entry in range(5, 13):
                assert ENTRIES.verify(stored[entry], entry).payload == b"%d" % entry

    go(test())


def test_what_is_left_of_a_run_times_out_and_late_answers_change_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, add_timeout_s=0.5) as (bookie, pool):
            bookie.hung = True
            answers = send(pool, run_of(pool, 0, 6))
            await until(lambda: len(bookie.held) == 6)
            for place in (0, 1, 4):
                bookie.held[place][0].answer(bookie.held[place][1])
            await until(lambda: len(answers) >= 4)
            assert answers == [
                ([0, 1], Code.EOK, 1),
                ([4], Code.EOK, 1),
                ([2, 3], NoResponse.TIMEOUT, 0),
                ([5], NoResponse.TIMEOUT, 0),
            ]
            again = send(pool, run_of(pool, 2, 2))
            await until(lambda: len(bookie.held) == 8)
            for place in (2, 3, 5):
                bookie.held[place][0].answer(bookie.held[place][1])
            await pool.ask_held(bookie, 0)
            assert again == []  # those were the late answers
            for place in (6, 7):
                bookie.held[place][0].answer(bookie.held[place][1])
            await until(lambda: sum(len(each[0]) for each in again) == 2)
            assert len(answers) == 4
            assert bookie.connections_made == 1

    go(test())


def test_a_lost_connection_answers_what_is_left_of_a_run(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path) as (bookie, pool):
            bookie.hung = True
            answers = send(pool, run_of(pool, 0, 4))
            await until(lambda: len(bookie.held) == 4)
            bookie.held[1][0].answer(bookie.held[1][1])
            await until(lambda: bool(answers))
            bookie.drop_connections()
            await until(lambda: len(answers) == 3)
            lost = NoResponse.CONNECTION_LOST
            assert answers == [([1], Code.EOK, 1), ([0], lost, 0), ([2, 3], lost, 0)]

    go(test())


def test_a_run_that_a_deaf_bookie_was_never_sent_times_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with one_bookie(tmp_path, add_timeout_s=0.5) as (bookie, pool):
            await pool.write(0)
            for connection in bookie.connections:
                connection.transport.pause_reading()
            payloads = [bytes(100_000)] * 10
            packer = pool.packer(ENTRIES, KEY)
            runs = [
                packer.pack(SendAdds(EntryId(first), NO_ENTRY, 0, payloads, False, ()))
                for first in range(1, 201, 10)
            ]
            answers = [send(pool, frames) for frames in runs]
            await until(lambda: all(answers))
            assert {each[1] for one in answers for each in one} == {NoResponse.TIMEOUT}
            for connection in bookie.connections:
                connection.transport.resume_reading()
            assert (await pool.write(999)).status is Code.EOK
            assert len(bookie.ledgers[7].entries) < 202  # what had not left is not sent

    go(test())


@pytest.mark.parametrize("digest", list(DigestType))
def test_runs_over_stripes(tmp_path: Path, digest: DigestType) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 5) as made, made.client() as client:
            async with await client.create_ledger(5, 3, 2, digest_type=digest) as writer:
                futures = [writer.append_nowait(b"%d" % n) for n in range(500)]
                assert [await future for future in futures] == [*range(500)]
                assert await writer.append_many(b"%d" % n for n in range(500, 1000)) == [
                    *range(500, 1000)
                ]
            reader = await client.open_ledger(writer.ledger_id)
            assert [entry.payload async for entry in reader.read()] == [
                b"%d" % n for n in range(1000)
            ]
            for position, bookie in enumerate(writer.metadata.last_fragment.ensemble):
                stored = made.of(bookie).ledgers[writer.ledger_id].entries
                assert sorted(stored) == [n for n in range(1000) if (position - n) % 5 < 3]

    go(test())


def test_many_writers_share_the_turns(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writers = [await client.create_ledger() for _ in range(5)]
            futures = [writer.append_nowait(b"%d" % n) for n in range(100) for writer in writers]
            assert [await future for future in futures] == [n for n in range(100) for _ in writers]
            for writer in writers:
                assert (await writer.close()).last_entry == 99

    go(test())


class Counting:
    """A transport whose writes are counted."""

    def __init__(self, transport: Any, writes: list[int]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, data: Any) -> None:
        self._writes.append(len(data))
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def test_a_turn_of_many_writers_is_one_write_to_each_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    connected = FramedConnection.connection_made

    def counted(stream: FramedConnection, transport: Any) -> None:
        connected(stream, Counting(transport, writes))  # type: ignore[arg-type]

    monkeypatch.setattr(FramedConnection, "connection_made", counted)

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writers = [await client.create_ledger() for _ in range(5)]
            for writer in writers:
                await writer.append(b"x")
                await made.every_copy(writer.ledger_id, 1)
            writes.clear()
            futures = [writer.append_nowait(b"%d" % n) for n in range(100) for writer in writers]
            await asyncio.gather(*futures)
            assert len(writes) == 3
            assert min(writes) > 500 * 4
            for writer in writers:
                await writer.close()

    go(test())


def test_what_was_appended_is_sent_before_the_ledger_is_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            future = writer.append_nowait(b"x")
            assert (await writer.close()).last_entry == 0
            assert await future == 0

    go(test())
