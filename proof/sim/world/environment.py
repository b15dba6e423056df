"""The interfaces between bkbox and the machine, replaced while a simulation runs.

The code under test is not changed. Replaced are the modules' access to sockets, processes, locks, the wall clock and
random ids, and a few things that would only cost time: the size to which segments are filled ahead, the interval of
statistics, the repeated decoding of the same cookie.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bkbox.client import client
from bkbox.repair import cancellable_wait
from bkbox.repair.replication import auditor
from bkbox.storage.disk import format_disk
from bkbox.storage.files import Files
from bkbox.storage.log import segmented_log
from bkbox.supervisor import supervisor
from bkbox.supervisor.boot import cookie_repair, open_disk, startup_resources
from bkbox.supervisor.children import restart_policy
from bkbox.wire.metadata import cookie
from bkbox.worker import commit_groups
from proof.sim.patching import replaced
from proof.sim.world.background_jobs import NEVER_S
from proof.sim.world.child import SimChild
from proof.sim.world.host import Cluster, Host
from proof.sim.world.index import SimIndex
from proof.sim.world.link import SimPool
from proof.sim.world.loop import Process
from proof.sim.world.metadata import StaleView


class SimLock:
    """Replaces the disk lock: no other process is on the host."""

    def __init__(self, _disk: Path) -> None:
        """Acquires the lock."""

    def fileno(self) -> int:
        return 0

    def release(self) -> None:
        """Releases the lock."""


class _Port:
    """A bound port."""

    def __init__(self, number: int) -> None:
        self._number = number

    def getsockname(self) -> tuple[str, int]:
        return "", self._number

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to release."""


class _Admin:
    """An admin socket without clients."""

    async def close(self) -> None:
        """Nothing to release."""


def _host() -> Host:
    process = cast(Any, asyncio.get_running_loop())
    host: Host = process.sim_host
    return host


async def _connect(_uri: str, _wait_s: float) -> StaleView:
    return StaleView(_host().cluster.truth, cast(Process, asyncio.get_running_loop()))


def _lock_all(config: Any, files: Files, *, create: bool) -> dict[Path, SimLock]:
    paths = (*config.disks, *((config.journal,) if config.journal else ()))
    return {path: SimLock(path) for path in paths if files.exists(path)}


async def _admin_start(*_of_socket: object) -> _Admin:
    return _Admin()


def _create_index(files: Files, disk: Path) -> None:
    _host().indexes[disk] = SimIndex()
    files.fsync_dir(disk)


class _Uuids:
    """uuid4 drawn from the seed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(self) -> Any:
        return self._cluster.uuid()


class _Lines(logging.Handler):
    """Adds bkbox's log to the trace."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        name = loop.name if isinstance(loop, Process) else "nobody"
        self._cluster.scheduler.note(name, "%s", record.getMessage())


@contextmanager
def installed(cluster: Cluster, *, syncs_at_once: bool) -> Iterator[None]:
    """Installs the environment of one cluster. ``syncs_at_once``: syncs take no time; otherwise all of them overlap
    with what follows."""
    package = logging.getLogger("bkbox")
    level, propagates = package.level, package.propagate
    handler = _Lines(cluster)
    package.propagate = False
    if cluster.scheduler.trace is not None:
        package.setLevel(logging.WARNING)
        package.addHandler(handler)
    else:
        package.setLevel(logging.CRITICAL + 1)
    uuids = _Uuids(cluster)
    now = SimpleNamespace(monotonic=lambda: cluster.scheduler.now)
    try:
        with replaced(
            (client, "BookiePool", SimPool),
            (startup_resources, "connect", _connect),
            (startup_resources, "lock_all", _lock_all),
            (startup_resources, "DiskLock", SimLock),
            (
                startup_resources,
                "bind",
                lambda config: _Port(int(config.listen.rpartition(":")[2])),
            ),
            (open_disk, "Child", SimChild),
            (supervisor, "Child", SimChild),
            (supervisor, "admin", SimpleNamespace(start=_admin_start)),
            (supervisor, "admin_socket_path", lambda _config: None),
            (supervisor, "kernel_boot_id", lambda: "boot"),
            (supervisor, "uuid", SimpleNamespace(uuid4=uuids)),
            (supervisor, "_STATS_EVERY_S", 60.0),
            (restart_policy, "time", now),
            (cookie, "decode", lru_cache(256)(cookie.decode)),
            (auditor, "POLL_INTERVAL_S", 15.0),
            (cancellable_wait, "_LISTEN_EVERY_S", NEVER_S),
            (cookie_repair, "uuid4", uuids),
            (
                cookie_repair,
                "format_disk",
                partial(format_disk.format_disk, create_index=_create_index),
            ),
            (commit_groups, "_AT_ONCE_BYTES", 1 << 30 if syncs_at_once else -1),
            (commit_groups, "_COALESCE_US_MAX", 0),
            (commit_groups, "wait", lambda futures: [future.run() for future in futures]),
            (segmented_log, "_SMALL_SYNC_BYTES", 2 << 10),
            (segmented_log, "_FILL_BYTES", 8 << 10),
        ):
            yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)
        package.propagate = propagates
