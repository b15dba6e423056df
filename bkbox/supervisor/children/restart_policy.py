"""Keeps child processes alive: waits for a child's end, backs off, restarts it, until stopped."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine

from bkbox.base.backoff import backoff_s
from bkbox.base.text import error_text
from bkbox.errors import BkboxError
from bkbox.supervisor.children.process import Child, Exit

log = logging.getLogger(__name__)

_HEALTHY_AFTER_S = 10.0
"""Uptime in seconds after which a child's back-off starts again from the beginning."""


class ChildSupervisor:
    """Restarts with exponential back-off and jitter, between ``initial_s`` and ``longest_s``."""

    def __init__(
        self,
        initial_s: float,
        longest_s: float,
        rng: random.Random,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._initial_s = initial_s
        self._longest_s = longest_s
        self._rng = rng
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(
        self,
        what: str,
        present: Callable[[], Child | None],
        ended: Callable[[Exit], None],
        restart: Callable[[], Awaitable[None]],
    ) -> asyncio.Task[None]:
        """Supervise the child that ``present`` gives. When it has ended, call ``ended`` at once and ``restart`` after
        the back-off; without a child, call ``restart`` after the back-off. Runs until the task is cancelled.

        A restart that fails with a BkboxError or OSError is retried. A child that the failed restart started must have
        ended.
        """
        return self.run(self._forever(what, present, ended, restart))

    def run(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a background task. If it ends with an error, the bookie cannot go on."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)

    async def _forever(
        self,
        what: str,
        present: Callable[[], Child | None],
        ended: Callable[[Exit], None],
        restart: Callable[[], Awaitable[None]],
    ) -> None:
        tries = 0
        while True:
            began = time.monotonic()
            child = present()
            if child is not None:
                how = await child.wait()
                ended(how)
                log.error("%s ended: %s", what, how)
            tries = 0 if time.monotonic() - began > _HEALTHY_AFTER_S else tries + 1
            await asyncio.sleep(backoff_s(tries, self._initial_s, self._longest_s, self._rng))
            try:
                await restart()
            except (BkboxError, OSError) as error:
                log.error("%s cannot be brought back: %s", what, error_text(error))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
