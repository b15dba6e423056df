"""The selection of the bookies of an ensemble, and the reasons against the others.

Rules, the stronger first:

1. A bookie that is not registered, is read-only, was excluded, or is in the ensemble already is *dropped*.
2. One that could not be reached recently (a suspect) is used only for want of others.
3. Every write quorum, that is WQ consecutive positions around the ensemble, spans at least ``min_racks`` racks and as
   many hosts, or as many as there are.
4. Racks are used evenly, first within each write quorum, then in the whole ensemble; then hosts.
5. The rest is random, weighted by free space. A weight is the free space over its median, at most WEIGHT_MAX. Unknown
   counts as the median, none at all as the smallest weight.

A bookie that no rule drops and that is not chosen is *passed over*. Rules 2 and 3 are relaxed if they cannot be kept,
and the placement reports it. Rule 3 is Java's minNumRacksPerWriteQuorum without enforcement. Source:
RackawareEnsemblePlacementPolicyImpl.java, WeightedRandomSelectionImpl.java.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from statistics import median
from typing import Protocol

from bkbox.base.ids import BookieId
from bkbox.base.text import counted
from bkbox.wire.write_set import write_set

MIN_RACKS_DEFAULT = 2
"""Java: minNumRacksPerWriteQuorum."""

WEIGHT_MAX = 3.0
"""Java: bookieMaxMultipleForWeightBasedPlacement."""

_STEPS_MAX = 1_000
"""Positions tried for one ensemble before the best one found so far is used. Only ensembles larger than their write
quorum, on racks that are too few or too small, ever come near it.
"""


class Mode(Enum):
    """A bookie's mode, as the metadata store has it."""

    WRITABLE = "writable"
    READ_ONLY = "read-only"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bookie and the inputs of placement; ``free_bytes`` None: unknown."""

    bookie: BookieId
    host: str
    rack: str
    mode: Mode = Mode.WRITABLE
    suspect: bool = False
    free_bytes: int | None = None


class Verdict(Enum):
    """The outcome for a candidate."""

    CHOSEN = "chosen"
    PASSED_OVER = "passed over"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class PlacementDecision:
    """A candidate's verdict. ``reason`` is empty for the chosen, ``weight`` None for the dropped."""

    candidate: Candidate
    verdict: Verdict
    reason: str
    weight: float | None


@dataclass(frozen=True, slots=True)
class Placement:
    """The ensemble, None for a position without a bookie; all candidates by id; the rules that were relaxed, a
    sentence each.
    """

    ensemble: tuple[BookieId | None, ...]
    decisions: tuple[PlacementDecision, ...]
    relaxed: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """True if every position has its bookie."""
        return None not in self.ensemble

    def shortage(self, needed: int) -> str:
        """For an incomplete ensemble: the available bookies and the dropped ones, as text."""
        usable = [j.candidate.bookie for j in self.decisions if j.verdict is Verdict.CHOSEN]
        dropped = [
            f"{j.candidate.bookie} ({j.reason})"
            for j in self.decisions
            if j.verdict is Verdict.DROPPED
        ]
        are_needed = counted(needed, "bookie", "are")
        are_available = "1 is" if len(usable) == 1 else f"{len(usable)} are"
        text = f"{are_needed} needed, {are_available} available: "
        text += ", ".join(usable) or "none"
        return text + (f"; dropped: {', '.join(dropped)}" if dropped else "")


class Rng(Protocol):
    """The part of ``random.Random`` that placement uses."""

    def expovariate(self, lambd: float, /) -> float: ...


def place(
    seats: Sequence[Candidate | None],
    candidates: Iterable[Candidate],
    write_quorum: int,
    rng: Rng,
    *,
    min_racks: int = MIN_RACKS_DEFAULT,
    exclude: Collection[BookieId] = (),
) -> Placement:
    """Fill the empty seats (None) of an ensemble, the first ones if there are not enough bookies for all.
    Deterministic for the same arguments and state of ``rng``.

    Of more empty seats than candidates, those beyond one too many add nothing to the result.
    """
    candidates = sorted(candidates, key=lambda candidate: candidate.bookie)
    members = {seat.bookie for seat in seats if seat is not None}
    reasons = {each.bookie: _why_dropped(each, exclude, members) for each in candidates}
    usable = [each for each in candidates if not reasons[each.bookie]]
    weights = _weights(usable)
    # An exponential race: the smallest draw wins, in proportion to the weights, among all candidates as well as among
    # those that any rule leaves over.
    draws = {each.bookie: rng.expovariate(weights[each.bookie]) for each in usable}
    pool = _without_surplus_suspects(usable, seats, draws)
    search = _Search(seats, pool, draws, write_quorum, min_racks)
    filled = search.run()
    chosen = {seat.bookie for seat in filled if seat is not None} - members
    decisions = [
        _decide(each, reasons[each.bookie], weights.get(each.bookie), chosen, search)
        for each in candidates
    ]
    return Placement(
        tuple(None if seat is None else seat.bookie for seat in filled),
        tuple(decisions),
        (*_suspects_used(filled, chosen), *search.relaxed()),
    )


# ---- the candidates and their weights -----------------------------------------------------------


def _why_dropped(
    candidate: Candidate, exclude: Collection[BookieId], members: Collection[BookieId]
) -> str:
    if candidate.bookie in members:
        return "in the ensemble already"
    if candidate.bookie in exclude:
        return "excluded"
    return "" if candidate.mode is Mode.WRITABLE else candidate.mode.value


def _weights(usable: Sequence[Candidate]) -> Mapping[BookieId, float]:
    known = sorted(each.free_bytes for each in usable if each.free_bytes)
    if not known:
        return dict.fromkeys((each.bookie for each in usable), 1.0)
    middle = median(known)
    weights = {}
    for each in usable:
        free = middle if each.free_bytes is None else each.free_bytes or known[0]
        weights[each.bookie] = min(free / middle, WEIGHT_MAX)
    return weights


def _without_surplus_suspects(
    usable: Sequence[Candidate],
    seats: Sequence[Candidate | None],
    draws: Mapping[BookieId, float],
) -> list[Candidate]:
    """All candidates that are no suspects, and as many suspects as are missing then, on racks of their own if
    possible.
    """
    suspects = [each for each in usable if each.suspect]
    pool = [each for each in usable if not each.suspect]
    racks = Counter(each.rack for each in [*pool, *seats] if each is not None)
    while suspects and len(pool) < list(seats).count(None):
        best = min(suspects, key=lambda each: (racks[each.rack], draws[each.bookie]))
        suspects.remove(best)
        pool.append(best)
        racks[best.rack] += 1
    return pool


# ---- the search ---------------------------------------------------------------------------------


class _Search:
    """Fills empty seats position by position, at each with the best candidate by rules 4 and 5, and backtracks if
    rule 3 is broken and need not be.
    """

    def __init__(
        self,
        seats: Sequence[Candidate | None],
        pool: Sequence[Candidate],
        draws: Mapping[BookieId, float],
        write_quorum: int,
        min_racks: int,
    ) -> None:
        size = len(seats)
        write_quorum = min(write_quorum, size)
        self._seats = list(seats)
        self._draws = draws
        self._left = sorted(pool, key=lambda each: draws[each.bookie])
        self._open = [p for p in range(size) if seats[p] is None][: len(pool)]
        starts = range(size if write_quorum < size else 1)
        self._windows = [write_set(start, size, write_quorum) for start in starts]
        near = [p for p in range(1 - write_quorum, write_quorum) if p]
        self._near = [{(p + d) % size for d in near} - {p} for p in range(size)]
        self._needed = min(min_racks, write_quorum)
        known = [*pool, *(seat for seat in seats if seat is not None)]
        self._racks_needed = min(self._needed, len({each.rack for each in known}))
        self._hosts_needed = min(self._needed, len({each.host for each in known}))
        self._racks = Counter(each.rack for each in known)
        self._steps = 0
        self._best: tuple[Candidate | None, ...] = ()
        self._best_cost: tuple[int, int] | None = None

    def run(self) -> tuple[Candidate | None, ...]:
        """The seats, filled."""
        self._fill(0)
        self._seats = list(self._best)
        return self._best

    def _fill(self, number: int) -> None:
        cost = self._shortfalls(self._racks_needed, self._hosts_needed)  # grows with every seat
        if self._best_cost is not None and (cost >= self._best_cost or self._steps >= _STEPS_MAX):
            return
        if number == len(self._open):
            self._best, self._best_cost = tuple(self._seats), cost
            return
        self._steps += 1
        position = self._open[number]
        for candidate in self._options(position):
            index = self._left.index(candidate)
            del self._left[index]
            self._seats[position] = candidate
            self._fill(number + 1)
            self._seats[position] = None
            self._left.insert(index, candidate)

    def _options(self, position: int) -> list[Candidate]:
        """Candidates for a position, the best first; of those that differ in their draw alone only the winner."""
        uses = self._uses(position)
        first: dict[tuple[object, ...], Candidate] = {}
        for each in self._left:
            first.setdefault((each.rack, *uses.of_rack(each), *uses.of_host(each)), each)
        return sorted(
            first.values(),
            key=lambda each: (uses.of_rack(each), uses.of_host(each), self._draws[each.bookie]),
        )

    def _shortfalls(self, racks_needed: int, hosts_needed: int) -> tuple[int, int]:
        """The number of racks, and of hosts, that the write quorums lack, however the empty seats are filled."""
        racks = hosts = 0
        for window in self._windows:
            there = [seat for seat in (self._seats[p] for p in window) if seat is not None]
            free = len(window) - len(there)
            racks += max(0, racks_needed - free - len({each.rack for each in there}))
            hosts += max(0, hosts_needed - free - len({each.host for each in there}))
        return racks, hosts

    def _uses(self, position: int) -> _Uses:
        others = [seat for p, seat in enumerate(self._seats) if p != position and seat is not None]
        near = [seat for seat in (self._seats[p] for p in self._near[position]) if seat is not None]
        return _Uses(
            Counter(each.rack for each in near),
            Counter(each.rack for each in others),
            Counter(each.host for each in near),
            Counter(each.host for each in others),
        )

    # ---- the result -----------------------------------------------------------------------------

    def relaxed(self) -> Iterable[str]:
        """Rule 3, if it was not kept."""
        if not self._open or None in self._seats:
            return
        racks, hosts = self._shortfalls(self._needed, self._needed)
        if racks:
            there = ", ".join(f"{rack} ({count})" for rack, count in sorted(self._racks.items()))
            yield (
                f"not every write quorum spans {self._needed} racks, because of where the "
                f"bookies are: {there}"
            )
        if hosts:
            yield f"not every write quorum spans {self._needed} hosts"

    @cached_property
    def _chosen(self) -> list[tuple[_Uses, Candidate]]:
        """The chosen candidates, each with the uses of the others."""
        return [(self._uses(p), seat) for p in self._open if (seat := self._seats[p]) is not None]

    def why_not(self, candidate: Candidate) -> str:
        """The reason that a candidate in the pool was not chosen."""
        size = len(self._seats)
        other_racks = [(u, s) for u, s in self._chosen if s.rack != candidate.rack]
        if other_racks and all(u.of_rack(candidate) > u.of_rack(s) for u, s in other_racks):
            count = sum(seat is not None and seat.rack == candidate.rack for seat in self._seats)
            return f"rack {candidate.rack} has {count} of {size} already"
        peers = [
            (u, s) for u, s in self._chosen if s.rack == candidate.rack and s.host != candidate.host
        ]
        if peers and all(u.of_host(candidate) > u.of_host(s) for u, s in peers):
            count = sum(seat is not None and seat.host == candidate.host for seat in self._seats)
            return f"host {candidate.host} has {count} of {size} already"
        return "others were drawn"


@dataclass(frozen=True, slots=True)
class _Uses:
    """Uses of a rack or host by the other seats: by those that share a write quorum with the seat in question, and by
    all.
    """

    racks_near: Counter[str]
    racks: Counter[str]
    hosts_near: Counter[str]
    hosts: Counter[str]

    def of_rack(self, candidate: Candidate) -> tuple[int, int]:
        return self.racks_near[candidate.rack], self.racks[candidate.rack]

    def of_host(self, candidate: Candidate) -> tuple[int, int]:
        return self.hosts_near[candidate.host], self.hosts[candidate.host]


# ---- the explanation ----------------------------------------------------------------------------


def _decide(
    candidate: Candidate,
    why_dropped: str,
    weight: float | None,
    chosen: Collection[BookieId],
    search: _Search,
) -> PlacementDecision:
    if why_dropped:
        return PlacementDecision(candidate, Verdict.DROPPED, why_dropped, None)
    if candidate.bookie in chosen:
        return PlacementDecision(candidate, Verdict.CHOSEN, "", weight)
    why = "not reached a moment ago" if candidate.suspect else search.why_not(candidate)
    return PlacementDecision(candidate, Verdict.PASSED_OVER, why, weight)


def _suspects_used(
    seats: Iterable[Candidate | None], chosen: Collection[BookieId]
) -> Iterable[str]:
    for seat in seats:
        if seat is not None and seat.bookie in chosen and seat.suspect:
            yield f"{seat.bookie} could not be reached a moment ago and is used for want of others"
