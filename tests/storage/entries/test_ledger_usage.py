"""What ledgers take on a disk, counted from footers: against what was appended, over seals, restarts and compaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.entries.ledger_usage import LedgerBytes
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import LedgerRecord, ledger_record
from bkbox.storage.log.segment import RECORD_HEADER_BYTES
from bkbox.storage.maintenance.compaction import remove_segment
from tests.storage.bench import KEY, Disk, entry, put
from tests.storage.maintenance.compacting import copy_out, look_through

OPEN = LedgerRecord(KEY)
EACH = len(entry(1, 0).body) + RECORD_HEADER_BYTES


@pytest.fixture
def disk(ram_path: Path) -> Disk:
    return Disk(ram_path, RealFiles(), level=True)


def counted(store: DiskStore) -> LedgerBytes:
    found = LedgerBytes(store.log)
    while not found.count():
        pass
    return found


def of(found: LedgerBytes, *ledgers: int) -> list[int]:
    return [found.of(ledger) // EACH for ledger in ledgers]


def write(store: DiskStore, ledger: int, entries: int, first: int = 0) -> None:
    put(store, *(entry(ledger, first + number) for number in range(entries)))


def test_what_was_appended_counts_wherever_it_lies(disk: Disk) -> None:
    store = disk.start()
    found = LedgerBytes(store.log)
    assert found.count()
    for ledger in (1, 2):
        put(store, ledger_record(ledger, OPEN))
    assert of(counted(store), 1, 2, 3) == [0, 0, 0]
    write(store, 1, 30)
    assert found.of(1) == 0, "nobody has counted since"
    assert found.count()
    assert of(found, 1, 2) == [30, 0]  # behind the last footer
    store.checkpoint()
    write(store, 2, 5)
    assert found.count()
    assert of(found, 1, 2) == [30, 5]  # a footer, and what lies behind it
    store.log.seal()
    write(store, 1, 2, 30)
    for _ in range(2):
        assert found.count()
        assert of(found, 1, 2) == [32, 5]
    store.abandon()
    store = disk.start()
    assert of(counted(store), 1, 2) == [32, 5]
    store.close()
    store = disk.start()
    assert of(counted(store), 1, 2) == [32, 5]
    assert counted(store).of(1) == 32 * EACH
    store.close()


def test_many_segments_are_counted_in_steps(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN))
    for number in range(40):
        write(store, 1, 1, number)
        store.log.seal()
    found = LedgerBytes(store.log)
    steps = 1
    while not found.count():
        steps += 1
    assert (steps, of(found, 1)) == (3, [40])
    assert found.count()
    assert of(found, 1) == [40]
    store.close()


@pytest.mark.parametrize("asked_before", [True, False])
def test_what_a_compaction_has_copied_counts_once(disk: Disk, asked_before: bool) -> None:
    store = disk.start()
    for ledger in (1, 2):
        put(store, ledger_record(ledger, OPEN))
        write(store, ledger, 20)
    store.log.seal()
    found = LedgerBytes(store.log)
    if asked_before:
        assert found.count()
    store.forget(2)
    compaction = copy_out(store, 1)
    assert found.count()
    assert found.of(1) // EACH in (20, 40), "it lies there twice"
    found.leave(1)
    assert found.count()
    assert of(found, 1, 2) == [20, 0]
    store.checkpoint()
    assert remove_segment(store, compaction, look_through(store)) == ""
    assert found.count()
    assert of(found, 1, 2) == [20, 0]
    assert of(counted(store), 1, 2) == [20, 0]
    store.close()


def test_footers_that_cannot_be_read_count_nothing_and_stop_nobody(disk: Disk) -> None:
    store = disk.start()
    put(store, ledger_record(1, OPEN))
    write(store, 1, 10)
    store.log.seal()
    write(store, 1, 3, 10)
    path = store.log.path_of(1)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert of(counted(store), 1) == [3]
    store.abandon()
