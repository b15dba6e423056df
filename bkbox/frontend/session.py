"""One client connection: bytes in, whole frames to the disks, answers out.

Works on chunks: up to the buffer's size is read at once, whole frames are found in place, and consecutive frames for
one disk are handed on together. A connection that sends what cannot be decoded is closed, as BookKeeper's does.

Bounds, per connection:

- the receive buffer holds one frame of the largest size, at most;
- requests that wait for an answer have a cost (their own bytes; for a read the size that answers lately had), and
  while their sum is over the limit nothing more is read;
- while the client does not take its answers nothing more is read, and what was asked before is answered without
  entries (too many requests) once too much is waiting for the client already;
- a long poll costs as much as a read until it is known whether it has to wait; from then on it costs nothing, and
  holds up nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from bkbox.errors import FrameError
from bkbox.frontend.disklink import DiskLink
from bkbox.frontend.intake import Intake, Router
from bkbox.frontend.lateanswers import without_entries
from bkbox.wire.frames import LENGTH, PREFIX_BYTES, frame_end

if TYPE_CHECKING:
    from collections.abc import Callable

_BUFFER_BYTES = 256 * 1024
_WRITE_HIGH_WATER_BYTES = 1 << 20
_UNSENT_BYTES_MAX = 64 << 20
_LEAST_READ_COST = 64 * 1024

log = logging.getLogger(__name__)


class Session(asyncio.BufferedProtocol):
    """A connection, from accept to close."""

    def __init__(
        self,
        number: int,
        router: Router,
        frame_bytes_max: int,
        inflight_bytes_max: int,
        on_close: Callable[[int], None],
    ) -> None:
        self.number = number
        self._intake = Intake(router)
        self._frame_bytes_max = frame_bytes_max
        self._inflight_bytes_max = inflight_bytes_max
        self._on_close = on_close
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._pending = 0
        self._cost = 0
        self._read_cost = _LEAST_READ_COST
        self._blocked: set[str] = set()
        self._transport: asyncio.Transport | None = None
        self.peer = "?"

    # ---- asyncio's side -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        self.peer = str(transport.get_extra_info("peername"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_close(self.number)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._work()

    def pause_writing(self) -> None:
        self._block("writing")

    def resume_writing(self) -> None:
        self._unblock("writing")

    # ---- back-pressure ------------------------------------------------------------------------------

    def _block(self, reason: str) -> None:
        if not self._blocked and self._transport is not None:
            self._transport.pause_reading()
        self._blocked.add(reason)

    def _unblock(self, reason: str) -> None:
        if reason not in self._blocked:
            return
        self._blocked.discard(reason)
        if not self._blocked and self._transport is not None:
            self._work()
            if not self._blocked and self._transport is not None:
                self._transport.resume_reading()

    # ---- requests -----------------------------------------------------------------------------------

    def _work(self) -> None:
        """Hand on the whole frames of the buffer, as far as nothing blocks."""
        try:
            taken = self._hand_on()
        except FrameError as error:
            log.warning("connection %s: %s; closed", self.peer, error)
            self.abort()
            return
        if taken:
            rest = self._filled - taken
            self._buffer[:rest] = self._buffer[taken : self._filled]
            self._filled = rest
        self._make_room()

    def _make_room(self) -> None:
        """The buffer grows to the frame that has begun, and shrinks again afterwards."""
        wanted = _BUFFER_BYTES
        if self._filled >= PREFIX_BYTES:
            begun = LENGTH.unpack_from(self._buffer)[0] + PREFIX_BYTES
            # While something blocks, nobody has looked at this length yet.
            wanted = min(max(wanted, begun), max(wanted, self._frame_bytes_max))
        if wanted != len(self._buffer) and self._filled <= wanted:
            self._buffer = self._buffer[: self._filled] + bytearray(wanted - self._filled)

    def _hand_on(self) -> int:
        """Bytes taken from the start of the buffer. Raises FrameError."""
        view = memoryview(self._buffer)[: self._filled]
        run_start = position = 0
        run_link: DiskLink | None = None
        run_count = run_cost = 0
        run_polls: list[tuple[int, bytes]] = []
        while (
            not self._blocked
            and self._transport is not None
            and self._cost + run_cost <= self._inflight_bytes_max
        ):
            end = frame_end(view, position, self._frame_bytes_max)
            if end is None or end > self._filled:
                break
            body = view[position + PREFIX_BYTES : end]
            target = self._intake.take(body)
            link = None if isinstance(target, bytes) else target.link
            if link is not run_link or end - run_start > self._frame_bytes_max:
                frames = view[run_start:position]
                if not self._submit(run_link, frames, run_count, run_cost, run_polls):
                    return run_start
                run_start, run_link, run_count, run_cost, run_polls = position, link, 0, 0, []
            if isinstance(target, bytes):
                self._write(target)
                run_start = end
            else:
                run_count += 1
                run_cost += len(body) if target.weighs else self._read_cost
                if target.poll is not None:
                    run_polls.append(target.poll)
            position = end
        if not self._submit(run_link, view[run_start:position], run_count, run_cost, run_polls):
            return run_start
        return position

    def _submit(
        self,
        link: DiskLink | None,
        frames: memoryview,
        count: int,
        cost: int,
        polls: list[tuple[int, bytes]],
    ) -> bool:
        if link is None or not count:
            return True
        if not link.submit(self.number, frames, count, polls):
            self._block("slots")
            link.wait(lambda: self._unblock("slots"))
            return False
        self._pending += count
        self._cost += cost
        if self._cost > self._inflight_bytes_max:
            self._block("inflight")
        return True

    # ---- answers ------------------------------------------------------------------------------------

    def answer(self, frames: bytes, count: int) -> None:
        """Answers to ``count`` requests of this connection."""
        size = len(frames) // max(count, 1)
        self._read_cost = max(_LEAST_READ_COST, size, (self._read_cost * 3 + size) // 4)
        self.polled(frames)
        self.parked(count)

    def polled(self, frames: bytes) -> None:
        """Answers to requests that cost nothing any more."""
        if self._transport is not None:
            if self._transport.get_write_buffer_size() > _UNSENT_BYTES_MAX:
                frames = without_entries(frames)
            self._transport.write(frames)

    def parked(self, count: int) -> None:
        """``count`` requests cost nothing any more."""
        if self._pending:
            self._cost -= self._cost * min(count, self._pending) // self._pending
            self._pending -= min(count, self._pending)
        if self._cost <= self._inflight_bytes_max // 2:
            self._unblock("inflight")

    def _write(self, frames: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frames)

    def abort(self) -> None:
        """Close at once; answers that were not sent are lost, as with BookKeeper's SO_LINGER 0."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
