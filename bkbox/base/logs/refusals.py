"""The audit log of refused requests, under ``bkbox.refused``: on the bookie's port and by the admin API."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bkbox.base.logs.rate_limited import RateLimited
from bkbox.base.text import quoted

log = logging.getLogger("bkbox.refused")

_LOG_EVERY_S = 60.0
_KINDS_MAX = 1000


class Refusals:
    """Logs each kind for each user at once, and then once a minute with its count; ``count`` is of all.

    Peers come from many addresses and under many names: all kinds together have the rate limit of RateLimited.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._limited_log = RateLimited(log, now_s)
        self.count = 0
        self._last: dict[tuple[str, str], tuple[float, int]] = {}

    def note(self, user: str, peer: str, what: str) -> None:
        self.count += 1
        now_s = self._now_s()
        logged_s, since = self._last.get((user, what), (-_LOG_EVERY_S, 0))
        if now_s - logged_s < _LOG_EVERY_S:
            self._last[user, what] = logged_s, since + 1
            return
        if len(self._last) >= _KINDS_MAX:
            self._last.clear()
        self._last[user, what] = now_s, 0
        again = f", and {since} times since the last such line" if since else ""
        self._limited_log.log(
            logging.WARNING,
            "refused",
            "refused: %s for %s at %s%s",
            what,
            quoted(user),
            peer,
            again,
        )
