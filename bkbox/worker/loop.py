"""The worker process of one disk: one thread, one loop over the control channel, the front-end's link and repair's
link.

Everything that waits on the link is carried out as one group (commit_groups.py). Calls are carried out between groups.
Responses to long polls are sent between groups, too: after each turn, and at the next deadline. When the supervisor is
gone the worker exits. When the front-end is gone the disk stays open and the next front-end is served.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bkbox.base import logs
from bkbox.bookie.bookie import Bookie
from bkbox.errors import BkboxError, BugError, DiskError, DiskFailedError
from bkbox.ipc import messages
from bkbox.ipc.channel import Channel, refusal
from bkbox.ipc.messages import Message
from bkbox.native.spin_poll import poll_events
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.folder import Folder, GuardedFiles
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.control_handlers import Calls, opened, stopped
from bkbox.worker.disk_maintenance import DiskMaintenance
from bkbox.worker.disk_startup import Opening
from bkbox.worker.frontend_link import FrontLink
from bkbox.worker.ledger_migration import LedgerMigrations
from bkbox.worker.stages import Stages

log = logging.getLogger(__name__)

_CONCERNING_STATES = (
    messages.ListLedgers,
    messages.MarkLedgers,
    messages.ClearLimbo,
    messages.ClearDirtyMarker,
)
"""Calls that see or change the states of ledgers, and need them as they are once nothing is in flight."""

_LOOK_EVERY_US = 100_000
"""Interval, in microseconds, at which free space is checked while there is work."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _ticks_us() -> int:
    return time.monotonic_ns() // 1_000


class Worker:
    """The worker process of one disk."""

    def __init__(self, control: socket.socket) -> None:
        self._control = Channel(control)
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._watch(self._control.fileno(), self._on_control)
        self._store: DiskStore | None = None
        self._bookie: Bookie | None = None
        self._calls: Calls | None = None
        self._groups: CommitGroups | None = None
        self._moves: LedgerMigrations | None = None
        self._space: DiskMaintenance | None = None
        self._front: FrontLink | None = None
        self._looked_us = 0
        self._stages: Stages | None = None
        self._usage_max = 1.0
        self._usage_resume = 0.0
        self._reserve_bytes = 0
        self._told_trouble = False
        self._running = True
        self._lock = -1
        self._folders: list[Folder] = []
        """Folders of the disk, and of the journal if there is one."""

    def run(self) -> None:
        """Run until the supervisor says stop or is gone."""
        try:
            while self._running:
                for number, _events in poll_events(self._poll, self._wait_s()):
                    handler = self._handlers.get(number)
                    if handler is not None:  # # it may have gone in this turn
                        handler()
                    if not self._running:
                        return  # # the disk is closed, or must not be touched any more
                if self._front is not None and self._front.has_batches:
                    self._on_front()
                if self._bookie is not None and self._bookie.has_polls:
                    self._answer_polls()
                if self._groups is not None and self._groups.rest_wait_us == 0:
                    self._groups.rest()
                    self._look_after()
                if self._store is not None and self._store.index_damage:
                    self._leave_index()
        except EOFError:
            log.warning("the supervisor is gone")

    def _watch(self, number: int, handler: Callable[[], None]) -> None:
        self._handlers[number] = handler
        self._poll.register(number, select.EPOLLIN)

    def _unwatch(self, number: int) -> None:
        del self._handlers[number]
        self._poll.unregister(number)

    # ---- control ------------------------------------------------------------------------------------

    def _on_control(self) -> None:
        message, fds = self._control.receive()
        if isinstance(message, messages.OpenDisk):
            self._reply(self._control, message, lambda: self._open(message, fds))
        elif isinstance(message, messages.AttachFrontend):
            self._attach_front(socket.socket(fileno=fds[0]))
        elif isinstance(message, messages.AttachRepair):
            channel = Channel(socket.socket(fileno=fds[0]))
            self._watch(channel.fileno(), lambda: self._on_repair(channel))
        elif isinstance(message, messages.Settings):
            self._take_over(message.values)
        elif isinstance(message, messages.Stop):
            self._reply(self._control, message, self._stop)
        else:
            if isinstance(message, messages.ListLedgers) and self._groups is not None:
                self._groups.take()  # # a ledger that waits there to be created belongs in the list
            self._reply(self._control, message, lambda: self._answer(message, fds))

    def _on_repair(self, channel: Channel) -> None:
        try:
            call, fds = channel.receive()
            self._reply(channel, call, lambda: self._answer(call, fds))
        except (EOFError, OSError):
            self._unwatch(channel.fileno())
            channel.close()

    def _answer(self, call: Message, fds: list[int]) -> Message:
        if self._calls is None or self._groups is None or self._bookie is None:
            raise BugError("the disk is not open yet")
        if isinstance(call, messages.MOVES_ON_DISKS):
            return self._move(call, fds)
        if isinstance(call, messages.SPACE_CALLS):
            return self._of_space(call)
        if isinstance(call, messages.SetReadOnlyReasons):
            self._bookie.read_only.intend(call.reasons)
            return messages.Done()
        if isinstance(call, messages.GetStats):
            # A read-only bookie gets no writes, so the check must see freed space without one.
            self._watch_space()
            if self._space is not None:
                self._space.maintain_reserve(self._reserve_bytes)
        elif isinstance(call, _CONCERNING_STATES):
            self._groups.drain()
        return self._calls.answer(call)

    def _of_space(self, call: Message) -> Message:
        assert self._space is not None
        assert self._groups is not None
        if isinstance(call, messages.ChangeLedgers):
            self._groups.take()
            self._groups.drain()
        answer = self._space.answer(call)
        self._answer_polls()  # # of ledgers that have gone
        self._look_after()
        return answer

    def _move(self, call: Message, fds: list[int]) -> Message:
        assert self._moves is not None
        try:
            answer = self._moves.answer(call, fds)
        finally:
            for fd in fds:
                os.close(fd)
        self._answer_polls()  # # of a ledger that leaves: while it is still here
        self._look_after()
        return answer

    def _reply(self, channel: Channel, call: Message, action: Callable[[], Message]) -> None:
        try:
            reply = action()
        except BkboxError as error:
            reply = refusal(error)
        reply.call = call.call
        channel.send(reply)

    # ---- the disk -----------------------------------------------------------------------------------

    def _open(self, order: messages.OpenDisk, fds: list[int]) -> Message:
        (self._lock,) = (
            fds  # # open as long as this process lives: no other process may have the disk
        )
        files, path = GuardedFiles(), Path(order.path)
        folder = files.guard(path)
        self._folders = [folder, *([files.guard(Path(order.journal))] if order.journal else [])]
        found = Opening(files, order, _wall_ms, _ticks_us).run(self._tell_rebuild)
        self._store = store = found.store
        self._bookie = found.bookie
        stages = self._stages = Stages(order.slow_operation_ms * 1000, _ticks_us)
        self._groups = CommitGroups(store, self._bookie, stages, _ticks_us, self._lost_front)
        self._watch(self._groups.fileno(), self._on_ended)
        self._moves = LedgerMigrations(files, path, store, self._bookie, self._groups, _ticks_us)
        self._calls = Calls(store, self._bookie, stages, self._moves.ledgers_at_home)
        self._usage_max, self._usage_resume = order.disk_usage_max, order.disk_usage_resume
        self._reserve_bytes = order.disk_reserve_bytes
        self._watch_space()
        self._space = DiskMaintenance(
            files,
            path,
            store,
            self._bookie,
            self._groups,
            self._moves.ledgers_at_home,
            self._reserve_bytes,
            folder.opened,
        )
        return opened(store, found.report, found.rebuilt)

    def _tell_rebuild(self, done: int, total: int) -> None:
        self._control.send(messages.IndexProgress(done_bytes=done, total_bytes=total))

    def _leave_index(self) -> None:
        """A part of the index cannot be read: the next start of this worker rebuilds it."""
        assert self._store is not None
        log.error("this worker ends, and its index is made anew: %s", self._store.index_damage)
        with suppress(DiskError):  # # the index stays as it was: the next start sees what it can
            self._store.set_index_aside()
        self._running = False

    def _take_over(self, settings: dict[str, Any]) -> None:
        logs.set_level(settings["log_level"])
        self._usage_max = settings["disk_usage_max"]
        self._usage_resume = settings["disk_usage_resume"]
        self._reserve_bytes = settings["disk_reserve_bytes"]
        if self._stages is not None:
            self._stages.slow_us = settings["slow_operation_ms"] * 1000

    def _stop(self) -> Message:
        self._running = False
        return stopped(self._store, self._groups)

    def _leave_disk(self, error: DiskFailedError) -> None:
        """The disk's path now leads to another folder: writes by that path would not reach the disk."""
        if self._running:
            log.error("this worker ends: %s", error)
            self._control.send(messages.DiskFailed(reason=str(error)))
        self._running = False

    def _watch_space(self) -> None:
        assert self._bookie is not None
        try:
            for folder in self._folders:
                folder.check()
        except DiskFailedError as error:
            self._leave_disk(error)
            return
        except DiskError:
            pass  # # nor will the disk report its free space: see below
        self._bookie.watch_space(self._usage_max, self._reserve_bytes, self._usage_resume)

    def _look_after(self) -> None:
        """Check free space now and then; report a disk failure once."""
        assert self._store is not None
        assert self._bookie is not None
        now = _ticks_us()
        if now - self._looked_us >= _LOOK_EVERY_US:
            self._looked_us = now
            self._watch_space()
        if self._store.failed_reason is not None and not self._told_trouble:
            self._told_trouble = True
            self._control.send(messages.DiskFailed(reason=self._store.failed_reason))

    # ---- the front-end ------------------------------------------------------------------------------

    def _attach_front(self, sock: socket.socket) -> None:
        assert self._store is not None
        assert self._groups is not None
        assert self._moves is not None
        self._detach_front()
        self._groups.drain()
        try:
            front = FrontLink(sock)
            front.announce(ledger for ledger, _record in list(self._moves.ledgers_at_home()))
        except EOFError:
            sock.close()
            return
        self._front = front
        self._groups.attach(front)
        self._watch(front.fileno(), self._on_front)
        self._on_front()

    def _detach_front(self) -> None:
        if self._front is not None:
            self._unwatch(self._front.fileno())
            self._front.close()
            self._front = None
        if self._groups is not None:
            self._groups.detach()
        if self._bookie is not None:
            self._bookie.forget_connections()

    def _on_front(self) -> None:
        assert self._groups is not None
        self._groups.take()
        self._look_after()

    def _on_ended(self) -> None:
        assert self._groups is not None
        self._groups.ended()
        self._look_after()

    def _lost_front(self) -> None:
        # The supervisor reports a front-end that ended out of order.
        log.info("the front-end is gone; waiting for the next one")
        self._detach_front()

    def _wait_s(self) -> float | None:
        """Seconds until there is something to do if nothing comes; None: for ever."""
        if self._front is not None and self._front.has_batches:
            return 0
        waits_ms = []
        if self._bookie is not None and self._bookie.has_polls:
            waits_ms.append(self._bookie.polls_wait_ms)
        if self._groups is not None and (wait_us := self._groups.rest_wait_us) is not None:
            waits_ms.append(-(-wait_us // 1000))
        found = [wait_ms for wait_ms in waits_ms if wait_ms is not None]
        return min(found) / 1000 if found else None

    def _answer_polls(self) -> None:
        if self._front is None or self._bookie is None:
            return
        try:
            for connection, frames in self._bookie.polled():
                for frame in frames:
                    self._front.polled().put(connection, frame, 1)
            self._front.flush()
        except EOFError:
            self._lost_front()
