"""The worker's end of the link to the front-end: receives groups of batches, packs responses into slots.

All waiting batches are received together as one group. While one group is synced, the next one gathers: that is all of
group commit. Groups may overlap. One response slot is filled at a time, for one group or for the long polls; it is sent
when the next filler starts.
"""

from __future__ import annotations

import socket
from array import array
from collections.abc import Iterable
from struct import Struct

from bkbox.ipc import link
from bkbox.ipc.slots import SLOT_BYTES, SlotArea
from bkbox.worker.response_sender import RequestGroup, ResponseSender

__all__ = ["FrontLink", "RequestGroup"]

_IDS_PER_PAGE = SLOT_BYTES // 8
_TIMEVAL = Struct("@ll")


class FrontLink(ResponseSender):
    """The link to one attached front-end. All methods raise EOFError once the front-end is gone, or has released no
    slot within ``slot_wait_s`` (0: no time-out)."""

    __slots__ = ("_request_area", "_response_area", "sock")

    def __init__(self, sock: socket.socket, slot_wait_s: float = 0.0) -> None:
        """Blocks until the front-end's hello has arrived."""
        request_fd, response_fd = link.receive_hello(sock)
        if slot_wait_s:
            seconds = int(slot_wait_s)
            micros = int((slot_wait_s - seconds) * 1_000_000)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(seconds, micros))
        self.sock = sock
        self._request_area = SlotArea(request_fd)
        self._response_area = SlotArea(response_fd)
        super().__init__(sock, self._request_area.view, self._response_area.slots)

    def fileno(self) -> int:
        return self.sock.fileno()

    def announce(self, ledgers: Iterable[int]) -> None:
        """Send the front-end the list of the disk's ledgers; it serves none of them before the list has ended."""
        page = array("Q")
        for ledger in ledgers:
            page.append(ledger)
            if len(page) == _IDS_PER_PAGE:
                self.announce_page(page, last=False)
                page = array("Q")
        self.announce_page(page, last=True)

    def announce_page(self, ledgers: Iterable[int], *, last: bool) -> None:
        """Send a page of the list, which fits into a slot. With the ``last`` page it has ended."""
        slot = self.acquire_slot()
        data = array("Q", ledgers).tobytes()
        self._response_area.slots[slot][: len(data)] = data
        self.send(link.LEDGERS, last, slot, len(data), 0, 0)

    def close(self) -> None:
        self.sock.close()
        self._request_area.close()
        self._response_area.close()
