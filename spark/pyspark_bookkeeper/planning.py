"""Splits the entries to be read into partitions. Pure.

A ledger is split where a fragment begins, as other bookies have it from there on, and where a partition is full;
neighbours share one. No partition is empty, and no entry is in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import NamedTuple

ENTRY_OVERHEAD_BYTES = 64
"""Bytes that an entry counts for in addition to its payload."""

_EVEN_MAX = 64
"""Maximum count that is rounded up: with more partitions an incomplete last round is a small part."""

_ROUNDING = 1e-6
"""Tolerance, in entries, for the rounding of floating-point sums."""


class Piece(NamedTuple):
    """Entries of one ledger, first to last, both included."""

    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True)
class Extent:
    """The entries to be read of one ledger: ``first`` to before ``stop``, ``size`` payload bytes in all, as far as
    known; ``cuts``: the first entries of its fragments; ``is_final``: the ledger will never have more; ``losses``:
    warnings of what it does not hold, as an operator ended it with loss accepted."""

    ledger_id: int
    first: int
    stop: int
    size: int
    cuts: tuple[int, ...] = ()
    is_final: bool = False
    losses: tuple[str, ...] = ()


def partitions(
    extents: Iterable[Extent], max_bytes: int, min_partitions: int = 1
) -> list[tuple[Piece, ...]]:
    """Partitions of about the same size. ``min_partitions`` is a hint: with fewer entries than that there are fewer
    partitions."""
    nonempty = [extent for extent in extents if extent.stop > extent.first]
    total = sum(map(_weight, nonempty))
    count = max(_even(ceil(total / max_bytes)), min_partitions)
    target = total / count
    found: list[tuple[Piece, ...]] = []
    pieces: list[Piece] = []
    space = target
    for extent in nonempty:
        per_entry = _weight(extent) / (extent.stop - extent.first)
        for first, stop in _between(extent.first, extent.stop, extent.cuts):
            at = first
            while at < stop:
                fits = int(space / per_entry + _ROUNDING)
                if fits < 1 and pieces:
                    found.append(tuple(pieces))
                    pieces, space = [], space + target
                    continue
                last = min(at + max(fits, 1), stop) - 1
                pieces.append(Piece(extent.ledger_id, at, last))
                space -= (last - at + 1) * per_entry
                at = last + 1
    if pieces:
        found.append(tuple(pieces))
    return found


def _even(count: int) -> int:
    """Rounds up to a power of two, so that the last round of tasks is full with a usual number of slots."""
    return 1 << (count - 1).bit_length() if 1 < count <= _EVEN_MAX else count


def _weight(extent: Extent) -> int:
    return extent.size + ENTRY_OVERHEAD_BYTES * (extent.stop - extent.first)


def _between(first: int, stop: int, cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    edges = [first, *sorted(cut for cut in set(cuts) if first < cut < stop), stop]
    return pairwise(edges)
