"""Properties of a log that must always hold:

- *total order*: every reader sees positions ascend, and exactly the records in the log, in its order;
- *no hole*: between two consecutive records of a reader there is none in the log; and of the appends of one
  opening of the log a prefix is in it, in order;
- *no loss*: an acknowledged record is at its acknowledged position, unless it was truncated since;
- *no duplicate*: of a writer id and sequence number there is one record in the log;
- *one writer at a time*: the records of an opening are after those of all openings before it;
- a ledger that was deleted by hand, and that an operator took out of the log, is lost with its records, and all of
  this holds for the rest;
- *no end of its own*: a writer ends, or an opening fails, only because of another writer, the metadata store, a
  bookie or a ledger that is gone;
- *an end*: once the faults are over a client can open the log and read all that is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bkbox.base.ids import EntryId, LedgerId
from bkbox.client.log.entry import decode
from bkbox.client.log.ledger_list import LedgerList
from bkbox.client.log.position import Position
from bkbox.errors import (
    BkboxError,
    LogLedgerLostError,
    MetadataError,
    NotLeaderError,
    RecoveryAbortedError,
)
from proof.sim.logs.fake_ledgers import World

Records = list[tuple[Position, bytes]]

FROM_OUTSIDE = NotLeaderError, MetadataError, RecoveryAbortedError, LogLedgerLostError
"""Errors by which a writer may end."""

PRODUCERS = 3
"""Writer ids, whose sequence numbers continue across openings of the log."""


@dataclass
class History:
    """The observations of the actors. ``appended``: by opening, payloads in the order of the calls."""

    appended: dict[int, list[bytes]] = field(default_factory=dict)
    acked: dict[Position, bytes] = field(default_factory=dict)
    read: list[list[tuple[Position, bytes]]] = field(default_factory=list)
    sequences: list[int] = field(default_factory=lambda: [0] * PRODUCERS)
    lost: set[int] = field(default_factory=set)
    """Ledgers that were deleted by hand."""
    ends: list[BkboxError] = field(default_factory=list)
    """Errors with which openings of the log, and their writers, ended."""


def check(world: World, history: History, left: Records, stored: LedgerList) -> str | None:
    """The violated property, None if all hold. ``left``: the records read at the end."""
    history = _without_lost(world, history)
    whole = _whole(world, stored, history.lost)
    return (
        _order(whole, left, stored)
        or _acknowledged(whole, history)
        or _once(whole, history, stored)
        or _openings(whole, history)
        or _readers(whole, history)
        or _ends(history)
    )


def _without_lost(world: World, history: History) -> History:
    """The observations without what was deleted by hand."""
    if not history.lost:
        return history
    truncated = {
        record.payload
        for number in history.lost
        for entry in world.ledgers[number].entries
        for record in decode(entry).records
    }
    return replace(
        history,
        appended={
            epoch: [payload for payload in appended if payload not in truncated]
            for epoch, appended in history.appended.items()
        },
        acked={
            position: payload
            for position, payload in history.acked.items()
            if position.ledger_id not in history.lost
        },
        read=[
            [each for each in seen if each[0].ledger_id not in history.lost]
            for seen in history.read
        ],
    )


def _whole(world: World, stored: LedgerList, lost: set[int]) -> Records:
    """The whole log ever, with truncated records, for which ledgers are deleted as well."""
    found = []
    for number, ledger in sorted(world.ledgers.items()):
        is_truncated = ledger.deleted and number < stored.start.ledger_id and number not in lost
        if ledger.end is None or not (number in stored.ledgers or is_truncated):
            continue
        for entry, data in enumerate(ledger.entries[: ledger.end]):
            for index, record in enumerate(decode(data).records):
                position = Position(LedgerId(number), EntryId(entry), index)
                found.append((position, record.payload))
    return found


def _order(whole: Records, left: Records, stored: LedgerList) -> str | None:
    expected = [each for each in whole if each[0] >= stored.start]
    return None if left == expected else "total order: what is read at the end is not what is there"


def _acknowledged(whole: Records, history: History) -> str | None:
    there = dict(whole)
    for position, payload in history.acked.items():
        if there.get(position) != payload:
            return f"no loss: {payload!r} was acknowledged at {position}, and there is {there.get(position)!r}"
    return None


def _once(whole: Records, history: History, stored: LedgerList) -> str | None:
    """Also covers truncated records; but that one of them existed may have been known to a lost ledger alone."""
    seen = set()
    for position, payload in whole:
        if history.lost and position < stored.start:
            continue
        if payload in seen:
            return f"no duplicate: {payload!r} is there again at {position}"
        seen.add(payload)
    return None


def _openings(whole: Records, history: History) -> str | None:
    numbered = [payload for _, payload in whole if not payload.startswith(b"once")]
    epochs = [int(payload.partition(b"/")[0]) for payload in numbered]
    if epochs != sorted(epochs):
        return "one writer at a time: the records of two openings are mixed"
    for epoch, appended in history.appended.items():
        prefix = b"%d/" % epoch
        found = [payload for payload in numbered if payload.startswith(prefix)]
        if found != appended[: len(found)]:
            return f"no hole: of what opening {epoch} appended not a first part is there"
    return None


def _readers(whole: Records, history: History) -> str | None:
    places = {position: index for index, (position, _) in enumerate(whole)}
    for seen in history.read:
        if not seen:
            continue
        first = places.get(seen[0][0])
        if first is None or whole[first : first + len(seen)] != seen:
            return "no hole: a reader did not see the log as it is"
    return None


def _ends(history: History) -> str | None:
    for error in history.ends:
        if not isinstance(error, FROM_OUTSIDE):
            return f"no end of its own: {type(error).__name__}: {error}"
    return None
