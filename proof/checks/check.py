"""A check: fed with observations, in order, it returns the description of a violation, or nothing.

Each observation is a method; a check overrides those that concern it, and the others do nothing. All values are plain:
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
    """A property that does not hold: its name, and the observation."""

    name: str
    words: str

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"


@frozen_struct
class Metadata:
    """A ledger's metadata. ``last``: of a closed one; ``sizes``: E, WQ, AQ."""

    ledger: int
    state: int
    version: int
    last: int
    sizes: tuple[int, int, int]
    fragments: Fragments

    def replicas(self, entry: int) -> Sequence[str]:
        """The bookies that the metadata name for an entry."""
        ensemble_size, write_quorum, _ = self.sizes
        for first, ensemble in reversed(self.fragments):
            if first <= entry:
                return _write_set(ensemble, write_quorum, entry % ensemble_size)
        raise ValueError(f"no fragment has entry {entry}")


@lru_cache(1 << 12)
def _write_set(ensemble: tuple[str, ...], write_quorum: int, first: int) -> tuple[str, ...]:
    return (*ensemble[first:], *ensemble[:first])[:write_quorum]


class Check:
    """Base of all checks; see the module."""

    name: ClassVar[str] = ""

    # ---- clients --------------------------------------------------------------------------------

    def created(self, ledger: int, deferred: bool) -> str | None:
        """A client has created a ledger; ``deferred``: with deferred sync."""

    def appended(self, ledger: int, entry: int, payload: bytes) -> str | None:
        """The writer has appended an entry."""

    def acknowledged(self, ledger: int, entry: int) -> str | None:
        """The writer got a success for the entry; with deferred sync that is no promise yet."""

    def confirmed(self, ledger: int, last: int) -> str | None:
        """The writer was promised that the ledger has all entries up to this one."""

    def ended(self, client: str, ledger: int, last: int) -> str | None:
        """A client closed or recovered the ledger, and it ends there."""

    def found(self, client: str, ledger: int, entry: int, payload: bytes) -> str | None:
        """A reader received an entry."""

    def absent(self, client: str, ledger: int, entry: int) -> str | None:
        """A reader got NO_SUCH_ENTRY."""

    def heard_lac(self, reader: str, ledger: int, lac: int) -> str | None:
        """One handle of a reader has learnt this LAC."""

    # ---- metadata store -------------------------------------------------------------------------

    def stored_metadata(self, now: Metadata) -> str | None:
        """The metadata of a ledger have been stored; they hold from now on."""

    def deleted(self, ledger: int) -> str | None:
        """The ledger has been deleted from the metadata store."""

    # ---- bookies --------------------------------------------------------------------------------

    def stored(
        self, bookie: str, ledger: int, entry: int, ordinary: bool, deferred: bool
    ) -> str | None:
        """A bookie has acknowledged an add; ``ordinary``: not a recovery add."""

    def forced(self, bookie: str, ledger: int, entry: int) -> str | None:
        """A bookie has responded to a force of an entry that was added with deferred sync."""

    def emptied(self, bookie: str, ledger: int) -> str | None:
        """A bookie has removed all entries of a ledger."""

    def denied(self, bookie: str, ledger: int, entry: int) -> str | None:
        """A bookie denies an entry (-1: all entries), or the ledger."""

    def fenced(self, bookie: str, ledger: int) -> str | None:
        """A bookie has responded to a fencing read, other than with a failure."""

    def entered_limbo(self, bookie: str, ledger: int) -> str | None:
        """At its start a bookie has put a ledger into limbo, or found it in limbo."""

    def left_limbo(self, bookie: str, ledger: int, readable: Callable[[int], bool]) -> str | None:
        """A bookie has taken a ledger out of limbo; ``readable``: returns True for an entry that it can read."""

    def vouched(
        self,
        bookie: str,
        vouches: Callable[[int], Container[int] | None],
        keeps_fence: Callable[[int], bool],
    ) -> str | None:
        """A bookie starts and reports that none of its disks has lost anything. ``vouches``: returns the entries of a
        ledger that it has, None if it has the ledger in limbo; ``keeps_fence``: returns True for a ledger that it has
        fenced."""

    # ---- the end --------------------------------------------------------------------------------

    def finished(self) -> str | None:
        """Faults have ceased and the last repair has had its time."""
