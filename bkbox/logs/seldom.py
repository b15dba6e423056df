"""Lines that strangers can cause as often as they like: a few of a kind are written, of the others how many there were.

A line costs more than a hundred adds, and the disk that it goes to has an end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_AT_ONCE = 10
_EVERY_S = 1.0


class Seldom:
    """``kind`` is a name of ours. Ten lines of each are written at once, then one a second."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._kinds: dict[str, tuple[float, float, int]] = {}

    def say(
        self, level: int, kind: str, text: str, *args: object, extra: dict[str, str] | None = None
    ) -> None:
        """Write it, with how many of this kind were left out before; or leave it out."""
        if not self._log.isEnabledFor(level):
            return
        now_s = self._now_s()
        at_s, left, untold = self._kinds.get(kind, (now_s, float(_AT_ONCE), 0))
        left = min(float(_AT_ONCE), left + (now_s - at_s) / _EVERY_S)
        if left < 1.0:
            self._kinds[kind] = now_s, left, untold + 1
            return
        self._kinds[kind] = now_s, left - 1.0, 0
        if untold:
            text, args = f"{text} (and %d more like it since the last line)", (*args, untold)
        self._log.log(level, text, *args, extra=extra)
