"""Tiny bookies, a tiny metadata store, and actors that drive the real machines over them by hand.

A bookie keeps one ledger as BP-46 wants it. ``lose_everything`` is an unclean start on an empty
disk, with phase one as ``mark_for`` plans it; ``fencing`` and ``limbo`` False leave that part of
phase one out. Nothing moves by itself: whoever holds the cluster decides what is carried out, and
which answers arrive, in which order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bkbox.base.ids import NO_ENTRY, BookieId, EntryId
from bkbox.errors import BkboxError, MetadataUnavailableError
from bkbox.protocol import effects as fx
from bkbox.protocol import events as ev
from bkbox.protocol.boot import mark_for
from bkbox.protocol.lac import LacReader
from bkbox.protocol.reader import EntryReader
from bkbox.protocol.recovery import LedgerRecovery
from bkbox.protocol.writer import LedgerWriter
from bkbox.wire.codes import Code
from bkbox.wire.digest import VerifiedEntry
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState
from tests.protocol.notation import LEDGER


def entry_of(effect: fx.SendAdds, entry: int) -> VerifiedEntry:
    """One entry of a run, as a bookie keeps it."""
    index = entry - effect.first
    length = effect.length + sum(map(len, effect.payloads[: index + 1]))
    return VerifiedEntry(LEDGER, EntryId(entry), effect.lac, length, effect.payloads[index])


Machine = LedgerWriter | LedgerRecovery | EntryReader | LacReader


class ModelBookie:
    """What one bookie holds of the ledger."""

    def __init__(self) -> None:
        self.entries: dict[int, VerifiedEntry] = {}
        self.fenced = False
        self.limbo = False

    def add(self, entry: VerifiedEntry, *, recovery: bool) -> Code:
        if self.fenced and not recovery:
            return Code.EFENCED
        self.entries[entry.entry_id] = entry
        return Code.EOK

    def read(self, entry_id: int, *, fence: bool) -> tuple[Code, VerifiedEntry | None]:
        self.fenced = self.fenced or fence
        if entry_id == NO_ENTRY:
            entry_id = -1 if self.limbo else max(self.entries, default=-1)
        found = self.entries.get(entry_id)
        if found is not None:
            return Code.EOK, found
        return (Code.EUNKNOWNLEDGERSTATE if self.limbo else Code.ENOENTRY), None


@dataclass(frozen=True)
class InFlight:
    """One request of an actor; ``to`` is a bookie, 'metadata' or 'placement'. Of a run of adds each
    entry is one; ``entry`` is that of an add or read."""

    to: str
    token: int
    effect: Any
    entry: int | None = None

    @property
    def kind(self) -> str:
        match self.effect:
            case fx.SendAdds():
                return "recovery add" if self.effect.recovery else "add"
            case fx.SendRead():
                return "fencing read" if self.effect.fence else "read"
            case fx.ReadMetadata():
                return "read"
            case fx.WriteMetadata():
                return "write"
        return "pick"

    @property
    def text(self) -> str:
        """``add 0``, ``fencing read -1``, ``write``."""
        return self.kind if self.entry is None else f"{self.kind} {self.entry}"


class Cluster:
    """Bookies and the metadata of one ledger."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        spares: tuple[str, ...] = (),
        *,
        fencing: bool = True,
        limbo: bool = True,
    ) -> None:
        self.metadata = metadata
        self.version = 1
        names = (*metadata.last_fragment.ensemble, *map(BookieId, spares))
        self.bookies = {name: ModelBookie() for name in names}
        self._fencing = fencing
        self._limbo = limbo

    def lose_everything(self, name: str) -> None:
        """The bookie starts on an empty disk and runs phase one before it answers."""
        bookie = ModelBookie()
        self.bookies[BookieId(name)] = bookie
        mark = mark_for(self.metadata, BookieId(name), recorded_safely=False, underreplicated=False)
        if mark is not None:
            bookie.fenced = mark.fence and self._fencing
            bookie.limbo = mark.limbo and self._limbo

    def carry_out(self, request: InFlight) -> Any:
        """Do what was asked and return the answer."""
        effect = request.effect
        match effect:
            case fx.SendAdds():
                entry = entry_of(effect, request.entry)
                code = self.bookies[BookieId(request.to)].add(entry, recovery=effect.recovery)
                return ev.AddsCompleted(request.token, entry.entry_id, entry.entry_id, code)
            case fx.SendRead():
                bookie = self.bookies[BookieId(request.to)]
                code, found = bookie.read(effect.entry_id, fence=effect.fence)
                return ev.ReadCompleted(request.token, code, found)
            case fx.ReadMetadata():
                return ev.MetadataRead(request.token, self.metadata, self.version)
            case fx.WriteMetadata():
                if effect.expected_version != self.version:
                    return ev.MetadataConflict(request.token)
                self.metadata = effect.metadata
                self.version += 1
                return ev.MetadataWritten(request.token, self.version)
        spares = [name for name in self.bookies if name not in effect.ensemble]
        return ev.ReplacementsPicked(request.token, tuple(spares[: len(effect.failed)]))

    @staticmethod
    def no_answer(request: InFlight) -> Any:
        """What the actor sees if the request or its answer is lost."""
        match request.effect:
            case fx.SendAdds():
                lost = EntryId(request.entry)
                return ev.AddsCompleted(request.token, lost, lost, ev.NoResponse.CONNECTION_LOST)
            case fx.SendRead():
                return ev.ReadCompleted(request.token, ev.NoResponse.TIMEOUT)
            case fx.PickReplacements():
                return ev.ReplacementsPicked(request.token, ())
        error = MetadataUnavailableError("no answer from the metadata store")
        return ev.MetadataFailed(request.token, error)


class Actor:
    """A client: one machine, its requests in flight, and what came out of it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.in_flight: list[InFlight] = []
        self.acked: list[int] = []
        self.outcome: fx.Closed | fx.Recovered | fx.EntryFound | fx.LacFound | None = None
        self.error: BkboxError | None = None

    def take(self, effects: list[fx.Effect]) -> list[fx.Effect]:
        for effect in effects:
            match effect:
                case fx.SendAdds():
                    self.in_flight += (
                        InFlight(bookie, token, effect, entry)
                        for entry in range(effect.first, effect.first + len(effect.payloads))
                        for token, bookie, entries in effect.targets
                        if entry in entries
                    )
                case fx.SendRead():
                    self.in_flight.append(
                        InFlight(effect.bookie, effect.token, effect, effect.entry_id)
                    )
                case fx.ReadMetadata() | fx.WriteMetadata():
                    self.in_flight.append(InFlight("metadata", effect.token, effect))
                case fx.PickReplacements():
                    self.in_flight.append(InFlight("placement", effect.token, effect))
                case fx.Acked():
                    self.acked += range(effect.first, effect.last + 1)
                case fx.Failed() | fx.CloseFailed():
                    self.error = effect.error
                case _:
                    self.outcome = effect
        return effects

    def start(self) -> list[fx.Effect]:
        assert not isinstance(self.machine, LedgerWriter)
        return self.take(self.machine.start())

    def handle(self, event: Any) -> list[fx.Effect]:
        return self.take(self.machine.handle(event))


def lost_entries(cluster: Cluster, acked: list[int]) -> list[int]:
    """Acknowledged entries beyond the end of the closed ledger: lost data."""
    if cluster.metadata.state is not LedgerState.CLOSED:
        return []
    return [entry for entry in acked if entry > cluster.metadata.last_entry]
