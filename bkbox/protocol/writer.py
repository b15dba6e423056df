"""The writer of a new ledger: appends, ensemble changes, close.

Rules:

- an append is acknowledged once AQ bookies of its write set hold it and all before it are acknowledged; LAC (last add
  confirmed) = the last such;
- EFENCED from any bookie ends the writer: outstanding appends may or may not end up in the ledger. From a bookie that
  was disconnected since it stored an add it is a failure like others (adds.py);
- any other failure of a bookie asks for a replacement, for all failed ones at once. The new ensemble counts from LAC
  + 1 and is written by CAS, only while the ledger is OPEN. From the write until its outcome is known LAC stands
  still: an entry acknowledged meanwhile would be credited to bookies that never got it;
- no replacement: go on while AQ of each write set is left, fail when it is not;
- only an OPEN ledger is closed. Java's writer also closes one that is IN_RECOVERY; then an entry that a recovery has
  written back, and a tailing reader has read, could fall behind the end. Nothing is lost by leaving it to the
  recovery: everything acknowledged is in what it finds;
- with deferred sync an acknowledged entry may still be lost, until it is forced (force.py). LAC, the one in entries
  too, is that of the last force; Close forces first. The ensemble never changes, since what a replaced bookie has not
  synced could be forced no more: a bookie that fails ends the writer, and the ledger can be closed at LAC.

A CAS that failed, or whose outcome is unknown, is followed by a fresh read of the metadata, which decides:

==================================  ======================  =================
metadata now                        for an ensemble change  for a close
==================================  ======================  =================
OPEN, what was to be written        done                    (cannot be)
OPEN, otherwise                     try again on it         try again on it
OPEN, version as before an error    that error              that error
IN_RECOVERY                         LedgerFencedError       LedgerFencedError
CLOSED, this last entry and length  LedgerClosedError       done
CLOSED otherwise                    LedgerClosedError       LedgerClosedError
==================================  ======================  =================

Source: LedgerHandle.java, PendingAddOp.java, EnsembleUtils.java, MetadataUpdateLoop.java.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from bkbox.base.ids import NO_ENTRY, EntryId
from bkbox.base.text import counted
from bkbox.errors import (
    AddFailedError,
    BkboxError,
    BugError,
    HandleClosedError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataError,
    UnauthorizedError,
)
from bkbox.protocol.adds import Adds, fragments_from
from bkbox.protocol.effects import (
    Closed,
    CloseFailed,
    Effect,
    Failed,
    Forced,
    PickReplacements,
    ReadMetadata,
    Tokens,
    WriteMetadata,
)
from bkbox.protocol.events import (
    AddsCompleted,
    Append,
    BookieRecovered,
    Close,
    Force,
    ForceCompleted,
    MetadataConflict,
    MetadataFailed,
    MetadataRead,
    MetadataWritten,
    ReplacementsPicked,
)
from bkbox.protocol.force import Forcing
from bkbox.protocol.quorum import QuorumSizes
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

WriterEvent = (
    Append
    | Close
    | Force
    | AddsCompleted
    | ForceCompleted
    | BookieRecovered
    | ReplacementsPicked
    | MetadataRead
    | MetadataWritten
    | MetadataConflict
    | MetadataFailed
)


class _Step(Enum):
    PICK = auto()
    WRITE_CHANGE = auto()
    REREAD_FOR_CHANGE = auto()
    WRITE_CLOSE = auto()
    REREAD_FOR_CLOSE = auto()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The one outstanding request that is not an add, and its context."""

    step: _Step
    token: int
    positions: tuple[int, ...] = ()
    proposed: LedgerMetadata | None = None
    write_error: MetadataError | None = None


class LedgerWriter:
    """Writes the ledger of this metadata, which its caller has just created (OPEN, one fragment, no entry).

    Feed every event to ``handle`` and carry out the effects in order. Effects: SendAdds, SendForce, PickReplacements,
    WriteMetadata, ReadMetadata; Acked (ascending, without gap), at most one Failed, for each Close one Closed or
    CloseFailed, and for each Force one Forced unless Failed comes first.
    """

    def __init__(
        self, metadata: LedgerMetadata, version: int, *, deferred_sync: bool = False
    ) -> None:
        if metadata.state is not LedgerState.OPEN:
            raise LedgerClosedError(f"ledger {metadata.ledger_id} is {metadata.state.name}")
        self.metadata = metadata
        self.version = version
        self.next_entry = EntryId(0)
        self.failure: BkboxError | None = None
        self._length = 0
        self._tokens = Tokens()
        self._adds = Adds(
            QuorumSizes(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
            metadata.last_fragment.ensemble,
            NO_ENTRY,
            0,
            recovery=False,
            tokens=self._tokens,
            deferred_sync=deferred_sync,
        )
        self._forcing = Forcing(self._tokens) if deferred_sync else None
        self._waiting: _Waiting | None = None
        self._ask_for_replacements = False
        self._closing = False
        self._closed = False

    @property
    def last_add_confirmed(self) -> EntryId:
        return self._confirmed.lac

    @property
    def length(self) -> int:
        """Payload bytes up to the LAC."""
        return self._confirmed.length

    @property
    def _confirmed(self) -> Adds | Forcing:
        """The object with the ledger's confirmed ``lac`` and ``length``."""
        return self._adds if self._forcing is None else self._forcing

    @property
    def deferred_sync(self) -> bool:
        return self._forcing is not None

    @property
    def outstanding(self) -> int:
        """Appends neither acknowledged nor failed."""
        return len(self._adds)

    @property
    def failed_bookies(self) -> frozenset[str]:
        """Members of the present ensemble that get no adds until BookieRecovered or a replacement."""
        return frozenset(self._adds.ensemble[position] for position in self._adds.failed)

    def handle(self, event: WriterEvent) -> list[Effect]:
        """Handle one event. Raises HandleClosedError for an Append or Force after Close, Closed or Failed."""
        effects: Sequence[Effect]
        match event:
            case AddsCompleted():
                effects = self._on_adds(event)
            case Append():
                effects = self._append(event.payloads)
            case Force():
                effects = self._force()
            case ForceCompleted():
                effects = self._on_force(event)
            case Close() if self._closed:
                effects = [Closed(self.metadata, self.version)]
            case Close():
                self._closing = True
                effects = []
            case BookieRecovered():
                effects = [*self._adds.bookie_back(event.bookie)]
                self._ask_for_replacements = bool(self._adds.failed)
            case _:
                effects = self._on_completed(event)
        return [*effects, *self._go_on()]

    # ---- adds -----------------------------------------------------------------------------------

    def _append(self, payloads: Sequence[bytes]) -> Sequence[Effect]:
        self._must_be_writable()
        first = self.next_entry
        length = self._length
        self.next_entry = EntryId(first + len(payloads))
        self._length += sum(map(len, payloads))
        return self._adds.send(first, self._confirmed.lac, length, payloads)

    def _must_be_writable(self) -> None:
        if self._closing or self._closed or self.failure is not None:
            why = f": {self.failure}" if self.failure is not None else ""
            raise HandleClosedError(f"ledger {self.metadata.ledger_id} takes no more entries{why}")

    def _on_adds(self, event: AddsCompleted) -> Sequence[Effect]:
        status = self._adds.on_completed(event)
        if status is None:
            return []
        if status is Code.EFENCED:
            return self._fail(LedgerFencedError(f"ledger {self._named()} is fenced: {self._why()}"))
        if status is Code.EUA:
            return self._fail(UnauthorizedError(f"ledger {self._named()}: {self._why()}"))
        if self._forcing is not None:
            why = f"a ledger with deferred sync has to keep its bookies: {self._why()}"
            return self._fail(AddFailedError(f"ledger {self._named()}: {why}"))
        self._ask_for_replacements = True
        return []

    def _force(self) -> Sequence[Effect]:
        self._must_be_writable()
        if self._forcing is None:
            return [Forced(self._adds.lac)]
        self._forcing.call()
        return []

    def _on_force(self, event: ForceCompleted) -> Sequence[Effect]:
        if self._forcing is None or self.failure is not None:
            return []
        why = self._forcing.on_completed(event, self._adds)
        if why is None:
            return []
        return self._fail(
            AddFailedError(
                f"ledger {self._named()}: what was added after entry "
                f"{self.last_add_confirmed} cannot be forced to disk: {why}"
            )
        )

    def _fail(self, error: BkboxError) -> list[Effect]:
        if self.failure is not None:
            return []
        self.failure = error
        self._adds.drop()
        return [Failed(error)]

    # ---- the next step --------------------------------------------------------------------------

    def _go_on(self) -> list[Effect]:
        effects: list[Effect] = []
        waiting = self._waiting
        if waiting is None or waiting.step is _Step.PICK:
            acked = self._adds.advance()
            if acked is not None:
                effects.append(acked)
        if waiting is not None or self._closed:
            return effects
        if self.failure is None and not (self._closing and not len(self._adds)):
            if self._ask_for_replacements:
                return [*effects, self._pick()]
            hopeless = self._adds.hopeless()
            if hopeless is not None:
                fenced = Code.EFENCED in self._adds.failed.values()
                kind = LedgerFencedError if fenced else AddFailedError
                effects += self._fail(
                    kind(
                        f"entry {hopeless} of ledger {self._named()} cannot reach its ack quorum "
                        f"of {self.metadata.ack_quorum} and no replacement is available: "
                        f"{self._why()}"
                    )
                )
        done = self._closing and not len(self._adds)
        if self._forcing is not None and self.failure is None:
            effects += self._forcing.go_on(self._adds, closing=done)
            done = done and self._forcing.lac == self._adds.lac
        if done:
            effects.append(self._write_close())
        return effects

    def _wait_for(self, waiting: _Waiting) -> None:
        self._waiting = waiting

    def _pick(self) -> Effect:
        self._ask_for_replacements = False
        ensemble = tuple(self._adds.ensemble)
        positions = tuple(sorted(self._adds.failed))
        token = self._tokens.next()
        self._wait_for(_Waiting(_Step.PICK, token, positions))
        return PickReplacements(token, tuple(ensemble[p] for p in positions), ensemble)

    def _write(self, step: _Step, proposed: LedgerMetadata) -> Effect:
        token = self._tokens.next()
        self._wait_for(_Waiting(step, token, proposed=proposed))
        return WriteMetadata(token, proposed, self.version)

    def _write_close(self) -> Effect:
        closed = replace(
            self.metadata.with_state(LedgerState.CLOSED),
            last_entry=self.last_add_confirmed,
            length=self.length,
        )
        return self._write(_Step.WRITE_CLOSE, closed)

    # ---- completion of other requests -----------------------------------------------------------

    def _on_completed(
        self,
        event: ReplacementsPicked
        | MetadataRead
        | MetadataWritten
        | MetadataConflict
        | MetadataFailed,
    ) -> Sequence[Effect]:
        waiting = self._waiting
        if waiting is None or waiting.token != event.token:
            return []
        self._waiting = None
        match event:
            case ReplacementsPicked():
                return self._change_ensemble(waiting.positions, event)
            case MetadataWritten():
                if waiting.proposed is None:
                    raise BugError(f"nothing was written with token {event.token}")
                if waiting.step is _Step.WRITE_CLOSE:
                    return self._end(waiting.proposed, event.version)
                return self._adopt(waiting.proposed, event.version)
            case MetadataConflict():
                return self._reread(waiting, None)
            case MetadataRead():
                return self._decide(waiting, event)
            case MetadataFailed():
                if waiting.step in (_Step.WRITE_CHANGE, _Step.WRITE_CLOSE):
                    return self._reread(waiting, event.error)
                return self._give_up(waiting, event.error)

    def _change_ensemble(
        self, positions: tuple[int, ...], event: ReplacementsPicked
    ) -> Sequence[Effect]:
        ensemble = list(self._adds.ensemble)
        if len(set(ensemble).union(event.bookies)) != len(set(ensemble)) + len(event.bookies):
            raise BugError(f"replacements {event.bookies} are in the ensemble {ensemble} already")
        changed = False
        for position, bookie in zip(positions, event.bookies, strict=False):
            if position in self._adds.failed:
                ensemble[position] = bookie
                changed = True
        if not changed or self.failure is not None:
            return []
        fragments = fragments_from(
            self.metadata.fragments, EntryId(self._adds.lac + 1), tuple(ensemble)
        )
        proposed = replace(self.metadata, fragments=fragments, creator_token=0)
        return [self._write(_Step.WRITE_CHANGE, proposed)]

    def _reread(self, waiting: _Waiting, error: MetadataError | None) -> Sequence[Effect]:
        closing = waiting.step is _Step.WRITE_CLOSE
        token = self._tokens.next()
        step = _Step.REREAD_FOR_CLOSE if closing else _Step.REREAD_FOR_CHANGE
        self._wait_for(_Waiting(step, token, write_error=error))
        return [ReadMetadata(token)]

    def _decide(self, waiting: _Waiting, event: MetadataRead) -> Sequence[Effect]:
        """Decide by the table above."""
        found = event.metadata
        if found.state is LedgerState.CLOSED:
            same = (found.last_entry, found.length) == (self.last_add_confirmed, self.length)
            if waiting.step is _Step.REREAD_FOR_CLOSE and same:
                return self._end(found, event.version)
            return self._give_up(
                waiting,
                LedgerClosedError(
                    f"another client closed ledger {self._named()} at entry {found.last_entry}"
                ),
            )
        if (
            found.state is LedgerState.IN_RECOVERY
            or found.last_fragment.first_entry > self._adds.lac + 1
        ):
            return self._give_up(
                waiting, LedgerFencedError(f"another client recovers ledger {self._named()}")
            )
        if waiting.write_error is not None and event.version == self.version:
            return self._give_up(waiting, waiting.write_error)
        self._ask_for_replacements = bool(self._adds.failed)
        return self._adopt(found, event.version)

    def _adopt(self, metadata: LedgerMetadata, version: int) -> Sequence[Effect]:
        self.metadata = metadata
        self.version = version
        present = self._adds.ensemble
        replaced = {
            position: bookie
            for position, bookie in enumerate(metadata.last_fragment.ensemble)
            if bookie != present[position]
        }
        effects = self._adds.replace(replaced)
        if not self._adds.failed:
            self._ask_for_replacements = False
        return effects

    def _end(self, metadata: LedgerMetadata, version: int) -> Sequence[Effect]:
        self.metadata = metadata
        self.version = version
        self._closed = True
        self._closing = False
        return [Closed(metadata, version)]

    def _give_up(self, waiting: _Waiting, error: BkboxError) -> Sequence[Effect]:
        if waiting.step is _Step.REREAD_FOR_CLOSE:
            self._closing = False
            self.failure = self.failure or error
            return [CloseFailed(error)]
        return self._fail(error)

    # ---- messages -------------------------------------------------------------------------------

    def _named(self) -> str:
        return f"{self.metadata.ledger_id} ({counted(self.outstanding, 'add')} outstanding)"

    def _why(self) -> str:
        return self._adds.failures()
