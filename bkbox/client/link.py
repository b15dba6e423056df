"""The way to one bookie: one connection at a time, made when there is something to send.

Nothing is sent twice on this level. The next request after a loss connects again. Requests made
while connecting wait for it; those made within the back-off after a failed attempt fail at once
(NOT_REACHED). Whatever happens, each request ends in exactly one Reply: what went wrong is an
answer too, as the machines of bkbox/protocol want it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial

from bkbox.client.matching import (
    Decode,
    Key,
    Reply,
    Request,
    Waiting,
    decode_batch,
    decode_v2,
    decode_v3,
)
from bkbox.client.options import Backoff, ClientOptions
from bkbox.client.stream import Stream
from bkbox.ids import BookieId
from bkbox.protocol.events import NoAnswer
from bkbox.wire.service_info import HostPort

Resolve = Callable[[BookieId], Awaitable[HostPort | None]]


class Lane(Enum):
    """What a connection carries; each lane to a bookie is a connection of its own."""

    V2 = "adds and reads of version 2"
    V2_FENCING = "fencing reads of version 2"
    V2_BATCH = "batch reads of version 2"
    V3 = "everything of version 3"


_DECODE: dict[Lane, Decode] = {
    Lane.V2: decode_v2,
    Lane.V2_FENCING: decode_v2,
    Lane.V2_BATCH: decode_batch,
    Lane.V3: decode_v3,
}


class BookieLink:
    """One lane to one bookie."""

    def __init__(
        self,
        bookie: BookieId,
        lane: Lane,
        resolve: Resolve,
        options: ClientOptions,
        rng: random.Random,
    ) -> None:
        self._bookie = bookie
        self._lane = lane
        self._resolve = resolve
        self._options = options
        self._backoff = Backoff(options, rng)
        self._not_before = 0.0
        self._connections = 0
        self._stream: Stream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._backlog: list[Request] = []
        self._closed = False

    @property
    def suspect(self) -> bool:
        """Whether the last connection came to nothing, a moment ago."""
        return asyncio.get_running_loop().time() < self._not_before

    def request(self, key: Key, frame: bytes, timeout_s: float) -> asyncio.Future[Reply]:
        """Send a frame. Cancelling the future forgets the request."""
        loop = asyncio.get_running_loop()
        request = Request(key, frame, loop.create_future())
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
            await asyncio.wait([self._stream.closed])

    def _expired(self, request: Request) -> None:
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

    def _new_stream(self) -> Stream:
        self._connections += 1
        waiting = Waiting(numbered=self._lane in (Lane.V2_BATCH, Lane.V3))
        decode = _DECODE[self._lane]
        frame_bytes_max = self._options.frame_bytes_max
        return Stream(self._connections, decode, waiting, frame_bytes_max, self._lost)

    def _lost(self, stream: Stream) -> None:
        self._stream = None
        if stream.has_answered:
            self._backoff.reset()
        else:
            self._back_off()

    def _back_off(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._backoff.next_s()
