"""The events that a driver feeds the machines: calls of the user and the completion of effects.

Every effect that requests something carries a token (several bookies: a token each). Whatever happens, the driver
completes each token exactly once, with the event that the effect names; a token of adds once for each entry, in
batches. Events of abandoned requests are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from bkbox.base.ids import BookieId, EntryId
from bkbox.errors import MetadataError
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata


class NoResponse(Enum):
    """Stands in for a bookie's response if there is no usable one: always unknown."""

    CONNECTION_LOST = "connection lost"
    TIMEOUT = "no answer in time"
    BAD_DIGEST = "the digest does not match"
    NOT_REACHED = "cannot be reached"
    NOT_UNDERSTOOD = "the answer cannot be decoded"

    @property
    def evidence(self) -> Evidence:
        return Evidence.UNKNOWN


RequestStatus = Code | NoResponse


def describe(statuses: Iterable[tuple[BookieId, RequestStatus | None]]) -> str:
    """``127.0.0.1:3182 answered EIO, 127.0.0.1:3183: connection lost``, for messages; None: no response yet."""
    return ", ".join(
        f"{bookie} answered {status.name}"
        if isinstance(status, Code)
        else f"{bookie}: {status.value if status is not None else 'nothing yet'}"
        for bookie, status in statuses
    )


# ---- calls of the user --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Writer: add these entries, one at least; they get the ids from ``writer.next_entry`` on."""

    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Close:
    """Writer: end the ledger once all outstanding adds are acknowledged or failed."""


@dataclass(frozen=True, slots=True)
class Force:
    """Writer: force everything that is acknowledged now to disk (Forced)."""


# ---- observations of the driver -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BookieRecovered:
    """Writer: this bookie can be tried (again), whether it failed before or is new."""

    bookie: BookieId


@dataclass(frozen=True, slots=True)
class SpeculativeRead:
    """Reader: no response for a while; ask the next bookie without waiting longer."""


# ---- completion of effects ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddsCompleted:
    """Completes entries of one target of SendAdds: those that it was sent with this token from ``first`` to ``last``.
    ``connection`` numbers the connections to that bookie, ascending.
    """

    token: int
    first: EntryId
    last: EntryId
    status: RequestStatus
    connection: int = 0


@dataclass(frozen=True, slots=True)
class ForceCompleted:
    """Completes one target of SendForce; ``connection`` as in AddsCompleted, and the same count."""

    token: int
    status: RequestStatus
    connection: int


@dataclass(frozen=True, slots=True)
class ReadCompleted:
    """Completes SendRead. ``entry`` is present exactly if the status is EOK: a bad digest is NoResponse.BAD_DIGEST."""

    token: int
    status: RequestStatus
    entry: VerifiedEntry | None = None


@dataclass(frozen=True, slots=True)
class LacCompleted:
    """Completes SendReadLac. ``lac``: the highest that the response proves, None if it proves none."""

    token: int
    status: RequestStatus
    lac: EntryId | None = None


@dataclass(frozen=True, slots=True)
class PollCompleted:
    """Completes SendPoll. With EOK ``lac`` is the bookie's, and ``entry`` the one after the requested LAC, if there is
    a higher one and the bookie has it.
    """

    token: int
    status: RequestStatus
    lac: EntryId | None = None
    entry: VerifiedEntry | None = None


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """Completes ReadMetadata."""

    token: int
    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """Completes WriteMetadata: it is stored, with this version."""

    token: int
    version: int


@dataclass(frozen=True, slots=True)
class MetadataConflict:
    """Completes WriteMetadata: the stored version is another one, nothing was written."""

    token: int


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """Completes ReadMetadata or WriteMetadata: the outcome is an error; a write may have taken effect all the same."""

    token: int
    error: MetadataError


@dataclass(frozen=True, slots=True)
class ReplacementsPicked:
    """Completes PickReplacements: as many bookies as there are, at most as many as requested, in their order."""

    token: int
    bookies: tuple[BookieId, ...]


MetadataEvent = MetadataRead | MetadataWritten | MetadataConflict | MetadataFailed
Event = (
    Append
    | Close
    | Force
    | BookieRecovered
    | SpeculativeRead
    | AddsCompleted
    | ForceCompleted
    | ReadCompleted
    | LacCompleted
    | PollCompleted
    | MetadataEvent
    | ReplacementsPicked
)
