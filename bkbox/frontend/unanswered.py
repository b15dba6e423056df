"""Which requests a dead worker has not answered.

A worker sends all answers of a batch and then says, in one message, which slots are done. One that dies in between
leaves slots that are not done with requests that were answered. No request may be answered twice: a client would
take the second answer for that to its next request, or for a broken connection. Version 2 matches answers by
operation and ids, so that requests may be alike; version 3 by transaction id. Long polls are in no batch: whoever
remembers them answers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import PREFIX_BYTES, bodies

_OPCODE = 1
_IDS = slice(8, 24)
"""Where an answer of version 2 has its opcode, and its ledger and entry id."""

_Key = tuple[int, int, bytes | int]


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
        refused = []
        for body in bodies(frames, len(frames)):
            answer = _refusal(body)
            if answer is None:
                continue
            key = _key(connection, memoryview(answer)[PREFIX_BYTES:])
            if left[key]:
                left[key] -= 1
            else:
                refused.append(answer)
        if refused:
            yield connection, len(refused), b"".join(refused)


def _refusal(body: memoryview) -> bytes | None:
    """The answer that refuses a request, None for a long poll."""
    if body[0] < v3.FIRST_BYTE_MIN:
        return v2.refuse(body, Code.EIO)
    request = v3.decode_request(body)
    if isinstance(request, v3.ReadRequest) and request.long_poll:
        return None
    return v3.encode_response(v3.refusal(request, Code.EIO))


def _key(connection: int, answer: memoryview) -> _Key:
    if answer[0] < v3.FIRST_BYTE_MIN:
        return connection, answer[_OPCODE], bytes(answer[_IDS])
    return connection, -1, answered_txn(answer)


def answered_txn(answer: memoryview) -> int:
    """The transaction id in an answer of version 3."""
    response = v3.decode_response(answer)
    if isinstance(response, v3.AuthResponse | v3.Refused):
        return response.header.txn_id
    return response.txn_id
