"""Fragments of a ledger begin at strictly ascending entries. Source: the second defect of 4.13, an ensemble change
of a recovery that began before the last fragment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

NAME = "fragments"


def ascending(first_entries: Sequence[int]) -> bool:
    """``first_entries``: of the fragments, in their order."""
    return all(one < next_one for one, next_one in pairwise(first_entries))
