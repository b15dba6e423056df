"""Waits for events, with a short spin: it polls again for a moment before it sleeps.

Between the front-end and a worker a response is often only microseconds away. To be put to sleep and woken again
takes longer than that, on a virtual machine much longer. So a process that was just busy polls again for SPIN_US,
yielding the processor in between, and then sleeps. An idle bookie sleeps.

Where events are further apart than SPIN_US, a spin brings nothing, and would be a good part of what a bookie with few
requests computes. After SPINS_IN_VAIN of them without an event, only every SPIN_EVERY-th wait spins, until there is an
event within one.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from bkbox.base.limits import SPIN_US

_SPIN_NS = SPIN_US * 1_000

SPINS_IN_VAIN = 4
SPIN_EVERY = 16
_SPINS_IN_VAIN = SPINS_IN_VAIN
_SPIN_EVERY = SPIN_EVERY

_now_ns = time.monotonic_ns

Events = list[tuple[int, int]]


class SpinPoll:
    """The waits of one process on ``poll``. ``let_others``: called between two polls of a spin."""

    __slots__ = ("_in_vain", "_let_others", "_poll", "_waits")

    def __init__(
        self, poll: select.epoll, let_others: Callable[[], object] = os.sched_yield
    ) -> None:
        self._poll = poll
        self._let_others = let_others
        self._in_vain = 0
        self._waits = 0

    def events(self, wait_s: float | None) -> Events:
        """(descriptor, events) of everything ready; waits for something, or ``wait_s`` at most (None: for ever)."""
        poll = self._poll
        found = poll.poll(0)
        if found or wait_s == 0:
            return found
        self._waits += 1
        if self._in_vain >= _SPINS_IN_VAIN and self._waits % _SPIN_EVERY:
            return poll.poll(wait_s)
        end = _now_ns() + _SPIN_NS
        while True:
            self._let_others()
            found = poll.poll(0)
            if found:
                self._in_vain = 0
                return found
            if _now_ns() >= end:
                break
        self._in_vain += 1
        return poll.poll(wait_s)
