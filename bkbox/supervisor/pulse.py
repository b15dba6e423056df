"""The progress of one child process: whether its main loop turns.

The evidence of progress is an answer on the control channel. Every child reads that channel in the loop that does its
work, between two pieces of work, so an answer proves that the loop turns; a thread of its own for heartbeats would
prove nothing of the kind. One question is under way at a time.

Without an answer three things are told apart:

===================  ===========================================================================================
it waits for a disk  a thread is in state D of the kernel. A sync takes as long as the device likes; to kill who
                     waits gains nothing, and the kill would not come through. Slow, not dead
it computes          its processor time grows, or it waits for a processor. Progress while it starts, as a worker that
                     replays its log answers once it is done; else a busy host, a long computation or an endless loop
neither              it is stopped, or deadlocked
===================  ===========================================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from bkbox.errors import BkboxError
from bkbox.ipc import messages
from bkbox.supervisor.process import Child

_UTIME, _STIME = 11, 12  # fields of /proc/PID/stat after the name
WAITS_FOR_DISK = "it waits for its disk"
STOPPED = "it is stopped"
COMPUTES = "it computes and does not answer"
IDLE = "it neither computes nor answers"

_STEPS_COUNTED = 2
"""A look that comes later than so many steps is our own fault, and is not charged to the child."""


class Pulse:
    """Of one child; ``look`` every ``step_s``. Seconds are those of ``now_s``, counted in looks.

    ``unanswered_s``: since its last answer, 0 while it answers. ``silent_s``: since it last showed any life: answered,
    waited for a disk, or computed before it served. ``idle_s``: the same where computing always is a sign of life.
    ``serves``: it has begun to serve, after which it has nothing to do that takes long.
    """

    def __init__(self, child: Child, step_s: float, now_s: Callable[[], float]) -> None:
        self.child = child
        self.unanswered_s = self.silent_s = self.idle_s = 0.0
        self._step_s = step_s
        self._now_s = now_s
        self._looked_s = now_s()
        self._ticks = 0
        self._question: asyncio.Task[None] | None = None
        self._answered = False
        self.serves = False
        self.doing = ""
        """What it does instead of answering."""

    def look(self, *, serves: bool | None) -> None:
        """``serves``: None where it does from its first answer on."""
        self.serves = self._answered if serves is None else serves
        now_s = self._now_s()
        passed_s = min(now_s - self._looked_s, _STEPS_COUNTED * self._step_s)
        self._looked_s = now_s
        if not self.child.running or self._question is None or self._question.done():
            self.unanswered_s = self.silent_s = self.idle_s = 0.0
            self._ticks = processor_ticks(self.child.pid) if self.child.running else 0
            if self.child.running:  # one that has ended is its keeper's
                self._question = asyncio.ensure_future(self._ask())
            return
        before, self._ticks = self._ticks, processor_ticks(self.child.pid)
        waits, states = waits_for_disk(self.child.pid), thread_states(self.child.pid)
        computes = self._ticks != before or "R" in states
        self.unanswered_s += passed_s
        alive = waits or (computes and not self.serves)
        self.silent_s = 0.0 if alive else self.silent_s + passed_s
        self.idle_s = 0.0 if alive or computes else self.idle_s + passed_s
        self.doing = _doing(states, waits=waits, computes=computes)

    def forget(self) -> None:
        """No more questions."""
        if self._question is not None:
            self._question.cancel()

    async def _ask(self) -> None:
        # A refusal is an answer, too.
        with contextlib.suppress(BkboxError):
            await self.child.control.call(messages.GetStats())
        self._answered = True


def _doing(states: set[str], *, waits: bool, computes: bool) -> str:
    if waits:
        return WAITS_FOR_DISK
    if states & {"T", "t"}:
        return STOPPED
    return COMPUTES if computes else IDLE


def waits_for_disk(pid: int) -> bool:
    """Whether a thread of the process is in a wait of the kernel that no signal ends."""
    return "D" in thread_states(pid)


def thread_states(pid: int) -> set[str]:
    """What the threads of a process do, as the kernel's letters: D in a wait that no signal ends, R computing or
    waiting for a processor, T stopped."""
    found = (_stat(path)[:1] for path in Path(f"/proc/{pid}/task").glob("*/stat"))
    return {state for states in found for state in states}


def processor_ticks(pid: int) -> int:
    """Processor time that the process has used, in ticks of the clock; 0 for one that is gone."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return int(fields[_UTIME]) + int(fields[_STIME]) if fields else 0


def _stat(path: Path) -> list[str]:
    """The fields after the name, which may have spaces and brackets of its own; none where the process is gone."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
