"""A bookie of the benchmark's own: one disk in a temporary folder, and its metadata store there.

It is made and run with an operator's commands, dies with the benchmark, and leaves no file or
process behind.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bkbox.errors import BenchError

HOST = "127.0.0.1"
_PORTS = range(12_000, 15_000)
"""Ports below the range from which the kernel assigns."""

_BKBOX = (sys.executable, "-m", "bkbox.cli.main")
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_STOP_S = 60.0
_LOG_BYTES = 3000


class Bookie:
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
        folder.mkdir(parents=True, exist_ok=True)
        self.address = (HOST, _free_port(rng))
        self.config, self.disk, self.log = folder / "bookie.toml", folder / "disk", folder / "log"
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        arguments = ["init", "--config", str(self.config), "--metadata", metadata]
        arguments += ["--disk", str(self.disk), "--listen", f"{HOST}:{self.address[1]}"]
        if settings.get("ack_after") == "journal":
            arguments += ["--journal", str(folder / "journal")]
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        done = subprocess.run(
            [*_BKBOX, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
        )
        if done.returncode:
            raise BenchError(f"bkbox init: {done.stderr.strip()}")

    @property
    def pid(self) -> int:
        """The process id of its supervisor."""
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        """Starts ``bkbox run``; returns at once."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_BKBOX, "run", "--config", str(self.config)],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                env=self._environment,
            )

    def wait_ready(self) -> None:
        """Waits until the bookie is ready. Raises BenchError if it ends instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith(b"ready "):
            text = self.log.read_text(errors="replace")[-_LOG_BYTES:]
            raise BenchError(f"the bookie did not start:\n{text}")

    def stop(self) -> None:
        """Stops the bookie in order, or by SIGKILL if that takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdout is not None
        with process.stdout:
            process.send_signal(signal.SIGTERM)
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


def _die_with_parent() -> None:
    """Called in a new process before exec; costs the start no time, as a wrapper program would."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _free_port(rng: random.Random) -> int:
    while True:
        port = rng.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port


def _filesystem(folder: Path) -> str:
    """The type of the file system that a folder is on."""
    real, best, found = f"{folder.resolve()}/", "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if real.startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, found = point, kind
    return found
