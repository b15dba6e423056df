"""Every entry that a bookie holds is the one that was written under its id."""

from __future__ import annotations

from collections.abc import Iterable

NAME = "order"


def in_order(entries: Iterable[tuple[int, int]]) -> bool:
    """``entries``: pairs of an entry id and the id under which its content was written."""
    return all(entry == written for entry, written in entries)
