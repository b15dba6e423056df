"""The front-end's end of the link to one disk worker: batches of frames out, batches of answers in.

Frames of one turn of the event loop go into one slot and leave together at its end. When no slot is free the
sessions that wanted one stop reading and are told when to go on: that is the back-pressure from a slow disk to its
clients. When the worker dies, whatever it had not answered is still in the slots of requests; each of those frames
is answered with EIO, because nobody can say whether it was carried out (unanswered.py).

A long poll outlives its batch, so the link remembers it from submit() to its answer, with the answer that it gets if
the worker dies. Once its batch is done it only waits: its session need not count it any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from struct import iter_unpack
from typing import Protocol

from bkbox.frontend.unanswered import answered_txn, refusals
from bkbox.ipc import link as wire
from bkbox.ipc.link import LinkKind, LinkMessage
from bkbox.ipc.slots import SLOT_COUNT, SlotArea, SlotWriter, segments
from bkbox.wire.frames import bodies


class Owner(Protocol):
    """What the link tells the front-end."""

    def deliver(self, connection: int, count: int, frames: bytes) -> None:
        """Answers for one connection."""

    def parked(self, connection: int, count: int) -> None:
        """So many long polls of a connection only wait from now on, or are answered already."""

    def polled(self, connection: int, frames: bytes) -> None:
        """Answers to long polls of one connection."""

    def ledgers(self, disk: int, ledgers: list[int]) -> None:
        """Ledgers that the disk has."""

    def listed(self, disk: int) -> None:
        """The disk's list of ledgers is complete; the disk is in service."""

    def lost(self, disk: int) -> None:
        """The worker is gone; the disk is out of service."""


class DiskLink:
    """One attached worker."""

    def __init__(self, disk: int, sock: socket.socket, owner: Owner) -> None:
        self.disk = disk
        self.writable = True
        self.in_service = False
        self._owner = owner
        self._sock = sock
        self._sock.setblocking(False)
        self._requests = SlotArea.create("bkbox-requests")
        self._answers = SlotArea.create("bkbox-answers")
        self._free = list(range(SLOT_COUNT))
        self._sent: dict[int, int] = {}
        self._answered: list[tuple[int, bytes]] = []
        self._open: tuple[int, SlotWriter] | None = None
        self._waiting: list[Callable[[], None]] = []
        self._polls: dict[int, dict[int, bytes]] = {}
        self._polls_in: dict[int, Counter[int]] = {}
        self._gone: list[int] = []
        self._loop = asyncio.get_running_loop()
        self._closed = False
        wire.send_hello(sock, self._requests.fd, self._answers.fd)
        self._loop.add_reader(sock.fileno(), self._readable)

    def submit(
        self,
        connection: int,
        frames: memoryview,
        count: int,
        polls: Sequence[tuple[int, bytes]] = (),
    ) -> bool:
        """Put frames into the batch of this turn; False where no slot has room: try again after wait().

        ``polls``: of the long polls among them, transaction id and the answer if the worker dies.
        """
        if self._open is not None and self._open[1].room() < len(frames):
            self.flush()
        if self._open is None:
            if not self._free:
                return False
            index = self._free.pop()
            self._open = index, SlotWriter(self._requests.slot(index))
            self._loop.call_soon(self.flush)
        self._open[1].add(connection, frames, count)
        if polls:
            self._polls.setdefault(connection, {}).update(polls)
            self._polls_in.setdefault(self._open[0], Counter())[connection] += len(polls)
        return True

    def forget(self, connection: int) -> None:
        """The connection is closed: its long polls have nobody to be answered to."""
        if self._polls.pop(connection, None) is not None and not self._closed:
            self._gone.append(connection)
            self._tell_gone()

    def _tell_gone(self) -> None:
        while self._gone and self.submit(self._gone[-1], memoryview(b""), 0):
            self._gone.pop()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call ``resume`` once when a slot is free, or when the link is lost."""
        self._waiting.append(resume)

    def flush(self) -> None:
        """Hand the open slot to the worker."""
        if self._open is None or self._closed:
            return
        index, writer = self._open
        self._open = None
        self._sent[index] = writer.used
        self._send(LinkMessage(LinkKind.BATCH, index, writer.used))

    def _send(self, message: LinkMessage) -> None:
        # Fewer messages than slots are ever under way, which is far less than a socket buffer holds.
        try:
            self._sock.send(wire.pack(message))
        except OSError:
            self._loop.call_soon(self.close)

    def _readable(self) -> None:
        while not self._closed:
            try:
                data = wire.receive(self._sock)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            self._take(wire.unpack(data))

    def _take(self, message: LinkMessage) -> None:
        if message.kind is LinkKind.ANSWER:
            for connection, count, frames in segments(
                self._answers.slot(message.slot)[: message.used]
            ):
                copied = bytes(frames)
                self._answered.append((connection, copied))
                self._owner.deliver(connection, count, copied)
            self._send(LinkMessage(LinkKind.RELEASE, message.slot))
        elif message.kind is LinkKind.POLLED:
            for connection, _count, frames in segments(
                self._answers.slot(message.slot)[: message.used]
            ):
                copied = bytes(frames)
                self._end_polls(connection, copied)
                self._owner.polled(connection, copied)
            self._send(LinkMessage(LinkKind.RELEASE, message.slot))
        elif message.kind is LinkKind.DONE:
            self.writable = not message.flag
            self._answered.clear()
            for index in wire.slots_in(message.used):
                del self._sent[index]
                self._free.append(index)
                self._park(index)
            self._tell_gone()
            self._resume()
        elif message.kind is LinkKind.LEDGERS:
            page = self._answers.slot(message.slot)[: message.used]
            self._owner.ledgers(self.disk, [ledger for (ledger,) in iter_unpack("=Q", page)])
            self._send(LinkMessage(LinkKind.RELEASE, message.slot))
            if message.flag:
                self.in_service = True
                self._owner.listed(self.disk)

    def _park(self, index: int) -> None:
        """The long polls of this slot are in no batch any more."""
        for connection, count in self._polls_in.pop(index, Counter()).items():
            self._owner.parked(connection, count)

    def _end_polls(self, connection: int, frames: bytes) -> None:
        polls = self._polls.get(connection)
        if polls is None:
            return
        for answer in bodies(frames, len(frames)):
            polls.pop(answered_txn(answer), None)
        if not polls:
            del self._polls[connection]

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            self._loop.call_soon(resume)

    def close(self) -> None:
        """End of the link: the worker is gone, or the front-end lets go of it."""
        if self._closed:
            return
        self._closed = True
        self.in_service = False
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        if self._open is not None:
            self._sent[self._open[0]] = self._open[1].used
            self._open = None
        self._owner.lost(self.disk)
        requests = (
            segment
            for index, used in self._sent.items()
            for segment in segments(self._requests.slot(index)[:used])
        )
        for connection, count, frames in refusals(requests, self._answered):
            self._owner.deliver(connection, count, frames)
        for index in list(self._polls_in):
            self._park(index)
        for connection, polls in self._polls.items():
            self._owner.polled(connection, b"".join(polls.values()))
        self._polls.clear()
        self._sent.clear()
        self._answered.clear()
        self._requests.close()
        self._answers.close()
        self._resume()
