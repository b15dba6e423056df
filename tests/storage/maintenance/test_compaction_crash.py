"""A process or a host that is lost at any call of a compaction or of a deletion: nothing that counts is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import (
    LAC_PACKET,
    AckAfter,
    LedgerRecord,
    Record,
    lac_of,
    lac_record,
    ledger_record,
)
from tests.harness.faultyfiles import Crash
from tests.storage.bench import KEY, Host, entry, entry_bytes
from tests.storage.maintenance.compacting import compact, reindexed, sealed

OPEN = LedgerRecord(KEY)
FENCED = LedgerRecord(KEY, fenced=True)
LIMBO = LedgerRecord(KEY, fenced=True, limbo=True)
TRASH = LedgerRecord(KEY, fenced=True, deleted_ms=7)
EMPTIED = LedgerRecord(KEY, fenced=True, deleted_ms=7, emptied=True)

ENTRIES = 12


def lac(ledger: int, value: int) -> Record:
    return lac_record(LAC_PACKET.pack(ledger, value))


def filled(folder: Path, mode: AckAfter) -> Host:
    """Ledgers 1 to 6 over three sealed segments: open, fenced, in limbo, in the trash, emptied and forgotten."""
    host = Host(folder, mode)
    store = host.store

    def put(*records: Record) -> None:
        store.write(records, durable=True)

    for ledger in range(1, 7):
        put(ledger_record(ledger, OPEN), *(entry(ledger, number) for number in range(ENTRIES)))
    store.log.seal()
    put(entry(1, 3, b"newer"), ledger_record(2, FENCED), ledger_record(3, LIMBO), lac(1, 4))
    put(ledger_record(4, TRASH), ledger_record(5, EMPTIED))
    store.forget(6)
    store.log.seal()
    put(entry(1, ENTRIES), lac(1, 9))
    store.log.seal()
    put(entry(2, ENTRIES))
    return host


def check(store: DiskStore, host: Host, *, changed: set[int]) -> None:
    """``changed``: ledgers that the crash came upon while something was done to them."""
    expected = {1: OPEN, 2: FENCED, 3: LIMBO, 4: TRASH, 5: EMPTIED}
    for index in (store.index, reindexed(store, host.files)):
        found = dict(index.ledgers())
        for ledger in set(range(1, 7)) - changed:
            assert found.get(ledger) == expected.get(ledger), ledger
        packet = index.explicit_lac(1)
        assert packet is not None
        assert lac_of(packet) == 9
        for ledger in {1, 2, 3, 4} - changed:
            for number in range(ENTRIES):
                assert index.find(ledger, number) is not None, (ledger, number)
        for ledger in {5, 6} - changed:
            assert index.find(ledger, 0) is None
    for ledger in {1, 2, 3, 4} - changed:
        for number in range(ENTRIES):
            payload = b"newer" if (ledger, number) == (1, 3) else b"payload"
            assert store.read_entry(ledger, number) == entry_bytes(ledger, number, payload)
    assert store.read_entry(1, ENTRIES) == entry_bytes(1, ENTRIES)


def compact_all(store: DiskStore) -> None:
    for segment in sealed(store):
        compact(store, segment)


def empty_and_forget(store: DiskStore) -> None:
    store.write([ledger_record(4, EMPTIED)], durable=True)
    store.forget(5)


ForceClosePlan = Callable[[Host], object]

ENDINGS: dict[str, ForceClosePlan] = {
    "process": lambda host: host.kill(),
    "host": lambda host: host.lose(index_reached_the_disk=True),
    "host and index": lambda host: host.lose(index_reached_the_disk=False),
}


@pytest.mark.parametrize("every", [len(ENDINGS), pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.JOURNAL])
@pytest.mark.parametrize(
    ("operation", "changed"), [(compact_all, set()), (empty_and_forget, {4, 5})]
)
def test_every_point(
    mode: AckAfter,
    ending: str,
    operation: Callable[[DiskStore], None],
    changed: set[int],
    every: int,
) -> None:
    """Of every third point each ending takes another."""
    point, crashed = [*ENDINGS].index(ending) % every + 1 - every, True
    while crashed:
        point += every
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with TemporaryDirectory(dir=folder) as path:
            host = filled(Path(path), mode)
            host.files.crash_at(point)
            try:
                operation(host.store)
                crashed = False
            except Crash:
                pass
            ENDINGS[ending](host)
            check(host.store, host, changed=changed)
            # and what was begun is done again
            if host.report.trusted:
                operation(host.store)
                check(host.store, host, changed=changed)
            host.store.abandon()
    assert point > 3
