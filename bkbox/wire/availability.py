"""The entries of a ledger that a bookie holds, in the encoding of GET_LIST_OF_ENTRIES_OF_LEDGER.

======  ====  =====================================================================================
offset  size  field
======  ====  =====================================================================================
0       4     version, 0
4       4     number of groups
8       56    zeros
64      24    per group: first start 8, last start 8, run length 4, period 4
======  ====  =====================================================================================

A group stands for runs of consecutive ids that start at first start, + period, … up to last start; a single run has
equal starts and period 0. Each run is written as its own group, as Java's encoder does in fact; periods are read.
Source: AvailabilityOfEntriesOfLedger.java.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

from bkbox.base.text import quoted
from bkbox.errors import EncodingError

_HEADER = Struct(">ii56x")
_GROUP = Struct(">qqii")
_INT_MAX = (1 << 31) - 1


class Group(NamedTuple):
    """Equal runs at equal distances."""

    first_start: int
    last_start: int
    size: int
    period: int

    def __contains__(self, entry: object) -> bool:
        if not isinstance(entry, int) or entry < self.first_start:
            return False
        if self.period == 0 or entry >= self.last_start:
            return entry - self.last_start < self.size
        return (entry - self.first_start) % self.period < self.size

    @property
    def end(self) -> int:
        """The first id above the group."""
        return self.last_start + self.size

    @property
    def runs(self) -> int:
        return 1 if self.period == 0 else (self.last_start - self.first_start) // self.period + 1

    def entries(self) -> Iterator[int]:
        """All ids, ascending."""
        for run in range(self.runs):
            start = self.first_start + run * self.period
            yield from range(start, start + self.size)


class Availability:
    """Groups in ascending order of their first start; they may interleave, but name no id twice."""

    __slots__ = ("_reach", "groups")

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = tuple(sorted(groups))
        self._reach = tuple(accumulate((group.end for group in self.groups), max))

    def __contains__(self, entry: int) -> bool:
        at = bisect_right(self.groups, entry, key=lambda group: group.first_start)
        while at > 0 and entry < self._reach[at - 1]:
            at -= 1
            if entry in self.groups[at]:
                return True
        return False

    def __iter__(self) -> Iterator[int]:
        """All ids, ascending within each group."""
        for group in self.groups:
            yield from group.entries()

    @property
    def total(self) -> int:
        """Number of entries."""
        return sum(group.runs * group.size for group in self.groups)


def availability_of(entries: Iterable[int]) -> Availability:
    """The runs of these ids; an id that is in the current run counts as a repetition."""
    runs: dict[int, int] = {}
    start = end = -1
    for entry in entries:
        if start <= entry < end:
            continue
        if entry != end:
            start = entry
        end = entry + 1
        runs[start] = max(end - start, runs.get(start, 0))
    return Availability(Group(start, start, size, 0) for start, size in runs.items())


def encode(availability: Availability) -> bytes:
    """The encoded bytes."""
    groups = availability.groups
    return b"".join((_HEADER.pack(0, len(groups)), *(_GROUP.pack(*group) for group in groups)))


def encode_runs(runs: Iterable[tuple[int, int]]) -> bytes:
    """The encoded bytes of runs (first, last), both included, that do not touch."""
    return encode(Availability(_single(runs)))


def encode_folded(runs: Iterable[tuple[int, int]]) -> bytes:
    """As encode_runs(), with equal runs at equal distances folded into one group.

    The format was made for this: a bookie's part of a striped ledger takes a few groups.
    """
    groups: list[Group] = []
    for group in _single(runs):
        before = groups[-1] if groups else None
        if before is not None and before.size == group.size:
            period = group.first_start - before.last_start
            if before.period in (0, period) and period <= _INT_MAX:
                groups[-1] = before._replace(last_start=group.last_start, period=period)
                continue
        groups.append(group)
    return encode(Availability(groups))


def _single(runs: Iterable[tuple[int, int]]) -> Iterator[Group]:
    """A group for each run; several for a run longer than a group can express."""
    for first, last in runs:
        for start in range(first, last + 1, _INT_MAX):
            yield Group(start, start, min(last - start + 1, _INT_MAX), 0)


def decode(data: bytes | bytearray | memoryview) -> Availability:
    """The availability in encoded bytes. Raises EncodingError."""
    if len(data) < _HEADER.size:
        raise EncodingError(f"an availability list of {len(data)} bytes has no whole header")
    version, count = _HEADER.unpack_from(data)
    if version != 0:
        raise EncodingError(f"availability lists of version {version} are not known")
    if count < 0 or len(data) < _HEADER.size + count * _GROUP.size:
        raise EncodingError(f"an availability list of {len(data)} bytes has no {count} groups")
    end = _HEADER.size + count * _GROUP.size
    return Availability(map(_checked, _GROUP.iter_unpack(memoryview(data)[_HEADER.size : end])))


def _checked(fields: tuple[int, int, int, int]) -> Group:
    group = Group(*fields)
    single = group.period == 0 and group.first_start == group.last_start
    repeated = (
        group.period >= max(group.size, 1)
        and group.last_start >= group.first_start
        and (group.last_start - group.first_start) % group.period == 0
    )
    if group.first_start < 0 or group.size < 1 or not (single or repeated):
        raise EncodingError(
            f"an availability list with the impossible group {quoted(tuple(group))}"
        )
    return group
