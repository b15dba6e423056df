"""Which requests a dead worker has not answered.

A worker sends all answers of a batch and then says, in one message, which slots are done. One that dies in between
leaves slots that are not done with requests that were answered. No request may be answered twice: a client would
take the second answer for that to its next request, or for a broken connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bkbox.wire import v2
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies

_OPCODE = 1
_IDS = slice(8, 24)
"""Where an answer has its opcode, and its ledger and entry id."""

_Key = tuple[int, int, bytes]


def refusals(
    requests: Iterable[tuple[int, int, memoryview]], answered: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[int, int, bytes]]:
    """(connection, count, frames) of the EIO answers to those of ``requests`` that have none.

    ``requests``: (connection, count, frames) in the order of sending; ``answered``: (connection, frames) of the
    answers that came since the last slot was done. Requests alike are answered in the order of sending.
    """
    left = Counter(
        _key(connection, answer)
        for connection, frames in answered
        for answer in bodies(frames, len(frames))
    )
    for connection, _count, frames in requests:
        refused = [
            v2.refuse(body, Code.EIO)
            for body in bodies(frames, len(frames))
            if not _was_answered(left, connection, body)
        ]
        if refused:
            yield connection, len(refused), b"".join(refused)


def _was_answered(left: Counter[_Key], connection: int, request: memoryview) -> bool:
    [answer] = bodies(v2.refuse(request, Code.EIO))
    key = _key(connection, answer)
    if not left[key]:
        return False
    left[key] -= 1
    return True


def _key(connection: int, answer: memoryview) -> _Key:
    return connection, answer[_OPCODE], bytes(answer[_IDS])
