"""A check: fed with what was observed, in order, it says in words what must not have happened, or nothing.

Each observation is a method; a check has those that concern it, and the others do nothing. All values are plain:
names of bookies and clients, ids of ledgers and entries, bytes. States of ledgers are the numbers of the metadata:
1 open, 2 in recovery, 3 closed; -1 stands for 'no entry'.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from bkbox.base.values import frozen_struct

Fragments = tuple[tuple[int, tuple[str, ...]], ...]
"""(first entry, ensemble) of each fragment."""

OPEN, IN_RECOVERY, CLOSED = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Violation:
    """A property that does not hold: its name, and what was seen."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"


@frozen_struct
class Metadata:
    """What metadata says of a ledger. ``last``: of a closed one; ``sizes``: E, WQ, AQ."""

    ledger: int
    state: int
    version: int
    last: int
    sizes: tuple[int, int, int]
    fragments: Fragments

    def replicas(self, entry: int) -> Sequence[str]:
        """The bookies that it names for an entry."""
        ensemble_size, write_quorum, _ = self.sizes
        for first, ensemble in reversed(self.fragments):
            if first <= entry:
                return _write_set(ensemble, write_quorum, entry % ensemble_size)
        raise ValueError(f"no fragment has entry {entry}")


@lru_cache(1 << 12)
def _write_set(ensemble: tuple[str, ...], write_quorum: int, first: int) -> tuple[str, ...]:
    return (*ensemble[first:], *ensemble[:first])[:write_quorum]


class Check:
    """See above."""

    name: ClassVar[str] = ""

    # ---- clients --------------------------------------------------------------------------------

    def created(self, ledger: int, deferred: bool) -> str | None:
        """A client has made a ledger; ``deferred``: with deferred sync."""

    def appended(self, ledger: int, entry: int, payload: bytes) -> str | None:
        """The writer has handed over an entry."""

    def acknowledged(self, ledger: int, entry: int) -> str | None:
        """The writer was told that the entry is in the ledger; with deferred sync that is no promise yet."""

    def confirmed(self, ledger: int, last: int) -> str | None:
        """The writer was promised that the ledger has all entries up to this one."""

    def ended(self, client: str, ledger: int, last: int) -> str | None:
        """A client that closed or recovered the ledger was told that it ends there."""

    def found(self, client: str, ledger: int, entry: int, payload: bytes) -> str | None:
        """A reader got an entry."""

    def absent(self, client: str, ledger: int, entry: int) -> str | None:
        """A reader was told that there is no such entry."""

    def heard_lac(self, reader: str, ledger: int, lac: int) -> str | None:
        """One handle of a reader knows the ledger to be confirmed up to there."""

    # ---- metadata store -------------------------------------------------------------------------

    def stored_metadata(self, now: Metadata) -> str | None:
        """The metadata of a ledger is this from now on."""

    def deleted(self, ledger: int) -> str | None:
        """The ledger is not in the metadata store any more."""

    # ---- bookies --------------------------------------------------------------------------------

    def stored(
        self, bookie: str, ledger: int, entry: int, ordinary: bool, deferred: bool
    ) -> str | None:
        """A bookie has acknowledged an add; ``ordinary``: not that of a recovery."""

    def forced(self, bookie: str, ledger: int, entry: int) -> str | None:
        """A bookie has answered a force of an entry that was added with deferred sync."""

    def emptied(self, bookie: str, ledger: int) -> str | None:
        """A bookie has removed all entries of a ledger."""

    def denied(self, bookie: str, ledger: int, entry: int) -> str | None:
        """A bookie says that it has no such entry (-1: none at all), or no such ledger."""

    def fenced(self, bookie: str, ledger: int) -> str | None:
        """A bookie has answered a read that fences, other than with a failure."""

    def entered_limbo(self, bookie: str, ledger: int) -> str | None:
        """A bookie that starts has put a ledger into limbo, or found it there."""

    def left_limbo(self, bookie: str, ledger: int, readable: Callable[[int], bool]) -> str | None:
        """A bookie has taken a ledger out of limbo; ``readable``: whether it can read an entry."""

    def vouched(
        self,
        bookie: str,
        vouches: Callable[[int], Container[int] | None],
        keeps_fence: Callable[[int], bool],
    ) -> str | None:
        """A bookie starts and says that none of its disks has lost anything; ``vouches``: the entries of a ledger that
        it has, None where it has the ledger in limbo; ``keeps_fence``: whether it has the ledger fenced."""

    # ---- the end --------------------------------------------------------------------------------

    def finished(self) -> str | None:
        """Faults have ceased and the last repair had its time."""
