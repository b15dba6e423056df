"""The front-end's end of the link to one disk worker: sends batches of frames, receives batches of responses.

Frames of one event-loop iteration share a slot and are sent at its end. When no slot is free, the sessions that need
one stop reading and are notified when to continue: that is the backpressure from a slow disk to its clients. When the
worker dies, every request without a response is still in the request slots. Each of those frames gets EIO,
because it is unknown whether it was carried out (inflight_requests.py).

A response slot is read in place and released after the iteration, when all of it is sent or copied. For a group with
further responses to come, the link remembers just enough of the received responses to match them to their requests.

A long poll outlives its batch. The link remembers it from submit() to its response, with the response to send if the
worker dies. Once its batch is done a long poll only waits, so its session no longer counts it as in flight.
"""

from __future__ import annotations

import socket
from collections import Counter
from struct import iter_unpack
from typing import Protocol

from bkbox.frontend.inflight_requests import refusals, response_txn
from bkbox.frontend.loop.connection import Connection
from bkbox.frontend.loop.request_sender import RequestSender
from bkbox.ipc import link as wire
from bkbox.ipc.frame_spans import heads, segments
from bkbox.ipc.slots import SlotArea
from bkbox.wire.frames import bodies


class Owner(Protocol):
    """The callbacks of a link into the front-end."""

    def ledgers(self, disk: int, ledgers: list[int]) -> None:
        """Reports a page of the ledgers on the disk."""

    def listed(self, disk: int) -> None:
        """The disk's list of ledgers is complete; the disk is in service."""

    def lost(self, disk: int) -> None:
        """The worker is gone and its link is about to be closed; the disk is out of service."""


class DiskLink(RequestSender):
    """One attached worker: everything that is not on the per-batch path (which is in loop/request_sender.py)."""

    __slots__ = (
        "_closed_connections",
        "_owner",
        "_partial_responses",
        "_polls",
        "_polls_in",
        "_request_area",
        "_response_area",
        "_sessions",
        "disk",
        "in_service",
        "sock",
    )

    def __init__(
        self, disk: int, sock: socket.socket, owner: Owner, sessions: dict[int, Connection]
    ) -> None:
        """``sessions``: the open connections by number, a live mapping."""
        self.disk = disk
        self.sock = sock
        self.in_service = False
        self._owner = owner
        self._sessions = sessions
        self._request_area = SlotArea.create("bkbox-requests")
        self._response_area = SlotArea.create("bkbox-responses")
        self._partial_responses: dict[int, list[bytes]] = {}
        self._polls: dict[int, dict[int, bytes]] = {}
        self._polls_in: dict[int, Counter[int]] = {}
        self._closed_connections: list[int] = []
        sock.setblocking(False)
        wire.send_hello(sock, self._request_area.fd, self._response_area.fd)
        super().__init__(sock, self._request_area.slots, self._response_area.slots, sessions)

    # ---- requests -----------------------------------------------------------------------------------

    def submit(
        self, connection: int, frame: memoryview, poll: tuple[int, bytes] | None = None
    ) -> bool:
        """Adds a frame to the batch of this event-loop iteration; False if no slot has space.

        ``poll``: for a long poll, its transaction id and the response to send if the worker dies.
        """
        if not self.lane.put(connection, frame, 0, len(frame)):
            return False
        if poll is not None:
            self._polls.setdefault(connection, {}).update((poll,))
            self._polls_in.setdefault(self.open_slot, Counter())[connection] += 1
            self.watches_done = True
        return True

    def forget(self, connection: int) -> None:
        """Drops the long polls of a connection that is closed."""
        if self._polls.pop(connection, None) is not None and not self.closed:
            self._closed_connections.append(connection)
            self._report_closed()

    def _report_closed(self) -> None:
        while self._closed_connections and self.lane.put_closed(self._closed_connections[-1]):
            self._closed_connections.pop()
        if self._closed_connections:
            self.watches_done = True

    # ---- messages from the worker -------------------------------------------------------------------

    def other(self, kind: int, flag: int, slot: int, used: int) -> None:
        filled = self._response_area.slots[slot]
        if kind == wire.POLLED:
            for connection, _count, frames in segments(filled, used):
                self._end_polls(connection, frames)
        elif kind == wire.LEDGERS:
            page = [ledger for (ledger,) in iter_unpack("=Q", filled[:used])]
            self._owner.ledgers(self.disk, page)
            if flag:
                self.in_service = True
                self._owner.listed(self.disk)

    def remember(self, group: int, slot: int, used: int) -> None:
        self._partial_responses.setdefault(group, []).append(
            heads(self._response_area.slots[slot], used)
        )
        self.watches_done = True

    def done(self, mask: int, group: int) -> None:
        self._partial_responses.pop(group, None)
        for slot in list(self._polls_in):
            if mask >> slot & 1:
                self._park(slot)
        self._report_closed()
        self.watches_done = bool(
            self._partial_responses or self._polls_in or self._closed_connections
        )

    def _park(self, slot: int) -> None:
        """Takes the long polls of this slot out of their sessions' in-flight counts: their batch is done."""
        for connection, count in self._polls_in.pop(slot).items():
            session = self._sessions.get(connection)
            if session is not None:
                session.release(count)

    def _end_polls(self, connection: int, frames: memoryview) -> None:
        polls = self._polls.get(connection)
        if polls is not None:
            for response in bodies(frames, len(frames)):
                polls.pop(response_txn(response), None)
            if not polls:
                del self._polls[connection]
        self._polled(connection, frames)

    def _polled(self, connection: int, frames: memoryview) -> None:
        session = self._sessions.get(connection)
        if session is not None:
            session.send(frames)

    # ---- the end ------------------------------------------------------------------------------------

    def lose(self) -> None:
        """Closes the link: the worker is gone, or the front-end detaches the disk."""
        if self.closed:
            return
        self.closed = True
        self.in_service = False
        self._owner.lost(self.disk)
        self.sock.close()
        responses = (
            segment
            for parts in self._partial_responses.values()
            for part in parts
            for segment in segments(memoryview(part), len(part))
        )
        for connection, count, frames in refusals(self.pending_requests(), responses):
            session = self._sessions.get(connection)
            if session is not None:
                session.on_responses(memoryview(frames), count)
        for slot in list(self._polls_in):
            self._park(slot)
        for connection, polls in self._polls.items():
            self._polled(connection, memoryview(b"".join(polls.values())))
        self._polls.clear()
        self._partial_responses.clear()
        self._request_area.close()
        self._response_area.close()
        self.go_on()
