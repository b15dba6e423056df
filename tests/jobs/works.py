"""A ``Work`` for tests of the code of jobs: never waits, and keeps what it was told."""

from __future__ import annotations

from collections import Counter

from bkbox.errors import JobCancelledError


class FreeWork:
    """``cancel_at``: the number of the turn, from 1 on, at which the job is cancelled."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.cancel_at = cancel_at
        self.turns = 0
        self.disk_bytes = 0
        self.network_bytes = 0
        self.metadata_calls = 0
        self.expected: dict[str, int] = {}
        self.done: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.steps: list[str] = []
        self.blockers: dict[int, tuple[str, str]] = {}

    async def checkpoint(
        self,
        *,
        pieces: int = 1,
        disk_bytes: int = 0,
        network_bytes: int = 0,
        metadata_calls: int = 0,
    ) -> int:
        self.turns += 1
        if self.cancel_at is not None and self.turns >= self.cancel_at:
            raise JobCancelledError("cancelled by the test")
        self.disk_bytes += disk_bytes
        self.network_bytes += network_bytes
        self.metadata_calls += metadata_calls
        return pieces

    def allowance(self) -> int | None:
        return None

    def expect(
        self, *, ledgers: int | None = None, entries: int | None = None, size: int | None = None
    ) -> None:
        given = {"ledgers": ledgers, "entries": entries, "size": size}
        self.expected |= {name: value for name, value in given.items() if value is not None}

    def add_progress(self, *, ledgers: int = 0, entries: int = 0, size: int = 0) -> None:
        self.done.update(ledgers=ledgers, entries=entries, size=size)

    def count(self, what: str, amount: int = 1) -> None:
        self.counts[what] += amount

    def set_step(self, step: str, *, standing_by: bool = False) -> None:
        self.steps.append(step)

    def block(self, ledger: int, reason: str, what_to_do: str) -> None:
        self.blockers[ledger] = (reason, what_to_do)

    def unblock(self, ledger: int) -> None:
        self.blockers.pop(ledger, None)
