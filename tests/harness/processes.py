"""Real bookies on loopback, started as an operator starts them: `bkbox init`, `bkbox run`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
from click.testing import CliRunner

from bkbox.api.admin import client
from bkbox.api.admin.socket_path import STATUS_URL, admin_socket_path
from bkbox.cli.main import main
from bkbox.config.load import load
from bkbox.launcher import ports
from bkbox.launcher.bookie import init_arguments
from bkbox.launcher.processes import COMMAND
from tests.harness.waiting import wait_for

BKBOX = list(COMMAND)


def frontends_of_the_run() -> dict[str, object]:
    """The key of a bookie's configuration that TESTS_FRONTENDS sets: all tests run with so many front-ends."""
    frontends = os.environ.get("TESTS_FRONTENDS")
    return {} if frontends is None else {"frontends": int(frontends)}


_OF_THEIR_OWN = {"run", "autorecovery", "bench", "demo", "discover", "selftest", "tui"}
"""Commands that change their process, or are looked at from outside."""


UNSAFE = Path(__file__).parent / "unsafe"


def unsafe_environment(measures: str) -> dict[str, str]:
    """The environment of a bookie whose processes run with what ``unsafe/sitecustomize.py`` has of that name."""
    return {"PYTHONPATH": f"{UNSAFE}:{os.getcwd()}", "UNSAFE_BOOKIE": measures}


def bkbox(
    *arguments: str, timeout: float = 120.0, check: bool = True, **kwargs: Any
) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end. Most run in the process of the test, which spares a start of Python; one that is
    given something of its own (``kwargs``) is a process, and ends within ``timeout``."""
    if kwargs or arguments[0] in _OF_THEIR_OWN:
        run: dict[str, Any] = {"capture_output": True, "text": True, "timeout": timeout}
        done = subprocess.run([*BKBOX, *arguments], check=False, **{**run, **kwargs})
    else:
        # In a thread, as the test may have an event loop that runs.
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(_run_here, arguments).result()
    if check and done.returncode != 0:
        raise AssertionError(
            f"bkbox {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done


def end_once(begun: Callable[[], Any], number: signal.Signals, *arguments: str) -> str:
    """What a command, of status 1, says on standard error if it gets a signal once it has ``begun``."""
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(
            [*BKBOX, *arguments], stdout=subprocess.DEVNULL, stderr=said
        ) as process:
            try:
                wait_for(begun, f"the first traces of bkbox {' '.join(arguments)}")
                process.send_signal(number)
                assert process.wait(60) == 1
            finally:
                process.kill()
        said.seek(0)
        return said.read()


def _run_here(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    with _STREAMS:
        result = CliRunner().invoke(main, arguments, prog_name="bkbox")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


_STREAMS = threading.Lock()
"""Those of the process are the command's meanwhile."""


class BookieProcess:
    """One bookie in a folder of its own."""

    def __init__(self, root: Path, metadata: str, *, name: str = "bookie", port: int = 0) -> None:
        self.root = root / name
        self.root.mkdir(parents=True, exist_ok=True)
        self.config = self.root / "bookie.toml"
        self.disks = [self.root / "disk1", self.root / "disk2"]
        self.metadata = metadata
        self.port = port or free_port()
        self.process: subprocess.Popen[str] | None = None
        self.stderr = ""
        self._reader: threading.Thread | None = None

    @property
    def bookie_id(self) -> str:
        return f"127.0.0.1:{self.port}"

    def init(self, *, disks: int = 2, journal: bool = False, **settings: object) -> BookieProcess:
        self.disks = [self.root / f"disk{number + 1}" for number in range(disks)]
        settings = {**frontends_of_the_run(), **settings}
        where = self.root / "journal" if journal else None
        bkbox(
            *init_arguments(str(self.config), self.metadata, self.port, self.disks, where, settings)
        )
        return self

    def start(
        self,
        *,
        wait: bool = True,
        timeout: float = 200.0,
        environment: dict[str, str] | None = None,
        new_session: bool = False,
    ) -> BookieProcess:
        self.process = subprocess.Popen(
            [*BKBOX, "run", "--config", str(self.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=new_session,
        )
        self.stderr = ""
        self._reader = threading.Thread(target=self._drain, args=(self.process,), daemon=True)
        self._reader.start()
        if wait:
            self.wait_ready(timeout)
        return self

    def _drain(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.stderr += line

    def wait_ready(self, timeout: float = 200.0) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        killer = threading.Timer(timeout, self.process.kill)
        killer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            killer.cancel()
        if line.strip() != f"ready 127.0.0.1:{self.port}":
            self.process.wait(60)
            raise AssertionError(f"bookie {self.bookie_id} is not ready: {line!r}\n{self.stderr}")

    def status(self) -> dict[str, Any]:
        """The status document."""
        return self.ask(STATUS_URL)

    def ask(self, url: str) -> Any:
        """What its admin API has there. A busy machine may keep a bookie from a processor for longer than an operator
        waits."""
        return client.ask(admin_socket_path(load(self.config, os.environ)), "GET", url, timeout=60)

    def children(self, role: str | None = None) -> list[psutil.Process]:
        assert self.process is not None
        found = []
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.Error):
                command = child.cmdline()
                if role is None or f"bkbox.{role}" in command:
                    found.append(child)
        return found

    def kill_frontends(self) -> None:
        """Kills every front-end, whose clients' connections end with it."""
        for frontend in self.children("frontend"):
            frontend.kill()

    def worker(self, disk: int) -> psutil.Process:
        """The worker of a disk, by the disk's place in the configuration."""
        path = str(self.disks[disk])
        (found,) = (each for each in self.children("worker") if path in each.cmdline())
        return found

    def kill(self) -> None:
        """Sends SIGKILL to the supervisor and every child; returns when all have ended."""
        assert self.process is not None
        processes = [*self.children(), psutil.Process(self.process.pid)]
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(20)
        for process in processes:
            wait_for(lambda process=process: is_dead(process), f"the end of {process}", pause=0.01)
        self._close()

    @contextlib.contextmanager
    def paused(self, *, children: bool = True) -> Iterator[None]:
        """Its processes, or its supervisor alone, do not run: it is there and does not answer. None of them holds the
        lock of the SQLite file that others have to write meanwhile."""
        assert self.process is not None
        processes = [psutil.Process(self.process.pid), *(self.children() if children else [])]
        while True:
            for process in processes:
                process.suspend()
            wait_for(lambda: _are_stopped(processes), "their stop", pause=0.001)
            if _is_unlocked(self.metadata):
                break
            for process in processes:
                process.resume()
            time.sleep(0.01)
        try:
            yield
        finally:
            for process in reversed(processes):
                process.resume()

    def stop(self, timeout: float = 120.0) -> int:
        """Sends SIGTERM and waits; returns the exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout)
        self._close()
        return status

    def _close(self) -> None:
        assert self.process is not None
        if self._reader is not None:
            self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process = None

    def ensure_gone(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.kill()
            else:
                self._close()


def _are_stopped(processes: Sequence[psutil.Process]) -> bool:
    return all(process.status() == psutil.STATUS_STOPPED for process in processes)


def _is_unlocked(metadata: str) -> bool:
    """True if a metadata store can be written now."""
    kind, _, path = metadata.partition(":")
    if kind != "sqlite":
        return True
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    with contextlib.closing(connection):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def is_dead(process: psutil.Process) -> bool:
    """True if it has ended. (The process that inherits an orphan may take seconds to reap it.)"""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


_SHARES = 8
_TAKEN: set[int] = set()
_RNG = random.Random()


def free_port() -> int:
    """A port that no process listens on, that the kernel gives to no connection, and that no other process of tests
    chooses, of this run or another: it may be long before a server listens there."""
    port = ports.free_port(_RNG, range(18_000 + _share(), 32_000, _SHARES), _TAKEN)
    _TAKEN.add(port)
    return port


@functools.cache
def _share() -> int:
    """This process's share of the ports. It is claimed by the name of a socket, which the kernel frees when the
    process ends; where there are more processes than shares, two have the same one."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for share in (each % _SHARES for each in range(worker, worker + _SHARES)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0a share of the ports of bkbox's tests: {share}")
        except OSError:
            claim.close()
        else:
            claim.detach()  # open until the end
            return share
    return worker % _SHARES


def put_keys(bookie: BookieProcess, **keys: object) -> None:
    """Changes keys in the configuration file; the bookie is not notified."""
    lines = [
        line
        for line in bookie.config.read_text().splitlines()
        if line.partition("=")[0].strip() not in keys
    ]
    lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    bookie.config.write_text("\n".join(lines) + "\n")
