"""Recovery adds to ledgers that are being filled: the first one is looked at, the others pass the kernel, and every
change of the ledger has them looked at again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.base.values import replaced
from bkbox.bookie.bookie import Bookie
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import LedgerRecord
from tests.bookie.bench import bookie_of, new_disk, open_store, process, put_into_limbo
from tests.harness import raw

REPAIR = raw.RECOVERY | raw.HIGH_PRIORITY
OTHER_KEY = b"k" * 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    opened = open_store(new_disk(tmp_path))
    yield opened
    opened.abandon()


@pytest.fixture
def bookie(store: DiskStore) -> Bookie:
    return bookie_of(store)


def codes(bookie: Bookie, *frames: bytes) -> list[int]:
    return [int.from_bytes(body[4:8], "big", signed=True) for body in process(bookie, *frames)]


def repair(ledger: int, *entries: int) -> list[bytes]:
    return [raw.add_frame(ledger, entry, b"%d" % entry, REPAIR) for entry in entries]


@pytest.mark.parametrize("standing", ["limbo", "fenced"])
def test_it_takes_what_recovers_and_nothing_else(bookie: Bookie, standing: str) -> None:
    codes(bookie, raw.add_frame(1, 0, b"0"))
    if standing == "limbo":
        put_into_limbo(bookie, 1)
    else:
        assert codes(bookie, raw.read_frame(1, 0, raw.FENCE)) == [raw.EOK]
    assert codes(bookie, *repair(1, 1, 2)) == [raw.EOK] * 2
    assert 1 in bookie._dispatcher.filled
    assert 1 not in bookie._dispatcher.hot
    assert codes(bookie, *repair(1, 3, 4), *repair(1, 2)) == [raw.EOK] * 3
    assert codes(bookie, raw.add_frame(1, 9, b"x")) == [raw.EFENCED]
    assert codes(bookie, raw.add_frame(1, 9, b"x", REPAIR, key=OTHER_KEY)) == [raw.EUA]
    assert codes(bookie, *(raw.read_frame(1, entry) for entry in range(5))) == [raw.EOK] * 5
    assert codes(bookie, raw.read_frame(1, 9)) == [raw.EIO if standing == "limbo" else raw.ENOENTRY]


def test_an_open_ledger_takes_both_as_they_come(bookie: Bookie) -> None:
    codes(bookie, raw.add_frame(1, 0, b"0"))
    frames = [raw.add_frame(1, 1, b"old"), *repair(1, 1, 2), raw.add_frame(1, 3, b"3")]
    assert codes(bookie, *frames) == [raw.EOK] * 4
    assert bookie.reader.entry(1, 1)[1] is not None
    assert bytes(bookie.reader.entry(1, 1)[1] or b"").endswith(b"1"), "the last one counts"


def test_every_change_has_them_looked_at_again(bookie: Bookie) -> None:
    codes(bookie, raw.add_frame(1, 0, b"0"))
    put_into_limbo(bookie, 1)
    codes(bookie, *repair(1, 1))
    assert 1 in bookie._dispatcher.filled
    record = bookie.ledgers.record(1)
    assert record is not None
    bookie.set_states({1: replaced(record, limbo=False)})
    assert 1 not in bookie._dispatcher.filled
    codes(bookie, *repair(1, 2))
    assert 1 in bookie._dispatcher.filled, "it is fenced"
    trash = replaced(bookie.ledgers.record(1) or LedgerRecord(), deleted_ms=5)
    bookie.set_states({1: trash})
    assert 1 not in bookie._dispatcher.filled
    assert codes(bookie, *repair(1, 3)) == [raw.EOK]
    back = bookie.ledgers.record(1)
    assert back is not None
    assert back.deleted_ms == 0, "whoever recovers it takes it out of the trash"
    bookie.forget(1)
    assert 1 not in bookie._dispatcher.filled
    assert codes(bookie, raw.add_frame(1, 0, b"x", REPAIR, key=OTHER_KEY)) == [raw.EOK]


def test_on_a_disk_over_its_bound_they_are_taken(bookie: Bookie) -> None:
    codes(bookie, raw.add_frame(1, 0, b"0"))
    put_into_limbo(bookie, 1)
    codes(bookie, *repair(1, 1))
    bookie.watch_space(usage_max=0.0, reserve_bytes=0)
    assert codes(bookie, *repair(1, 2), raw.add_frame(1, 3, b"x")) == [raw.EOK, raw.EREADONLY]
