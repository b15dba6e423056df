"""The order in which the bookies that hold an entry are asked for it.

Healthy bookies come before slow and quarantined ones (bookie_health.py). Among equals it is the order of the write
set, which spreads reads over the ensemble, unless the options change it: the closest first (``closest_to``), or
always the same one (``sticky_reads``), whose cache then holds what it reads ahead. Source: reorderReadSequenceEnabled
and stickyReadsEnabled in ClientConfiguration.java.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from bkbox.base.ids import BookieId
from bkbox.client.connection.bookie_health import BookieHealth

_ANYWHERE = 3
"""The value of Placer.distances for an unknown bookie."""


class ReadOrder:
    """The order of one reader's reads. ``distances``: Placer.distances, empty if they are not used."""

    def __init__(
        self,
        health: BookieHealth,
        rng: random.Random,
        distances: Mapping[BookieId, int],
        *,
        sticky: bool,
    ) -> None:
        self._health = health
        self._distances = distances
        self._rng = rng
        self._preferences: dict[BookieId, float] | None = {} if sticky else None

    def __call__(self, bookies: tuple[BookieId, ...]) -> tuple[BookieId, ...]:
        if self._preferences is not None:
            bookies = tuple(sorted(bookies, key=self._preference))
        if self._distances:
            far = self._distances
            bookies = tuple(sorted(bookies, key=lambda bookie: far.get(bookie, _ANYWHERE)))
        return self._health.in_order(bookies)

    def _preference(self, bookie: BookieId) -> float:
        """Drawn once, so that the readers of a process prefer different bookies."""
        assert self._preferences is not None
        return self._preferences.setdefault(bookie, self._rng.random())
