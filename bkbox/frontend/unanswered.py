"""Which requests a dead worker has not answered.

A worker says which slots are done with the last answers to their requests. Where the answers need several messages,
one that dies in between leaves slots that are not done with requests that were answered. No request may be answered
twice: a client would take the second answer for that to its next request, or for a broken connection. Version 2
matches answers by operation and ids, so that requests may be alike; version 3 by transaction id. Long polls are in no
batch: whoever remembers them answers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bkbox.kernel.batches import Segment
from bkbox.wire import protobuf, v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import PREFIX_BYTES, bodies
from bkbox.wire.v3_format import HEADER

_OPCODE = 1
_IDS = slice(8, 24)
"""Where an answer of version 2 has its opcode, and its ledger and entry id."""

_HEADER_AT = 2
"""Where the header of an answer of version 3 begins, after its tag and its size."""

_Key = tuple[int, int, bytes | int]


def refusals(
    requests: Iterable[Segment], answered: Iterable[Segment]
) -> Iterator[tuple[int, int, bytes]]:
    """(connection, count, frames) of the EIO answers to those of ``requests`` that have none.

    ``requests``: in the order of sending; ``answered``: of the answers that came to requests among these the frames, or
    their ``heads``. Requests alike are answered in the order of sending.
    """
    left = Counter(
        _key(connection, answer)
        for connection, _count, frames in answered
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
    """The transaction id in an answer of version 3, as it begins where a bookie of ours has made it: the header comes
    first, with a size of one byte."""
    txn: int = protobuf.decode(HEADER, answer[_HEADER_AT : _header_end(answer)])["txnId"]
    return txn


def _header_end(answer: memoryview) -> int:
    return _HEADER_AT + answer[_HEADER_AT - 1]
