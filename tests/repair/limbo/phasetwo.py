"""What the tests of phase two on real bookies share: ledgers written by hand, and disks that are lost."""

from __future__ import annotations

import asyncio
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bkbox.base.ids import BookieId, EntryId, LedgerId
from bkbox.metadata import connect
from bkbox.wire.metadata.ledger import DigestType, Fragment, LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set
from tests.harness import raw
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for

StartCluster = Callable[..., list[BookieProcess]]

QUICK = {"repair_retry_initial_s": 0.2, "repair_retry_max_s": 0.5}


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """Starts bookies of one disk each, ``ack_after = write``, that try again soon."""
    started: list[BookieProcess] = []

    def start(count: int, **settings: object) -> list[BookieProcess]:
        uri = f"sqlite:{tmp_path}/metadata.db"
        for number in range(count):
            started.append(BookieProcess(tmp_path, uri, name=f"bookie{number}"))
        for bookie in started:
            bookie.init(disks=1, ack_after="write", **{**QUICK, **settings})
        for bookie in started:
            bookie.start(wait=False)
        for bookie in started:
            bookie.wait_ready()
        return started

    yield start
    for bookie in started:
        bookie.ensure_gone()


def payload(ledger: int, entry: int) -> bytes:
    return b"ledger %d entry %d " % (ledger, entry) * 5


def frame(ledger: int, entry: int, lac: int, *, rotten: bool = False) -> bytes:
    """A recovery add, as its writer or a recovery would send it, with the CRC32 digest."""
    length = sum(len(payload(ledger, each)) for each in range(entry + 1))
    data = bytearray(raw.make_entry(ledger, entry, payload(ledger, entry), lac, length))
    data[-1] ^= rotten
    body = struct.pack(">BBH", 2, 1, raw.RECOVERY) + raw.master_key() + data
    return struct.pack(">I", len(body)) + body


def store(
    bookie: BookieProcess,
    ledger: int,
    entries: Iterable[int],
    *,
    lac: int | None = None,
    rotten: bool = False,
) -> None:
    """Write these entries to one bookie. Without ``lac`` each says that the one before it is acknowledged."""
    wanted = list(entries)
    with raw.RawClient(bookie.port) as client:
        for entry in wanted:
            client.send(frame(ledger, entry, entry - 1 if lac is None else lac, rotten=rotten))
        assert {client.answer().code for _ in wanted} <= {raw.EOK}


def ledger_over(
    ledger: int,
    *fragments: tuple[int, list[BookieProcess]],
    write_quorum: int | None = None,
    ack_quorum: int | None = None,
    state: LedgerState = LedgerState.OPEN,
    last_entry: int = -1,
) -> LedgerMetadata:
    """Fragments as (first entry, bookies); CRC32 digests, no password."""
    size = len(fragments[0][1])
    wq = size if write_quorum is None else write_quorum
    length = sum(len(payload(ledger, entry)) for entry in range(last_entry + 1))
    return LedgerMetadata(
        LedgerId(ledger),
        size,
        wq,
        wq // 2 + 1 if ack_quorum is None else ack_quorum,
        state,
        tuple(
            Fragment(EntryId(first), tuple(BookieId(bookie.bookie_id) for bookie in bookies))
            for first, bookies in fragments
        ),
        last_entry=EntryId(last_entry) if state is LedgerState.CLOSED else EntryId(-1),
        length=length if state is LedgerState.CLOSED else 0,
        digest_type=DigestType.CRC32,
    )


def create(uri: str, metadata: LedgerMetadata) -> None:
    async def go() -> None:
        async with await connect(uri) as found:
            await found.create_ledger(metadata)

    asyncio.run(go())


def delete(uri: str, ledger: int) -> None:
    async def go() -> None:
        async with await connect(uri) as found:
            await found.delete_ledger(LedgerId(ledger))

    asyncio.run(go())


def metadata_of(uri: str, ledger: int) -> LedgerMetadata:
    async def go() -> LedgerMetadata:
        async with await connect(uri) as found:
            return (await found.read_ledger(LedgerId(ledger))).value

    return asyncio.run(go())


def fill(bookies: list[BookieProcess], metadata: LedgerMetadata, entries: int) -> None:
    """Create the ledger and write its entries to their whole write sets."""
    create(bookies[0].metadata, metadata)
    for bookie in bookies:
        store(bookie, metadata.ledger_id, expected(metadata, bookie, entries))


def expected(metadata: LedgerMetadata, bookie: BookieProcess, entries: int) -> list[int]:
    """What this bookie has to hold of the first so many entries, entry by entry."""
    found = []
    for entry in range(entries):
        ensemble = metadata.fragment_of(entry).ensemble
        positions = write_set(entry, metadata.ensemble_size, metadata.write_quorum)
        if bookie.bookie_id in [ensemble[position] for position in positions]:
            found.append(entry)
    return found


def lose_disks(*bookies: BookieProcess) -> None:
    """The hosts die, their disks are empty when they come back, and the operator says so."""
    for bookie in bookies:
        bookie.kill()
        shutil.rmtree(bookie.disks[0])
        bookie.disks[0].mkdir()
        bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")
    for bookie in bookies:
        bookie.start(wait=False)
    for bookie in bookies:
        bookie.wait_ready()


def limbo_of(bookie: BookieProcess) -> dict[str, object]:
    found: dict[str, object] = bookie.status()["limbo"]
    return found


def wait_until_repaired(*bookies: BookieProcess, timeout: float = 90) -> None:
    for bookie in bookies:
        wait_for(
            lambda bookie=bookie: limbo_of(bookie)["ledgers"] == 0,
            f"limbo of {bookie.bookie_id} to be empty",
            timeout=timeout,
            pause=0.2,
        )


def blocker_of(bookie: BookieProcess, ledger: int) -> dict[str, str] | None:
    blockers = limbo_of(bookie)["blockers"]
    assert isinstance(blockers, list)
    return next((each for each in blockers if each["ledger"] == ledger), None)


def held(bookie: BookieProcess, ledger: int, entries: int) -> dict[int, bytes]:
    """The payloads of those of the first so many entries that this bookie gives; every other one it denies."""
    found = {}
    with raw.RawClient(bookie.port) as client:
        for entry in range(entries):
            answer = client.read(ledger, entry)
            if answer.code == raw.EOK:
                found[entry] = raw.payload_of(answer.body)
            else:
                assert answer.code in (raw.ENOENTRY, raw.ENOLEDGER), (ledger, entry, answer.code)
    return found


def in_recovery(metadata: LedgerMetadata) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.IN_RECOVERY)
