"""Virtual time: one heap of future calls, and processes that can be killed.

Rules:

- Every event is a callback of a ``Process``, run one at a time, in the order of time and, at the same
  time, in the order in which it was scheduled. Nothing else decides, so a seed decides everything.
- A process is an event loop of asyncio: bkbox's tasks run on it unchanged. Its time is virtual, and
  passes only when nothing is ready.
- A killed process runs nothing any more. Its tasks stay where they were until ``discard``, so that no
  ``finally`` of theirs runs while the simulation does.
- ``Crash`` is raised where a process dies in the middle of a call.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import traceback
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class Crash(BaseException):
    """The process dies here."""


class Call:
    """A callback and its time; the TimerHandle and the Handle of asyncio."""

    __slots__ = ("_when", "args", "callback", "process")

    def __init__(
        self, process: Process, callback: Callable[..., object], args: Any, when: float
    ) -> None:
        self.process = process
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self._when = when

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self._when


class Scheduler:
    """``now`` in seconds; ``events`` counts callbacks run; ``trace``: (time, process, text), None: not recorded."""

    def __init__(self, seed: int, *, traced: bool) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)  # noqa: S311 - of a seed
        self.events = 0
        self.stopped = False
        self.failures: list[str] = []
        """Unexpected errors that ended a task or callback."""
        self.trace: list[tuple[float, str, str]] | None = [] if traced else None
        self.ready: deque[Call] = deque()
        self.processes: list[Process] = []
        self._heap: list[tuple[float, int, Call]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []

    def at(self, when: float, process: Process, callback: Callable[..., object], args: Any) -> Call:
        call = Call(process, callback, args, when)
        self._count += 1
        heappush(self._heap, (when, self._count, call))
        return call

    def run(self, until: float, done: Callable[[], bool] | None = None) -> None:
        """Runs until the time is ``until``, ``done`` returns True or ``stopped`` was set."""
        ready, heap = self.ready, self._heap
        running: Process | None = None
        try:
            while not self.stopped:
                if ready:
                    call = ready.popleft()
                elif heap and heap[0][0] <= until:
                    when, _, call = heappop(heap)
                    if call.callback is None:
                        continue
                    if when > self.now:
                        self.now = when
                else:
                    self.now = max(self.now, until)
                    return
                callback, process = call.callback, call.process
                if callback is None or process.dead:
                    continue
                self.events += 1
                if process is not running:
                    events._set_running_loop(process._as_loop)
                    running = process
                try:
                    callback(*call.args)
                except Crash:
                    process.die("it was told to crash here")
                except Exception as error:  # noqa: BLE001 - a defect, whatever it is
                    self.failures.append(f"{process.name}: {type(error).__name__}: {error}")
                    self.note(process.name, "%s", traceback.format_exc())
                    self.stopped = True
                if done is not None and done():
                    return
        finally:
            events._set_running_loop(None)

    def note(self, source: str, what: str, *args: object) -> None:
        """Adds a line to the trace; ``what`` is formatted with ``args``."""
        if self.trace is not None:
            self.trace.append((self.now, source, what % args if args else what))

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) > 4096:
            self._tasks = [task for task in self._tasks if not task.done()]

    def discard(self) -> None:
        """Drops all tasks; what they still do while that happens has no effect.

        That includes tasks which a ``finally`` begins: without a running loop, asyncio would make one of its own for
        them, and keep it.
        """
        for process in self.processes:
            process.dead = True
        idle = Process(self, "nobody")
        hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
        events._set_running_loop(idle._as_loop)
        try:
            while self._tasks:
                tasks, self._tasks = self._tasks, []
                for task in tasks:
                    _close(task)
                tasks.clear()
            self.ready.clear()
            self._heap.clear()
            gc.collect()
        finally:
            events._set_running_loop(None)
            sys.unraisablehook = hook


def _close(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        coroutine: Any = task.get_coro()
        with suppress(BaseException):
            coroutine.close()


class Process:
    """An event loop that may be killed. ``on_death``: called at its death, once."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.dead = False
        self.why_dead = ""
        self.on_death: list[Callable[[], None]] = []
        self._as_loop = cast(asyncio.AbstractEventLoop, self)
        scheduler.processes.append(self)

    def die(self, why: str) -> None:
        if self.dead:
            return
        self.dead = True
        self.why_dead = why
        self.scheduler.note(self.name, "dies: %s", why)
        for call in self.on_death:
            call()

    def after(self, delay: float, callback: Callable[..., object], *args: Any) -> Call:
        scheduler = self.scheduler
        return scheduler.at(scheduler.now + delay, self, callback, args)

    def run_task(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Starts a task from outside of the process."""
        task = asyncio.Task(coroutine, loop=self._as_loop)
        self.scheduler.keep(task)
        return task

    def note(self, what: str, *args: object) -> None:
        self.scheduler.note(self.name, what, *args)

    # ---- asyncio's interface of an event loop -----------------------------------------------------

    def time(self) -> float:
        return self.scheduler.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        call = Call(self, callback, args, self.scheduler.now)
        self.scheduler.ready.append(call)
        return call

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.scheduler.at(self.scheduler.now + delay, self, callback, args)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.scheduler.at(when, self, callback, args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(
        self, coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T], **_options: Any
    ) -> asyncio.Task[_T]:
        task: asyncio.Task[_T] = asyncio.Task(coro, loop=self._as_loop)
        self.scheduler.keep(task)
        return task

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        """Ignored: signals come from the simulation."""

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task ended with an error that was not retrieved, or a callback raised."""
        error = context.get("exception")
        if self.dead or error is None or isinstance(error, Crash):
            return
        self.scheduler.failures.append(f"{self.name}: {type(error).__name__}: {error}")
