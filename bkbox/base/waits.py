"""What a program tells of waits that look like a hang: the metadata store does not answer.

One ``tell`` for the process: commands write a line on standard error, a bookie writes it to its log, the screen shows
a message.
"""

from __future__ import annotations

from collections.abc import Callable

SAY_AFTER_S = 1.5


def _nothing(_text: str) -> None:
    """Until the program has said otherwise."""


_tell: Callable[[str], None] = _nothing


def tell(how: Callable[[str], None]) -> None:
    """From now on waits are told like this."""
    global _tell
    _tell = how


def say(text: str) -> None:
    _tell(text)
