"""The event loop of the front-end: what is there is taken, and what came of it is sent.

A turn costs the same few system calls for one request as for thousands: one write for each connection that has
answers, one message for each disk that has requests.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Protocol

from bkbox.errors import FrameError
from bkbox.kernel.batches import RequestEnd
from bkbox.kernel.patience import next_events
from bkbox.kernel.stream import Common, Stream


class Source(Protocol):
    """Has a descriptor."""

    def fileno(self) -> int: ...


class Turns:
    """``streams``: the connections by descriptor; ``links``: those to the disks."""

    __slots__ = ("_end", "_handlers", "common", "links", "poll", "streams")

    def __init__(self, held_max: int, end: Callable[[Stream, Exception], None]) -> None:
        """``held_max``: see Common; ``end``: closes a connection after an error."""
        self.poll = select.epoll()
        self.common = Common(held_max)
        self.streams: dict[int, Stream] = {}
        self._handlers: dict[int, Callable[[], None]] = {}
        self.links: list[RequestEnd] = []
        self._end = end

    def watch(self, source: Source, handler: Callable[[], None]) -> None:
        """Call the handler whenever there is something to read."""
        self._handlers[source.fileno()] = handler
        self.poll.register(source, select.EPOLLIN)

    def unwatch(self, source: Source) -> None:
        """Before it is closed."""
        del self._handlers[source.fileno()]
        self.poll.unregister(source)

    def close(self) -> None:
        self.poll.close()

    def turn(self, wait_s: float | None) -> None:
        """Wait until something is there, or so long at most. Raises what handlers raise."""
        for number, events in next_events(self.poll, wait_s):
            stream = self.streams.get(number)
            if stream is not None:
                try:
                    stream.ready(events)
                except (FrameError, EOFError, OSError) as error:
                    self._end(stream, error)
            elif number in self._handlers:  # it may have gone in this turn
                self._handlers[number]()
        self._end_turn()

    def _end_turn(self) -> None:
        """Send what the turn has brought."""
        common = self.common
        for resumed in common.resumed:  # which may become more meanwhile
            stream = resumed
            try:
                stream.resume()
            except (FrameError, OSError) as error:
                self._end(stream, error)
        common.resumed.clear()
        for each in self.links:  # the workers begin while the answers are written
            link = each
            link.hand_over()
        for due in common.due:
            stream = due
            try:
                stream.end_turn()
            except OSError as error:
                self._end(stream, error)
        common.due.clear()
        for each in self.links:
            link = each
            link.end_turn()
