"""Detects children of a bookie that make no progress: they are shown as stalled, and killed after a while.

Each child is polled once a second (heartbeat.py), with or without a service manager.

=======================  ======================================================================================
without an answer for    what happens
=======================  ======================================================================================
0, if it is stopped      it is stalled: status, warnings, health checks and metrics say so
STALL_SHOWN_S            the same for one that does nothing
SLOW_STALL_SHOWN_S       the same for one that waits for its disk, computes or starts, without any fault perhaps
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

from bkbox.api.admin.status_parts import STOPPED
from bkbox.base import limits
from bkbox.supervisor.children.heartbeat import Pulse
from bkbox.supervisor.children.process import Child

if TYPE_CHECKING:
    from bkbox.api.admin.status import BookieState
    from bkbox.supervisor.disks.disks import Disk

    class ParentOfChildren(Protocol):
        """The part of the supervisor that polling the children uses."""

        state: BookieState
        disks: list[Disk]
        frontend: Child | None
        repair: Child | None


log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0


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
        step_s: float = LOOK_EVERY_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bookie = bookie
        self._step_s = step_s
        self._now_s = now_s
        self._pulses: dict[Child, Pulse] = {}
        self._told: set[int] = set()

    async def run(self) -> None:
        """Poll the children until cancelled."""
        try:
            while True:
                if self._bookie.state != "stopping":  # a stop has its own time-outs
                    self.look()
                await asyncio.sleep(self._step_s)
        finally:
            for pulse in self._pulses.values():
                pulse.forget()

    def look(self) -> None:
        """Poll each child once; kill children that have stalled for too long."""
        present = set()
        for what, child, serves in children_of(self._bookie):
            present.add(child)
            pulse = self._pulses.get(child)
            if pulse is None:
                pulse = self._pulses[child] = Pulse(child, self._step_s, self._now_s)
            pulse.look(serves=serves)
            self._tell(what, child)
            if (
                pulse.idle_s >= limits.STALL_RESTART_S or pulse.silent_s >= limits.BUSY_RESTART_S
            ) and child.running:
                log.error(
                    "%s (pid %d) %s: it is killed and started again",
                    *(what, child.pid, Stall(pulse.unanswered_s, pulse.doing)),
                )
                child.kill()
        for gone in self._pulses.keys() - present:
            self._told.discard(gone.pid)
            self._pulses.pop(gone).forget()

    def _tell(self, what: str, child: Child) -> None:
        stall = self.stall_of(child)
        if stall is None:
            if child.pid in self._told and child.running:
                log.info("%s (pid %d) makes progress again", what, child.pid)
            self._told.discard(child.pid)
        elif child.pid not in self._told:
            self._told.add(child.pid)
            log.error("%s (pid %d) %s", what, child.pid, stall)

    def stall_of(self, child: Child | None) -> Stall | None:
        """The stall of a running child; None if it makes progress or has ended."""
        pulse = None if child is None else self._pulses.get(child)
        if pulse is None or not pulse.child.running:
            return None
        slow_s = pulse.unanswered_s if pulse.serves else pulse.silent_s
        is_stopped = pulse.doing == STOPPED and pulse.idle_s > 0
        is_idle = pulse.serves and (is_stopped or pulse.idle_s >= limits.STALL_SHOWN_S)
        if is_idle or slow_s >= limits.SLOW_STALL_SHOWN_S:
            return Stall(pulse.unanswered_s, pulse.doing)
        return None

    def silent_s(self, child: Child) -> float:
        """Seconds since a child's last sign of life. Waiting for a disk is a sign of life."""
        pulse = self._pulses.get(child)
        return 0.0 if pulse is None else pulse.silent_s


def children_of(bookie: ParentOfChildren) -> Iterator[tuple[str, Child, bool | None]]:
    """Each child with its name for people, and whether it serves; None: it serves from its first answer on."""
    for disk in bookie.disks:
        if disk.child is not None:
            yield f"the worker of disk {disk.path}", disk.child, disk.usable
    serves = None if bookie.state == "running" else False
    for what, child in (("the front-end", bookie.frontend), ("the repair worker", bookie.repair)):
        if child is not None:
            yield what, child, serves
