"""One client connection: what is not ordinary about it (kernel/stream.py has the rest).

Every frame that is no ordinary request of a known ledger goes through Intake, one by one and in the order of arrival.
A connection that sends what cannot be decoded is closed, as BookKeeper's does.
"""

from __future__ import annotations

import select
import socket

from bkbox.frontend.intake import Intake, Router
from bkbox.frontend.lateanswers import without_entries
from bkbox.kernel.stream import Common, Stream
from bkbox.wire.frames import PREFIX_BYTES


class Session(Stream):
    """A connection, from accept to close."""

    __slots__ = ("_intake",)

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        peer: str,
        poll: select.epoll,
        common: Common,
        router: Router,
        frame_bytes_max: int,
        inflight_bytes_max: int,
    ) -> None:
        super().__init__(number, sock, peer, poll, common, frame_bytes_max, inflight_bytes_max)
        self._intake = Intake(router)

    def take_slowly(self, frame: memoryview) -> bool:
        body = frame[PREFIX_BYTES:]
        target = self._intake.take(body)
        self.speaks3 = self._intake.tries_v3
        if isinstance(target, bytes):
            if target:
                self.send(memoryview(target))
            return True
        if not target.link.submit(self.number, frame, target.poll):
            target.link.lane.waiting.append(self)
            return False
        self.charge(len(body) if target.weighs else 0)
        return True

    def lighten(self, frames: memoryview) -> bytes:
        return without_entries(frames)
