"""Flushes at the end of an event-loop turn everything that was requested during it.

First writers hand over their queued appends, then connections write their frames. So the appends of one turn, of any
number of writers, cost each bookie one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class FlushBatcher:
    """The actions at the end of the turn; each runs once, however often it is requested."""

    __slots__ = ("_gathered", "_is_due", "_written")

    def __init__(self) -> None:
        self._gathered: dict[Callable[[], None], None] = {}
        self._written: dict[Callable[[], None], None] = {}
        self._is_due = False

    def gather(self, hand_over: Callable[[], None]) -> None:
        """Call ``hand_over`` before anything is written."""
        self._gathered[hand_over] = None
        self._arm()

    def write(self, flush: Callable[[], None]) -> None:
        """Call ``flush`` when everything is handed over."""
        self._written[flush] = None
        self._arm()

    def _arm(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        try:
            while self._gathered:
                self._gathered.popitem()[0]()
            while self._written:
                self._written.popitem()[0]()
        finally:
            self._is_due = False
            if self._gathered or self._written:
                self._arm()
