"""The context of a job: its whole interface to the machinery of jobs.

A job's code is ``async def collect(work: JobContext, …) -> None``. It ends by returning, and raises a BkboxError if
it failed. It lets JobCancelledError through once nothing is half done. Its process may be killed anywhere, and it is
then run again from its beginning, so its progress has to be visible in its results.
"""

from __future__ import annotations

from typing import Protocol


class JobContext(Protocol):
    """The pace, the progress and the end of a job."""

    async def checkpoint(
        self,
        *,
        pieces: int = 1,
        disk_bytes: int = 0,
        network_bytes: int = 0,
        metadata_calls: int = 0,
    ) -> int:
        """Called before each piece of work: waits while the job is paused or a budget is used up. Raises
        JobCancelledError.

        Of ``pieces`` that take this many bytes together it returns how many may be done now: one second's worth at
        the present rate, and at least one. Only these are charged.
        """

    def allowance(self) -> int | None:
        """Bytes that the present rate gives in a second, the most that should be in flight; None: no bound."""

    def expect(
        self, *, ledgers: int | None = None, entries: int | None = None, size: int | None = None
    ) -> None:
        """Set the totals, as far as known; may be corrected."""

    def add_progress(self, *, ledgers: int = 0, entries: int = 0, size: int = 0) -> None:
        """Add completed work; ``size`` in bytes."""

    def count(self, what: str, amount: int = 1) -> None:
        """Add to a counter of this kind of job, as 'entries_missing'; may go down."""

    def set_step(self, step: str, *, standing_by: bool = False) -> None:
        """Set the message for the present step. ``standing_by``: the job has nothing to do for now."""

    def block(self, ledger: int, reason: str, what_to_do: str) -> None:
        """Report a ledger that cannot go on by itself."""

    def unblock(self, ledger: int) -> None:
        """Report that a ledger goes on, or no longer exists; does nothing if it was not blocked."""
