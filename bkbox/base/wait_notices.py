"""Notices about waits that look like a hang: the metadata store does not respond.

The process has one sink for them: commands write a line to standard error, a bookie writes to its log, the TUI shows
a notification.
"""

from __future__ import annotations

from collections.abc import Callable

NOTICE_AFTER_S = 1.5


def _discard(_text: str) -> None:
    """The sink until the program sets another."""


_sink: Callable[[str], None] = _discard


def set_sink(sink: Callable[[str], None]) -> None:
    """Sets the function that receives the notices from now on."""
    global _sink
    _sink = sink


def notify(text: str) -> None:
    _sink(text)
