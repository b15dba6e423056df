"""Groups of requests in flight through a disk worker: taken, written, waited for, answered; and the background work.

RequestGroup commit works by overlap. At most one sync is in flight, on a thread of its own; what is taken and written
meanwhile is covered by the next one. A small sync runs at once on the worker's own thread: the disk takes hardly longer
for it than for nothing, and handing it over would cost more than the overlap could save.

Checkpoints and writeback run in the background, one of each at a time. Only their beginnings and ends run on the
worker's thread: no group touches what they read and write in between.

An idle disk is brought into a state that proves itself: what is not durable is synced, active ledgers are unmarked, a
SYNCED record is written, and the tail mark (storage/disk/disk.py). States of ledgers are proved sooner than entries.
Under load, active ledgers that became quiet are unmarked, and the tail is marked, now and then.

Waiting for reads from the disk is background work, too: the late reads of all groups so far are waited for together,
while others gather. A group is done when its writes and its late reads are answered.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import NamedTuple

from bkbox.base.logs.trace import CURRENT_CONNECTIONS
from bkbox.bookie.bookie import Bookie, CommitGroup
from bkbox.errors import BugError, DiskError, EncodingError, FrameError
from bkbox.storage.disk.checkpointing import PendingCheckpoint, Sync
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import Location
from bkbox.worker.frontend_link import FrontLink, RequestGroup
from bkbox.worker.stages import Stages

log = logging.getLogger(__name__)

_AT_ONCE_BYTES = 64 << 10
"""Syncs up to this size, in bytes, run on the worker's own thread."""

_COALESCE_SHARE = 4
_COALESCE_US_MAX = 500
"""Upper bound, in microseconds, on the wait for more requests before a small sync; the wait is a quarter of a sync."""

_COALESCE_SKIP_ADDS = 128
"""If the last sync covered more adds than this, the next group is large enough without a wait."""

_REST_US = 500_000
"""A disk is idle after this time without an append, in microseconds."""

_PROVE_STATES_US = 10_000
"""After this time without an append, in microseconds, the durable part of ledger states is proved."""

_UNMARK_US = 5_000_000
"""Interval, in microseconds, at which active ledgers are checked for quiet ones under load."""

_TAIL_US = 1_000_000
"""Interval, in microseconds, at which the tail is marked under load."""

_NOTE_END_US = 10_000
"""Interval, in microseconds, at which the end of the log is noted, unsynced, under load."""

_SWITCH_S = 0.0005
"""Longest time, in seconds, for which a background thread may hold up the worker while both compute. Python's default
is ten times that."""


class _Taken(NamedTuple):
    """A group that was written, and the link that its responses go to."""

    front: FrontLink
    group: RequestGroup
    work: CommitGroup


class _BackgroundTask:
    """A background task: its call, and what the worker does when it has ended."""

    __slots__ = ("ended", "future")

    def __init__(self) -> None:
        self.future: Future[None] | None = None
        self.ended: Callable[[], None] | None = None


def _connections(groups: Iterable[RequestGroup]) -> list[int]:
    return [segment[0] for group in groups for segment in group.segments]


class CommitGroups:
    """The groups of one disk. ``fileno`` becomes readable when a background task has ended; the worker then calls
    ``ended``."""

    def __init__(
        self,
        store: DiskStore,
        bookie: Bookie,
        stages: Stages,
        ticks_us: Callable[[], int],
        on_lost: Callable[[], None],
    ) -> None:
        """``on_lost``: called when the front-end is gone; it calls ``detach``."""
        self._ticks_us = ticks_us
        self._store = store
        self._bookie = bookie
        self._stages = stages
        self._on_lost = on_lost
        self._front: FrontLink | None = None
        self._waiting: list[_Taken] = []
        self._covered: list[_Taken] = []
        self._sync: Sync | None = None
        self._sync_us = self._last_sync_us = self._last_adds = 0
        self._checkpoint: PendingCheckpoint | None = None
        self._checkpoint_refused = False
        self._late: list[_Taken] = []
        self._syncing, self._checkpointing, self._writeback = (
            _BackgroundTask(),
            _BackgroundTask(),
            _BackgroundTask(),
        )
        self._reading, self._marking = _BackgroundTask(), _BackgroundTask()
        self._appended_us = self._unmarked_us = self._marked_us = self._noted_us = ticks_us()
        self._noted_at = store.position
        """End of the log when it was noted last."""
        self._rested_at: Location | None = None
        """End of the log when an idle disk had nothing left to do."""
        self._has_states = False
        """True if states of ledgers came since the durable part was last proved."""
        self._unmarks: Sync | None = None
        """After this sync the ledgers that became quiet before it are unmarked."""
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._threads = ThreadPoolExecutor(5)
        sys.setswitchinterval(_SWITCH_S)

    def fileno(self) -> int:
        return self._event

    # ---- groups -------------------------------------------------------------------------------------

    def attach(self, front: FrontLink) -> None:
        self._front = front

    def detach(self) -> None:
        """The front-end is gone: waiting writes take effect, and their responses are dropped."""
        self._front = None

    def take(self) -> None:
        """Carry out the requests waiting on the link, if any."""
        self._take()
        self._go_on()

    def _take(self) -> None:
        front = self._front
        if front is None:
            return  # detached in the same turn
        try:
            group = front.take()
            if group is None:
                return
            CURRENT_CONNECTIONS.set(partial(_connections, (group,)))
            work = self._bookie.begin(group.area, group.segments)
            if work.is_written:
                self._note_append(has_states=bool(work.odd.states or work.odd.packets))
            taken = _Taken(front, group, work)
            # Equal requests of version 2 are told apart only by the order of their responses.
            waits = work.waits or (work.has_changes and bool(self._waiting or self._covered))
            if waits:
                self._waiting.append(taken)
            before = self._bookie.reader.reads
            if self._bookie.has_reads(work):
                self._bookie.serve(work, front.answers(group))
            reads = self._bookie.reader.reads - before
            if work.late is not None:
                self._late.append(taken)
            if not waits:
                self._finish(taken, None)
            else:
                self._send(taken)  # reads do not wait for writes
            self._stages.record_reads(group, reads)
        except EOFError:
            self._on_lost()
        except (EncodingError, FrameError) as error:
            raise BugError(
                f"the front-end passed on a frame that cannot be decoded: {error}"
            ) from error
        finally:
            CURRENT_CONNECTIONS.set(None)

    def _finish(self, taken: _Taken, error: DiskError | None) -> None:
        front, group, work = taken
        durable_us = self._ticks_us()
        self._bookie.settle(work, error)
        if front is not self._front:
            return
        CURRENT_CONNECTIONS.set(partial(_connections, (group,)))
        try:
            self._bookie.end(work, front.answers(group))
            work.ended = True
            self._send(taken)
            self._stages.record(group, work, durable_us)
        except EOFError:
            self._on_lost()
        finally:
            CURRENT_CONNECTIONS.set(None)

    def _serve_late(self, awaited: list[_Taken]) -> None:
        for taken in awaited:
            if taken.front is not self._front:
                continue
            CURRENT_CONNECTIONS.set(partial(_connections, (taken.group,)))
            try:
                before = self._bookie.reader.reads
                self._bookie.serve_cold_reads(taken.work, taken.front.answers(taken.group))
                reads = self._bookie.reader.reads - before
                self._send(taken)
                self._stages.record_reads(taken.group, reads)
            except EOFError:
                self._on_lost()
            finally:
                CURRENT_CONNECTIONS.set(None)

    def _send(self, taken: _Taken) -> None:
        """Send the responses that are ready; with the last of them the group is done. Raises EOFError."""
        front, group, work = taken
        if work.ended and work.late is None:
            front.done(group, read_only=bool(self._bookie.read_only))
        else:
            front.flush()

    # ---- background work ----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin background work that is due and can begin."""
        store = self._store
        if self._late and self._reading.future is None:
            self._await_late()
        if store.failed_reason is not None:
            self._fail_waiting()
            return
        if self._sync is None and self._checkpoint is None and store.checkpoint_due:
            if store.has_hidden:
                self._begin_sync(store.begin_sync(), at_once=True)
            self._begin_checkpoint()
        if self._sync is None and self._waiting:
            self._gather()
            if store.failed_reason is not None:
                self._fail_waiting()
                return
            self._begin_sync(store.begin_sync())
        if self._writeback.future is None:
            writeback = store.begin_writeback()
            if writeback is not None:
                self._start(self._writeback, writeback, lambda: None)
        self._rest()
        if self._ticks_us() - self._noted_us >= _NOTE_END_US:
            self._note_end()

    def go_on(self) -> None:
        """Called after work outside the groups: begin background work that is due and can begin."""
        self._note_append(has_states=True)
        self._go_on()

    # ---- idle disk ----------------------------------------------------------------------------------

    def _note_append(self, *, has_states: bool) -> None:
        self._appended_us = self._ticks_us()
        self._has_states |= has_states

    @property
    def rest_wait_us(self) -> int | None:
        """Microseconds until ``rest`` has something to do if nothing comes; None: for ever."""
        store = self._store
        if self._must_note_end():
            return max(0, self._noted_us + _NOTE_END_US - self._ticks_us())
        if (
            self._sync is not None
            or self._waiting
            or self._marking.future is not None
            or store.is_held
            or store.failed_reason is not None
            or self._rested_at == store.position
        ):
            return None  # the task in flight will call ``ended``
        due = self._appended_us + (_PROVE_STATES_US if self._proves_states() else _REST_US)
        return max(0, due - self._ticks_us())

    def rest(self) -> None:
        """Go on with an idle disk, if the wait is over."""
        self._go_on()

    def _proves_states(self) -> bool:
        return self._has_states and self._store.is_durable and not self._store.is_proven

    def _must_note_end(self) -> bool:
        store = self._store
        return (
            self._noted_at != store.position
            and self._marking.future is None
            and not store.is_held
            and store.failed_reason is None
        )

    def _note_end(self) -> None:
        """Note the end of the log, if it has moved."""
        if self._must_note_end():
            self._noted_us, self._noted_at = self._ticks_us(), self._store.position
            try:
                self._store.note_end()
            except DiskError as error:
                log.error("tail mark: %s", error)

    def _rest(self) -> None:
        """Take the next step towards a disk that proves itself, if one is due."""
        store, bookie = self._store, self._bookie
        if store.is_held or store.failed_reason is not None:
            return
        now = self._ticks_us()
        is_idle = now - self._appended_us >= _REST_US
        has_rested = self._rested_at == store.position
        if not is_idle and now - self._marked_us >= _TAIL_US:
            self._mark_tail(now)
        if self._sync is not None or self._waiting or has_rested:
            return
        try:
            if bookie.has_active and (is_idle or now - self._unmarked_us >= _UNMARK_US):
                self._unmarked_us = now
                if bookie.begin_unmark(everything=is_idle):
                    self._unmarks = store.begin_sync()
                    self._begin_sync(self._unmarks)
            elif is_idle and not store.is_durable:
                self._begin_sync(store.begin_sync())
            elif store.is_durable and not store.is_proven:
                if is_idle or self._is_due_to_prove(now):
                    self._has_states = False
                    store.prove()
                    self._begin_sync(store.begin_sync())
            elif is_idle and self._marking.future is None:
                self._mark_tail(now)
                if self._marking.future is None:
                    self._rested_at = store.position
        except DiskError as error:
            self._cannot_rest(error)

    def _cannot_rest(self, error: DiskError) -> None:
        log.warning("the disk cannot note down what is durable: %s", error)
        self._rested_at = self._store.position  # until something else is appended

    def _is_due_to_prove(self, now: int) -> bool:
        return self._has_states and now - self._appended_us >= _PROVE_STATES_US

    def _mark_tail(self, now: int) -> None:
        if self._marking.future is not None:
            return
        mark = self._store.due_tail
        if mark is None:
            return
        self._marked_us = now
        errors: list[DiskError | None] = []

        def ended() -> None:
            error = errors[0]
            try:
                self._store.end_tail(error)
            except DiskError as failure:
                log.error("tail mark: %s", failure)
            if error is not None:
                self._cannot_rest(error)

        self._start(self._marking, lambda: errors.append(self._store.write_tail(mark)), ended)

    def _unmark(self) -> None:
        try:
            self._bookie.unmark()
        except DiskError as error:
            self._cannot_rest(error)

    def unmark_all(self) -> None:
        """Unmark all active ledgers, before a stop and after ``drain``. Raises DiskError."""
        if self._bookie.has_active and not self._store.is_held:
            self._bookie.begin_unmark(everything=True)
            self._store.sync()
            self._bookie.unmark()

    # ---- background work ----------------------------------------------------------------------------

    def sync_behind(self) -> None:
        """Called after an append outside the groups: begin to sync it, if no sync is in flight, and begin
        whatever is due."""
        if self._sync is None:
            self._begin_sync(self._store.begin_sync())
        self._go_on()

    def _gather(self) -> None:
        """Wait briefly for clients that the last sync answered, if some of them have not sent their next request yet.

        Clients that wait for each response come back one after the other. Without the wait the first of them would get
        a sync of its own, and the others the next one, for ever. The wait is a fraction of the duration of a sync.
        """
        missing = self._last_adds - sum(taken.work.adds.entries for taken in self._waiting)
        if missing <= 0 or self._last_adds > _COALESCE_SKIP_ADDS:
            return
        end = self._ticks_us() + min(self._last_sync_us // _COALESCE_SHARE, _COALESCE_US_MAX)
        while missing > 0 and self._ticks_us() < end:
            os.sched_yield()
            before = len(self._waiting)
            self._take()
            missing -= sum(taken.work.adds.entries for taken in self._waiting[before:])

    def _await_late(self) -> None:
        awaited, self._late = self._late, []
        ranges = [found for taken in awaited if taken.work.late for found in taken.work.late.ranges]
        self._start(
            self._reading,
            lambda: self._store.await_read(ranges),
            lambda: self._serve_late(awaited),
        )

    def _begin_sync(self, sync: Sync, *, at_once: bool = False) -> None:
        self._covered, self._waiting = self._waiting, []
        self._sync = sync
        self._sync_us = self._ticks_us()
        if at_once or sync.size <= _AT_ONCE_BYTES:
            sync.run()
            self._end_sync()
        else:
            self._start(self._syncing, sync.run, self._end_sync)

    def _end_sync(self) -> None:
        sync, self._sync = self._sync, None
        covered, self._covered = self._covered, []
        assert sync is not None
        self._last_sync_us = self._ticks_us() - self._sync_us
        self._last_adds = sum(taken.work.adds.entries for taken in covered)
        failure = None
        try:
            self._store.end_sync(sync)
        except DiskError as error:
            failure = error
            CURRENT_CONNECTIONS.set(partial(_connections, [taken.group for taken in covered]))
            log.error("what these connections have sent is not durable: %s", error)
            CURRENT_CONNECTIONS.set(None)
        if self._has_states:
            self._note_end()  # before any response: a fence is not to be denied whatever happens to the log
        for taken in covered:
            self._finish(taken, failure)
        if sync is self._unmarks:
            self._unmarks = None
            if failure is None:
                self._unmark()
        checkpoint = self._checkpoint
        if checkpoint is not None and checkpoint.sync is sync and failure is None:
            self._start(self._checkpointing, checkpoint.run, self._end_checkpoint)

    def _fail_waiting(self) -> None:
        """Fail all waiting groups: on a failed disk nothing can become durable."""
        if self._sync is None and self._waiting:
            waiting, self._waiting = self._waiting, []
            for taken in waiting:
                self._finish(taken, DiskError(self._store.failed_reason or ""))

    def _begin_checkpoint(self) -> None:
        try:
            self._checkpoint = checkpoint = self._store.begin_checkpoint()
        except DiskError as error:
            if not self._checkpoint_refused:
                log.error("checkpoint: %s", error)
            self._checkpoint_refused = True
            return
        self._checkpoint_refused = False
        if checkpoint.sync is not None:
            self._begin_sync(checkpoint.sync)
        else:
            self._start(self._checkpointing, checkpoint.run, self._end_checkpoint)

    def _end_checkpoint(self) -> None:
        checkpoint, self._checkpoint = self._checkpoint, None
        assert checkpoint is not None
        try:
            self._store.end_checkpoint(checkpoint)
        except DiskError as error:
            log.error("checkpoint: %s", error)

    def _start(
        self, behind: _BackgroundTask, call: Callable[[], None], ended: Callable[[], None]
    ) -> None:
        behind.ended = ended
        behind.future = self._threads.submit(call)
        behind.future.add_done_callback(lambda _future: os.eventfd_write(self._event, 1))

    def ended(self) -> None:
        """Collect background tasks that have ended, and go on."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        self._see()
        self._go_on()

    def _see(self) -> None:
        for behind in self._behind():
            if behind.future is not None and behind.future.done():
                future, behind.future = behind.future, None
                future.result()
                assert behind.ended is not None
                behind.ended()

    def _behind(self) -> tuple[_BackgroundTask, ...]:
        return (
            self._syncing,
            self._checkpointing,
            self._writeback,
            self._reading,
            self._marking,
        )

    def drain(self) -> None:
        """Wait for everything in flight or waiting, and end it; only syncs are begun meanwhile."""
        while True:
            self._see()
            late, self._late = self._late, []
            self._serve_late(late)
            if self._store.failed_reason is not None:
                self._fail_waiting()
            elif self._sync is None and self._waiting:
                self._begin_sync(self._store.begin_sync())
            under_way = [behind.future for behind in self._behind() if behind.future is not None]
            if not under_way and not self._waiting:
                return
            wait(under_way)

    def close(self) -> None:
        """Close the groups, after ``drain``."""
        self._threads.shutdown()
        os.close(self._event)
