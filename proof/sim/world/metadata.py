"""A metadata store for the simulated cluster: compare-and-set, outages, lost responses, stale reads.

``StoreState`` is the stored data; each process has a ``StaleView`` of it, with a session of its own. A view
promises what bkbox/metadata/base.py says, no more:

- an outage, or a lost response, is MetadataUnavailableError; a write may have taken effect all the same;
- a read of a stale view may be ``stale_s`` old, but never older than what this session has read or written
  before, nor than the beginning of its last list of ledgers;
- a registration ends with its process, or with its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from bkbox.base.ids import BookieId, LedgerId
from bkbox.errors import (
    BugError,
    LedgerExistsError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    OperatorError,
    VersionConflictError,
)
from bkbox.metadata.base import RANGE_LEDGERS_MAX, MetadataStore, RegisteredBookie, Registration
from bkbox.metadata.loglists import LogLists
from bkbox.metadata.maintenance import MaintenanceWindows
from bkbox.metadata.underreplication import UnderReplication
from bkbox.metadata.versioned import Versioned
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.loss import losses_of
from bkbox.wire.metadata.service_info import ServiceInfo
from proof.checks.check import Metadata
from proof.checks.observer import Observer
from proof.sim.world.loop import Process, Scheduler
from proof.sim.world.underreplication import Marks, SimMaintenanceWindows, SimUnderReplication

INSTANCE_ID = "8d9c3a58-6a0c-4b52-9d0e-0a2f3c4d5e6f"

_OUTAGE_S = 2.0
"""Time-out of a call, in seconds."""


class StoreState:
    """The stored data, and the store's faults. ``ledgers``: every version of each, the newest last, with its time."""

    def __init__(self, scheduler: Scheduler, observer: Observer) -> None:
        self.scheduler = scheduler
        self.observer = observer
        self.ledgers: dict[int, list[tuple[float, Versioned[LedgerMetadata]]]] = {}
        self.deleted: set[int] = set()
        self.cookies: dict[BookieId, Versioned[bytes]] = {}
        self.disk_records: dict[BookieId, Versioned[bytes]] = {}
        self.registered: dict[BookieId, SimRegistration] = {}
        self.watchers: dict[int, list[asyncio.Event]] = {}
        self.marks = Marks(scheduler)
        self.next_ledger = 0
        self.down_until = 0.0
        self.lose_responses = 0
        self.stale_s = 0.0
        self.delay_s = (0.0005, 0.002)

    @property
    def is_down(self) -> bool:
        return self.scheduler.now < self.down_until

    def newest(self, ledger: int) -> Versioned[LedgerMetadata] | None:
        found = self.ledgers.get(ledger)
        return found[-1][1] if found else None

    def compare(self, found: Versioned[LedgerMetadata], expected_version: int) -> bool:
        """True if a write that expects this version may be executed."""
        return found.version == expected_version

    def put(self, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
        stored = Versioned(metadata, version)
        ledger = metadata.ledger_id
        self.ledgers.setdefault(ledger, []).append((self.scheduler.now, stored))
        self.scheduler.note(
            "metadata", "ledger %d version %d: %s", ledger, version, _SeenState(metadata)
        )
        self.observer.stored_metadata(
            Metadata(
                ledger,
                int(metadata.state),
                version,
                metadata.last_entry,
                (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum),
                tuple((int(part.first_entry), part.ensemble) for part in metadata.fragments),
            )
        )
        self._tell(ledger)
        return stored

    def remove(self, ledger: int) -> None:
        if self.ledgers.pop(ledger, None) is not None:
            self.deleted.add(ledger)
            self.scheduler.note("metadata", "ledger %d is deleted", ledger)
            self.observer.deleted(ledger)
            self._tell(ledger)

    def _tell(self, ledger: int) -> None:
        for event in self.watchers.get(ledger, ()):
            event.set()


class _SeenState:
    """Formats metadata for the trace, only if that is recorded."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: LedgerMetadata) -> None:
        self._metadata = metadata

    def __str__(self) -> str:
        found = self._metadata
        parts = ", ".join(
            f"{part.first_entry}: {' '.join(part.ensemble)}" for part in found.fragments
        )
        end = f" at {found.last_entry}" if found.state.name == "CLOSED" else ""
        sizes = f"E{found.ensemble_size} W{found.write_quorum} A{found.ack_quorum}"
        return f"{found.state.name}{end}, {sizes}, {parts}"


class StaleView(MetadataStore):
    """One process's connection."""

    def __init__(self, truth: StoreState, process: Process, *, is_stale: bool = False) -> None:
        """``is_stale``: its reads may be ``stale_s`` old."""
        self._truth = truth
        self._is_stale = is_stale
        self._process = process
        self._seen: dict[int, int] = {}
        self._fresh_from = 0.0
        self._registration: SimRegistration | None = None

    async def _request_delay(self) -> None:
        """The delay of one way to the store or back."""
        truth = self._truth
        if truth.is_down:
            await asyncio.sleep(_OUTAGE_S)
            raise MetadataUnavailableError("the metadata store does not answer")
        least, mean = truth.delay_s
        await asyncio.sleep(least + truth.scheduler.rng.expovariate(1.0) * mean)

    async def _response_delay(self) -> None:
        """The way back of a write's response."""
        truth = self._truth
        if truth.lose_responses:
            truth.lose_responses -= 1
            truth.scheduler.note("metadata", "an answer for %s never arrives", self._process.name)
            await asyncio.sleep(_OUTAGE_S)
            raise MetadataUnavailableError("no answer from the metadata store")
        await self._request_delay()

    async def instance_id(self) -> str:
        await self._request_delay()
        return INSTANCE_ID

    # ---- ledgers --------------------------------------------------------------------------------

    async def new_ledger_id(self) -> LedgerId:
        await self._request_delay()
        self._truth.next_ledger += 1
        return LedgerId(self._truth.next_ledger)

    async def create_ledger(self, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        await self._request_delay()
        if self._truth.newest(metadata.ledger_id) is not None:
            raise LedgerExistsError(f"ledger {metadata.ledger_id} exists already")
        stored = self._truth.put(metadata, 0)
        await self._response_delay()
        return stored

    async def read_ledger(
        self, ledger: LedgerId, *, linearizable: bool = False
    ) -> Versioned[LedgerMetadata]:
        await self._request_delay()
        truth = self._truth
        versions = truth.ledgers.get(ledger)
        if not versions:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")
        found = versions[-1][1]
        if self._is_stale and not linearizable and truth.stale_s and len(versions) > 1:
            # As it was at any time since then; a version seen before is a bound as well.
            since = max(self._fresh_from, truth.scheduler.now - truth.stale_s)
            at_least = self._seen.get(ledger, 0)
            first = max((n for n, (when, _) in enumerate(versions) if when <= since), default=0)
            first = max(
                [first, *(n for n, (_, one) in enumerate(versions) if one.version == at_least)]
            )
            found = versions[truth.scheduler.rng.randint(first, len(versions) - 1)][1]
        self._seen[ledger] = max(found.version, self._seen.get(ledger, 0))
        await self._request_delay()
        return found

    async def write_ledger(
        self, metadata: LedgerMetadata, expected_version: int
    ) -> Versioned[LedgerMetadata]:
        await self._request_delay()
        found = self._truth.newest(metadata.ledger_id)
        if found is None:
            raise NoSuchLedgerError(f"there is no ledger {metadata.ledger_id}")
        if not self._truth.compare(found, expected_version):
            await self._request_delay()
            raise VersionConflictError(
                f"ledger {metadata.ledger_id} is at version {found.version}, not {expected_version}"
            )
        stored = self._truth.put(replace(metadata, creator_token=0), found.version + 1)
        await self._response_delay()
        self._seen[metadata.ledger_id] = stored.version
        return stored

    async def delete_ledger(self, ledger: LedgerId) -> None:
        await self._request_delay()
        self._truth.remove(ledger)
        await self._response_delay()

    async def ledger_ranges(self) -> AsyncIterator[list[LedgerId]]:
        await self._request_delay()
        self._fresh_from = self._truth.scheduler.now
        ledgers = sorted(self._truth.ledgers)
        for start in range(0, len(ledgers), RANGE_LEDGERS_MAX):
            await self._request_delay()
            yield [LedgerId(each) for each in ledgers[start : start + RANGE_LEDGERS_MAX]]

    async def ended_ledgers(self) -> list[LedgerId]:
        await self._request_delay()
        stored = self._truth.ledgers.items()
        return sorted(LedgerId(each) for each, now in stored if losses_of(now[-1][1].value))

    async def watch_ledger(
        self, ledger: LedgerId
    ) -> AsyncIterator[Versioned[LedgerMetadata] | None]:
        changed = asyncio.Event()
        watchers = self._truth.watchers.setdefault(ledger, [])
        watchers.append(changed)
        try:
            while True:
                changed.clear()
                try:
                    await self._request_delay()
                    yield self._truth.newest(ledger)
                except MetadataUnavailableError:
                    changed.set()
                await changed.wait()
        finally:
            watchers.remove(changed)

    @property
    def under_replication(self) -> UnderReplication:
        return SimUnderReplication(
            self._truth.marks, self._process, self._request_delay, self._response_delay
        )

    @property
    def maintenance_windows(self) -> MaintenanceWindows:
        return SimMaintenanceWindows(self._truth.marks, self._request_delay, self._response_delay)

    @property
    def logs(self) -> LogLists:
        raise BugError("simulated clusters have no logs")

    # ---- cookies --------------------------------------------------------------------------------

    async def read_cookie(self, bookie: BookieId) -> Versioned[bytes] | None:
        await self._request_delay()
        return self._truth.cookies.get(bookie)

    async def write_cookie(
        self, bookie: BookieId, cookie: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        await self._request_delay()
        found = self._truth.cookies.get(bookie)
        if (None if found is None else found.version) != expected_version:
            raise VersionConflictError(f"the cookie of {bookie} is another one")
        stored = Versioned(cookie, 0 if found is None else found.version + 1)
        self._truth.cookies[bookie] = stored
        await self._response_delay()
        return stored

    async def delete_cookie(self, bookie: BookieId) -> None:
        await self._request_delay()
        self._truth.cookies.pop(bookie, None)

    async def cookies(self) -> dict[BookieId, Versioned[bytes]]:
        await self._request_delay()
        return dict(self._truth.cookies)

    # ---- records of disks -----------------------------------------------------------------------

    async def read_disk_record(self, bookie: BookieId) -> Versioned[bytes] | None:
        await self._request_delay()
        return self._truth.disk_records.get(bookie)

    async def write_disk_record(
        self, bookie: BookieId, record: bytes, expected_version: int | None
    ) -> Versioned[bytes]:
        await self._request_delay()
        found = self._truth.disk_records.get(bookie)
        if (None if found is None else found.version) != expected_version:
            raise VersionConflictError(f"the record of the disks of {bookie} is another one")
        stored = Versioned(record, 0 if found is None else found.version + 1)
        self._truth.disk_records[bookie] = stored
        await self._response_delay()
        return stored

    # ---- registration ---------------------------------------------------------------------------

    async def register(
        self, bookie: BookieId, service_info: ServiceInfo, *, read_only: bool
    ) -> Registration:
        await self._request_delay()
        before = self._truth.registered.get(bookie)
        if before is not None and not before.process.dead and before.process is not self._process:
            raise OperatorError(f"bookie {bookie} is registered by a process that is alive")
        made = SimRegistration(self._truth, self._process, bookie, service_info, read_only)
        self._truth.registered[bookie] = made
        return made

    async def bookies(self) -> dict[BookieId, RegisteredBookie]:
        await self._request_delay()
        return {
            bookie: RegisteredBookie(found.read_only, found.service_info)
            for bookie, found in sorted(self._truth.registered.items())
            if found.is_seen
        }

    async def close(self) -> None:
        """Nothing to release."""


class SimRegistration(Registration):
    """``lost_until``: its session has expired, and is renewed then."""

    def __init__(
        self,
        truth: StoreState,
        process: Process,
        bookie: BookieId,
        service_info: ServiceInfo,
        read_only: bool,
    ) -> None:
        self.process = process
        self.service_info = service_info
        self.read_only = read_only
        self.lost_from = self.lost_until = 0.0
        self._truth = truth
        self._bookie = bookie

    @property
    def is_seen(self) -> bool:
        return not self.process.dead and self._truth.scheduler.now >= self.lost_until

    async def set_read_only(self, read_only: bool) -> None:
        self.read_only = read_only

    def unregistered_s(self) -> float:
        now = self._truth.scheduler.now
        return now - self.lost_from if now < self.lost_until else 0.0

    async def close(self) -> None:
        if self._truth.registered.get(self._bookie) is self:
            del self._truth.registered[self._bookie]


Connect = Callable[[Process], StaleView]
