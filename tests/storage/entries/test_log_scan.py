"""What is read back from a log: the entries and SYNCED records of a chunk, and where the walk has to stop."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.base.limits import RECORD_BODY_BYTES_MAX
from bkbox.storage.entries.log_scan import LogScan
from bkbox.storage.index.memtable import EntryLocation, Memtable
from bkbox.storage.log.ledger_counts import LedgerCounts
from bkbox.storage.log.records import OFFSET, Kind, Record
from bkbox.storage.log.segment import RECORD_HEADER_BYTES, put_record

SEED, SEGMENT = 12345, 3
START = 64


def entry(ledger: int, number: int, size: int = 40) -> Record:
    return Record(Kind.ENTRY, struct.pack(">qqqq", ledger, number, -1, 0) + bytes(size - 32))


def packed(records: list[Record], start: int = START) -> bytes:
    room = bytearray(sum(RECORD_HEADER_BYTES + len(record.body) for record in records))
    at = 0
    for record in records:
        at = put_record(room, at, record, SEED, SEGMENT, start + at)
    return bytes(room)


class Walked:
    def __init__(self, data: bytes, *, base: int = START, start: int = START) -> None:
        self.recent, self.counts = Memtable(), LedgerCounts()
        self.scan = LogScan(SEED, SEGMENT)
        self.others: list[tuple[int, int, bytes]] = []
        self.end = self.walk(data, base, start)

    def walk(self, data: bytes, base: int, start: int) -> int:
        return self.scan.walk(data, base, start, self.recent, self.counts, self._other)

    def _other(self, offset: int, kind: int, body: bytes) -> None:
        counted = list(self.counts.items())
        assert [n for _, n, _ in counted] == ([self.scan.entries] if self.scan.entries else [])
        self.others.append((offset, kind, body))


RECORDS = [
    entry(1, 0),
    entry(1, 1),
    Record(Kind.SYNCED, OFFSET.pack(120)),
    entry(2, 0, 100),
    entry(1, 2),
]


def test_entries_are_put_and_counted() -> None:
    data = packed(RECORDS)
    walked = Walked(data)
    assert walked.end == START + len(data)
    assert (walked.scan.records, walked.scan.entries, walked.scan.bound) == (5, 4, 120)
    assert list(walked.counts.items()) == [(1, 3, 120), (2, 1, 100)]
    place = EntryLocation()
    assert walked.recent.find(2, 0, place)
    assert (place.segment, place.offset, place.length) == (SEGMENT, 64 + 2 * 56 + 24, 100)
    body = place.offset - START + 16
    assert data[body : body + 16] == struct.pack(">qq", 2, 0)


@given(st.integers(0, len(packed(RECORDS))), st.integers(0, 100))
def test_a_chunk_may_end_anywhere(cut: int, before: int) -> None:
    """The walk goes on in the next chunk, which begins where it stopped."""
    data = packed(RECORDS)
    walked = Walked(bytes(before) + data[:cut], base=START - before)
    stopped = walked.end - START
    assert stopped <= cut
    wanted = walked.scan.needed_bytes
    assert stopped + wanted > cut
    assert wanted == 16 or stopped + wanted <= len(data)
    end = walked.walk(data[stopped:], walked.end, walked.end)
    assert end == START + len(data)
    assert (walked.scan.entries, walked.scan.bound) == (4, 120)
    assert list(walked.counts.items()) == [(1, 3, 120), (2, 1, 100)]


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_stops_it_before_the_record(bit: int) -> None:
    data = packed(RECORDS)
    for at in range(56, 112):
        broken = bytearray(data)
        broken[at] ^= 1 << bit
        walked = Walked(bytes(broken))
        assert walked.end == START + 56
        assert walked.scan.entries == 1


@pytest.mark.parametrize(
    "record",
    [
        Record(Kind.LEDGER, bytes(9)),
        Record(Kind.FOOTER, bytes(8)),
        Record(Kind.SEAL, bytes(8)),
        Record(Kind.GAP, bytes(17)),
        Record(Kind.LAC, b""),
        Record(Kind.SYNCED, bytes(7)),
    ],
)
def test_other_kinds_are_handed_on(record: Record) -> None:
    data = packed([entry(1, 0), record, entry(1, 1)])
    walked = Walked(data)
    assert walked.others == [(START + 56, int(record.kind), record.body)]
    assert (walked.end, walked.scan.records) == (START + len(data), 3)
    assert list(walked.counts.items()) == [(1, 2, 80)]


@pytest.mark.parametrize("record", [Record(Kind.ENTRY, bytes(15)), entry(-1, 0), entry(1, -1)])
def test_an_entry_without_ids_is_not_taken(record: Record) -> None:
    walked = Walked(packed([entry(1, 0), record, entry(1, 1)]))
    assert (walked.end, walked.scan.needed_bytes, walked.others) == (START + 56, 0, [])
    assert walked.scan.entries == 1


def test_a_record_counts_only_where_it_was_written() -> None:
    data = packed(RECORDS)
    assert Walked(data, base=START + 1, start=START + 1).scan.records == 0
    other = LogScan(SEED, SEGMENT + 1)
    assert other.walk(data, START, START, Memtable(), LedgerCounts(), print) == START
    other = LogScan(SEED + 1, SEGMENT)
    assert other.walk(data, START, START, Memtable(), LedgerCounts(), print) == START


def test_a_length_that_no_record_has_is_not_waited_for() -> None:
    data = bytearray(packed([entry(1, 0)]))
    data[4:8] = struct.pack(">I", RECORD_BODY_BYTES_MAX + 1)
    assert Walked(bytes(data)).scan.needed_bytes == 0
