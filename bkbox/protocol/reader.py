"""A normal read of one entry from its write set.

One bookie that returns the entry is enough. It is absent only if every bookie of the write set says so; if none
returned it and one of them could not say, that is unknown, and an error of its own.

Bookies are asked one after another, in an order that the driver may choose, the next when one fails to deliver or
when the driver speculates (a slow response still counts when it comes). Before an entry is declared absent or unknown
the metadata is read again: the entry may lie in a fragment that was added, or on a replacement bookie, after the
reader's copy was made. Source: PendingReadOp.java, ReadOpBase.java.
"""

from __future__ import annotations

from collections.abc import Callable

from bkbox.base.ids import BookieId, EntryId
from bkbox.errors import LedgerError, NoSuchEntryError, UnknownEntryError
from bkbox.protocol.effects import Effect, EntryFound, Failed, ReadMetadata, SendRead, Tokens
from bkbox.protocol.events import (
    MetadataFailed,
    MetadataRead,
    ReadCompleted,
    RequestStatus,
    SpeculativeRead,
    describe,
)
from bkbox.protocol.quorum import ReadOutcome, read_outcome
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from bkbox.wire.write_set import write_set

ReaderEvent = ReadCompleted | SpeculativeRead | MetadataRead | MetadataFailed

ReadOrder = Callable[[tuple[BookieId, ...]], tuple[BookieId, ...]]


def _as_written(bookies: tuple[BookieId, ...]) -> tuple[BookieId, ...]:
    return bookies


class EntryReader:
    """Reads one entry >= 0. ``start``, then ``handle`` each event; ends with EntryFound, or Failed with
    NoSuchEntryError, UnknownEntryError or the error of the metadata store.

    ``metadata`` is the newest copy that the reader has seen: later reads may start from it.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        entry: EntryId,
        order: ReadOrder = _as_written,
    ) -> None:
        """``order``: sorts the bookies of a write set; all of them are asked in any case."""
        self._order = order
        self.metadata = metadata
        self.version = version
        self.entry = entry
        self._tokens = Tokens()
        self._replicas: tuple[BookieId, ...] = ()
        self._turns: tuple[BookieId, ...] = ()
        self._next_replica = 0
        self._positions: dict[int, int] = {}
        self._statuses: dict[int, RequestStatus] = {}
        self._metadata_token = 0
        self._failure: LedgerError | None = None
        self._done = False

    def start(self) -> list[Effect]:
        if self._is_past_end():
            return self._fail(self._past_end())
        return self._ask_all_over()

    def handle(self, event: ReaderEvent) -> list[Effect]:
        if self._done:
            return []
        match event:
            case ReadCompleted():
                return self._on_read(event)
            case SpeculativeRead():
                return self._ask_next() if self._failure is None else []
            case MetadataRead() if event.token == self._metadata_token:
                return self._compare(event)
            case MetadataFailed() if event.token == self._metadata_token:
                self._done = True
                return [Failed(event.error)]
            case _:
                return []

    def _ask_all_over(self) -> list[Effect]:
        self._replicas = self._write_set(self.metadata)
        self._turns = self._order(self._replicas)
        self._next_replica = 0
        self._positions = {}
        self._statuses = {}
        self._failure = None
        return self._ask_next()

    def _ask_next(self) -> list[Effect]:
        if self._next_replica == len(self._replicas):
            return []
        token = self._tokens.next()
        self._positions[token] = self._next_replica
        self._next_replica += 1
        return [SendRead(token, self._turns[self._positions[token]], self.entry, fence=False)]

    def _on_read(self, event: ReadCompleted) -> list[Effect]:
        position = self._positions.pop(event.token, None)
        if position is None:
            return []
        self._statuses[position] = event.status
        if event.entry is not None:
            self._done = True
            return [EntryFound(event.entry)]
        replicas = len(self._replicas)
        evidence = [status.evidence for status in self._statuses.values()]
        match read_outcome(evidence, replicas, negatives_needed=replicas):
            case ReadOutcome.NEGATIVE:
                self._failure = NoSuchEntryError(self._explain("is on no bookie"))
            case ReadOutcome.UNKNOWN:
                self._failure = UnknownEntryError(self._explain("cannot be read"))
            case _:
                return self._ask_next()
        self._metadata_token = self._tokens.next()
        return [ReadMetadata(self._metadata_token)]

    def _compare(self, event: MetadataRead) -> list[Effect]:
        failure = self._failure
        self.metadata = event.metadata
        self.version = event.version
        if self._is_past_end():
            return self._fail(self._past_end())
        if failure is not None and self._write_set(event.metadata) == self._replicas:
            return self._fail(failure)
        return self._ask_all_over()

    def _fail(self, error: LedgerError) -> list[Effect]:
        self._done = True
        return [Failed(error)]

    def _is_past_end(self) -> bool:
        return self.metadata.state is LedgerState.CLOSED and self.entry > self.metadata.last_entry

    def _past_end(self) -> NoSuchEntryError:
        return NoSuchEntryError(
            f"entry {self.entry} lies past the end of ledger {self.metadata.ledger_id}, "
            f"which is closed at entry {self.metadata.last_entry}"
        )

    def _write_set(self, metadata: LedgerMetadata) -> tuple[BookieId, ...]:
        ensemble = metadata.fragment_of(self.entry).ensemble
        positions = write_set(self.entry, metadata.ensemble_size, metadata.write_quorum)
        return tuple(ensemble[position] for position in positions)

    def _explain(self, what: str) -> str:
        statuses = describe(
            (bookie, self._statuses.get(position)) for position, bookie in enumerate(self._turns)
        )
        return f"entry {self.entry} of ledger {self.metadata.ledger_id} {what}: {statuses}"
