"""The link to one bookie: one connection at a time, made when there is something to send.

Nothing is sent twice on this level. The next request after a loss connects again. Requests made while connecting wait
for the connection. Requests made within the back-off after a failed attempt fail at once (NOT_REACHED). Each request
ends in exactly one Reply: a failure is a Reply too, as the state machines of bkbox/protocol require.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from enum import Enum
from math import inf

from bkbox.base.ids import BookieId
from bkbox.base.text import error_text
from bkbox.client.connection.adds import AddSend
from bkbox.client.connection.flush_batcher import FlushBatcher
from bkbox.client.connection.framed_connection import FramedConnection
from bkbox.client.connection.handshake import ClientHandshake
from bkbox.client.connection.response_matcher import (
    Decode,
    Key,
    PendingRequests,
    Reply,
    Request,
    decode_batch,
    decode_v2,
    decode_v3,
)
from bkbox.client.options import ClientOptions, new_backoff
from bkbox.errors import AuthenticationError
from bkbox.protocol.events import NoResponse
from bkbox.wire.metadata.service_info import HostPort

log = logging.getLogger(__name__)

_SOON_S = 0.01
"""Granularity of time-outs, in seconds: requests that time out within this time of now do so now."""

_STALL_S = 0.5
"""A timer later than this, in seconds, shows that this process was stalled: responses may have arrived unread. What
would time out then gets as much time again as the timer was late, once.
"""

Resolve = Callable[[BookieId], Awaitable[HostPort | None]]


class RequestPriority(Enum):
    """The traffic that a connection carries; each priority has its own connection to a bookie."""

    V2 = "adds and reads of version 2"
    V2_FENCING = "fencing reads of version 2"
    V2_BATCH = "batch reads of version 2"
    V3 = "everything of version 3"


_DECODE: dict[RequestPriority, Decode] = {
    RequestPriority.V2: decode_v2,
    RequestPriority.V2_FENCING: decode_v2,
    RequestPriority.V2_BATCH: decode_batch,
    RequestPriority.V3: decode_v3,
}


class BookieLink:
    """One link to one bookie, for one priority."""

    def __init__(
        self,
        bookie: BookieId,
        priority: RequestPriority,
        resolve: Resolve,
        options: ClientOptions,
        rng: random.Random,
        flush_batcher: FlushBatcher,
        greeting: ClientHandshake | None = None,
    ) -> None:
        """``greeting``: how connections begin; None: with the first request."""
        self._bookie = bookie
        self._greeting = greeting
        self._lane = priority
        self._resolve = resolve
        self._options = options
        self._flush_batcher = flush_batcher
        self._backoff = new_backoff(options, rng)
        self._not_before = 0.0
        self._connections = 0
        self._stream: FramedConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._backlog: list[Request | AddSend] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def suspect(self) -> bool:
        """True if the last connection attempt failed recently."""
        return asyncio.get_running_loop().time() < self._not_before

    def request(self, key: Key, frame: bytes, timeout_s: float) -> asyncio.Future[Reply]:
        """Send a frame. Cancelling the future forgets the request."""
        request = Request(key, frame, asyncio.get_running_loop().create_future())
        self.send(request, timeout_s)
        return request.reply

    def send(self, item: Request | AddSend, timeout_s: float) -> None:
        """Send a request or a batch of adds."""
        loop = asyncio.get_running_loop()
        stream = self._stream
        if self._closed or (stream is None and self._connecting is None and self.suspect):
            item.fail(NoResponse.NOT_REACHED)
            return
        item.deadline = loop.time() + timeout_s
        if self._sweep is None or item.deadline < self._sweep.when():
            self._sweep_at(item.deadline)
        if stream is not None:
            stream.send(item)
        else:
            self._backlog.append(item)
            if self._connecting is None:
                self._connecting = loop.create_task(self._connect())

    def refuse(self) -> None:
        """From now on, every request ends with NOT_REACHED."""
        self._closed = True

    async def close(self) -> None:
        """End every outstanding request and close the connection."""
        self.refuse()
        if self._sweep is not None:
            self._sweep.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._stream is not None:
            self._stream.abort()
            await asyncio.wait([self._stream.closed])

    # ---- time-outs ------------------------------------------------------------------------------

    def _sweep_at(self, when: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = asyncio.get_running_loop().call_at(when, self._expire)

    def _expire(self) -> None:
        """One timer for all requests: it fires at the deadline of the request that had waited longest when it was
        set.
        """
        assert self._sweep is not None
        stream = self._stream
        now = asyncio.get_running_loop().time() + _SOON_S
        delay_s = now - self._sweep.when()
        self._sweep = None
        left = inf
        for item in self._backlog if stream is None else [*stream.pending.items()]:
            if item.is_over:
                continue
            if item.deadline <= now and delay_s > _STALL_S and not item.was_stalled:
                item.was_stalled = True
                item.deadline = now + delay_s
            if item.deadline > now:
                left = min(left, item.deadline)
                continue
            item.fail(NoResponse.TIMEOUT)
            if stream is not None:
                stream.forget(item)
        if stream is not None:
            stream.pending.tidy()
        if left < inf:
            self._sweep_at(left)

    # ---- connections ----------------------------------------------------------------------------

    async def _connect(self) -> None:
        stream = None
        try:
            stream = await self._opened()
        except (OSError, TimeoutError, AuthenticationError) as error:
            if self._greeting is not None:
                log.warning("bookie %s: %s", self._bookie, error_text(error))
        finally:
            self._connecting = None
            backlog, self._backlog = self._backlog, []
            if stream is None:
                self._back_off()
                for item in backlog:
                    item.fail(NoResponse.NOT_REACHED)
        if stream is not None:
            self._stream = stream
            try:
                for item in backlog:
                    if not item.is_over:
                        stream.send(item)
            except BaseException:
                for item in backlog:
                    item.fail(NoResponse.CONNECTION_LOST)
                stream.abort()
                raise

    async def _opened(self) -> FramedConnection | None:
        """A new connection; None if the address is unknown. Raises OSError, TimeoutError, AuthenticationError."""
        loop, timeout_s = asyncio.get_running_loop(), self._options.connect_timeout_s
        begin = loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open()
        except TimeoutError:
            if loop.time() - begin < timeout_s + _STALL_S:
                raise
        async with asyncio.timeout(timeout_s):
            return await self._open()

    async def _open(self) -> FramedConnection | None:
        address = await self._resolve(self._bookie)
        if address is None:
            return None
        if self._greeting is not None:
            return await self._greeting.connect(address, self._new_stream)
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(self._new_stream, address.host, address.port)
        return stream

    def _new_stream(self) -> FramedConnection:
        self._connections += 1
        pending = PendingRequests(
            numbered=self._lane in (RequestPriority.V2_BATCH, RequestPriority.V3)
        )
        decode = _DECODE[self._lane]
        frame_bytes_max = self._options.frame_bytes_max
        return FramedConnection(
            self._connections, decode, pending, frame_bytes_max, self._flush_batcher, self._lost
        )

    def _lost(self, stream: FramedConnection) -> None:
        self._stream = None
        if stream.has_received:
            self._backoff.reset()
        else:
            self._back_off()

    def _back_off(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._backoff.next_s()
