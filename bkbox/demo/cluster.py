"""The three bookies of the demo, with two disks each."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path

from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.status import Status
from bkbox.base.ids import BookieId
from bkbox.errors import DemoFailedError, OperatorError, PeerError
from bkbox.launcher.bookie import LocalBookie
from bkbox.launcher.cluster import LocalCluster
from bkbox.launcher.ports import HOST, free_port
from bkbox.launcher.processes import lives, send

_PORTS = range(15_000, 18_000)

_READY_S = 30.0
_STOP_S = 60.0
_LOG_LINES = 15


class Cluster(LocalCluster):
    """The folder and the bookies. ``keep``: a folder that stays; None: a temporary one. Raises DemoFailedError."""

    def __init__(self, keep: Path | None, rng: random.Random) -> None:
        super().__init__("demo", keep, DemoFailedError)
        self._rng = rng
        self.bookies: list[Bookie] = []

    def add_bookie(self) -> Bookie:
        """Adds a bookie, not initialised yet."""
        port = free_port(self._rng, _PORTS, {bookie.port for bookie in self.bookies})
        bookie = Bookie(self, len(self.bookies) + 1, port)
        self.bookies.append(bookie)
        return bookie

    def short(self, text: str) -> str:
        """``text`` with the names of files relative to the demo's folder."""
        return text.replace(f"{self.root}/", "")


class Bookie(LocalBookie):
    """One bookie of the demo."""

    def __init__(self, cluster: Cluster, number: int, port: int) -> None:
        folder = cluster.root / f"bookie{number}"
        super().__init__(cluster, f"bookie{number}", port, (folder / "disk1", folder / "disk2"))
        self.name = f"bookie {number}"
        self.id = BookieId(f"{HOST}:{port}")
        self._cluster = cluster

    async def init(self, **settings: object) -> None:
        """Runs ``bkbox init``."""
        await self._cluster.run(*self.init_arguments(self._cluster.metadata, settings))

    async def start(self, **settings: object) -> None:
        """Starts ``bkbox run``, and waits for its line ``ready``. Raises DemoFailedError without it."""
        self.launch(settings)
        await self._until(lambda: self.is_ready_or_ended, "be ready", _READY_S)
        if self.exit_status is not None:
            raise DemoFailedError(
                f"{self.name} did not start: it ended with {self.exit_status}\n{self.log_tail()}"
            )

    async def start_refused(self) -> tuple[int, str]:
        """Runs ``bkbox run`` of a bookie that must refuse to start; returns its exit status and its log."""
        position = self.log_size
        self.launch()
        await self._until(
            lambda: self.exit_status is not None or self.has_printed, "refuse to start", _READY_S
        )
        if self.exit_status is None:
            raise DemoFailedError(f"{self.name} has started, and must refuse")
        return self.exit_status, self.log_from(position)

    async def kill(self) -> list[int]:
        """Sends SIGKILL to every process that its status names, and waits until all are gone; returns their ids."""
        pids = [process.pid for process in (await self.status()).processes if process.running]
        for pid in pids:
            send(pid, signal.SIGKILL)
        await self._until(lambda: self.exit_status is not None, "be dead", _STOP_S)
        await self._until(lambda: not any(map(lives, pids)), "be dead", _STOP_S)
        return pids

    async def stop(self) -> None:
        """Sends SIGTERM, and waits for the ordered end. Raises DemoFailedError if it is not clean."""
        send(self.process.pid, signal.SIGTERM)
        await self._until(lambda: self.exit_status is not None, "stop", _STOP_S)
        if self.exit_status != 0:
            raise DemoFailedError(f"{self.name} did not stop cleanly: {self.exit_status}")

    async def status(self) -> Status:
        """The document of ``bkbox status``. Raises DemoFailedError without a response."""
        try:
            return await asyncio.to_thread(fetch_status, self.disks[0] / "admin.sock")
        except (OperatorError, PeerError) as error:
            raise DemoFailedError(f"{self.name} does not tell its status: {error}") from error

    def log_tail(self) -> str:
        """The last lines of its log, for the analysis of a failure."""
        if not self.log.exists():
            return f"{self.name} has no log"
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"the end of the log of {self.name}:", *(f"  {line}" for line in lines)])

    async def _until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        await self._cluster.until(condition, f"{self.name} to {what}", timeout_s)
