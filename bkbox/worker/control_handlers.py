"""Handles the calls of the supervisor and the repair worker to an open disk: lists, marks, checks, limbo."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from bkbox.base.values import replaced
from bkbox.bookie.bookie import Bookie
from bkbox.bookie.ledgers import LedgersAfter
from bkbox.errors import DamagedError, DiskError
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.disk import (
    CheckEntries,
    ClearDirtyMarker,
    ClearLimbo,
    DiskOpened,
    GetLatency,
    Latency,
    ListLedgers,
    ListRuns,
    MarkLedgers,
    SetReadOnlyReasons,
)
from bkbox.ipc.messages.items import (
    ACTIVE,
    FENCED,
    LEDGER_ITEM,
    LIMBO,
    MARK_ITEM,
    PAGE_ITEMS,
    RANGE_ITEM,
)
from bkbox.ipc.messages.message import Page
from bkbox.ipc.messages.process import GetStats, Stats, Stopped
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.replay import ReplayReport
from bkbox.storage.log.records import LedgerRecord
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.stages import Stages


def opened(store: DiskStore, report: ReplayReport, rebuilt: str = "") -> DiskOpened:
    """The report about a disk that was opened."""
    return DiskOpened(
        disk=str(store.identity.uuid),
        records=report.records,
        entries=report.entries,
        replayed_bytes=report.bytes_read,
        cut_bytes=report.bytes_cut,
        damaged=list(report.damaged)[:20],
        trusted=report.trusted,
        intact=report.intact,
        synced_ms=report.synced_ms,
        rebuilt=rebuilt,
    )


def stopped(store: DiskStore | None, groups: CommitGroups | None) -> Stopped:
    """Close an open disk in order, and report whether that left it clean."""
    if store is None:
        return Stopped(clean=True)
    if store.health.failed_reason is not None:
        return Stopped(clean=False, reason=store.health.failed_reason)
    try:
        if groups is not None:
            groups.drain()
            groups.unmark_all()
        store.close()
    except DiskError as error:
        return Stopped(clean=False, reason=str(error))
    return Stopped(clean=True, durable=list(store.durable))


class ControlHandlers:
    """Handles the calls to an open disk."""

    def __init__(
        self,
        store: DiskStore,
        bookie: Bookie,
        groups: CommitGroups,
        stages: Stages,
        watch_space: Callable[[], None],
        ledgers: LedgersAfter,
    ) -> None:
        """``watch_space``: checks the disk's free space. ``ledgers``: lists the ledgers assigned to this disk."""
        self._store = store
        self._bookie = bookie
        self._groups = groups
        self._stages = stages
        self._watch_space = watch_space
        self._ledgers = ledgers

    def register(self, handlers: Handlers) -> None:
        """Add the handlers, which raise BkboxError."""
        handlers.on(ListLedgers, self._list_ledgers)
        handlers.on(MarkLedgers, self._mark)
        handlers.on(ListRuns, self._list_runs)
        handlers.on(CheckEntries, self._check)
        handlers.on(ClearLimbo, self._clear_limbo)
        handlers.on(ClearDirtyMarker, self._clear_dirty_marker)
        handlers.on(SetReadOnlyReasons, self._set_read_only_reasons)
        handlers.on(GetStats, self._get_stats)
        handlers.on(GetLatency, self._get_latency)

    def _list_ledgers(self, call: ListLedgers) -> Page:
        self._groups.receive()  # a ledger that waits there to be created belongs in the list
        self._groups.drain()
        found = (
            (ledger, FENCED * record.fenced | LIMBO * record.limbo | ACTIVE * record.active)
            for ledger, record in self._ledgers(call.after)
            if record.limbo or not call.limbo_only
        )
        page = list(islice(found, PAGE_ITEMS + 1))
        payload = b"".join(LEDGER_ITEM.pack(*item) for item in page[:PAGE_ITEMS])
        return Page(more=len(page) > PAGE_ITEMS, payload=payload)

    def _mark(self, call: MarkLedgers) -> None:
        """Phase one. A mark only adds: an existing fence or limbo stays, and so does a known key."""
        self._groups.drain()
        states: dict[int, LedgerRecord] = {}
        for ledger, flags, has_key, key in MARK_ITEM.iter_unpack(call.payload):
            before = self._bookie.ledgers.record(ledger) or LedgerRecord()
            known = before.master_key if before.master_key is not None else key if has_key else None
            after = replaced(before, master_key=known, fenced=before.fenced or bool(flags & FENCED))
            if flags & LIMBO:  # the metadata names it: it is not deleted
                after = replaced(after, limbo=True, deleted_ms=0, emptied=False)
            if after != before:
                states[ledger] = after
        self._bookie.set_states(states)

    def _list_runs(self, call: ListRuns) -> Page:
        runs = [run for run in self._store.entries(call.ledger) if run[1] >= call.first]
        payload = b"".join(RANGE_ITEM.pack(*run) for run in runs[:PAGE_ITEMS])
        return Page(more=len(runs) > PAGE_ITEMS, payload=payload)

    def _check(self, call: CheckEntries) -> Page:
        """Reads every record: an index that names an entry proves nothing about the log."""
        bad = [
            entry
            for entry in range(call.first, call.last + 1)
            if not self._readable(call.ledger, entry)
        ]
        return Page(payload=b"".join(RANGE_ITEM.pack(entry, entry) for entry in bad))

    def _readable(self, ledger: int, entry: int) -> bool:
        try:
            return self._store.read_entry(ledger, entry) is not None
        except DamagedError:
            return False
        except DiskError:
            return False

    def _clear_limbo(self, call: ClearLimbo) -> None:
        """The state record is synced after everything that was written before it, including the repaired entries."""
        self._groups.drain()
        record = self._bookie.ledgers.record(call.ledger)
        if record is not None and record.limbo:
            self._bookie.set_states({call.ledger: replaced(record, limbo=False)})

    def _clear_dirty_marker(self, _call: ClearDirtyMarker) -> None:
        self._groups.drain()
        self._store.resolve_losses()

    def _set_read_only_reasons(self, call: SetReadOnlyReasons) -> None:
        self._bookie.read_only.intend(call.reasons)

    def _get_latency(self, _call: GetLatency) -> Latency:
        adds, p99_us = self._stages.latest()
        return Latency(adds=adds, p99_us=p99_us)

    def _get_stats(self, _call: GetStats) -> Stats:
        self._watch_space()  # a read-only bookie gets no writes, and must see freed space without one
        space = self._store.health.space()
        values = {
            "ledgers": self._bookie.ledgers.total,
            "limbo_ledgers": self._bookie.ledgers.limbo,
            "free_bytes": space.free,
            "total_bytes": space.total,
            "read_only": sorted(self._bookie.read_only.reasons),
            "failed": self._store.health.failed_reason or "",
            "counts": self._bookie.counts,
            "stages": self._stages.values(),
            "durable": list(self._store.durable),
            "operations": self._stages.operations(),
        }
        return Stats(values=values)
