"""The worker process of one disk: one thread, one loop over the control channel, the links of the front-ends, and
repair's.

Everything that waits on a link is carried out as one group (commit_groups.py). Calls are carried out between groups.
Responses to long polls are sent between groups, too: after each turn, and at the next deadline. When the supervisor is
gone the worker exits. When a front-end is gone the disk stays open, and its next process is served.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from bkbox.base import logs
from bkbox.errors import DiskError, DiskFailedError
from bkbox.ipc import link
from bkbox.ipc.channel import Channel
from bkbox.ipc.handlers import Handlers
from bkbox.ipc.messages.disk import (
    AttachFrontend,
    AttachRepair,
    DiskFailed,
    FrontendDetached,
    IndexProgress,
    OpenDisk,
)
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.process import Settings, Stop, Stopped
from bkbox.native.spin_poll import SpinPoll
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.disk.folder import Folder, GuardedFiles
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.control_handlers import opened, stopped
from bkbox.worker.disk_service import DiskService
from bkbox.worker.disk_startup import Opening
from bkbox.worker.frontend_link import FrontLink
from bkbox.worker.stages import Stages

log = logging.getLogger(__name__)

_LIST_PAGE = 2_000
"""Ledgers that one turn lists to a front-end that came while others are served."""

_SPACE_CHECK_US = 100_000
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
        self._spin = SpinPoll(self._poll)
        self._readers: dict[int, Callable[[], None]] = {}
        self._watch(self._control.fileno(), lambda: self._serve(self._control))
        self._handlers = Handlers()
        self._handlers.on_fd(OpenDisk, self._open)
        self._handlers.on_fd(AttachFrontend, self._attach_front)
        self._handlers.on_fd(AttachRepair, self._attach_repair)
        self._handlers.on(Settings, self._apply_settings)
        self._handlers.on(Stop, self._stop)
        self._store: DiskStore | None = None
        """Open before ``_disk``, and closed in order even if that cannot be made."""
        self._disk: DiskService | None = None
        self._fronts: dict[int, FrontLink] = {}
        """The links by the number of their front-end."""
        self._has_requests = False
        """A link became readable in this turn."""
        self._listings: dict[int, int] = {}
        """By front-end that is being sent the list of ledgers: the last ledger that it was sent."""
        self._checked_us = 0
        self._usage_max = 1.0
        self._usage_resume = 0.0
        self._reserve_bytes = 0
        self._reported_failure = False
        self._running = True
        self._lock = -1
        self._folders: list[Folder] = []
        """Folders of the disk, and of the journal if there is one."""

    def run(self) -> None:
        """Run until the supervisor sends Stop or is gone."""
        try:
            while self._running:
                for number, _events in self._spin.events(self._wait_s()):
                    reader = self._readers.get(number)
                    if reader is not None:  # it may have gone in this turn
                        reader()
                    if not self._running:
                        return  # the disk is closed, or must not be touched any more
                if self._has_requests:
                    self._on_front()
                disk = self._disk
                if disk is None:
                    continue
                if disk.bookie.has_polls:
                    self._send_poll_responses()
                if self._listings:
                    self._list_more(disk)
                if disk.groups.idle_wait_us == 0:
                    disk.groups.on_idle()
                    self._check_disk()
                if disk.store.index_damage:
                    self._leave_index()
        except EOFError:
            log.warning("the supervisor is gone")
        finally:
            if self._disk is not None:
                self._disk.groups.hurry()

    def _watch(self, number: int, reader: Callable[[], None]) -> None:
        self._readers[number] = reader
        self._poll.register(number, select.EPOLLIN)

    def _unwatch(self, number: int) -> None:
        del self._readers[number]
        self._poll.unregister(number)

    # ---- control ------------------------------------------------------------------------------------

    def _serve(self, channel: Channel) -> None:
        """Handle one message. Reports that it causes are sent before the reply."""
        reply = self._handlers.handle(*channel.receive())
        if self._disk is not None and self._running:
            self._send_poll_responses()
            self._check_disk()
        if reply is not None:
            channel.send(reply)

    def _attach_repair(self, _order: AttachRepair, fd: int) -> None:
        channel = Channel(socket.socket(fileno=os.dup(fd)))
        self._watch(channel.fileno(), lambda: self._serve_repair(channel))

    def _serve_repair(self, channel: Channel) -> None:
        try:
            self._serve(channel)
        except (EOFError, OSError):
            self._unwatch(channel.fileno())
            channel.close()

    # ---- the disk -----------------------------------------------------------------------------------

    def _open(self, order: OpenDisk, fd: int) -> Message:
        self._lock = os.dup(fd)
        files, path = GuardedFiles(), Path(order.path)
        folder = files.guard(path)
        files.hold(
            path, self._lock
        )  # opened before any disk was synced: others may be on the same file system
        self._folders = [folder, *([files.guard(Path(order.journal))] if order.journal else [])]
        found = Opening(files, order, _wall_ms, _ticks_us).run(self._report_rebuild)
        self._store = found.store
        stages = Stages(order.slow_operation_ms * 1000, _ticks_us)
        groups = CommitGroups(found.store, found.bookie, stages, _ticks_us, self._lost_front)
        self._watch(groups.fileno(), self._on_ended)
        self._usage_max, self._usage_resume = order.disk_usage_max, order.disk_usage_resume
        self._reserve_bytes = order.disk_reserve_bytes
        self._disk = DiskService(
            files,
            path,
            found.store,
            found.bookie,
            groups,
            stages,
            _ticks_us,
            self._refresh_space,
            order.disk_reserve_bytes,
            folder.opened,
        )
        self._watch_space()
        self._disk.register(self._handlers)
        return opened(found.store, found.report, found.rebuilt)

    def _report_rebuild(self, done: int, total: int) -> None:
        self._control.send(IndexProgress(done_bytes=done, total_bytes=total))

    def _leave_index(self) -> None:
        """A part of the index cannot be read: the next start of this worker rebuilds it."""
        assert self._disk is not None
        store = self._disk.store
        log.error("this worker ends, and the next one rebuilds the index: %s", store.index_damage)
        with suppress(DiskError):  # the index stays as it was: the next start checks it
            store.set_index_aside()
        self._running = False

    def _apply_settings(self, order: Settings) -> None:
        settings = order.values
        logs.set_level(settings["log_level"])
        self._usage_max = settings["disk_usage_max"]
        self._usage_resume = settings["disk_usage_resume"]
        self._reserve_bytes = settings["disk_reserve_bytes"]
        if self._disk is not None:
            self._disk.stages.slow_us = settings["slow_operation_ms"] * 1000

    def _stop(self, _order: Stop) -> Stopped:
        self._running = False
        return stopped(self._store, None if self._disk is None else self._disk.groups)

    def _leave_disk(self, error: DiskFailedError) -> None:
        """The disk's path now leads to another folder: writes by that path would not reach the disk."""
        if self._running:
            log.error("this worker ends: %s", error)
            self._control.send(DiskFailed(reason=str(error)))
        self._running = False

    def _refresh_space(self) -> None:
        assert self._disk is not None
        self._watch_space()
        self._disk.maintenance.maintain_reserve(self._reserve_bytes)

    def _watch_space(self) -> None:
        assert self._disk is not None
        try:
            for folder in self._folders:
                folder.check()
        except DiskFailedError as error:
            self._leave_disk(error)
            return
        except DiskError:
            pass  # nor will the disk report its free space: see below
        self._disk.bookie.watch_space(self._usage_max, self._reserve_bytes, self._usage_resume)

    def _check_disk(self) -> None:
        """Check free space now and then; report a disk failure once."""
        assert self._disk is not None
        now = _ticks_us()
        if now - self._checked_us >= _SPACE_CHECK_US:
            self._checked_us = now
            self._watch_space()
        reason = self._disk.store.health.failed_reason
        if reason is not None and not self._reported_failure:
            self._reported_failure = True
            self._control.send(DiskFailed(reason=reason))

    # ---- the front-end ------------------------------------------------------------------------------

    def _attach_front(self, order: AttachFrontend, fd: int) -> None:
        disk = self._disk
        assert disk is not None
        before = self._fronts.get(order.frontend)
        if before is not None:
            self._detach_front(before)
        sock = socket.socket(fileno=os.dup(fd))
        try:
            front = FrontLink(sock, order.slot_wait_s)
            if self._fronts:
                self._listings[order.frontend] = -1
            else:
                disk.groups.drain()
                ledgers = [ledger for ledger, _record in disk.migrations.assigned_ledgers()]
                front.announce(ledgers)
        except EOFError:
            sock.close()
            return
        self._fronts[order.frontend] = front
        disk.groups.attach(front)
        self._watch(front.fileno(), self._note_requests)
        self._on_front()

    def _list_more(self, disk: DiskService) -> None:
        """Send a page of the list to each front-end that came while others are served, which are not held up by it. A
        ledger that is created meanwhile is known to the supervisor, and one that is leaving is placed by it."""
        for number, after in list(self._listings.items()):
            front = self._fronts[number]
            if not front.has_free_slot:
                continue
            page = list(islice(disk.migrations.assigned_ledgers(after), _LIST_PAGE))
            leaving = disk.migrations.leaving
            ledgers = [ledger for ledger, _record in page if ledger not in leaving]
            try:
                front.announce_page(ledgers, last=len(page) < _LIST_PAGE)
            except EOFError:
                self._lost_front(front)
                continue
            if len(page) < _LIST_PAGE:
                del self._listings[number]
            else:
                self._listings[number] = page[-1][0]

    def _detach_front(self, front: FrontLink) -> None:
        number = self._number_of(front)
        self._unwatch(front.fileno())
        front.close()
        del self._fronts[number]
        self._listings.pop(number, None)
        assert self._disk is not None
        self._disk.groups.detach(front)
        self._disk.bookie.forget_connections(link.connections_of(number))

    def _number_of(self, front: FrontLink) -> int:
        return next(number for number, each in self._fronts.items() if each is front)

    def _note_requests(self) -> None:
        self._has_requests = True

    def _on_front(self) -> None:
        assert self._disk is not None
        self._has_requests = False
        self._disk.groups.receive()
        self._check_disk()

    def _on_ended(self) -> None:
        assert self._disk is not None
        self._disk.groups.on_background_done()
        self._check_disk()

    def _lost_front(self, front: FrontLink) -> None:
        # The supervisor reports a front-end that ended out of order.
        log.info("a front-end is gone; waiting for the next one")
        if front.is_stuck:
            number = self._number_of(front)
            log.error("front-end %d takes no responses: its link is closed", number + 1)
            self._control.send(FrontendDetached(frontend=number))
        self._detach_front(front)

    def _wait_s(self) -> float | None:
        """Seconds until there is something to do if nothing comes; None: for ever."""
        if self._disk is None:
            return None
        if self._disk.groups.has_batches:
            self._has_requests = True
            return 0
        if self._listings and any(self._fronts[each].has_free_slot for each in self._listings):
            return 0
        waits_ms = []
        if self._disk.bookie.has_polls:
            waits_ms.append(self._disk.bookie.polls_wait_ms)
        if (wait_us := self._disk.groups.idle_wait_us) is not None:
            waits_ms.append(-(-wait_us // 1000))
        found = [wait_ms for wait_ms in waits_ms if wait_ms is not None]
        return min(found) / 1000 if found else None

    def _send_poll_responses(self) -> None:
        if not self._fronts or self._disk is None:
            return
        written: dict[int, FrontLink] = {}
        for connection, frames in self._disk.bookie.pop_ready_polls():
            number = link.frontend_of(connection)
            front = self._fronts.get(number)
            if front is None:
                continue
            written[number] = front
            try:
                for frame in frames:
                    front.poll_responses().put(connection, frame, 1)
            except EOFError:
                self._lost_front(front)
        for number, front in written.items():
            if self._fronts.get(number) is front:
                try:
                    front.flush()
                except EOFError:
                    self._lost_front(front)
