"""Ledgers that are paused while they migrate between two disks. Requests for them wait here, up to a time-out.

A ledger is paused while the last of it is copied and its disk assignment is switched
(supervisor/disks/ledger_migration.py). A connection with a request for it stops being read, as it does for a busy disk.
A pause that exceeds the time-out does not end, but requests no longer wait: they get EIO, which is 'unknown',
until the ledger's disk is reported.

Pure: events and the time are passed in.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.frontend.loop.routing import SlotWaiter


class PausedLedgers:
    """All paused ledgers. Waiters are not kept per ledger: the end of any pause wakes all of them, and each tries
    again."""

    def __init__(self, now_s: Callable[[], float], timeout_s: float) -> None:
        self._now_s = now_s
        self._timeout_s = timeout_s
        self._since: dict[int, tuple[float, int]] = {}
        self._waiting: list[SlotWaiter] = []
        self._next_timeout_s = 0.0
        """When the earliest pause times out."""

    def begin(self, ledger: int, disk: int) -> None:
        """Pauses a ledger. ``disk``: the number of the disk that it was on."""
        self._since[ledger] = self._now_s(), disk

    def end(self, ledger: int) -> int | None:
        """Ends a pause and wakes the waiters. Returns the number of the disk that the ledger was on, None if it was
        not paused."""
        found = self._since.pop(ledger, None)
        self._wake()
        return None if found is None else found[1]

    def within_timeout(self, ledger: int) -> bool:
        """True while requests for this ledger wait: it is paused and the pause has not timed out."""
        found = self._since.get(ledger)
        return found is not None and self._now_s() < found[0] + self._timeout_s

    def wait(self, waiter: SlotWaiter) -> None:
        """Registers a waiter: its ``on_slot_free`` is called when a pause ends or times out."""
        now_s = self._now_s()
        ends = (since + self._timeout_s for since, _disk in self._since.values())
        self._next_timeout_s = min((end for end in ends if end > now_s), default=now_s)
        self._waiting.append(waiter)

    def wait_s(self) -> float | None:
        """Seconds until ``tick`` must be called; None: no limit."""
        return max(0.0, self._next_timeout_s - self._now_s()) if self._waiting else None

    def tick(self) -> bool:
        """Wakes the waiters if a pause has timed out; returns True if it did."""
        woken = bool(self._waiting) and self._now_s() >= self._next_timeout_s
        if woken:
            self._wake()
        return woken

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.on_slot_free()
