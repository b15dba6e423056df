"""Connections to bookies: requests out, answers matched to them.

Rules:
- one connection per bookie, and a second one for fencing reads once there are any. Version 2
  answers name only (opcode, ledger, entry): on a shared connection the 'no such entry' of a plain
  read, older than the fence, could pass for that of a fencing read, and a recovery would end the
  ledger before an acknowledged entry;
- a request that times out, or that nobody waits for any more, is forgotten but keeps its place in
  the queue of its key, so that its late answer is not taken for that of a later, equal request;
- a lost connection answers everything outstanding on it (CONNECTION_LOST); nothing is sent twice
  on this level. The next request connects again. Requests made while connecting wait for it, and
  those made within the back-off after a failed attempt fail at once (NOT_REACHED);
- whatever happens, each request ends in exactly one Reply: what went wrong is an answer too, as
  the machines of bkbox/protocol want it;
- frames of one turn of the event loop leave in one write. While the socket takes no more they wait
  here, by reference, not as copies in the transport's buffer. What bounds them is the window of
  each writer.

Source: PerChannelBookieClient.java (matching, loss), DefaultPerChannelBookieClientPool.java.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, cast

from bkbox.client.options import Backoff, ClientOptions
from bkbox.errors import FrameError
from bkbox.ids import BookieId
from bkbox.protocol.events import Answer, NoAnswer
from bkbox.wire import v2
from bkbox.wire.frames import bodies, complete_frames
from bkbox.wire.service_info import HostPort

Key = tuple[int, int, int]
"""Opcode, ledger id, entry id: all that a version 2 answer can be matched by."""

Resolve = Callable[[BookieId], Awaitable[HostPort | None]]

_WRITE_BYTES_MAX = 256 << 10
_FORGOTTEN_MAX = 256
"""Requests that timed out and are still owed an answer; a connection with more is given up."""


class Reply(NamedTuple):
    """How a request ended; ``entry`` is there exactly for an EOK to a read, not verified yet."""

    answer: Answer
    entry: memoryview | None = None


class _Request:
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


class _Stream(asyncio.Protocol):
    """One established connection, from connection_made to connection_lost."""

    def __init__(self, frame_bytes_max: int, on_lost: Callable[[_Stream], None]) -> None:
        self.closed = asyncio.get_running_loop().create_future()
        self.has_answered = False
        self._on_lost = on_lost
        self._frame_bytes_max = frame_bytes_max
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._flush_is_due = False
        self._outbox: deque[_Request] = deque()
        self._waiting: dict[Key, deque[_Request]] = {}
        self._forgotten = 0
        self._partial = bytearray()

    # ---- out ------------------------------------------------------------------------------------

    def send(self, request: _Request) -> None:
        self._waiting.setdefault(request.key, deque()).append(request)
        self._outbox.append(request)
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def forget(self) -> None:
        """One of the requests has timed out."""
        self._forgotten += 1
        if self._forgotten > _FORGOTTEN_MAX:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        self._flush_is_due = False
        while self._outbox and not self._paused and self._transport is not None:
            frames: list[bytes] = []
            size = 0
            while self._outbox and size < _WRITE_BYTES_MAX:
                request = self._outbox.popleft()
                if request.reply.done():
                    self._take_back(request)
                    continue
                frames.append(request.frame)
                size += len(request.frame)
                request.frame = b""
            if frames:
                # Not writelines: Python 3.12's does not tell the protocol when to pause.
                self._transport.write(b"".join(frames))

    def _take_back(self, request: _Request) -> None:
        """It ended before it was sent, so no answer will come."""
        self._forgotten -= not request.reply.cancelled()
        queue = self._waiting[request.key]
        queue.remove(request)
        if not queue:
            del self._waiting[request.key]

    # ---- in -------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        try:
            self._take(data)
        except FrameError:
            self.abort()

    def _take(self, data: bytes) -> None:
        chunk: bytes | bytearray = data
        if self._partial:
            self._partial += data
            chunk = self._partial
        end = complete_frames(chunk, self._frame_bytes_max)
        if end == 0:
            if not self._partial:
                self._partial += chunk
            return
        self._partial = bytearray(chunk[end:])
        for body in bodies(memoryview(chunk)[:end], self._frame_bytes_max):
            self._answered(v2.decode_response(body))
            self.has_answered = True

    def _answered(self, response: v2.Response) -> None:
        match response:
            case v2.AddResponse(_, code, ledger, entry):
                key, reply = (v2.OP_ADD, ledger, entry), Reply(code)
            case v2.ReadResponse(_, code, ledger, entry, data):
                key = (v2.OP_READ, ledger, entry)
                reply = Reply(code, None if data is None else memoryview(data))
            case _:
                raise FrameError("an answer to an opcode that is never sent")
        queue = self._waiting.get(key)
        if queue is None:
            raise FrameError(f"an answer that nobody asked for: {key}")
        request = queue.popleft()
        if not queue:
            del self._waiting[key]
        if request.reply.done() and not request.reply.cancelled():
            self._forgotten -= 1
        request.end(reply)

    # ---- the transport's calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        link: socket.socket = transport.get_extra_info("socket")
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, _exception: Exception | None) -> None:
        self._transport = None
        self._outbox.clear()
        outstanding, self._waiting = self._waiting, {}
        for queue in outstanding.values():
            for request in queue:
                request.end(Reply(NoAnswer.CONNECTION_LOST))
        self._on_lost(self)
        self.closed.set_result(None)


class BookieLink:
    """The way to one bookie: connects when there is something to send, again after a loss."""

    def __init__(
        self, bookie: BookieId, resolve: Resolve, options: ClientOptions, rng: random.Random
    ) -> None:
        self._bookie = bookie
        self._resolve = resolve
        self._options = options
        self._backoff = Backoff(options, rng)
        self._not_before = 0.0
        self._stream: _Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._backlog: list[_Request] = []
        self._closed = False

    @property
    def suspect(self) -> bool:
        """Whether the last connection came to nothing, a moment ago."""
        return asyncio.get_running_loop().time() < self._not_before

    def request(self, key: Key, frame: bytes, timeout_s: float) -> asyncio.Future[Reply]:
        """Send a frame. Cancelling the future forgets the request."""
        loop = asyncio.get_running_loop()
        request = _Request(key, frame, loop.create_future())
        stream = self._stream
        if self._closed or (stream is None and self._connecting is None and self.suspect):
            request.end(Reply(NoAnswer.NOT_REACHED))
            return request.reply
        request.timer = loop.call_later(timeout_s, partial(self._expired, request))
        if stream is not None:
            stream.send(request)
        else:
            self._backlog.append(request)
            if self._connecting is None:
                self._connecting = loop.create_task(self._connect())
        return request.reply

    async def close(self) -> None:
        """Answer what is outstanding and close the connection."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._stream is not None:
            self._stream.abort()
            await self._stream.closed

    def _expired(self, request: _Request) -> None:
        if not request.reply.done():
            request.end(Reply(NoAnswer.TIMEOUT))
            if self._stream is not None:
                self._stream.forget()

    async def _connect(self) -> None:
        stream = None
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                address = await self._resolve(self._bookie)
                if address is not None:
                    _, stream = await asyncio.get_running_loop().create_connection(
                        self._new_stream, address.host, address.port
                    )
        except (OSError, TimeoutError):
            pass
        finally:
            self._connecting = None
            backlog, self._backlog = self._backlog, []
            if stream is None:
                self._back_off()
                for request in backlog:
                    request.end(Reply(NoAnswer.NOT_REACHED))
        if stream is not None:
            self._stream = stream
            for request in backlog:
                if not request.reply.done():
                    stream.send(request)

    def _new_stream(self) -> _Stream:
        return _Stream(self._options.frame_bytes_max, self._lost)

    def _lost(self, stream: _Stream) -> None:
        self._stream = None
        if stream.has_answered:
            self._backoff.reset()
        else:
            self._back_off()

    def _back_off(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._backoff.next_s()


class BookiePool:
    """The ways to all bookies. ``resolve`` says where one listens, None if that is not known."""

    def __init__(self, resolve: Resolve, options: ClientOptions, rng: random.Random) -> None:
        self._resolve = resolve
        self._options = options
        self._rng = rng
        self._links: dict[tuple[BookieId, bool], BookieLink] = {}

    def add(
        self, bookie: BookieId, ledger_id: int, entry_id: int, frame: bytes
    ) -> asyncio.Future[Reply]:
        """Send the frame of an ADD; the same frame does for every bookie of a write set."""
        link = self._link(bookie, fencing=False)
        return link.request((v2.OP_ADD, ledger_id, entry_id), frame, self._options.add_timeout_s)

    def read(
        self, bookie: BookieId, ledger_id: int, entry_id: int, fence_key: bytes | None
    ) -> asyncio.Future[Reply]:
        """Read an entry (-1: the last one); with the master key, fence the ledger first."""
        fencing = fence_key is not None
        flags = v2.FLAG_DO_FENCING if fencing else 0
        if fencing and entry_id >= 0:
            flags |= v2.FLAG_HIGH_PRIORITY
        request = v2.ReadRequest(v2.CURRENT_VERSION, flags, ledger_id, entry_id, fence_key)
        return self._link(bookie, fencing=fencing).request(
            (v2.OP_READ, ledger_id, entry_id),
            v2.encode_request(request),
            self._options.read_timeout_s,
        )

    def suspects(self) -> frozenset[BookieId]:
        """Bookies that could not be reached a moment ago."""
        return frozenset(bookie for (bookie, _), link in self._links.items() if link.suspect)

    async def close(self) -> None:
        """Close all connections; what is outstanding on them is answered CONNECTION_LOST."""
        for link in self._links.values():
            await link.close()

    def _link(self, bookie: BookieId, *, fencing: bool) -> BookieLink:
        link = self._links.get((bookie, fencing))
        if link is None:
            link = BookieLink(bookie, self._resolve, self._options, self._rng)
            self._links[bookie, fencing] = link
        return link


def add_frame(master_key: bytes, entry: bytes, *, recovery: bool) -> bytes:
    """The frame of an ADD of a packaged entry."""
    flags = v2.FLAG_RECOVERY_ADD | v2.FLAG_HIGH_PRIORITY if recovery else 0
    return v2.encode_request(v2.AddRequest(v2.CURRENT_VERSION, flags, master_key, entry))
