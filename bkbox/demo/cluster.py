"""The cluster of the demo: a folder, three bookies in it, and the promise that nothing stays behind.

Everything is done with an operator's commands (``bkbox init``, ``run``, ``cookie repair``,
``ledger write``), each a process in a session of its own, so that Ctrl-C reaches the demo alone. At
the end, however it comes about, every process is ended by its id and the folder removed
unless it is to be kept. The processes also die if the demo itself is killed (bound.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import bkbox
from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.status import Status
from bkbox.base.ids import BookieId
from bkbox.errors import BookieNotRunningError, CallerError, DemoFailedError, PeerError

HOST = "127.0.0.1"
_PORTS = range(15_000, 18_000)
"""Ports below the range from which the kernel assigns: none of these is taken while a bookie is down."""

_READY_S = 30.0
_STOP_S = 60.0
_END_S = 15.0
_COMMAND_S = 30.0
_POLL_S = 0.02
_LOG_LINES = 15


class Stage:
    """The folder and the processes. ``keep``: a folder that stays; None: a temporary one."""

    def __init__(self, keep: Path | None, rng: random.Random) -> None:
        self._keep = keep
        self._rng = rng
        self._processes: list[subprocess.Popen[bytes]] = []
        self.root = Path()
        self.bookies: list[Bookie] = []

    def __enter__(self) -> Self:
        if self._keep is None:
            self.root = Path(tempfile.mkdtemp(prefix="bkbox-demo-"))
            return self
        self.root = self._keep.absolute()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if any(self.root.iterdir()):
                raise CallerError(f"{self.root} is not empty: choose another folder to keep")
        except OSError as error:
            raise CallerError(f"cannot use {self.root}: {error.strerror}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._end_all()
        finally:
            if self._keep is None:
                shutil.rmtree(self.root)

    @property
    def metadata(self) -> str:
        """The URI of the metadata store of all bookies."""
        return f"sqlite:{self.root / 'metadata.db'}"

    def add_bookie(self) -> Bookie:
        """Adds a bookie, not initialised yet."""
        bookie = Bookie(self, len(self.bookies) + 1, self._free_port())
        self.bookies.append(bookie)
        return bookie

    def short(self, text: str) -> str:
        """``text`` with the names of files relative to the demo's folder."""
        return text.replace(f"{self.root}/", "")

    # ---- processes ------------------------------------------------------------------------------

    def spawn(
        self,
        *arguments: str,
        stdout: IO[bytes],
        stderr: IO[bytes],
        stdin: int = subprocess.DEVNULL,
        settings: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts ``bkbox ARGUMENTS`` in the demo's folder. ``settings``: keys of the configuration
        to set through the environment."""
        command = [sys.executable, "-m", "bkbox.cli.main", *arguments]
        process = subprocess.Popen(
            [sys.executable, "-m", "bkbox.demo.bound", str(os.getpid()), *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=self.root,
            env=_environment(settings or {}),
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    async def run(self, *arguments: str) -> str:
        """Runs ``bkbox ARGUMENTS`` to its end; returns its output on both streams. Raises DemoFailedError
        unless it exits with 0."""
        with tempfile.TemporaryFile() as output:
            process = self.spawn(*arguments, stdout=output, stderr=output)
            command = f"bkbox {' '.join(arguments)}"
            await until(lambda: process.poll() is not None, f"the end of: {command}", _COMMAND_S)
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
        if process.returncode != 0:
            raise DemoFailedError(f"{command} ended with {process.returncode}: {text}")
        return text

    def _end_all(self) -> None:
        """Ends all processes, in order if possible, otherwise by SIGKILL. A bookie's children die with it."""
        running = [process for process in self._processes if process.poll() is None]
        try:
            for process in running:
                _send(process.pid, signal.SIGTERM)
                _send(process.pid, signal.SIGCONT)
            _wait(lambda: all(process.poll() is not None for process in running), _END_S)
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
            for process in self._processes:
                if process.stdin is not None:
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.close()
                process.wait()
            _wait(
                lambda: not any(_group_lives(process.pid) for process in self._processes), _STOP_S
            )

    def _free_port(self) -> int:
        taken = {bookie.port for bookie in self.bookies}
        while True:
            port = self._rng.choice(_PORTS)
            with socket.socket() as probe:
                try:
                    probe.bind((HOST, port))
                except OSError:
                    continue
            if port not in taken:
                return port


class Bookie:
    """One bookie of the demo, with two disks: its files, its configuration, its process."""

    def __init__(self, stage: Stage, number: int, port: int) -> None:
        self.name = f"bookie {number}"
        self.port = port
        self.id = BookieId(f"{HOST}:{port}")
        self.config = f"bookie{number}.toml"
        self._stage = stage
        self._folder = stage.root / f"bookie{number}"
        self.disks = (self._folder / "disk1", self._folder / "disk2")
        self._log = stage.root / f"bookie{number}.log"
        self._out = stage.root / f"bookie{number}.out"
        self._process: subprocess.Popen[bytes] | None = None

    async def init(self, **settings: object) -> None:
        """Runs ``bkbox init``."""
        arguments = ["init", "--config", self.config, "--metadata", self._stage.metadata]
        arguments += ["--listen", f"{HOST}:{self.port}"]
        for disk in self.disks:
            arguments += ["--disk", str(disk)]
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        await self._stage.run(*arguments)

    async def start(self, **settings: object) -> None:
        """Starts ``bkbox run``, and waits for its line ``ready``. Raises DemoFailedError without it."""
        process = self._run(settings)
        ready = f"ready {HOST}:{self.port}"
        await until(
            lambda: process.poll() is not None or ready in self._out.read_text(),
            f"{self.name} to be ready",
            _READY_S,
        )
        if process.poll() is not None:
            raise DemoFailedError(
                f"{self.name} did not start: it ended with {process.returncode}\n{self.log_tail()}"
            )

    async def start_refused(self) -> tuple[int, str]:
        """Runs ``bkbox run`` of a bookie that must refuse to start; returns its exit status and its output."""
        size = self._log.stat().st_size
        process = self._run({})
        await until(
            lambda: process.poll() is not None or self._out.stat().st_size > 0,
            f"{self.name} to refuse to start",
            _READY_S,
        )
        if process.poll() is None:
            raise DemoFailedError(f"{self.name} has started, and must refuse")
        with self._log.open("rb") as log:
            log.seek(size)
            return process.returncode, log.read().decode(errors="replace").strip()

    async def kill(self) -> list[int]:
        """Sends SIGKILL to every process that its status names, and waits until all are gone; returns their ids."""
        pids = [process.pid for process in (await self.status()).processes if process.running]
        for pid in pids:
            _send(pid, signal.SIGKILL)
        assert self._process is not None
        process = self._process
        await until(lambda: process.poll() is not None, f"{self.name} to be dead", _STOP_S)
        await until(lambda: not any(map(_lives, pids)), f"{self.name} to be dead", _STOP_S)
        return pids

    async def stop(self) -> None:
        """Sends SIGTERM, and waits for the ordered end. Raises DemoFailedError if it is not clean."""
        assert self._process is not None
        process = self._process
        _send(process.pid, signal.SIGTERM)
        await until(lambda: process.poll() is not None, f"{self.name} to stop", _STOP_S)
        if process.returncode != 0:
            raise DemoFailedError(f"{self.name} did not stop cleanly: {process.returncode}")

    async def status(self) -> Status:
        """The document of ``bkbox status``. Raises DemoFailedError without a response."""
        try:
            return await asyncio.to_thread(fetch_status, self.disks[0] / "admin.sock")
        except (BookieNotRunningError, PeerError) as error:
            raise DemoFailedError(f"{self.name} does not tell its status: {error}") from error

    def log_tail(self) -> str:
        """The last lines of its log, for the analysis of a failure."""
        if not self._log.exists():
            return f"{self.name} has no log"
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"the end of the log of {self.name}:", *(f"  {line}" for line in lines)])

    def _run(self, settings: Mapping[str, object]) -> subprocess.Popen[bytes]:
        environment = {key: str(value) for key, value in settings.items()}
        with self._out.open("wb") as out, self._log.open("ab") as log:
            self._process = self._stage.spawn(
                "run", "--config", self.config, stdout=out, stderr=log, settings=environment
            )
        return self._process


async def until(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Waits until ``condition()`` is true. Raises DemoFailedError after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise DemoFailedError(f"waited {timeout_s:.0f} s for {what}")
        await asyncio.sleep(_POLL_S)


def _wait(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of the processes: the demo's own, without BKBOX_ variables meant for another bookie,
    and such that they run the same bkbox."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BKBOX_")}
    here = str(Path(bkbox.__file__).absolute().parent.parent)
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    return kept | {f"BKBOX_{key.upper()}": value for key, value in settings.items()}


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _lives(pid: int) -> bool:
    """True if a process still runs; False for one that only has not been reaped yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
