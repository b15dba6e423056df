"""The event loop of the front-end: what is there is taken, and what came of it is sent.

A turn costs the same few system calls for one request as for thousands: one write for each connection that has
answers, one message for each disk that has requests.

Frames that are not ordinary cost a multiple of ordinary ones. Whoever has more of them than a turn takes goes on in the
next one where nobody else has anything to do; where others send ordinary requests it rests before, fifteen times as
long as its frames have taken, so that it has a sixteenth of the front-end's time.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

from bkbox.errors import FrameError
from bkbox.frontend.loop.connection import (
    SLOW_FRAMES_ALL_MAX,
    SLOW_FRAMES_BESIDE_MAX,
    Connection,
    SharedState,
)
from bkbox.frontend.loop.request_sender import RequestSender
from bkbox.native.spin_poll import poll_events

_SLOW_PATH_COOLDOWN_FACTOR = 15
"""As long as the frames that were not ordinary took."""
_PLAIN_TURNS = 64
"""So many turns without an ordinary request, and nobody is held up."""


class Source(Protocol):
    """Has a descriptor."""

    def fileno(self) -> int: ...


class EventLoop:
    """``streams``: the connections by descriptor; ``links``: those to the disks; ``recent_fast_turns``: above 0 while
    there are ordinary requests, which whatever else there is may hold up."""

    __slots__ = (
        *("_end", "_handlers", "_now_s", "_rests_until_s"),
        *("common", "links", "recent_fast_turns", "poll", "streams"),
    )

    def __init__(
        self,
        held_max: int,
        end: Callable[[Connection, Exception], None],
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """``held_max``, ``cpu_s``: see Common; ``end``: closes a connection after an error."""
        self.poll = select.epoll()
        self.common = SharedState(held_max, cpu_s)
        self.streams: dict[int, Connection] = {}
        self._handlers: dict[int, Callable[[], None]] = {}
        self.links: list[RequestSender] = []
        self._end = end
        self._now_s = now_s
        self.recent_fast_turns = 0
        self._rests_until_s = 0.0

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
        common = self.common
        if common.deferred:
            wait_s = self._go_on_yielded(wait_s)
        for number, events in poll_events(self.poll, wait_s):
            stream = self.streams.get(number)
            if stream is not None:
                try:
                    stream.ready(events)
                except (FrameError, EOFError, OSError) as error:
                    self._end(stream, error)
            elif (
                number in self._handlers and not common.turn_budget_spent()
            ):  # else in the next turn
                self._handlers[number]()
        self._end_turn()

    def _go_on_yielded(self, wait_s: float | None) -> float:
        """Those that have yielded take some more at the end of this turn, unless they rest; how long to wait."""
        throttle_s = self._rests_until_s - self._now_s()
        if throttle_s > 0 and self.recent_fast_turns:
            return throttle_s if wait_s is None else min(throttle_s, wait_s)
        common = self.common
        for each in common.deferred:
            stream = each
            stream.go_on_yielded()
        common.deferred.clear()
        return 0.0

    def _end_turn(self) -> None:
        """Send what the turn has brought."""
        common = self.common
        for resumed in common.resumed:  # which may become more meanwhile
            stream = resumed
            try:
                stream.resume()
            except (FrameError, EOFError, OSError) as error:
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
        self._share_next_turn()

    def _share_next_turn(self) -> None:
        common = self.common
        if common.has_plain:
            self.recent_fast_turns = _PLAIN_TURNS
            common.has_plain = False
        elif self.recent_fast_turns:
            self.recent_fast_turns -= 1
        if common.slow_s and self.recent_fast_turns:
            self._rests_until_s = self._now_s() + common.slow_s * _SLOW_PATH_COOLDOWN_FACTOR
        common.slow_s = 0.0
        common.slow_left = SLOW_FRAMES_BESIDE_MAX if self.recent_fast_turns else SLOW_FRAMES_ALL_MAX
