"""Recovery: a client other than the writer ends the ledger, and cuts off nothing acknowledged.

1. *Begin*: OPEN becomes IN_RECOVERY by CAS; the writer can change no ensemble and not close any more. If it is
   IN_RECOVERY already nothing is written: several recoveries may run at once.
2. *Fence*: the last entry is read, fencing, from every bookie of the last ensemble until those not heard from can
   acknowledge nothing among themselves (lac.py). From then on the writer cannot get anything acknowledged that is not
   on a bookie which step 3 asks.
3. *Read forward* from the highest LAC seen, each entry from its whole write set, fencing again: a bookie that the fence
   did not reach must not accept the entry after it has said no.
   One positive: the entry is written back. QC negatives: it was never acknowledged, the ledger ends before it.
   Anything else: aborted, nothing is closed, it may be tried again.
   Entries are read ahead, the more the more were found, and processed in order: responses about an entry behind the end
   count for nothing, since an entry is acknowledged only after all before it.
   Reads go to the ensemble *as found*, never to a replacement of step 4, whose 'no' proves nothing.
4. *Write back* each entry, in order, as it was (its own LAC and length, so that replicas stay byte-identical), with the
   recovery flag that passes the fence, until AQ hold it. Even the bookie that returned it gets it: only the response to
   an add says that it is there to stay.
   Ensemble changes are kept in memory; no client reads by them before the close.
5. *Close* by CAS, only from IN_RECOVERY, with the last entry, its length and the ensembles of step 4. A recovery that
   loses the race takes the winner's result, so all recoveries agree on one end.

Source: LedgerRecoveryOp.java, ReadOnlyLedgerHandle.java, the protocol document; limbo: BP-46.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.base.text import counted
from bkbox.errors import (
    BkboxError,
    BugError,
    MetadataError,
    RecoveryAbortedError,
    UnauthorizedError,
)
from bkbox.protocol.adds import Adds, fragments_from
from bkbox.protocol.effects import (
    Effect,
    Failed,
    LacFound,
    PickReplacements,
    ReadMetadata,
    Recovered,
    SendRead,
    Tokens,
    WriteMetadata,
)
from bkbox.protocol.events import (
    AddsCompleted,
    MetadataConflict,
    MetadataFailed,
    MetadataRead,
    MetadataWritten,
    ReadCompleted,
    ReplacementsPicked,
    RequestStatus,
    describe,
)
from bkbox.protocol.lac import LacReader
from bkbox.protocol.quorum import QuorumSizes, ReadOutcome, read_outcome
from bkbox.wire.codes import Code
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

RecoveryEvent = (
    AddsCompleted
    | ReadCompleted
    | ReplacementsPicked
    | MetadataRead
    | MetadataWritten
    | MetadataConflict
    | MetadataFailed
)

WRITE_BACK_WINDOW = 128
"""Entries read ahead, or written back and not yet acknowledged, at which reading pauses; bounds the memory used."""

READ_AHEAD = 64
"""Entries that are read at the same time, at most."""


class _Step(Enum):
    BEGIN_RECOVERY = auto()
    REREAD_TO_BEGIN = auto()
    CLOSE = auto()
    REREAD_TO_CLOSE = auto()


_WRITES = (_Step.BEGIN_RECOVERY, _Step.CLOSE)
"""Steps that wait for metadata to be written; the others wait for a read."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The outstanding metadata request."""

    step: _Step
    token: int
    proposed: LedgerMetadata | None = None
    write_error: MetadataError | None = None


class _Poll:
    """A read of one entry from its whole write set."""

    def __init__(self, entry: EntryId, replicas: tuple[BookieId, ...], negatives: int) -> None:
        self.entry = entry
        self.found: VerifiedEntry | None = None
        self._replicas = replicas
        self._negatives_needed = negatives
        self._positions: dict[int, int] = {}
        self._statuses: dict[int, RequestStatus] = {}

    def start(self, tokens: Tokens) -> list[SendRead]:
        effects = []
        for position, bookie in enumerate(self._replicas):
            token = tokens.next()
            self._positions[token] = position
            effects.append(SendRead(token, bookie, self.entry, fence=True))
        return effects

    def on_completed(self, event: ReadCompleted) -> None:
        self._statuses[self._positions.pop(event.token)] = event.status
        if event.entry is not None:
            self.found = event.entry

    def outcome(self) -> ReadOutcome:
        evidence = [status.evidence for status in self._statuses.values()]
        return read_outcome(evidence, len(self._replicas), self._negatives_needed)

    def statuses(self) -> str:
        return describe(
            (bookie, self._statuses.get(position)) for position, bookie in enumerate(self._replicas)
        )


class LedgerRecovery:
    """Recovers one ledger. ``start``, then ``handle`` each event; ends with Recovered, or with Failed
    (RecoveryAbortedError, UnauthorizedError or the error of the metadata store) and nothing closed.
    """

    def __init__(self, metadata: LedgerMetadata, version: int) -> None:
        self.metadata = metadata
        self.version = version
        self.entries_recovered = 0
        self._sizes = QuorumSizes(
            metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum
        )
        self._tokens = Tokens()
        self._waiting: _Waiting | None = None
        self._fence: LacReader | None = None
        self._polls: deque[_Poll] = deque()
        self._poll_of: dict[int, _Poll] = {}
        self._adds: Adds | None = None
        self._fragments = metadata.fragments
        self._start = NO_ENTRY
        self._next = EntryId(0)
        self._end: EntryId | None = None
        self._picking: tuple[int, tuple[int, ...]] | None = None
        self._ask_for_replacements = False
        self._done = False

    def start(self) -> list[Effect]:
        return self._begin_recovery(self.metadata, self.version)

    def handle(self, event: RecoveryEvent) -> list[Effect]:
        if self._done:
            return []
        match event:
            case ReadCompleted():
                return self._on_read(event)
            case AddsCompleted():
                return self._on_adds(event)
            case ReplacementsPicked():
                return self._picked(event)
            case _:
                return self._on_metadata(event)

    def _finish(self, outcome: Recovered | Failed) -> list[Effect]:
        self._done = True
        return [outcome]

    def _fail(self, error: BkboxError) -> list[Effect]:
        return self._finish(Failed(error))

    def _abort(self, why: str) -> list[Effect]:
        return self._fail(
            RecoveryAbortedError(
                f"recovery of ledger {self.metadata.ledger_id} stopped, nothing was closed: {why}"
            )
        )

    # ---- 1 and 2: begin, fence ------------------------------------------------------------------

    def _begin_recovery(self, metadata: LedgerMetadata, version: int) -> list[Effect]:
        if metadata.state is LedgerState.OPEN:
            self.metadata = metadata
            self.version = version
            return [self._write(_Step.BEGIN_RECOVERY, metadata.with_state(LedgerState.IN_RECOVERY))]
        if metadata.state is LedgerState.CLOSED:
            return self._finish(Recovered(metadata, version))
        return self._begin_fencing(metadata, version)

    def _begin_fencing(self, metadata: LedgerMetadata, version: int) -> list[Effect]:
        self.metadata = metadata
        self.version = version
        self._fragments = metadata.fragments
        self._fence = LacReader(metadata, fence=True, tokens=self._tokens)
        return self._fence.start()

    # ---- 3: read forward ------------------------------------------------------------------------

    def _on_read(self, event: ReadCompleted) -> list[Effect]:
        poll = self._poll_of.pop(event.token, None)
        if poll is not None:
            poll.on_completed(event)
            return self._process_reads()
        if self._fence is None or self._adds is not None:
            return []
        effects = self._fence.handle(event)
        match effects:
            case [LacFound(lac=lac)]:
                return self._begin_reading(lac)
            case [Failed() as failed]:
                return self._finish(failed)
        return effects

    def _begin_reading(self, lac: EntryId) -> list[Effect]:
        self._start = lac
        self._next = EntryId(lac + 1)
        self._adds = Adds(
            self._sizes,
            self.metadata.last_fragment.ensemble,
            lac,
            0,
            recovery=True,
            tokens=self._tokens,
        )
        return self._go_on(self._adds)

    def _ask(self, entry: EntryId, negatives: int) -> list[SendRead]:
        ensemble = self.metadata.fragment_of(entry).ensemble
        replicas = tuple(ensemble[position] for position in self._sizes.write_set(entry))
        poll = _Poll(entry, replicas, negatives)
        self._polls.append(poll)
        effects = poll.start(self._tokens)
        for effect in effects:
            self._poll_of[effect.token] = poll
        return effects

    def _process_reads(self) -> list[Effect]:
        """Process the results of the first entries that were read."""
        effects: list[Effect] = []
        while self._polls and not self._done:
            outcome = self._polls[0].outcome()
            if outcome is ReadOutcome.PENDING:
                break
            effects += self._process_read(self._polls.popleft(), outcome)
        return effects

    def _process_read(self, poll: _Poll, outcome: ReadOutcome) -> list[Effect]:
        adds = self._outstanding()
        if self._end is not None:
            # The ledger ends at the LAC, and that entry was read for its length.
            if poll.found is None:
                return self._abort(
                    f"entry {poll.entry} is acknowledged and cannot be read: {poll.statuses()}"
                )
            return self._close(poll.found.length)
        if outcome is ReadOutcome.UNKNOWN:
            return self._abort(f"entry {poll.entry} may exist: {poll.statuses()}")
        if poll.found is None:
            self._end = EntryId(poll.entry - 1)
            self._polls.clear()
            return self._go_on(adds)
        found = poll.found
        self.entries_recovered += 1
        length = found.length - len(found.payload)
        sends = adds.send(poll.entry, found.lac, length, (found.payload,))
        return [*sends, *self._go_on(adds)]

    # ---- 4: write back --------------------------------------------------------------------------

    def _outstanding(self) -> Adds:
        if self._adds is None:
            raise BugError("a recovery got an event that it has not requested")
        return self._adds

    def _on_adds(self, event: AddsCompleted) -> list[Effect]:
        adds = self._outstanding()
        status = adds.on_completed(event)
        if status is Code.EUA:
            return self._fail(
                UnauthorizedError(f"ledger {self.metadata.ledger_id}: {adds.failures()}")
            )
        if status is not None:
            self._ask_for_replacements = True
        return self._go_on(adds)

    def _picked(self, event: ReplacementsPicked) -> list[Effect]:
        adds = self._outstanding()
        if self._picking is None or self._picking[0] != event.token:
            return []
        positions = self._picking[1]
        self._picking = None
        replacements = dict(zip(positions, event.bookies, strict=False))
        if not replacements:
            return self._go_on(adds)
        if not len(adds):
            # Everything read so far found its quorum meanwhile: a new ensemble would hold nothing.
            self._ask_for_replacements = True
            return self._go_on(adds)
        sends = adds.replace(replacements)
        self._fragments = fragments_from(
            self._fragments, EntryId(adds.lac + 1), tuple(adds.ensemble)
        )
        return [*sends, *self._go_on(adds)]

    def _go_on(self, adds: Adds) -> list[Effect]:
        """Do everything that can be done now: read on, replace failed bookies, close."""
        adds.advance()
        effects: list[Effect] = []
        if self._picking is None and len(adds):
            if self._ask_for_replacements:
                effects.append(self._pick(adds))
            elif (hopeless := adds.hopeless()) is not None:
                return self._abort(
                    f"entry {hopeless} cannot be written back to {counted(self._sizes.ack_quorum, 'bookie')} "
                    f"and no replacement is available: {adds.failures()}"
                )
        if self._end is None:
            ahead = min(max(self.entries_recovered, 1), READ_AHEAD)
            while len(self._polls) < ahead and len(self._polls) + len(adds) < WRITE_BACK_WINDOW:
                effects += self._ask(self._next, self._sizes.negative_threshold)
                self._next = EntryId(self._next + 1)
        elif not len(adds) and not self._polls and self._waiting is None:
            effects += self._find_length(adds, self._end)
        return effects

    def _pick(self, adds: Adds) -> Effect:
        self._ask_for_replacements = False
        ensemble = tuple(adds.ensemble)
        positions = tuple(sorted(adds.failed))
        self._picking = (self._tokens.next(), positions)
        failed = tuple(ensemble[position] for position in positions)
        return PickReplacements(self._picking[0], failed, ensemble)

    # ---- 5: close -------------------------------------------------------------------------------

    def _find_length(self, adds: Adds, end: EntryId) -> Sequence[Effect]:
        if end > self._start:
            return self._close(adds.length)
        if end == NO_ENTRY:
            return self._close(0)
        return self._ask(end, self._sizes.write_quorum)

    def _close(self, length: int) -> list[Effect]:
        if self._end is None:
            raise BugError(f"the end of ledger {self.metadata.ledger_id} is not known yet")
        closed = replace(
            self.metadata.with_state(LedgerState.CLOSED),
            fragments=self._fragments,
            last_entry=self._end,
            length=length,
        )
        return [self._write(_Step.CLOSE, closed)]

    def _write(self, step: _Step, proposed: LedgerMetadata) -> Effect:
        token = self._tokens.next()
        self._waiting = _Waiting(step, token, proposed)
        return WriteMetadata(token, proposed, self.version)

    def _reread(self, waiting: _Waiting, error: MetadataError | None) -> list[Effect]:
        token = self._tokens.next()
        closing = waiting.step is _Step.CLOSE
        step = _Step.REREAD_TO_CLOSE if closing else _Step.REREAD_TO_BEGIN
        self._waiting = _Waiting(step, token, waiting.proposed, error)
        return [ReadMetadata(token)]

    def _on_metadata(
        self, event: MetadataRead | MetadataWritten | MetadataConflict | MetadataFailed
    ) -> list[Effect]:
        waiting = self._waiting
        if waiting is None or waiting.token != event.token:
            return []
        self._waiting = None
        match event:
            case MetadataWritten():
                if waiting.proposed is None or waiting.step not in _WRITES:
                    raise BugError(f"nothing was written with token {event.token}")
                if waiting.step is _Step.CLOSE:
                    return self._finish(Recovered(waiting.proposed, event.version))
                return self._begin_fencing(waiting.proposed, event.version)
            case MetadataConflict():
                return self._reread(waiting, None)
            case MetadataFailed():
                if waiting.step in _WRITES:
                    return self._reread(waiting, event.error)
                return self._fail(event.error)
            case MetadataRead():
                if waiting.write_error is not None and event.version == self.version:
                    return self._fail(waiting.write_error)
                if waiting.step is _Step.REREAD_TO_BEGIN:
                    return self._begin_recovery(event.metadata, event.version)
                return self._close_on(event.metadata, event.version, waiting.proposed)

    def _close_on(
        self, found: LedgerMetadata, version: int, proposed: LedgerMetadata | None
    ) -> list[Effect]:
        """The close lost a race: against another recovery, or against the repair of a fragment."""
        if found.state is LedgerState.CLOSED:
            return self._finish(Recovered(found, version))
        if (
            proposed is None
            or found.state is LedgerState.OPEN
            or found.last_fragment != self.metadata.last_fragment
        ):
            return self._abort("the metadata changed meanwhile")
        unchanged = len(self.metadata.fragments) - 1
        self._fragments = (*found.fragments[:-1], *self._fragments[unchanged:])
        self.metadata = found
        self.version = version
        return self._close(proposed.length)
