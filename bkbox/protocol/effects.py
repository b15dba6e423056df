"""The effects of the machines: requests to the driver, and outcomes.

Requests carry a token that the driver echoes in the event named by each class. Outcomes carry none. After a final one
(EntryFound, LacFound, Polled, Recovered, Closed, CloseFailed, and Failed of any machine but a writer) the machine
requests nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bkbox.base.ids import BookieId, EntryId
from bkbox.errors import BkboxError
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata


class Target(NamedTuple):
    """One bookie of a group send, and the token of its response."""

    token: int
    bookie: BookieId


# ---- requests -----------------------------------------------------------------------------------


class AddTarget(NamedTuple):
    """One bookie that gets these entries of a batch, ascending: a range if it gets them without a gap. All are
    completed with this one token.
    """

    token: int
    bookie: BookieId
    entries: Sequence[int]


@dataclass(frozen=True, slots=True)
class SendAdds:
    """Send entries of a batch of consecutive ones to each target (AddsCompleted, once for each entry). The driver
    packages them: digest over these very fields.

    ``payloads`` are those of the entries from ``first`` on. ``length``: payload bytes of the ledger before ``first``.
    LAC and length of an entry are the same whenever it is sent, so that its replicas are byte-identical.
    """

    first: EntryId
    lac: EntryId
    length: int
    payloads: Sequence[bytes]
    recovery: bool
    targets: tuple[AddTarget, ...]
    deferred_sync: bool = False


@dataclass(frozen=True, slots=True)
class SendForce:
    """Each target syncs what it acknowledged before (ForceCompleted each), over the connection of its adds."""

    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class SendRead:
    """Read an entry, or with id -1 the bookie's last one (ReadCompleted). ``fence``: stop normal writers first."""

    token: int
    bookie: BookieId
    entry_id: EntryId
    fence: bool


@dataclass(frozen=True, slots=True)
class SendReadLac:
    """Read a bookie's explicit LAC and last entry (LacCompleted)."""

    token: int
    bookie: BookieId


@dataclass(frozen=True, slots=True)
class SendPoll:
    """Ask a bookie for a LAC above this one and the entry after it (PollCompleted). ``wait``: the bookie may use the
    remaining time, else it responds at once.
    """

    token: int
    bookie: BookieId
    previous_lac: EntryId
    wait: bool


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the ledger's metadata from the store (MetadataRead or MetadataFailed)."""

    token: int


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Write metadata if the stored version is still this one (MetadataWritten, MetadataConflict, MetadataFailed)."""

    token: int
    metadata: LedgerMetadata
    expected_version: int


@dataclass(frozen=True, slots=True)
class PickReplacements:
    """Find a bookie outside the ensemble for each failed one (ReplacementsPicked, with fewer or none if need be)."""

    token: int
    failed: tuple[BookieId, ...]
    ensemble: tuple[BookieId, ...]


# ---- outcomes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acked:
    """Writer: entries ``first`` to ``last`` (inclusive, next in order) are acknowledged."""

    first: EntryId
    last: EntryId


@dataclass(frozen=True, slots=True)
class Forced:
    """Writer: completes Force: every entry up to ``lac`` is on disk, and confirmed."""

    lac: EntryId


@dataclass(frozen=True, slots=True)
class Failed:
    """The operation ended with this error.

    A writer has then failed every append not acknowledged so far. It accepts no further append, but still accepts
    Close.
    """

    error: BkboxError


@dataclass(frozen=True, slots=True)
class Closed:
    """Writer: the metadata says CLOSED, with this writer's last entry and length."""

    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class CloseFailed:
    """Writer: it could not close the ledger; acknowledged entries are in it all the same."""

    error: BkboxError


@dataclass(frozen=True, slots=True)
class EntryFound:
    """Reader: the entry."""

    entry: VerifiedEntry


@dataclass(frozen=True, slots=True)
class LacFound:
    """LAC read: every entry up to ``lac`` is acknowledged; ``last`` is the entry that proves it, if any does."""

    lac: EntryId
    last: VerifiedEntry | None


@dataclass(frozen=True, slots=True)
class Polled:
    """Long poll: the highest known LAC, which is a new one only if it reaches the requested entry; ``entry``: that
    entry, if the bookie with this LAC has it.
    """

    lac: EntryId
    entry: VerifiedEntry | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """Recovery: the ledger is CLOSED, by this client or another, with this metadata."""

    metadata: LedgerMetadata
    version: int


Request = (
    SendAdds
    | SendForce
    | SendRead
    | SendReadLac
    | SendPoll
    | ReadMetadata
    | WriteMetadata
    | PickReplacements
)
Outcome = (
    Acked | Forced | Failed | Closed | CloseFailed | EntryFound | LacFound | Polled | Recovered
)
Effect = Request | Outcome


class Tokens:
    """Numbers the requests of one machine, from 1."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        self.last += 1
        return self.last
