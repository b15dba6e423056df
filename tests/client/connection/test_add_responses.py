"""Answers to adds: matched as a queue for every key would match them."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkbox.client.connection.add_responses import OutstandingAdds, match_v2, match_v3, whole_frames
from bkbox.errors import FrameError
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.v3_fast_path import FastResponseV3

CODES = st.sampled_from([Code.EOK, Code.EOK, Code.EOK, Code.EIO, Code.EFENCED])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 30), st.integers(1, 200)),
        st.tuples(st.just("each"), st.integers(0, 30), st.integers(1, 20)),
        st.tuples(st.just("pop"), st.integers(0, 3), st.integers(1, 200)),
        st.tuples(st.just("close"), st.integers(0, 300), st.integers(1, 20)),
    ),
    max_size=30,
)


@given(STEPS)
def test_slots_are_taken_in_the_order_of_sending(steps: list[tuple[str, int, int]]) -> None:
    outstanding = OutstandingAdds()
    keys: list[int] = []
    by_key: dict[int, deque[int]] = defaultdict(deque)

    def sent(new: list[int]) -> None:
        for key in new:
            by_key[key].append(len(keys))
            keys.append(key)

    for step, start, count in steps:
        if step == "push":
            outstanding.push(start, count)
            sent(list(range(start, start + count)))
        elif step == "each":
            new = tuple(range(start, start + 3 * count, 3))
            outstanding.push_each(new)
            sent(list(new))
        elif step == "close":
            first = min(start, len(keys))
            last = min(start + count, len(keys)) - 1
            outstanding.close(first, last)
            for slot in range(first, last + 1):
                if slot in by_key[keys[slot]]:
                    by_key[keys[slot]].remove(slot)
        else:
            for key in range(start, start + count):
                expected = by_key[key].popleft() if by_key[key] else -1
                assert outstanding.pop(key) == expected
        assert outstanding.tail == len(keys)
    open_slots = {slot for slots in by_key.values() for slot in slots}
    assert {slot for slot in range(len(keys)) if outstanding.is_open(slot)} == open_slots


def test_answers_of_version_2_come_as_runs() -> None:
    one, two = OutstandingAdds(), OutstandingAdds()
    one.push(5, 6)
    two.push(0, 2)
    codes = {8: Code.EIO}
    order = [(1, 5), (1, 6), (2, 0), (2, 1), (1, 7), (1, 8), (1, 10), (1, 9)]
    chunk = b"".join(
        v2.encode_response(v2.AddResponse(2, codes.get(entry, Code.EOK), ledger, entry))
        for ledger, entry in order
    )
    rest = v2.encode_response(v2.ReadResponse(2, Code.ENOENTRY, 1, 3))
    found: list[tuple[OutstandingAdds, int, int, int]] = []
    data = memoryview(b"??" + chunk + rest)
    assert match_v2(data, 2, len(data), {1: one, 2: two}, found) == 2 + len(chunk)
    assert found == [
        (one, 0, 1, 0),
        (two, 0, 1, 0),
        (one, 2, 2, 0),
        (one, 3, 3, 101),
        (one, 5, 5, 0),
        (one, 4, 4, 0),
    ]


@pytest.mark.parametrize(("ledger", "entry"), [(1, 7), (2, 5)])
def test_an_answer_of_version_2_that_nobody_asked_for(ledger: int, entry: int) -> None:
    outstanding = OutstandingAdds()
    outstanding.push(5, 2)
    frames = [v2.AddResponse(2, Code.EOK, 1, 5), v2.AddResponse(2, Code.EOK, ledger, entry)]
    data = b"".join(map(v2.encode_response, frames))
    found: list[tuple[OutstandingAdds, int, int, int]] = []
    with pytest.raises(FrameError, match=f"entry {entry}, ledger {ledger}"):
        match_v2(data, 0, len(data), {1: outstanding}, found)
    assert found == [(outstanding, 0, 0, 0)]


def test_answers_of_version_3_come_as_runs() -> None:
    outstanding = OutstandingAdds()
    outstanding.push(1000, 5)
    frames = [
        v3.encode_response(v3.AddResponse(1000, Code.EOK, 1, 5)),
        v3.encode_response(v3.AddResponse(1001, Code.EOK, 1, 6)),
        v3.encode_response(v3.AddResponse(1003, Code.EFENCED, 1, 8)),
        v3.encode_response(v3.AddResponse(1002, Code.EOK, 1, 7)),
        v3.encode_response(v3.AddResponse(77, Code.EOK, 1, 7)),
    ]
    data = b"".join(frames)
    found: list[tuple[OutstandingAdds, int, int, int]] = []
    end = match_v3(data, 0, len(data), {1: outstanding}, found, FastResponseV3())
    assert end == len(data) - len(frames[-1])
    assert found == [(outstanding, 0, 1, 0), (outstanding, 3, 3, 504), (outstanding, 2, 2, 0)]
    assert outstanding.is_open(4)


@given(st.lists(st.integers(1, 40), max_size=8), st.integers(0, 60))
def test_whole_frames(sizes: list[int], cut: int) -> None:
    frames = [size.to_bytes(4, "big") + bytes(size) for size in sizes]
    data = b"".join(frames)
    data = data[: max(len(data) - cut, 0)]
    end = 0
    while frames and end + len(frames[0]) <= len(data):
        end += len(frames.pop(0))
    assert whole_frames(data, 0, len(data), 44) == end


@pytest.mark.parametrize("size", [0, -1, 41, 2**31 - 1])
def test_a_frame_that_cannot_be(size: int) -> None:
    with pytest.raises(FrameError, match=f"frame of {size} bytes"):
        whole_frames(size.to_bytes(4, "big", signed=True), 0, 4, 44)
