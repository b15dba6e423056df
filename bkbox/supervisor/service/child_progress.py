"""Detects children of a bookie that make no progress: they are shown as stalled, and killed after a while.

Each child is polled four times a second (heartbeat.py), with or without a service manager.

=======================  ======================================================================================
without a response for   what happens
=======================  ======================================================================================
0, if it is stopped      it is stalled: status, warnings, health checks, metrics and the log say so, and the bookie
                         takes no new ledgers if it needs the child for them
STALL_SHOWN_S            all of this but log and mode for one that does nothing: polled three times, it slept
SPIN_SHOWN_S             the same for one that computes: seconds of its main thread's processor time, not of the clock
STALL_LASTS_S            log and mode as well for one that does nothing
SLOW_STALL_SHOWN_S       all of it for one that waits for its disk, computes or starts, without any fault perhaps
STALL_RESTART_S          it is killed, by its process id, and restarted as any child that has ended
BUSY_RESTART_S           the same for one that computes all the time
=======================  ======================================================================================

A child that waits for its disk is never killed: the disk is slow, and another worker would wait as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bkbox.api.admin.stalls import STOPPED
from bkbox.base import limits
from bkbox.supervisor.children.child_group import frontend_title
from bkbox.supervisor.children.heartbeat import Heartbeat
from bkbox.supervisor.children.process import Child

if TYPE_CHECKING:
    from bkbox.api.admin.status import BookieState
    from bkbox.supervisor.children.child_group import ChildGroup
    from bkbox.supervisor.disks.disks import Disk

    class ParentOfChildren(Protocol):
        """The part of the supervisor that polling the children uses."""

        state: BookieState
        disks: list[Disk]

        @property
        def frontends(self) -> ChildGroup: ...

        repair: Child | None


log = logging.getLogger(__name__)

POLL_EVERY_S = 0.25
"""A child that hangs is stalled within a second, and a screen that reads the status twice a second shows it within two.
"""


class Stall(NamedTuple):
    """A child without progress: for how many seconds, and what it does instead."""

    seconds: float
    doing: str

    def __str__(self) -> str:
        return f"has made no progress for {self.seconds:.0f} s ({self.doing})"


class Progress:
    """The progress of one bookie's children. ``step_s``: seconds between two polls."""

    def __init__(
        self,
        bookie: ParentOfChildren,
        step_s: float = POLL_EVERY_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bookie = bookie
        self._step_s = step_s
        self._now_s = now_s
        self._heartbeats: dict[Child, Heartbeat] = {}
        self._reported: set[int] = set()

    async def run(self) -> None:
        """Poll the children until cancelled."""
        try:
            while True:
                if self._bookie.state != "stopping":  # a stop has its own time-outs
                    self.poll()
                await asyncio.sleep(self._step_s)
        finally:
            for heartbeat in self._heartbeats.values():
                heartbeat.forget()

    def poll(self) -> None:
        """Poll each child once; kill children that have stalled for too long."""
        present = set()
        for what, child, serves in children_of(self._bookie):
            present.add(child)
            heartbeat = self._heartbeats.get(child)
            if heartbeat is None:
                heartbeat = self._heartbeats[child] = Heartbeat(child, self._step_s, self._now_s)
            heartbeat.poll(serves=serves)
            self._tell(what, child)
            if (
                heartbeat.idle_s >= limits.STALL_RESTART_S
                or heartbeat.silent_s >= limits.BUSY_RESTART_S
            ) and child.running:
                log.error(
                    "%s (pid %d) %s: it is killed and started again",
                    *(what, child.pid, Stall(heartbeat.unresponsive_s, heartbeat.doing)),
                )
                child.kill()
        for ended in self._heartbeats.keys() - present:
            self._reported.discard(ended.pid)
            self._heartbeats.pop(ended).forget()

    def _tell(self, what: str, child: Child) -> None:
        stall = self.stall_of(child) if self.lasts(child) else None
        if stall is None:
            if child.pid in self._reported and child.running:
                log.info("%s (pid %d) makes progress again", what, child.pid)
            self._reported.discard(child.pid)
        elif child.pid not in self._reported:
            self._reported.add(child.pid)
            log.error("%s (pid %d) %s", what, child.pid, stall)

    def stall_of(self, child: Child | None) -> Stall | None:
        """The stall of a running child; None if it makes progress or has ended."""
        heartbeat = self._running(child)
        if heartbeat is None:
            return None
        is_hung = heartbeat.serves and (
            heartbeat.idle_s >= limits.STALL_SHOWN_S or heartbeat.spun_s >= limits.SPIN_SHOWN_S
        )
        if is_hung or _lasts(heartbeat):
            return Stall(heartbeat.unresponsive_s, heartbeat.doing)
        return None

    def lasts(self, child: Child | None) -> bool:
        """True for a running child whose stall is no hiccup."""
        heartbeat = self._running(child)
        return heartbeat is not None and _lasts(heartbeat)

    def _running(self, child: Child | None) -> Heartbeat | None:
        heartbeat = None if child is None else self._heartbeats.get(child)
        return heartbeat if heartbeat is not None and heartbeat.child.running else None

    def silent_s(self, child: Child) -> float:
        """Seconds since a child's last sign of life. Waiting for a disk is a sign of life."""
        heartbeat = self._heartbeats.get(child)
        return 0.0 if heartbeat is None else heartbeat.silent_s


def _lasts(heartbeat: Heartbeat) -> bool:
    slow_s = heartbeat.unresponsive_s if heartbeat.serves else heartbeat.silent_s
    is_stopped = heartbeat.doing == STOPPED and heartbeat.idle_s > 0
    is_idle = heartbeat.serves and heartbeat.idle_s >= limits.STALL_LASTS_S
    return is_stopped or is_idle or slow_s >= limits.SLOW_STALL_SHOWN_S


def children_of(bookie: ParentOfChildren) -> Iterator[tuple[str, Child, bool | None]]:
    """Each child with its name for people, and whether it serves; None: it serves from its first response on."""
    for disk in bookie.disks:
        if disk.child is not None:
            yield f"the worker of disk {disk.path}", disk.child, disk.usable
    serves = None if bookie.state == "running" else False
    frontends = bookie.frontends.by_number
    for number, child in frontends.items():
        yield frontend_title(len(frontends), number), child, serves
    if bookie.repair is not None:
        yield "the repair worker", bookie.repair, serves
