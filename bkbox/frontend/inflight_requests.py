"""Finds the requests in flight that a dead worker has not responded to.

A worker reports slots as done together with the last responses to their requests. Where the responses need several
messages, a worker that dies in between leaves slots that are not done, though some of their requests have responses. No
request may get two responses: a client would take the second response for that to its next request, or for a broken
connection. Version 2 matches responses by operation and ids, so several requests may have the same key; version 3
matches by transaction id. Long polls are in no batch: the link remembers them and responds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bkbox.ipc.frame_spans import Segment
from bkbox.wire import protobuf, v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import PREFIX_BYTES, bodies
from bkbox.wire.v3_format import HEADER

_OPCODE = 1
_IDS = slice(8, 24)
"""The position of the ledger and entry id in a version 2 response; _OPCODE is that of its opcode."""

_HEADER_AT = 2
"""The offset of the header in a version 3 response, after its tag and its size."""

_Key = tuple[int, int, bytes | int]


def refusals(
    requests: Iterable[Segment], responses: Iterable[Segment]
) -> Iterator[tuple[int, int, bytes]]:
    """Yields (connection, count, frames) of EIO responses to those of ``requests`` that have none.

    ``requests``: in the order of sending. ``responses``: the frames, or their ``heads``, of the responses to requests
    among these. Responses with the same key are matched in the order of sending.
    """
    left = Counter(
        _key(connection, response)
        for connection, _count, frames in responses
        for response in bodies(frames, len(frames))
    )
    for connection, _count, frames in requests:
        refused = []
        for body in bodies(frames, len(frames)):
            response = _refusal(body)
            if response is None:
                continue
            key = _key(connection, memoryview(response)[PREFIX_BYTES:])
            if left[key]:
                left[key] -= 1
            else:
                refused.append(response)
        if refused:
            yield connection, len(refused), b"".join(refused)


def _refusal(body: memoryview) -> bytes | None:
    """The response that refuses a request; None for a long poll."""
    if body[0] < v3.FIRST_BYTE_MIN:
        return v2.refuse(body, Code.EIO)
    request = v3.decode_request(body)
    if isinstance(request, v3.ReadRequest) and request.long_poll:
        return None
    return v3.encode_response(v3.refusal(request, Code.EIO))


def _key(connection: int, response: memoryview) -> _Key:
    if response[0] < v3.FIRST_BYTE_MIN:
        return connection, response[_OPCODE], bytes(response[_IDS])
    return connection, -1, response_txn(response)


def response_txn(response: memoryview) -> int:
    """The transaction id in a version 3 response made by a bkbox bookie: the header comes first, with a size of one
    byte."""
    txn: int = protobuf.decode(HEADER, response[_HEADER_AT : _header_end(response)])["txnId"]
    return txn


def _header_end(response: memoryview) -> int:
    return _HEADER_AT + response[_HEADER_AT - 1]
