"""Batches of adds and the walk that takes them: against the log's own reader and the wire's own codec."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from bkbox.bookie.add_group import AddBatch, AdmittedLedger
from bkbox.bookie.dispatch import FrameDispatcher
from bkbox.bookie.read_group import ReadBatch
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.storage.entries.entry_reader import Fetch
from bkbox.storage.index.memtable import EntryLocation, EntryLookup, Memtable
from bkbox.storage.log.ledger_counts import LedgerCounts
from bkbox.storage.log.records import ENTRY_IDS, Kind
from bkbox.storage.log.segment import (
    ENTRY_LOG_MAGIC,
    RECORD_HEADER_BYTES,
    SegmentName,
    decode_record,
)
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies
from bkbox.wire.v3_format import Operation

SEED = SegmentName(ENTRY_LOG_MAGIC, UUID(int=5), 3).seed
KEY = bytes(range(20))
OTHER_KEY = bytes(19) + b"\x01"


def entry(ledger: int, number: int, lac: int = -1, size: int = 32) -> bytes:
    head = b"".join(value.to_bytes(8, "big", signed=True) for value in (ledger, number, lac))
    return head + random.Random(number).randbytes(size - 24)


def add(ledger: int, number: int, *, key: bytes = KEY, flags: int = 0, lac: int = -1) -> bytes:
    return v2.encode_request(v2.AddRequest(2, flags, key, entry(ledger, number, lac)))


def add_v3(txn: int, ledger: int, number: int, *, recovery: bool = False) -> bytes:
    header = v3.Header(Operation.ADD_ENTRY, txn)
    data = entry(ledger, number)
    return v3.encode_request(v3.AddRequest(header, ledger, number, KEY, data, recovery))


def read(ledger: int, number: int, flags: int = 0) -> bytes:
    key = KEY if flags else None
    return v2.encode_request(v2.ReadRequest(2, flags, ledger, number, key))


class Walked:
    """One walk over frames of one connection."""

    def __init__(
        self, frames: list[bytes], hot: tuple[int, ...] = (1, 2), *, adds: bool = True
    ) -> None:
        self.area = memoryview(b"junk" + b"".join(frames))
        self.batch = AddBatch()
        self.batch.begin(self.area)
        self.slow: list[bytes] = []
        self.plain_reads: list[tuple[int, int]] = []
        self.slots: list[bytearray] = []
        self.reads = ReadBatch(
            EntryLookup(lambda _ledger, _entry: None, 1),
            Fetch(None, None),  # type: ignore[arg-type]
            lambda _ledger: -2,
            self._read,
        )
        dispatcher = FrameDispatcher()
        dispatcher.hot.update({ledger: AdmittedLedger(ledger, KEY) for ledger in hot})
        dispatcher.dispatch(
            self.area, 4, len(self.area), 7, self.batch if adds else None, self.reads, self._slow
        )

    def _slow(self, connection: int, start: int, end: int) -> None:
        assert connection == 7
        self.batch.mark(7, len(self.slow))
        self.slow.append(bytes(self.area[start:end]))

    def _read(self, version: int, _txn: int, ledger: int, number: int) -> bytes:
        self.plain_reads.append((ledger, number))
        return b"\0\0\0\x01x"

    def answers(self, code: Code = Code.EOK) -> list[bytes]:
        """Frames that the batch answers with, the marks as themselves."""
        slot = bytearray(1 << 16)
        writer = ResponseWriter(lambda _used: memoryview(slot))
        self.batch.respond(
            writer, code.v2, code.v3, lambda number: b"\0\0\0\x02#" + bytes((number,))
        )
        used = writer.used
        return [bytes(body) for body in bodies(memoryview(slot)[12:used], used)] if used else []

    def records(self, offset: int = 1000) -> list[tuple[int, bytes]]:
        """(offset, body) of what the batch packs, as the log's reader finds it."""
        room = bytearray(self.batch.record_bytes + 5)
        end = self.batch.pack(room, 5, SEED, 3, offset)
        assert end == len(room)
        found, at = [], 5
        while at < end:
            size = int.from_bytes(room[at + 4 : at + 8], "big")
            record = decode_record(
                memoryview(room)[at : at + RECORD_HEADER_BYTES + size], SEED, 3, offset + at - 5
            )
            assert record is not None
            assert record.kind is Kind.ENTRY
            found.append((offset + at - 5, bytes(record.body)))
            at += RECORD_HEADER_BYTES + size
        return found


def test_plain_adds_are_grouped_by_ledger_in_the_log_and_answered_in_the_order_of_arrival() -> None:
    walked = Walked([add(1, 5), add(2, 0), add_v3(77, 1, 6), add(2, 1)])
    assert walked.slow == []
    assert [body for _, body in walked.records()] == [
        entry(1, 5),
        entry(1, 6),
        entry(2, 0),
        entry(2, 1),
    ]
    responses = walked.answers()
    assert v2.decode_response(responses[0]) == v2.AddResponse(2, Code.EOK, 1, 5)
    assert v2.decode_response(responses[1]) == v2.AddResponse(2, Code.EOK, 2, 0)
    assert v3.decode_response(responses[2]) == v3.AddResponse(77, Code.EOK, 1, 6)
    assert v2.decode_response(responses[3]) == v2.AddResponse(2, Code.EOK, 2, 1)


def test_a_failure_is_answered_to_all() -> None:
    responses = Walked([add(1, 5), add_v3(2**64 - 3, 2, 0)]).answers(Code.EREADONLY)
    assert v2.decode_response(responses[0]) == v2.AddResponse(2, Code.EREADONLY, 1, 5)
    assert v3.decode_response(responses[1]) == v3.AddResponse(2**64 - 3, Code.EREADONLY, 2, 0)


SLOW = {
    "another key": add(1, 5, key=OTHER_KEY),
    "a ledger that is not hot": add(9, 5),
    "a recovery add": add(1, 5, flags=v2.FLAG_RECOVERY_ADD),
    "a recovery add of version 3": add_v3(5, 1, 5, recovery=True),
    "a negative entry id": add(1, -1),
    "a transaction id that means something": add_v3(2**64 - 1, 1, 5),
    "another such id": add_v3(2**64 - 2, 1, 5),
    "an entry without a header": v2.encode_request(v2.AddRequest(2, 0, KEY, bytes(23))),
    "a fencing read": read(1, 5, v2.FLAG_DO_FENCING),
    "a read of the last entry": read(1, -1),
    "another version": v2.encode_request(v2.AddRequest(1, 0, KEY, entry(1, 5))),
    "a force": v3.encode_request(v3.ForceRequest(v3.Header(Operation.FORCE_LEDGER, 5), 1)),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_is_not_plain_is_handed_on_in_its_place(name: str) -> None:
    walked = Walked([add(1, 4), SLOW[name], add(1, 6)])
    assert walked.slow == [SLOW[name][4:]]
    assert [body for _, body in walked.records()] == [entry(1, 4), entry(1, 6)]
    assert [answer[:1] for answer in walked.answers()][1] == b"#"


def test_no_adds_are_plain_where_none_are_taken() -> None:
    walked = Walked([add(1, 4), read(1, 4)], adds=False)
    assert walked.slow == [add(1, 4)[4:]]
    assert walked.batch.entries == 0


def test_plain_reads_go_to_the_reads() -> None:
    header = v3.Header(Operation.READ_ENTRY, 3)
    walked = Walked([read(1, 4), v3.encode_request(v3.ReadRequest(header, 8, 9))])
    assert walked.slow == []
    assert len(walked.reads) == 2


def test_frames_that_are_not_whole_are_a_defect_of_the_front_end() -> None:
    with pytest.raises(ValueError, match="not whole"):
        Walked([add(1, 4), add(1, 5)[:-1]])


def test_entries_from_elsewhere_are_stored_and_answered_by_their_mark() -> None:
    walked = Walked([add(1, 4)])
    group = AdmittedLedger(3, KEY)
    walked.batch.put(group, memoryview(entry(3, 1)))
    walked.batch.put(group, entry(3, 2, lac=1, size=100))
    walked.batch.mark(7, 9)
    assert [body for _, body in walked.records()] == [
        entry(1, 4),
        entry(3, 1),
        entry(3, 2, lac=1, size=100),
    ]
    assert (group.count, group.bytes, group.lac) == (2, 132, 1)
    answers = walked.answers()
    assert answers[1:] == [b"#\x09"]


def test_what_was_packed_is_found_by_the_index_and_counted() -> None:
    numbers = list(range(3_000))
    random.Random(4).shuffle(numbers)
    walked = Walked([add(1 + number % 2, number) for number in numbers])
    recent, counts, place = Memtable(), LedgerCounts(), EntryLocation()
    records = {ENTRY_IDS.unpack_from(body): at for at, body in walked.records(70_000)}
    walked.batch.index(recent, counts, 12)
    for number in numbers:
        assert recent.find(1 + number % 2, number, place)
        assert (place.segment, place.offset, place.length) == (
            12,
            records[1 + number % 2, number],
            32,
        )
    assert counts.items() == [(1, 1500, 1500 * 32), (2, 1500, 1500 * 32)]


def test_a_batch_is_used_again() -> None:
    walked = Walked([add(1, 4)])
    walked.records()
    walked.batch.ungroup()
    walked.batch.begin(memoryview(b""))
    assert (walked.batch.entries, walked.batch.record_bytes, len(walked.batch)) == (0, 0, 0)
    assert walked.answers() == []
