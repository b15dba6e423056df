"""The pure parts of logs: positions, entries, lists, sequence numbers."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client.log import Compression, Position
from bkbox.client.log.entry import (
    HEADER,
    RAW_BYTES_MAX,
    Kind,
    RawRecord,
    decode,
    encode_records,
    encode_state,
)
from bkbox.client.log.ledger_list import LedgerList
from bkbox.client.log.ledger_list import decode as decode_list
from bkbox.client.log.ledger_list import encode as encode_list
from bkbox.client.log.sequences import STATE_BYTES_MAX, WRITERS_MAX, Sequences
from bkbox.errors import BugError, EncodingError, InvalidIdError
from bkbox.metadata.loglists import log_name


def at(ledger: int, entry: int, record: int = 0) -> Position:
    return Position(LedgerId(ledger), EntryId(entry), record)


def test_positions_sort_as_records_do_and_are_text() -> None:
    ordered = [at(0, 0), at(0, 0, 1), at(0, 1), at(0, 10), at(2, 0), at(10, 0)]
    shuffled = ordered[:]
    random.Random(1).shuffle(shuffled)
    assert sorted(shuffled) == ordered
    assert [Position.parse(str(each)) for each in ordered] == ordered
    assert str(at(7, 12)) == "7:12"
    assert str(at(7, 12, 3)) == "7:12.3"
    assert at(7, 12) < at(7, 12).after < at(7, 13)
    for wrong in ("", "7", "7:", ":1", "-1:0", "7:1.x", "7:1:2", f"{2**63}:0"):
        with pytest.raises(InvalidIdError, match="LEDGER:ENTRY"):
            Position.parse(wrong)


records = st.lists(
    st.builds(
        RawRecord,
        st.binary(max_size=300),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from(["", "w", "ü" * 100]),
        st.integers(0, 2**63 - 1),
    ),
    min_size=1,
    max_size=20,
)


@given(records, st.sampled_from(list(Compression)), st.integers(0, 2**40))
def test_records_come_back(found: list[RawRecord], kind: Compression, state_entry: int) -> None:
    decoded = decode(encode_records(found, state_entry, kind))
    assert (decoded.kind, decoded.state_entry) == (Kind.RECORDS, state_entry)
    expected = [
        each if each.writer_id else RawRecord(each.payload, each.timestamp_ms) for each in found
    ]
    assert list(decoded.records) == expected
    assert (
        sum(each.size for each in found)
        >= len(encode_records(found, 0, Compression.NONE)) - HEADER.size
    )


@pytest.mark.parametrize("kind", list(Compression))
def test_what_is_compressed_is_smaller_or_left_alone(kind: Compression) -> None:
    text = RawRecord(b"the same again and again " * 100, 0)
    noise = RawRecord(random.Random(1).randbytes(2000), 0)
    plain = len(encode_records([text], 0, Compression.NONE))
    assert (len(encode_records([text], 0, kind)) < plain / 5) == (kind is not Compression.NONE)
    assert encode_records([noise], 0, kind) == encode_records([noise], 0, Compression.NONE)


@given(records, st.sampled_from(list(Compression)), st.randoms(use_true_random=False))
def test_damaged_entries_are_refused_or_read_but_never_a_surprise(
    found: list[RawRecord], kind: Compression, rng: random.Random
) -> None:
    data = bytearray(encode_records(found, 0, kind))
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    cut = bytes(data[: rng.randint(0, len(data))]) if rng.random() < 0.5 else bytes(data)
    with suppress(EncodingError):
        decode(cut)


@pytest.mark.parametrize("kind", [Compression.ZSTD, Compression.LZ4])
def test_a_bomb_is_no_danger(kind: Compression) -> None:
    packed = bytearray(encode_records([RawRecord(bytes(1 << 20), 0)], 0, kind))
    for size in (0, 1000, RAW_BYTES_MAX + 1):
        struct.pack_into(">I", packed, HEADER.size - 4, size)
        with pytest.raises(EncodingError):
            decode(bytes(packed))


def test_what_is_no_entry_of_a_log() -> None:
    good = encode_state(b"{}", 0, Compression.NONE)
    for wrong, why in (
        (b"", "0 bytes"),
        (b"hello" * 10, "does not begin"),
        (good[:3] + b"\x02" + good[4:], "format 2"),
        (good[:4] + b"\x09" + good[5:], "Kind"),
        (good[:5] + b"\x09" + good[6:], "Compression"),
        (good + b"x", "instead of"),
    ):
        with pytest.raises(EncodingError, match=why):
            decode(wrong)


# ---- lists --------------------------------------------------------------------------------------------


def test_a_list_grows_rolls_and_is_truncated() -> None:
    one = (
        LedgerList("i")
        .opened(LedgerId(3))
        .rolled(LedgerId(5))
        .rolled(LedgerId(8))
        .rolled(LedgerId(9))
    )
    assert (one.epoch, one.ledgers, one.may_be_open) == (1, (3, 5, 8, 9), (8, 9))
    again = one.opened(LedgerId(12))
    assert (again.epoch, again.ledgers[-1]) == (2, 12)
    cut = one.truncated(at(8, 4))
    assert (cut.ledgers, cut.start, cut.doomed) == ((8, 9), at(8, 4), (3, 5))
    assert cut.truncated(at(1, 0)) == cut, "what is gone stays gone"
    far = one.truncated(at(9, 100))
    assert far.ledgers == (8, 9), "the last two may be open: they stay"
    assert cut.buried((LedgerId(3),)).doomed == (5,)
    for wrong in (9, 8, 0):
        assert not one.accepts(LedgerId(wrong))
        with pytest.raises(BugError):
            one.rolled(LedgerId(wrong))
    gone = one.emptied()
    assert (gone.deleted, gone.ledgers, gone.doomed) == (True, (), (3, 5, 8, 9))
    assert gone.epoch > one.epoch, "its writer has to find out"
    assert not gone.accepts(LedgerId(9)), "a position is never given twice"
    assert not gone.opened(LedgerId(10)).deleted


def test_lists_are_stored_as_text() -> None:
    one = LedgerList("i", 3, (LedgerId(3), LedgerId(5)), at(3, 1, 2), (LedgerId(1),), deleted=False)
    assert decode_list(encode_list(one)) == one
    good = encode_list(one)
    for wrong in (
        b"",
        b"[]",
        b"{}",
        good.replace(b'"format":1', b'"format":2'),
        good.replace(b"[3,5]", b"[5,3]"),
        good.replace(b"[3,5]", b"[3,3]"),
        good.replace(b"3:1.2", b"3"),
        good.replace(b"[1]", b"1"),
    ):
        with pytest.raises(EncodingError):
            decode_list(wrong)


@pytest.mark.parametrize("wrong", ["", ".", "..", "a/b", "-a", "a" * 129, "ü", "a b", None])
def test_names_of_logs(wrong: str) -> None:
    with pytest.raises(InvalidIdError, match="letters"):
        log_name(wrong)
    assert log_name("orders.v2_x-1") == "orders.v2_x-1"


# ---- sequences ----------------------------------------------------------------------------------------


def test_the_last_number_counts_and_is_kept() -> None:
    found = Sequences()
    found.note("a", 5, at(1, 1))
    found.note("b", 1, at(1, 2))
    found.note("a", 4, at(1, 3))
    assert found.last("a") == (5, at(1, 1))
    again = Sequences.decode(found.encode())
    assert (again.last("a"), again.last("b"), again.last("c")) == (
        (5, at(1, 1)),
        (1, at(1, 2)),
        None,
    )
    for wrong in (b"", b"[]", b'{"writers":[[1]]}', b'{"writers":[["a","x",1,1,1]]}'):
        with pytest.raises(EncodingError):
            Sequences.decode(wrong)


def test_only_so_many_writers_are_remembered() -> None:
    found = Sequences()
    for number in range(WRITERS_MAX):
        found.note(f"w{number}", 0, at(1, 0))
    found.note("w0", 1, at(1, 1))
    found.note("new", 0, at(1, 2))
    assert len(found) == WRITERS_MAX
    assert found.last("w1") is None, "it was heard of longest ago"
    assert found.last("w0") == (1, at(1, 1))


# ---- ledgers that were deleted by hand ------------------------------------------------------------------


def of(*ledgers: int) -> tuple[LedgerId, ...]:
    return tuple(map(LedgerId, ledgers))


def test_a_lost_ledger_is_taken_out() -> None:
    one = LedgerList("i", 4, of(3, 5, 8, 9))
    middle = one.without(LedgerId(5))
    assert (middle.ledgers, middle.lost, middle.epoch) == ((3, 8, 9), (5,), 4)
    for last in (8, 9):
        cut = one.without(LedgerId(last))
        assert cut.epoch == 5, "whoever writes it finds another epoch"
        assert set(cut.may_be_open) >= set(one.may_be_open) - {last}, "and is fenced as before"
    cut = one.without(LedgerId(9))
    assert not cut.accepts(LedgerId(9)), "a position is never given twice"
    assert cut.accepts(LedgerId(10))
    assert not cut.emptied().accepts(LedgerId(9))
    assert decode_list(encode_list(cut)) == cut
    both = middle.without(LedgerId(3))
    assert both.lost == (3, 5)
    assert both.truncated(at(8, 0)).lost == (), "what is truncated is nothing that is missed"
    assert both.truncated(at(4, 0)).lost == (5,)


@pytest.mark.parametrize("character", ["x", "é", "語", "\x01", "😀"])
def test_the_state_of_many_long_ids_fits_into_an_entry(character: str) -> None:
    found = Sequences()
    length = 250 // len(character.encode())
    for number in range(WRITERS_MAX):
        name = f"{number:05}" + character * length
        found.note(name, 2**63 - 1, Position(LedgerId(2**62 + number), EntryId(2**62), 10**9))
    state = found.encode()
    assert len(state) <= STATE_BYTES_MAX + 100
    again = Sequences.decode(state)
    assert again.last(name) == found.last(name) is not None
    assert len(again) == len(found) > 2_000
