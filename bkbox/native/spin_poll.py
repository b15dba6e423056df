"""Waiting for what comes next, with a little patience: looking again for a moment before going to sleep.

Between the front-end and a worker an answer is often only microseconds away, and to be put to sleep and woken again
takes longer than that, on a virtual machine much longer. So who has just had something to do looks again for
PATIENCE_US, letting others have the processor in between, and sleeps then. An idle bookie sleeps.
"""

from __future__ import annotations

import os
import select
import time

from bkbox.base.limits import SPIN_US

_PATIENCE_NS = SPIN_US * 1_000

_now_ns = time.monotonic_ns
_let_others = os.sched_yield

Events = list[tuple[int, int]]


def poll_events(poll: select.epoll, wait_s: float | None) -> Events:
    """(descriptor, events) of what is there; waits for something, or so long at most (None: for ever)."""
    found = poll.poll(0)
    if found or wait_s == 0:
        return found
    end = _now_ns() + _PATIENCE_NS
    while not found and _now_ns() < end:
        _let_others()
        found = poll.poll(0)
    return found or poll.poll(wait_s)
