"""Step 1 of a start: locks, cookies, port. Nothing is written before all three are in order."""

from __future__ import annotations

import logging
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bkbox.base.text import reason_of
from bkbox.config.schema import Config
from bkbox.errors import BootError, CookieMismatchError
from bkbox.metadata import connect
from bkbox.metadata.base import MetadataStore
from bkbox.storage.disk.lock import DiskLock
from bkbox.storage.files import Files
from bkbox.supervisor.boot import cookies
from bkbox.supervisor.boot.cookies import Evidence
from bkbox.supervisor.disks.disk_inspection import DirState, lock_all, make_directory
from bkbox.supervisor.disks.disks import Disk

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StartupResources:
    """The resources that a start acquires. ``listen`` is HOST:PORT as bound; no process listens there yet."""

    store: MetadataStore
    instance_id: str
    disks: list[Disk]
    port: socket.socket
    listen: str


async def acquire(config: Config, files: Files, stack: AsyncExitStack) -> StartupResources:
    """Acquire the resources of a start, or none. ``stack`` releases them.

    Raises BookieRunningError, CookieMismatchError, BootError, MetadataError, DiskError.
    """
    locks = lock_all(config, files, create=False)
    stack.callback(_release, locks)
    store = await stack.enter_async_context(await connect(config.metadata, config.metadata_wait_s))
    evidence = await cookies.gather(config, store, files)
    found = cookies.compare(evidence)
    if not found.ok and config.auto_fix_cookies:
        evidence = await _fix_cookies(config, files, store, evidence, locks)
        found = cookies.compare(evidence)
    if not found.ok:
        differences = "; ".join(map(str, found.differences))
        raise CookieMismatchError(f"cookie mismatch: {differences}. {found.advice}")
    disks = _disks_of(evidence, locks)
    _reject_duplicate_disks(disks)
    port = bind(config)
    stack.callback(port.close)
    listen = f"{config.listen_host}:{port.getsockname()[1]}"
    return StartupResources(store, evidence.instance_id, disks, port, listen)


def _release(locks: dict[Path, DiskLock]) -> None:
    for lock in locks.values():
        lock.release()


async def _fix_cookies(
    config: Config,
    files: Files,
    store: MetadataStore,
    evidence: Evidence,
    locks: dict[Path, DiskLock],
) -> Evidence:
    from bkbox.supervisor.boot.cookie_repair import execute

    plan = cookies.plan_of(evidence)
    asks = (DirState.BYPASSED, DirState.PAST)
    if plan.refusal is not None or any(item.state in asks for item in evidence.directories):
        return evidence  # these need an operator, to check that the right disks are mounted
    for step in plan.steps:
        log.warning("auto_fix_cookies: %s", step)
    for item in evidence.directories:
        if item.path not in locks:
            make_directory(files, item.path)
            locks[item.path] = DiskLock(item.path)
    await execute(evidence, store, files)
    return await cookies.gather(config, store, files)


def _disks_of(evidence: Evidence, locks: dict[Path, DiskLock]) -> list[Disk]:
    disks = []
    for number, item in enumerate(evidence.disks):
        assert item.identity is not None
        disk = Disk(number, item.path, str(item.identity.uuid), locks[item.path])
        disk.needs_stamp = item.state is DirState.REPLACED
        disks.append(disk)
    return disks


def _reject_duplicate_disks(disks: list[Disk]) -> None:
    seen: dict[str, Disk] = {}
    for disk in disks:
        twin = seen.setdefault(disk.uuid, disk)
        if twin is not disk:
            raise BootError(
                f"{twin.path} and {disk.path} are the same disk or copies of one ({disk.uuid}): use one"
            )


def bind(config: Config) -> socket.socket:
    """Bind the port. Clients are refused until the front-end listens on it. Raises BootError."""
    host = config.listen_host
    port = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        port.bind((host, config.listen_port))
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        port.close()
        raise BootError(
            f"cannot listen on {config.listen}: {reason_of(error)}. Is another process using the port? "
            "Change `listen` in the configuration or stop it"
        ) from error
    return port
