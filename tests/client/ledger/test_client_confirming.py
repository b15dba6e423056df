"""What is confirmed, and how others learn of it: long polls, the explicit LAC, deferred sync."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bkbox.client import LedgerWriter
from bkbox.errors import (
    AddFailedError,
    HandleClosedError,
    NoSuchEntryError,
    NoSuchLedgerError,
    UnknownEntryError,
)
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import DigestType, LedgerState
from tests.client.tinybookie import cluster
from tests.harness.waiting import until

pytestmark = pytest.mark.usefixtures("protocol")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def all_answered(writer: LedgerWriter) -> None:
    """Until every bookie has answered every add."""
    await until(lambda: writer._driver.in_flight_bytes == 0)


# ---- long polls ---------------------------------------------------------------------------------


def test_a_long_poll_is_answered_when_the_entry_is_confirmed(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            writer = await one.create_ledger()
            await writer.append(b"0")
            reader = await two.open_ledger(writer.ledger_id, recovery=False)
            asking = asyncio.create_task(reader.read_last_add_confirmed_and_entry(0, 60))
            await until(lambda: any(bookie.polls for bookie in made.bookies.values()))
            assert sum(len(bookie.polls) for bookie in made.bookies.values()) == 1
            await writer.append(b"1")
            lac, entry = await asking
            assert (lac, entry and entry.payload) == (0, b"0")
            assert reader.last_add_confirmed == 0
            lac, entry = await reader.read_last_add_confirmed_and_entry(0, 60)  # known by now
            assert (lac, entry and entry.payload) == (0, b"0")
            assert await reader.read_last_add_confirmed_and_entry(1, 0.05) == (0, None)
            await writer.close()

    go(test())


def test_a_long_poll_ends_when_the_ledger_is_closed_or_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            writer = await one.create_ledger()
            await writer.append(b"0")
            reader = await two.open_ledger(writer.ledger_id, recovery=False)
            asking = [
                asyncio.create_task(reader.read_last_add_confirmed_and_entry(n, 60)) for n in (0, 1)
            ]
            await until(lambda: any(bookie.polls for bookie in made.bookies.values()))
            await writer.close()
            lac, entry = await asking[0]
            assert (lac, entry and entry.payload) == (0, b"0")
            assert await asking[1] == (0, None)
            gone = await one.create_ledger()
            await gone.append(b"0")
            reader = await two.open_ledger(gone.ledger_id, recovery=False)
            waiting = asyncio.create_task(reader.read_last_add_confirmed_and_entry(0, 60))
            await until(lambda: any(bookie.polls for bookie in made.bookies.values()))
            await one.delete_ledger(gone.ledger_id)
            with pytest.raises(NoSuchLedgerError):
                await waiting
            await gone.abort()

    go(test())


def test_a_long_poll_goes_past_bookies_that_fail_or_are_slow(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client() as one,
            made.client(speculative_poll_s=0.02, read_timeout_s=25) as two,
        ):
            writer = await one.create_ledger()
            for n in range(3):
                await writer.append(b"%d" % n)
            await made.every_copy(writer.ledger_id, 3)
            order = writer.metadata.last_fragment.ensemble
            first, second = made.of(order[2]), made.of(order[0])  # for entry 1: those of entry 2
            reader = await two.open_ledger(writer.ledger_id, recovery=False)
            first.wrong_digest = second.hung = True
            lac, entry = await reader.read_last_add_confirmed_and_entry(1, 60)
            assert (lac, entry and entry.payload) == (1, b"1")
            second.release()
            for bookie in made.bookies.values():
                bookie.refusal = Code.EIO
            with pytest.raises(UnknownEntryError, match=r"entry 7 is confirmed: .*answered EIO"):
                await reader.read_last_add_confirmed_and_entry(7, 60)
            for bookie in made.bookies.values():
                bookie.refusal = None
            await writer.close()

    go(test())


def test_tail_asks_seldom_and_hears_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client() as one,
            made.client(tail_wait_s=60, speculative_poll_s=60) as two,
        ):
            writer = await one.create_ledger()
            await writer.append(b"0")
            await made.every_copy(writer.ledger_id, 1)
            reader = await two.open_ledger(writer.ledger_id, recovery=False)
            async with aclosing(reader.tail()) as entries:
                for n in range(20):
                    asking = asyncio.ensure_future(anext(entries))
                    await until(lambda: any(b.polls for b in made.bookies.values()))
                    await writer.append(b"%d" % (n + 1))
                    assert (await asking).payload == b"%d" % n
            polls = [
                request
                for bookie in made.bookies.values()
                for request in bookie.requests
                if isinstance(request, v3.ReadRequest) and request.long_poll
            ]
            assert len(polls) == 20
            assert all(request.piggyback for request in polls)
            await writer.close()

    go(test())


def test_tail_follows_where_long_polls_are_not_known(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(protocol="v2") as client:
            for bookie in made.bookies.values():
                bookie.speaks_v3 = False
            writer = await client.create_ledger()
            await writer.append(b"0")
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            async with aclosing(reader.tail()) as entries:
                asking = asyncio.ensure_future(anext(entries))
                await asyncio.sleep(0.05)
                await writer.append(b"1")
                assert (await asking).payload == b"0"
            await writer.close()

    go(test())


def test_tail_follows_an_ensemble_that_changes(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path, 6) as made,
            made.client() as one,
            made.client(tail_wait_s=60, speculative_poll_s=60) as two,
        ):
            writer = await one.create_ledger()
            await writer.append(b"0")
            first = [made.of(bookie) for bookie in writer.metadata.last_fragment.ensemble]
            reader = await two.open_ledger(writer.ledger_id, recovery=False)
            async with aclosing(reader.tail()) as entries:
                asking = asyncio.ensure_future(anext(entries))
                await until(lambda: any(bookie.polls for bookie in first))
                (polled,) = (bookie for bookie in first if bookie.polls)
                polled.refusal = Code.EREADONLY
                await writer.append(b"1")
                await until(lambda: polled.id not in writer.metadata.last_fragment.ensemble)
                polled.refusal = None
                assert (await asking).payload == b"0"
                assert polled.polls  # it never heard
            await writer.close()

    go(test())


# ---- without confirmation -----------------------------------------------------------------------


def test_entries_that_are_not_confirmed_can_be_read_all_the_same(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            for n in range(4):
                await writer.append(b"%d" % n)
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            found = [entry.payload async for entry in reader.read_unconfirmed(1, 3)]
            assert found == [b"1", b"2", b"3"]
            assert reader.last_add_confirmed == -1
            with pytest.raises(NoSuchEntryError, match="entry 4"):
                await anext(reader.read_unconfirmed(4, 4))
            await writer.close()

    go(test())


# ---- explicit LAC -------------------------------------------------------------------------------


@pytest.mark.parametrize("digest", list(DigestType))
def test_a_writer_that_pauses_tells_its_lac(tmp_path: Path, digest: DigestType) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path, 5) as made,
            made.client(explicit_lac_interval_s=0.01) as one,
            made.client() as two,
        ):
            writer = await one.create_ledger(5, 3, 2, digest_type=digest, password=b"pw")
            for n in range(7):
                await writer.append(b"%d" % n)
            reader = await two.open_ledger(writer.ledger_id, b"pw", recovery=False)
            lac, entry = await reader.read_last_add_confirmed_and_entry(6, 60)
            assert (lac, entry and entry.payload) == (6, b"6")
            again = await two.open_ledger(writer.ledger_id, b"pw", recovery=False)
            assert await again.read_last_add_confirmed() == 5
            assert await again.read_explicit_last_add_confirmed() == 6
            assert again.last_add_confirmed == 6
            await writer.close()
            assert await again.read_explicit_last_add_confirmed() == 6

    go(test())


def test_a_lac_is_told_again_until_enough_bookies_have_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(explicit_lac_interval_s=0.01) as client:
            writer = await client.create_ledger()
            for bookie in made.bookies.values():
                bookie.hung = True
            appended = writer.append_nowait(b"0")
            await until(lambda: all(bookie.held for bookie in made.bookies.values()))
            for bookie in made.bookies.values():
                bookie.release()
                bookie.refusal = Code.EIO  # before the LAC can have moved
            await appended

            def told() -> int:
                return sum(
                    isinstance(request, v3.WriteLacRequest)
                    for bookie in made.bookies.values()
                    for request in bookie.requests
                )

            await until(lambda: told() >= 6)
            for bookie in made.bookies.values():
                bookie.refusal = None
            ledgers = [bookie.ledgers[writer.ledger_id] for bookie in made.bookies.values()]
            await until(lambda: all(ledger.lac_packet is not None for ledger in ledgers))
            count = 0
            while count != told():  # it does not move, so this comes to rest
                count = told()
                await asyncio.sleep(0.05)
            assert writer.last_add_confirmed == 0
            await writer.close()

    go(test())


def test_an_explicit_lac_with_a_wrong_digest_proves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(explicit_lac_interval_s=0.01) as client:
            writer = await client.create_ledger()
            await writer.append(b"0")
            ledgers = [bookie.ledgers for bookie in made.bookies.values()]
            await until(lambda: all(writer.ledger_id in of for of in ledgers))
            of = [each[writer.ledger_id] for each in ledgers]
            await until(lambda: all(ledger.lac_packet is not None for ledger in of))
            good = of[0].lac_packet
            assert good is not None
            reader = await client.open_ledger(writer.ledger_id, recovery=False)
            of[0].lac_packet = of[1].lac_packet = good[:15] + b"\x09" + good[16:]
            with pytest.raises(UnknownEntryError, match="digest does not match"):
                await reader.read_explicit_last_add_confirmed()
            of[1].lac_packet = good
            assert await reader.read_explicit_last_add_confirmed() == 0
            await writer.close()

    go(test())


# ---- deferred sync ------------------------------------------------------------------------------


@pytest.mark.parametrize("digest", list(DigestType))
def test_deferred_entries_are_confirmed_by_force(tmp_path: Path, digest: DigestType) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            writer = await one.create_ledger(deferred_sync=True, digest_type=digest)
            reader = await two.open_ledger(writer.ledger_id, recovery=False)
            assert await writer.append_many([b"0", b"1", b"2"]) == [0, 1, 2]
            assert (writer.last_add_confirmed, writer.length) == (-1, 0)
            await writer.append(b"3")
            assert await reader.read_last_add_confirmed() == -1
            await made.every_copy(writer.ledger_id, 4)
            assert await writer.force() == 3
            assert (writer.last_add_confirmed, writer.length) == (3, 4)
            for bookie in made.bookies.values():
                assert not bookie.ledgers[writer.ledger_id].unsynced
            await writer.append(b"4")
            assert await reader.read_last_add_confirmed() == 3
            closed = await writer.close()
            assert (closed.last_entry, closed.length) == (4, 5)
            for bookie in made.bookies.values():
                assert not bookie.ledgers[writer.ledger_id].unsynced
            with pytest.raises(HandleClosedError):
                await writer.force()
            entries = [entry async for entry in reader.read()]
            assert [(e.lac, e.payload) for e in entries] == [
                (-1, b"0"),
                (-1, b"1"),
                (-1, b"2"),
                (-1, b"3"),
                (3, b"4"),
            ]

    go(test())


def test_force_without_deferred_sync(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append(b"0")
                assert await writer.force() == 0
            requests = [r for bookie in made.bookies.values() for r in bookie.requests]
            assert not any(isinstance(request, v3.ForceRequest) for request in requests)

    go(test())


def test_a_host_lost_before_the_force_ends_the_writer(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger(deferred_sync=True)
            await writer.append(b"0")
            await made.every_copy(writer.ledger_id, 1)
            await writer.force()
            await writer.append(b"1")
            await made.every_copy(writer.ledger_id, 2)
            await all_answered(writer)
            made.of("bookie-1").lose_host()
            with pytest.raises(AddFailedError, match=r"entry 0 cannot be forced .*bookie-1"):
                await writer.force()
            with pytest.raises(AddFailedError):
                await writer.append(b"2")
            assert (await writer.close()).last_entry == 0

    go(test())


def test_a_bookie_that_fails_ends_a_deferred_writer(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 4) as made, made.client() as client:
            writer = await client.create_ledger(deferred_sync=True)
            await writer.append(b"0")
            first = writer.metadata.last_fragment.ensemble
            for bookie in first:
                made.of(bookie).refusal = Code.EREADONLY
            with pytest.raises(AddFailedError, match="has to keep its bookies"):
                await writer.append(b"1")
            closed = await writer.close()
            assert closed.last_entry == -1
            assert [fragment.ensemble for fragment in closed.fragments] == [first]

    go(test())


def test_a_force_that_fails_leaves_the_ledger_at_the_one_before(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger(deferred_sync=True)
            await writer.append(b"0")
            await made.every_copy(writer.ledger_id, 1)
            await all_answered(writer)
            made.of("bookie-2").refusal = Code.EIO
            with pytest.raises(AddFailedError, match="bookie-2 answered EIO"):
                await asyncio.gather(writer.force(), writer.force())
            async with made.client() as other:
                assert (await other.recover(writer.ledger_id)).last_entry == 0  # it is there still
            await writer.abort()

    go(test())


def test_fencing_ends_a_deferred_writer(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as one, made.client() as two:
            writer = await one.create_ledger(deferred_sync=True)
            await writer.append(b"0")
            await made.every_copy(writer.ledger_id, 1)
            found = await two.recover(writer.ledger_id)
            assert (found.state, found.last_entry) == (LedgerState.CLOSED, 0)
            for bookie in made.bookies.values():  # a recovery writes without deferral
                adds = [r for r in bookie.requests if isinstance(r, v2.AddRequest | v3.AddRequest)]
                assert {getattr(r, "deferred_sync", False) for r in adds if r.recovery} == {False}
            await writer.abort()

    go(test())
