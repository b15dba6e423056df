"""Adds, drains, replaces and removes disks of a running bookie.

The configuration file belongs to the operator and is never written. It names a disk from before the disk is added until
after it is removed. So a start finds every disk that may hold data, whatever happens in between.

One change runs at a time. All refusals are checked before anything is changed. What a crash in between must not forget
is written first (cookie_repair.py): a start then either goes on as if the change had never been requested, or refuses
and names the command that finishes it.

- *add*: the cookies of the metadata store and of all disks are written, then the new disk is prepared, its worker is
  started, and the front-ends are told. It gets new ledgers by its free space; no ledger is migrated to it.
- *drain*: the disk takes no new ledgers from the moment the drain is noted on it; a job migrates its ledgers.
- *remove*: only a disk without ledgers. *Removed* is noted on it, then the cookies are written without it.
- *replace*: only a disk that has failed. The new one is prepared as its replacement, as `bkbox cookie repair` does
  while the bookie is down. Before the new disk serves, phase one puts the old disk's ledgers, and only those, into
  limbo on it; phase two refills it from peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted, error_text
from bkbox.config import load as configuration
from bkbox.config.schema import Config
from bkbox.errors import BkboxError, DiskChangeError
from bkbox.ipc.messages.disk import ListLedgers
from bkbox.ipc.messages.items import LEDGER_ITEM
from bkbox.ipc.messages.message import Page
from bkbox.ipc.messages.migration import ListMigrations, MigrationList
from bkbox.ipc.messages.process import Stop, Stopped
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.lock import DiskLock
from bkbox.storage.files import Files
from bkbox.supervisor.boot import cookies
from bkbox.supervisor.boot.startup_resources import StartupResources
from bkbox.supervisor.disks import drain_marker
from bkbox.supervisor.disks.disk_inspection import Directory, DirState
from bkbox.supervisor.disks.disks import Disk
from bkbox.supervisor.disks.drain import RESPONSE_TIMEOUT_S, Drains, same_folder

if TYPE_CHECKING:
    from bkbox.config.schema import Config
    from bkbox.supervisor.disks.drain import DrainingBookie

    class ChangingBookie(DrainingBookie, Protocol):
        """The part of a bookie that disk changes read and modify."""

        config: Config
        disks: list[Disk]

        def use_folder(self, path: Path) -> None: ...
        def begin_run(self, disk: Disk) -> None: ...
        def keep_disk(self, base: StartupResources, disk: Disk) -> None: ...
        async def start_disk(self, base: StartupResources, disk: Disk) -> None: ...
        async def serve_on(self, path: Path) -> None: ...


log = logging.getLogger(__name__)

_END_S = 5.0


class DiskChanges:
    """Disk changes of one running bookie. A refused change raises DiskChangeError and has changed nothing."""

    def __init__(self, bookie: ChangingBookie, base: StartupResources, files: Files) -> None:
        self._bookie = bookie
        self._base = base
        self._files = files
        self._one = asyncio.Lock()
        self.drains = Drains(bookie, files, self._one)

    # ---- add ----------------------------------------------------------------------------------------

    async def add(self, path: Path) -> list[str]:
        """Add a disk that the configuration file newly names. Returns notes for the operator."""
        async with self._one:
            bookie = self._bookie
            config = self._newly_named(path, failed=None)
            socket_before = admin_socket_path(bookie.config)
            notes = self._require_usable(path)
            await self._inspect(config, path)
            lock = DiskLock(path)
            try:
                disk = await self._prepare(config, path, lock, in_place_of={})
            except BaseException:
                lock.release()
                raise
            bookie.disks.append(disk)
            notes += await self._bring_up(disk)
            return [*notes, *await self._serve_commands(socket_before)]

    def _newly_named(self, path: Path, failed: Disk | None) -> Config:
        """The running configuration with the disks that the file names now. Apart from these the disks must be the
        same."""
        bookie = self._bookie
        named = configuration.load(bookie.config.path, os.environ).disks
        expected = {disk.path for disk in bookie.disks if disk is not failed} | {path}
        if set(named) != expected:
            paths = [disk.path for disk in bookie.disks]
            if failed is None:
                paths.append(path)
            else:
                paths[paths.index(failed.path)] = path
            raise DiskChangeError(
                f"{bookie.config.path} names other disks than the bookie is to have. Put this line there, and give the "
                f"command again: {_line(paths)}"
            )
        return dataclasses.replace(bookie.config, disks=named)

    def _require_usable(self, path: Path) -> list[str]:
        """Check that the folder is not a disk in use. Returns notes for the operator."""
        if not path.is_dir():
            raise DiskChangeError(f"{path} is not there: mount the disk, or make the folder, first")
        device = path.stat().st_dev
        same_device = []
        for disk in self._bookie.disks:
            if disk.path == path or not disk.path.exists():
                continue
            if same_folder(disk.path, path):
                raise DiskChangeError(f"{path} is the same folder as {disk.path}: use one of them")
            if disk.path.stat().st_dev == device:
                same_device.append(str(disk.path))
        if not same_device:
            return []
        return [
            f"warning: {path} is on the same file system as {', '.join(same_device)}: they fill up and fail together"
        ]

    async def _inspect(self, config: Config, path: Path) -> cookies.Evidence:
        """Check that the new disk is empty and all other disks are in order."""
        evidence = await cookies.gather(config, self._base.store, self._files)
        found = _item(evidence, path)
        if found.state is not DirState.EMPTY:
            raise DiskChangeError(
                f"{path} is not empty: {found.detail or 'it holds data of this bookie'}. Mount an empty disk there, or "
                "empty the folder if nothing in it is needed"
            )
        plan = cookies.plan_of(evidence)
        if plan.refusal is not None:
            raise DiskChangeError(plan.refusal)
        return evidence

    async def _prepare(
        self, config: Config, path: Path, lock: DiskLock, in_place_of: Mapping[str, str]
    ) -> Disk:
        """Write the cookies and prepare the new disk. The bookie runs with the new configuration from then on."""
        from bkbox.supervisor.boot.cookie_repair import execute  # it can format disks

        bookie = self._bookie
        evidence = await self._inspect(config, path)  # again, now under the disk's lock
        bookie.use_folder(path)
        await execute(evidence, self._base.store, self._files, in_place_of=in_place_of)
        bookie.config = config
        prepared = _item(await cookies.gather(config, self._base.store, self._files), path)
        assert prepared.identity is not None
        number = 1 + max(disk.number for disk in bookie.disks)
        disk = Disk(number, path, str(prepared.identity.uuid), lock)
        disk.needs_stamp = prepared.state is DirState.REPLACED
        return disk

    async def _bring_up(self, disk: Disk, *, replaces: str = "") -> list[str]:
        bookie = self._bookie
        notes = []
        disk.listed = not replaces
        bookie.begin_run(disk)
        await bookie.frontends.join(disk, replaces=replaces)
        try:
            await bookie.start_disk(self._base, disk)
        except (BkboxError, OSError) as error:
            notes.append(
                f"warning: its worker is not up yet, and is tried again: {error_text(error)}"
            )
        bookie.keep_disk(self._base, disk)
        await bookie.frontends.publish_free_space()
        return notes

    # ---- replace ------------------------------------------------------------------------------------

    async def replace(self, old: Disk, path: Path, *, dry_run: bool = False) -> list[str]:
        """Replace a failed disk by an empty one. Returns notes for the operator. With ``dry_run`` every reason for a
        refusal is checked, and nothing is changed."""
        async with self._one:
            if old.in_service and not old.trouble:
                drain = bookie_command("disk", "drain", old.path)
                raise DiskChangeError(
                    f"{old.path} works: drain it (`{drain}`), so that nothing has to come back from other bookies"
                )
            config = self._newly_named(path, failed=old)
            socket_before = admin_socket_path(self._bookie.config)
            notes = self._require_usable(path)
            await self._inspect(config, path)
            if dry_run:
                return notes
            if old.child is not None:
                old.child.kill()
            await self._end_worker(old)
            old.lock.release()
            try:
                disk = await self._lock_and_prepare(config, path, old)
            except BaseException:
                self._restore(old)
                raise
            self._bookie.disks[self._bookie.disks.index(old)] = disk
            notes += await self._bring_up(disk, replaces=old.uuid)
            return [*notes, *await self._serve_commands(socket_before)]

    async def _lock_and_prepare(self, config: Config, path: Path, old: Disk) -> Disk:
        lock = DiskLock(path)
        try:
            return await self._prepare(config, path, lock, in_place_of={str(path): str(old.path)})
        except BaseException:
            lock.release()
            raise

    def _restore(self, old: Disk) -> None:
        """Undo a refused replacement: everything about the failed disk is as before."""
        with contextlib.suppress(BkboxError):
            old.lock = DiskLock(old.path)
        self._bookie.keep_disk(self._base, old)

    # ---- remove -------------------------------------------------------------------------------------

    async def remove(self, disk: Disk) -> list[str]:
        """Remove a disk that holds no ledgers. Returns what is left for the operator to do."""
        from bkbox.supervisor.boot.cookie_repair import execute

        async with self._one:
            bookie = self._bookie
            if len(bookie.disks) == 1:
                raise DiskChangeError(f"{disk.path} is the only disk of the bookie")
            if not disk.draining:
                ledgers = disk.stats.get("ledgers")
                contents = "ledgers" if ledgers is None else counted(ledgers, "ledger")
                raise DiskChangeError(
                    f"{disk.path} holds {contents} and takes new ones: drain it first: "
                    f"{bookie_command('disk', 'drain', disk.path)}"
                )
            async with bookie.migrator.lock:  # no ledger is migrated to it meanwhile
                await self._require_empty(disk)
                left = tuple(other.path for other in bookie.disks if other is not disk)
                config = dataclasses.replace(bookie.config, disks=left)
                drain_marker.note(self._files, disk.path, draining=True, removed=True)
                try:
                    evidence = await cookies.gather(config, self._base.store, self._files)
                    plan = cookies.plan_of(evidence)
                    if plan.refusal is not None:
                        raise DiskChangeError(plan.refusal)
                    await execute(evidence, self._base.store, self._files)
                except BkboxError:
                    drain_marker.note(self._files, disk.path, draining=True)
                    raise
                socket_before = admin_socket_path(bookie.config)
                bookie.config = config
                bookie.disks.remove(disk)
                await bookie.frontends.leave(disk)
                await self._end_worker(disk)
            disk.lock.release()
            notes = f"put this into {config.path}, or the next start refuses: {_line(config.disks)}"
            return [notes, *await self._serve_commands(socket_before)]

    async def _serve_commands(self, socket_before: Path) -> list[str]:
        """Answer commands on the admin socket's new path. Without `run_dir` the socket is on the first disk, which may
        have changed."""
        path = admin_socket_path(self._bookie.config)
        if path == socket_before and path.exists():
            return []
        try:
            await self._bookie.serve_on(path)
        except BkboxError as error:
            return [f"warning: the bookie does not answer commands on {path}: {error}"]
        return [
            f"the bookie answers commands on {path} now; {socket_before} stays in use until it is started again. With "
            "`run_dir` in the configuration the socket is on no disk"
        ]

    async def _require_empty(self, disk: Disk) -> None:
        if disk.child is None or not disk.child.running:
            raise DiskChangeError(
                f"the worker of {disk.path} does not run, so it is not known what is on it: {disk.trouble}"
            )
        left, after, more = 0, -1, True
        while more:
            page = await disk.call(ListLedgers(after=after), RESPONSE_TIMEOUT_S)
            assert isinstance(page, Page)
            for ledger, _flags in LEDGER_ITEM.iter_unpack(page.payload):
                left, after = left + 1, ledger
            more = page.more
        migrations = await disk.call(ListMigrations(), RESPONSE_TIMEOUT_S)
        assert isinstance(migrations, MigrationList)
        left += len(migrations.leaving)
        if left:
            raise DiskChangeError(
                f"{counted(left, 'ledger', 'are')} left on {disk.path}: see how its drain does: "
                f"`{bookie_command('job', 'list')}`; or begin it again: `{bookie_command('disk', 'drain', disk.path)}`"
            )

    # ---- parts --------------------------------------------------------------------------------------

    async def _end_worker(self, disk: Disk) -> None:
        if disk.keeping is not None:
            disk.keeping.cancel()
            await asyncio.gather(disk.keeping, return_exceptions=True)
        disk.in_service = disk.recovered = False
        if disk.child is None or not disk.child.running:
            return
        with contextlib.suppress(BkboxError, TimeoutError):
            response = await disk.call(Stop(), self._bookie.config.stop_timeout_s)
            if isinstance(response, Stopped) and response.clean and disk.run is not None:
                markers.clear(self._files, disk.path, disk.run)
        await disk.child.end(_END_S)


def _item(evidence: cookies.Evidence, path: Path) -> Directory:
    return next(item for item in evidence.disks if item.path == path)


def _line(paths: Sequence[Path]) -> str:
    """The ``disks`` line as the configuration file has it."""
    return f"disks = {json.dumps([str(path) for path in paths])}"
