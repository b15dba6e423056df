"""A benchmark's run has the machine to itself: it looks for other processes that compute; it waits, repeats, refuses.

Read from /proc is the processor time of all processes but the benchmark's own, which are its process and that
process's descendants. Kernel threads are left out: they write out what the benchmark wrote. Children that a process
has waited for count with it, so that a build that starts thousands of short processes is seen. They do not with the
benchmark's ancestors, of which one is init: that waits for the benchmark's own orphans.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bkbox.errors import BenchError

T = TypeVar("T")

SHARE_MAX = 0.1
"""Of one processor, for all other processes together."""

LOOK_S = 0.5
WAIT_S = 300.0
REPEATS = 3

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KERNEL_THREAD = 0x0020_0000
_SHOWN = 5


class DisturbedError(BenchError):
    """Another process computes: what is measured meanwhile says nothing."""


@dataclass(frozen=True, slots=True)
class Process:
    """``own_s`` and ``children_s``: CPU seconds of the process, and of its children that ended and were waited for."""

    parent: int
    started: int
    command: str
    own_s: float
    children_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All processes but kernel threads, by pid, at a time in seconds."""

    at: float
    processes: dict[int, Process]


@dataclass(frozen=True, slots=True)
class Disturber:
    """A process that is not the benchmark's, and its share of one processor."""

    pid: int
    command: str
    share: float

    def __str__(self) -> str:
        return f"pid {self.pid}, {self.command}: {self.share:.0%} of a processor"


def snapshot(proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> Snapshot:
    """The processes of now."""
    found = {}
    for path in proc.iterdir():
        if not path.name.isdecimal():
            continue
        try:
            stat = (path / "stat").read_text()
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        if int(fields[6]) & _KERNEL_THREAD:
            continue
        own, children = (sum(map(int, fields[at : at + 2])) / _TICKS_PER_S for at in (11, 13))
        words = command.strip()[:100] or name
        found[int(path.name)] = Process(int(fields[1]), int(fields[19]), words, own, children)
    return Snapshot(clock(), found)


def disturbers(before: Snapshot, after: Snapshot, own: int) -> list[Disturber]:
    """The processes other than ``own`` and its descendants that computed between two snapshots, the busiest first;
    empty if all of them together stay below SHARE_MAX."""
    ours = _descendants(before, own) | _descendants(after, own)
    above = _ancestors(after, own)
    seconds = max(after.at - before.at, 1e-9)
    found = []
    for pid, process in after.processes.items():
        if pid in ours:
            continue
        earlier = before.processes.get(pid)
        if earlier is None or earlier.started != process.started:
            earlier = Process(0, 0, "", 0.0, 0.0)
        used = process.own_s - earlier.own_s
        if pid not in above:
            used += process.children_s - earlier.children_s
        if used > 0:
            found.append(Disturber(pid, process.command, used / seconds))
    if sum(each.share for each in found) <= SHARE_MAX:
        return []
    return sorted(found, key=lambda each: -each.share)


class QuietMachine:
    """Measures while nothing else computes. ``strict``: it waits for quiet before a measurement, for WAIT_S at most,
    and repeats a disturbed one, REPEATS times at most; else it only says what disturbs. ``own``: the benchmark's
    process."""

    def __init__(
        self,
        *,
        strict: bool,
        own: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        take: Callable[[], Snapshot] = snapshot,
    ) -> None:
        self._strict = strict
        self._own = os.getpid() if own is None else own
        self._sleep = sleep
        self._clock = clock
        self._take = take

    def measure(self, what: str, measurement: Callable[[], T]) -> T:
        """The result of a measurement that nothing disturbed. Raises DisturbedError, with what disturbs."""
        for _ in range(REPEATS + 1):
            self._await_quiet(what)
            before = self._take()
            result = measurement()
            found = disturbers(before, self._take(), self._own) or self.look()
            if not found:
                return result
            _say(f"{what} was disturbed by {_listed(found)}")
            if not self._strict:
                return result
        raise DisturbedError(f"{what} was disturbed {REPEATS + 1} times, last by {_listed(found)}")

    def look(self) -> list[Disturber]:
        """What disturbs now."""
        before = self._take()
        self._sleep(LOOK_S)
        return disturbers(before, self._take(), self._own)

    def _await_quiet(self, what: str) -> None:
        deadline = self._clock() + WAIT_S
        said = False
        while self._strict and (found := self.look()):
            if self._clock() >= deadline:
                raise DisturbedError(
                    f"{what} has to wait for a quiet machine, and it is not since {WAIT_S:g} s: {_listed(found)}"
                )
            if not said:
                _say(f"{what} waits for {_listed(found)}")
                said = True


def _listed(found: list[Disturber]) -> str:
    more = f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(map(str, found[:_SHOWN])) + more


def _descendants(of: Snapshot, root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in of.processes.items():
        children.setdefault(process.parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return set(found)


def _ancestors(of: Snapshot, pid: int) -> set[int]:
    found: set[int] = set()
    while (process := of.processes.get(pid)) is not None and process.parent not in found:
        found.add(process.parent)
        pid = process.parent
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
