"""Every acknowledged entry is on some bookie of its ensemble, while fewer than an ack quorum lost data."""

from __future__ import annotations

from collections.abc import Iterable

NAME = "held"


def all_held(holders: Iterable[int]) -> bool:
    """``holders``: for each acknowledged entry, the number of bookies of its ensemble that have it."""
    return all(count >= 1 for count in holders)
