"""Drains: which disks may drain, which disks are targets, and the supervisor's side of the drain job.

A drain is noted on the disk (drain_marker.py) before the front-ends are told, and a new front-end is told before it
serves. From then on the disk gets no new ledger, whichever process dies.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bkbox.base.commandline import bookie_command
from bkbox.base.text import error_text
from bkbox.bookie.readonly import DECOMMISSION
from bkbox.errors import BkboxError, BugError, DiskChangeError
from bkbox.ipc.channel import refusal
from bkbox.ipc.messages.message import Done, Message
from bkbox.ipc.messages.migration import DiskSpaceReply, FindDisk, MoveLedger
from bkbox.ipc.messages.repair import Draining, Retiring
from bkbox.storage.files import Files
from bkbox.supervisor.children.process import Child
from bkbox.supervisor.disks import drain_marker
from bkbox.supervisor.disks.disks import Disk

if TYPE_CHECKING:
    from bkbox.api.admin.disks import DrainPlan
    from bkbox.config.schema import Config
    from bkbox.supervisor.disks.ledger_migration import LedgerMigrator
    from bkbox.supervisor.disks.readonly_requests import ReadOnlyRequests

    class DiskNews(Protocol):
        """The front-ends, as changes of disks use them."""

        async def publish_free_space(self) -> None: ...
        async def join(self, disk: Disk, *, replaces: str = "") -> None: ...
        async def leave(self, disk: Disk) -> None: ...

    class DrainingBookie(Protocol):
        """The part of a bookie that drains use."""

        @property
        def config(self) -> Config: ...
        @property
        def disks(self) -> list[Disk]: ...
        @property
        def frontends(self) -> DiskNews: ...
        @property
        def readonly_requests(self) -> ReadOnlyRequests: ...
        @property
        def migrator(self) -> LedgerMigrator: ...


RESPONSE_TIMEOUT_S = 30.0
"""Time-out for a call to a process, which then counts as gone."""


class Drains:
    """Drains of one running bookie. A refused request raises DiskChangeError and has changed nothing."""

    def __init__(self, bookie: DrainingBookie, files: Files, one: asyncio.Lock) -> None:
        """``one``: the lock that every change of disks holds."""
        self._bookie = bookie
        self._files = files
        self._one = one

    def find(self, name: str) -> Disk:
        """A disk of the bookie by its path or uuid."""
        for disk in self._bookie.disks:
            if name == disk.uuid or same_folder(Path(name), disk.path):
                return disk
        known = ", ".join(str(disk.path) for disk in self._bookie.disks)
        raise DiskChangeError(f"{name} is no disk of this bookie; its disks are {known}")

    # ---- what the repair worker asks ----------------------------------------------------------------

    async def respond(self, repair: Child, call: Message) -> None:
        try:
            reply = await self._handle(call)
        except BkboxError as error:
            reply = refusal(error)
        except OSError as error:  # the process timed out
            reply = refusal(DiskChangeError(f"{type(error).__name__}: {error_text(error)}"))
        reply.call = call.call
        repair.control.send(reply)

    async def _handle(self, call: Message) -> Message:
        if isinstance(call, MoveLedger):
            source, target = self.find(call.source), self.find(call.target)
            return await self._bookie.migrator.move(call.ledger, source, target, call.since)
        if isinstance(call, Draining):
            await self.set_draining(self.find(call.disk), wanted=call.wanted)
            return Done()
        if isinstance(call, Retiring):
            await self._bookie.readonly_requests.set_for_bookie({DECOMMISSION}, wanted=call.wanted)
            return Done()
        if isinstance(call, FindDisk):
            return self._find_space(self.find(call.disk))
        raise BugError(f"the supervisor does not answer {type(call).__name__}")

    # ---- what operators ask -------------------------------------------------------------------------

    async def set_draining(self, disk: Disk, *, wanted: bool) -> None:
        """Start or cancel a drain. When this returns with ``wanted``, no new ledger is created on the disk any more."""
        async with self._one:
            if wanted and not disk.draining:
                self._require_drainable(disk)
            if wanted != disk.draining:
                await asyncio.to_thread(drain_marker.note, self._files, disk.path, draining=wanted)
                disk.draining = wanted
            await self._bookie.frontends.publish_free_space()

    def plan_drain(self, disk: Disk) -> DrainPlan:
        """Plan a drain, or raise the reason why it is refused."""
        from bkbox.api.admin.disks import DrainPlan  # the caller has loaded this module already

        targets = self._targets(disk)
        needed, space = _log_bytes(disk.path), sum(map(self.space_of, targets))
        refusal = ""
        if len(self._bookie.disks) == 1:
            refusal = (
                f"{disk.path} is the only disk of the bookie: its ledgers have nowhere to go. Add a disk first "
                f"(`{bookie_command('disk', 'add', 'NEW_FOLDER')}`), or take the bookie away as a whole "
                f"(`{bookie_command('decommission', self._bookie.config.bookie_id)}`)"
            )
        elif disk.trouble:
            refusal = (
                f"{disk.path} has failed ({disk.trouble}): put an empty disk in its place "
                f"(`{bookie_command('disk', 'replace', disk.path, 'NEW_FOLDER')}`), and "
                "its ledgers come back from other bookies"
            )
        elif not targets:
            refusal = (
                "no other disk of the bookie is in service, takes entries and is not being drained itself: see "
                f"`{bookie_command('disk', 'list')}`"
            )
        elif needed > space:
            refusal = (
                f"no room: the entry log of {disk.path} has {needed} bytes, and the other disks take {space} more. Add "
                f"a disk (`{bookie_command('disk', 'add', 'NEW_FOLDER')}`), or let garbage go first "
                f"(`{bookie_command('gc', 'run')}`)"
            )
        ledgers = int(disk.stats.get("ledgers", 0))
        return DrainPlan(disk.uuid, str(disk.path), ledgers, needed, space, refusal)

    def _require_drainable(self, disk: Disk) -> None:
        refusal = self.plan_drain(disk).refusal
        if refusal:
            raise DiskChangeError(refusal)

    def _find_space(self, source: Disk) -> DiskSpaceReply:
        others = self._targets(source)
        best = max(others, key=self.space_of, default=None)
        if best is None or not self.space_of(best):
            return DiskSpaceReply(disk="", why="no other disk in service takes anything more")
        return DiskSpaceReply(disk=best.uuid)

    def _targets(self, source: Disk) -> list[Disk]:
        """The other disks that can be targets for the ledgers of ``source``."""
        return [
            disk
            for disk in self._bookie.disks
            if disk is not source
            and disk.in_service
            and not (disk.trouble or disk.read_only or disk.placement_unknown)
        ]

    def space_of(self, disk: Disk) -> int:
        """Bytes that a disk can take before it turns read-only."""
        config = self._bookie.config
        free, total = (int(disk.stats.get(name, 0)) for name in ("free_bytes", "total_bytes"))
        reserve = max(config.disk_reserve_bytes, int(total * (1 - config.disk_usage_max)))
        return max(0, free - reserve)


def same_folder(one: Path, other: Path) -> bool:
    """True if both paths lead to one folder, as far as it exists."""
    try:
        return one.samefile(other)
    except OSError:
        return one == other


def _log_bytes(disk: Path) -> int:
    """Bytes in a disk's entry log, garbage included."""
    try:
        return sum(entry.stat().st_size for entry in os.scandir(disk / "entrylog"))
    except OSError:
        return 0
