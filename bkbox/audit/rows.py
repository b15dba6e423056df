"""The rows of the result tables, as judgement.py makes them. Their Arrow types are in tables.py.

``first_entry`` to ``last_entry`` counts only entries that the bookie has to hold, so that all that a bookie lacks of a
striped ledger is one row; ``entries`` is their number.
"""

from __future__ import annotations

from typing import NamedTuple


class MissingRange(NamedTuple):
    """Faulty entries of a ledger on a bookie; rows of ``missing``, ``corrupt``, ``unreadable`` and ``unknown``.
    ``why``: the bookie's response, or that its list does not have them."""

    ledger_id: int
    bookie: str
    first_entry: int
    last_entry: int
    entries: int
    why: str


class Divergent(NamedTuple):
    """One copy of an entry whose copies differ, each with a good digest.

    ``sha256``: of the payload, in hexadecimal; ``length``: payload bytes of the ledger up to this entry, by this copy.
    ``copies``: the number of equal copies. ``verdict``: 'right', 'wrong' or 'undecided'; ``proof``: the evidence,
    'metadata', 'length' (of the entries around it) or 'ack quorum'.
    """

    ledger_id: int
    entry_id: int
    bookie: str
    sha256: str
    length: int
    copies: int
    verdict: str
    proof: str


class UnderReplicated(NamedTuple):
    """A ledger that lacks copies: the entry with the fewest is known to have ``known_copies``, and may have
    ``possible_copies``; None if no entry is settled. ``gone``: bookies that are named and not registered; ``lacking``:
    registered bookies that lack entries, ``entries`` in all."""

    ledger_id: int
    state: str
    write_quorum: int
    ack_quorum: int
    known_copies: int | None
    possible_copies: int | None
    gone: list[str]
    lacking: list[str]
    entries: int


class Orphaned(NamedTuple):
    """A ledger that a bookie has and no metadata know. ``last_entry``: its last one there, -1 if the bookie does not
    say."""

    ledger_id: int
    bookie: str
    last_entry: int


class Limbo(NamedTuple):
    """A bookie that reports a ledger as in limbo: it does not know what it has. ``entries``: the number of entries
    that it has to hold."""

    bookie: str
    ledger_id: int
    entries: int


class NoCopy(NamedTuple):
    """A ledger with settled entries of which no bookie returns a copy: ``entries`` of them, in ``ranges``. ``why``: the
    response of each bookie. None of them is in ``missing``, ``corrupt`` or ``unreadable``: there is nothing to copy."""

    ledger_id: int
    state: str
    entries: int
    ranges: str
    why: str


class Blocked(NamedTuple):
    """An open ledger that recovery cannot close: at least AQ bookies of a write set are in limbo or gone."""

    ledger_id: int
    state: str
    write_quorum: int
    ack_quorum: int
    limbo: list[str]
    gone: list[str]


class ForceClosedLedger(NamedTuple):
    """A ledger that an operator closed with loss accepted, by its record (bkbox/wire/metadata/loss.py)."""

    ledger_id: int
    at_ms: int
    by: str
    run: str
    end: int
    lost: str
    lost_entries: int
    doubtful: str
    unknown_after: int | None


class Ledger(NamedTuple):
    """A ledger by its metadata. ``entries`` and ``bytes`` (payload, one copy): of a closed ledger, otherwise None."""

    ledger_id: int
    state: str
    owner: str
    ctime_ms: int | None
    entries: int | None
    bytes: int | None
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: int
    bookies: list[str]


class RackCopies(NamedTuple):
    """Copies of entries in a rack: ``copies`` are present, ``lacking`` are missing; ``only_here``: entries whose copies
    are all placed in this rack."""

    rack: str
    ledgers: int
    copies: int
    lacking: int
    only_here: int


class OwnerBytes(NamedTuple):
    """The ledgers of one owner; ``stored_bytes``: payload in all copies. All but the number of ledgers: closed ones
    only."""

    owner: str
    ledgers: int
    open_ledgers: int
    entries: int
    bytes: int
    stored_bytes: int
