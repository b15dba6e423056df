"""One client connection: what is not ordinary about it (kernel/stream.py has the rest).

Every frame that is no ordinary request of a known ledger goes through Intake, one by one and in the order of arrival.
A connection that sends what cannot be decoded is closed, as BookKeeper's does.
"""

from __future__ import annotations

import select
import socket
from typing import Protocol

from bkbox.frontend.disklink import DiskLink
from bkbox.frontend.intake import Intake, Router
from bkbox.frontend.lateanswers import without_entries
from bkbox.kernel.routes import Waiter
from bkbox.kernel.stream import Common, Stream
from bkbox.wire.frames import PREFIX_BYTES


class Holder(Router, Protocol):
    """A router that can keep somebody waiting."""

    def await_place(self, waiter: Waiter) -> None:
        """Call its ``has_slot`` when ``route`` may have something else to say."""


class Session(Stream):
    """A connection, from accept to close."""

    __slots__ = ("_intake", "_router")

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        peer: str,
        poll: select.epoll,
        common: Common,
        router: Holder,
        frame_bytes_max: int,
        inflight_bytes_max: int,
    ) -> None:
        super().__init__(number, sock, peer, poll, common, frame_bytes_max, inflight_bytes_max)
        self._intake = Intake(router)
        self._router = router

    def take_slowly(self, frame: memoryview) -> bool:
        body = frame[PREFIX_BYTES:]
        target = self._intake.take(body)
        self.speaks3 = self._intake.tries_v3
        if target is None:
            self._router.await_place(self)
            return False
        if isinstance(target, bytes):
            if target:
                self.send(memoryview(target))
            return True
        if not target.link.submit(self.number, frame, target.poll):
            target.link.lane.waiting.append(self)
            return False
        self.charge(len(body) if target.weighs else 0)
        return True

    def moved(self, ledger: int, before: DiskLink, after: DiskLink) -> None:
        """A ledger has moved from the disk of one link to that of another."""
        self._intake.moved(ledger, before, after)

    def lighten(self, frames: memoryview) -> bytes:
        return without_entries(frames)
