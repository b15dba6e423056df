"""A drain: the ledgers of one disk are migrated to the other disks of the bookie, one after another, while in use.

Everything of a ledger that can be copied while the source serves it is copied here: first all of it, then, pass by
pass, the entries written meanwhile, until little is left. The supervisor copies the rest and changes the ledger's
disk assignment (supervisor/disks/ledger_migration.py): nothing here can lose anything. Copies travel in a file in
memory whose descriptor is passed from one disk worker to the other; its bytes are not parsed here.

Nothing is remembered between runs: a ledger that was migrated is not on the disk any more. An unfinished copy is
dropped. A ledger that cannot be migrated now (unreadable entries, no space) stays, is listed with the reason, and is
retried. A ledger in limbo is migrated as it is, and stays in limbo at the target. Ledgers in limbo come last, because
repair may take them out of limbo where they are. A drain that is cancelled lets the disk accept new ledgers again.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from bkbox.base.backoff import Backoff
from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted
from bkbox.errors import (
    BkboxError,
    BugError,
    ConnectionLostError,
    JobCancelledError,
    LedgerNotMovedError,
)
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.disk import ListLedgers
from bkbox.ipc.messages.items import LEDGER_ITEM, LIMBO
from bkbox.ipc.messages.message import Message, Page
from bkbox.ipc.messages.migration import (
    EVERYTHING,
    CommitImport,
    DiskSpaceReply,
    EntriesImported,
    EntriesRead,
    FindDisk,
    GetLedger,
    ImportEntries,
    LedgerInfo,
    ListMigrations,
    MigrationList,
    Moved,
    MoveLedger,
    ReadLedger,
    StartImport,
)
from bkbox.ipc.messages.repair import Draining
from bkbox.jobs.context import JobContext
from bkbox.repair.context import Environment

_FEW_BYTES = 1 << 20
"""Upper bound on what is left to the supervisor, which pauses the ledger's clients meanwhile."""

_PASSES_MAX = 20
_CROWDED_S = 0.05
_POLL_INTERVAL_S = 0.5

_AGAIN_ADVICE = "nothing: it is tried again by itself"


def _bad_advice() -> str:
    scrub = bookie_command("scrub", "run")
    return f"let a scrub refill them from other bookies: `{scrub}`; it moves by itself then"


def _space_advice() -> str:
    add, jobs = bookie_command("disk", "add", "NEW_FOLDER"), bookie_command("job", "list")
    return f"add a disk: `{add}`; or cancel the drain: `{jobs}` has its number"


class _BlockedError(Exception):
    """A ledger cannot be migrated now: the reason, and what the operator can do."""

    def __init__(self, why: str, what_to_do: str) -> None:
        super().__init__(why)
        self.what_to_do = what_to_do


class _NoSpaceError(_BlockedError):
    """No disk has space for this ledger, nor for any other."""


async def drain(work: JobContext, environment: Environment, arguments: dict[str, str]) -> None:
    """The job. ``arguments``: ``disk``, a uuid."""
    drainer = _Drainer(work, environment, arguments["disk"])
    await drainer.call(Draining(disk=drainer.disk, wanted=True))
    try:
        await drainer.run()
    except JobCancelledError:
        await drainer.call(Draining(disk=drainer.disk, wanted=False))
        raise


class _Drainer:
    def __init__(self, work: JobContext, environment: Environment, disk: str) -> None:
        self.disk = disk
        self._work = work
        self._environment = environment
        self._blocked: set[int] = set()
        self._moved = 0

    async def call(self, call: Message) -> Message:
        """Call the supervisor. Raises the error it responds with."""
        if self._environment.supervisor is None:
            raise BugError("a drain needs the bookie whose disk it is")
        return await self._environment.supervisor.call(call)

    async def run(self) -> None:
        """Migrate ledgers until none is left on the disk."""
        order = self._environment.order
        backoff = Backoff(order.retry_initial_s, order.retry_max_s, self._environment.rng)
        while True:
            await self._work.checkpoint()
            source = self._environment.disks.get(self.disk)
            if source is None or source.closed:
                self._work.set_step("waits for the worker of the disk")
                await asyncio.sleep(_POLL_INTERVAL_S)
                continue
            try:
                left = await self._round(source)
            except ConnectionLostError:
                continue
            if not left:
                return
            self._work.set_step(f"{counted(left, 'ledger')} cannot move now")
            await self._wait(backoff.next_s())

    async def _wait(self, seconds: float) -> None:
        end_s = self._environment.monotonic_s() + seconds
        while (left_s := end_s - self._environment.monotonic_s()) > 0:
            await self._work.checkpoint()  # raises if the job was cancelled
            await asyncio.sleep(min(left_s, _POLL_INTERVAL_S))

    async def _round(self, source: AsyncChannel) -> int:
        """Try to migrate every ledger; returns how many are left."""
        ledgers = await self._ledgers(source)
        await self._drop_unfinished(set(ledgers))
        for ledger in self._blocked - set(ledgers):
            self._work.unblock(ledger)
        self._blocked &= set(ledgers)
        self._work.expect(ledgers=self._moved + len(ledgers))
        for ledger in ledgers:
            await self._work.checkpoint()
            self._work.set_step(f"moves ledger {ledger}")
            try:
                await self._move(ledger, source)
            except _BlockedError as blocked:
                self._blocked.add(ledger)
                self._work.block(ledger, str(blocked), blocked.what_to_do)
                if isinstance(blocked, _NoSpaceError):
                    break
            else:
                self._blocked.discard(ledger)
                self._work.unblock(ledger)
                self._moved += 1
                self._work.add_progress(ledgers=1)
        return len(await self._ledgers(source))

    async def _ledgers(self, source: AsyncChannel) -> list[int]:
        """The ledgers assigned to the disk, those in limbo last."""
        found: list[tuple[bool, int]] = []
        after, more = -1, True
        while more:
            page = await source.call(ListLedgers(after=after))
            assert isinstance(page, Page)
            for ledger, flags in LEDGER_ITEM.iter_unpack(page.payload):
                found.append((bool(flags & LIMBO), ledger))
                after = ledger
            more = page.more
        return [ledger for _limbo, ledger in sorted(found)]

    async def _drop_unfinished(self, ledgers: set[int]) -> None:
        """Drop copies that an earlier run left unfinished on other disks."""
        for name, disk in list(self._environment.disks.items()):
            if name == self.disk or disk.closed:
                continue
            with suppress(ConnectionLostError):
                moves = await disk.call(ListMigrations())
                assert isinstance(moves, MigrationList)
                for ledger in ledgers & set(moves.arriving):
                    await disk.call(CommitImport(ledger=ledger, commit=False))

    # ---- one ledger ---------------------------------------------------------------------------------

    async def _move(self, ledger: int, source: AsyncChannel) -> None:
        """Migrate one ledger; returns when it is no longer on the disk. Raises _BlockedError, ConnectionLostError of
        the source.
        """
        found = await source.call(GetLedger(ledger=ledger))
        assert isinstance(found, LedgerInfo)
        if not found.known:
            return
        name, target = await self._target()
        fd = os.memfd_create("bkbox-drain")
        try:
            arrival = StartImport(ledger=ledger, state=found.state, payload=found.payload)
            await target.call(arrival)
            await self._transfer(ledger, source, name, target, fd)
        except (ConnectionLostError, LedgerNotMovedError) as error:
            if source.closed:
                raise
            raise _BlockedError(str(error), _AGAIN_ADVICE) from error
        except BkboxError as error:
            if isinstance(error, JobCancelledError):
                raise
            raise _BlockedError(f"{type(error).__name__}: {error}", _space_advice()) from error
        finally:
            os.close(fd)
            await self._release(ledger, target)

    async def _release(self, ledger: int, target: AsyncChannel) -> None:
        """Drop the copy on the target, unless the ledger is assigned to the target by now."""
        with suppress(BkboxError):
            await target.call(CommitImport(ledger=ledger, commit=False))

    async def _target(self) -> tuple[str, AsyncChannel]:
        found = await self.call(FindDisk(disk=self.disk))
        assert isinstance(found, DiskSpaceReply)
        if not found.disk:
            raise _NoSpaceError(found.why, _space_advice())
        target = self._environment.disks.get(found.disk)
        if target is None or target.closed:
            raise _BlockedError("the disk that it would come to is not up yet", _AGAIN_ADVICE)
        return found.disk, target

    async def _transfer(
        self, ledger: int, source: AsyncChannel, name: str, target: AsyncChannel, fd: int
    ) -> None:
        why = "it is written faster than it can be copied"
        since = EVERYTHING
        for _pass in range(_PASSES_MAX):
            began, size = await self._copy(ledger, since, source, target, fd)
            since = began
            if size > _FEW_BYTES:
                continue
            moved = await self.call(
                MoveLedger(ledger=ledger, source=self.disk, target=name, since=since)
            )
            assert isinstance(moved, Moved)
            if moved.moved:
                return
            why = moved.why
        raise _BlockedError(why, _AGAIN_ADVICE)

    async def _copy(
        self,
        ledger: int,
        since: list[int],
        source: AsyncChannel,
        target: AsyncChannel,
        fd: int,
    ) -> tuple[list[int], int]:
        """Copy one pass; returns where the pass began, and the bytes copied."""
        read, size = ReadLedger(ledger=ledger, since=since), 0
        while True:
            found = await source.call(read, (fd,))
            assert isinstance(found, EntriesRead)
            if found.bad:
                shown = ", ".join(map(str, found.bad[:5]))
                raise _BlockedError(f"entries {shown} cannot be read", _bad_advice())
            await self._work.checkpoint(disk_bytes=2 * found.size)
            await self._store(ledger, found.size, target, fd)
            self._work.add_progress(entries=found.entries, size=found.size)
            size += found.size
            if not found.more:
                return found.began, size
            read = ReadLedger(ledger=ledger)

    async def _store(self, ledger: int, size: int, target: AsyncChannel, fd: int) -> None:
        while size:
            imported = await target.call(ImportEntries(ledger=ledger, size=size), (fd,))
            assert isinstance(imported, EntriesImported)
            if not imported.crowded:
                return
            await self._work.checkpoint()
            await asyncio.sleep(_CROWDED_S)
