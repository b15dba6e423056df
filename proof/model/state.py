"""The parts of a state of the model.

A state has one ``World`` (the metadata store and the count of crashes), one ``Client`` for each client and one
``ActorView`` for each bookie: the bookie's data, and all messages between it and the clients, past ones too. So
each step touches few of them, and ``space`` computes each such step once.

Conventions: entries are numbered from 1 and an LAC of 0 means that none is confirmed; the body of an entry is a number,
for an entry in order its own; sets of bookies are bits (bookie 0 is bit 0); a fragment's ordinal is its index. Only a
World has the present metadata version; version 0 in a client means that it has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from proof.model.network import Mail
from proof.model.options import Status


class Fragment(NamedTuple):
    """A stretch of the ledger from entry ``first`` on."""

    ensemble: int
    first: int


Fragments = tuple[Fragment, ...]


class World(NamedTuple):
    """The ledger's metadata, and the number of crashes so far."""

    status: Status = Status.NONE
    fragments: Fragments = ()
    last: int = 0
    version: int = 0
    crashes: int = 0


class Role(IntEnum):
    """Role of a client towards the ledger."""

    IDLE = 0
    WRITER = 1
    RECOVERING = 2
    CLOSED = 3
    WITHDRAWN = 4


class Phase(IntEnum):
    """Progress of a recovery."""

    NONE = 0
    FENCING = 1
    READING = 2
    AWAITING = 3
    WRITING = 4


class Pending(NamedTuple):
    """An unconfirmed add, and the fragment and ensemble for which it was last sent."""

    entry: int
    body: int
    fragment: int
    ensemble: int


class Client(NamedTuple):
    """A client. ``acks``: for entry i, at i - 1, the bookies that acknowledged it.

    For a recovery: ``body`` of the entry being read, the bookies that have it, do not have it, do not know;
    ``written``: the entries (bits) that it has sent as recovery adds, which also follow from the messages.
    """

    role: Role = Role.IDLE
    version: int = 0
    fragments: Fragments = ()
    pending: tuple[Pending, ...] = ()
    pushed: int = 0
    lac: int = 0
    acks: tuple[int, ...] = ()
    fenced: int = 0
    phase: Phase = Phase.NONE
    body: int = 0
    has: int = 0
    has_not: int = 0
    unknown: int = 0
    written: int = 0


class ActorView(NamedTuple):
    """A bookie and its messages. ``entries`` are pairs (id, body), ascending. ``copied``: it acknowledged copies of the
    closed ledger."""

    entries: tuple[tuple[int, int], ...] = ()
    fenced: bool = False
    lac: int = 0
    limbo: bool = False
    mail: Mail = ()
    copied: bool = False


def members(bookies: int) -> Iterator[int]:
    """The bookies of a set."""
    bookie = 0
    while bookies:
        if bookies & 1:
            yield bookie
        bookies >>= 1
        bookie += 1
