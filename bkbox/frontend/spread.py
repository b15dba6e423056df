"""Spreads new ledgers over disks in proportion to their free bytes.

Nobody knows how large a ledger becomes. So each disk gets a share of the ledgers like its share of the room: disks that
are unequally full become equally full in the end, and a new, empty disk gets more of the new ledgers, not all of them.

Each choice adds to every disk's credit its weight, takes the disk with the most and takes the sum of all weights from
it: the shares are exact over any run of choices, evenly mixed, and nothing is random. What the smooth weighted round
robin of web servers does.
"""

from __future__ import annotations

from collections.abc import Mapping

_SOME = 1 << 30
"""The weight of each disk while nothing is known of their room."""


class Spread:
    """The credits of disks, by number."""

    def __init__(self) -> None:
        self._credits: dict[int, int] = {}

    def choose(self, free: Mapping[int, int]) -> int:
        """One of the disks, of which ``free`` has the free bytes; at least one. Without any room all weigh the same."""
        nothing_known = not any(free.values())
        total = 0
        for disk, room in free.items():
            weight = _SOME if nothing_known else room
            total += weight
            self._credits[disk] = self._credits.get(disk, 0) + weight
        chosen = max(free, key=self._credits.__getitem__)
        self._credits[chosen] -= total
        return chosen
