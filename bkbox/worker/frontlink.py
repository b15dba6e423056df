"""The worker's end of the link to the front-end: takes batches, packs answers into slots.

All batches that wait are taken together: while one group is being synced the next one gathers, which is the whole
of group commit.
"""

from __future__ import annotations

import socket
from array import array
from collections import deque
from collections.abc import Iterable, Iterator

from bkbox.ipc import link as wire
from bkbox.ipc.link import LinkKind, LinkMessage
from bkbox.ipc.slots import SLOT_BYTES, SLOT_COUNT, SlotArea, SlotWriter, segments

_IDS_PER_PAGE = SLOT_BYTES // 8


class FrontLink:
    """One attached front-end. All methods raise EOFError once it is gone."""

    def __init__(self, sock: socket.socket) -> None:
        """Blocks until the front-end's hello is there."""
        self.sock = sock
        request_fd, answer_fd = wire.receive_hello(sock)
        self._requests = SlotArea(request_fd)
        self._answers = SlotArea(answer_fd)
        self._free = deque(range(SLOT_COUNT))
        self._batches: deque[tuple[int, int]] = deque()
        self._open: tuple[LinkKind, int, SlotWriter] | None = None

    def fileno(self) -> int:
        return self.sock.fileno()

    def announce(self, ledgers: Iterable[int]) -> None:
        """Tell the front-end which ledgers the disk has; it serves none of them before the list has ended."""
        page = array("Q")
        for ledger in ledgers:
            page.append(ledger)
            if len(page) == _IDS_PER_PAGE:
                self._send_page(page, last=False)
                page = array("Q")
        self._send_page(page, last=True)

    def _send_page(self, page: array[int], *, last: bool) -> None:
        index = self._take_slot()
        data = page.tobytes()
        self._answers.slot(index)[: len(data)] = data
        self._send(LinkMessage(LinkKind.LEDGERS, index, len(data), flag=last))

    def receive(self) -> None:
        """Take every message that is there, without waiting."""
        while True:
            try:
                data = wire.receive(self.sock, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self._take(data)

    def _take(self, data: bytes) -> None:
        if not data:
            raise EOFError("the front-end is gone")
        message = wire.unpack(data)
        if message.kind is LinkKind.BATCH:
            self._batches.append((message.slot, message.used))
        elif message.kind is LinkKind.RELEASE:
            self._free.append(message.slot)

    def batches(self) -> tuple[list[int], list[tuple[int, int, memoryview]]]:
        """The slots that wait and their segments (connection, frames, bytes); valid until done().

        A segment without frames: the connection is closed.
        """
        slots: list[int] = []
        found: list[tuple[int, int, memoryview]] = []
        while self._batches:
            index, used = self._batches.popleft()
            slots.append(index)
            found.extend(segments(self._requests.slot(index)[:used]))
        return slots, found

    def answer(self, connection: int, frames: list[bytes]) -> None:
        """Queue whole answer frames for one connection."""
        self._put(LinkKind.ANSWER, connection, frames)

    def answer_poll(self, connection: int, frames: list[bytes]) -> None:
        """Queue answers to long polls, which are in no batch."""
        self._put(LinkKind.POLLED, connection, frames)

    def _put(self, kind: LinkKind, connection: int, frames: list[bytes]) -> None:
        if self._open is not None and self._open[0] is not kind:
            self.flush()
        for count, packed in self._packed(frames):
            if self._open is not None and self._open[2].room() < len(packed):
                self.flush()
            if self._open is None:
                index = self._take_slot()
                self._open = kind, index, SlotWriter(self._answers.slot(index))
            self._open[2].add(connection, packed, count)

    def _packed(self, frames: list[bytes]) -> Iterator[tuple[int, bytes]]:
        """Frames joined as long as they fit into the slot that is being filled."""
        start, size = 0, 0
        room = self._open[2].room() if self._open is not None else SLOT_BYTES - 64
        for position, frame in enumerate(frames):
            if size + len(frame) > room and position > start:
                yield position - start, b"".join(frames[start:position])
                start, size = position, 0
                room = SLOT_BYTES - 64
            size += len(frame)
        if start < len(frames):
            yield len(frames) - start, b"".join(frames[start:])

    def flush(self) -> None:
        """Send the slot of answers that is being filled."""
        if self._open is not None:
            kind, index, writer = self._open
            self._open = None
            self._send(LinkMessage(kind, index, writer.used))

    def done(self, slots: list[int], *, read_only: bool) -> None:
        """Every frame of these slots, which are the whole batch, was answered or is a long poll."""
        self._send(LinkMessage(LinkKind.DONE, used=wire.slot_mask(slots), flag=read_only))

    def _take_slot(self) -> int:
        """A free slot of answers; waits for the front-end to give one back."""
        while not self._free:
            self._take(wire.receive(self.sock))
        return self._free.popleft()

    def _send(self, message: LinkMessage) -> None:
        try:
            self.sock.send(wire.pack(message))
        except OSError as error:
            raise EOFError(f"the front-end is gone: {error}") from error

    def close(self) -> None:
        self.sock.close()
        self._requests.close()
        self._answers.close()
