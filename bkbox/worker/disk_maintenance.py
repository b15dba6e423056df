"""Space maintenance of a disk: the calls with which the repair worker collects, compacts and scrubs, and the reserve.

Each call does a bounded amount of work and responds at once. State that spans calls is kept here and is lost with the
worker; the job then begins that part again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TypeVar

from bkbox.base.text import quoted
from bkbox.base.values import replaced
from bkbox.bookie.bookie import Bookie
from bkbox.bookie.ledgers import LedgersAfter, brought_back
from bkbox.bookie.readonly import RESERVE_SPENT
from bkbox.errors import BugError, DamagedError, DiskError, DiskFullError
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.disk import Probed, ProbeDisk
from bkbox.ipc.messages.items import (
    BYTES_ITEM,
    DELETED_ITEM,
    ENTRY_ITEM,
    LEDGER_ID_ITEM,
    PAGE_ITEMS,
    REGION_ITEM,
    SEGMENT_ITEM,
)
from bkbox.ipc.messages.message import Message, Page
from bkbox.ipc.messages.space import (
    Changed,
    ChangeLedgers,
    Compacted,
    CompactSegment,
    ExplainSegment,
    GetSpace,
    IndexScanned,
    ListBytes,
    ListDeleted,
    ListSegments,
    RecordComparison,
    RecordCopies,
    RecordScrub,
    Removed,
    RemoveSegment,
    ScanIndex,
    Scrubbed,
    ScrubSegment,
    Space,
    SpendReserve,
    StoreAll,
    Stored,
)
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.reserve import Reserve
from bkbox.storage.entries.ledger_usage import LedgerBytes
from bkbox.storage.files import Files
from bkbox.storage.log.records import LedgerRecord
from bkbox.storage.maintenance.compaction import STATE_BYTES, Compaction, remove_segment
from bkbox.storage.maintenance.index_scan import IndexScan
from bkbox.storage.maintenance.scrub import ScrubState, read_scrub, verify, write_scrub
from bkbox.worker.commit_groups import CommitGroups

log = logging.getLogger(__name__)

_M = TypeVar("_M", bound=Message)

_BAD_MAX = 1_000
"""Upper bound on remembered bad regions."""

_REGIONS_MAX = 4_096
"""Upper bound on bad regions in one message."""

_PROBE_BYTES = 4096
_EXPLAINED_LEDGERS = 20
_SHOWN_SEGMENTS = 100

_BYTES_ITEMS = 512
"""Ledgers in one page of the bytes per ledger. The pages are requested continually, and writers on the disk should not
notice."""

OpenFolder = Callable[[], AbstractContextManager[Path]]
"""Opens a path that is certain to lead to the disk while it is open. Raises DiskError."""


class DiskMaintenance:
    """Space maintenance of one disk."""

    def __init__(
        self,
        files: Files,
        disk: Path,
        store: DiskStore,
        bookie: Bookie,
        groups: CommitGroups,
        ledgers: LedgersAfter,
        reserve_bytes: int,
        open_folder: OpenFolder | None = None,
    ) -> None:
        """``ledgers``: lists the ledgers assigned to this disk with an id greater than the argument, ascending.
        ``open_folder``: None if the disk's path always leads to the disk. DiskError."""
        self._files = files
        self._disk = disk
        self._open_folder: OpenFolder = open_folder or (lambda: nullcontext(disk))
        self._store = store
        self._bookie = bookie
        self._groups = groups
        self._ledgers = ledgers
        self._index_scan: IndexScan | None = None
        self._last_scan: IndexScan | None = None
        self._compaction: Compaction | None = None
        self._copied: dict[int, Compaction] = {}
        self._bytes = LedgerBytes(store.log)
        self._to_store = store.log.position
        self._kept_segments: dict[int, str] = {}
        self._scrub: ScrubState = read_scrub(files, disk)
        self._reserve = Reserve(files, disk, reserve_bytes)
        self._helped_failures = 0
        """Checkpoints without space that a part of the reserve was spent for: each gets one."""
        if not self._reserve.is_whole and store.health.space().free < reserve_bytes:
            bookie.read_only.set(RESERVE_SPENT, present=True)

    # ---- the reserve --------------------------------------------------------------------------------

    def maintain_reserve(self, reserve_bytes: int) -> None:
        """Called regularly: spend a part of the reserve if a checkpoint has no space, rebuild it once there is some."""
        self._reserve.bytes_max = reserve_bytes
        if self._store.health.failed_reason is not None:
            return
        try:
            if self._store.checkpoints.lacks_space:
                failures = self._store.checkpoints.space_failures
                if failures == self._helped_failures:
                    return  # the next one has not ended yet
                self._note_spent(self._reserve.spend_part(), "a part of its reserve")
                self._store.checkpoints.make_due()
                self._helped_failures = failures
                self._groups.go_on()
            elif not self._reserve.is_whole:
                self._reserve.grow(self._store.health.space().free)
                if self._reserve.is_whole:
                    self._bookie.read_only.set(RESERVE_SPENT, present=False)
        except DiskError as error:
            log.warning("the reserve of %s: %s", self._disk, error)

    def _spend(self) -> bool:
        return self._note_spent(self._reserve.spend(), "its reserve")

    def _note_spent(self, spent: bool, what: str) -> bool:
        if spent:
            log.error("disk %s is full: %s is spent", self._disk, what)
            self._bookie.read_only.set(RESERVE_SPENT, present=True)
        return spent

    # ---- calls --------------------------------------------------------------------------------------

    def register(self, handlers: Handlers) -> None:
        """Add the handlers. They raise BkboxError; DiskFullError if there is no space even without the reserve."""

        def on(kind: type[_M], handler: Callable[[_M], Message | None]) -> None:
            handlers.on(kind, lambda call: self._with_reserve(handler, call))

        on(GetSpace, lambda _call: Space(values=self.values()))
        on(ProbeDisk, self._probe)
        on(ExplainSegment, self._explain)
        on(ListDeleted, self._list_deleted)
        on(ListBytes, self._list_bytes)
        on(ChangeLedgers, self._change)
        on(ScanIndex, self._scan_index)
        on(ListSegments, self._list_segments)
        on(CompactSegment, self._compact)
        on(StoreAll, self._store_all)
        on(SpendReserve, lambda _call: Stored(done=self._spend()))
        on(RemoveSegment, self._remove)
        on(ScrubSegment, self._verify)
        on(RecordScrub, self._note_scrub)
        on(RecordComparison, self._note_comparison)
        on(RecordCopies, self._note_copies)

    def _with_reserve(self, handler: Callable[[_M], Message | None], call: _M) -> Message | None:
        try:
            return handler(call)
        except DiskFullError:
            if not self._spend():
                raise
            return handler(call)

    def _probe(self, _call: ProbeDisk) -> Probed:
        from bkbox.storage.disk.write_probe import probe  # rarely called

        path = self._disk
        try:
            with self._open_folder() as path:
                probe(self._files, path, os.urandom(_PROBE_BYTES))
        except DiskError as error:  # a full disk is no reason to spend the reserve
            return Probed(problem=str(error).replace(str(path), str(self._disk)))
        return Probed()

    def values(self) -> dict[str, object]:
        """The status values, for operators and for the jobs."""
        scan, scrub = self._last_scan, self._scrub
        sizes = {segment: size for segment, size, _live in self._sealed()}
        live = {} if scan is None else {each: scan.live[each].bytes for each in scan.live}
        space = self._store.health.space()
        free, total = space.free, space.total
        written_to = [each for each in self._store.log.segments() if each not in sizes]
        return {
            "instance_id": self._store.identity.instance_id,
            "segment": self._store.log.position.segment,
            "segments": len(sizes),
            "segment_bytes": sum(sizes.values()),
            "active_segments": len(written_to),
            "active_bytes": sum(map(self._store.log.size_of, written_to)),
            "reclaimable_bytes": None
            if scan is None
            else sum(max(0, size - live.get(segment, 0)) for segment, size in sizes.items()),
            "ledgers": self._bookie.ledgers.total,
            "trash_ledgers": self._bookie.ledgers.trash,
            "emptied_ledgers": self._bookie.ledgers.emptied,
            "quarantined": sorted({each[0] for each in scrub.bad})[:_SHOWN_SEGMENTS],
            "kept": {
                str(segment): why
                for segment, why in sorted(self._kept_segments.items())[:_SHOWN_SEGMENTS]
            },
            "reserve_bytes": self._reserve.bytes,
            "reserve_bytes_max": self._reserve.bytes_max,
            "free_bytes": free,
            "total_bytes": total,
            "scrub_segment": scrub.segment,
            "scrub_ledger": scrub.ledger,
            "scrub_began_ms": scrub.began_ms,
            "scrub_completed_ms": scrub.completed_ms,
            "copies_checked_ms": scrub.copies_checked_ms,
            "copies_change": scrub.copies_change,
        }

    # ---- bytes per ledger ----------------------------------------------------------------------------

    def _list_bytes(self, call: ListBytes) -> Page:
        if call.after < 0 and not self._bytes.count():
            return Page(more=True)
        here = (ledger for ledger, record in self._ledgers(call.after) if not record.deleted_ms)
        page = list(islice(here, _BYTES_ITEMS + 1))
        payload = b"".join(
            BYTES_ITEM.pack(ledger, self._bytes.of(ledger)) for ledger in page[:_BYTES_ITEMS]
        )
        return Page(more=len(page) > _BYTES_ITEMS, payload=payload)

    # ---- deleted ledgers ----------------------------------------------------------------------------

    def _list_deleted(self, call: ListDeleted) -> Page:
        deleted = (
            (ledger, record.emptied, record.deleted_ms)
            for ledger, record in self._ledgers(call.after)
            if record.deleted_ms
        )
        page = list(islice(deleted, PAGE_ITEMS + 1))
        payload = b"".join(DELETED_ITEM.pack(*item) for item in page[:PAGE_ITEMS])
        return Page(more=len(page) > PAGE_ITEMS, payload=payload)

    def _change(self, call: ChangeLedgers) -> Changed:
        self._groups.receive()
        self._groups.drain()
        ledgers = [ledger for (ledger,) in LEDGER_ID_ITEM.iter_unpack(call.payload)]
        states: dict[int, LedgerRecord] = {}
        for ledger in ledgers:
            record = self._bookie.ledgers.record(ledger)
            after = None if record is None else _after(call, record)
            if after is not None:
                states[ledger] = after
        if call.action == "forget":
            for ledger in states:
                self._bookie.forget(ledger)
        elif call.action == "empty":
            self._bookie.empty(states)
        else:
            self._bookie.set_states(states)
        return Changed(ledgers=len(states))

    # ---- segments -----------------------------------------------------------------------------------

    def _sealed(self) -> list[tuple[int, int, int]]:
        """Segments that lie wholly before the checkpoint: id, bytes, live bytes by the last index scan (without one,
        all bytes)."""
        scan, found = self._last_scan, []
        for segment in self._store.log.segments():
            if segment >= self._store.checkpoints.last.segment:
                break
            size = self._store.log.size_of(segment)
            live = size if scan is None else 0
            if scan is not None and segment in scan.live:
                live = scan.live[segment].bytes
            found.append((segment, size, live))
        return found

    def _list_segments(self, call: ListSegments) -> Page:
        found = [each for each in self._sealed() if each[0] > call.after]
        payload = b"".join(SEGMENT_ITEM.pack(*each) for each in found[:PAGE_ITEMS])
        return Page(more=len(found) > PAGE_ITEMS, payload=payload)

    def _scan_index(self, call: ScanIndex) -> IndexScanned:
        if call.begin:
            bad: dict[int, list[tuple[int, int]]] = {}
            for segment, start, end in REGION_ITEM.iter_unpack(call.payload):
                bad.setdefault(segment, []).append((start, end))
            self._index_scan = IndexScan(self._store, bad)
        scan = self._index_scan
        if scan is None:
            raise BugError("a scan that was not begun cannot go on")
        found = scan.step()
        if scan.is_complete:
            self._last_scan, self._index_scan = scan, None
        payload = b"".join(ENTRY_ITEM.pack(*entry) for entry in found)
        return IndexScanned(done=scan.is_complete, payload=payload)

    def _compact(self, call: CompactSegment) -> Compacted:
        if call.begin:
            if self._compaction is not None:
                self._compaction.close()
            self._copied.pop(call.segment, None)
            self._compaction = None
            self._compaction = self._start_compaction(call.segment)
        compaction = self._compaction
        if compaction is None or compaction.segment != call.segment:
            raise DamagedError(f"segment {call.segment} is not being compacted: begin anew")
        if self._store.has_much_to_store:
            self._groups.go_on()
            return Compacted(done=False, wait=True)
        try:
            step = compaction.step()
        except DiskError:
            self._compaction = None
            raise
        done = compaction.needs is not None
        if done:
            self._compaction = None
            self._copied[call.segment] = compaction
            self._kept_segments.pop(call.segment, None)
            self._bytes.leave(call.segment)
        self._groups.go_on()
        return Compacted(
            done=done,
            read_bytes=step.read_bytes,
            entries=step.entries,
            bytes=step.bytes,
            payload=b"".join(
                REGION_ITEM.pack(call.segment, *region) for region in compaction.bad[:_REGIONS_MAX]
            )
            if done
            else b"",
        )

    def _start_compaction(self, segment: int) -> Compaction:
        if segment >= self._store.checkpoints.last.segment:
            raise DamagedError(f"segment {segment} may be written to: it is not compacted")
        try:
            return Compaction(self._store, self._bookie.newest_state, segment)
        except DamagedError as error:
            self._kept_segments[segment] = str(error)
            raise

    def _store_all(self, call: StoreAll) -> Stored:
        if call.begin:
            self._to_store = self._store.log.position
        done = self._store.checkpoints.last.covers(self._to_store)
        if not done:
            self._store.checkpoints.make_due()
            self._groups.go_on()
        return Stored(done=done)

    def _remove(self, call: RemoveSegment) -> Removed:
        compaction, scan = self._copied.get(call.segment), self._last_scan
        if compaction is None or scan is None:
            return Removed(why="it was not copied since this worker began")
        size = self._store.log.size_of(call.segment)
        why = remove_segment(self._store, compaction, scan)
        del self._copied[call.segment]
        if why:
            self._kept_segments[call.segment] = why
            return Removed(why=why)
        self._groups.go_on()
        self._kept_segments.pop(call.segment, None)
        self._note_bad(tuple(each for each in self._scrub.bad if each[0] != call.segment))
        return Removed(bytes=size)

    def _explain(self, call: ExplainSegment) -> Space:
        return Space(values=self._explained(call.segment))

    def _explained(self, segment: int) -> dict[str, object]:
        store, scan = self._store, self._last_scan
        if segment not in store.log.segments():
            state = "removed" if segment in store.log.retired else "no such segment"
            return {"segment": segment, "state": state}
        size = store.log.size_of(segment)
        explained: dict[str, object] = {
            "segment": segment,
            "state": "sealed" if segment < store.checkpoints.last.segment else "written to",
            "bytes": size,
            "bad_regions": [list(each[1:]) for each in self._scrub.bad if each[0] == segment],
            "kept": self._kept_segments.get(segment, ""),
        }
        if scan is not None:
            live = scan.live.get(segment)
            explained["live_bytes"] = 0 if live is None else live.bytes
            explained["live_entries"] = 0 if live is None else live.entries
        if explained["state"] == "sealed":
            explained |= self._ledgers_in(segment)
        return explained

    def _ledgers_in(self, segment: int) -> dict[str, object]:
        ledgers = self._store.log.ledgers_of(segment)
        if ledgers is None:
            return {"ledgers": None}
        largest = sorted(ledgers.items(), key=lambda item: item[1][1], reverse=True)
        return {
            "ledgers": len(ledgers),
            "state_bytes": STATE_BYTES * len(ledgers),
            "largest": [
                {
                    "ledger": ledger,
                    "entries": entries,
                    "bytes": size,
                    "is": _status_of(self._bookie.ledgers.record(ledger)),
                }
                for ledger, (entries, size) in largest[:_EXPLAINED_LEDGERS]
            ],
        }

    # ---- scrub --------------------------------------------------------------------------------------

    def _verify(self, call: ScrubSegment) -> Scrubbed:
        if call.segment not in self._store.log.segments():
            return Scrubbed(offset=0, done=True, read_bytes=0, records=0, regions=0)
        found = verify(self._store, call.segment, call.offset)
        return Scrubbed(
            offset=found.offset,
            done=found.done,
            read_bytes=found.read_bytes,
            records=found.records,
            regions=len(found.bad),
            payload=b"".join(
                [
                    *(REGION_ITEM.pack(*region) for region in found.bad),
                    *(ENTRY_ITEM.pack(*entry) for entry in found.unnamed),
                ]
            ),
        )

    def _note_scrub(self, call: RecordScrub) -> None:
        before = self._scrub
        others = [each for each in before.bad if each[0] != call.segment - 1]
        bad = sorted([*others, *((segment, start, end) for segment, start, end in call.bad)])
        began = before.began_ms if before.segment else call.now_ms
        if call.segment:
            after = replaced(before, segment=call.segment, began_ms=began)
        else:
            after = replaced(before, segment=0, began_ms=began, completed_ms=call.now_ms, ledger=0)
        self._scrub = after
        self._note_bad(tuple(bad[:_BAD_MAX]))

    def _note_comparison(self, call: RecordComparison) -> None:
        self._scrub = replaced(self._scrub, ledger=call.ledger)
        write_scrub(self._files, self._disk, self._scrub)

    def _note_copies(self, call: RecordCopies) -> None:
        self._scrub = replaced(
            self._scrub, copies_checked_ms=call.now_ms, copies_change=call.change
        )
        write_scrub(self._files, self._disk, self._scrub)

    def _note_bad(self, bad: tuple[tuple[int, int, int], ...]) -> None:
        self._scrub = replaced(self._scrub, bad=bad)
        write_scrub(self._files, self._disk, self._scrub)


def _after(call: ChangeLedgers, record: LedgerRecord) -> LedgerRecord | None:
    """The new state of a ledger; None if the call does not apply to it any more."""
    match call.action:
        case "trash" if not record.deleted_ms:
            return replaced(record, fenced=True, deleted_ms=call.now_ms)
        case "restore" if record.deleted_ms:
            return brought_back(record)
        case "empty" if record.deleted_ms and not record.emptied:
            return replaced(record, fenced=True, limbo=False, emptied=True)
        case "forget" if record.emptied:
            return record
        case "trash" | "restore" | "empty" | "forget":
            return None
        case _:
            raise BugError(f"nothing that is done to ledgers: {quoted(call.action)}")


def _status_of(record: LedgerRecord | None) -> str:
    if record is None:
        return "forgotten"
    if record.deleted_ms:
        return "deleted" if record.emptied else "in the trash"
    return "in limbo" if record.limbo else "fenced" if record.fenced else "open"
