"""Requests that wait for their answers, and which answer belongs to which request.

- Version 3 and batch reads of version 2 number their requests: an answer names its request, and one
  that names none of those waiting is dropped.
- Every other answer of version 2 names only (opcode, ledger, entry). Equal requests are answered in
  the order they were sent in; an answer to what nobody asked for breaks the protocol.

A request that times out, or that nobody waits for any more, keeps its place until its answer comes,
so that this late answer is not taken for that of a later, equal request.

Source: PerChannelBookieClient.java, CompletionKey subclasses there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bkbox.errors import EncodingError, FrameError
from bkbox.protocol.events import Answer, NoAnswer
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.v3_format import Operation

Key = tuple[int, ...]
"""(opcode, ledger, entry), or (operation, number) where requests are numbered."""


class Reply(NamedTuple):
    """How a request ended.

    ``entry``: what came back of a read, not verified yet; there exactly for an EOK, and beside
    EUNKNOWNLEDGERSTATE where a bookie in limbo sends what it has. ``response``: the answer itself,
    for what has more to say than that. ``connection``: which one of the connections that this lane
    to the bookie has had brought the answer, counted from 1; 0 where there is no answer.
    """

    answer: Answer
    entry: memoryview | None = None
    connection: int = 0
    response: v2.BatchReadResponse | v3.Response | None = None


class Request:
    """One request: its frame until it is sent, and the future of its end."""

    __slots__ = ("frame", "key", "reply", "timer")

    def __init__(self, key: Key, frame: bytes, reply: asyncio.Future[Reply]) -> None:
        self.key = key
        self.frame = frame
        self.reply = reply
        self.timer: asyncio.TimerHandle | None = None

    def end(self, reply: Reply) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.reply.done():
            self.reply.set_result(reply)


class Answered(NamedTuple):
    """What a body says, and of which request."""

    key: Key
    reply: Reply


Decode = Callable[[memoryview, int], Answered]
"""From a body and the number of its connection. Raises FrameError."""


def decode_v2(body: memoryview, connection: int) -> Answered:
    """Answers to adds and single reads."""
    match v2.decode_response(body):
        case v2.AddResponse(_, code, ledger, entry):
            return Answered((v2.OP_ADD, ledger, entry), Reply(code, None, connection))
        case v2.ReadResponse(_, code, ledger, entry, data):
            view = None if data is None else memoryview(data)
            return Answered((v2.OP_READ, ledger, entry), Reply(code, view, connection))
    raise FrameError("an answer to an opcode that is never sent here")


def decode_batch(body: memoryview, connection: int) -> Answered:
    """Answers to batch reads."""
    response = v2.decode_response(body)
    if not isinstance(response, v2.BatchReadResponse):
        raise FrameError("an answer to an opcode that is never sent here")
    reply = Reply(response.code, None, connection, response)
    return Answered((v2.OP_BATCH_READ, response.request_id), reply)


def decode_v3(body: memoryview, connection: int) -> Answered:
    """Answers of version 3."""
    try:
        response = v3.decode_response(body)
    except EncodingError as error:
        raise FrameError(str(error)) from None
    match response:
        case v3.Refused(header, code) | v3.AuthResponse(header, code):
            if code is Code.EOK:
                raise FrameError(f"{header.operation.name} was answered EOK and nothing else")
            return Answered((header.operation, header.txn_id), Reply(code, None, connection))
        case v3.StartTlsResponse():
            raise FrameError("an answer to an operation that is never sent here")
        case v3.ReadResponse(entry=data):
            view = None if data is None else memoryview(data)
            reply = Reply(response.code, view, connection, response)
        case _:
            reply = Reply(response.code, None, connection, response)
    return Answered((_OPERATIONS[type(response)], response.txn_id), reply)


_OPERATIONS: dict[type[v3.Response], Operation] = {
    v3.AddResponse: Operation.ADD_ENTRY,
    v3.ReadResponse: Operation.READ_ENTRY,
    v3.WriteLacResponse: Operation.WRITE_LAC,
    v3.ReadLacResponse: Operation.READ_LAC,
    v3.ForceResponse: Operation.FORCE_LEDGER,
    v3.ListEntriesResponse: Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
    v3.BookieInfoResponse: Operation.GET_BOOKIE_INFO,
}


class Waiting:
    """The requests of one connection that are owed an answer."""

    __slots__ = ("_by_key", "_numbered", "forgotten")

    def __init__(self, *, numbered: bool) -> None:
        self.forgotten = 0
        """Requests that timed out and still wait."""
        self._numbered = numbered
        self._by_key: dict[Key, deque[Request]] = {}

    def add(self, request: Request) -> None:
        self._by_key.setdefault(request.key, deque()).append(request)

    def take_back(self, request: Request) -> None:
        """It ended before it was sent, so no answer will come."""
        self.forgotten -= not request.reply.cancelled()
        queue = self._by_key[request.key]
        queue.remove(request)
        if not queue:
            del self._by_key[request.key]

    def answered(self, key: Key, reply: Reply) -> None:
        """End the request that this answers. Raises FrameError."""
        queue = self._by_key.get(key)
        if queue is None:
            if self._numbered:
                return
            raise FrameError(f"an answer that nobody asked for: {key}")
        request = queue.popleft()
        if not queue:
            del self._by_key[key]
        if request.reply.done() and not request.reply.cancelled():
            self.forgotten -= 1
        request.end(reply)

    def end_all(self) -> None:
        """The connection is lost."""
        outstanding, self._by_key = self._by_key, {}
        for queue in outstanding.values():
            for request in queue:
                request.end(Reply(NoAnswer.CONNECTION_LOST))
