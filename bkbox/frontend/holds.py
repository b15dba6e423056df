"""Ledgers between two disks: requests for them wait here, for a while.

A ledger is held while the last of it is copied and its place is switched (supervisor/moving.py). A connection with a
request for it stops being read, as it does for a disk that is busy. A hold that lasts too long does not end, but
nobody waits for it any more: requests are answered EIO, which is 'unknown', until somebody says where the ledger is.

Pure: told what happens and what time it is.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.kernel.routes import Waiter


class Holds:
    """All that are held; who waits for one of them may be woken by the end of another, and asks again."""

    def __init__(self, now_s: Callable[[], float], patience_s: float) -> None:
        self._now_s = now_s
        self._patience_s = patience_s
        self._since: dict[int, tuple[float, int]] = {}
        self._waiting: list[Waiter] = []
        self._look_s = 0.0
        """When the patience with the first of the holds ends."""

    def begin(self, ledger: int, disk: int) -> None:
        """``disk``: the number of the one that it was on."""
        self._since[ledger] = self._now_s(), disk

    def end(self, ledger: int) -> int | None:
        """The number of the disk that the ledger was on, None if it was not held; whoever waits may go on."""
        found = self._since.pop(ledger, None)
        self._wake()
        return None if found is None else found[1]

    def is_patient(self, ledger: int) -> bool:
        """Whether requests still wait for this ledger."""
        found = self._since.get(ledger)
        return found is not None and self._now_s() < found[0] + self._patience_s

    def wait(self, waiter: Waiter) -> None:
        """Call its ``has_slot`` once there is something new to say."""
        now_s = self._now_s()
        ends = (since + self._patience_s for since, _disk in self._since.values())
        self._look_s = min((end for end in ends if end > now_s), default=now_s)
        self._waiting.append(waiter)

    def wait_s(self) -> float | None:
        """How long until ``tick`` has to be called; None: for ever."""
        return max(0.0, self._look_s - self._now_s()) if self._waiting else None

    def tick(self) -> bool:
        """Time has passed: some need not wait any longer. Whether anybody was woken."""
        woken = bool(self._waiting) and self._now_s() >= self._look_s
        if woken:
            self._wake()
        return woken

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.has_slot()
