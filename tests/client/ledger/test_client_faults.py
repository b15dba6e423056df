"""Ledgers while bookies die, hang, forget, lie and come back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bkbox.client import LedgerWriter
from bkbox.errors import (
    AddFailedError,
    MetadataUnavailableError,
    NoSuchEntryError,
    NoSuchLedgerError,
    RecoveryAbortedError,
    UnknownEntryError,
    WindowFullError,
)
from bkbox.metadata.base import MetadataStore
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.client.tinybookie import Cluster, TinyBookie, cluster
from tests.harness.waiting import until

pytestmark = pytest.mark.usefixtures("protocol")


def go(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 120))


async def payloads(entries: Any) -> list[bytes]:
    return [entry.payload async for entry in entries]


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


# ---- writing ------------------------------------------------------------------------------------


def test_a_spare_takes_the_place_of_a_dead_bookie(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 4) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many(numbers(0, 10))
                first = writer.metadata.last_fragment.ensemble
                spare = (made.bookies.keys() - set(first)).pop()
                await made.of(first[1]).kill()
                await writer.append_many(numbers(10, 20))
                await until(lambda: spare in writer.metadata.last_fragment.ensemble)
                await writer.append_many(numbers(20, 30))
            found = await client.metadata(writer.ledger_id)
            assert [f.ensemble for f in found.fragments] == [first, (first[0], spare, first[2])]
            start = found.last_fragment.first_entry
            assert 10 <= start <= 20
            reader = await client.open_ledger(writer.ledger_id)
            assert await payloads(reader.read()) == numbers(0, 30)
            assert sorted(made.of(spare).ledgers[writer.ledger_id].entries) == [*range(start, 30)]

    go(test())


def test_bookies_that_die_between_many_outstanding_appends(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 5) as made, made.client() as client:
            async with await client.create_ledger(3, 3, 2) as writer:
                for number, victim in enumerate(list(writer.metadata.last_fragment.ensemble[:2])):
                    futures = [writer.append_nowait(payload) for payload in numbers(0, 200)]
                    await futures[20]
                    await made.of(victim).kill()
                    assert [await f for f in futures] == [*range(200 * number, 200 * number + 200)]
            reader = await client.open_ledger(writer.ledger_id)
            assert await payloads(reader.read()) == numbers(0, 200) * 2

    go(test())


def test_without_a_spare_the_writer_goes_on_and_takes_the_bookie_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append_many(numbers(0, 10))
                await made.every_copy(writer.ledger_id, 10)
                dead = made.of(writer.metadata.last_fragment.ensemble[0])
                await dead.kill()
                await writer.append_many(numbers(10, 20))
                await dead.start()
                held = dead.ledgers[writer.ledger_id].entries
                number = 20
                while number - 1 not in held:  # entries of the meantime it never gets
                    await writer.append(b"%d" % number)
                    number += 1
            assert len((await client.metadata(writer.ledger_id)).fragments) == 1
            assert set(held) >= {*range(10), number - 1}
            reader = await client.open_ledger(writer.ledger_id)
            assert await payloads(reader.read()) == numbers(0, number)

    go(test())


def test_a_bookie_that_fenced_the_ledger_when_it_came_back_does_not_end_the_writer(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append(b"0")
                await made.every_copy(writer.ledger_id, 1)
                lost = made.of("bookie-1")
                await lost.kill()
                await writer.append(b"1")
                lost.ledgers[writer.ledger_id].fenced = True
                lost.requests.clear()
                await lost.start()
                await until(lambda: len(lost.requests) >= 2)  # it was tried, twice
                assert await writer.append_many(numbers(2, 5)) == [2, 3, 4]
            assert (await client.metadata(writer.ledger_id)).last_entry == 4

    go(test())


def test_a_bookie_that_is_new_takes_the_place_of_the_dead_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                await writer.append(b"0")
                await made.every_copy(writer.ledger_id, 1)
                await made.of("bookie-2").kill()
                await writer.append(b"1")
                new = await made.start_bookie()
                await until(lambda: new.id in writer.metadata.last_fragment.ensemble)
                await writer.append(b"2")
            assert (await client.metadata(writer.ledger_id)).last_fragment.first_entry == 2
            assert [*new.ledgers[writer.ledger_id].entries] == [2]

    go(test())


def test_appends_fail_when_too_few_bookies_are_left(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            await writer.append(b"0")
            await made.every_copy(writer.ledger_id, 1)
            await made.of("bookie-0").kill()
            made.of("bookie-2").refusal = Code.EIO
            with pytest.raises(AddFailedError) as caught:
                await writer.append(b"1")
            for text in (
                "entry 1",
                f"ledger {writer.ledger_id}",
                "bookie-0: ",
                "bookie-2 answered EIO",
            ):
                assert text in str(caught.value)
            assert caught.value.may_have_taken_effect
            assert (await writer.close()).last_entry == 0

    go(test())


def test_an_append_that_failed_unseen_is_raised_at_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()

            async def use() -> None:
                async with writer:
                    for bookie in made.bookies.values():
                        bookie.refusal = Code.EIO
                    unseen.append(writer.append_nowait(b"0"))

            unseen: list[asyncio.Future[Any]] = []
            with pytest.raises(AddFailedError):
                await use()
            assert isinstance(unseen[0].exception(), AddFailedError)
            assert (await client.metadata(writer.ledger_id)).state is LedgerState.CLOSED

    go(test())


def test_a_hung_bookie_is_left_out_after_its_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(add_timeout_s=0.5) as client:
            async with await client.create_ledger(3, 3, 3) as writer:
                await writer.append(b"0")
                spare = await made.start_bookie()
                made.of("bookie-1").hung = True
                assert await writer.append_many(numbers(1, 20)) == [*range(1, 20)]
                assert spare.id in writer.metadata.last_fragment.ensemble
            reader = await client.open_ledger(writer.ledger_id)
            assert await payloads(reader.read()) == numbers(0, 20)

    go(test())


def test_a_deaf_bookie_holds_the_writer_up_before_memory_grows(tmp_path: Path) -> None:
    async def test() -> None:
        window, size = 1_000_000, 100_000
        async with cluster(tmp_path) as made, made.client(window_bytes=window) as client:
            made.of("bookie-1").deaf = True
            writer = await client.create_ledger()
            sent = 0
            while sent <= 3 * window:
                try:
                    await writer.append_nowait(bytes(size))  # the other two acknowledge it
                except WindowFullError:
                    break
                sent += size
            assert 2_800_000 <= sent <= 3 * window
            waiting = asyncio.create_task(writer.append(bytes(size)))
            made.of("bookie-1").drop_connections()
            await waiting
            await writer.close()

    go(test())


def test_a_cancelled_append_leaves_the_writer_usable(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            async with await client.create_ledger() as writer:
                for bookie in made.bookies.values():
                    bookie.hung = True
                appends = [
                    asyncio.create_task(writer.append(b"0")),
                    asyncio.create_task(writer.append_many(numbers(1, 4))),
                ]
                await until(lambda: len(made.of("bookie-0").held) == 4)
                for task in appends:
                    task.cancel()
                await asyncio.wait(appends)
                assert all(task.cancelled() for task in appends)
                for bookie in made.bookies.values():
                    bookie.release()
                assert await writer.append(b"4") == 4
            reader = await client.open_ledger(writer.ledger_id)
            assert await payloads(reader.read()) == numbers(0, 5)

    go(test())


def test_a_ledger_deleted_under_its_writer(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()

            async def use() -> None:
                async with writer:
                    await client.delete_ledger(writer.ledger_id)
                    raise ValueError("the user's own")

            with pytest.raises(ValueError, match="the user's own") as caught:
                await use()
            assert "closing it failed as well" in caught.value.__notes__[0]
            other = await client.create_ledger()
            await client.delete_ledger(other.ledger_id)
            with pytest.raises(NoSuchLedgerError):
                await other.close()
            with pytest.raises(NoSuchLedgerError):
                await other.close()

    go(test())


class _LosesAnswers:
    """Stands in for ``write_ledger`` of a store: does it, and says that it could not be reached."""

    def __init__(self, store: MetadataStore) -> None:
        self._write = store.write_ledger
        self.lost = 0

    async def __call__(self, metadata: LedgerMetadata, expected_version: int) -> Any:
        await self._write(metadata, expected_version)
        self.lost += 1
        raise MetadataUnavailableError("the answer was lost")


def test_lost_answers_of_the_store_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 4) as made, made.client() as client:
            writer = await client.create_ledger(3, 3, 3)
            other = await client.create_ledger()
            await other.append(b"x")
            await made.every_copy_of(other.metadata, 1)
            write = _LosesAnswers(made.store)
            monkeypatch.setattr(made.store, "write_ledger", write)
            await made.of(writer.metadata.last_fragment.ensemble[0]).kill()
            await writer.append(b"0")
            assert (write.lost, len(writer.metadata.fragments)) == (1, 1)  # a new ensemble
            closed = await writer.close()
            assert (write.lost, closed.last_entry) == (2, 0)
            assert (await client.recover(other.ledger_id)).last_entry == 0
            assert write.lost == 4
            await other.abort()

    go(test())


def test_a_close_that_may_or_may_not_have_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            writer = await client.create_ledger()
            await writer.append(b"0")
            with monkeypatch.context() as away:
                away.setattr(made.store, "write_ledger", _LosesAnswers(made.store))

                async def nothing(_: int) -> Any:
                    raise MetadataUnavailableError("not there")

                away.setattr(made.store, "read_ledger", nothing)
                with pytest.raises(MetadataUnavailableError) as caught:
                    await writer.close()
                assert caught.value.may_have_taken_effect
            assert (await writer.close()).last_entry == 0  # it had

    go(test())


# ---- reading ------------------------------------------------------------------------------------


async def _closed_ledger(writer: LedgerWriter, count: int) -> int:
    async with writer:
        await writer.append_many(numbers(0, count))
    return writer.ledger_id


def test_reads_go_past_dead_wrong_and_empty_replicas(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _closed_ledger(await client.create_ledger(), 30)
            await made.of("bookie-0").kill()
            made.of("bookie-1").wrong_digest = True
            reader = await client.open_ledger(ledger)
            assert await payloads(reader.read()) == numbers(0, 30)
            made.of("bookie-1").wrong_digest = False
            made.of("bookie-2").ledgers.clear()
            assert await payloads(reader.read()) == numbers(0, 30)

    go(test())


def test_an_unknown_read_says_who_answered_what(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _closed_ledger(await client.create_ledger(), 3)
            reader = await client.open_ledger(ledger)
            for bookie in made.bookies.values():
                del bookie.ledgers[ledger].entries[1]
            with pytest.raises(NoSuchEntryError, match=r"entry 1 .*bookie-0 answered ENOENTRY"):
                await reader.read_entry(1)
            made.of("bookie-0").limbo = True
            made.of("bookie-1").wrong_digest = True
            with pytest.raises(UnknownEntryError) as caught:
                await reader.read_entry(1)
            assert re.search("bookie-0 answered E(IO|UNKNOWNLEDGERSTATE)", str(caught.value))
            await made.of("bookie-0").kill()
            await made.of("bookie-2").kill()
            with pytest.raises(UnknownEntryError) as caught:
                await reader.read_entry(2)
            assert "bookie-1: the digest does not match" in str(caught.value)
            assert "bookie-2: " in str(caught.value)

    go(test())


def test_entries_before_the_one_that_fails_are_delivered(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _closed_ledger(await client.create_ledger(), 50)
            for bookie in made.bookies.values():
                del bookie.ledgers[ledger].entries[20]
            reader = await client.open_ledger(ledger)
            seen: list[bytes] = []

            async def read() -> None:
                async for entry in reader.read():
                    seen.append(entry.payload)

            with pytest.raises(NoSuchEntryError, match="entry 20"):
                await read()
            assert seen == numbers(0, 20)
            assert await payloads(reader.read(21)) == numbers(21, 50)

    go(test())


def test_a_slow_bookie_is_overtaken(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            cluster(tmp_path) as made,
            made.client(read_timeout_s=600, speculative_read_s=0.02) as client,
        ):
            ledger = await _closed_ledger(await client.create_ledger(), 6)
            made.of("bookie-0").hung = made.of("bookie-2").hung = True
            reader = await client.open_ledger(ledger)
            assert await payloads(reader.read()) == numbers(0, 6)

    go(test())


def test_a_reader_that_stops_early_leaves_the_handle_usable(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _closed_ledger(await client.create_ledger(), 100)
            reader = await client.open_ledger(ledger)
            async with aclosing(reader.read()) as entries:
                async for entry in entries:
                    if entry.entry_id == 3:
                        break
            for bookie in made.bookies.values():
                bookie.hung = True
            reading = asyncio.create_task(reader.read_entry(5))
            await until(lambda: any(bookie.held for bookie in made.bookies.values()))
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
            for bookie in made.bookies.values():
                bookie.release()
            assert await payloads(reader.read()) == numbers(0, 100)

    go(test())


def test_read_ahead_is_bounded_in_bytes(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(read_ahead_bytes=40_000) as client:
            async with await client.create_ledger() as writer:
                await writer.append_many([bytes(10_000)] * 30)
            reader = await client.open_ledger(writer.ledger_id)
            for bookie in made.bookies.values():
                bookie.requests.clear()

            def asked() -> int:
                return sum(len(bookie.requests) for bookie in made.bookies.values())

            read = 0
            async with aclosing(reader.read()) as entries:
                async for _ in entries:
                    read += 1
                    assert asked() <= read + 4
            assert read == asked() == 30

    go(test())


def test_connections_come_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _closed_ledger(await client.create_ledger(), 10)
            reader = await client.open_ledger(ledger)
            for _ in range(3):
                assert await payloads(reader.read()) == numbers(0, 10)
                for bookie in made.bookies.values():
                    await bookie.kill()
                with pytest.raises(UnknownEntryError):
                    await reader.read_entry(0)
                for bookie in made.bookies.values():
                    bookie.port = 0  # an address of its own each time: the registration tells
                    await bookie.start()
                await asyncio.sleep(0.1)  # back-off

    go(test())


def test_reading_a_ledger_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _closed_ledger(await client.create_ledger(), 30)
            reader = await client.open_ledger(ledger)
            await client.delete_ledger(ledger)
            assert await payloads(reader.read()) == numbers(0, 30)  # bookies have it for a while
            for bookie in made.bookies.values():
                bookie.ledgers.clear()
            with pytest.raises(NoSuchLedgerError):
                await payloads(reader.read())
            with pytest.raises(NoSuchLedgerError):
                await reader.read_entry(3)

    go(test())


def test_a_bookie_in_limbo_may_send_what_it_has_beside_its_code(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client(protocol="v3") as client:
            ledger = await _closed_ledger(await client.create_ledger(), 3)
            for bookie in made.bookies.values():
                bookie.limbo_code = Code.EUNKNOWNLEDGERSTATE
            reader = await client.open_ledger(ledger)
            assert (await reader.read_entry(1)).payload == b"1"
            for bookie in made.bookies.values():
                bookie.wrong_digest = True
            with pytest.raises(UnknownEntryError, match="answered EUNKNOWNLEDGERSTATE"):
                await reader.read_entry(1)

    go(test())


# ---- recovery -----------------------------------------------------------------------------------


async def _left_open(made: Cluster, writer: LedgerWriter, count: int) -> int:
    await writer.append_many(numbers(0, count))
    if len(made.bookies) == writer.metadata.write_quorum:
        await made.every_copy(writer.ledger_id, count)
    await writer.abort()
    return writer.ledger_id


def _in_limbo(bookie: TinyBookie) -> None:
    bookie.limbo = True
    for ledger in bookie.ledgers.values():
        ledger.entries.clear()


def test_recovery_with_too_many_bookies_in_limbo_closes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _left_open(made, await client.create_ledger(), 10)
            kept = dict(made.of("bookie-0").ledgers[ledger].entries)
            _in_limbo(made.of("bookie-0"))
            _in_limbo(made.of("bookie-1"))
            with pytest.raises(
                RecoveryAbortedError, match=r"bookie-[01] answered E(IO|UNKNOWN)"
            ) as caught:
                await client.recover(ledger)
            assert "nothing was closed" in str(caught.value)
            assert (await client.metadata(ledger)).state is LedgerState.IN_RECOVERY
            made.of("bookie-0").ledgers[ledger].entries |= kept
            made.of("bookie-0").limbo = False
            assert (await client.recover(ledger)).last_entry == 9

    go(test())


def test_recovery_passes_one_bookie_in_limbo_and_writes_back_to_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path) as made, made.client() as client:
            ledger = await _left_open(made, await client.create_ledger(), 10)
            _in_limbo(made.of("bookie-1"))
            assert (await client.recover(ledger)).last_entry == 9
            assert 9 in made.of("bookie-1").ledgers[ledger].entries  # above the LAC found

    go(test())


def test_recovery_puts_a_spare_in_the_place_of_a_dead_bookie(tmp_path: Path) -> None:
    async def test() -> None:
        async with cluster(tmp_path, 4) as made, made.client() as client:
            ledger = await _left_open(made, await client.create_ledger(3, 3, 3), 10)
            found = await client.metadata(ledger)
            dead = found.last_fragment.ensemble[0]
            await made.of(dead).kill()
            closed = await client.recover(ledger)
            assert closed.last_entry == 9
            assert dead not in closed.last_fragment.ensemble
            reader = await client.open_ledger(ledger)
            assert await payloads(reader.read()) == numbers(0, 10)

    go(test())
