"""Distributes new ledgers over disks in proportion to their free bytes.

The final size of a ledger is unknown. So each disk gets a share of the ledgers equal to its share of the free space:
unequally full disks become equally full in the end, and a new, empty disk gets more of the new ledgers, not all.

Each choice adds each disk's weight to its credit, chooses the disk with the most credit and subtracts the sum of all
weights from it. The shares are exact over any run of choices and evenly mixed, without randomness. This is the smooth
weighted round robin of web servers.
"""

from __future__ import annotations

from collections.abc import Mapping

_SOME = 1 << 30
"""The weight of each disk while no disk's free space is known."""


class DiskSelection:
    """The credit of each disk, by number."""

    def __init__(self) -> None:
        self._credits: dict[int, int] = {}

    def choose(self, free: Mapping[int, int]) -> int:
        """Chooses a disk. ``free``: bytes free per disk, at least one. If no disk has space, all weigh the same."""
        nothing_known = not any(free.values())
        total = 0
        for disk, free_bytes in free.items():
            weight = _SOME if nothing_known else free_bytes
            total += weight
            self._credits[disk] = self._credits.get(disk, 0) + weight
        chosen = max(free, key=self._credits.__getitem__)
        self._credits[chosen] -= total
        return chosen
