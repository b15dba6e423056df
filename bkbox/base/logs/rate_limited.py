"""The rate limit on lines that peers can cause at will: a few of each kind are written, the others are counted.

A line costs more than a hundred adds, and the log's disk has an end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping

_AT_ONCE = 10
_EVERY_S = 1.0


class Allowance:
    """The rate limit for each kind of line: ten at once, then one a second. The kinds are fixed in the program; no
    peer can name one.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._kinds: dict[Hashable, tuple[float, float, int]] = {}

    def admit(self, kind: Hashable) -> int | None:
        """The number of lines of this kind that were left out since the last one; None: leave out this one, too."""
        now_s = self._now_s()
        at_s, left, suppressed = self._kinds.get(kind, (now_s, float(_AT_ONCE), 0))
        left = min(float(_AT_ONCE), left + (now_s - at_s) / _EVERY_S)
        if left < 1.0:
            self._kinds[kind] = now_s, left, suppressed + 1
            return None
        self._kinds[kind] = now_s, left - 1.0, 0
        return suppressed


class RateLimited:
    """A logger with the rate limit of Allowance."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._allowance = Allowance(now_s)

    def log(
        self,
        level: int,
        kind: str,
        text: str,
        *args: object,
        extra: Mapping[str, object] | None = None,
        exc_info: BaseException | None = None,
    ) -> None:
        """Write the line, with the number of this kind left out before; or leave it out."""
        if not self._log.isEnabledFor(level):
            return
        suppressed = self._allowance.admit(kind)
        if suppressed is None:
            return
        if suppressed:
            text, args = f"{text}{_SUPPRESSED}", (*args, suppressed)
        self._log.log(level, text, *args, extra=extra, exc_info=exc_info)


class BoundLibraries(logging.Filter):
    """Filter of a handler: the rate limit for the lines of libraries, a kind for each place in their code.

    A peer's bytes reach libraries (asyncio, kazoo) before they reach us, and libraries have no rate limit.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._allowance = Allowance(now_s)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == "bkbox":
            return True
        suppressed = self._allowance.admit((record.name, record.pathname, record.lineno))
        if suppressed:
            record.msg, record.args = f"{record.getMessage()}{_SUPPRESSED % suppressed}", None
        return suppressed is not None


_SUPPRESSED = " (and %d more like it since the last line)"
