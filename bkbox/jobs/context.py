"""What the code of a job is given, and all that it has to do with the world of jobs.

A job's code is ``async def collect(work: Work, …) -> None``. It ends by returning, and raises a BkboxError where it
failed. It lets JobCancelledError through once nothing is half done; it may be ended anywhere by a killed process,
and is then run again from its beginning, so what is done has to be seen in what it left.
"""

from __future__ import annotations

from typing import Protocol


class JobContext(Protocol):
    """Its pace, its progress, its end."""

    async def turn(
        self,
        *,
        pieces: int = 1,
        disk_bytes: int = 0,
        network_bytes: int = 0,
        metadata_calls: int = 0,
    ) -> int:
        """Before each piece of work: waits while the job is paused or a budget is spent. Raises JobCancelledError.

        Of ``pieces`` that take so many bytes together it says how many may be done now: what the present rate gives in
        a second, and at least one. Only these are paid for.
        """

    def allowance(self) -> int | None:
        """Bytes that the present rate gives in a second, which is what should be on its way at most; None: no bound."""

    def expect(
        self, *, ledgers: int | None = None, entries: int | None = None, size: int | None = None
    ) -> None:
        """Totals, as far as known; may be corrected."""

    def did(self, *, ledgers: int = 0, entries: int = 0, size: int = 0) -> None:
        """So much more of what was expected is done; ``size`` in bytes."""

    def count(self, what: str, amount: int = 1) -> None:
        """Something of this kind of job's own to be counted and shown, as 'entries_missing'; may go down."""

    def say(self, step: str, *, standing_by: bool = False) -> None:
        """What it is doing now, in words. ``standing_by``: nothing, until something comes up."""

    def block(self, ledger: int, reason: str, what_to_do: str) -> None:
        """A ledger that cannot go on by itself."""

    def unblock(self, ledger: int) -> None:
        """It goes on, or is not there any more; nothing happens where it was not blocked."""
