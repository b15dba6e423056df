"""The progress of an audit, for tests that do not look at it."""

from __future__ import annotations


class NoProgress:
    """A Progress that shows nothing."""

    def stage(self, name: str, ledgers: int | None) -> None:
        """See Progress."""

    def add_progress(self, ledgers: int, size: int) -> None:
        """See Progress."""
