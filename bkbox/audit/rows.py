"""The rows of the result tables, as the kernel makes them. Their Arrow types are in tables.py.

``first_entry`` to ``last_entry`` of a run means: of the entries that the bookie has to hold, so that all that a bookie
lacks of a striped ledger is one row; ``entries`` is how many these are.
"""

from __future__ import annotations

from typing import NamedTuple


class MissingRange(NamedTuple):
    """Entries of a ledger that are not as they should be on a bookie; of ``missing``, ``corrupt``, ``unreadable`` and
    ``unknown``. ``why``: what the bookie answered, or that its list does not have them."""

    ledger_id: int
    bookie: str
    first_entry: int
    last_entry: int
    entries: int
    why: str


class Divergent(NamedTuple):
    """One copy of an entry of which there are different ones, each with a good digest.

    ``sha256``: of the payload, in hexadecimal; ``length``: payload bytes of the ledger up to this entry, as this copy
    says. ``copies``: how many are like it. ``verdict``: 'right', 'wrong' or 'undecided'; ``proof``: what says so,
    'metadata',
    'length' (those of the entries around it) or 'ack quorum'.
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
    ``possible_copies``; None where no entry's place is settled. ``gone``: bookies that are named and not there;
    ``lacking``: bookies that are there and lack entries, ``entries`` in all."""

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
    """A ledger that a bookie has and no metadata knows. ``last_entry``: the last one there, -1 if it does not say."""

    ledger_id: int
    bookie: str
    last_entry: int


class Limbo(NamedTuple):
    """A bookie that does not know what it has of a ledger, and says so. ``entries``: how many it has to hold."""

    bookie: str
    ledger_id: int
    entries: int


class NoCopy(NamedTuple):
    """A ledger with settled entries of which no bookie gives a copy: ``entries`` of them, in ``ranges``. ``why``: what
    each bookie answered. None of them is in ``missing``, ``corrupt`` or ``unreadable``: there is nothing to copy."""

    ledger_id: int
    state: str
    entries: int
    ranges: str
    why: str


class Blocked(NamedTuple):
    """A ledger that is not closed and that recovery cannot close: of a write set at least AQ bookies are in limbo or
    gone."""

    ledger_id: int
    state: str
    write_quorum: int
    ack_quorum: int
    limbo: list[str]
    gone: list[str]


class Ended(NamedTuple):
    """A ledger that an operator ended with loss accepted, by its record (bkbox/wire/metadata/loss.py)."""

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
    """A ledger by its metadata. ``entries`` and ``bytes`` (payload, one copy): of a closed one, else None."""

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
    """Copies of entries in a rack: ``copies`` of them are there, ``lacking`` should be; ``only_here``: entries all of
    whose copies are to be in this rack."""

    rack: str
    ledgers: int
    copies: int
    lacking: int
    only_here: int


class OwnerBytes(NamedTuple):
    """What belongs to one owner; ``stored_bytes``: payload in all copies. Of closed ledgers, but for their number."""

    owner: str
    ledgers: int
    open_ledgers: int
    entries: int
    bytes: int
    stored_bytes: int
