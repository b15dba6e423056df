"""The writer of answers: what it packs is what the front-end's reader of slots finds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import BugError
from bkbox.ipc.frame_spans import segments

SLOT = 200

Found = list[tuple[int, int, bytes]]


class Slots:
    """Gives out slots, and keeps what was in those that were sent."""

    def __init__(self) -> None:
        self.sent: list[Found] = []
        self.slot = memoryview(bytearray(0))
        self.writer = ResponseWriter(self.more)

    def more(self, used: int) -> memoryview:
        self.send(used)
        self.slot = memoryview(bytearray(b"\xee" * SLOT))
        return self.slot

    def send(self, used: int) -> None:
        if used:
            found = segments(self.slot, used)
            self.sent.append(
                [(connection, count, bytes(data)) for connection, count, data in found]
            )

    def finish(self) -> list[Found]:
        self.send(self.writer.finish())
        return self.sent


def test_answers_of_one_connection_are_one_segment() -> None:
    slots = Slots()
    slots.writer.put(7, b"one", 1)
    slots.writer.put(7, b"twothree", 2)
    slots.writer.put(2**32 - 1, b"four", 1)
    slots.writer.put(7, b"five", 1)
    assert slots.finish() == [[(7, 3, b"onetwothree"), (2**32 - 1, 1, b"four"), (7, 1, b"five")]]


def test_room_is_reserved_in_the_slot_itself() -> None:
    slots = Slots()
    at = slots.writer.reserve(1, 4, 1)
    slots.slot[at : at + 4] = b"abcd"
    assert bytes(slots.writer.view[at : at + 4]) == b"abcd"
    assert slots.writer.used == at + 4
    assert slots.finish() == [[(1, 1, b"abcd")]]


def test_room_says_what_fits_into_the_present_slot() -> None:
    slots = Slots()
    assert slots.writer.space(1) < 0
    slots.writer.put(1, b"x", 1)
    slots.writer.put(1, bytes(slots.writer.space(1)), 1)
    assert slots.writer.space(1) == 0
    assert not slots.sent
    slots.writer.put(1, b"y", 1)
    assert len(slots.sent) == 1
    slots.writer.put(2, bytes(slots.writer.space(2)), 1)
    assert len(slots.sent) == 1
    assert slots.writer.space(2) == 0
    assert slots.writer.space(1) < 0


def test_a_rewind_gives_back_what_was_reserved_since_the_mark() -> None:
    slots = Slots()
    slots.writer.put(1, b"kept", 1)
    slots.writer.mark()
    slots.writer.put(1, b"same segment", 2)
    slots.writer.put(2, b"another", 1)
    slots.writer.rewind()
    slots.writer.put(1, b"+", 1)
    assert slots.finish() == [[(1, 2, b"kept+")]]


def test_a_mark_does_not_outlive_its_slot() -> None:
    slots = Slots()
    slots.writer.put(1, b"sent", 1)
    slots.writer.mark()
    slots.writer.put(1, bytes(SLOT - 12), 1)
    slots.writer.rewind()
    slots.writer.put(3, b"next", 1)
    assert slots.finish() == [[(1, 1, b"sent")], [(3, 1, b"next")]]


def test_a_writer_goes_on_after_it_was_finished() -> None:
    slots = Slots()
    assert slots.writer.finish() == 0
    slots.writer.put(1, b"a", 1)
    slots.finish()
    slots.writer.put(1, b"b", 1)
    assert slots.finish() == [[(1, 1, b"a")], [(1, 1, b"b")]]


def test_an_answer_that_no_slot_holds_is_a_bug() -> None:
    slots = Slots()
    with pytest.raises(BugError):
        slots.writer.reserve(1, SLOT - 11, 1)


def test_the_end_of_the_front_end_comes_out() -> None:
    def gone(used: int) -> memoryview:
        raise EOFError("gone")

    with pytest.raises(EOFError):
        ResponseWriter(gone).put(1, b"x", 1)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.binary(min_size=1, max_size=SLOT - 12), st.integers(1, 9))
    )
)
def test_every_connection_gets_its_answers_whole_and_in_order(
    answers: list[tuple[int, bytes, int]],
) -> None:
    slots = Slots()
    for connection, data, frames in answers:
        slots.writer.put(connection, data, frames)
    found = [segment for sent in slots.finish() for segment in sent]
    for wanted in (1, 2, 3):
        data = b"".join(data for connection, data, _ in answers if connection == wanted)
        assert b"".join(data for connection, _, data in found if connection == wanted) == data
    assert sum(count for _, count, _ in found) == sum(frames for _, _, frames in answers)
