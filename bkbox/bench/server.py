"""A bookie of the benchmark's own: one disk in a temporary folder, and its metadata store there."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bkbox.errors import BenchError
from bkbox.launcher.bookie import LocalBookie
from bkbox.launcher.ports import HOST, free_port
from bkbox.launcher.processes import Processes
from bkbox.launcher.waiting import wait_until

_PORTS = range(12_000, 15_000)
_taken_ports: set[int] = set()
"""Chosen by this process before: the metadata may know a bookie by that port that is down, or gone for good."""

_READY_S = 24 * 3600.0
"""A start is measured, and may replay much."""

_POLL_S = 0.002
_STOP_S = 60.0
_LOG_BYTES = 3000


class Bookie(LocalBookie):
    """A bookie with its files in ``folder``. ``settings``: keys of its configuration; ``environment``: variables in
    addition to those of this process. Raises BenchError if it cannot be made."""

    def __init__(
        self,
        folder: Path,
        metadata: str,
        settings: Mapping[str, object],
        rng: random.Random,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        processes = Processes(folder, {**os.environ, **(environment or {})}, BenchError)
        journal = folder / "journal" if settings.get("ack_after") == "journal" else None
        port = free_port(rng, _PORTS, _taken_ports)
        _taken_ports.add(port)
        super().__init__(processes, "bookie", port, (folder / "disk",), journal)
        self.address = (HOST, self.port)
        self.disk = self.disks[0]
        processes.run_blocking(*self.init_arguments(metadata, settings))

    def wait_ready(self) -> None:
        """Waits until the bookie is ready. Raises BenchError if it ends instead."""
        wait_until(lambda: self.is_ready_or_ended, _READY_S, _POLL_S)
        if not self.is_ready:
            raise BenchError(f"the bookie did not start:\n{self.log_from(0)[-_LOG_BYTES:]}")

    def stop(self) -> None:
        """Stops the bookie in order, or by SIGKILL if that takes too long."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()  # its children die with it
            process.wait()


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder that is removed at the end. Raises BenchError if it is in memory only."""
    folder = Path(tempfile.mkdtemp(prefix="bkbox-bench-", dir=parent))
    try:
        if _filesystem(folder) in ("tmpfs", "ramfs"):
            raise BenchError(f"{parent} is in memory: name a folder on a disk")
        yield folder.absolute()
    finally:
        shutil.rmtree(folder)


@contextmanager
def running(bookie: Bookie) -> Iterator[Bookie]:
    """Runs the bookie inside the context. Raises BenchError if it does not start."""
    try:
        bookie.launch()
        bookie.wait_ready()
        yield bookie
    finally:
        bookie.stop()


def _filesystem(folder: Path) -> str:
    """The type of the file system that a folder is on."""
    real, best, found = f"{folder.resolve()}/", "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if real.startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, found = point, kind
    return found
