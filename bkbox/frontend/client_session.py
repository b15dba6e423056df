"""One client connection: its slow path (frontend/loop/connection.py has the rest).

Every frame that is not a fast-path request for a known ledger goes through RequestRouter, one at a time and in the
order of arrival. A connection that sends a frame which cannot be decoded is closed, as BookKeeper's bookie does.
"""

from __future__ import annotations

import select
import socket
from typing import Protocol

from bkbox.base.logs.trace import CURRENT_CONNECTIONS
from bkbox.frontend.access.authorization import Authorizer
from bkbox.frontend.disk_link import DiskLink
from bkbox.frontend.loop.connection import Connection, SharedState
from bkbox.frontend.loop.routing import SlotWaiter
from bkbox.frontend.overload.overload_responses import without_entries
from bkbox.frontend.request_router import RequestRouter, Router
from bkbox.wire.frames import PREFIX_BYTES


class SlotRouter(Router, Protocol):
    """A router on which a session can wait."""

    def await_route(self, waiter: SlotWaiter) -> None:
        """Registers a waiter: its ``on_slot_free`` is called when ``route`` may have another result."""


class ClientSession(Connection):
    """A connection, from its admission to its close. ``authorizer``: what its client may do, None for everything;
    ``watched``: see connection_timeouts.py."""

    __slots__ = ("_request_router", "_router", "authorizer", "host", "watched", "watched_since")

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        peer: str,
        poll: select.epoll,
        common: SharedState,
        router: SlotRouter,
        frame_bytes_max: int,
        inflight_bytes_max: int,
        host: str = "",
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(number, sock, peer, poll, common, frame_bytes_max, inflight_bytes_max)
        self._request_router = RequestRouter(router, authorizer, number)
        self._router = router
        self.host = host
        self.authorizer = authorizer
        self.watched = (0, 0)
        self.watched_since = 0.0
        self.refresh_permissions()

    def refresh_permissions(self) -> None:
        """Refreshes what its client may do."""
        if self.authorizer is not None:
            self.allows = self.authorizer.fast_paths

    def handle_slow_path(self, frame: memoryview) -> bool:
        body = frame[PREFIX_BYTES:]
        CURRENT_CONNECTIONS.set(self._numbers)
        try:
            target = self._request_router.dispatch(body)
        finally:  # later log lines must not name a connection that this frame has closed
            CURRENT_CONNECTIONS.set(None)
        self.is_v3 = self._request_router.tries_v3
        if target is None:
            self._router.await_route(self)
            return False
        if isinstance(target, bytes):
            if target:
                self.send(memoryview(target))
            return True
        if not target.link.submit(self.number, frame, target.poll):
            target.link.lane.waiting.append(self)
            self._request_router.paid = True
            return False
        self.charge(len(body) if target.costs_request_bytes else 0)
        return True

    def _numbers(self) -> list[int]:
        return [self.number]

    def moved(self, ledger: int, before: DiskLink, after: DiskLink) -> None:
        """A ledger has migrated from the disk of one link to that of another."""
        self._request_router.moved(ledger, before, after)

    def strip_payloads(self, frames: memoryview) -> bytes:
        return without_entries(frames)
