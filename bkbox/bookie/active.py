"""Active ledgers of a disk: they may have entries that are acknowledged and not durable.

With ``ack_after = write`` a host crash loses unsynced data. A ledger is marked *active*, and the mark synced,
with its first add that is acknowledged without a sync. It is unmarked after a sync, once no add came for a while. So
after a host crash only active ledgers can lack entries, and only they go into limbo.

Adds of an unmarked ledger take the slow path, which marks it again. So a hot ledger is active.
"""

from __future__ import annotations

from collections.abc import Iterable


class ActiveLedgers:
    """Tracks the marked ledgers, and which of them are unmarked after the next sync."""

    def __init__(self, marked: Iterable[int]) -> None:
        """``marked``: the ledgers that earlier incarnations marked; they are unmarked like all others."""
        self._ledgers = set(marked)
        self._idle: set[int] = set()
        self._counts: tuple[int, dict[int, int]] = 0, {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def changed(self, ledger: int, active: bool) -> None:
        """Record that a ledger's state took effect."""
        if active:
            self._ledgers.add(ledger)
        else:
            self._ledgers.discard(ledger)
            self._idle.discard(ledger)

    def touched(self, ledger: int) -> None:
        """Record an add of the ledger on the slow path: the ledger stays marked."""
        self._idle.discard(ledger)

    def select_idle(self, footer: int, counts: dict[int, int], *, everything: bool) -> list[int]:
        """Choose the ledgers that ``pop_idle`` unmarks after a sync that begins now: all, or those without an entry
        since the last call. ``counts``: entries per ledger since the footer of the log at ``footer``.
        """
        before_footer, before = self._counts
        self._counts = footer, counts
        if everything:
            idle = list(self._ledgers)
        elif footer != before_footer:
            idle = []  # entries before that footer are no longer counted
        else:
            idle = [each for each in self._ledgers if counts.get(each) == before.get(each)]
        self._idle.update(idle)
        return idle

    def pop_idle(self) -> list[int]:
        """The ledgers that may be unmarked; called once the sync has ended."""
        found, self._idle = sorted(self._idle), set()
        return found
