"""Signal handling of commands that clean up at their end."""

from __future__ import annotations

import signal


def end_in_order() -> None:
    """SIGTERM and SIGHUP from now on act as Ctrl-C does, and Ctrl-C ends this process even if it was started with
    SIGINT ignored, as shells start the background commands of a script."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
