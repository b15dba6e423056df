"""Signs of life of one child process.

A child that serves answers calls, so it is asked one question after the other, never two at once. Two kinds of
silence are no fault of a process:

- it waits for a disk (state D of the kernel): a sync may take as long as the device likes, nothing is gained by
  killing who waits for it, and a kill would not even come through;
- it does not serve yet: a worker that replays its log answers when it is done. That it works shows in the processor
  time that it uses.

A process that is stopped, deadlocked or runs in circles shows none of these.
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


class Pulse:
    """What is known of one child; ``look`` now and then. Times are seconds of ``now_s``."""

    def __init__(self, child: Child, now_s: Callable[[], float]) -> None:
        self.child = child
        self._now_s = now_s
        self._alive_s = now_s()
        self._ticks = 0
        self._question: asyncio.Task[None] | None = None

    def look(self, *, serves: bool) -> float:
        """For how many seconds there has been no sign of life. 0 for a child that has ended: it is brought back by
        whoever keeps it."""
        if not self.child.running:
            return 0.0
        if self._question is None or self._question.done():
            self._question = asyncio.ensure_future(self._ask())
        elif waits_for_disk(self.child.pid) or (not serves and self._works()):
            self._alive_s = self._now_s()
        return self._now_s() - self._alive_s

    def _works(self) -> bool:
        """Whether it has used the processor since the last time."""
        before, self._ticks = self._ticks, processor_ticks(self.child.pid)
        return self._ticks != before

    def forget(self) -> None:
        """No more questions."""
        if self._question is not None:
            self._question.cancel()

    async def _ask(self) -> None:
        # A refusal is an answer, too; a child that has ended is seen by its keeper.
        with contextlib.suppress(BkboxError):
            await self.child.control.call(messages.GetStats())
        self._alive_s = self._now_s()


def waits_for_disk(pid: int) -> bool:
    """Whether a thread of the process is in a wait of the kernel that no signal ends."""
    return any(_stat(path)[:1] == ["D"] for path in Path(f"/proc/{pid}/task").glob("*/stat"))


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
