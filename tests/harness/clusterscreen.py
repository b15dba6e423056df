"""The cluster screen beside a test: what it shows, and the seconds that each state takes to be on it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from bkbox.api.cluster.asking import watch_cluster
from bkbox.api.cluster.rows import BookieRow
from bkbox.api.cluster.watch import ClusterWatch
from bkbox.config.load import load
from tests.harness.processes import BookieProcess
from tests.harness.waiting import wait_for


class HasId(Protocol):
    @property
    def bookie_id(self) -> str: ...


class Screen:
    """The cluster as the screen shows it, asked twice a second."""

    def __init__(self, uri: str, bookie: BookieProcess) -> None:
        self._uri = uri
        self._config = load(bookie.config, os.environ)
        self._watch: ClusterWatch | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        self._thread.start()

    async def _run(self) -> None:
        async with watch_cluster(self._uri, self._config, None, time.monotonic) as (watch, _):
            self._watch = watch
            while not self._ended.is_set():
                watch.poll()
                await asyncio.sleep(0.5)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def problem(self) -> str:
        return "" if self._watch is None else self._watch.problem

    def row(self, bookie: HasId) -> BookieRow | None:
        rows = () if self._watch is None else self._watch.rows()
        return next((row for row in rows if row.bookie == bookie.bookie_id), None)

    def see(self, bookie: HasId, what: str, is_so: Callable[[BookieRow], object]) -> None:
        """Waits until the bookie's row is so."""
        try:
            self.wait(what, lambda: (row := self.row(bookie)) is not None and is_so(row))
        except AssertionError as error:
            raise AssertionError(f"{error}; the last row: {self.row(bookie)}") from None

    def see_well(self, bookie: HasId, after: str) -> None:
        self.see(
            bookie,
            f"well after {after}",
            lambda row: (row.state, row.verdict, row.problems) == ("writable", "ok", ()),
        )

    def wait(self, what: str, is_so: Callable[[], object]) -> None:
        began = time.monotonic()
        wait_for(is_so, what, pause=0.02)
        print(f"{time.monotonic() - began:6.2f} s  {what}")


def says(text: str) -> Callable[[BookieRow], bool]:
    return lambda row: any(text in problem for problem in row.problems)
