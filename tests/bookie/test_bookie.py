"""Batches of real frames against a real disk store: what is answered, and in which order things happen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.bookie.bookie import Bookie
from bkbox.bookie.readonly import DISK_FAILED, DISK_USAGE
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import LedgerRecord
from bkbox.wire.availability import decode
from bkbox.wire.codes import Code
from tests.bookie.bench import bookie_of, new_disk, open_store, process, put_into_limbo
from tests.harness import raw


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    opened = open_store(new_disk(tmp_path))
    yield opened
    opened.abandon()


@pytest.fixture
def bookie(store: DiskStore) -> Bookie:
    return bookie_of(store)


def ask(bookie: Bookie, *frames: bytes) -> list[tuple[int, int, bytes]]:
    """(code, entry id, body) of each answer, adds before reads."""
    found = []
    for body in process(bookie, *frames):
        code = int.from_bytes(body[4:8], "big", signed=True)
        entry = int.from_bytes(body[16:24], "big", signed=True)
        found.append((code, entry, body[24:]))
    return found


def codes(bookie: Bookie, *frames: bytes) -> list[int]:
    return [code for code, _entry, _body in ask(bookie, *frames)]


def test_a_fencing_read_sees_the_adds_before_it_and_stops_those_behind_it(bookie: Bookie) -> None:
    before, behind = raw.add_frame(1, 0, b"before"), raw.add_frame(1, 1, b"behind")
    fence = raw.read_frame(1, -1, raw.FENCE)
    answers = ask(bookie, before, fence, behind)
    assert [code for code, _entry, _body in answers] == [raw.EOK, raw.EFENCED, raw.EOK]
    assert raw.payload_of(answers[2][2]) == b"before"


def test_a_fence_of_an_unknown_ledger_creates_it_and_survives(
    tmp_path: Path, store: DiskStore
) -> None:
    assert codes(bookie_of(store), raw.read_frame(5, -1, raw.FENCE)) == [raw.ENOENTRY]
    store.abandon()
    again = open_store(tmp_path / "disk")
    assert codes(bookie_of(again), raw.add_frame(5, 0, b"late")) == [raw.EFENCED]
    again.abandon()


def test_a_wrong_key_neither_writes_nor_fences(bookie: Bookie) -> None:
    wrong = b"w" * 20
    assert codes(bookie, raw.add_frame(1, 0, b"x")) == [raw.EOK]
    assert codes(bookie, raw.add_frame(1, 1, b"x", key=wrong)) == [raw.EUA]
    assert codes(bookie, raw.read_frame(1, 0, raw.FENCE, key=wrong)) == [raw.EUA]
    assert codes(bookie, raw.add_frame(1, 1, b"x")) == [raw.EOK]


def test_two_creators_in_one_batch_the_first_key_counts(bookie: Bookie) -> None:
    other = b"o" * 20
    frames = raw.add_frame(1, 0, b"first"), raw.add_frame(1, 1, b"second", key=other)
    assert codes(bookie, *frames) == [raw.EOK, raw.EUA]


def test_limbo_serves_what_is_there_and_never_says_no(bookie: Bookie) -> None:
    codes(bookie, raw.add_frame(1, 0, b"here"), raw.add_frame(1, 1, b"last"))
    put_into_limbo(bookie, 1)
    put_into_limbo(bookie, 2)
    assert codes(bookie, raw.read_frame(1, 0)) == [raw.EOK]
    assert codes(bookie, raw.read_frame(1, -1)) == [raw.EOK]
    assert codes(bookie, raw.read_frame(1, 7)) == [raw.EIO]
    assert codes(bookie, raw.read_frame(2, -1)) == [raw.EIO]
    assert codes(bookie, raw.read_frame(2, 0, raw.FENCE)) == [raw.EIO]
    assert bookie.reader.entry(2, 0) == (Code.EUNKNOWNLEDGERSTATE, None)
    code, listed = bookie.reader.list_entries(1)
    assert (code, [*decode(listed)]) == (Code.EUNKNOWNLEDGERSTATE, [0, 1])
    assert codes(bookie, raw.add_frame(1, 2, b"x")) == [raw.EFENCED]
    assert codes(bookie, raw.add_frame(1, 2, b"x", raw.RECOVERY)) == [raw.EOK]


def test_limbo_and_ledgers_are_counted(bookie: Bookie) -> None:
    codes(bookie, raw.add_frame(1, 0, b"x"))
    put_into_limbo(bookie, 1)
    put_into_limbo(bookie, 2)
    assert (bookie.ledgers.total, bookie.ledgers.limbo) == (2, 2)
    bookie.set_states({1: LedgerRecord(raw.master_key(), fenced=True, limbo=False)})
    assert (bookie.ledgers.total, bookie.ledgers.limbo) == (2, 1)


def test_an_entry_whose_record_is_damaged_is_an_io_error(tmp_path: Path, bookie: Bookie) -> None:
    codes(bookie, raw.add_frame(1, 0, b"good"), raw.add_frame(1, 1, b"rotten" * 10))
    [segment] = (tmp_path / "disk" / "entrylog").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.rindex(b"rotten")] ^= 1
    segment.write_bytes(data)
    assert codes(bookie, raw.read_frame(1, 1)) == [raw.EIO]
    assert codes(bookie, raw.read_frame(1, 0)) == [raw.EOK]


def test_a_full_disk_takes_repair_but_no_ordinary_adds(bookie: Bookie) -> None:
    codes(bookie, raw.add_frame(1, 0, b"x"))
    bookie.watch_space(usage_max=0.0, reserve_bytes=0)
    assert bookie.read_only.reasons == {DISK_USAGE}
    assert codes(bookie, raw.add_frame(1, 1, b"x")) == [raw.EREADONLY]
    assert codes(bookie, raw.add_frame(1, 1, b"x", raw.RECOVERY)) == [raw.EREADONLY]
    repair = raw.add_frame(1, 1, b"x", raw.RECOVERY | raw.HIGH_PRIORITY)
    assert codes(bookie, repair) == [raw.EOK]
    assert codes(bookie, raw.read_frame(9, -1, raw.FENCE)) == [raw.ENOENTRY]
    bookie.watch_space(usage_max=1.0, reserve_bytes=0)
    assert codes(bookie, raw.add_frame(1, 2, b"x")) == [raw.EOK]


def test_a_failed_disk_acknowledges_nothing_and_still_reads(
    store: DiskStore, bookie: Bookie
) -> None:
    codes(bookie, raw.add_frame(1, 0, b"x"))
    store.health.failed_reason = "fdatasync failed"
    assert codes(bookie, raw.add_frame(1, 1, b"x"), raw.read_frame(2, -1, raw.FENCE)) == [
        raw.EIO,
        raw.EIO,
    ]
    assert DISK_FAILED in bookie.read_only.reasons
    assert codes(bookie, raw.read_frame(1, 0)) == [raw.EOK]
    assert codes(bookie, raw.read_frame(1, 1)) == [raw.ENOENTRY]


@pytest.mark.parametrize(("ledger", "entry"), [(-1, 0), (1, -1), (1, -(2**63))])
def test_adds_with_impossible_ids_are_bad_requests(bookie: Bookie, ledger: int, entry: int) -> None:
    assert codes(bookie, raw.add_frame(ledger, entry, b"x")) == [raw.EBADREQ]


def test_reads_with_impossible_ids_are_bad_requests(bookie: Bookie) -> None:
    assert codes(bookie, raw.read_frame(1, -2), raw.read_frame(-1, 0)) == [raw.EBADREQ] * 2


def test_the_list_of_entries_is_in_bookkeepers_encoding(bookie: Bookie) -> None:
    codes(bookie, *(raw.add_frame(1, entry, b"x") for entry in (0, 1, 2, 5)))
    code, data = bookie.reader.list_entries(1)
    assert code is Code.EOK
    assert list(decode(data)) == [0, 1, 2, 5]
    assert bookie.reader.list_entries(9) == (Code.ENOLEDGER, b"")
