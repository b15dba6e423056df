"""What tells a disk, or a metadata store, from the past: pure functions over records and witnesses."""

from __future__ import annotations

import json

import pytest

from bkbox.errors import DamagedError
from bkbox.supervisor.disks.witness import (
    NOTHING,
    BookieRecord,
    DiskRecord,
    DiskWitness,
    decode_record,
    disk_rollback,
    encode_record,
    failures,
    store_rollback,
    with_announced,
    with_disks,
    without_disks,
)

A, B = "uuid-a", "uuid-b"
RECORD = BookieRecord(7, 3, 0, {A: DiskRecord(3, 5, 2, 700), B: DiskRecord(3, 9, failed="EIO")})


def witness(
    generation: int = 3, sequence: int = 7, failed: dict[str, str] | None = None
) -> DiskWitness:
    return DiskWitness(generation, BookieRecord(sequence, generation, 0, {}), failed or {})


def test_a_record_is_read_as_it_was_written() -> None:
    for record in (NOTHING, RECORD, BookieRecord(1, 0, 1, {})):
        assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff", json.dumps({"sequence": 1, "disks": {}}).encode()],
)
def test_a_record_that_cannot_be_read_says_so(data: bytes) -> None:
    with pytest.raises(DamagedError, match="cannot be read"):
        decode_record(data)


def test_a_store_is_behind_where_a_disk_has_seen_more_of_it() -> None:
    assert store_rollback(RECORD, {}) == ""
    assert store_rollback(RECORD, {A: None}) == "", "a disk that knows nothing says nothing"
    assert store_rollback(RECORD, {A: witness(), B: witness(sequence=1)}) == ""
    assert "number 7" in store_rollback(RECORD, {A: witness(), B: witness(sequence=8)})
    assert "3 starts" in store_rollback(RECORD, {A: witness(generation=4)})
    assert "0 starts" in store_rollback(NOTHING, {A: witness(1, 0)}), "an empty store is one, too"


def test_a_start_that_was_cut_short_makes_no_store_an_older_one() -> None:
    announced = with_announced(RECORD, 4)
    assert (announced.sequence, announced.generation, announced.announced) == (8, 3, 4)
    assert store_rollback(announced, {A: witness(generation=4, sequence=8), B: witness()}) == ""
    for each in (A, B):
        assert disk_rollback(announced, each, witness(), 9) == "", "it did not get to this disk"
    assert store_rollback(announced, {A: witness(generation=5)})


def test_a_disk_is_behind_where_the_store_has_seen_more_of_it() -> None:
    assert disk_rollback(RECORD, "new", None, 0) == ""
    assert disk_rollback(RECORD, A, witness(), 5) == ""
    assert disk_rollback(RECORD, A, witness(generation=4), 6) == "", "the record is written later"
    assert "start 2" in disk_rollback(RECORD, A, witness(generation=2), 9)
    assert "start 0" in disk_rollback(RECORD, A, None, 9)
    assert "checkpoint is 4" in disk_rollback(RECORD, A, witness(), 4)


def test_disks_that_are_not_named_any_more_are_out_of_use() -> None:
    record = with_disks(with_announced(RECORD, 4), 4, {A: DiskRecord(4, 6)})
    assert record == BookieRecord(9, 4, 0, {A: DiskRecord(4, 6)})
    assert disk_rollback(record, B, None, 0) == ""


def test_a_disk_that_is_taken_in_as_lost_leaves_the_start_that_has_begun() -> None:
    record = without_disks(with_announced(RECORD, 4), {A})
    assert record == BookieRecord(9, 3, 4, {B: RECORD.disks[B]})
    assert store_rollback(record, {B: witness(generation=4)}) == "", (
        "the killed start had reached this disk"
    )


def test_a_failure_is_known_from_all_others_and_not_from_the_disk_itself() -> None:
    seen = {A: witness(failed={A: "mine", B: "EIO"}), B: witness(failed={A: "gone", B: "mine"})}
    assert failures(RECORD, seen, B) == ["EIO"]
    assert failures(RECORD, seen, A) == ["gone"]
    assert failures(NOTHING, {A: None, B: witness(failed={A: "gone"})}, A) == ["gone"]
    assert failures(NOTHING, {}, A) == []
    other = {A: witness(failed={B: "remounted read-only"})}
    assert failures(RECORD, other, B) == ["EIO", "remounted read-only"]
