"""A worker that dies between its answers and its 'done': no request is answered twice, none is forgotten."""

from __future__ import annotations

from bkbox.frontend.inflight_requests import refusals
from bkbox.wire.frames import bodies
from tests.harness import raw


def answer(opcode: int, code: int, ledger: int, entry: int, data: bytes = b"") -> bytes:
    return raw.struct.pack(">IBBHiqq", 24 + len(data), 2, opcode, 0, code, ledger, entry) + data


def refused(
    requests: list[tuple[int, list[bytes]]], answered: list[tuple[int, list[bytes]]]
) -> list[tuple[int, int, int, int]]:
    """(connection, opcode, ledger, entry) of what is answered EIO."""
    sent = [(who, len(frames), memoryview(b"".join(frames))) for who, frames in requests]
    came = [(who, len(frames), memoryview(b"".join(frames))) for who, frames in answered]
    found = []
    for connection, count, frames in refusals(sent, came):
        for body in bodies(frames):
            _version, opcode, _flags, code, ledger, entry = raw.struct.unpack_from(">BBHiqq", body)
            assert code == raw.EIO
            found.append((connection, opcode, ledger, entry))
            count -= 1
        assert count == 0
    return found


ADD, READ = raw.add_frame(7, 1, b"x"), raw.read_frame(7, 1)


def test_all_of_it_where_nothing_was_answered() -> None:
    assert refused([(1, [ADD, READ]), (2, [READ])], []) == [
        (1, 1, 7, 1),
        (1, 2, 7, 1),
        (2, 2, 7, 1),
    ]


def test_nothing_that_was_answered() -> None:
    answered = [(1, [answer(1, raw.EOK, 7, 1)]), (2, [answer(2, raw.ENOENTRY, 7, 1)])]
    assert refused([(1, [ADD, READ]), (2, [READ])], answered) == [(1, 2, 7, 1)]


def test_requests_alike_are_answered_in_the_order_of_sending() -> None:
    assert refused([(1, [READ]), (1, [READ])], [(1, [answer(2, raw.EOK, 7, 1, b"data")])]) == [
        (1, 2, 7, 1)
    ]
