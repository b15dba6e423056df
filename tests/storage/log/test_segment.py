"""Torn tails at every byte, flipped bits in every field, and the search for the next good record."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from bkbox.base.values import replaced
from bkbox.errors import DamagedError, FormatVersionError
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import Kind, Record
from bkbox.storage.log.segment import (
    ENTRY_LOG_MAGIC,
    JOURNAL_MAGIC,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Damage,
    ScannedRecord,
    SegmentName,
    TornTail,
    Untouched,
    Unwritten,
    check_segment_header,
    encode_segment_header,
    filler,
    parse_segment_file_name,
    put_record,
    scan,
    segment_file_name,
)

NAME = SegmentName(ENTRY_LOG_MAGIC, UUID(int=7), 3)
BODIES = [b"first", b"", b"third " * 20]
HEADER = encode_segment_header(NAME, 5)


def encode_records(
    records: list[Record], seed: int, segment: int, offset: int
) -> tuple[bytes, list[int]]:
    """The bytes of records that go to ``offset`` of a segment, and the offset of each."""
    room = bytearray(sum(RECORD_HEADER_BYTES + len(record.body) for record in records))
    at, offsets = 0, []
    for record in records:
        offsets.append(offset + at)
        at = put_record(room, at, record, seed, segment, offset + at)
    return bytes(room), offsets


DATA, OFFSETS = encode_records(
    [Record(Kind.ENTRY, body) for body in BODIES], NAME.seed, NAME.segment, SEGMENT_HEADER_BYTES
)
WHOLE = HEADER + DATA


def scanned(path: Path, data: bytes, name: SegmentName = NAME) -> list[object]:
    path.write_bytes(data)
    file = RealFiles().open_read(path)
    try:
        return [
            replaced(item, untouched=Untouched()) if isinstance(item, Damage | TornTail) else item
            for item in scan(file, name, 0)
        ]
    finally:
        file.close()


def good(*numbers: int) -> list[object]:
    return [ScannedRecord(OFFSETS[number], Kind.ENTRY, BODIES[number]) for number in numbers]


def test_layout() -> None:
    assert HEADER[:8] == b"BKBOXLOG"
    assert len(HEADER) == 64
    assert OFFSETS == [64, 64 + 16 + 5, 64 + 16 + 5 + 16]
    assert DATA[4:16] == bytes.fromhex("00000005 00000003 b5 01") + DATA[14:16]


def test_all_records_are_found(tmp_path: Path) -> None:
    assert scanned(tmp_path / "s", WHOLE) == good(0, 1, 2)


def filled(data: bytes, size: int = 4096) -> bytes:
    return data + filler(NAME.seed, len(data), size)


def test_a_segment_ends_where_its_filler_begins(tmp_path: Path) -> None:
    for size in (len(WHOLE) + 1, len(WHOLE) + 8, 4096, 300_000):
        assert scanned(tmp_path / "s", filled(WHOLE, size)) == [
            *good(0, 1, 2),
            Unwritten(len(WHOLE)),
        ]
    assert scanned(tmp_path / "s", filled(HEADER)) == [Unwritten(len(HEADER))]


def test_filler_is_the_segments_own(tmp_path: Path) -> None:
    other = filler(SegmentName(ENTRY_LOG_MAGIC, UUID(int=7), 4).seed, len(WHOLE), 4096)
    for tail in (other, bytes(4096), filler(NAME.seed, len(WHOLE) + 1, 4096)):
        found = scanned(tmp_path / "s", WHOLE + tail)
        assert found == [*good(0, 1, 2), TornTail(len(WHOLE), len(WHOLE + tail), False)]


def test_a_record_that_was_cut_over_filler_is_a_short_tail(tmp_path: Path) -> None:
    for end in range(OFFSETS[2] + 1, len(WHOLE) - 7):
        found = scanned(tmp_path / "s", filled(WHOLE[:end]))
        assert found == [*good(0, 1), TornTail(OFFSETS[2], end, True), Unwritten(end)]


def test_a_wrong_last_record_is_not_taken_for_one_that_was_cut(tmp_path: Path) -> None:
    """Whatever its body ends with: filler of less than a unit by chance is no sign of a cut."""
    for last in range(8):
        end = len(WHOLE) + 16 + 40
        body = bytes(40 - last) + filler(NAME.seed, end - last, end)
        record = Record(Kind.ENTRY, body)
        added, _ = encode_records([record], NAME.seed, NAME.segment, len(WHOLE))
        data = filled(WHOLE + added)
        assert scanned(tmp_path / "s", data)[-2:] == [
            ScannedRecord(len(WHOLE), Kind.ENTRY, body),
            Unwritten(end),
        ]
        for at in range(len(WHOLE), end - last):
            wrong = bytearray(data)
            wrong[at] ^= 1
            found = scanned(tmp_path / "s", bytes(wrong))
            torn = end - last
            assert found == [*good(0, 1, 2), TornTail(len(WHOLE), torn, False), Unwritten(torn)]


def test_a_cut_record_is_a_short_tail(tmp_path: Path) -> None:
    for end in range(OFFSETS[2] + 1, len(WHOLE)):
        found = scanned(tmp_path / "s", WHOLE[:end])
        assert found == [*good(0, 1), TornTail(OFFSETS[2], end, True)]


def flipped(at: int) -> bytes:
    """All, but for one bit of a byte."""
    data = bytearray(WHOLE)
    data[at] ^= 1 << at % 8
    return bytes(data)


def test_a_flipped_bit_in_the_last_record_is_a_tail_that_is_not_short(tmp_path: Path) -> None:
    tail = TornTail(OFFSETS[2], len(WHOLE), False)
    for at in range(OFFSETS[2], len(WHOLE)):
        assert scanned(tmp_path / "s", flipped(at)) == [*good(0, 1), tail], f"byte {at}"


def test_a_flipped_bit_elsewhere_is_damage_up_to_the_next_good_record(tmp_path: Path) -> None:
    damage = Damage(OFFSETS[0], OFFSETS[1])
    for at in range(OFFSETS[0], OFFSETS[1]):
        assert scanned(tmp_path / "s", flipped(at)) == [damage, *good(1, 2)], f"byte {at}"


def test_two_regions(tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    data[OFFSETS[0]] ^= 1
    data[OFFSETS[2]] ^= 1
    assert scanned(tmp_path / "s", bytes(data)) == [
        Damage(OFFSETS[0], OFFSETS[1]),
        *good(1),
        TornTail(OFFSETS[2], len(WHOLE), False),
    ]


def test_a_record_verifies_only_where_it_was_written(tmp_path: Path) -> None:
    moved = HEADER + bytes(16) + DATA
    assert scanned(tmp_path / "s", moved) == [TornTail(64, len(moved), False)]
    for other in (
        SegmentName(JOURNAL_MAGIC, UUID(int=7), 3),
        SegmentName(ENTRY_LOG_MAGIC, UUID(int=8), 3),
        SegmentName(ENTRY_LOG_MAGIC, UUID(int=7), 4),
    ):
        assert scanned(tmp_path / "s", WHOLE, other) == [TornTail(64, len(WHOLE), False)]


def test_records_of_another_segment_inside_a_payload_are_not_taken_for_records(
    tmp_path: Path,
) -> None:
    """Replicating logs into logs is common: the payload may be a whole segment with the same id."""
    offset = SEGMENT_HEADER_BYTES
    data, offsets = encode_records(
        [Record(Kind.ENTRY, WHOLE * 3), Record(Kind.ENTRY, b"next")], NAME.seed, 3, offset
    )
    broken = bytearray(HEADER + data)
    broken[offset] ^= 1
    found = scanned(tmp_path / "s", bytes(broken))
    assert found == [
        Damage(offset, offsets[1]),
        ScannedRecord(offsets[1], Kind.ENTRY, b"next"),
    ]


def test_the_search_crosses_its_windows(tmp_path: Path) -> None:
    big = Record(Kind.ENTRY, bytes(3_000_001))
    data, offsets = encode_records([big, Record(Kind.ENTRY, b"x")], NAME.seed, 3, 64)
    broken = bytearray(HEADER + data)
    broken[70] ^= 1
    found = scanned(tmp_path / "s", bytes(broken))
    assert found == [Damage(64, offsets[1]), ScannedRecord(offsets[1], Kind.ENTRY, b"x")]


def test_a_flipped_bit_in_the_segment_header(tmp_path: Path) -> None:
    for at in range(SEGMENT_HEADER_BYTES):
        data = flipped(at)
        with pytest.raises(DamagedError):
            check_segment_header(data[:SEGMENT_HEADER_BYTES], NAME, tmp_path)
        assert scanned(tmp_path / "s", data) == good(0, 1, 2), f"byte {at}"


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bkbox.storage.log.segment.FORMAT", 3)
    header = encode_segment_header(NAME, 5)
    monkeypatch.undo()
    with pytest.raises(FormatVersionError, match="format 3"):
        check_segment_header(header, NAME, tmp_path)


def test_names() -> None:
    assert segment_file_name(12) == "0000000012.log"
    assert parse_segment_file_name("0000000012.log") == 12
    for name in ("12.log", "0000000012.log.new", "LOCK", "000000001x.log", "0000000012"):
        assert parse_segment_file_name(name) is None


def test_header_size() -> None:
    assert len(DATA) == sum(map(len, BODIES)) + 3 * RECORD_HEADER_BYTES
