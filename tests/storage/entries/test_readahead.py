"""Following readers that are behind: what is asked for ahead of them, and what leaves memory again."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from bkbox.base.limits import CATCH_UP_CACHE_BYTES, READ_AHEAD_BYTES, READ_AHEAD_STREAM_BYTES
from bkbox.errors import DiskError
from bkbox.storage.entries.readahead import ReadAhead
from bkbox.storage.files import RealFiles
from bkbox.storage.index.extents import Extent
from bkbox.storage.index.memtable import EntryLookup
from bkbox.storage.log.log_reader import LogReader
from bkbox.storage.log.segment import ENTRY_LOG_MAGIC, SegmentName

HEADER = 16
WRITING = 99


def no_run(ledger: int, entry: int) -> Extent | None:
    return None


class Disk(LogReader):
    """Counts what it is asked for; what is in memory is a set of pages."""

    def __init__(self) -> None:
        super().__init__(RealFiles(), lambda segment: Path("/nowhere"), self.name)
        self.finder = EntryLookup(no_run, 1 << 20)
        self.pages: set[tuple[int, int]] = set()
        self.wanted: list[tuple[int, int, int]] = []
        self.released: list[tuple[int, int, int]] = []
        self.broken = False
        self.ahead = ReadAhead(self.finder, self, lambda: WRITING)
        self.ends: dict[int, int] = {}
        self.places: dict[tuple[int, int], tuple[int, int, int]] = {}

    @staticmethod
    def name(segment: int) -> SegmentName:
        return SegmentName(ENTRY_LOG_MAGIC, UUID(int=1), segment)

    def write(self, segment: int, ledger: int, first: int, count: int, size: int) -> None:
        """Entries in the index; their bytes are nowhere."""
        offset = self.ends.get(segment, 64)
        for entry in range(first, first + count):
            self.finder.active.put(ledger, entry, segment, offset, size - HEADER)
            self.places[ledger, entry] = segment, offset, size
            offset += size
        self.ends[segment] = offset

    @staticmethod
    def _pages(segment: int, start: int, end: int) -> set[tuple[int, int]]:
        return {(segment, page) for page in range(start // 4096, (end + 4095) // 4096)}

    def is_cached(self, segment: int, offset: int) -> bool:
        return (segment, offset // 4096) in self.pages

    def want(self, segment: int, offset: int, size: int) -> None:
        if self.broken:
            raise DiskError("ordered")
        self.wanted.append((segment, offset, size))
        self.pages |= self._pages(segment, offset, offset + size)

    def release(self, segment: int, offset: int, size: int) -> None:
        assert offset % 4096 == size % 4096 == 0
        self.released.append((segment, offset, size))
        self.pages -= self._pages(segment, offset, offset + size)

    def read_entries(self, ledger: int, first: int, last: int) -> bool:
        """As storage/entries/entry_reader.py does it, on a system that does not read ahead; whether the disk had to be
        waited for."""
        segment, start, _ = self.places[ledger, first]
        _, end, size = self.places[ledger, last]
        end += size
        waited = not self._pages(segment, start, end) <= self.pages
        if waited:
            self.ahead.missed(segment, start, end - start)
        if waited or self.ahead.following:
            self.ahead.read(ledger, first, last, segment, start, end, waited)
        return waited

    def waits(self, ledger: int, first: int, last: int, step: int = 8) -> int:
        """Read all entries in between, some at once; how many times the disk had to be waited for."""
        return sum(
            self.read_entries(ledger, entry, min(entry + step - 1, last))
            for entry in range(first, last + 1, step)
        )


def test_readers_of_what_is_in_memory_cost_nothing() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 1_000, 1_000)
    disk.pages |= disk._pages(1, 0, 2_000_000)
    assert disk.waits(5, 0, 999) == 0
    assert not disk.ahead.following
    assert not disk.wanted


def test_a_reader_that_goes_on_waits_for_the_disk_only_at_first() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 20_000, 1_000)
    assert disk.waits(5, 0, 19_999) == 5
    assert sum(size for _, _, size in disk.wanted) < 20_100_000
    assert len(disk.wanted) < 80
    assert max(size for _, _, size in disk.wanted) < READ_AHEAD_STREAM_BYTES
    assert disk.ahead.asked == 0
    assert not disk.ahead.following, "he is through"


def test_a_ledger_that_lies_in_parts_is_asked_for_in_parts() -> None:
    disk = Disk()
    for first in range(0, 640, 64):
        for ledger in range(16):
            disk.write(1, ledger, first, 64, 1_000)
    for entry in range(0, 640, 8):
        disk.read_entries(3, entry, entry + 7)
    assert len(disk.wanted) < 24
    assert sum(size for _, _, size in disk.wanted) < 1.1 * 640_000
    for _, offset, size in disk.wanted:
        assert (offset - 64) % 1_024_000 // 64_000 == 3
        assert (offset + size - 65) % 1_024_000 // 64_000 == 3


def test_crumbs_are_not_asked_for() -> None:
    disk = Disk()
    for entry in range(2_000):
        for ledger in range(100):
            disk.write(1, ledger, entry, 1, 1_000)
    assert disk.waits(3, 0, 1_999, step=1) == 2_000
    assert disk.ahead.asked == 0
    assert len(disk.wanted) == 2_000


def test_random_reads_ask_for_nothing_ahead() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 20_000, 5_000)
    rng = random.Random(1)
    for _ in range(1_000):
        entry = rng.randrange(20_000)
        disk.read_entries(5, entry, entry)
    assert all(size == 5_000 for _, _, size in disk.wanted)
    assert disk.ahead.asked == 0


def test_several_readers_of_one_ledger_are_followed_each() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 30_000, 1_000)
    waits = 0
    for entry in range(0, 5_000, 8):
        for first in (0, 10_000, 20_000):
            waits += disk.read_entries(5, first + entry, first + entry + 7)
    assert waits == 15


def test_readers_that_follow_one_another_read_the_disk_once() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 30_000, 1_000)
    for entry in range(0, 30_000, 8):
        disk.read_entries(5, entry, entry + 7)
        if entry >= 5_000:
            assert not disk.read_entries(5, entry - 5_000, entry - 4_993)
    assert sum(size for _, _, size in disk.wanted) < 30_100_000


def test_what_was_read_leaves_in_its_turn() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 800, 1 << 20)
    disk.write(2, 6, 0, 10, 1 << 20)
    others = disk._pages(2, 0, 11 << 20)
    disk.pages |= others
    for entry in range(800):
        disk.read_entries(5, entry, entry)
        disk.read_entries(6, entry % 10, entry % 10)
    assert others <= disk.pages, "others were never waited for"
    left = len(disk.pages - others) * 4_096
    assert CATCH_UP_CACHE_BYTES - (4 << 20) < left < CATCH_UP_CACHE_BYTES + (4 << 20)
    assert disk.ahead.kept <= CATCH_UP_CACHE_BYTES
    assert {size for _, _, size in disk.released} == {1 << 20}


def test_a_reader_that_has_caught_up_is_not_followed() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 100, 1 << 20)
    assert disk.waits(5, 0, 1, step=1) == 2
    assert disk.ahead.following
    disk.pages |= disk._pages(1, 0, 101 << 20)
    assert disk.waits(5, 2, 99) == 0
    assert not disk.ahead.following
    assert disk.ahead.kept < 32 << 20


def test_the_segment_that_is_being_written_is_left_alone() -> None:
    disk = Disk()
    disk.write(WRITING, 5, 0, 800, 1 << 20)
    disk.waits(5, 0, 799, step=1)
    assert disk.ahead.kept <= CATCH_UP_CACHE_BYTES
    assert not disk.released


def test_many_readers_share_one_budget() -> None:
    disk = Disk()
    ledgers = 100
    for ledger in range(ledgers):
        disk.write(1, ledger, 0, 100, 100_000)
    for entry in range(40):
        for ledger in range(ledgers):
            disk.read_entries(ledger, entry, entry)
            assert disk.ahead.asked <= READ_AHEAD_BYTES + 200_000
    assert disk.ahead.asked > READ_AHEAD_BYTES // 2


def test_a_striped_ledger_is_read_ahead_too() -> None:
    disk = Disk()
    for entry in range(0, 9_000, 3):
        disk.write(1, 5, entry, 2, 1_000)
    waits = 0
    for entry in range(0, 9_000, 3):
        waits += disk.read_entries(5, entry, entry + 1)
    assert waits < 20


def test_a_disk_that_cannot_be_read_is_not_this_ones_to_tell() -> None:
    disk = Disk()
    disk.write(1, 5, 0, 100, 10_000)
    disk.waits(5, 0, 3, step=1)
    disk.broken = True
    for entry in range(4, 9):
        disk.ahead.read(5, entry, entry, 1, entry * 10_000, entry * 10_000 + 10_000, True)
    assert disk.ahead.asked == 0
    assert disk.ahead.following, "he still waits"


def test_a_log_reader_tells_what_is_there_and_gives_advice(tmp_path: Path) -> None:
    path = tmp_path / "1"
    path.write_bytes(bytes(range(256)) * 64)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    log = LogReader(RealFiles(), lambda segment: tmp_path / str(segment), Disk.name)
    room = memoryview(bytearray(100))
    log.want(1, 0, 16_384)
    assert log.read_into(1, 16_384 - 60, room) == 60
    assert room[:60] == bytes(range(196, 256))
    assert log.read_cached(1, 16_384 - 60, room) == 60
    log.release(1, 0, 16_384)
    assert log.read_into(1, 0, room) == 100
    assert log.read_cached(1, 16_384, room) == 0
    assert log.is_cached(1, 0)
    assert not log.is_cached(1, 16_384)
    log.close()


def test_a_file_system_that_cannot_tell_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.preadv

    def preadv(fd: int, rooms: Sequence[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "ordered")
        return real(fd, [rooms[0][:7]], offset)

    (tmp_path / "1").write_bytes(bytes(range(100)))
    monkeypatch.setattr(os, "preadv", preadv)
    log = LogReader(RealFiles(), lambda segment: tmp_path / str(segment), Disk.name)
    room = memoryview(bytearray(50))
    assert log.read_cached(1, 20, room) == 50
    assert room == bytes(range(20, 70))
    assert log.read_cached(1, 80, room) == 20
    log.close()


def test_a_reader_at_the_last_possible_entries_is_not_followed_beyond_them() -> None:
    """There is no id behind the last one, so nothing is looked up there."""
    disk = Disk()
    first = 2**63 - 40
    disk.write(1, 5, first, 40, 20_000)
    for entry in range(first, 2**63):
        segment, offset, size = disk.places[5, entry]
        disk.ahead.read(5, entry, entry, segment, offset, offset + size, True)
    assert disk.ahead.asked == 0
