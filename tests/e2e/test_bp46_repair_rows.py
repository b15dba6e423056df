"""Rows 8, 13, 14, 15, 17 and 19 of where Java's bookie falls short of BP-46: those that repair decides."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.client.client import connect
from bkbox.metadata import connect as connect_store
from bkbox.storage.disk.dirty_marker import record_failure
from bkbox.storage.files import RealFiles
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from tests.harness import raw
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for

Cluster = Callable[..., list[BookieProcess]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Starts bookies of one disk each, ``ack_after = write``."""
    started: list[BookieProcess] = []

    def start(count: int, **settings: object) -> list[BookieProcess]:
        uri = f"sqlite:{tmp_path}/metadata.db"
        for number in range(count):
            started.append(BookieProcess(tmp_path, uri, name=f"bookie{number}"))
        for bookie in started:
            bookie.init(disks=1, ack_after="write", **settings)
        for bookie in started:
            bookie.start(wait=False)
        for bookie in started:
            bookie.wait_ready()
        return started

    yield start
    for bookie in started:
        bookie.ensure_gone()


def closed_ledger(
    ledger: int, bookies: list[BookieProcess], entries: int, *, ack_quorum: int = 1
) -> None:
    """A closed ledger over these bookies, its entries written by hand with the CRC32 digest."""
    length = sum(len(payload(ledger, entry)) for entry in range(entries))
    metadata = LedgerMetadata(
        LedgerId(ledger),
        len(bookies),
        len(bookies),
        ack_quorum,
        LedgerState.CLOSED,
        (Fragment(EntryId(0), tuple(BookieId(bookie.bookie_id) for bookie in bookies)),),
        last_entry=EntryId(entries - 1),
        length=length,
        digest_type=DigestType.CRC32,
    )

    async def create() -> None:
        async with await connect_store(bookies[0].metadata) as store:
            await store.create_ledger(metadata)

    asyncio.run(create())
    for bookie in bookies:
        with raw.RawClient(bookie.port) as client:
            for entry in range(entries):
                client.send(raw.add_frame(ledger, entry, payload(ledger, entry)))
            assert {client.answer().code for _ in range(entries)} == {raw.EOK}


def payload(ledger: int, entry: int) -> bytes:
    return b"ledger %d entry %d " % (ledger, entry) * 20


def lose_disk(bookie: BookieProcess) -> None:
    bookie.kill()
    shutil.rmtree(bookie.disks[0])
    bookie.disks[0].mkdir()
    bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
    bookie.start()


def limbo_of(bookie: BookieProcess) -> dict[str, object]:
    found: dict[str, object] = bookie.status()["limbo"]
    return found


def wait_until_repaired(bookie: BookieProcess) -> None:
    wait_for(lambda: limbo_of(bookie)["ledgers"] == 0, "limbo to be empty", timeout=60)


def read_all(bookie: BookieProcess, ledger: int, entries: int) -> list[tuple[int, bytes]]:
    with raw.RawClient(bookie.port) as client:
        answers = [client.read(ledger, entry) for entry in range(entries)]
    return [(answer.code, raw.payload_of(answer.body)) for answer in answers]


def test_row_08_and_17_what_cannot_be_repaired_is_listed_and_holds_up_nothing_else(
    cluster: Cluster,
) -> None:
    """Java retries a one-replica ledger every 3 s for ever and shows it nowhere; here it is a named blocker."""
    first, second = cluster(2, repair_retry_initial_s=0.2, repair_retry_max_s=0.5)
    closed_ledger(1, [first], 3)
    closed_ledger(2, [first, second], 5)
    lose_disk(first)
    status = wait_for(
        lambda: (
            (found := first.status())["limbo"]["done"] == 1 and found["limbo"]["blockers"] and found
        ),
        "one ledger repaired and one blocked",
    )
    [blocker] = status["limbo"]["blockers"]
    assert blocker["ledger"] == 1
    assert "no other bookie" in blocker["reason"]
    assert blocker["what_to_do"]
    assert status["limbo"]["ledgers"] == 1
    assert [code for code, _body in read_all(first, 1, 3)] == [raw.EIO] * 3
    assert read_all(first, 2, 5) == [(raw.EOK, payload(2, entry)) for entry in range(5)]


def test_row_13_repair_keeps_its_pace_and_goes_on_where_it_was(cluster: Cluster) -> None:
    """Java has no rate limit and starts again from entry 0; here bytes are budgeted and what was copied stays."""
    entries = 60
    first, second = cluster(2, jobs_network_bytes_per_second=3000, repair_entries_in_flight=1)
    closed_ledger(1, [first, second], entries)
    lose_disk(first)
    wait_for(lambda: limbo_of(first)["entries_copied"] >= 5, "some entries to be copied")
    [repair], [frontend, *_] = first.children("repair"), first.children("frontend")
    assert repair.nice() > frontend.nice(), "who serves clients comes first"
    copied = int(str(limbo_of(first)["entries_copied"]))
    assert copied < entries, "the budget lets some 8 entries pass in a second"
    repair.kill()
    wait_for(
        lambda: [child.pid for child in first.children("repair")] != [repair.pid],
        "a new repair worker",
    )
    wait_until_repaired(first)
    assert int(str(limbo_of(first)["entries_copied"])) <= entries - copied
    assert read_all(first, 1, entries) == [(raw.EOK, payload(1, entry)) for entry in range(entries)]


def test_row_14_a_rotten_peer_does_not_spread_its_rot(cluster: Cluster) -> None:
    """Java stores what a peer sends; here the digest is checked and the next peer is asked."""
    first, second, third = cluster(3)
    closed_ledger(1, [first, second, third], 6)
    rotten = bytearray(raw.add_frame(1, 2, payload(1, 2), raw.RECOVERY))
    rotten[-1] ^= 1
    for peer in (second,):
        with raw.RawClient(peer.port) as client:
            client.send(bytes(rotten))
            assert client.answer().code == raw.EOK
    lose_disk(first)
    wait_until_repaired(first)
    assert read_all(first, 1, 6) == [(raw.EOK, payload(1, entry)) for entry in range(6)]


def test_row_14_an_entry_that_is_rotten_everywhere_stays_in_limbo(cluster: Cluster) -> None:
    """Rather unknown than wrong."""
    first, second = cluster(2, repair_retry_initial_s=0.2, repair_retry_max_s=0.5)
    closed_ledger(1, [first, second], 3)
    rotten = bytearray(raw.add_frame(1, 1, payload(1, 1), raw.RECOVERY))
    rotten[-1] ^= 1
    with raw.RawClient(second.port) as client:
        client.send(bytes(rotten))
        assert client.answer().code == raw.EOK
    lose_disk(first)
    wait_for(lambda: limbo_of(first)["blockers"], "the ledger to be blocked")
    assert [code for code, _body in read_all(first, 1, 3)] == [raw.EOK, raw.EIO, raw.EOK]


def test_row_15_an_index_entry_whose_record_is_damaged_is_copied_again(cluster: Cluster) -> None:
    """Java looks into the index only; here every record of a limbo ledger is read."""
    first, second = cluster(2)
    closed_ledger(1, [first, second], 8)
    assert first.stop() == 0
    [segment] = (first.disks[0] / "entrylog").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(payload(1, 3)[:40])] ^= 1
    segment.write_bytes(data)
    record_failure(RealFiles(), first.disks[0], "the test says so")
    first.start()
    wait_until_repaired(first)
    assert read_all(first, 1, 8) == [(raw.EOK, payload(1, entry)) for entry in range(8)]
    assert limbo_of(first)["entries_copied"] == 1


def test_row_19_an_open_ledger_is_recovered_and_few_are_worked_on_at_once(cluster: Cluster) -> None:
    """Java starts up to 300 recoveries at once on every bookie; here the number is a setting."""
    first, second, third = cluster(3, repair_ledgers_at_once=2)

    async def write() -> list[int]:
        async with connect(first.metadata) as client:
            ledgers = []
            for _ in range(6):
                writer = await client.create_ledger(3, 3, 2)
                await writer.append_many([b"entry %d" % number for number in range(20)])
                await writer.abort()
                ledgers.append(int(writer.ledger_id))
            return ledgers

    ledgers = asyncio.run(write())
    lose_disk(first)
    wait_until_repaired(first)
    for bookie in (second, third):
        assert bookie.stop() == 0

    async def read() -> None:
        async with connect(first.metadata) as client:
            for ledger in ledgers:
                metadata = await client.metadata(ledger)
                assert metadata.state is LedgerState.CLOSED
                assert metadata.last_entry == 19
                reader = await client.open_ledger(ledger)
                assert [entry.payload async for entry in reader.read()] == [
                    b"entry %d" % number for number in range(20)
                ]

    asyncio.run(read())
