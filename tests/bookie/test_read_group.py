"""Plain reads of a batch, on a real entry log: the answers are those that the codecs would make."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from bkbox.bookie.read_group import ReadBatch
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import DiskError
from bkbox.ipc.frame_spans import segments
from bkbox.storage.entries.entry_reader import COLD, Fetch
from bkbox.storage.files import RealFiles
from bkbox.storage.index.extents import Extent
from bkbox.storage.index.memtable import EntryLookup
from bkbox.storage.log.log_reader import LogReader
from bkbox.storage.log.records import Kind, Record
from bkbox.storage.log.segment import ENTRY_LOG_MAGIC, SegmentName, put_record
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.v3_fast_path import NO_LAC

DISK = UUID(int=7)
SLOT = 700 << 10
HEADER = 16


def name_of(segment: int) -> SegmentName:
    return SegmentName(ENTRY_LOG_MAGIC, DISK, segment)


def entry_of(ledger: int, entry: int, size: int) -> bytes:
    ids = ledger.to_bytes(8, "big") + entry.to_bytes(8, "big")
    return ids + random.Random(ledger << 20 | entry).randbytes(size - len(ids))


class Log:
    """Segments in a folder, the index of what is in them, and what a reader of them does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finder = EntryLookup(no_run, 1 << 20)
        self.recent = self.finder.active
        self.reader = LogReader(RealFiles(), self.path_of, name_of)
        self.entries: dict[tuple[int, int], bytes] = {}
        self.places: dict[tuple[int, int], tuple[int, int]] = {}
        self.missing: set[int] = set()
        """Segments of which nothing is in memory."""
        self.lacs: dict[int, int] = {}
        self.calls: list[tuple[str, int, int, int]] = []
        self.following = False
        self.seen: list[tuple[int, int, int, int, int, int, bool]] = []
        self.slow: list[tuple[int, int, int, int]] = []
        self.failing: set[int] = set()

    def path_of(self, segment: int) -> Path:
        return self.folder / f"{segment:010d}.log"

    def write(self, segment: int, *entries: bytes) -> None:
        """Append records."""
        with self.path_of(segment).open("ab") as file:
            for entry in entries:
                offset = file.tell()
                room = bytearray(HEADER + len(entry))
                put_record(
                    room, 0, Record(Kind.ENTRY, entry), name_of(segment).seed, segment, offset
                )
                file.write(room)
                ids = int.from_bytes(entry[:8], "big"), int.from_bytes(entry[8:16], "big")
                self.entries[ids] = entry
                self.places[ids] = segment, offset
                self.recent.put(*ids, segment, offset, len(entry))

    def spoil(self, segment: int, offset: int) -> None:
        """Change one byte."""
        data = bytearray(self.path_of(segment).read_bytes())
        data[offset] ^= 1
        self.path_of(segment).write_bytes(data)

    # ---- as a Source and a Follower

    def seed_of(self, segment: int) -> int:
        return self.reader.seed_of(segment)

    def read_cached(self, segment: int, offset: int, room: memoryview) -> int:
        self.calls.append(("cached", segment, offset, len(room)))
        if segment in self.missing:
            return 0
        return self.reader.read_cached(segment, offset, room)

    def read_into(self, segment: int, offset: int, room: memoryview) -> int:
        self.calls.append(("into", segment, offset, len(room)))
        if segment in self.failing:
            raise DiskError("ordered")
        return self.reader.read_into(segment, offset, room)

    def missed(self, segment: int, offset: int, size: int) -> None:
        self.calls.append(("missed", segment, offset, size))

    def read(
        self, ledger: int, first: int, last: int, segment: int, start: int, end: int, waited: bool
    ) -> None:
        self.seen.append((ledger, first, last, segment, start, end, waited))

    # ---- the bookie's part

    def answer_slowly(self, version: int, txn: int, ledger: int, entry: int) -> bytes:
        self.slow.append((version, txn, ledger, entry))
        return refusal(version, txn, ledger, entry)

    def batch(self) -> ReadBatch:
        return ReadBatch(
            self.finder,
            Fetch(self, self),
            lambda ledger: self.lacs.get(ledger, NO_LAC),
            self.answer_slowly,
        )


def no_run(ledger: int, entry: int) -> Extent | None:
    return None


def refusal(version: int, txn: int, ledger: int, entry: int) -> bytes:
    if version == 3:
        return v3.encode_response(v3.ReadResponse(txn, Code.ENOENTRY, ledger, entry, None, None))
    return v2.encode_response(v2.ReadResponse(version, Code.ENOENTRY, ledger, entry))


def served(version: int, txn: int, ledger: int, entry: int, body: bytes, lac: int | None) -> bytes:
    if version == 3:
        return v3.encode_response(v3.ReadResponse(txn, Code.EOK, ledger, entry, body, lac))
    return v2.encode_response(v2.ReadResponse(version, Code.EOK, ledger, entry, body))


def serve(batch: ReadBatch, deferred: ReadBatch | None = None) -> dict[int, bytes]:
    """The answers by connection."""
    answers: dict[int, bytes] = {}
    slots: list[memoryview] = []
    counts = 0

    def more(used: int) -> memoryview:
        nonlocal counts
        if used:
            for connection, count, frames in segments(slots[-1], used):
                answers[connection] = answers.get(connection, b"") + bytes(frames)
                counts += count
        slots.append(memoryview(bytearray(b"\xee" * SLOT)))
        return slots[-1]

    asked = len(batch)
    writer = ResponseWriter(more)
    batch.serve(writer, deferred)
    more(writer.finish())
    assert counts == asked - (0 if deferred is None else len(deferred))
    return answers


def test_what_is_not_in_memory_is_left_for_later_and_the_rest_is_answered(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for number in range(400):
        log.write(1 + number % 2, entry_of(5, number, 100 + number))
    log.missing = {2}
    batch, deferred = log.batch(), log.batch()
    for number in range(402):
        if number % 3:
            batch.add_v2(number % 7, 2, 5, number)
        else:
            batch.add_v3(number % 7, 9_000 + number, 5, number)
    now = serve(batch, deferred)
    assert not [call for call in log.calls if call[0] == "into"], "nobody waited for the disk"
    assert {segment for segment, _offset, _size in deferred.ranges} == {2}
    assert len(deferred) == 200
    assert len(log.slow) == 4, "two that are not there, answered again"
    asked = list(deferred.ranges)
    log.missing.clear()
    log.seen.clear()
    then = serve(deferred)
    assert deferred.ranges == []
    assert len(deferred) == 0
    assert {(segment, start, waited) for _l, _f, _t, segment, start, _e, waited in log.seen} == {
        (segment, offset, True) for segment, offset, _size in asked
    }
    for connection in range(7):
        numbers = [number for number in range(402) if number % 7 == connection]

        def answer(number: int) -> bytes:
            version, txn = (2, 0) if number % 3 else (3, 9_000 + number)
            if number >= 400:
                return refusal(version, txn, 5, number)
            return served(version, txn, 5, number, log.entries[5, number], None)

        here = [number for number in numbers if number % 2 == 0 or number >= 400]
        gone = [number for number in numbers if number % 2 and number < 400]
        assert now.get(connection, b"") == b"".join(map(answer, here))
        assert then.get(connection, b"") == b"".join(map(answer, gone))


def test_a_record_that_is_wrong_among_late_ones_is_told_once(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for number in range(20):
        log.write(1 + number % 2, entry_of(5, number, 100))
    log.spoil(1, log.places[5, 8][1] + 40)
    log.missing = {2}
    batch, deferred = log.batch(), log.batch()
    for number in range(20):
        batch.add_v2(1, 2, 5, number)
    serve(batch, deferred)
    assert len(deferred) in (0, 10)
    before = len(log.slow)
    assert before == 20 - len(deferred), "everything that was looked at with it, one by one"
    serve(deferred)
    assert len(log.slow) == before


def test_a_batch_read_that_is_not_in_memory_is_left_for_later(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(1, *(entry_of(5, number, 100) for number in range(1_500)))
    log.missing = {1}
    slot = memoryview(bytearray(1 << 20))
    writer = ResponseWriter(lambda used: slot)
    ranges: list[tuple[int, int, int]] = []
    batch = log.batch()
    assert batch.serve_batch(writer, 3, 5, 0, 77, 1_400, 1 << 20, ranges) == COLD
    assert writer.finish() == 0
    assert sum(size for _segment, _offset, size in ranges) == 1_400 * 116
    assert not [call for call in log.calls if call[0] == "into"]
    assert serve_batch(log.batch(), 0, 1_400, 1 << 20) == batch_answer(log, 0, 1_400)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_reads_of_both_versions_are_answered_in_place(log: Log) -> None:
    log.write(1, entry_of(5, 0, 100), entry_of(5, 1, 24), entry_of(6, 0, 3_000))
    log.lacs[5] = 1
    batch = log.batch()
    batch.add_v2(1, 2, 5, 0)
    batch.add_v3(1, 2**64 - 1, 5, 1)
    batch.add_v3(2, 9, 6, 0)
    answers = serve(batch)
    assert answers == {
        1: served(2, 0, 5, 0, log.entries[5, 0], None)
        + served(3, 2**64 - 1, 5, 1, log.entries[5, 1], 1),
        2: served(3, 9, 6, 0, log.entries[6, 0], None),
    }
    assert not log.slow
    assert batch.served == 3
    assert len(batch) == 0


def test_what_is_not_in_the_index_is_answered_by_the_bookie_in_its_turn(log: Log) -> None:
    log.write(1, entry_of(5, 0, 100), entry_of(5, 1, 100))
    batch = log.batch()
    for entry in (0, 7, 1):
        batch.add_v2(1, 2, 5, entry)
    batch.add_v3(1, 3, 8, 0)
    assert serve(batch)[1] == b"".join(
        (
            served(2, 0, 5, 0, log.entries[5, 0], None),
            refusal(2, 0, 5, 7),
            served(2, 0, 5, 1, log.entries[5, 1], None),
            refusal(3, 3, 8, 0),
        )
    )
    assert log.slow == [(2, 0, 5, 7), (3, 3, 8, 0)]


def test_neighbours_are_read_with_one_call_whatever_the_order(log: Log) -> None:
    log.write(1, *(entry_of(5, entry, 500) for entry in range(40)))
    log.write(2, *(entry_of(5, entry, 500) for entry in range(40, 50)))
    wanted = [*range(50), 3, 3]
    random.Random(1).shuffle(wanted)
    batch = log.batch()
    for entry in wanted:
        batch.add_v2(1, 2, 5, entry)
    answers = serve(batch)
    assert answers[1] == b"".join(
        served(2, 0, 5, entry, log.entries[5, entry], None) for entry in wanted
    )
    assert log.calls == [("cached", 1, 0, 40 * 516), ("cached", 2, 0, 10 * 516)]


def test_far_from_each_other_is_not_read_with_one_call(log: Log) -> None:
    log.write(1, entry_of(5, 0, 100), entry_of(6, 0, 20_000), entry_of(5, 1, 100))
    batch = log.batch()
    batch.add_v2(1, 2, 5, 0)
    batch.add_v2(1, 2, 5, 1)
    serve(batch)
    assert [call[3] for call in log.calls] == [116, 116]


@pytest.mark.parametrize("size", [200_000, 300_000, 600_000])
def test_large_entries(log: Log, size: int) -> None:
    entries = [entry_of(5, entry, size + entry) for entry in range(6)]
    log.write(1, *entries)
    batch = log.batch()
    for entry in range(6):
        batch.add_v2(entry % 2, 2, 5, entry)
    answers = serve(batch)
    for connection in range(2):
        assert answers[connection] == b"".join(
            served(2, 0, 5, entry, entries[entry], None) for entry in range(connection, 6, 2)
        )
    assert not log.slow


SPOILS: list[Callable[[int], int]] = [
    lambda offset: offset,  # checksum
    lambda offset: offset + 5,  # length
    lambda offset: offset + 13,  # kind
    lambda offset: offset + 15,  # header check
    lambda offset: offset + HEADER + 3,  # ledger
    lambda offset: offset + HEADER + 99,  # last byte
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_record_that_does_not_verify_is_the_bookies_to_answer(
    log: Log, spoil: Callable[[int], int]
) -> None:
    log.write(1, *(entry_of(5, entry, 100) for entry in range(9)))
    log.spoil(1, spoil(log.places[5, 4][1]))
    batch = log.batch()
    batch.add_v2(1, 2, 5, 0)
    assert serve(batch)
    log.slow.clear()
    for entry in range(9):
        batch.add_v2(1 + entry % 2, 2, 5, entry)
    answers = serve(batch)
    assert (2, 0, 5, 4) in log.slow
    for connection in (1, 2):
        assert answers[connection] == b"".join(
            refusal(2, 0, 5, entry) for entry in range(connection - 1, 9, 2)
        )


def test_the_right_record_under_another_id_does_not_verify(log: Log) -> None:
    log.write(1, entry_of(5, 0, 100), entry_of(5, 1, 100))
    log.recent.put(5, 2, 1, log.places[5, 1][1], 100)
    batch = log.batch()
    batch.add_v2(1, 2, 5, 2)
    assert serve(batch)[1] == refusal(2, 0, 5, 2)


def test_a_segment_that_is_cut_short_or_gone(log: Log) -> None:
    log.write(1, entry_of(5, 0, 100))
    log.recent.put(5, 1, 1, 116, 100)
    log.recent.put(5, 2, 3, 0, 100)
    batch = log.batch()
    for entry in range(1, 3):
        batch.add_v2(1, 2, 5, entry)
        assert serve(batch)[1] == refusal(2, 0, 5, entry)


def test_what_is_not_in_memory_is_asked_for_first_and_waited_for_last(log: Log) -> None:
    for segment in (1, 2, 3):
        log.write(segment, *(entry_of(segment, entry, 100) for entry in range(3)))
    log.missing = {1, 3}
    batch = log.batch()
    for segment in (1, 2, 3):
        for entry in (2, 0):
            batch.add_v2(1, 2, segment, entry)
    assert serve(batch)[1] == b"".join(
        served(2, 0, segment, entry, log.entries[segment, entry], None)
        for segment in (1, 2, 3)
        for entry in (2, 0)
    )
    assert [call[:2] for call in log.calls] == [
        ("cached", 1),
        ("missed", 1),
        ("cached", 2),
        ("cached", 3),
        ("missed", 3),
        ("into", 1),
        ("into", 3),
    ]
    assert log.seen == [(1, 0, 2, 1, 0, 348, True), (3, 0, 2, 3, 0, 348, True)]


def test_a_follower_that_is_following_sees_all_reads(log: Log) -> None:
    log.write(1, *(entry_of(5 + entry % 2, entry // 2, 100) for entry in range(8)))
    log.write(1, *(entry_of(8, entry, 100) for entry in range(3)))
    log.following = True
    batch = log.batch()
    for ledger, entry in ((8, 2), (8, 0), (5, 3)):
        batch.add_v2(1, 2, ledger, entry)
    serve(batch)
    assert log.seen == [(5, 3, 3, 1, 696, 812, False), (8, 0, 2, 1, 928, 1_276, False)]


def test_a_disk_that_cannot_be_read(log: Log) -> None:
    log.write(1, entry_of(5, 0, 100))
    log.write(2, entry_of(6, 0, 100))
    log.missing = log.failing = {2}
    batch = log.batch()
    batch.add_v2(1, 2, 5, 0)
    batch.add_v2(1, 2, 6, 0)
    assert serve(batch)[1] == refusal(2, 0, 5, 0) + refusal(2, 0, 6, 0)


def test_the_end_of_the_front_end_leaves_a_batch_that_can_be_cleared(log: Log) -> None:
    def gone(used: int) -> memoryview:
        raise EOFError("gone")

    log.write(1, entry_of(5, 0, 100))
    batch = log.batch()
    batch.add_v2(1, 2, 5, 0)
    with pytest.raises(EOFError):
        batch.serve(ResponseWriter(gone))
    batch.clear()
    assert serve(batch) == {}
    batch.add_v2(1, 2, 5, 0)
    assert serve(batch)[1] == served(2, 0, 5, 0, log.entries[5, 0], None)


def batch_answer(log: Log, first: int, count: int) -> bytes:
    entries = tuple(log.entries[5, entry] for entry in range(first, first + count))
    return v2.encode_response(v2.BatchReadResponse(2, Code.EOK, 5, first, 77, entries))


def serve_batch(batch: ReadBatch, first: int, count_max: int, size_max: int) -> bytes | None:
    slot = memoryview(bytearray(4 << 20))
    writer = ResponseWriter(lambda used: slot)
    served = batch.serve_batch(writer, 3, 5, first, 77, count_max, size_max)
    used = writer.finish()
    if not served:
        assert not used
        return None
    [(connection, count, frames)] = segments(slot, used)
    assert (connection, count) == (3, 1)
    return bytes(frames)


def test_batch_reads(log: Log) -> None:
    log.write(1, *(entry_of(5, entry, 100 + entry % 7) for entry in range(3_000)))
    log.write(2, *(entry_of(5, entry, 2_000) for entry in range(3_000, 3_010)))
    batch = log.batch()
    large = 4 << 20
    assert serve_batch(batch, 10, 5, large) == batch_answer(log, 10, 5)
    assert serve_batch(batch, 2_998, 0, large) == batch_answer(log, 2_998, 12)
    assert serve_batch(batch, 0, -1, large) == batch_answer(log, 0, 3_010)
    assert serve_batch(batch, 3_010, 5, large) is None
    for count in (1, 2, 9):
        exact = len(batch_answer(log, 2_995, count))
        assert serve_batch(batch, 2_995, 0, exact) == batch_answer(log, 2_995, count)
        assert serve_batch(batch, 2_995, 0, exact + 1) == batch_answer(log, 2_995, count)
    assert serve_batch(batch, 2_995, 0, 1) == batch_answer(log, 2_995, 1)
    assert serve_batch(batch, 2_995, 0, exact - 1) == batch_answer(log, 2_995, 8)


def test_a_batch_read_that_fails_answers_nothing(log: Log) -> None:
    log.write(1, *(entry_of(5, entry, 100) for entry in range(1_500)))
    log.spoil(1, log.places[5, 1_400][1])
    assert serve_batch(log.batch(), 0, 0, 1 << 20) is None
    assert serve_batch(log.batch(), 0, 1_400, 1 << 20) == batch_answer(log, 0, 1_400)


def test_any_mixture_of_many_reads(log: Log) -> None:
    rng = random.Random(4)
    for segment in (1, 2, 7):
        for ledger in range(20):
            log.write(
                segment,
                *(
                    entry_of(ledger, segment * 100 + number, rng.randrange(24, 2_000))
                    for number in range(rng.randrange(30))
                ),
            )
    log.lacs = {ledger: ledger * 1_000 for ledger in range(0, 20, 2)}
    log.missing = {2}
    log.following = True
    known = sorted(log.entries)
    batch = log.batch()
    wanted: dict[int, list[bytes]] = {}
    for number in range(5_000):
        connection = rng.randrange(1, 4)
        ledger, entry = rng.choice(known) if rng.random() < 0.9 else (rng.randrange(30), 99)
        version = rng.choice((2, 3))
        body = log.entries.get((ledger, entry))
        if version == 2:
            batch.add_v2(connection, 2, ledger, entry)
        else:
            batch.add_v3(connection, number, ledger, entry)
        txn = number if version == 3 else 0
        wanted.setdefault(connection, []).append(
            refusal(version, txn, ledger, entry)
            if body is None
            else served(version, txn, ledger, entry, body, log.lacs.get(ledger))
        )
    answers = serve(batch)
    for connection, frames in wanted.items():
        assert answers[connection] == b"".join(frames)
