"""Patches that switch off one safety measure each: they replace the one function or constant of the real code that is
the measure, in this process only; the real code has no switch for it. (The compare-and-set is the metadata store's,
which is simulated.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bkbox.base.values import replaced as with_changes
from bkbox.bookie import admission, reading
from bkbox.bookie.admission import LedgerStatus, Verdict
from bkbox.bookie.bookie import Bookie
from bkbox.frontend.ledger_directory import LedgerDirectory
from bkbox.frontend.request_router import RequestRouter
from bkbox.protocol import boot, lac, recovery
from bkbox.protocol import writer as writer_machine
from bkbox.protocol.boot import DiskClass, Mark
from bkbox.protocol.effects import SendRead
from bkbox.protocol.force import Forcing
from bkbox.protocol.quorum import QuorumSizes
from bkbox.protocol.recovery import LedgerRecovery
from bkbox.protocol.unacked_positions import UnackedPositions
from bkbox.storage.disk import dirty_marker
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.replay import LogReplayer
from bkbox.storage.index.index import LedgerIndex
from bkbox.storage.log import segmented_log
from bkbox.storage.log.records import ledger_record
from bkbox.storage.log.scan import SegmentFindings
from bkbox.supervisor.boot import cookie_repair, open_disk, phase_one
from bkbox.supervisor.supervisor import Supervisor
from bkbox.wire.codes import Code, Evidence
from bkbox.wire.digest import DigestManager
from bkbox.wire.metadata.ledger import LedgerState
from bkbox.worker.sync_queue import SyncQueue
from proof.sim.patching import Change, method
from proof.sim.world.metadata import StoreState


def marks(change: Callable[[Mark], Mark | None]) -> tuple[Change, ...]:
    real = boot.mark_for

    def mark_for(*values: Any, **named: Any) -> Mark | None:
        mark = real(*values, **named)
        return None if mark is None else change(mark)

    return ((phase_one, "mark_for", mark_for),)


def no_marks_for(states: tuple[LedgerState, ...], *, named: bool) -> tuple[Change, ...]:
    """No marks for ledgers in these states that name, or do not name, the bookie."""
    real = boot.mark_for

    def mark_for(metadata: Any, bookie: Any, **options: Any) -> Mark | None:
        if metadata.state in states and (bookie in metadata.bookies()) == named:
            return None
        return real(metadata, bookie, **options)

    return ((phase_one, "mark_for", mark_for),)


def admitted(standing: LedgerStatus, request: admission.Request, code: Code) -> tuple[Change, ...]:
    table = {**admission.ADMISSION, (standing, request): Verdict(code, standing)}
    return ((admission, "ADMISSION", table),)


def explicit_negatives() -> tuple[Change, ...]:
    absent = {**admission.ABSENT, LedgerStatus.LIMBO: Code.ENOENTRY}
    return ((admission, "ABSENT", absent), (reading, "ABSENT", absent))


def polls_do_not_fence() -> tuple[Change, ...]:
    def sends(token: int, bookie: Any, entry: Any, fence: bool) -> SendRead:
        return SendRead(token, bookie, entry, False)

    return ((recovery, "SendRead", sends),)


def no_lac_floor() -> tuple[Change, ...]:
    """A recovery's LAC starts at -1 instead of at the last fragment."""

    def change(real: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, *values: Any, **named: Any) -> None:
            real(self, *values, **named)
            self._lac = -1

        return init

    return method(lac.LacReader, "__init__", change)


def must_sync(
    change: Callable[[bool, bool, bool], tuple[bool, bool, bool]],
) -> tuple[Change, ...]:
    def changed(real: Callable[..., bool]) -> Callable[..., bool]:
        def must_sync(self: Any, entries: bool, states: bool, force: bool = False) -> bool:
            return real(self, *change(entries, states, force))

        return must_sync

    return method(DiskStore, "must_sync", changed)


def acks_before_write() -> tuple[Change, ...]:
    """A write that fails is acknowledged."""

    def changed(real: Callable[..., None]) -> Callable[..., None]:
        def write(self: Any, work: Any) -> None:
            real(self, work)
            work.failure = None

        return write

    return method(Bookie, "_write", changed)


def fsync_errors_ignored() -> tuple[Change, ...]:
    def changed(real: Callable[..., None]) -> Callable[..., None]:
        def run(self: Any) -> None:
            real(self)
            self.error = None

        return run

    return method(segmented_log.LogSync, "run", changed)


def states_not_synced() -> tuple[Change, ...]:
    """Marks of phase one, and the end of limbo, are not synced."""

    def set_states(self: Any, states: Any) -> None:
        for ledger, state in states.items():
            record = ledger_record(ledger, state)
            self.store.append([record])
            self.store.index_appended()
            self._walk.hot.pop(ledger, None)
            before = self.ledgers.record(ledger)
            self.store.show(record)
            self.ledgers.changed(ledger, before, state)

    return ((Bookie, "set_states", set_states),)


def classified(disk_class: DiskClass) -> tuple[Change, ...]:
    real = boot.classify

    def classify(evidence: Any) -> Any:
        verdict = real(evidence)
        if verdict.disk_class is not disk_class:
            return verdict
        return with_changes(verdict, may_have_lost=False)

    return ((boot, "classify", classify),)


def unclean_unnoticed() -> tuple[Change, ...]:
    return ((dirty_marker, "read_marker", lambda _files, _disk: None),)


def marker_forgotten() -> tuple[Change, ...]:
    """A start overwrites earlier runs in the marker."""

    def begin_run(files: Any, disk: Any, run: Any) -> Any:
        before = dirty_marker.read_marker(files, disk)
        dirty_marker._write(files, disk, dirty_marker.Marker(runs=(run,)))
        return before

    return ((dirty_marker, "begin_run", begin_run),)


def no_marker() -> tuple[Change, ...]:
    """Neither the beginning of a run nor its settling is written."""
    return (
        (dirty_marker, "begin_run", lambda files, disk, run: dirty_marker.read_marker(files, disk)),
        (dirty_marker, "commit", lambda files, disk, run, before: None),
    )


def cookie_before_limbo() -> tuple[Change, ...]:
    """A disk that replaces a lost one is stamped when it is prepared, as a new one is."""
    return ((cookie_repair, "_replacements", lambda evidence, stored: []),)


def settled_before_marks() -> tuple[Change, ...]:
    """Markers are settled before phase one."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        async def account(self: Any, base: Any, opened: Any) -> None:
            for disk in opened:
                dirty_marker.commit(self._files, disk.path, disk.run, disk.before)
            await real(self, base, opened)

        return account

    return method(Supervisor, "_account_for_losses", changed)


def no_phase_one() -> tuple[Change, ...]:
    async def nothing(*_of_marks: Any) -> phase_one.PhaseOne:
        return phase_one.PhaseOne()

    return ((open_disk, "mark_losses", nothing),)


def negatives_too_few() -> tuple[Change, ...]:
    fewer = property(lambda self: max(1, self.write_quorum - self.ack_quorum))
    return ((QuorumSizes, "negative_threshold", fewer),)


def acks_too_few() -> tuple[Change, ...]:
    def changed(real: Callable[..., None]) -> Callable[..., None]:
        def init(self: Any, sizes: Any) -> None:
            real(self, sizes)
            self._ack_quorum = max(1, sizes.ack_quorum - 1)

        return init

    return method(UnackedPositions, "__init__", changed)


def unknown_is_no() -> tuple[Change, ...]:
    def evidence(self: Code) -> Evidence:
        return Evidence.POSITIVE if self is Code.EOK else Evidence.NEGATIVE

    return ((Code, "evidence", property(evidence)),)


def no_write_back() -> tuple[Change, ...]:
    """Entries found by a recovery count as written back."""

    def changed(_real: Callable[..., Any]) -> Callable[..., Any]:
        def judge_one(self: Any, poll: Any, outcome: Any) -> Any:
            if poll.found is None or self._end is not None:
                return _real(self, poll, outcome)
            self.entries_recovered += 1
            adds = self._outstanding()
            adds.lac = adds._last = poll.entry
            adds._length = poll.found.length
            return self._go_on(adds)

        return judge_one

    return method(LedgerRecovery, "_process_read", changed)


def forgets_nothing() -> tuple[Change, ...]:
    return ((UnackedPositions, "forget", lambda self, position: None),)


def acks_during_change() -> tuple[Change, ...]:
    """LAC advances while the write of a new ensemble is in flight."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        def go_on(self: Any) -> Any:
            acked = self._adds.advance()
            effects = real(self)
            return effects if acked is None else [acked, *effects]

        return go_on

    return method(writer_machine.LedgerWriter, "_go_on", changed)


def without_cas() -> tuple[Change, ...]:
    return ((StoreState, "compare", lambda self, found, expected: True),)


def two_homes() -> tuple[Change, ...]:
    return ((LedgerDirectory, "all_listed", lambda self: True),)


def damage_ignored() -> tuple[Change, ...]:
    """Durable bytes that cannot be read count as a torn end."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        def judge(self: Any, **named: Any) -> Any:
            return [region._replace(lost=False) for region in real(self, **named)]

        return judge

    def changed_run(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *values: Any) -> Any:
            found = real(self, *values)
            found.lost.clear()
            found.dropped = 0
            return found

        return run

    return (
        *method(SegmentFindings, "classify", changed),
        *method(LogReplayer, "run", changed_run),
    )


def force_without_sync() -> tuple[Change, ...]:
    return must_sync(lambda entries, states, force: (entries, states, False))


def any_connection() -> tuple[Change, ...]:
    """A force counts whatever happened to the bookie since it responded to the adds."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        def answered(self: Any, event: Any, adds: Any) -> Any:
            if self._round is not None:
                self._round.stored_connections = [set() for _ in adds.ensemble]
            return real(self, event, adds)

        return answered

    return (
        *method(Forcing, "on_completed", changed),
        (RequestRouter, "_lost_deferred", lambda self, force, link: False),
    )


def fence_can_be_lifted() -> tuple[Change, ...]:
    """A record without the fence removes it, as the record of a replayed creation does."""

    def changed(real: Callable[..., None]) -> Callable[..., None]:
        def show(self: Any, record: Any) -> None:
            if record.kind == 2:
                return
            real(self, record)

        return show

    return method(LedgerIndex, "apply", changed)


def digests_ignored() -> tuple[Change, ...]:
    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        def verify(self: Any, entry: Any, entry_id: Any) -> Any:
            view = memoryview(entry)
            start = 32 + self.digest_size
            digest = self.digest(view[:32], view[start:])
            return real(self, b"".join((view[:32], digest, view[start:])), entry_id)

        return verify

    return method(DigestManager, "verify", changed)


def checkpoint_before_sync() -> tuple[Change, ...]:
    """A checkpoint records the log as durable before it is."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        def begin_sync(self: Any) -> Any:
            sync = real(self)
            sync.left, sync.file = [], None
            return sync

        return begin_sync

    def extend_sync(self: Any, sync: Any) -> None:
        sync.segment, sync.offset = self.segment, self.offset

    return (
        *method(segmented_log.SegmentLog, "begin_sync", changed),
        (segmented_log.SegmentLog, "extend_sync", extend_sync),
    )


def waiting_sync_skipped() -> tuple[Change, ...]:
    """A sync that waits while another one runs ends with it."""

    def changed(real: Callable[..., None]) -> Callable[..., None]:
        def run_started(self: Any, sync: Any) -> None:
            real(self, sync)
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                self._ended.append(waiting)

        return run_started

    return method(SyncQueue, "run_started", changed)
