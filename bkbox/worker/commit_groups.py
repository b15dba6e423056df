"""Groups of requests in flight through a disk worker: received, written, synced, responded to; and the background work.

Each front-end has a link of its own, and a group is of one link. All groups are in one order, in which they are carried
out and end, so what a group waits for includes what came before it over any link.

Group commit works by overlap. One sync runs, on a thread of its own; what is received and written meanwhile is covered
by the next one, which starts when the first has ended (sync_queue.py). A small sync runs at once on the worker's own
thread: handing it over would take as long as a fast disk takes for it. After one that took long the next one does not,
since reads would wait for it.

Checkpoints, writeback and the removal of files run in the background, one of each at a time. Only their beginnings and
ends run on the worker's thread: no group touches what they read and write in between.

An idle disk is brought into a state that proves itself: what is not durable is synced, active ledgers are unmarked, a
SYNCED record is written, and the tail mark (storage/disk/disk.py). States of ledgers are proved sooner than entries.
Under load, active ledgers that became idle are unmarked, and the tail is marked, now and then.

Waiting for cold reads is background work, too: those of all groups so far are waited for together, while the next
requests gather. A group is done when its writes and its cold reads have their responses.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import NamedTuple

from bkbox.base.logs.trace import CURRENT_CONNECTIONS
from bkbox.base.values import struct
from bkbox.bookie.bookie import Bookie, CommitGroup
from bkbox.errors import BugError, DiskError, EncodingError, FrameError
from bkbox.storage.disk.checkpointing import PendingCheckpoint, Sync
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.log.records import Location
from bkbox.worker.checkpoint_pace import CheckpointPace
from bkbox.worker.frontend_link import FrontLink, RequestGroup
from bkbox.worker.stages import Stages
from bkbox.worker.sync_queue import SyncQueue

log = logging.getLogger(__name__)

_AT_ONCE_BYTES = 300 << 10
"""Syncs up to this size, in bytes, run on the worker's own thread, unless the last one took longer than _AT_ONCE_US."""

_AT_ONCE_US = 2_000
"""Upper bound, in microseconds, on the last sync: reads wait for the next one if it runs on the worker's thread."""

_COALESCE_SHARE = 2
_COALESCE_US_MAX = 500
"""Upper bound, in microseconds, on the wait for more requests before a small sync; the wait is half of a sync."""

_COALESCE_SKIP_ADDS = 256
"""If the last sync covered more adds than this, the next group is large enough without a wait."""

_IDLE_US = 500_000
"""A disk is idle after this time without an append, in microseconds."""

_PROVE_STATES_US = 10_000
"""After this time without an append, in microseconds, the durable part of ledger states is proved."""

_UNMARK_US = 5_000_000
"""Interval, in microseconds, at which active ledgers are checked for idle ones under load."""

_TAIL_US = 1_000_000
"""Interval, in microseconds, at which the tail is marked under load."""

_NOTE_END_US = 10_000
"""Interval, in microseconds, at which the end of the log is noted, unsynced, under load."""

_SWITCH_S = 0.0005
"""Longest time, in seconds, for which a background thread may delay the worker while both compute. Python's default
is ten times that."""


class _WrittenGroup(NamedTuple):
    """A group that was written, and the link that its responses go to."""

    front: FrontLink
    group: RequestGroup
    work: CommitGroup


@struct
class _BegunSync:
    """A sync that was begun at ``at_us``, and how many groups it covers."""

    sync: Sync
    at_us: int
    groups: int


class _BackgroundTask:
    """A background task: its call, and what the worker does when it is done."""

    __slots__ = ("future", "on_done")

    def __init__(self) -> None:
        self.future: Future[None] | None = None
        self.on_done: Callable[[], None] | None = None


def _connections(groups: Iterable[RequestGroup]) -> list[int]:
    return [segment[0] for group in groups for segment in group.segments]


class CommitGroups:
    """The groups of one disk. ``fileno`` becomes readable when a background task is done; the worker then calls
    ``on_background_done``."""

    def __init__(
        self,
        store: DiskStore,
        bookie: Bookie,
        stages: Stages,
        ticks_us: Callable[[], int],
        on_lost: Callable[[FrontLink], None],
    ) -> None:
        """``on_lost``: called when the front-end of a link is gone; it calls ``detach``."""
        self._ticks_us = ticks_us
        self._store = store
        self._bookie = bookie
        self._stages = stages
        self._on_lost = on_lost
        self._fronts: tuple[FrontLink, ...] = ()
        self._waiting: list[_WrittenGroup] = []
        """Written, and covered by no sync yet."""
        self._syncs = SyncQueue(self._notify)
        self._begun: deque[_BegunSync] = deque()
        self._covered: list[_WrittenGroup] = []
        """The groups of all syncs that were begun, in order."""
        self._synced_us = self._last_sync_us = self._last_adds = 0
        self._checkpoint: PendingCheckpoint | None = None
        self._checkpoint_due = False
        """A checkpoint waits until no sync is in flight; meanwhile none is begun."""
        self._checkpoint_refused = False
        self._is_hurried = False
        """The end of a checkpoint is waited for: it rests no more."""
        self._cold_reads: list[_WrittenGroup] = []
        self._syncing, self._checkpointing, self._writeback = (
            _BackgroundTask(),
            _BackgroundTask(),
            _BackgroundTask(),
        )
        self._reading, self._marking, self._removing = (
            _BackgroundTask(),
            _BackgroundTask(),
            _BackgroundTask(),
        )
        self._appended_us = self._unmarked_us = self._marked_us = self._noted_us = ticks_us()
        self._noted_at = store.position
        """End of the log when it was noted last."""
        self._idle_at: Location | None = None
        """End of the log when an idle disk had nothing left to do."""
        self._has_states = False
        """True if states of ledgers came since the durable part was last proved."""
        self._unmarks: Sync | None = None
        """After this sync the ledgers that became idle before it are unmarked."""
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._threads = ThreadPoolExecutor(6)
        sys.setswitchinterval(_SWITCH_S)

    def fileno(self) -> int:
        return self._event

    # ---- groups -------------------------------------------------------------------------------------

    def attach(self, front: FrontLink) -> None:
        self._fronts = (*self._fronts, front)

    def detach(self, front: FrontLink) -> None:
        """The front-end is gone: waiting writes take effect, and their responses are dropped."""
        self._fronts = tuple(each for each in self._fronts if each is not front)

    @property
    def has_batches(self) -> bool:
        """True if a link holds requests that its socket does not show any more."""
        for front in self._fronts:  # noqa: SIM110 - a generator takes longer, in every turn
            if front.has_batches:
                return True
        return False

    def receive(self) -> None:
        """Receive and carry out the requests waiting on the links, one group from each in turn."""
        self._receive_all()
        self._go_on()

    def _receive_all(self) -> None:
        for front in self._fronts:
            self._receive(front)

    def _receive(self, front: FrontLink) -> None:
        if front not in self._fronts:
            return  # detached in the same turn
        try:
            group = front.pop_group()
            if group is None:
                return
            CURRENT_CONNECTIONS.set(partial(_connections, (group,)))
            work = self._bookie.append(group.area, group.segments)
            if work.is_written:
                self._note_append(has_states=bool(work.slow_path.states or work.slow_path.packets))
            written = _WrittenGroup(front, group, work)
            # Equal requests of version 2 are matched only by the order of their responses.
            waits = work.waits or (work.has_changes and bool(self._waiting or self._covered))
            if waits:
                self._waiting.append(written)
            before = self._bookie.reader.reads
            if self._bookie.has_reads(work):
                self._bookie.serve_reads(work, front.responses(group))
            reads = self._bookie.reader.reads - before
            if work.cold_reads is not None:
                self._cold_reads.append(written)
            if not waits:
                self._finish(written, None)
            else:
                self._send(written)  # reads do not wait for writes
            self._stages.record_reads(group, reads)
        except EOFError:
            self._on_lost(front)
        except (EncodingError, FrameError) as error:
            raise BugError(
                f"the front-end passed on a frame that cannot be decoded: {error}"
            ) from error
        finally:
            CURRENT_CONNECTIONS.set(None)

    def _finish(self, written: _WrittenGroup, error: DiskError | None) -> None:
        front, group, work = written
        durable_us = self._ticks_us()
        self._bookie.commit(work, error)
        if front not in self._fronts:
            return
        CURRENT_CONNECTIONS.set(partial(_connections, (group,)))
        try:
            self._bookie.respond(work, front.responses(group))
            work.responded = True
            self._send(written)
            self._stages.record(group, work, durable_us)
        except EOFError:
            self._on_lost(front)
        finally:
            CURRENT_CONNECTIONS.set(None)

    def _serve_cold_reads(self, awaited: list[_WrittenGroup]) -> None:
        for written in awaited:
            if written.front not in self._fronts:
                continue
            CURRENT_CONNECTIONS.set(partial(_connections, (written.group,)))
            try:
                before = self._bookie.reader.reads
                self._bookie.serve_cold_reads(written.work, written.front.responses(written.group))
                reads = self._bookie.reader.reads - before
                self._send(written)
                self._stages.record_reads(written.group, reads)
            except EOFError:
                self._on_lost(written.front)
            finally:
                CURRENT_CONNECTIONS.set(None)

    def _send(self, written: _WrittenGroup) -> None:
        """Send the responses that are ready; with the last of them the group is done. Raises EOFError."""
        front, group, work = written
        if work.responded and work.cold_reads is None:
            front.done(group, read_only=bool(self._bookie.read_only))
        else:
            front.flush()

    # ---- background work ----------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin background work that is due and can begin."""
        store = self._store
        if self._cold_reads and self._reading.future is None:
            self._await_cold_reads()
        if store.health.failed_reason is not None:
            self._fail_waiting()
            return
        if self._checkpoint is None and not self._checkpoint_due:
            self._checkpoint_due = store.checkpoint_due
        if self._checkpoint_due and not self._begun:
            self._checkpoint_due = False
            if store.has_hidden:
                self._begin_sync(store.begin_sync(), at_once=True)
            self._begin_checkpoint()
        if self._waiting and not self._checkpoint_due:
            if not self._begun:
                self._gather()
            if store.health.failed_reason is not None:
                self._fail_waiting()
                return
            if not self._extend_sync():
                self._begin_sync(store.begin_sync())
        if self._writeback.future is None:
            writeback = store.begin_writeback()
            if writeback is not None:
                self._start(self._writeback, writeback, lambda: None)
        if self._removing.future is None:
            self._remove_unneeded()
        self._prove_idle()
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
    def idle_wait_us(self) -> int | None:
        """Microseconds until ``on_idle`` has something to do if no request comes; None: no limit."""
        store = self._store
        if self._must_note_end():
            return max(0, self._noted_us + _NOTE_END_US - self._ticks_us())
        if (
            self._begun
            or self._waiting
            or self._marking.future is not None
            or store.blocks_checkpoints
            or store.health.failed_reason is not None
            or self._idle_at == store.position
        ):
            return None  # the task in flight will call ``on_background_done``
        due = self._appended_us + (_PROVE_STATES_US if self._proves_states() else _IDLE_US)
        return max(0, due - self._ticks_us())

    def on_idle(self) -> None:
        """Continue to prove an idle disk, if the wait is over."""
        self._go_on()

    def _proves_states(self) -> bool:
        return self._has_states and self._store.is_durable and not self._store.is_proven

    def _must_note_end(self) -> bool:
        store = self._store
        return (
            self._noted_at != store.position
            and self._marking.future is None
            and not store.blocks_checkpoints
            and store.health.failed_reason is None
        )

    def _note_end(self) -> None:
        """Note the end of the log, if it has moved."""
        if self._must_note_end():
            self._noted_us, self._noted_at = self._ticks_us(), self._store.position
            try:
                self._store.tail_marks.note_end()
            except DiskError as error:
                log.error("tail mark: %s", error)

    def _prove_idle(self) -> None:
        """Run the next step towards a disk that proves itself, if one is due."""
        store, bookie = self._store, self._bookie
        if store.blocks_checkpoints or store.health.failed_reason is not None:
            return
        now = self._ticks_us()
        is_idle = now - self._appended_us >= _IDLE_US
        is_done = self._idle_at == store.position
        if not is_idle and now - self._marked_us >= _TAIL_US:
            self._mark_tail(now)
        if self._begun or self._waiting or is_done:
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
                    self._idle_at = store.position
        except DiskError as error:
            self._on_prove_failed(error)

    def _on_prove_failed(self, error: DiskError) -> None:
        log.warning("the disk cannot record what is durable: %s", error)
        self._idle_at = self._store.position  # until something else is appended

    def _is_due_to_prove(self, now: int) -> bool:
        return self._has_states and now - self._appended_us >= _PROVE_STATES_US

    def _mark_tail(self, now: int) -> None:
        if self._marking.future is not None:
            return
        mark = self._store.tail_marks.due
        if mark is None:
            return
        self._marked_us = now
        errors: list[DiskError | None] = []

        def ended() -> None:
            error = errors[0]
            try:
                self._store.tail_marks.end(error)
            except DiskError as failure:
                log.error("tail mark: %s", failure)
            if error is not None:
                self._on_prove_failed(error)

        self._start(self._marking, lambda: errors.append(self._store.tail_marks.write(mark)), ended)

    def _unmark(self) -> None:
        try:
            self._bookie.unmark()
        except DiskError as error:
            self._on_prove_failed(error)

    def unmark_all(self) -> None:
        """Unmark all active ledgers, before a stop and after ``drain``. Raises DiskError."""
        if self._bookie.has_active and not self._store.blocks_checkpoints:
            self._bookie.begin_unmark(everything=True)
            self._store.sync()
            self._bookie.unmark()

    # ---- background work ----------------------------------------------------------------------------

    def sync_in_background(self) -> None:
        """Called after an append outside the groups: begin to sync it, if no sync is in flight, and begin
        whatever is due."""
        if not self._begun:
            self._begin_sync(self._store.begin_sync())
        self._go_on()

    def _gather(self) -> None:
        """Wait briefly for the clients of the last sync, if some of them have not sent their next request yet.

        Clients that wait for each response come back one after the other. Without the wait the first of them would get
        a sync of its own, and the others the next one, for ever. The wait is a fraction of the duration of a sync.
        """
        missing = self._last_adds - sum(written.work.adds.entries for written in self._waiting)
        if missing <= 0 or self._last_adds > _COALESCE_SKIP_ADDS:
            return
        end = self._ticks_us() + min(self._last_sync_us // _COALESCE_SHARE, _COALESCE_US_MAX)
        while missing > 0 and self._ticks_us() < end:
            os.sched_yield()
            before = len(self._waiting)
            self._receive_all()
            missing -= sum(written.work.adds.entries for written in self._waiting[before:])

    def _await_cold_reads(self) -> None:
        awaited, self._cold_reads = self._cold_reads, []
        ranges = [
            found
            for written in awaited
            if written.work.cold_reads
            for found in written.work.cold_reads.ranges
        ]
        self._start(
            self._reading,
            lambda: self._store.await_read(ranges),
            lambda: self._serve_cold_reads(awaited),
        )

    def _begin_sync(self, sync: Sync, *, at_once: bool = False) -> None:
        """``sync``: covers all groups that wait. ``at_once``: if none is in flight."""
        is_short = sync.size <= _AT_ONCE_BYTES and self._last_sync_us <= _AT_ONCE_US
        runs_here = not self._begun and (at_once or is_short)
        self._begun.append(_BegunSync(sync, self._ticks_us(), 0))
        self._cover_waiting()
        if runs_here:
            sync.run()
            self._end_sync(sync)
        elif self._syncs.put(sync):
            self._start(self._syncing, self._syncs.run, lambda: None)

    def _extend_sync(self) -> bool:
        """Have all groups that wait covered by a sync that was begun and does not run yet; False if there is none."""
        extended = self._syncs.extend(self._store.extend_sync)
        if extended:
            self._cover_waiting()
        return extended

    def _cover_waiting(self) -> None:
        self._begun[-1].groups += len(self._waiting)
        self._covered += self._waiting
        self._waiting = []

    def _end_sync(self, sync: Sync) -> None:
        begun = self._begun.popleft()
        if begun.sync is not sync:
            raise BugError("syncs end in another order than they were begun in")
        covered, self._covered = self._covered[: begun.groups], self._covered[begun.groups :]
        now_us = self._ticks_us()
        self._last_sync_us = now_us - max(begun.at_us, self._synced_us)
        self._synced_us = now_us
        self._last_adds = sum(written.work.adds.entries for written in covered)
        failure = None
        try:
            self._store.end_sync(sync)
        except DiskError as error:
            failure = error
            CURRENT_CONNECTIONS.set(partial(_connections, [written.group for written in covered]))
            log.error("what these connections have sent is not durable: %s", error)
            CURRENT_CONNECTIONS.set(None)
        if self._has_states:
            self._note_end()  # before any response: a fence is not to be denied whatever happens to the log
        for written in covered:
            self._finish(written, failure)
        if sync is self._unmarks:
            self._unmarks = None
            if failure is None:
                self._unmark()
        checkpoint = self._checkpoint
        if checkpoint is not None and checkpoint.sync is sync and failure is None:
            self._write_checkpoint(checkpoint)

    def _fail_waiting(self) -> None:
        """Fail all waiting groups: on a failed disk nothing can become durable."""
        if not self._begun and self._waiting:
            waiting, self._waiting = self._waiting, []
            for written in waiting:
                self._finish(written, DiskError(self._store.health.failed_reason or ""))

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
            self._write_checkpoint(checkpoint)

    def _write_checkpoint(self, checkpoint: PendingCheckpoint) -> None:
        pace = CheckpointPace(self._checkpoint_is_urgent, self._ticks_us)
        write = partial(checkpoint.run, pace.rest)
        self._start(self._checkpointing, write, self._end_checkpoint)

    def _checkpoint_is_urgent(self) -> bool:
        """On any thread: true if its end is waited for, or the next one comes near."""
        return self._is_hurried or self._store.checkpoint_half_due

    def _end_checkpoint(self) -> None:
        checkpoint, self._checkpoint = self._checkpoint, None
        assert checkpoint is not None
        try:
            self._store.end_checkpoint(checkpoint)
        except DiskError as error:
            log.error("checkpoint: %s", error)

    def _remove_unneeded(self) -> None:
        removal = self._store.begin_removal()
        if removal is None:
            return

        def ended() -> None:
            try:
                self._store.end_removal(removal)
            except DiskError as error:
                log.error("removal of files that are not needed: %s", error)

        self._start(self._removing, removal.run, ended)

    def _start(
        self, task: _BackgroundTask, call: Callable[[], None], on_done: Callable[[], None]
    ) -> None:
        task.on_done = on_done
        task.future = self._threads.submit(call)
        task.future.add_done_callback(lambda _future: self._notify())

    def _notify(self) -> None:
        """On any thread: have ``on_background_done`` called."""
        os.eventfd_write(self._event, 1)

    def on_background_done(self) -> None:
        """Collect background tasks that are done, and go on."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        self._collect_done()
        self._go_on()

    def _collect_done(self) -> None:
        for sync in self._syncs.pop_ended():
            self._end_sync(sync)
        for task in self._tasks():
            if task.future is not None and task.future.done():
                future, task.future = task.future, None
                future.result()
                assert task.on_done is not None
                task.on_done()

    def _tasks(self) -> tuple[_BackgroundTask, ...]:
        return (
            self._syncing,
            self._checkpointing,
            self._writeback,
            self._reading,
            self._marking,
            self._removing,
        )

    def drain(self) -> None:
        """Wait for everything in flight or waiting, and end it; only syncs are begun meanwhile. A removal of files,
        which nothing depends on, goes on.
        """
        self._is_hurried = True
        try:
            self._drain()
        finally:
            self._is_hurried = False

    def _drain(self) -> None:
        while True:
            self._collect_done()
            cold_reads, self._cold_reads = self._cold_reads, []
            self._serve_cold_reads(cold_reads)
            if self._store.health.failed_reason is not None:
                self._fail_waiting()
            elif not self._begun and self._waiting:
                self._begin_sync(self._store.begin_sync())
            in_flight = [
                task.future
                for task in self._tasks()
                if task.future is not None and task is not self._removing
            ]
            if not in_flight and not self._begun and not self._waiting:
                return
            wait(in_flight)

    def hurry(self) -> None:
        """Let a checkpoint under way rest no more: the process ends, drained or not, and waits for it."""
        self._is_hurried = True

    def close(self) -> None:
        """Close the groups, after ``drain``, once a removal of files has run."""
        self._threads.shutdown()
        os.close(self._event)
