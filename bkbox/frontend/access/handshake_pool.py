"""The pool of connections that are not authenticated yet (handshake.py), and its limits.

Each handshake has a time-out. The number of connections is limited: the oldest is closed in favour of the newest.
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
    """The pool. ``let_in``: takes over an authenticated connection with its socket; ``on_closed``: called when a
    connection was closed before it was let in; ``schedule``: called with the time by which ``tick`` must be called."""

    def __init__(
        self,
        loop: Loop,
        now_s: Callable[[], float],
        let_in: Callable[[UnauthenticatedConnection], None],
        on_closed: Callable[[UnauthenticatedConnection, Exception], None],
        refusals: Refusals,
        cpu_budget: ConnectionCpuBudget,
        schedule: Callable[[float], None],
        frontends: int = 1,
    ) -> None:
        """``frontends``: among which the number of unauthenticated connections is shared out."""
        self.timeout_s = 10.0
        self._loop = loop
        self._now_s = now_s
        self._let_in = let_in
        self._on_closed = on_closed
        self._refusals = refusals
        self._unauthenticated: dict[UnauthenticatedConnection, None] = {}
        self._waiting: deque[UnauthenticatedConnection] = deque()
        self._cpu_budget = cpu_budget
        self._schedule = schedule
        self._frontends = frontends

    def __len__(self) -> int:
        return len(self._unauthenticated)

    def receive(self, sock: socket.socket, peer: str, host: str, policy: AccessPolicy) -> None:
        """Adds a new connection to the pool."""
        if len(self._unauthenticated) >= UNAUTHENTICATED_MAX // self._frontends:
            self._reject(
                next(iter(self._unauthenticated)),
                TimeoutError("too many unauthenticated connections"),
            )
        connection = UnauthenticatedConnection(
            sock, peer, policy, lambda what: self._refusals.note("", peer, what)
        )
        connection.host = host
        connection.until_s = self._now_s() + self.timeout_s
        self._unauthenticated[connection] = None
        self._schedule(connection.until_s)
        self._watch(connection)

    def wait_s(self) -> float | None:
        """Seconds until ``tick`` must be called; None: no limit."""
        waits = [self._cpu_budget.throttle_s()] if self._waiting else []
        if self._unauthenticated:
            waits.append(next(iter(self._unauthenticated)).until_s - self._now_s())
        return max(0.0, min(waits)) if waits else None

    def tick(self) -> None:
        """Resumes the connections that waited for CPU budget, and closes those whose handshake has timed out."""
        while self._waiting and not self._cpu_budget.throttle_s():
            connection = self._waiting.popleft()
            if connection in self._unauthenticated:
                connection.waits = False
                self._watch(connection)
                self._go_on(connection)
        now_s = self._now_s()
        while (
            self._unauthenticated and (oldest := next(iter(self._unauthenticated))).until_s <= now_s
        ):
            self._go_on(oldest)  # its data may have arrived without having been read yet
            if oldest in self._unauthenticated:
                text = f"it has not authenticated within {self.timeout_s:g} s"
                self._reject(oldest, AuthenticationError(text))

    def close(self) -> None:
        for connection in list(self._unauthenticated):
            connection.sock.close()
        self._unauthenticated.clear()

    def _watch(self, connection: UnauthenticatedConnection) -> None:
        self._loop.watch(connection.sock, lambda: self._on_readable(connection))

    def _on_readable(self, connection: UnauthenticatedConnection) -> None:
        if self._cpu_budget.throttle_s():
            self._loop.unwatch(connection.sock)
            connection.waits = True
            self._waiting.append(connection)
            self._schedule(self._now_s())
        else:
            self._go_on(connection)

    def _go_on(self, connection: UnauthenticatedConnection) -> None:
        began_s = self._cpu_budget.cpu_s()
        try:
            done = connection.ready()
        except BlockingIOError:
            return
        except (EOFError, OSError, FrameError, AuthenticationError) as error:
            self._reject(connection, error)
            return
        finally:
            self._cpu_budget.charge(began_s)
        if done:
            self._forget(connection)
            self._let_in(connection)

    def _forget(self, connection: UnauthenticatedConnection) -> None:
        del self._unauthenticated[connection]
        if not connection.waits:
            self._loop.unwatch(connection.sock)

    def _reject(self, connection: UnauthenticatedConnection, error: Exception) -> None:
        self._forget(connection)
        if isinstance(error, AuthenticationError):
            self._refusals.note("", connection.peer, str(error))
        connection.sock.close()
        self._on_closed(connection, error)
