"""What a lost host leaves of a write is told from rot: whole sectors that hold what was there before, or none."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import OFFSET, AckAfter, Kind, LedgerRecord, Record, ledger_record
from bkbox.storage.log.scan import SegmentFindings
from bkbox.storage.log.segment import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Damage,
    TornTail,
    Untouched,
    encode_segment_header,
    filler,
    put_record,
    scan,
)
from tests.harness.faultyfiles import SECTOR_BYTES
from tests.storage.bench import KEY, Disk, entry, entry_bytes, put, segment_name

NAME = segment_name()
BODY = b"x" * 1_500
RECORD = (SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + len(BODY))
"""Where the first record begins and ends: in the first sector and in the fourth."""

FILLED_BYTES = 8_192
ROTS = (0, 5, 13, 15, 16, 447, 448, 1_000, 1_515)
"""Places in the record, in its header and in each of its sectors."""


def segment(*, filled: bool, follows: bool) -> bytearray:
    """One record, another one behind it if one ``follows``, then filler up to 8 KiB if it was ``filled``."""
    data = bytearray(encode_segment_header(NAME, 5))
    for body in (BODY, b"next") if follows else (BODY,):
        start = len(data)
        data += bytes(RECORD_HEADER_BYTES + len(body))
        put_record(data, start, Record(Kind.SEAL, body), NAME.seed, NAME.segment, start)
    if filled:
        data += filler(NAME.seed, len(data), FILLED_BYTES)
    return data


def untouched(path: Path, data: bytes) -> Untouched:
    """Of the only bad region."""
    path.write_bytes(data)
    file = RealFiles().open_read(path)
    try:
        (bad,) = [each for each in scan(file, NAME, 0) if isinstance(each, Damage | TornTail)]
    finally:
        file.close()
    return bad.untouched


def sectors() -> list[tuple[int, int]]:
    """The parts of the sectors that the record is in."""
    start, end = RECORD
    cuts = [start, *range(SECTOR_BYTES, end, SECTOR_BYTES), end]
    return list(pairwise(cuts))


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("at", ROTS)
def test_of_a_record_that_rotted_nothing_is_untouched(
    tmp_path: Path, at: int, filled: bool, follows: bool
) -> None:
    data = segment(filled=filled, follows=follows)
    data[RECORD[0] + at] ^= 4
    assert untouched(tmp_path / "s", data) == Untouched()


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_a_sector_of_filler_was_not_written(tmp_path: Path, which: int, follows: bool) -> None:
    data = segment(filled=True, follows=follows)
    start, end = sectors()[which]
    data[start:end] = filler(NAME.seed, start, end)
    assert untouched(tmp_path / "s", data).filler


@pytest.mark.parametrize("which", range(4))
def test_a_sector_of_zeros_may_not_have_been_written(tmp_path: Path, which: int) -> None:
    data = segment(filled=False, follows=which < 3)
    start, end = sectors()[which]
    data[start:end] = bytes(end - start)
    if which == 3:  # as the kernel lengthens a file: by a whole sector
        data += bytes(SECTOR_BYTES - len(data) % SECTOR_BYTES)
    assert untouched(tmp_path / "s", data) == Untouched(zeros_at=start)


@pytest.mark.parametrize("kept", [1, 15, 16, 448, 1_000, 1_515])
def test_what_lies_beyond_the_end_of_the_file_was_not_written(tmp_path: Path, kept: int) -> None:
    data = segment(filled=False, follows=False)
    assert untouched(tmp_path / "s", data[: RECORD[0] + kept]).filler


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (Untouched(), True),
        (Untouched(filler=True), False),
        (Untouched(zeros_at=999), True),
        (Untouched(zeros_at=1_000), False),
        (Untouched(filler=True, zeros_at=999), False),
    ],
)
def test_what_nothing_proves_is_lost_only_if_it_was_written_whole(
    found: Untouched, lost: bool
) -> None:
    """Zeros are what was there before only where the file had not been filled, here up to 1,000."""
    bad = {(600, 2_000): found}
    findings = SegmentFindings(1, 2_000, 2_000, bound=600, filled=1_000, bad=bad)

    def is_lost(**options: bool) -> bool:
        given = {"is_last": True, "is_proven": False, "host_crash": True, **options}
        (region,) = findings.classify(**given)
        return region.lost

    assert is_lost() is lost
    assert is_lost(is_last=False) is lost
    assert not is_lost(may_rot=True), "a journal has all of it"
    assert is_lost(is_proven=True)
    assert is_lost(host_crash=False), "write(2) took it as a whole"
    findings.bound = 601
    assert is_lost()
    assert is_lost(may_rot=True)
    findings.gaps[600, 2_000] = False
    assert not is_lost(), "an earlier start has judged"


@pytest.mark.parametrize("is_filler", [False, True])
def test_a_tail_that_a_killed_write_left_is_no_loss(is_filler: bool) -> None:
    untouched = Untouched(filler=is_filler)
    tail = TornTail(600, 2_000, is_filler, untouched)
    findings = SegmentFindings(1, 2_000, 2_000, bad={(600, 2_000): untouched}, tail=tail)
    for is_last in (False, True):
        (region,) = findings.classify(is_last=is_last, is_proven=False, host_crash=False)
        assert region.lost is not (is_last and is_filler)


# ---- a whole disk --------------------------------------------------------------------------------


def with_a_last_batch(disk: Disk, mode: AckAfter = AckAfter.SYNC) -> int:
    """Entries 0..2, each synced, and 3..5 in one write that was not; where in the log that write begins."""
    store = disk.start(mode)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    for number in range(3):
        put(store, entry(1, number, BODY))
    store.append([entry(1, number, BODY) for number in range(3, 6)])
    store.abandon()
    return record_of(disk, 3)


def record_of(disk: Disk, number: int) -> int:
    """Where the record of an entry begins in the log."""
    start = entry_bytes(1, number, BODY)[:16]
    return disk.segment().read_bytes().index(start) - RECORD_HEADER_BYTES


@pytest.fixture
def disk(ram_path: Path) -> Disk:
    return Disk(ram_path)


@pytest.mark.parametrize("zeros", [False, True])
def test_zeros_where_the_file_was_durably_filled_are_rot(disk: Disk, zeros: bool) -> None:
    disk.unwrite_sector(with_a_last_batch(disk), zeros=zeros)
    store = disk.open()
    report = store.replay(True)
    assert report.intact is not zeros
    assert bool(report.damaged) is zeros
    assert store.entries(1) == [(0, 2), (4, 5)]
    store.close()


@pytest.mark.parametrize("again", [False, True])
def test_filler_stays_filler_over_a_start(disk: Disk, again: bool) -> None:
    """A start that cut it off could not tell what a second lost host leaves from rot."""
    with_a_last_batch(disk)
    size = disk.segment().stat().st_size
    for at in [record_of(disk, number) for number in range(3, 6)]:
        disk.unwrite_sector(at)
    store = disk.open()
    report = store.replay(True)
    assert (report.intact, store.entries(1)) == (True, [(0, 2)])
    assert disk.segment().stat().st_size == size
    if again:
        store.append([entry(1, 3, BODY)])
        store.abandon()
        disk.unwrite_sector(record_of(disk, 3), zeros=True)
        store = disk.open()
        report = store.replay(True)
        assert not report.intact
    assert store.entries(1) == [(0, 2)]
    store.close()


def test_what_rotted_in_the_log_comes_from_the_journal(disk: Disk) -> None:
    at = with_a_last_batch(disk, AckAfter.JOURNAL)
    data = bytearray(disk.segment().read_bytes())
    data[at + 100] ^= 1
    disk.segment().write_bytes(data)
    store = disk.open(AckAfter.JOURNAL)
    report = store.replay(True)
    assert (report.trusted, report.damaged) == (True, ())
    assert store.entries(1) == [(0, 5)]
    store.close()


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_what_a_cut_cleared_behind_a_seal_is_no_loss(
    disk: Disk, sealed: bool, filled: bool
) -> None:
    """A file system clears the rest of the page that a file is cut in; a lost host may forget the cut alone."""
    store = disk.open(segment_bytes_max=16_384)
    store.replay(False)
    put(store, ledger_record(1, LedgerRecord(KEY)))
    last = 0
    while not disk.segment(2).exists() or disk.end_of_segment(2) == SEGMENT_HEADER_BYTES:
        put(store, entry(1, last, BODY))
        last += 1
    store.abandon()
    data = disk.segment().read_bytes()
    if not sealed:
        data = data[: -RECORD_HEADER_BYTES - OFFSET.size]
    page_end = len(data) + -len(data) % 4_096
    name = segment_name()
    rest = filler(name.seed, page_end, 16_384) if filled else b""
    disk.segment().write_bytes(data.ljust(page_end, b"\0") + rest)
    disk.segment(2).unlink()
    store = disk.open()
    report = store.replay(True)
    assert report.intact is sealed
    assert store.entries(1) == [(0, last - 2)]
    store.close()
