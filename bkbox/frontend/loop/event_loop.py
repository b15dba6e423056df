"""The event loop of the front-end: reads the present input, and sends the results.

A turn costs the same few system calls for one request as for thousands: one write for each connection that has
responses, one message for each disk that has requests.

A slow-path frame costs a multiple of a fast-path one. A connection with more of them than a turn takes is deferred to
the next turn if no other connection has anything to do. While other connections send fast-path requests it is first
throttled for 15 x the CPU time of its frames, so that it gets a sixteenth of the front-end's time.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Protocol

from bkbox.errors import FrameError
from bkbox.frontend.loop.connection import (
    SLOW_FRAMES_ALL_MAX,
    SLOW_FRAMES_SHARED_MAX,
    Connection,
    SharedState,
)
from bkbox.frontend.loop.request_sender import RequestSender
from bkbox.native.spin_poll import SpinPoll

_SLOW_PATH_COOLDOWN_FACTOR = 15
"""Duration of a throttle, as a multiple of the CPU time of the slow-path frames."""
_FAST_TURNS = 64
"""Turns without a fast-path request after which slow-path frames are no longer throttled."""


class Source(Protocol):
    """An object with a file descriptor."""

    def fileno(self) -> int: ...


class EventLoop:
    """``streams``: the connections by descriptor; ``links``: those to the disks; ``recent_fast_turns``: above 0 while
    there are fast-path requests, which slow-path ones could delay.
    """

    __slots__ = (
        *("_end", "_handlers", "_now_s", "_spin", "_throttled_until_s"),
        *("common", "links", "recent_fast_turns", "poll", "streams"),
    )

    def __init__(
        self,
        buffered_max: int,
        end: Callable[[Connection, Exception], None],
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """``buffered_max``, ``cpu_s``: see SharedState; ``end``: closes a connection after an error."""
        self.poll = select.epoll()
        self._spin = SpinPoll(self.poll)
        self.common = SharedState(buffered_max, cpu_s)
        self.streams: dict[int, Connection] = {}
        self._handlers: dict[int, Callable[[], None]] = {}
        self.links: list[RequestSender] = []
        self._end = end
        self._now_s = now_s
        self.recent_fast_turns = 0
        self._throttled_until_s = 0.0

    def watch(
        self, source: Source, handler: Callable[[], None], events: int = select.EPOLLIN
    ) -> None:
        """Call the handler at epoll's ``events``, by default whenever the source is readable."""
        self._handlers[source.fileno()] = handler
        self.poll.register(source, events)

    def unwatch(self, source: Source) -> None:
        """Remove a source, before it is closed."""
        del self._handlers[source.fileno()]
        self.poll.unregister(source)

    def close(self) -> None:
        self.poll.close()

    def turn(self, wait_s: float | None) -> None:
        """Wait for events, ``wait_s`` at most, and handle them. Raises what handlers raise."""
        common = self.common
        if common.deferred:
            wait_s = self._go_on_yielded(wait_s)
        for number, events in self._spin.events(wait_s):
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
        """Let the deferred connections go on at the end of this turn, unless they are throttled; returns the time to
        wait, in seconds.
        """
        throttle_s = self._throttled_until_s - self._now_s()
        if throttle_s > 0 and self.recent_fast_turns:
            return throttle_s if wait_s is None else min(throttle_s, wait_s)
        common = self.common
        for each in common.deferred:
            stream = each
            stream.go_on_yielded()
        common.deferred.clear()
        return 0.0

    def _end_turn(self) -> None:
        """Send the results of the turn."""
        common = self.common
        for resumed in common.resumed:  # more may be added meanwhile
            stream = resumed
            try:
                stream.resume()
            except (FrameError, EOFError, OSError) as error:
                self._end(stream, error)
        common.resumed.clear()
        for each in self.links:  # the workers begin while the responses are written
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
        if common.has_fast:
            self.recent_fast_turns = _FAST_TURNS
            common.has_fast = False
        elif self.recent_fast_turns:
            self.recent_fast_turns -= 1
        if common.slow_s and self.recent_fast_turns:
            self._throttled_until_s = self._now_s() + common.slow_s * _SLOW_PATH_COOLDOWN_FACTOR
        common.slow_s = 0.0
        common.slow_left = SLOW_FRAMES_SHARED_MAX if self.recent_fast_turns else SLOW_FRAMES_ALL_MAX
