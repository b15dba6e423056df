"""Messages about waits that look like a hang: the metadata store does not respond.

One ``tell`` for the process: commands write a line on standard error, a bookie writes it to its log, the TUI shows a
message.
"""

from __future__ import annotations

from collections.abc import Callable

SAY_AFTER_S = 1.5


def _nothing(_text: str) -> None:
    """The default until the program sets another."""


_tell: Callable[[str], None] = _nothing


def tell(how: Callable[[str], None]) -> None:
    """Set how waits are reported from now on."""
    global _tell
    _tell = how


def say(text: str) -> None:
    _tell(text)
