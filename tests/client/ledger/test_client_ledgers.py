"""Ledgers over healthy bookies: create, append, read, close, open, recover, tail, delete, list."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import bkbox
from bkbox.errors import (
    EntryTooLargeError,
    HandleClosedError,
    InvalidIdError,
    LedgerClosedError,
    LedgerFencedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    QuorumSizeError,
    UnauthorizedError,
    WindowFullError,
)
from bkbox.wire.metadata.ledger import DigestType, LedgerState
from tests.client.tinybookie import Cluster, cluster

pytestmark = pytest.mark.usefixtures("protocol")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def payloads(entries: Any) -> list[bytes]:
    return [entry.payload async for entry in entries]


@pytest.mark.parametrize("digest", list(DigestType))
def test_what_is_appended_is_read_back(tmp_path: Path, digest: DigestType) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger(
                digest_type=digest, password=b"pw", custom={"app": b"test"}
            ) as writer:
                assert [await writer.append(b"a"), await writer.append(b"bc")] == [0, 1]
                assert await writer.append_many([b"", b"def"]) == [2, 3]
                assert (writer.last_add_confirmed, writer.length) == (3, 6)
            found = await client.metadata(writer.ledger_id)
            assert (found.state, found.last_entry, found.length) == (LedgerState.CLOSED, 3, 6)
            assert found.custom == (("app", b"test"),)
            reader = await client.open_ledger(writer.ledger_id, b"pw")
            entries = [entry async for entry in reader.read()]
            assert [(e.entry_id, e.length, e.payload) for e in entries] == [
                (0, 1, b"a"),
                (1, 3, b"bc"),
                (2, 3, b""),
                (3, 6, b"def"),
            ]
            assert await payloads(reader.read(1, 2)) == [b"bc", b""]
            assert (await reader.read_entry(3)).payload == b"def"
            for bookie in made.bookies.values():  # closing waits for every copy
                assert sorted(bookie.ledgers[writer.ledger_id].entries) == [0, 1, 2, 3]
            entry = await reader.read_entry(1)
            stored = made.of("bookie-0").ledgers[writer.ledger_id].entries[1]
            assert (
                reader.digests.package(entry.entry_id, entry.lac, entry.length, entry.payload)
                == stored
            )

    go(test())


def test_many_entries_striped_over_more_bookies(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 5) as made, made.client() as client:
            sent = [bytes([n % 251]) * (n * 37 % 5000) for n in range(1000)]
            async with await client.create_ledger(5, 3, 2) as writer:
                assert await writer.append_many(sent) == list(range(1000))
            reader = await client.open_ledger(writer.ledger_id)
            assert await payloads(reader.read()) == sent
            held = [len(b.ledgers[writer.ledger_id].entries) for b in made.bookies.values()]
            assert held == [600] * 5

    go(test())


def test_the_module_connects_by_uri(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, bkbox.connect(made.uri, add_timeout_s=2) as client:
            async with await client.create_ledger() as writer:
                await writer.append(b"hello")
            reader = await client.open_ledger(writer.ledger_id)
            assert await payloads(reader.read()) == [b"hello"]
            with pytest.raises(TypeError):
                async with bkbox.connect(made.uri, no_such_option=1):
                    pass
        with pytest.raises(HandleClosedError):
            await client.metadata(0)

    go(test())


def test_importing_the_package_loads_no_client() -> None:
    code = "import sys, bkbox; sys.exit('bkbox.client' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bkbox.nothing


def test_sizes_that_do_not_fit(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(frame_bytes_max=1000) as client:
            with pytest.raises(QuorumSizeError, match=r"3.*4.*2"):
                await client.create_ledger(3, 4, 2)
            with pytest.raises(
                NotEnoughBookiesError, match=r"4 bookies.*3 are.*bookie-0, bookie-1"
            ):
                await client.create_ledger(4)
            assert [n async for n in client.ledgers()] == []
            with pytest.warns(UserWarning, match="ack quorum 1"):
                await (await client.create_ledger(3, 3, 1)).close()
            async with await client.create_ledger() as writer:
                largest = 1000 - (60 if protocol == "v2" else 160) - 4
                with pytest.raises(EntryTooLargeError, match="1001"):
                    await writer.append(bytes(largest + 1))
                assert await writer.append(bytes(largest)) == 0

    go(test())


def test_ledgers_are_listed_and_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            made_ids = []
            for _ in range(3):
                async with await client.create_ledger() as writer:
                    made_ids.append(writer.ledger_id)
            assert [n async for n in client.ledgers()] == made_ids
            await client.delete_ledger(made_ids[1])
            await client.delete_ledger(made_ids[1])
            assert [n async for n in client.ledgers()] == [made_ids[0], made_ids[2]]
            with pytest.raises(NoSuchLedgerError):
                await client.open_ledger(made_ids[1])
            with pytest.raises(InvalidIdError):
                await client.delete_ledger(-1)

    go(test())


async def _write_and_leave_open(made: Cluster, count: int) -> int:
    async with made.client() as client:
        writer = await client.create_ledger(password=b"pw")
        await writer.append_many([b"%d" % n for n in range(count)])
        if count:
            await made.every_copy(writer.ledger_id, count)
        await writer.abort()
        return writer.ledger_id


def test_an_open_ledger_is_read_as_far_as_it_is_confirmed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            for n in range(5):
                await writer.append(b"%d" % n)
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            assert await reader.read_last_add_confirmed() == 3  # entry 4 is confirmed by the next
            assert await payloads(reader.read()) == [b"0", b"1", b"2", b"3"]
            with pytest.raises(NoSuchEntryError, match="past what is confirmed: entry 3"):
                await reader.read_entry(4)
            with pytest.raises(NoSuchEntryError):
                await payloads(reader.read(0, 4))
            await writer.append(b"5")
            assert (await reader.read_entry(4)).payload == b"4"
            assert not reader.is_closed
            await writer.close()
            assert await payloads(reader.read(4)) == [b"4", b"5"]
            assert reader.is_closed
            with pytest.raises(NoSuchEntryError, match="past its end: entry 5"):
                await reader.read_entry(6)
            with pytest.raises(InvalidIdError):
                await reader.read_entry(-1)
            assert await payloads(reader.read(6)) == []

    go(test())


def test_recovery_closes_at_the_last_entry(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _write_and_leave_open(made, 10)
            reader = await client.open_ledger(ledger, b"pw")
            assert reader.is_closed
            assert reader.last_add_confirmed == 9
            assert await payloads(reader.read()) == [b"%d" % n for n in range(10)]
            assert (await client.recover(ledger)).length == 10

    go(test())


def test_recoveries_at_once_agree(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            ledger = await _write_and_leave_open(made, 20)
            found = await asyncio.gather(*(each.recover(ledger) for each in (one, two, one, two)))
            assert {(each.last_entry, each.length) for each in found} == {(19, 30)}

    go(test())


def test_recovery_fences_the_writer(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            writer = await one.create_ledger()

            async def use() -> None:
                async with writer:
                    await writer.append(b"mine")
                    assert (await two.recover(writer.ledger_id)).last_entry == 0
                    await writer.append(b"too late")

            with pytest.raises(LedgerFencedError, match=f"ledger {writer.ledger_id}.*EFENCED"):
                await use()
            with pytest.raises(LedgerFencedError):
                await writer.append(b"still too late")

    go(test())


def test_a_writer_that_only_closes_learns_of_the_recovery(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            writer = await one.create_ledger()
            future = writer.append_nowait(b"mine")
            await future
            lost = await one.create_ledger()
            await two.recover(writer.ledger_id)
            assert (await writer.close()).last_entry == 0  # the same end: that is a success
            metadata = await two.recover(lost.ledger_id)
            assert metadata.last_entry == -1
            with pytest.raises((LedgerFencedError, LedgerClosedError)):
                await lost.append(b"too late")
            await lost.abort()

    go(test())


def test_passwords(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _write_and_leave_open(made, 3)
            for recovery in (False, True):
                with pytest.raises(UnauthorizedError, match=f"ledger {ledger}"):
                    await client.open_ledger(ledger, b"wrong", recovery=recovery)
            assert not any(b.ledgers[ledger].fenced for b in made.bookies.values())
            reader = await client.open_ledger(ledger, password=None)  # the administrator's way
            assert await payloads(reader.read()) == [b"0", b"1", b"2"]

    go(test())


def test_bookies_that_know_another_master_key(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            ledger = writer.ledger_id
            await writer.append(b"x")
            await made.every_copy(ledger, 1)
            for bookie in made.bookies.values():
                bookie.ledgers[ledger].master_key = bytes(20)
            with pytest.raises(UnauthorizedError, match="answered EUA"):
                await client.recover(ledger)
            with pytest.raises(UnauthorizedError, match="answered EUA"):
                await writer.append(b"y")
            await writer.abort()

    go(test())


def test_tail_follows_until_the_ledger_is_closed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            writer = await one.create_ledger()
            reader = await two.open_ledger(writer.ledger_id, recovery=False)
            seen: list[bytes] = []
            two_seen = asyncio.Event()

            async def follow() -> None:
                async for entry in reader.tail(1):
                    seen.append(entry.payload)
                    if len(seen) == 2:
                        two_seen.set()

            following = asyncio.create_task(follow())
            for n in range(4):
                await writer.append(b"%d" % n)
            await two_seen.wait()  # while the ledger is open
            await writer.append(b"4")
            await writer.close()
            await following
            assert seen == [b"1", b"2", b"3", b"4"]

    go(test())


def test_tail_ends_when_the_ledger_is_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _write_and_leave_open(made, 0)
            reader = await client.open_ledger(ledger, b"pw", recovery=False)
            following = asyncio.create_task(payloads(reader.tail()))
            await client.delete_ledger(ledger)
            with pytest.raises(NoSuchLedgerError):
                await following

    go(test())


def test_a_closed_writer_takes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            await writer.append(b"x")
            first, second = await asyncio.gather(writer.close(), writer.close())
            assert first == second == await writer.close()
            with pytest.raises(HandleClosedError):
                await writer.append(b"y")
            left = await client.create_ledger()
            made.of("bookie-0").hung = made.of("bookie-1").hung = True
            future = left.append_nowait(b"x")
            await left.abort()
            await left.abort()
            with pytest.raises(HandleClosedError, match="abandoned"):
                await future
            with pytest.raises(HandleClosedError, match="abandoned"):
                await left.append(b"y")
            with pytest.raises(HandleClosedError, match="abandoned"):
                await left.close()
            assert (await client.metadata(left.ledger_id)).state is LedgerState.OPEN

    go(test())


def test_closing_waits_for_every_copy(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(add_timeout_s=100) as client:
            writer = await client.create_ledger()
            slow = made.of("bookie-2")
            slow.hung = True
            await writer.append(b"x")
            closing = asyncio.create_task(writer.close())
            while (await client.metadata(writer.ledger_id)).state is not LedgerState.CLOSED:
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.05)
            assert not closing.done()
            while not slow.held:
                await asyncio.sleep(0.002)
            slow.release()
            await closing
            assert 0 in slow.ledgers[writer.ledger_id].entries

    go(test())


def test_a_writer_that_is_forgotten_is_warned_of(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made:
            with pytest.warns(ResourceWarning, match="ledger 0 was not closed"):
                async with made.client() as client:
                    await client.create_ledger()
            assert not any(bookie.connections for bookie in made.bookies.values())

    go(test())


def test_the_window_bounds_what_is_not_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(window_bytes=10_000) as client:
            writer = await client.create_ledger()
            for bookie in made.bookies.values():
                bookie.hung = True
            sent = 0

            def fill() -> None:
                nonlocal sent
                while True:
                    writer.append_nowait(bytes(1000))
                    sent += 1000

            with pytest.raises(WindowFullError):
                fill()
            assert sent == 2_000  # and 4,096 for each entry
            waiting = asyncio.create_task(writer.append_many([bytes(1000)] * 50))
            while any(len(b.requests) < sent // 1000 for b in made.bookies.values()):
                await asyncio.sleep(0.001)
            assert {len(b.requests) for b in made.bookies.values()} == {sent // 1000}
            for bookie in made.bookies.values():
                bookie.release()
            assert len(await waiting) == 50
            await writer.close()

    go(test())
