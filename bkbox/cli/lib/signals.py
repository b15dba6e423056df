"""How commands that tidy up after themselves are ended."""

from __future__ import annotations

import signal


def end_in_order() -> None:
    """SIGTERM and SIGHUP from now on do what Ctrl-C does, and that ends this process: also where it was started with
    Ctrl-C ignored, as shells start what a script has in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
