"""The bookies of a run: their files, their processes, the network in front of each, and their metadata store.

Everything is done with an operator's commands, on the demo's cluster (demo/cluster.py), which ensures that no process
outlives the run. The first disk of each bookie is a tmpfs of its own (tmpfs.py) where that is possible. Writes that do
not fit fail: no space is reserved.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.status import Status
from bkbox.base.ids import BookieId
from bkbox.base.values import frozen_struct
from bkbox.demo.cluster import HOST, Stage
from bkbox.errors import (
    BookieNotRunningError,
    ChaosError,
    DemoFailedError,
    PeerError,
)
from proof.chaos.processes import ProcessHandle, ProcessRef, children
from proof.chaos.proxy import Proxy
from proof.chaos.tmpfs import Room

ADVERTISED = "127.0.0.2"
"""Every address of 127.0.0.0/8 is this host's own."""

Keep = Literal["all", "history", "nothing"]

_PORTS = range(11_000, 15_000)
_READY_S = 60.0
_STOP_S = 90.0
_GONE_S = 30.0
_POLL_S = 0.02
_STATUS_S = 1.5
_LOG_LINES = 12

SETTINGS: dict[str, object] = {
    "segment_bytes_max": 8 << 20,
    "checkpoint_bytes": 2 << 20,
    "disk_reserve_bytes": 0,
    "disk_usage_max": 1.0,
    "restart_backoff_max_s": 2.0,
    "repair_retry_max_s": 5.0,
}
"""Segments and checkpoints so small that there are many; no space is reserved."""


@frozen_struct
class Plan:
    """The size of a cluster, and its mode."""

    bookies: int
    disks: int
    ack_after: str


@frozen_struct
class Start:
    """The result of a start: ready, or the exit status (None: neither in time) and the output."""

    ready: bool
    status: int | None
    seconds: float
    text: str


class Bookie:
    """One bookie."""

    def __init__(
        self, stage: Stage, number: int, port: int, plan: Plan, *, with_room: bool
    ) -> None:
        self.name = f"bookie {number}"
        self.id = BookieId(f"{ADVERTISED}:{port}")
        self.config = f"bookie{number}.toml"
        self.proxy = Proxy((ADVERTISED, port), (HOST, port))
        self.log = stage.root / f"bookie{number}.log"
        folder = stage.root / f"bookie{number}"
        folder.mkdir()
        self.room: Room | None = None
        if with_room:
            (folder / "room").mkdir()
            self.room = Room(folder / "room")
            self.room.open()
        self.disks = [
            (self.room.path if self.room is not None and index == 0 else folder)
            / f"disk{index + 1}"
            for index in range(plan.disks)
        ]
        self.wanted = False
        """True if the bookie has to be up: no fault is stopping it."""
        self._stage = stage
        self._plan = plan
        self._folder = folder
        self._port = port
        self._out = stage.root / f"bookie{number}.out"
        self._process: subprocess.Popen[bytes] | None = None

    # ---- commands -------------------------------------------------------------------------------

    async def init(self) -> None:
        """Runs ``bkbox init``. Raises ChaosError."""
        arguments = ["init", "--config", self.config, "--metadata", self._stage.metadata]
        arguments += ["--listen", f"{HOST}:{self._port}"]
        for disk in self.disks:
            arguments += ["--disk", str(disk)]
        run_dir = self._folder / "run"
        run_dir.mkdir()
        if self._plan.ack_after == "journal":
            arguments += ["--journal", str(self._folder / "journal")]
        settings = {
            "advertised_host": ADVERTISED,
            "run_dir": run_dir,
            "ack_after": self._plan.ack_after,
        }
        for key, setting in (settings | SETTINGS).items():
            arguments += ["--set", f"{key}={setting}"]
        await self._command(*arguments)

    async def repair_cookie(self) -> None:
        """Runs ``bkbox cookie repair --yes``. Raises ChaosError."""
        await self._command("cookie", "repair", "--yes", "--config", self.config)

    async def start(self, settings: dict[str, str] | None = None) -> Start:
        """Starts ``bkbox run``, and waits until it is ready, has ended, or times out."""
        began = time.monotonic()
        said_before = self.log.stat().st_size if self.log.exists() else 0
        with self._out.open("wb") as out, self.log.open("ab") as log:
            self._process = process = self._stage.spawn(
                "run", "--config", self.config, stdout=out, stderr=log, settings=settings or {}
            )
        ready = f"ready {HOST}:{self._port}"
        deadline = began + _READY_S
        while process.poll() is None and time.monotonic() < deadline:
            if ready in self._out.read_text():
                self.wanted = True
                return Start(True, None, time.monotonic() - began, "")
            await asyncio.sleep(_POLL_S)
        with self.log.open("rb") as log:
            log.seek(said_before)
            text = log.read().decode(errors="replace").strip()
        tail = "\n".join(text.splitlines()[-_LOG_LINES:])
        return Start(False, process.poll(), time.monotonic() - began, tail)

    async def stop(self) -> int | None:
        """Sends SIGTERM, and waits for the ordered end; returns the exit status, None after a time-out (then it is
        killed)."""
        self.wanted = False
        process = self._process
        assert process is not None
        if process.poll() is None:
            with ExitStack() as stack:
                for each in self._hold_all(stack):
                    each.send(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
                if not await _until(lambda: process.poll() is not None, _STOP_S):
                    await self.kill()
                    return None
        return process.returncode

    async def kill(self) -> None:
        """Sends SIGKILL to all of its processes, and waits until they are gone. Raises ChaosError."""
        self.wanted = False
        with ExitStack() as stack:
            held = self._hold_all(stack)
            for each in held:
                each.send(signal.SIGKILL)
            await self._gone(held)

    async def kill_supervisor(self) -> None:
        """Sends SIGKILL to the supervisor alone, and waits until its children have ended. Raises ChaosError."""
        self.wanted = False
        with ExitStack() as stack:
            held = self._hold_all(stack)
            if held:
                held[0].send(signal.SIGKILL)
            await self._gone(held)

    async def status(self) -> Status | None:
        """The document of ``bkbox status``; None without a response in time."""
        path = self._folder / "run" / "admin.sock"
        with suppress(BookieNotRunningError, PeerError):
            return await asyncio.to_thread(fetch_status, path, _STATUS_S)
        return None

    # ---- processes ------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        """The process id of the supervisor, if it runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def children(self, role: str) -> list[ProcessRef]:
        """The children of a role, in the order of the disks."""
        pid = self.pid
        found = [] if pid is None else [each for each in children(pid) if each.role == role]
        return sorted(found, key=lambda each: each.name)

    def hold(self, child: ProcessRef) -> ProcessHandle | None:
        """A handle of the child; None if it has ended."""
        with suppress(ProcessLookupError):
            return ProcessHandle(child.pid, self.pid)
        return None

    def hold_all(self) -> list[ProcessHandle]:
        """Handles of all processes, the supervisor first; the caller has to close each."""
        found: list[ProcessHandle] = []
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                found.append(ProcessHandle(pid))
            for child in children(pid):
                with suppress(ProcessLookupError):
                    found.append(ProcessHandle(child.pid, pid))
        return found

    def _hold_all(self, stack: ExitStack) -> list[ProcessHandle]:
        held = self.hold_all()
        for each in held:
            stack.callback(each.close)
        return held

    async def _gone(self, held: list[ProcessHandle]) -> None:
        process = self._process
        assert process is not None

        def all_gone() -> bool:
            return process.poll() is not None and all(each.has_ended for each in held)

        if not await _until(all_gone, _GONE_S):
            alive = [str(each.pid) for each in held if not each.has_ended]
            raise ChaosError(f"processes of {self.name} do not die: {', '.join(alive)}")

    # ---- disks ----------------------------------------------------------------------------------

    def lose_disk(self, index: int) -> None:
        """Moves the folder of a disk away."""
        disk = self.disks[index]
        disk.rename(disk.with_name(f"{disk.name}.lost"))

    def replace_disk(self, index: int) -> None:
        """Puts an empty folder in its place, and removes the old one."""
        self.disks[index].mkdir()
        shutil.rmtree(self.disks[index].with_name(f"{self.disks[index].name}.lost"))

    def leave_room(self, *, keep: bool) -> None:
        """Unmounts the tmpfs; with ``keep`` its content is copied to the disk."""
        if self.room is None:
            return
        copy = self.room.path.with_name("room.kept")
        if keep:
            shutil.copytree(self.room.path, copy, ignore=shutil.ignore_patterns("*.sock"))
        self.room.close()
        self.room.path.rmdir()
        if keep:
            copy.rename(self.room.path)

    async def _command(self, *arguments: str) -> None:
        try:
            await self._stage.run(*arguments)
        except DemoFailedError as error:
            raise ChaosError(str(error)) from error


class Cluster:
    """All bookies, in a folder that has to be empty or new. ``with_rooms``: True if mounting is possible."""

    def __init__(
        self, folder: Path, plan: Plan, rng: random.Random, keep: Keep, *, with_rooms: bool
    ) -> None:
        self.plan = plan
        self.bookies: list[Bookie] = []
        self.with_rooms = with_rooms
        self.keep = keep
        """What is kept at the end: the whole folder, history and logs, or nothing."""
        self._stage = Stage(folder, rng)
        self._rng = rng

    def __enter__(self) -> Self:
        self._stage.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stage.__exit__(kind, error, trace)
        for bookie in self.bookies:
            bookie.leave_room(keep=self.keep == "all")
        if self.keep == "nothing":
            shutil.rmtree(self.root)
        elif self.keep == "history":
            for item in self.root.iterdir():
                if item.is_dir():
                    shutil.rmtree(item)
                elif item.suffix not in (".log", ".jsonl"):
                    item.unlink()

    @property
    def root(self) -> Path:
        return self._stage.root

    @property
    def metadata(self) -> str:
        """URI of the metadata store."""
        return self._stage.metadata

    @property
    def metadata_file(self) -> Path:
        return Path(self.metadata.partition(":")[2])

    async def make(self) -> None:
        """Initialises the bookies and opens their networks. Raises ChaosError."""
        for number in range(1, self.plan.bookies + 1):
            bookie = Bookie(
                self._stage, number, self._free_port(), self.plan, with_room=self.with_rooms
            )
            self.bookies.append(bookie)
            await bookie.proxy.start()
        await asyncio.gather(*(bookie.init() for bookie in self.bookies))

    async def close(self) -> None:
        """Closes the networks."""
        for bookie in self.bookies:
            await bookie.proxy.close()

    def _free_port(self) -> int:
        """A port that is free on both addresses."""
        while True:
            port = self._rng.choice(_PORTS)
            with socket.socket() as one, socket.socket() as other:
                try:
                    one.bind((HOST, port))
                    other.bind((ADVERTISED, port))
                except OSError as error:
                    if error.errno == errno.EADDRNOTAVAIL:
                        raise ChaosError(f"{ADVERTISED} is no address of this host") from error
                    continue
            return port


async def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def free_bytes(folder: Path) -> int:
    """Free bytes of a file system. Raises ChaosError."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise ChaosError(f"{folder}: {error.strerror}") from error
    return found.f_bavail * found.f_frsize
