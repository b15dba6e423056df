"""Requests in flight on one connection, and the matching of responses to them.

- Version 3 and batch reads of version 2 number their requests: a response names its request, and one for no request
  in flight is dropped.
- Every other response of version 2 names only (opcode, ledger, entry). Equal requests get responses in the order of
  sending; a response to no request breaks the protocol.

A request that times out, or is abandoned, keeps its place until its response arrives. So the late response is not
matched to a later, equal request.

Source: PerChannelBookieClient.java, CompletionKey subclasses there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bkbox.base.ids import MAX_ID
from bkbox.client.connection import add_responses
from bkbox.client.connection.add_responses import OutstandingAdds
from bkbox.client.connection.adds import AddSend
from bkbox.errors import EncodingError, FrameError
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire import batch_reads, v2, v3
from bkbox.wire.codes import Code, code_from_v2, code_from_v3
from bkbox.wire.v3_fast_path import FastResponseV3
from bkbox.wire.v3_format import Operation

Buffer = bytes | bytearray | memoryview
Key = tuple[int, ...]
"""(opcode, ledger, entry), or (operation, number) where requests are numbered."""


BATCH_ENTRIES_AT = 32
"""Packet header, code, ledger, entry and number precede the entries of a batch."""


class Reply(NamedTuple):
    """The end of a request.

    ``entry``: the entry of a read, not verified yet; present exactly for an EOK, and beside EUNKNOWNLEDGERSTATE where
    a bookie in limbo sends what it has. ``response``: the response itself, where it has more to say; of a batch read
    with EOK the body, with entries from BATCH_ENTRIES_AT on. ``connection``: the connection of this link, counted
    from 1, that brought the response; 0 without a response.
    """

    status: RequestStatus
    entry: memoryview | None = None
    connection: int = 0
    response: bytes | v3.Response | None = None


class Request:
    """One request: its frame until it is sent, and the future of its reply."""

    __slots__ = ("deadline", "frame", "key", "reply", "was_stalled")

    def __init__(self, key: Key, frame: bytes, reply: asyncio.Future[Reply]) -> None:
        self.key = key
        self.frame: Buffer = frame
        self.reply = reply
        self.deadline = 0.0
        self.was_stalled = False

    @property
    def is_over(self) -> bool:
        """True if no caller waits for the reply."""
        return self.reply.done()

    def end(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    def fail(self, status: NoResponse) -> None:
        """Fail the request with this status."""
        self.end(Reply(status))


class KeyedReply(NamedTuple):
    """A decoded body, and the key of its request."""

    key: Key
    reply: Reply


Decode = Callable[[bytes, int], KeyedReply]
"""Decodes the body of a frame with the number of its connection. Raises FrameError."""


def decode_v2(body: bytes, connection: int) -> KeyedReply:
    """Decode a response to a single read."""
    match v2.decode_response(memoryview(body)):
        case v2.ReadResponse(_, code, ledger, entry, data):
            view = None if data is None else memoryview(data)
            return KeyedReply((v2.OP_READ, ledger, entry), Reply(code, view, connection))
    raise FrameError("a response to an opcode that is never sent here")


def decode_batch(body: bytes, connection: int) -> KeyedReply:
    """Decode a response to a batch read."""
    head = v2.decode_response(memoryview(body)[:BATCH_ENTRIES_AT])
    if not isinstance(head, v2.BatchReadResponse):
        raise FrameError("a response to an opcode that is never sent here")
    batch_reads.check_sizes(body, BATCH_ENTRIES_AT)
    reply = Reply(head.code, None, connection, body if head.code is Code.EOK else None)
    return KeyedReply((v2.OP_BATCH_READ, head.request_id), reply)


def decode_v3(body: bytes, connection: int) -> KeyedReply:
    """Decode a response of version 3."""
    try:
        response = v3.decode_response(memoryview(body))
    except EncodingError as error:
        raise FrameError(str(error)) from None
    match response:
        case v3.Refused(header, code) | v3.AuthResponse(header, code):
            if code is Code.EOK:
                raise FrameError(f"{header.operation.name} was answered with a bare EOK")
            return KeyedReply((header.operation, header.txn_id), Reply(code, None, connection))
        case v3.StartTlsResponse():
            raise FrameError("a response to an operation that is never sent here")
        case v3.ReadResponse(entry=data):
            view = None if data is None else memoryview(data)
            reply = Reply(response.code, view, connection, response)
        case _:
            reply = Reply(response.code, None, connection, response)
    return KeyedReply((_OPERATIONS[type(response)], response.txn_id), reply)


_OPERATIONS: dict[type[v3.Response], Operation] = {
    v3.AddResponse: Operation.ADD_ENTRY,
    v3.ReadResponse: Operation.READ_ENTRY,
    v3.WriteLacResponse: Operation.WRITE_LAC,
    v3.ReadLacResponse: Operation.READ_LAC,
    v3.ForceResponse: Operation.FORCE_LEDGER,
    v3.ListEntriesResponse: Operation.GET_LIST_OF_ENTRIES_OF_LEDGER,
    v3.BookieInfoResponse: Operation.GET_BOOKIE_INFO,
}


class PendingRequests:
    """The requests in flight on one connection: adds by ledger, in batches, and single requests."""

    __slots__ = ("_by_key", "_found", "_numbered", "_response", "adds", "forgotten")

    def __init__(self, *, numbered: bool) -> None:
        self.adds: dict[int, OutstandingAdds] = {}
        self.forgotten = 0
        """Timed-out requests that keep their places."""
        self._numbered = numbered
        self._by_key: dict[Key, deque[Request]] = {}
        self._found: list[tuple[OutstandingAdds, int, int, int]] = []
        self._response = FastResponseV3()

    def add(self, item: Request | AddSend) -> None:
        if isinstance(item, Request):
            self._by_key.setdefault(item.key, deque()).append(item)
            return
        outstanding = self.adds.get(item.frames.ledger_id)
        if outstanding is None:
            outstanding = self.adds[item.frames.ledger_id] = OutstandingAdds()
        item.enlist(outstanding)

    def withdraw(self, item: Request | AddSend) -> None:
        """Remove a request that ended before it was sent; no response will come."""
        if isinstance(item, Request):
            self.forgotten -= not item.reply.cancelled()
            queue = self._by_key[item.key]
            queue.remove(item)
            if not queue:
                del self._by_key[item.key]
        elif item.outstanding is not None:
            self.forgotten -= item.left
            item.left = 0
            item.outstanding.close(item.first_slot, item.last_slot)

    def forget(self, item: Request | AddSend) -> None:
        """Mark a request as timed out; it keeps its place."""
        self.forgotten += 1 if isinstance(item, Request) else item.left

    def items(self) -> Iterator[Request | AddSend]:
        """All requests without a response."""
        for queue in self._by_key.values():
            yield from queue
        for outstanding in self.adds.values():
            yield from outstanding.sends

    def tidy(self) -> None:
        """Drop what is kept for ledgers that are no longer written."""
        self.adds = {
            ledger: outstanding for ledger, outstanding in self.adds.items() if outstanding.sends
        }

    # ---- responses ------------------------------------------------------------------------------

    def match_adds(self, data: memoryview, start: int, end: int, connection: int) -> int:
        """Handle the responses to adds in data[start:end], whole frames, before anything else; returns the start of
        the first other frame. Raises FrameError.
        """
        found = self._found
        try:
            if self._numbered:
                start = add_responses.match_v3(data, start, end, self.adds, found, self._response)
            else:
                start = add_responses.match_v2(data, start, end, self.adds, found)
        finally:
            unknown = None
            for outstanding, first, last, number in found:
                code = code_from_v3(number) if self._numbered else code_from_v2(number)
                if code is None:  # they get no other response, and the connection ends
                    unknown = number
                    self._complete_adds(outstanding, first, last, NoResponse.CONNECTION_LOST, 0)
                else:
                    self._complete_adds(outstanding, first, last, code, connection)
            found.clear()
        if unknown is not None:
            raise FrameError(f"a response with the unknown code {unknown}")
        return start

    def _complete_adds(
        self,
        outstanding: OutstandingAdds,
        first: int,
        last: int,
        status: RequestStatus,
        connection: int,
    ) -> None:
        sends: deque[AddSend] = outstanding.sends
        for send in sends:
            if first > send.last_slot:
                continue
            end = min(last, send.last_slot)
            if send.is_over:
                self.forgotten -= end - first + 1
            send.complete(first, end, status, connection)
            if end == last:
                break
            first = end + 1
        while sends and sends[0].left == 0:
            sends.popleft()

    def complete(self, key: Key, reply: Reply, connection: int) -> None:
        """End the request that this response belongs to. Raises FrameError."""
        queue = self._by_key.get(key)
        if queue is None:
            if self._numbered:
                self._complete_add(key, reply, connection)
                return
            raise FrameError(f"a response without a request: {key}")
        request = queue.popleft()
        if not queue:
            del self._by_key[key]
        if request.reply.done() and not request.reply.cancelled():
            self.forgotten -= 1
        request.end(reply)

    def _complete_add(self, key: Key, reply: Reply, connection: int) -> None:
        """Handle a response of version 3 that is not plain: it may name nothing but its number."""
        operation, number = key
        if operation != Operation.ADD_ENTRY or not isinstance(reply.status, Code):
            return
        if number > MAX_ID:  # it was never given to a request
            return
        for outstanding in self.adds.values():
            slot = outstanding.pop(number)
            if slot >= 0:
                self._complete_adds(outstanding, slot, slot, reply.status, connection)
                return

    def end_all(self) -> None:
        """End every request: the connection is lost."""
        outstanding = [*self.items()]
        self._by_key = {}
        self.adds = {}
        for item in outstanding:
            item.fail(NoResponse.CONNECTION_LOST)
