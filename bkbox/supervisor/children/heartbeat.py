"""The progress of one child process: detects whether its main loop turns.

The evidence of progress is a response on the control channel. Every child reads that channel in the loop that does its
work, between two pieces of work, so a response proves that the loop turns. A separate heartbeat thread would not prove
it. One call is in flight at a time.

A process that a signal has stopped responds to nothing, even if it did a moment ago: the kernel shows that at once.
Without a response three cases are told apart:

===================  ===========================================================================================
it waits for a disk  a thread is in state D of the kernel. A sync takes as long as the device needs; killing the
                     child gains nothing, and the kill would not come through. Slow, not dead
it computes          its processor time grows, or it waits for a processor. Progress while it starts, as a worker that
                     replays its log responds once it is done; else a busy host, a long computation or an endless loop,
                     which the processor time of its main thread tells apart
neither              it is stopped, or deadlocked
===================  ===========================================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from bkbox.api.admin.stalls import STOPPED, WAITS_FOR_DISK
from bkbox.errors import BkboxError
from bkbox.ipc.messages.process import GetStats
from bkbox.supervisor.children.process import Child

_UTIME, _STIME = 11, 12  # fields of /proc/PID/stat after the name
COMPUTES = "it computes and does not answer"
IDLE = "it neither computes nor answers"

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STEPS_COUNTED = 2
"""A poll that comes later than this many steps is the supervisor's own fault, and is not charged to the child."""


class Heartbeat:
    """The progress of one child; ``poll`` checks it every ``step_s``. Time is ``now_s``'s, in seconds, counted in
    polls.

    ``unresponsive_s``: since its last response, 0 while it responds. ``silent_s``: since its last sign of life: a
    response, a wait for a disk, or computing before it served. ``idle_s``: the same, but computing is always a sign of
    life. ``spun_s``: processor time of its main thread since its last response. ``serves``: it has begun to serve,
    after which no work of its own takes long.
    """

    def __init__(self, child: Child, step_s: float, now_s: Callable[[], float]) -> None:
        self.child = child
        self.unresponsive_s = self.silent_s = self.idle_s = self.spun_s = 0.0
        self._step_s = step_s
        self._now_s = now_s
        self._polled_s = now_s()
        self._ticks = self._main_ticks = 0
        self._call: asyncio.Task[None] | None = None
        self._has_responded = False
        self.serves = False
        self.doing = ""
        """Its activity while it does not respond."""

    def poll(self, *, serves: bool | None) -> None:
        """Poll the child. ``serves``: None if it serves from its first response on."""
        self.serves = self._has_responded if serves is None else serves
        now_s = self._now_s()
        passed_s = min(now_s - self._polled_s, _STEPS_COUNTED * self._step_s)
        self._polled_s = now_s
        has_response = self._call is None or self._call.done()
        stopped = self.child.running and is_stopped(self.child.pid)
        if not self.child.running or (has_response and not stopped):
            self.unresponsive_s = self.silent_s = self.idle_s = self.spun_s = 0.0
            if self.child.running:  # an ended child is restarted by the ChildSupervisor
                self._ticks = processor_ticks(self.child.pid)
                self._main_ticks = main_thread_ticks(self.child.pid)
                self._call = asyncio.ensure_future(self._ask())
            return
        before, self._ticks = self._ticks, processor_ticks(self.child.pid)
        waits, states = waits_for_disk(self.child.pid), thread_states(self.child.pid)
        # Time that a stopped child used since the last poll, it used before the stop.
        computes = not stopped and (self._ticks != before or "R" in states)
        self.unresponsive_s += passed_s
        alive = waits or (computes and not self.serves)
        self.silent_s = 0.0 if alive else self.silent_s + passed_s
        self.idle_s = 0.0 if alive or computes else self.idle_s + passed_s
        self.spun_s = (main_thread_ticks(self.child.pid) - self._main_ticks) / _TICKS_PER_S
        self.doing = _doing(states, waits=waits, computes=computes)

    def forget(self) -> None:
        """Stop asking."""
        if self._call is not None:
            self._call.cancel()

    async def _ask(self) -> None:
        # A refusal is a response, too.
        with contextlib.suppress(BkboxError):
            await self.child.control.call(GetStats())
        self._has_responded = True


def _doing(states: set[str], *, waits: bool, computes: bool) -> str:
    if waits:
        return WAITS_FOR_DISK
    if states & {"T", "t"}:
        return STOPPED
    return COMPUTES if computes else IDLE


def is_stopped(pid: int) -> bool:
    """True if a signal has stopped the process, and none has continued it."""
    return _stat(Path(f"/proc/{pid}/stat"))[:1] == ["T"]


def waits_for_disk(pid: int) -> bool:
    """True if a thread of the process is in a kernel wait that no signal ends."""
    return "D" in thread_states(pid)


def thread_states(pid: int) -> set[str]:
    """States of a process's threads, as the kernel's letters: D in a wait that no signal ends, R computing or waiting
    for a processor, T stopped."""
    found = (_stat(path)[:1] for path in Path(f"/proc/{pid}/task").glob("*/stat"))
    return {state for states in found for state in states}


def processor_ticks(pid: int) -> int:
    """Processor time of the process in clock ticks; 0 for a process that is gone."""
    return _ticks_in(Path(f"/proc/{pid}/stat"))


def main_thread_ticks(pid: int) -> int:
    """The same of its main thread alone."""
    return _ticks_in(Path(f"/proc/{pid}/task/{pid}/stat"))


def _ticks_in(path: Path) -> int:
    fields = _stat(path)
    return int(fields[_UTIME]) + int(fields[_STIME]) if fields else 0


def _stat(path: Path) -> list[str]:
    """The fields after the name, which may contain spaces and brackets. Empty if the process is gone."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
