"""What every metadata store promises for ledgers, cookies, registrations and watches."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from dataclasses import replace

import pytest

from bkbox.base.ids import MAX_ID, BookieId, EntryId, LedgerId
from bkbox.errors import (
    EncodingError,
    HandleClosedError,
    LedgerExistsError,
    NoSuchLedgerError,
    OperatorError,
    VersionConflictError,
)
from bkbox.metadata import connect, init_cluster
from bkbox.metadata.base import MetadataStore, RegisteredBookie
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerState
from bkbox.wire.metadata.loss import LossRecord, with_loss
from bkbox.wire.metadata.service_info import HostPort, ServiceInfo, rpc_service_info
from tests.metadata.metadata_peer import count_of, ledger_of, peer
from tests.metadata.until import until_bookies

BOOKIE = BookieId("127.0.0.1:3181")
INFO = rpc_service_info("127.0.0.1", 3181)


def test_a_cluster_is_made_once(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            identity = await store.instance_id()
            with pytest.raises(OperatorError, match="exists already"):
                await init_cluster(uri)
            assert await store.instance_id() == identity

    asyncio.run(scenario())


# ---- ledgers ------------------------------------------------------------------------------------


def test_a_ledger_from_creation_to_deletion(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            ledger = await store.new_ledger_id()
            created = await store.create_ledger(ledger_of(ledger))
            assert created.version == 0
            assert created.value.ctime_ms > 0
            assert await store.read_ledger(ledger) == created

            closed = replace(
                created.value, state=LedgerState.CLOSED, last_entry=EntryId(41), length=1000
            )
            written = await store.write_ledger(closed, 0)
            assert (written.value, written.version) == (closed, 1)
            assert await store.read_ledger(ledger) == written

            await store.delete_ledger(ledger)
            await store.delete_ledger(ledger)
            with pytest.raises(NoSuchLedgerError, match=str(ledger)):
                await store.read_ledger(ledger)
            with pytest.raises(NoSuchLedgerError):
                await store.write_ledger(closed, 1)

    asyncio.run(scenario())


def test_ledgers_that_record_a_loss_are_listed_until_they_are_deleted(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            assert await store.ended_ledgers() == []
            for number in (12, 7, 9):
                found = await store.create_ledger(ledger_of(number))
                if number != 9:
                    lost = with_loss(found.value, LossRecord(at_ms=1, end=3))
                    await store.write_ledger(lost, found.version)
            again = await store.read_ledger(LedgerId(7), linearizable=True)
            more = with_loss(again.value, LossRecord(at_ms=2, end=3))
            await store.write_ledger(more, again.version)
            assert await store.ended_ledgers() == [7, 12]
            await store.delete_ledger(LedgerId(7))
            assert await store.ended_ledgers() == [12]

    asyncio.run(scenario())


def test_all_that_metadata_holds_comes_back_after_a_restart(uri: str) -> None:
    rich = ledger_of(
        MAX_ID,
        fragments=(
            Fragment(EntryId(0), (BookieId("a:1"), BookieId("b:2"), BookieId("c:3"))),
            Fragment(EntryId(17), (BookieId("a:1"), BookieId("d:4"), BookieId("c:3"))),
        ),
        digest_type=DigestType.HMAC,
        custom=(("name", b"\x00\xff"),),
        ctime_ms=1234,
        store_ctime=True,
        creator_token=99,
    )
    text = ledger_of(1, format_version=2)

    async def write() -> None:
        async with await connect(uri) as store:
            await store.create_ledger(rich)
            await store.create_ledger(text)

    async def read() -> None:
        async with await connect(uri) as store:
            assert (await store.read_ledger(rich.ledger_id)).value == rich
            found = (await store.read_ledger(text.ledger_id)).value
            assert found.format_version == 2
            written = await store.write_ledger(found, 0)
            assert written.value.format_version == 2, "an update keeps the version"

    asyncio.run(write())
    asyncio.run(read())


def test_creation_repeated_with_the_same_token_is_the_same_success(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            mine = ledger_of(5, creator_token=77)
            first = await store.create_ledger(mine)
            assert await store.create_ledger(mine) == first
            with pytest.raises(LedgerExistsError, match="5"):
                await store.create_ledger(replace(mine, creator_token=78))

            written = await store.write_ledger(mine, 0)
            assert written.value.creator_token == 0
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(mine)

            await store.create_ledger(ledger_of(6))
            with pytest.raises(LedgerExistsError):
                await store.create_ledger(ledger_of(6))

    asyncio.run(scenario())


def test_a_write_that_expects_another_version_changes_nothing(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            await store.create_ledger(ledger_of(1))
            first = await store.write_ledger(ledger_of(1, custom=(("by", b"first"),)), 0)
            for wrong in (0, 2, -1):
                with pytest.raises(VersionConflictError, match="version 1"):
                    await store.write_ledger(ledger_of(1, custom=(("by", b"late"),)), wrong)
            assert await store.read_ledger(LedgerId(1)) == first

    asyncio.run(scenario())


def test_metadata_that_nobody_could_read_is_refused(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            with pytest.raises(EncodingError):
                await store.create_ledger(ledger_of(1, fragments=()))
            await store.create_ledger(ledger_of(1))
            with pytest.raises(EncodingError):
                await store.write_ledger(ledger_of(1, ack_quorum=4), 0)
            assert (await store.read_ledger(LedgerId(1))).version == 0

    asyncio.run(scenario())


def test_ledger_ids_are_given_out_once(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            first = await store.new_ledger_id()
            await store.create_ledger(ledger_of(first))
            await store.delete_ledger(first)
            await store.create_ledger(ledger_of(first + 1))  # chosen by a caller
            assert await store.new_ledger_id() == first + 2

    asyncio.run(scenario())


def test_ledger_ids_of_several_processes_differ(uri: str) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(uri, "ids", 40)) for _ in range(3)]
        ids = [line for process in peers if process.stdout for line in process.stdout]
    assert len(ids) == len(set(ids)) == 120


def test_every_increment_of_four_processes_counts_once(uri: str) -> None:
    async def prepare() -> None:
        async with await connect(uri) as store:
            await store.create_ledger(ledger_of(1))

    async def check() -> None:
        async with await connect(uri) as store:
            found = await store.read_ledger(LedgerId(1))
            assert (count_of(found.value), found.version) == (100, 100)

    asyncio.run(prepare())
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(uri, "increment", 1, 25)) for _ in range(4)]
        told = [int(line) for process in peers if process.stdout for line in process.stdout]
    assert sorted(told) == list(range(1, 101))
    asyncio.run(check())


def test_what_a_killed_process_was_answered_stays(uri: str) -> None:
    async def prepare() -> None:
        async with await connect(uri) as store:
            await store.create_ledger(ledger_of(1))

    async def count() -> int:
        async with await connect(uri) as store:
            return count_of((await store.read_ledger(LedgerId(1))).value)

    asyncio.run(prepare())
    with peer(uri, "increment", 1, 1_000_000) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        answered = 20 + len(process.stdout.readlines())
    assert asyncio.run(count()) in (answered, answered + 1)


def test_cookies_are_compared_and_set(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            assert await store.read_cookie(BOOKIE) is None
            with pytest.raises(VersionConflictError, match="absent"):
                await store.write_cookie(BOOKIE, b"never", 0)
            first = await store.write_cookie(BOOKIE, b"one", None)
            assert (first.value, first.version) == (b"one", 0)
            with pytest.raises(VersionConflictError):
                await store.write_cookie(BOOKIE, b"again", None)
            second = await store.write_cookie(BOOKIE, b"two", 0)
            with pytest.raises(VersionConflictError):
                await store.write_cookie(BOOKIE, b"late", 0)
            assert second.version == 1
            assert await store.read_cookie(BOOKIE) == second
            other = await store.write_cookie(BookieId("b:2"), b"other", None)
            assert await store.cookies() == {BOOKIE: second, BookieId("b:2"): other}
            await store.delete_cookie(BOOKIE)
            await store.delete_cookie(BOOKIE)
            assert await store.cookies() == {BookieId("b:2"): other}

    asyncio.run(scenario())


def test_records_of_disks_are_compared_and_set_and_outlive_the_cookie(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            assert await store.read_disk_record(BOOKIE) is None
            with pytest.raises(VersionConflictError, match="absent"):
                await store.write_disk_record(BOOKIE, b"never", 0)
            first = await store.write_disk_record(BOOKIE, b"one", None)
            assert (first.value, first.version) == (b"one", 0)
            with pytest.raises(VersionConflictError):
                await store.write_disk_record(BOOKIE, b"again", None)
            second = await store.write_disk_record(BOOKIE, b"two", 0)
            with pytest.raises(VersionConflictError):
                await store.write_disk_record(BOOKIE, b"late", 0)
            assert await store.read_disk_record(BOOKIE) == second
            other = await store.write_disk_record(BookieId("b:2"), b"other", None)
            assert await store.cookies() == {}, "a record is no cookie"
            await store.write_cookie(BOOKIE, b"cookie", None)
            await store.delete_cookie(BOOKIE)
            await store.delete_cookie(BOOKIE)
            assert await store.read_disk_record(BOOKIE) == second, "the disks may come back"
            assert await store.read_disk_record(BookieId("b:2")) == other

    asyncio.run(scenario())


def test_a_closed_store_says_so(uri: str) -> None:
    async def scenario() -> None:
        store = await connect(uri)
        await store.close()
        await store.close()
        with pytest.raises(HandleClosedError):
            await store.instance_id()
        with pytest.raises(HandleClosedError):
            await store.new_ledger_id()

    asyncio.run(scenario())


# ---- registration -------------------------------------------------------------------------------


async def sides(store: MetadataStore) -> dict[BookieId, tuple[bool, HostPort | None]]:
    return {
        bookie: (found.read_only, found.service_info.rpc)
        for bookie, found in (await store.bookies()).items()
    }


def test_registered_read_only_and_gone(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            assert await store.bookies() == {}
            mine = await store.register(BOOKIE, INFO, read_only=True)
            assert await sides(store) == {BOOKIE: (True, INFO.rpc)}
            await mine.set_read_only(False)
            assert await sides(store) == {BOOKIE: (False, INFO.rpc)}
            assert mine.unregistered_s() == 0.0
            await mine.close()
            await mine.close()
            assert await store.bookies() == {}
            with pytest.raises(HandleClosedError):
                await mine.set_read_only(True)
            assert await store.bookies() == {}

    asyncio.run(scenario())


def test_closing_the_store_closes_its_registrations(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            async with await connect(uri) as other:
                await other.register(BOOKIE, INFO, read_only=False)
                assert BOOKIE in await store.bookies()
            assert await store.bookies() == {}

    asyncio.run(scenario())


def test_an_address_that_no_client_could_read_is_refused(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            with pytest.raises(EncodingError):
                await store.register(BookieId("name"), ServiceInfo(), read_only=False)
            assert await store.bookies() == {}

    asyncio.run(scenario())


def test_a_living_process_keeps_its_id_and_a_killed_one_loses_it(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            with peer(uri, "register", BOOKIE) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "registered\n"
                assert await sides(store) == {BOOKIE: (False, HostPort("peer", 3181))}
                with pytest.raises(OperatorError, match=f"process {process.pid}.*, which is alive"):
                    await store.register(BOOKIE, INFO, read_only=False)

                process.send_signal(signal.SIGKILL)
                process.wait()
                await store.register(BOOKIE, INFO, read_only=False)
                assert await sides(store) == {BOOKIE: (False, INFO.rpc)}

    asyncio.run(scenario())


# ---- watches ------------------------------------------------------------------------------------


def test_a_ledger_is_seen_from_before_its_creation_to_after_its_deletion(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            watch = store.watch_ledger(LedgerId(1))
            assert await anext(watch) is None
            created = await store.create_ledger(ledger_of(1))
            assert await anext(watch) == created
            fenced = replace(created.value, state=LedgerState.IN_RECOVERY)
            written = await store.write_ledger(fenced, 0)
            assert await anext(watch) == written
            await store.create_ledger(ledger_of(2))  # another ledger: no news of this one
            await store.delete_ledger(LedgerId(1))
            assert await anext(watch) is None

    asyncio.run(scenario())


def test_a_change_between_two_steps_of_a_watch_is_not_missed(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            await store.create_ledger(ledger_of(1))
            watch = store.watch_ledger(LedgerId(1))
            await anext(watch)
            await store.write_ledger(ledger_of(1), 0)
            last = await store.write_ledger(ledger_of(1), 1)
            assert await anext(watch) == last, "changes in quick succession are merged"

    asyncio.run(scenario())


def test_the_last_change_of_another_process_is_seen(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            await store.create_ledger(ledger_of(1))
            seen: list[int] = []
            with peer(uri, "increment", 1, 30):
                async for found in store.watch_ledger(LedgerId(1)):
                    assert found is not None
                    seen.append(count_of(found.value))
                    if seen[-1] == 30:
                        break
            assert seen == sorted(set(seen))

    asyncio.run(scenario())


def _sides(found: dict[BookieId, RegisteredBookie]) -> list[bool]:
    return [each.read_only for each in found.values()]


def test_bookies_are_seen_to_come_change_sides_and_go(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store, await connect(uri) as other:
            assert await store.bookies() == {}
            mine = await other.register(BOOKIE, INFO, read_only=False)
            await until_bookies(store, lambda found: _sides(found) == [False])
            await mine.set_read_only(True)
            await until_bookies(store, lambda found: _sides(found) == [True])
            await mine.close()
            await until_bookies(store, lambda found: not found)

    asyncio.run(scenario())


def test_watches_end_with_the_store(uri: str) -> None:
    async def scenario() -> None:
        async with await connect(uri) as store:
            watches = [store.watch_ledger(LedgerId(number)) for number in range(20)]
            for watch in watches:
                await anext(watch)
            waiting = [asyncio.ensure_future(anext(watch, "ended")) for watch in watches]
            await asyncio.sleep(0)
        assert await asyncio.gather(*waiting) == ["ended"] * 20
        with pytest.raises(HandleClosedError):
            await anext(store.watch_ledger(LedgerId(1)))
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())
