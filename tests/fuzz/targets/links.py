"""The other end of connections: what a client makes of a bookie's answers, and processes of each other's messages."""

from __future__ import annotations

import asyncio
import struct

from bkbox.base.ids import EntryId
from bkbox.client.connection.adds import AddPacker, AddSend, Numbers
from bkbox.client.connection.flush_batcher import FlushBatcher
from bkbox.client.connection.framed_connection import FramedConnection
from bkbox.client.connection.response_matcher import (
    PendingRequests,
    Reply,
    Request,
    decode_batch,
    decode_v2,
    decode_v3,
)
from bkbox.errors import BugError
from bkbox.ipc.messages.disk import CheckEntries, IndexProgress, ListLedgers
from bkbox.ipc.messages.message import Done, Page, Refused, decode, encode
from bkbox.ipc.messages.process import Stats
from bkbox.protocol.effects import SendAdds
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import DigestType
from bkbox.wire.v3_format import Operation
from tests.fuzz.target import KEY, Choices, Target, hex_in, vectors
from tests.fuzz.targets.frames import plain_answers

# ---- a client's connection --------------------------------------------------------------------------

_LEDGER = 1
_FRAME_MAX = 4096
_LANES = (decode_v2, decode_batch, decode_v3)
_LOOP = asyncio.new_event_loop()


class _Socket:
    def setsockopt(self, *_told: object) -> None:
        return


class _Transport(asyncio.Transport):
    """Takes all that is written; ``closed`` once the client gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.written = bytearray()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return _Socket()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.closed = True


class _Client:
    """One connection with a few requests under way, of one lane. ``ends``: how each ended, in order."""

    def __init__(self, lane: int) -> None:
        self._numbered = lane == 2
        flush_batcher = FlushBatcher()
        self.ends: list[tuple[object, ...]] = []
        self._transport = _Transport()
        self.stream = FramedConnection(
            1,
            _LANES[lane],
            PendingRequests(numbered=self._numbered),
            _FRAME_MAX,
            flush_batcher,
            lambda _stream: None,
        )
        self.stream.connection_made(self._transport)
        if lane != 1:
            self._add(3, (b"one", b"two", b"three"))
            self._add(9, (b"",))
        keys: list[tuple[int, ...]] = [(v2.OP_READ, _LEDGER, n) for n in (0, 1, 1)]
        if lane == 1:
            keys = [(v2.OP_BATCH_READ, number) for number in (5, 6)]
        elif lane == 2:
            keys = [(operation, number) for number, operation in enumerate(Operation, 100)]
        self._asked = [(key, self._ask(key)) for key in keys]
        flush_batcher._run()

    def _add(self, first: int, payloads: tuple[bytes, ...]) -> None:
        digests = DigestManager(_LEDGER, DigestType.CRC32C, b"")
        numbers = Numbers() if self._numbered else None
        if numbers is not None:
            numbers.reserve(first)
        packer = AddPacker(digests, KEY, numbers, recovery=False, deferred_sync=False)
        run = SendAdds(EntryId(first), EntryId(-1), 0, payloads, False, ())

        def on_response(start: int, end: int, answer: RequestStatus, _connection: int) -> None:
            self.ends += [("add", first + n, answer) for n in range(start, end + 1)]

        self.stream.send(AddSend(packer.pack(run), on_response))

    def _ask(self, key: tuple[int, ...]) -> asyncio.Future[Reply]:
        reply: asyncio.Future[Reply] = _LOOP.create_future()
        self.stream.send(Request(key, b"request", reply))
        return reply

    def take(self, data: bytes, size: int) -> None:
        """The bookie sends this, in pieces."""
        at = 0
        while at < len(data) and not self._transport.closed:
            room = self.stream.get_buffer(-1)
            assert len(room) > 0
            piece = data[at : at + min(size, len(room))]
            room[: len(piece)] = piece
            self.stream.buffer_updated(len(piece))
            at += len(piece)

    def end(self) -> tuple[bool, list[object]]:
        """The connection is lost: whether the client gave it up, and how every request ended, each once."""
        gave_up = self._transport.closed
        self.stream.connection_lost(None)
        adds = sorted(self.ends, key=repr)
        entries = [entry for _add, entry, _answer in adds]
        assert (
            len(entries) == len(set(entries)) == (0 if self.stream._decode is decode_batch else 4)
        )
        assert all(reply.done() for _key, reply in self._asked)
        return gave_up, [*adds, *((key, _told(reply.result())) for key, reply in self._asked)]


def _told(reply: Reply) -> object:
    assert isinstance(reply.status, Code | NoResponse)
    if isinstance(reply.status, NoResponse):
        assert reply.entry is None
    return reply.status, bytes(reply.entry or b""), repr(reply.response)


def check_reply(data: bytes) -> object:
    """Any bytes from a bookie, however cut: every request ends once, in the same way, or with the connection."""
    choices = Choices(data)
    lane, size = choices.below(3), 1 + choices.below(40)
    sent = choices.rest()
    return _LOOP.run_until_complete(_compare(lane, size, sent))


async def _compare(lane: int, size: int, sent: bytes) -> object:
    found = []
    for piece in (len(sent) + 1, size):
        client = _Client(lane)
        client.take(sent, piece)
        found.append(client.end())
    (gave_up, ends), (also, others) = found
    assert gave_up == also
    for end, other in zip(ends, others, strict=True):
        # What comes in one piece with a broken frame may be lost with the connection.
        assert end == other or (gave_up and "CONNECTION_LOST" in repr((end, other))), (end, other)
    return lane, gave_up, sum("CONNECTION_LOST" not in repr(end) for end in ends)


def _replies() -> list[bytes]:
    made = list(plain_answers())
    for code in (Code.EOK, Code.ENOENTRY, Code.EFENCED):
        made += [v2.encode_response(v2.AddResponse(2, code, _LEDGER, n)) for n in (3, 4, 9)]
        some = b"an entry" if code is Code.EOK else None
        made += [v2.encode_response(v2.ReadResponse(2, code, _LEDGER, n, some)) for n in (0, 1)]
        batch = (b"one", b"two") if code is Code.EOK else ()
        made.append(v2.encode_response(v2.BatchReadResponse(2, code, _LEDGER, 0, 5, batch)))
        made += [v3.encode_response(v3.AddResponse(n, code, _LEDGER, n)) for n in (4, 5, 10)]
        for number, operation in enumerate(Operation, 100):
            if code is not Code.EOK:
                made.append(v3.encode_response(v3.Refused(v3.Header(operation, number, 0), code)))
        made.append(v3.encode_response(v3.ReadResponse(102, code, _LEDGER, 0, some)))
    made += list(hex_in(vectors("wire-v2.json"), "frame")) + list(
        hex_in(vectors("wire-v3.json"), "frame")
    )
    made.append(b"".join(made[:12]))
    return [bytes((lane, n % 40)) + frames for lane in range(3) for n, frames in enumerate(made)]


# ---- messages between processes ---------------------------------------------------------------------


def check_message(data: bytes) -> object:
    """Any bytes from another process of the bookie: a message that is known, or BugError."""
    try:
        message = decode(data)
    except BugError as error:
        return str(error)[:24]
    assert repr(decode(encode(message))) == repr(message)
    return type(message).__name__


def _messages() -> list[bytes]:
    made = [
        encode(each)
        for each in (
            ListLedgers(after=7, limbo_only=True, call=3),
            Page(more=True, payload=bytes(40)),
            Done(call=1),
            Refused(error="BootError", text="no"),
            IndexProgress(done_bytes=1, total_bytes=2),
            CheckEntries(ledger=1, first=2, last=3),
            Stats(values={"a": [1, 2.5, None, "x"]}),
        )
    ]
    headers = (
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"type": 5}',
        b'{"type": "Done", "x": 1}',
        b'{"type": []}',
    )
    headers += (b'{"type": "Done", "payload": 1}', b"[" * 3000, b'{"type": "Page"', b"\xff")
    made += [struct.pack("=I", len(header)) + header for header in headers]
    return [*made, b"", b"\1", b"\xff\xff\xff\xff{}", b"\3\0\0\0{}"]


TARGETS = (
    Target("replies", "answers to a client, from any bookie", _replies, check_reply, 0.2),
    Target("messages", "control messages between processes", _messages, check_message),
)
