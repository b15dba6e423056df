"""The bookies of a run: their files, their processes, the network in front of each, and their metadata store.

Everything is done with an operator's commands (bkbox/launcher), and no process outlives the run. The first disk of each
bookie is a tmpfs of its own (tmpfs.py) where that is possible. Writes that do not fit fail: no space is reserved.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.status import Status
from bkbox.base.ids import BookieId
from bkbox.base.values import frozen_struct
from bkbox.errors import BookieNotRunningError, BookieUnresponsiveError, ChaosError, PeerError
from bkbox.launcher.bookie import LocalBookie
from bkbox.launcher.cluster import LocalCluster
from bkbox.launcher.ports import HOST, free_port
from bkbox.launcher.processes import Processes
from bkbox.launcher.waiting import until
from proof.chaos.processes import ProcessHandle, ProcessRef, children
from proof.chaos.proxy import Proxy
from proof.chaos.tmpfs import Tmpfs

ADVERTISED = "127.0.0.2"
"""Every address of 127.0.0.0/8 is this host's own."""

Keep = Literal["all", "history", "nothing"]

_PORTS = range(11_000, 15_000)
_READY_S = 60.0
_STOP_S = 90.0
_EXIT_S = 30.0
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


class Bookie(LocalBookie):
    """One bookie of the run. Raises ChaosError."""

    def __init__(
        self, processes: Processes, number: int, port: int, plan: Plan, *, with_tmpfs: bool
    ) -> None:
        folder = processes.root / f"bookie{number}"
        folder.mkdir()
        self.tmpfs: Tmpfs | None = None
        if with_tmpfs:
            (folder / "room").mkdir()
            self.tmpfs = Tmpfs(folder / "room")
            self.tmpfs.open()
        first = folder if self.tmpfs is None else self.tmpfs.path
        super().__init__(
            processes,
            f"bookie{number}",
            port,
            [(first if index == 0 else folder) / f"disk{index + 1}" for index in range(plan.disks)],
            folder / "journal" if plan.ack_after == "journal" else None,
        )
        self.name = f"bookie {number}"
        self.id = BookieId(f"{ADVERTISED}:{port}")
        self.proxy = Proxy((ADVERTISED, port), (HOST, port))
        self.should_run = False
        """True if the bookie has to be up: no fault is stopping it."""
        self._ack_after = plan.ack_after
        self._folder = folder

    # ---- commands -------------------------------------------------------------------------------

    async def init(self, metadata: str) -> None:
        """Runs ``bkbox init``. Raises ChaosError."""
        run_dir = self._folder / "run"
        run_dir.mkdir()
        settings = {
            "advertised_host": ADVERTISED,
            "run_dir": run_dir,
            "ack_after": self._ack_after,
        }
        await self._processes.run(*self.init_arguments(metadata, settings | SETTINGS))

    async def repair_cookie(self) -> None:
        """Runs ``bkbox cookie repair --yes``. Raises ChaosError."""
        await self._processes.run("cookie", "repair", "--yes", "--config", self.config)

    async def start(self, settings: dict[str, str] | None = None) -> Start:
        """Starts ``bkbox run``, and waits until it is ready, has ended, or times out."""
        began = time.monotonic()
        position = self.log_size
        self.launch(settings)
        await until(lambda: self.is_ready_or_ended, _READY_S)
        seconds = time.monotonic() - began
        if self.exit_status is None and self.is_ready:
            self.should_run = True
            return Start(True, None, seconds, "")
        tail = "\n".join(self.log_from(position).splitlines()[-_LOG_LINES:])
        return Start(False, self.exit_status, seconds, tail)

    async def stop(self) -> int | None:
        """Sends SIGTERM, and waits for the ordered end; returns the exit status, None after a time-out (then it is
        killed)."""
        self.should_run = False
        process = self.process
        if process.poll() is None:
            with ExitStack() as stack:
                for each in self._hold_all(stack):
                    each.send(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
                if not await until(lambda: process.poll() is not None, _STOP_S):
                    await self.kill()
                    return None
        return process.returncode

    async def kill(self) -> None:
        """Sends SIGKILL to all of its processes, and waits until they are gone. Raises ChaosError."""
        self.should_run = False
        with ExitStack() as stack:
            handles = self._hold_all(stack)
            for each in handles:
                each.send(signal.SIGKILL)
            await self._wait_exit(handles)

    async def kill_supervisor(self) -> None:
        """Sends SIGKILL to the supervisor alone, and waits until its children have ended. Raises ChaosError."""
        self.should_run = False
        with ExitStack() as stack:
            handles = self._hold_all(stack)
            if handles:
                handles[0].send(signal.SIGKILL)
            await self._wait_exit(handles)

    async def status(self) -> Status | None:
        """The document of ``bkbox status``; None without a response in time."""
        path = self._folder / "run" / "admin.sock"
        with suppress(BookieNotRunningError, BookieUnresponsiveError, PeerError):
            return await asyncio.to_thread(fetch_status, path, _STATUS_S)
        return None

    # ---- processes ------------------------------------------------------------------------------

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
        handles = self.hold_all()
        for each in handles:
            stack.callback(each.close)
        return handles

    async def _wait_exit(self, handles: list[ProcessHandle]) -> None:
        process = self.process

        def all_exited() -> bool:
            return process.poll() is not None and all(each.has_ended for each in handles)

        if not await until(all_exited, _EXIT_S):
            alive = [str(each.pid) for each in handles if not each.has_ended]
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

    def unmount(self, *, keep: bool) -> None:
        """Unmounts the tmpfs; with ``keep`` its content is copied to the disk."""
        if self.tmpfs is None:
            return
        copy = self.tmpfs.path.with_name("room.kept")
        if keep:
            shutil.copytree(self.tmpfs.path, copy, ignore=shutil.ignore_patterns("*.sock"))
        self.tmpfs.close()
        self.tmpfs.path.rmdir()
        if keep:
            copy.rename(self.tmpfs.path)


class Cluster(LocalCluster):
    """All bookies, in a folder that has to be empty or new. ``with_tmpfs``: True if mounting is possible."""

    def __init__(
        self, folder: Path, plan: Plan, rng: random.Random, keep: Keep, *, with_tmpfs: bool
    ) -> None:
        super().__init__("chaos", folder, ChaosError)
        self.plan = plan
        self.bookies: list[Bookie] = []
        self.with_tmpfs = with_tmpfs
        self.keep = keep
        """Keeps at the end the whole folder, history and logs, or nothing."""
        self._rng = rng

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for bookie in self.bookies:
            bookie.unmount(keep=self.keep == "all")
        if self.keep == "nothing":
            shutil.rmtree(self.root)
        elif self.keep == "history":
            for item in self.root.iterdir():
                if item.is_dir():
                    shutil.rmtree(item)
                elif item.suffix not in (".log", ".jsonl"):
                    item.unlink()

    @property
    def metadata_file(self) -> Path:
        return Path(self.metadata.partition(":")[2])

    async def make(self) -> None:
        """Initialises the bookies and opens their networks. Raises ChaosError."""
        for number in range(1, self.plan.bookies + 1):
            bookie = Bookie(self, number, self._free_port(), self.plan, with_tmpfs=self.with_tmpfs)
            self.bookies.append(bookie)
            await bookie.proxy.start()
        await asyncio.gather(*(bookie.init(self.metadata) for bookie in self.bookies))

    async def close(self) -> None:
        """Closes the networks."""
        for bookie in self.bookies:
            await bookie.proxy.close()

    def _free_port(self) -> int:
        """A port that is free on both addresses."""
        try:
            return free_port(self._rng, _PORTS, hosts=(HOST, ADVERTISED))
        except OSError as error:
            raise ChaosError(f"{ADVERTISED} is no address of this host") from error


def free_bytes(folder: Path) -> int:
    """Free bytes of a file system. Raises ChaosError."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise ChaosError(f"{folder}: {error.strerror}") from error
    return found.f_bavail * found.f_frsize
