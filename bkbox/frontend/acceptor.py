"""The listening socket: connections are accepted one per event-loop iteration, unless new connections are throttled.

Several front-ends share the socket. Each watches it with EPOLLEXCLUSIVE, and the kernel wakes the one for a connection
that has waited for longest: a front-end goes to the end of that queue after each connection. One with clearly more
connections than the average leaves it for _LEAVE_S. A connection that a front-end was woken for, and did not accept
because it ended or was stopped, is found by the others within _LOOK_S.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Callable

from bkbox.base.logs.rate_limited import RateLimited
from bkbox.base.text import error_text
from bkbox.frontend.loop.event_loop import EventLoop
from bkbox.frontend.overload.connection_cpu_budget import ConnectionCpuBudget
from bkbox.frontend.overload.connection_timeouts import enable_keepalive

_BACKLOG = 1024
_PAUSE_S = 1.0
_LEAVE_S = 0.02
_LOOK_S = 1.0

Admit = Callable[[socket.socket, str, str], None]
"""Takes a socket, its peer for messages, and the peer's address."""


class Acceptor:
    """``listener``: the bound socket; ``schedule``: called with the time by which ``tick`` must be called."""

    def __init__(
        self,
        listener: socket.socket,
        loop: EventLoop,
        cpu_budget: ConnectionCpuBudget,
        limited_log: RateLimited,
        schedule: Callable[[float], None],
        admit: Admit,
        has_surplus: Callable[[], bool] | None,
    ) -> None:
        """``has_surplus``: True if this front-end has clearly more connections than the others; None for the only
        one."""
        self.listens = False
        self._listener = listener
        self._loop = loop
        self._cpu_budget = cpu_budget
        self._limited_log = limited_log
        self._schedule = schedule
        self._admit = admit
        self._has_surplus = has_surplus
        self._resume_s: float | None = None
        """When accepting goes on; None: it is not paused."""
        self._look_s = 0.0

    def listen(self) -> None:
        """Opens the port. If that fails the process ends; the supervisor sees that and reports it."""
        self.listens = True
        try:
            self._listener.listen(_BACKLOG)
        except OSError as error:
            raise SystemExit(f"cannot listen: {error_text(error)}") from error
        self._listener.setblocking(False)
        enable_keepalive(self._listener)
        self._watch()
        if self._has_surplus is not None:
            self._schedule(0.0)

    def _watch(self) -> None:
        exclusive = 0 if self._has_surplus is None else select.EPOLLEXCLUSIVE
        self._loop.watch(self._listener, self._accept, select.EPOLLIN | exclusive)

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until ``tick`` must be called; None: no limit."""
        if self._resume_s is not None:
            return self._resume_s - now_s
        return None if self._has_surplus is None or not self.listens else self._look_s - now_s

    def tick(self, now_s: float) -> None:
        """Ends a pause that is over; looks for a connection that another front-end was woken for."""
        if self._resume_s is not None:
            if now_s >= self._resume_s:
                self._accept()
        elif self._has_surplus is not None and self.listens and now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            self._accept()

    def _accept(self) -> None:
        """Accepts one waiting connection. Without descriptors or memory for it, or while new connections are
        throttled, accepting pauses."""
        throttle_s = self._cpu_budget.throttle_s()
        if throttle_s:
            self._pause(time.monotonic() + throttle_s)
            return
        began_s = self._cpu_budget.cpu_s()
        try:
            sock, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            self._pause(None)
            return
        except OSError as error:
            self._limited_log.log(
                logging.WARNING, "accept", "a connection cannot be accepted: %s", error
            )
            self._pause(time.monotonic() + _PAUSE_S)
            return
        self._pause(None)
        self._admit(sock, str(address), address[0])
        self._cpu_budget.charge(began_s)
        if self._has_surplus is not None:
            self._queue_up(surplus=self._has_surplus())

    def _queue_up(self, *, surplus: bool) -> None:
        """Let the other front-ends be woken before this one."""
        if surplus:
            self._pause(time.monotonic() + _LEAVE_S)
        else:
            self._loop.unwatch(self._listener)
            self._watch()

    def _pause(self, until_s: float | None) -> None:
        """Pauses accepting until then; None: resumes."""
        if (until_s is None) != (self._resume_s is None):
            if self._has_surplus is None:
                events = select.EPOLLIN if until_s is None else 0
                self._loop.poll.modify(self._listener, events)
            elif until_s is None:  # an exclusive watch cannot be modified
                self._watch()
            else:
                self._loop.unwatch(self._listener)
        self._resume_s = until_s
        if until_s is not None:
            self._schedule(until_s)

    def close(self) -> None:
        self._listener.close()
