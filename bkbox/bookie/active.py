"""Active ledgers: those of a disk that may have entries which were acknowledged and are not durable.

Under ``ack_after = write`` a lost host takes what was not synced. A ledger is marked *active*, synced, with its first
add that is answered without a sync, and unmarked after a sync, once no add came for a while. So after a lost host only
active ledgers can lack anything, and only they go into limbo.

An unmarked ledger's adds take the slow path, on which it is marked again; so a ledger that is hot is active.
"""

from __future__ import annotations

from collections.abc import Iterable


class ActiveLedgers:
    """Which ledgers are marked, and which of them are to be unmarked after the next sync."""

    def __init__(self, marked: Iterable[int]) -> None:
        """``marked``: by earlier runs; they are unmarked as others are."""
        self._ledgers = set(marked)
        self._leaving: set[int] = set()
        self._counts: tuple[int, dict[int, int]] = 0, {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def changed(self, ledger: int, active: bool) -> None:
        """A state of a ledger took effect."""
        if active:
            self._ledgers.add(ledger)
        else:
            self._ledgers.discard(ledger)
            self._leaving.discard(ledger)

    def touched(self, ledger: int) -> None:
        """An add of it came on the slow path: it stays marked."""
        self._leaving.discard(ledger)

    def begin_leaving(self, footer: int, counts: dict[int, int], *, everything: bool) -> list[int]:
        """Ledgers to be unmarked by ``take_left`` after a sync that begins now: all, or those without an entry since
        the last call. ``counts``: of the entries of each ledger since the footer of the log at ``footer``.
        """
        before_footer, before = self._counts
        self._counts = footer, counts
        if everything:
            quiet = list(self._ledgers)
        elif footer != before_footer:
            quiet = []  # what came before that footer is not counted any more
        else:
            quiet = [each for each in self._ledgers if counts.get(each) == before.get(each)]
        self._leaving.update(quiet)
        return quiet

    def take_left(self) -> list[int]:
        """The sync has ended: the ledgers that may be unmarked."""
        left, self._leaving = sorted(self._leaving), set()
        return left
