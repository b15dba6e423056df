"""Active ledgers of a disk: they may have entries that are acknowledged and not durable.

With ``ack_after = write`` a host crash loses unsynced data. A ledger is marked *active*, and the mark synced,
with its first add that is answered without a sync. It is unmarked after a sync, once no add came for a while. So after
a host crash only active ledgers can lack entries, and only they go into limbo.

Adds of an unmarked ledger take the slow path, which marks it again. So a hot ledger is active.
"""

from __future__ import annotations

from collections.abc import Iterable


class ActiveLedgers:
    """Tracks the marked ledgers, and which of them are unmarked after the next sync."""

    def __init__(self, marked: Iterable[int]) -> None:
        """``marked``: the ledgers that earlier incarnations marked; they are unmarked like all others."""
        self._ledgers = set(marked)
        self._leaving: set[int] = set()
        self._counts: tuple[int, dict[int, int]] = 0, {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def changed(self, ledger: int, active: bool) -> None:
        """Record that a ledger's state took effect."""
        if active:
            self._ledgers.add(ledger)
        else:
            self._ledgers.discard(ledger)
            self._leaving.discard(ledger)

    def touched(self, ledger: int) -> None:
        """Record an add of the ledger on the slow path: the ledger stays marked."""
        self._leaving.discard(ledger)

    def begin_leaving(self, footer: int, counts: dict[int, int], *, everything: bool) -> list[int]:
        """Choose the ledgers that ``take_left`` unmarks after a sync that begins now: all, or those without an entry
        since the last call. ``counts``: entries per ledger since the footer of the log at ``footer``.
        """
        before_footer, before = self._counts
        self._counts = footer, counts
        if everything:
            quiet = list(self._ledgers)
        elif footer != before_footer:
            quiet = []  # entries before that footer are no longer counted
        else:
            quiet = [each for each in self._ledgers if counts.get(each) == before.get(each)]
        self._leaving.update(quiet)
        return quiet

    def take_left(self) -> list[int]:
        """The ledgers that may be unmarked; called once the sync has ended."""
        left, self._leaving = sorted(self._leaving), set()
        return left
