"""What a line of the log belongs to: the connections whose requests were being carried out.

A connection has one number from the front-end, where its frames come in, to the worker that carries them out, and it
stands with the frames in every slot between them; so it is what ties lines of several processes together. In the log
it is ``trace``, c7: of a group of requests all its connections, c7+c9. Who it was is in the line with which the
front-end greets it (level debug), and in every line in which it refuses something.

Noting what is under way costs a group one assignment: what is not logged makes no text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_SHOWN = 8

UNDER_WAY: ContextVar[Callable[[], list[int]] | None] = ContextVar("under_way", default=None)
"""Gives the numbers of the connections whose requests this thread carries out; None: of none."""


def name(connection: int) -> str:
    """A connection in the log."""
    return f"c{connection}"


def present() -> str:
    """What is under way in this thread; "" if nothing is."""
    connections = UNDER_WAY.get()
    if connections is None:
        return ""
    numbers = sorted(set(connections()))
    shown = "+".join(map(name, numbers[:_SHOWN]))
    return f"{shown}+{len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else shown
