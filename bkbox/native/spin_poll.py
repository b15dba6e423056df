"""Waits for events, with a short spin: it polls again for a moment before it sleeps.

Between the front-end and a worker a response is often only microseconds away. To be put to sleep and woken again
takes longer than that, on a virtual machine much longer. So a process that was just busy polls again for SPIN_US,
yielding the processor in between, and then sleeps. An idle bookie sleeps.
"""

from __future__ import annotations

import os
import select
import time

from bkbox.base.limits import SPIN_US

_SPIN_NS = SPIN_US * 1_000

_now_ns = time.monotonic_ns
_let_others = os.sched_yield

Events = list[tuple[int, int]]


def poll_events(poll: select.epoll, wait_s: float | None) -> Events:
    """(descriptor, events) of everything ready; waits for something, or ``wait_s`` at most (None: for ever)."""
    found = poll.poll(0)
    if found or wait_s == 0:
        return found
    end = _now_ns() + _SPIN_NS
    while not found and _now_ns() < end:
        _let_others()
        found = poll.poll(0)
    return found or poll.poll(wait_s)
