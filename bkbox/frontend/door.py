"""All connections that are not let in yet (doorstep.py), and what they may cost.

They have a time to prove themselves, there are only so many of them (the oldest makes room for the newest), and what
they say is looked at as their share of the front-end's time allows (newcomers.py): OpenSSL needs a millisecond for a
handshake.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bkbox.base.limits import VISITORS_MAX
from bkbox.base.logs.refusals import Refusals
from bkbox.errors import AuthenticationError, FrameError
from bkbox.frontend.admittance import Admittance
from bkbox.frontend.doorstep import Doorstep
from bkbox.frontend.newcomers import Newcomers
from bkbox.kernel.turns import Source


class Loop(Protocol):
    """Of kernel/turns.py."""

    def watch(self, source: Source, handler: Callable[[], None]) -> None: ...

    def unwatch(self, source: Source) -> None: ...


class Visitor(Doorstep):
    """``until_s``: when its patience ends; ``host`` is what it counts for."""

    until_s = 0.0
    host = ""
    waits = False


class Door:
    """``let_in`` takes over a visitor, its socket included; ``gone`` is told of a host that has left again; ``look_by``
    by when ``tick`` has to be called."""

    def __init__(
        self,
        loop: Loop,
        now_s: Callable[[], float],
        let_in: Callable[[Visitor], None],
        gone: Callable[[Visitor, Exception], None],
        refusals: Refusals,
        newcomers: Newcomers,
        look_by: Callable[[float], None],
    ) -> None:
        self.timeout_s = 10.0
        self._loop = loop
        self._now_s = now_s
        self._let_in = let_in
        self._gone = gone
        self._refusals = refusals
        self._visitors: dict[Visitor, None] = {}
        self._waiting: deque[Visitor] = deque()
        self._newcomers = newcomers
        self._look_by = look_by

    def __len__(self) -> int:
        return len(self._visitors)

    def receive(self, sock: socket.socket, peer: str, host: str, admittance: Admittance) -> None:
        """Somebody has come."""
        if len(self._visitors) >= VISITORS_MAX:
            self._turn_away(next(iter(self._visitors)), TimeoutError("too many at the door"))
        visitor = Visitor(sock, peer, admittance, lambda what: self._refusals.note("", peer, what))
        visitor.host = host
        visitor.until_s = self._now_s() + self.timeout_s
        self._visitors[visitor] = None
        self._look_by(visitor.until_s)
        self._loop.watch(sock, lambda: self._heard(visitor))

    def wait_s(self) -> float | None:
        """How long until ``tick`` has to be called; None: for ever."""
        waits = [self._newcomers.rest_s()] if self._waiting else []
        if self._visitors:
            waits.append(next(iter(self._visitors)).until_s - self._now_s())
        return max(0.0, min(waits)) if waits else None

    def tick(self) -> None:
        """Time has passed: those who wait go on, and whoever took too long has to go."""
        while self._waiting and not self._newcomers.rest_s():
            visitor = self._waiting.popleft()
            if visitor in self._visitors:
                visitor.waits = False
                self._loop.watch(visitor.sock, lambda visitor=visitor: self._heard(visitor))  # type: ignore[misc]
                self._go_on(visitor)
        now_s = self._now_s()
        while self._visitors and (oldest := next(iter(self._visitors))).until_s <= now_s:
            self._go_on(oldest)  # what it has sent may be here, and nobody had the time to look
            if oldest in self._visitors:
                text = f"it has not proved who it is within {self.timeout_s:g} s"
                self._turn_away(oldest, AuthenticationError(text))

    def close(self) -> None:
        for visitor in list(self._visitors):
            visitor.sock.close()
        self._visitors.clear()

    def _heard(self, visitor: Visitor) -> None:
        if self._newcomers.rest_s():
            self._loop.unwatch(visitor.sock)
            visitor.waits = True
            self._waiting.append(visitor)
            self._look_by(self._now_s())
        else:
            self._go_on(visitor)

    def _go_on(self, visitor: Visitor) -> None:
        began_s = self._newcomers.cpu_s()
        try:
            done = visitor.ready()
        except BlockingIOError:
            return
        except (EOFError, OSError, FrameError, AuthenticationError) as error:
            self._turn_away(visitor, error)
            return
        finally:
            self._newcomers.served_since(began_s)
        if done:
            self._forget(visitor)
            self._let_in(visitor)

    def _forget(self, visitor: Visitor) -> None:
        del self._visitors[visitor]
        if not visitor.waits:
            self._loop.unwatch(visitor.sock)

    def _turn_away(self, visitor: Visitor, error: Exception) -> None:
        self._forget(visitor)
        if isinstance(error, AuthenticationError):
            self._refusals.note("", visitor.peer, str(error))
        visitor.sock.close()
        self._gone(visitor, error)
