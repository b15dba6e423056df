"""The pool of connections that are not authenticated yet (handshake.py), and its limits.

Each handshake has a time-out. The number of connections is limited: the oldest is closed to make room for the newest.
Their data is processed only within their CPU budget (connection_cpu_budget.py), because OpenSSL needs a millisecond per
handshake.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bkbox.base.limits import UNAUTHENTICATED_MAX
from bkbox.base.logs.refusals import Refusals
from bkbox.errors import AuthenticationError, FrameError
from bkbox.frontend.access.access_policy import AccessPolicy
from bkbox.frontend.access.handshake import Handshake
from bkbox.frontend.loop.event_loop import Source
from bkbox.frontend.overload.connection_cpu_budget import ConnectionCpuBudget


class Loop(Protocol):
    """The event loop, as frontend/loop/event_loop.py implements it."""

    def watch(self, source: Source, handler: Callable[[], None]) -> None: ...

    def unwatch(self, source: Source) -> None: ...


class UnauthenticatedConnection(Handshake):
    """An unauthenticated connection. ``until_s``: when its handshake times out; ``host``: the address it counts
    against."""

    until_s = 0.0
    host = ""
    waits = False


class HandshakePool:
    """The pool. ``let_in``: takes over an authenticated connection with its socket; ``gone``: called when a connection
    was closed before it was let in; ``look_by``: told the time by which ``tick`` must be called."""

    def __init__(
        self,
        loop: Loop,
        now_s: Callable[[], float],
        let_in: Callable[[UnauthenticatedConnection], None],
        gone: Callable[[UnauthenticatedConnection, Exception], None],
        refusals: Refusals,
        cpu_budget: ConnectionCpuBudget,
        look_by: Callable[[float], None],
    ) -> None:
        self.timeout_s = 10.0
        self._loop = loop
        self._now_s = now_s
        self._let_in = let_in
        self._gone = gone
        self._refusals = refusals
        self._unauthenticated: dict[UnauthenticatedConnection, None] = {}
        self._waiting: deque[UnauthenticatedConnection] = deque()
        self._cpu_budget = cpu_budget
        self._look_by = look_by

    def __len__(self) -> int:
        return len(self._unauthenticated)

    def receive(self, sock: socket.socket, peer: str, host: str, policy: AccessPolicy) -> None:
        """Adds a new connection to the pool."""
        if len(self._unauthenticated) >= UNAUTHENTICATED_MAX:
            self._turn_away(next(iter(self._unauthenticated)), TimeoutError("too many at the door"))
        visitor = UnauthenticatedConnection(
            sock, peer, policy, lambda what: self._refusals.note("", peer, what)
        )
        visitor.host = host
        visitor.until_s = self._now_s() + self.timeout_s
        self._unauthenticated[visitor] = None
        self._look_by(visitor.until_s)
        self._loop.watch(sock, lambda: self._heard(visitor))

    def wait_s(self) -> float | None:
        """Seconds until ``tick`` must be called; None: no limit."""
        waits = [self._cpu_budget.throttle_s()] if self._waiting else []
        if self._unauthenticated:
            waits.append(next(iter(self._unauthenticated)).until_s - self._now_s())
        return max(0.0, min(waits)) if waits else None

    def tick(self) -> None:
        """Resumes the connections that waited for CPU budget, and closes those whose handshake has timed out."""
        while self._waiting and not self._cpu_budget.throttle_s():
            visitor = self._waiting.popleft()
            if visitor in self._unauthenticated:
                visitor.waits = False
                self._loop.watch(visitor.sock, lambda visitor=visitor: self._heard(visitor))  # type: ignore[misc]
                self._go_on(visitor)
        now_s = self._now_s()
        while (
            self._unauthenticated and (oldest := next(iter(self._unauthenticated))).until_s <= now_s
        ):
            self._go_on(oldest)  # its data may have arrived without having been read yet
            if oldest in self._unauthenticated:
                text = f"it has not authenticated within {self.timeout_s:g} s"
                self._turn_away(oldest, AuthenticationError(text))

    def close(self) -> None:
        for visitor in list(self._unauthenticated):
            visitor.sock.close()
        self._unauthenticated.clear()

    def _heard(self, visitor: UnauthenticatedConnection) -> None:
        if self._cpu_budget.throttle_s():
            self._loop.unwatch(visitor.sock)
            visitor.waits = True
            self._waiting.append(visitor)
            self._look_by(self._now_s())
        else:
            self._go_on(visitor)

    def _go_on(self, visitor: UnauthenticatedConnection) -> None:
        began_s = self._cpu_budget.cpu_s()
        try:
            done = visitor.ready()
        except BlockingIOError:
            return
        except (EOFError, OSError, FrameError, AuthenticationError) as error:
            self._turn_away(visitor, error)
            return
        finally:
            self._cpu_budget.charge(began_s)
        if done:
            self._forget(visitor)
            self._let_in(visitor)

    def _forget(self, visitor: UnauthenticatedConnection) -> None:
        del self._unauthenticated[visitor]
        if not visitor.waits:
            self._loop.unwatch(visitor.sock)

    def _turn_away(self, visitor: UnauthenticatedConnection, error: Exception) -> None:
        self._forget(visitor)
        if isinstance(error, AuthenticationError):
            self._refusals.note("", visitor.peer, str(error))
        visitor.sock.close()
        self._gone(visitor, error)
