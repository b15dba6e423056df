"""Logs over real connections: written, rolled, followed, taken over, truncated, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import EntryId
from bkbox.client.log import (
    Compression,
    LeaderElection,
    Log,
    LogFile,
    LogOptions,
    LogWriter,
    Position,
    Record,
    logs,
)
from bkbox.client.log import sequences as sequences_module
from bkbox.client.log import writer as writer_module
from bkbox.client.log.ledger_list import encode
from bkbox.errors import (
    CompressionError,
    ConfigError,
    EncodingError,
    EntryTooLargeError,
    HandleClosedError,
    InvalidIdError,
    LogTruncatedError,
    MetadataError,
    NoSuchLogError,
    NotLeaderError,
    SequenceError,
    WindowFullError,
)
from bkbox.wire.metadata.ledger import LedgerState
from tests.client.tinybookie import cluster

SMALL = LogOptions(roll_bytes=2_000, batch_bytes=200)
"""A ledger has about ten entries."""


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


async def append_all(writer: LogWriter, found: list[bytes]) -> list[Position]:
    """Twenty at a time; a ledger that is full then is left before it goes on."""
    positions = []
    for start in range(0, len(found), 20):
        positions += await writer.append_many(found[start : start + 20])
        while writer._rolling._preparing is not None:
            await asyncio.sleep(0.001)
    return positions


async def payloads(records: Any) -> list[bytes]:
    return [record.payload async for record in records]


def test_what_is_appended_is_read_in_order_over_ledgers(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            async with await log.open_writer(SMALL) as writer:
                assert (writer.name, writer.epoch) == ("orders", 1)
                first = await writer.append(b"first", timestamp_ms=5)
                positions = await append_all(writer, numbered(500))
                future = writer.append_nowait(b"last")
                await writer.flush()
                last = future.result()
            assert sorted([first, *positions, last]) == [first, *positions, last]
            found = [record async for record in log]
            assert [each.payload for each in found] == [b"first", *numbered(500), b"last"]
            assert [each.position for each in found] == [first, *positions, last]
            assert found[0].timestamp_ms == 5
            info = await log.info()
            assert len(info.ledgers) > 5
            assert info.start < first
            assert last < info.end
            for ledger in info.ledgers:
                assert (await client.metadata(ledger)).state is LedgerState.CLOSED
                assert dict((await client.metadata(ledger)).custom) == {"bkbox.log": b"orders"}
            assert await payloads(log.read(positions[10], positions[13])) == numbered(3, 10)
            assert await payloads(log.read(positions[499].after)) == [b"last"]
            assert await payloads(log.read(last.after)) == []
            assert [each.payload for each in await log.last(3)] == [*numbered(2, 498), b"last"]
            assert len(await log.last(1000)) == 502
            assert await log.last(0) == []
            assert await logs(client) == ["orders"]

    go(test())


@pytest.mark.parametrize("kind", list(Compression))
def test_records_share_entries_which_may_be_compressed(tmp_path: Path, kind: Compression) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            async with await log.open_writer(LogOptions(compression=kind, linger_s=0.01)) as writer:
                positions = await writer.append_many([b"the same again" for _ in range(1000)])
            assert len({position.entry_id for position in positions}) == 1
            assert [position.record for position in positions] == list(range(1000))
            assert await payloads(log.read()) == [b"the same again"] * 1000
            size = (await client.metadata(positions[0].ledger_id)).length
            assert (size < 1000) == (kind is not Compression.NONE)

    go(test())


def test_tail_follows_over_rolls_and_writers(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client, made.client() as other:
            log, theirs = Log(client, "orders"), Log(other, "orders")
            writer = await log.open_writer(SMALL)
            seen: asyncio.Queue[Record] = asyncio.Queue()

            async def follow() -> None:
                async with aclosing(theirs.tail()) as records:
                    async for record in records:
                        seen.put_nowait(record)

            async def expect(expected: list[bytes]) -> None:
                for payload in expected:
                    assert (await asyncio.wait_for(seen.get(), 10)).payload == payload

            following = asyncio.create_task(follow())
            await writer.append(b"alone")
            await expect([b"alone"])  # also the last one: the writer tells it when it pauses
            await append_all(writer, numbered(300))
            await expect(numbered(300))
            await writer.abort()
            async with await theirs.open_writer(SMALL) as writer:
                await append_all(writer, numbered(100, 300))
            await expect(numbered(100, 300))
            await log.delete()
            with pytest.raises(NoSuchLogError):
                await following
            assert seen.empty()

    go(test())


def test_a_second_writer_ends_the_first(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client, made.client() as other:
            first = await Log(client, "orders").open_writer(SMALL)
            await first.append_many(numbered(100))
            second = await Log(other, "orders").open_writer(SMALL)
            assert second.epoch == first.epoch + 1
            with pytest.raises(NotLeaderError, match="orders") as refusal:
                await first.append(b"too late")
            assert refusal.value.may_have_taken_effect
            with pytest.raises(NotLeaderError):
                first.append_nowait(b"later still")
            with pytest.raises(NotLeaderError):
                await first.flush()
            with pytest.raises(NotLeaderError):
                await first.close()
            await first.abort()
            await second.append(b"mine")
            await second.close()
            assert await payloads(Log(client, "orders").read()) == [*numbered(100), b"mine"]

    go(test())


def test_would_be_leaders_only_slow_each_other_down(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            acked: list[tuple[Position, bytes]] = []

            async def lead(client: Any, name: str) -> None:
                for opening in range(8):
                    try:
                        async with await Log(client, "orders").open_writer(SMALL) as writer:
                            for number in range(30):
                                payload = f"{name} {opening} {number}".encode()
                                acked.append((await writer.append(payload), payload))
                    except NotLeaderError:
                        continue

            await asyncio.gather(lead(one, "one"), lead(two, "two"))
            found = {each.position: each.payload async for each in Log(one, "orders").read()}
            assert all(found.get(position) == payload for position, payload in acked)
            assert len(acked) >= 30

    go(test())


def test_once_and_only_once_over_writers_rolls_and_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "STATE_EVERY_BYTES", 300)

    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            expected = numbered(60)
            known: Position | None = None
            for round_ in range(5):
                writer = await log.open_writer(SMALL)
                assert writer.last_sequence("p") == (None if round_ == 0 else 10 * round_ + 9)
                begin = 10 * round_
                if round_:
                    assert await writer.append_once(b"not this", "p", begin + 9) == known
                    assert await writer.append_once(b"nor this", "p", begin + 3) is None
                positions = await asyncio.gather(
                    *(
                        writer.append_once(expected[number], "p", number)
                        for number in range(begin, begin + 20)
                    )
                )
                assert positions[-1] is not None
                known = positions[-1]
                same = await asyncio.gather(
                    writer.append_once(b"twice", "q", round_),
                    writer.append_once(b"twice", "q", round_),
                )
                assert same[0] == same[1] is not None
                await append_all(writer, numbered(50))
                await log.truncate(await log.end())
                await (writer.abort() if round_ % 2 else writer.close())
                await writer.abort()
            async with await log.open_writer(SMALL) as writer:
                assert (writer.last_sequence("p"), writer.last_sequence("q")) == (59, 4)
                assert writer.last_sequence("nobody") is None
                for wrong in (("", 1), ("p", -1), ("x" * 256, 1)):
                    with pytest.raises(SequenceError):
                        await writer.append_once(b"", *wrong)

    go(test())


def test_truncation_deletes_what_nobody_needs(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            async with await log.open_writer(SMALL) as writer:
                positions = await append_all(writer, numbered(400))
                slow = log.tail()
                assert (await anext(slow)).payload == b"record 0"
                before = await log.info()
                left = await log.truncate(positions[300])
                assert left.start == positions[300]
                assert len(left.ledgers) < len(before.ledgers)
                for ledger in set(before.ledgers) - set(left.ledgers):
                    assert ledger not in [each async for each in client.ledgers()]
                assert await payloads(log.read()) == numbered(100, 300)
                with pytest.raises(LogTruncatedError, match=str(positions[300])):
                    await payloads(log.read(positions[299]))
                with pytest.raises(LogTruncatedError):
                    async with aclosing(slow):
                        async for _ in slow:
                            pass
                with pytest.raises(InvalidIdError, match="behind the end"):
                    await log.truncate(Position(left.ledgers[-1], EntryId(10**6)))
                one_more = await writer.append(b"one more")  # it has not noticed
                await log.truncate(one_more.after)
                assert await payloads(log.read()) == []
                await writer.append(b"and one more")
            assert await payloads(log.read()) == [b"and one more"]

    go(test())


def test_a_log_that_is_deleted_and_made_anew(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            with pytest.raises(NoSuchLogError, match="orders"):
                await log.info()
            with pytest.raises(NoSuchLogError):
                await payloads(log.read())
            writer = await log.open_writer(SMALL)
            old = await append_all(writer, numbered(100))
            await log.delete()
            assert [each async for each in client.ledgers()] == []
            assert await logs(client) == []
            with pytest.raises(NotLeaderError):
                await writer.append(b"too late")
            await writer.abort()
            async with await log.open_writer(SMALL) as writer:
                new = await writer.append(b"new")
                assert writer.epoch == 3, "the deletion counts as one"
            assert new > old[-1]
            assert await payloads(log.read()) == [b"new"]
            with pytest.raises(LogTruncatedError):
                await payloads(log.read(old[0]))

    go(test())


def test_misuse_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            with pytest.raises(InvalidIdError):
                Log(client, "a/b")
            with pytest.raises(ConfigError, match=r"roll_bytes.*\n?.*window_bytes"):
                LogOptions(roll_bytes=0, window_bytes=-1)
            log = Log(client, "orders")
            writer = await log.open_writer(replace(SMALL, window_bytes=1000))
            with pytest.raises(EntryTooLargeError, match="orders"):
                await writer.append(bytes(6 << 20))
            futures = [writer.append_nowait(bytes(400)) for _ in range(3)]
            with pytest.raises(WindowFullError, match="orders"):
                writer.append_nowait(b"x")
            await asyncio.gather(*futures)
            await writer.close()
            await writer.close()
            with pytest.raises(HandleClosedError, match="orders"):
                await writer.append(b"after the end")
            with pytest.raises(HandleClosedError):
                await writer.append_once(b"after the end", "w", 1)
            await writer.abort()
            found = await made.store.logs.find("orders")
            assert found is not None
            await made.store.logs.write(
                "orders", found.value.replace(b'"instance":"', b'"instance":"x'), found.version
            )
            with pytest.raises(MetadataError, match="made anew"):
                await log.open_writer(SMALL)
            await made.store.logs.write("orders", b"nonsense", found.version + 1)
            with pytest.raises(MetadataError, match="orders"):
                await log.info()

    go(test())


def test_a_ledger_that_is_no_logs(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            async with await log.open_writer(SMALL) as writer:
                await writer.append(b"fine")
            async with await client.create_ledger() as stranger:
                await stranger.append(b"hello")
            found = await log._stored.read()
            await made.store.logs.write(
                "orders", encode(found.value.rolled(stranger.ledger_id)), found.version
            )
            with pytest.raises(EncodingError, match=f"ledger {stranger.ledger_id}"):
                await payloads(log.read())

    go(test())


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("bkbox.client.log.compression.importlib.import_module", gone)
    with pytest.raises(CompressionError, match=r"lz4.*bkbox\[logs\]"):
        LogOptions(compression=Compression.LZ4)


def test_writer_ids_that_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences_module, "WRITERS_MAX", 2)

    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client() as client,
            await Log(client, "orders").open_writer() as writer,
        ):
            for name in ("a", "b", "c"):
                await writer.append_once(b"", name, 7)
            assert [writer.last_sequence(name) for name in ("a", "b", "c")] == [None, 7, 7]

    go(test())


def test_ledgers_follow_by_age_too_and_a_cancelled_append_hurts_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            async with await log.open_writer(LogOptions(roll_s=0.1)) as writer:
                first = await writer.append(b"a")
                append = asyncio.create_task(writer.append(b"b"))
                await asyncio.sleep(0)
                append.cancel()
                while (await writer.append(b"c")).ledger_id == first.ledger_id:
                    await asyncio.sleep(0.02)
            found = await payloads(log.read())
            assert found[0] == b"a"
            assert set(found[1:]) <= {b"b", b"c"}

    go(test())


def test_a_log_reads_as_a_file(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            log = Log(client, "orders")
            async with await log.open_writer(SMALL) as writer:
                positions = await writer.append_many([b"one\ntw", b"o\n", b"", b"three\nfour"])
            async with LogFile(log.read()) as file:
                assert file.position is None
                assert await file.readline() == b"one\n"
                assert file.position == positions[0]
                assert await file.read(2) == b"tw"
                assert [line async for line in file] == [b"o\n", b"three\n", b"four"]
                assert await file.read() == await file.read(5) == await file.readline() == b""
            async with LogFile(log.read()) as file:
                assert await file.read() == b"one\ntwo\nthree\nfour"

    go(test())


def test_an_election_keeps_would_be_writers_apart(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with LeaderElection(client, "orders", "me") as mine:
                assert await mine.leader() is None
                await mine.won()
                assert await mine.leader() == "me"
                async with LeaderElection(client, "orders", "you") as yours:
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await yours.won()
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await mine.lost()
            async with LeaderElection(client, "orders", "you") as yours:
                await yours.won()
                assert await yours.leader() == "you"

    go(test())
