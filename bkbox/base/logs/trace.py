"""The context of a log line: the connections whose requests were being carried out.

A connection has one number from the front-end, where its frames come in, to the worker that carries them out. The
number is with the frames in every slot between them, so it ties lines of several processes together. In the log it is
``trace``, c7; for a group of requests all its connections, c7+c9. The client's identity is in the line with which the
front-end accepts the connection (level debug), and in every line in which it refuses a request.

Recording the context costs a group one assignment: its text is made only for lines that are logged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_SHOWN = 8

CURRENT_CONNECTIONS: ContextVar[Callable[[], list[int]] | None] = ContextVar(
    "under_way", default=None
)
"""Returns the numbers of the connections whose requests this thread carries out; None: there are none."""


def name(connection: int) -> str:
    """A connection in the log."""
    return f"c{connection}"


def present() -> str:
    """The context of this thread; "" if there is none."""
    connections = CURRENT_CONNECTIONS.get()
    if connections is None:
        return ""
    numbers = sorted(set(connections()))
    shown = "+".join(map(name, numbers[:_SHOWN]))
    return f"{shown}+{len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else shown
