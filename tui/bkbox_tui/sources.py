"""Sources of snapshots: a bookie (and its files while it is down), or a recording."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import os
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bkbox import client as clients
from bkbox.api.admin import client, limbo
from bkbox.api.admin.client import Address
from bkbox.api.admin.limbo import LimboLedger
from bkbox.api.admin.socket_path import CONFIG_URL, admin_socket_path
from bkbox.api.admin.status import Status
from bkbox.api.cluster.asking import Asker, Reach, watch_cluster, watch_from
from bkbox.api.cluster.watch import ClusterWatch
from bkbox.base.commandline import CommandLine, bookie_command, plain_command
from bkbox.base.ids import BookieId, ledger_id
from bkbox.cli.cluster.discover import found_here
from bkbox.cli.ledger.repair import inspection_view
from bkbox.config.schema import Config
from bkbox.errors import (
    BkboxError,
    BookieNotRunningError,
    DiskError,
    EncodingError,
    OperatorError,
)
from bkbox.jobs.job import JobAction
from bkbox.storage.disk.dirty_marker import Marker, read_marker
from bkbox.storage.disk.identity import read_identity
from bkbox.storage.files import RealFiles
from bkbox.supervisor.boot import cookie_repair
from bkbox_tui.recording import read_recording
from bkbox_tui.snapshot import DiskFiles, Snapshot

_LIMBO_SHOWN_MAX = 5_000
_LISTEN_S = 2
_STATUS_S = 2.0
"""Time-out of each step of a request for the status: what hangs for longer is told of."""


@dataclass(frozen=True, slots=True)
class CookieView:
    """The comparison of the cookies. ``ok`` None: not known, ``problem`` says why; ``differences``: (where, field,
    expected, stored)."""

    ok: bool | None
    differences: tuple[tuple[str, str, str, str], ...] = ()
    advice: str = ""
    problem: str = ""


class Source(Protocol):
    """A source of snapshots. ``name``: the bookie shown; ``is_live``: True if it accepts actions."""

    @property
    def name(self) -> str: ...

    @property
    def is_live(self) -> bool: ...

    async def read(self) -> Snapshot | None:
        """The current snapshot; None once a recording has ended. Raises EncodingError, OperatorError."""


class Bookie:
    """A bookie: of this host, by its configuration, or of another host, by the address of its admin API.

    Of a bookie on another host no files can be read, and its metadata store may not be reachable from here.
    """

    is_live = True

    def __init__(
        self,
        address: Address,
        config: Config | None,
        wall_ms: Callable[[], int],
        reach: Reach | None = None,
    ) -> None:
        """``reach``: how other bookies of its cluster are reached."""
        self.config = config
        self._reach = reach
        self.address = address
        self._wall_ms = wall_ms
        self._status: Status | None = None

    @classmethod
    def here(cls, config: Config, wall_ms: Callable[[], int], reach: Reach | None = None) -> Bookie:
        """The bookie of this configuration."""
        return cls(admin_socket_path(config), config, wall_ms, reach)

    @property
    def name(self) -> str:
        if self.config is not None:
            return self.config.bookie_id
        there = "" if self._status is None else f"{self._status.bookie_id} at "
        return f"{there}{self.address}"

    def job_command(self, job: int) -> CommandLine:
        """The command that shows a job of this bookie."""
        if self.config is not None:
            return bookie_command("job", "show", job)
        token = "FILE" if self._reach is None else self._reach.token_file
        return plain_command("job", "show", job, "--bookie", self.address, "--token-file", token)

    async def read(self) -> Snapshot:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Snapshot:
        try:
            status = client.fetch_status(self.address, _STATUS_S)
        except BookieNotRunningError as error:
            disks = () if self.config is None else self.config.disks
            files = tuple(disk_files(path) for path in disks)
            return Snapshot(self._wall_ms(), None, (), str(error), files)
        except BkboxError as error:
            return Snapshot(self._wall_ms(), None, (), str(error))
        self._status = status
        try:
            jobs = tuple(client.jobs(self.address))
        except BkboxError:  # it is starting, or ended since
            jobs = status.jobs.active
        return Snapshot(self._wall_ms(), status, jobs)

    # ---- requests on demand --------------------------------------------------------------------------

    async def act(self, job: int, action: JobAction, bytes_per_second: int | None = None) -> None:
        """Applies an action to a job. Raises NoSuchJobError, JobRefusedError, BookieNotRunningError."""
        await asyncio.to_thread(
            client.control_job, self.address, job, action, bytes_per_second=bytes_per_second
        )

    async def limbo(self) -> list[LimboLedger]:
        """Ledgers in limbo, by id, up to what a screen can show. Raises BkboxError."""
        return await asyncio.to_thread(
            lambda: list(itertools.islice(limbo.ledgers(self.address), _LIMBO_SHOWN_MAX))
        )

    async def explain(self, ledger: int) -> dict[str, object]:
        """The inspection of a ledger, as `bkbox ledger explain` prints it. Raises BkboxError."""
        if self.config is None:
            raise OperatorError(
                "only its own host knows the metadata store: run "
                f"`{plain_command('ledger', 'explain', ledger)}` there"
            )
        async with clients.connect(self.config.metadata) as asking:
            return inspection_view(await asking.inspect_ledger(ledger_id(str(ledger))))

    async def configuration(self) -> list[tuple[str, str, str]]:
        """Key, value and source of each setting. Raises BkboxError."""
        if self.config is not None:
            places = self.config.provenance
            return [(key, str(value), places[key]) for key, value in self.config.values().items()]
        found = await asyncio.to_thread(client.ask, self.address, "GET", CONFIG_URL)
        if not isinstance(found, dict):
            raise EncodingError(f"{self.address} answered something that is no configuration")
        return [(key, str(item["value"]), str(item["from"])) for key, item in found.items()]

    async def cookies(self) -> CookieView:
        """The cookies compared with each other and with the configuration. Raises BkboxError."""
        if self.config is not None:
            report = await cookie_repair.inspect(self.config)
            rows = tuple((d.where, d.field, d.expected, d.found) for d in report.differences)
            return CookieView(report.ok, rows, report.advice)
        if self._status is None:
            return CookieView(None, problem="the bookie is not running")
        cookies = self._status.cookies
        rows = tuple(
            (each.where, each.field, each.expected, each.found)
            for each in cookies.fields
            if not each.same
        )
        return CookieView(cookies.ok, rows, cookies.advice, cookies.problem)

    def cluster(self) -> AbstractAsyncContextManager[tuple[ClusterWatch, Asker]]:
        """All bookies of its cluster. Raises, when it is entered, BkboxError."""
        clock = time.monotonic
        if self.config is not None:
            return watch_cluster(self.config.metadata, self.config, self._reach, clock)
        if self._reach is None:
            raise OperatorError("the bookies of its cluster are seen from its own host only")
        return watch_from(self.address, self._reach, clock)

    def other(self, address: Address) -> Bookie:
        """Another bookie of the cluster."""
        return Bookie(address, None, self._wall_ms, self._reach)

    async def announced(self) -> list[dict[str, str]]:
        """Bookies announced by mDNS on this bookie's interface: id, instance, address, admin. Raises HostError."""
        return await found_here(_LISTEN_S, self._interface())

    def _interface(self) -> str | None:
        """The address that a bookie of this configuration advertises; None if it is a name."""
        host = "" if self.config is None else self.config.advertised_host
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            return None

    @property
    def bookie_id(self) -> BookieId:
        if self.config is not None:
            return BookieId(self.config.bookie_id)
        return BookieId("" if self._status is None else self._status.bookie_id)


class Recording:
    """A recording, one snapshot a call. Raises OperatorError for a file that cannot be opened."""

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

    async def read(self) -> Snapshot | None:
        if self._first is not None:
            found, self._first = self._first, None
            return found
        return next(self._rows, None)


def disk_files(path: Path) -> DiskFiles:
    """The state of a disk by its files; nothing is written, no lock is taken."""
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
    marker = describe_marker(read_marker(files, path))
    return DiskFiles(str(path), str(identity.uuid), marker, free, total, "")


def describe_marker(marker: Marker | None) -> str:
    """The next start's treatment of a dirty marker, as far as it can be told before."""
    if marker is None:
        return "stopped cleanly"
    if marker.replaced:
        return "stands in for a lost disk: its ledgers are refilled by the next start"
    if marker.failures:
        return f"failed: {marker.failures[-1]}; the next start treats it as a host crash"
    return "not stopped cleanly: the next start replays it, and looks what may be missing"
