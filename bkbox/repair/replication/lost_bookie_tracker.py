"""The auditor's record of lost bookies: which are lost, since when, and whether their ledgers have been scanned.

Pure: the clock is passed in.
"""

from __future__ import annotations

from collections.abc import Collection

from bkbox.base.ids import BookieId


class LostBookies:
    """The lost bookies of one term. A bookie that is away at its beginning counts as lost from then on."""

    def __init__(self) -> None:
        self._known: set[BookieId] = set()
        self._since: dict[BookieId, float] = {}
        self._audited: set[BookieId] = set()
        self.exempt: frozenset[BookieId] = frozenset()

    def see(
        self,
        with_cookies: Collection[BookieId],
        registered: Collection[BookieId],
        exempt: Collection[BookieId],
        now_s: float,
    ) -> None:
        """Record one view of the cluster. ``with_cookies``: the bookies that the cluster knows. One without a cookie
        that was seen before is known, too.

        ``exempt``: bookies for which nothing is done, however long they are away; after that they are lost from then
        on.
        """
        self._known.update(with_cookies, registered)
        self.exempt = frozenset(exempt)
        absent = self._known.difference(registered, self.exempt)
        self._since = {bookie: self._since.get(bookie, now_s) for bookie in absent}
        self._audited &= absent

    def absent(self) -> list[BookieId]:
        """The bookies that are lost now."""
        return sorted(self._since)

    def awaited(self, delay_s: float, now_s: float) -> frozenset[BookieId]:
        """The bookies that may come back yet: a single one whose delay is not over."""
        fresh = self._since.keys() - self._audited
        if delay_s <= 0 or len(fresh) != 1:
            return frozenset()
        return frozenset(bookie for bookie in fresh if now_s - self._since[bookie] < delay_s)

    def due(self, delay_s: float, now_s: float) -> bool:
        """True if ledgers have to be scanned for a lost bookie."""
        return bool(self._since.keys() - self._audited - self.awaited(delay_s, now_s))

    def spared(self, delay_s: float, now_s: float) -> frozenset[BookieId]:
        """The bookies whose ledgers are not to be marked, though they may not be registered now: they have not been
        away for long enough, or are exempt.
        """
        lost = self._since.keys() - self.awaited(delay_s, now_s)
        return self.exempt | (self._known - lost)

    def audited(self, but: Collection[BookieId]) -> None:
        """Record that all ledgers were scanned for the lost bookies, except for ``but``."""
        self._audited.update(self._since.keys() - set(but))
