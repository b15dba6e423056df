"""Entries and bytes per ledger, for the footers of a segment."""

from __future__ import annotations


class _Count:
    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries = 0
        self.size = 0


class LedgerCounts:
    """The counts since the last ``clear``."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, _Count] = {}

    def __len__(self) -> int:
        """Number of ledgers."""
        return len(self._counts)

    def count(self, ledger: int, entries: int, size: int) -> None:
        """Add entries of a ledger, and their total size in bytes."""
        found = self._counts.get(ledger)
        if found is None:
            found = _Count()
            self._counts[ledger] = found
        found.entries += entries
        found.size += size

    def items(self) -> list[tuple[int, int, int]]:
        """(ledger, entries, bytes), by ledger."""
        items = []
        for ledger in sorted(self._counts):
            found = self._counts[ledger]
            items.append((ledger, found.entries, found.size))
        return items

    def clear(self) -> None:
        """Count from nothing again."""
        self._counts = {}
