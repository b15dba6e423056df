"""The events that a driver feeds the machines: calls of the user and answers to the effects.

Every effect that requests something carries a token (several bookies: a token each). Whatever happens, the driver
answers each token exactly once, with the event that the effect names; a token of adds once for each entry, in
batches. Answers to abandoned requests are ignored.
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


class NoAnswer(Enum):
    """Stands in for a bookie's response if there is no usable one: always unknown."""

    CONNECTION_LOST = "connection lost"
    TIMEOUT = "no answer in time"
    BAD_DIGEST = "the digest does not match"
    NOT_REACHED = "cannot be reached"
    NOT_UNDERSTOOD = "the answer cannot be decoded"

    @property
    def evidence(self) -> Evidence:
        return Evidence.UNKNOWN


Answer = Code | NoAnswer


def describe(answers: Iterable[tuple[BookieId, Answer | None]]) -> str:
    """``127.0.0.1:3182 answered EIO, 127.0.0.1:3183: connection lost``, for messages; None: no answer yet."""
    return ", ".join(
        f"{bookie} answered {answer.name}"
        if isinstance(answer, Code)
        else f"{bookie}: {answer.value if answer is not None else 'nothing yet'}"
        for bookie, answer in answers
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
    """Writer: have everything that is acknowledged now on disk (Forced)."""


# ---- observations of the driver -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BookieRecovered:
    """Writer: this bookie can be tried (again), whether it failed before or is new."""

    bookie: BookieId


@dataclass(frozen=True, slots=True)
class SpeculativeRead:
    """Reader: no response for a while; ask the next bookie without waiting longer."""


# ---- answers to effects -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddsAnswered:
    """Answers entries of one target of SendAdds: those that it was sent with this token from ``first`` to ``last``.
    ``connection`` numbers the connections to that bookie, ascending.
    """

    token: int
    first: EntryId
    last: EntryId
    answer: Answer
    connection: int = 0


@dataclass(frozen=True, slots=True)
class ForceAnswered:
    """Answers one target of SendForce; ``connection`` as in AddsAnswered, and the same count."""

    token: int
    answer: Answer
    connection: int


@dataclass(frozen=True, slots=True)
class ReadAnswered:
    """Answers SendRead. ``entry`` is present exactly if the answer is EOK: a bad digest is NoAnswer.BAD_DIGEST."""

    token: int
    answer: Answer
    entry: VerifiedEntry | None = None


@dataclass(frozen=True, slots=True)
class LacAnswered:
    """Answers SendReadLac. ``lac``: the highest that the response proves, None if it proves none."""

    token: int
    answer: Answer
    lac: EntryId | None = None


@dataclass(frozen=True, slots=True)
class PollAnswered:
    """Answers SendPoll. With EOK ``lac`` is the bookie's, and ``entry`` the one after the requested LAC, if there is
    a higher one and the bookie has it.
    """

    token: int
    answer: Answer
    lac: EntryId | None = None
    entry: VerifiedEntry | None = None


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """Answers ReadMetadata."""

    token: int
    metadata: LedgerMetadata
    version: int


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """Answers WriteMetadata: it is stored, with this version."""

    token: int
    version: int


@dataclass(frozen=True, slots=True)
class MetadataConflict:
    """Answers WriteMetadata: the stored version is another one, nothing was written."""

    token: int


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """Answers ReadMetadata or WriteMetadata: the outcome is an error; a write may have taken effect all the same."""

    token: int
    error: MetadataError


@dataclass(frozen=True, slots=True)
class ReplacementsPicked:
    """Answers PickReplacements: as many bookies as there are, at most as many as requested, in the order requested."""

    token: int
    bookies: tuple[BookieId, ...]


MetadataAnswer = MetadataRead | MetadataWritten | MetadataConflict | MetadataFailed
Event = (
    Append
    | Close
    | Force
    | BookieRecovered
    | SpeculativeRead
    | AddsAnswered
    | ForceAnswered
    | ReadAnswered
    | LacAnswered
    | PollAnswered
    | MetadataAnswer
    | ReplacementsPicked
)
