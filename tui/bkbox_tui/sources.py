"""Where snapshots come from: a bookie (and its files while it is down), or a recording."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bkbox.admin import client
from bkbox.admin.paths import admin_socket_path
from bkbox.config import Config
from bkbox.errors import BkboxError, BookieNotRunningError, DiskError
from bkbox.ids import BookieId
from bkbox.jobs.job import JobAction
from bkbox.metadata import connect
from bkbox.storage.files import RealFiles
from bkbox.storage.identity import read_identity
from bkbox.storage.marker import Marker, read_marker
from bkbox.supervisor import cookie_repair
from bkbox.supervisor.cookies import CookieReport
from bkbox_tui.recording import read_recording
from bkbox_tui.snapshot import DiskFiles, Snapshot

_METADATA_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Member:
    """A bookie of the cluster as its metadata store knows it."""

    id: str
    address: str
    mode: str


class Source(Protocol):
    """``name`` is what is looked at; ``is_live``: whether something can be done to it."""

    @property
    def name(self) -> str: ...

    @property
    def is_live(self) -> bool: ...

    async def take(self) -> Snapshot | None:
        """What is known now; None once a recording has ended. Raises EncodingError, OperatorError."""


class Bookie:
    """A bookie of this host, by its configuration."""

    is_live = True

    def __init__(self, config: Config, wall_ms: Callable[[], int]) -> None:
        self.config = config
        self._socket = admin_socket_path(config)
        self._wall_ms = wall_ms

    @property
    def name(self) -> str:
        return self.config.bookie_id

    async def take(self) -> Snapshot:
        return await asyncio.to_thread(self._take)

    def _take(self) -> Snapshot:
        try:
            status = client.fetch_status(self._socket)
            jobs = tuple(client.jobs(self._socket))
        except BookieNotRunningError as error:
            files = tuple(disk_files(path) for path in self.config.disks)
            return Snapshot(self._wall_ms(), None, (), str(error), files)
        except BkboxError as error:
            return Snapshot(self._wall_ms(), None, (), str(error))
        return Snapshot(self._wall_ms(), status, jobs)

    # ---- what is asked for now and then -------------------------------------------------------------

    async def act(self, job: int, action: JobAction, bytes_per_second: int | None = None) -> None:
        """Do something to a job. Raises NoSuchJobError, JobRefusedError, BookieNotRunningError."""
        await asyncio.to_thread(
            client.control_job, self._socket, job, action, bytes_per_second=bytes_per_second
        )

    async def cookies(self) -> CookieReport:
        """Cookies compared with each other and with the configuration. Raises BkboxError."""
        return await cookie_repair.inspect(self.config)

    async def members(self) -> list[Member]:
        """All bookies that the cluster knows, by id. Raises BkboxError."""
        async with await connect(self.config.metadata, _METADATA_WAIT_S) as store:
            registered, known = await store.bookies(), await store.cookies()
        found = []
        for bookie in sorted({*registered, *known}):
            there = registered.get(bookie)
            rpc = None if there is None else there.service_info.rpc
            mode = "down" if there is None else "read-only" if there.read_only else "writable"
            found.append(Member(bookie, "" if rpc is None else f"{rpc[0]}:{rpc[1]}", mode))
        return found

    @property
    def bookie_id(self) -> BookieId:
        return BookieId(self.config.bookie_id)


class Recording:
    """A recording, a snapshot a call. Raises OperatorError for a file that cannot be opened."""

    is_live = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = read_recording(path)
        self._first: Snapshot | None = next(self._rows, None)
        self._bookie = ""
        if self._first is not None and self._first.status is not None:
            self._bookie = self._first.status.bookie_id

    @property
    def name(self) -> str:
        return f"{self._bookie or 'recording'} ({self._path.name})"

    async def take(self) -> Snapshot | None:
        if self._first is not None:
            found, self._first = self._first, None
            return found
        return next(self._rows, None)


def disk_files(path: Path) -> DiskFiles:
    """What the files of a disk say; nothing is written, no lock is taken."""
    files = RealFiles()
    try:
        space = os.statvfs(path)
    except OSError as error:
        return DiskFiles(str(path), "", "", 0, 0, f"it cannot be looked at: {error.strerror}")
    free, total = space.f_frsize * space.f_bavail, space.f_frsize * space.f_blocks
    try:
        identity = read_identity(files, path)
    except (BkboxError, DiskError) as error:
        return DiskFiles(str(path), "", "", free, total, str(error))
    if identity is None:
        return DiskFiles(str(path), "", "", free, total, "it is no disk of a bookie")
    said = marker_in_words(read_marker(files, path))
    return DiskFiles(str(path), str(identity.uuid), said, free, total, "")


def marker_in_words(marker: Marker | None) -> str:
    """What the next start makes of a dirty marker, as far as it can be told before."""
    if marker is None:
        return "stopped cleanly"
    if marker.replaced:
        return "stands in for a lost disk: its ledgers are refilled by the next start"
    if marker.failures:
        return f"failed: {marker.failures[-1]}; the next start treats it as a host crash"
    return "not stopped cleanly: the next start replays it, and looks what may be missing"
