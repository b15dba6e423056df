"""Marks, locks, election and switches of re-replication: what both stores promise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bkbox.base.ids import LedgerId
from bkbox.metadata import connect
from bkbox.metadata.underreplication import Task, UnderReplication
from bkbox.wire.metadata.underreplication import UnderreplicatedLedger
from tests.metadata.metadata_peer import peer

LEDGER = LedgerId(10_000)


@asynccontextmanager
async def two(uri: str) -> AsyncIterator[tuple[UnderReplication, UnderReplication]]:
    """Two processes' views of the same cluster."""
    async with await connect(uri) as one, await connect(uri) as other:
        yield one.under_replication, other.under_replication


def test_marks_add_up(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            assert await tree.find(LEDGER) is None
            await tree.mark(LEDGER, ["a:1"], now_ms=1000)
            await other.mark(LEDGER, ["b:2", "a:1", "b:2"], now_ms=2000)
            await tree.mark(LEDGER, ["b:2"], now_ms=3000)
            assert await tree.find(LEDGER) == UnderreplicatedLedger(("a:1", "b:2"), 2000)
            await tree.mark(LedgerId(2**40), [], now_ms=5)
            await asyncio.gather(*(other.mark(LedgerId(7), [f"c:{n}"], n) for n in range(10)))
            assert [ledger async for ledger in tree.ledgers()] == [7, 10_000, 2**40]
            found = await tree.find(LedgerId(7))
            assert found is not None
            assert set(found.replicas) == {f"c:{n}" for n in range(10)}
            assert await tree.find(LedgerId(2**40)) == UnderreplicatedLedger((), 5)
            assert await other.count() == 3

    asyncio.run(scenario())


def test_many_marks_are_all_listed_in_order(uri: str) -> None:
    async def scenario() -> None:
        count = 1_030 if uri.startswith("sqlite") else 150  # more than a page
        ledgers = [LedgerId(number * 37) for number in range(count)]
        async with two(uri) as (tree, other):
            for ledger in reversed(ledgers):
                await tree.mark(ledger, ["a:1"], 1)
            assert [ledger async for ledger in other.ledgers()] == ledgers

    asyncio.run(scenario())


def test_a_ledger_is_taken_by_one_and_finished(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            assert await tree.acquire(LEDGER, "host") is None
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            assert task.mark.missing == UnderreplicatedLedger(("a:1",), 1)
            assert await other.locked() == {LEDGER}
            assert (await other.holder(LEDGER), await other.holder(LedgerId(1))) == ("host", None)
            assert await other.acquire(LEDGER, None) is None
            assert await tree.acquire(LEDGER, "host") is None
            await tree.release(task)
            again = await other.acquire(LEDGER, None)
            assert again is not None
            assert await tree.holder(LEDGER) == ""
            assert await other.finish(again)
            assert (await tree.count(), await tree.locked()) == (0, frozenset())
            assert not await tree.finish(task), "who has no lock finishes nothing"

    asyncio.run(scenario())


def test_a_lock_needs_no_mark(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            lock = await tree.lock(LEDGER, "host")
            assert lock is not None
            assert await other.lock(LEDGER, "other") is None
            await other.mark(LEDGER, ["a:1"], 1)
            assert await other.acquire(LEDGER, "other") is None
            await tree.unlock(lock)
            await tree.unlock(lock)
            later = await other.lock(LEDGER, "other")
            assert later is not None
            await tree.unlock(lock)  # which is somebody else's by now
            assert await tree.holder(LEDGER) == "other"

    asyncio.run(scenario())


def test_a_ledger_is_marked_and_taken_at_once(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            task = await tree.claim(LEDGER, ["a:1"], 5, "host")
            assert task is not None
            assert task.mark.missing == UnderreplicatedLedger(("a:1",), 5)
            assert await other.acquire(LEDGER, "other") is None
            assert await other.claim(LEDGER, ["b:2"], 6, "other") is None
            assert await tree.find(LEDGER) == UnderreplicatedLedger(("a:1",), 5)
            assert await tree.finish(task)
            await tree.mark(LEDGER, ["c:3"], 7)
            again = await other.claim(LEDGER, ["b:2"], 8, "other")
            assert again is not None
            assert again.mark.missing == UnderreplicatedLedger(("c:3", "b:2"), 8)
            await tree.mark(LEDGER, ["d:4"], 9)
            assert not await other.finish(again)

    asyncio.run(scenario())


def test_whoever_is_cancelled_while_it_takes_a_lock_has_none(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            await tree.mark(LEDGER, ["a:1"], 1)
            for turns in range(12):
                for taking in (
                    tree.acquire(LEDGER, "host"),
                    tree.claim(LEDGER, ["a:1"], 1, "host"),
                ):
                    task = asyncio.create_task(taking)
                    for _ in range(turns):
                        await asyncio.sleep(0.0005)
                    task.cancel()
                    done = (await asyncio.gather(task, return_exceptions=True))[0]
                    if isinstance(done, Task):
                        await tree.release(done)
                    assert not await other.locked()

    asyncio.run(scenario())


def test_whoever_is_cancelled_while_it_gives_a_lock_back_has_none(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            for turns in range(1, 6):
                locks = [await tree.lock(LedgerId(number), "host") for number in range(4)]
                giving = [asyncio.create_task(tree.unlock(each)) for each in locks if each]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for each in giving:
                    each.cancel()
                await asyncio.gather(*giving, return_exceptions=True)
                assert not await other.locked()

    asyncio.run(scenario())


def test_what_is_marked_again_meanwhile_stays(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            await other.mark(LEDGER, ["b:2"], now_ms=2)
            assert not await tree.finish(task)
            assert await tree.find(LEDGER) is not None
            assert not await tree.locked()

    asyncio.run(scenario())


def test_a_mark_that_was_made_anew_stays(uri: str) -> None:
    """Another worker has finished the first one since, as our lock was lost."""

    async def scenario() -> None:
        async with two(uri) as (tree, other):
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            task = await tree.acquire(LEDGER, "host")
            assert task is not None
            await tree.unlock(task.lock)
            theirs = await other.acquire(LEDGER, "other")
            assert theirs is not None
            assert await other.finish(theirs)
            await other.mark(LEDGER, ["a:1"], now_ms=1)
            assert not await tree.finish(task)
            assert await tree.find(LEDGER) is not None

    asyncio.run(scenario())


def test_a_killed_process_leaves_no_lock_and_no_office(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, _):
            await tree.mark(LEDGER, ["a:1"], now_ms=1)
            with peer(uri, "work", str(LEDGER)) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "at work\n"
                assert await tree.locked() == {LEDGER}
                assert await tree.auditor() == "peer:1"
                candidacy = tree.candidacy("a:1")
                assert not await candidacy.is_elected()
                process.kill()
                process.wait()
            async with asyncio.timeout(30):
                while not await candidacy.is_elected():
                    await candidacy.changed(5.0)
                while (task := await tree.acquire(LEDGER, "host")) is None:
                    await asyncio.sleep(0.05)
            assert await tree.auditor() == "a:1"
            assert await tree.finish(task)

    asyncio.run(scenario())


def test_one_auditor_after_the_other(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            assert await tree.auditor() is None
            first, second = tree.candidacy("a:1"), other.candidacy("b:2")
            assert await first.is_elected()
            assert not await second.is_elected()
            assert await other.auditor() == "a:1"
            changed = asyncio.create_task(second.changed(20.0))
            await first.close()
            await first.close()
            await changed
            assert await second.is_elected()
            assert await tree.auditor() == "b:2"
            assert not await first.is_elected(), "who stands again comes last"
            await second.close()
            assert await first.is_elected()
            await first.close()

    asyncio.run(scenario())


def test_the_switches(uri: str) -> None:
    async def scenario() -> None:
        async with two(uri) as (tree, other):
            assert await tree.enabled()
            await tree.set_enabled(True)
            for _ in range(2):
                await tree.set_enabled(False)
                assert not await other.enabled()
            await other.set_enabled(True)
            assert await tree.enabled()
            assert await tree.recovery_delay() is None
            await tree.set_recovery_delay_s(60)
            first = await other.recovery_delay()
            await tree.set_recovery_delay_s(60)
            second = await other.recovery_delay()
            assert first is not None
            assert second is not None
            assert (first.seconds, second.seconds) == (60, 60)
            assert second.version > first.version, "the same value written again is a signal"
            assert await tree.last_full_check_ms() is None
            await tree.set_last_full_check_ms(1_700_000_000_123)
            await tree.set_last_full_check_ms(1_700_000_000_124)
            assert await other.last_full_check_ms() == 1_700_000_000_124

    asyncio.run(scenario())
