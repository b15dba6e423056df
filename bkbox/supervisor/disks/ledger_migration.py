"""Migrates a ledger to another disk of the bookie while clients read and write it.

Most of the ledger was copied before (repair/drain.py) to the target, where it is *arriving*: a copy that counts for
nothing (worker/ledger_migration.py). The rest is done here, one ledger after the other. The supervisor does it because
the end of this one process is the end of all the others:

=========  ==========  ===============================================================================================
step       asked       afterwards
=========  ==========  ===============================================================================================
1 hold     front-ends  new requests for the ledger wait there; earlier ones are with the source's worker
2 leave    source      all earlier requests are done, durable as promised, and answered; *leaving* is noted durably,
                       with the target's name; nothing changes the ledger there any more. Its state (key, fence, what
                       is known of its deletion) and its explicit LAC are final
3 copy     both        what was written since the last pass is copied, too
4 commit   target      all of it is synced, with the state; the ledger is taken out of *arriving*, durably: **now it is
                       assigned to the target**
5 place    front-ends  requests go to the target
6 forget   source      a FORGET record, durably; then it is taken out of *leaving*
=========  ==========  ===============================================================================================

Invariant: at any moment the ledger is assigned to one disk, and the durable notes say which: the target if the ledger
is not arriving there any more, else the source. So:

- *Any process dies before 4*: the target forgets what is arriving, at once when it is asked or whenever its worker
  opens the disk. The source has everything, and no request was answered from another disk.
- *Any process dies after 4*: the source still lists the ledger, as leaving. ``resolve`` asks the target, then the
  source forgets. Until then a source is not put into service and lists nothing to a front-end, and no phase one begins.
  A disk that cannot be asked leaves a ledger *in doubt*: EIO, until it can.
- *The target's response to 4 is lost*: the same; ``resolve`` asks again, and the question itself ends the arrival, so
  that no commit comes later.
- *The source's disk is lost*: the target knows what it has without it.
- *The target's disk is lost, or may have lost something, and a source has a ledger leaving for it*: the ledger may have
  been written there. So the source's copy does not count as complete: phase one puts it into limbo (``unresolved``).

The front-ends' pause is bounded in time (HOLD_S). The copy in step 3 is bounded, too: if more was written than that,
the ledger stays, and the copying goes on. Adds without a sync (``ack_after = write``, deferred sync) are durable after
step 4, so a later force response is true. Long polls at the source end with step 2, as if they had timed out. A ledger
in limbo is in limbo when it arrives: the mark is part of its state. Phase two writes through the front-end and asks the
disk for the rest. From step 6 on it finds nothing at the source, and what it clears there has no effect, so limbo ends
only on the ledger's own disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from bkbox.base.text import error_text
from bkbox.errors import BkboxError, LedgerNotMovedError
from bkbox.ipc.messages.message import Message
from bkbox.ipc.messages.migration import (
    Arrived,
    CommitImport,
    EndExport,
    EntriesImported,
    EntriesRead,
    ImportEntries,
    LedgerInfo,
    ListMigrations,
    MigrationList,
    Moved,
    PauseLedger,
    PlaceLedger,
    ReadLedger,
    SealExport,
)
from bkbox.supervisor.disks.disks import Disk

if TYPE_CHECKING:
    from bkbox.supervisor.disks.ledger_assignment import LedgerAssignments

log = logging.getLogger(__name__)

_FINAL_COPY_S = 1.0
_FINAL_COPY_BYTES = 16 << 20
"""Bounds of step 3: its time in seconds, and the bytes left to copy."""

_RESPONSE_TIMEOUT_S = 30.0
"""Time-out for a call to a worker, which then counts as gone."""


_PAUSE_TIMEOUT_S = 2.0
"""Time-out for the pause where there are several front-ends: the others hold back requests while one is stuck, which
they do for MIGRATION_PAUSE_MAX_S only."""


class FrontendCalls(Protocol):
    """The bookie's front-ends, all of those that run."""

    async def call(self, message: Message, timeout_s: float | None = None) -> None:
        """Call each, and wait for every reply. Raises the error that one of them reports, or TimeoutError."""


class LedgerMigrator:
    """Migrates ledgers between the disks of one bookie. ``lock`` is held during a migration, and by every caller that
    must not see a ledger between two disks."""

    def __init__(self, frontends: FrontendCalls) -> None:
        self.lock = asyncio.Lock()
        self._frontends = frontends
        self.assignments: LedgerAssignments | None = None
        """Follows each migration; None with one front-end."""
        self.unresolved: set[int] = set()
        """Ledgers whose copy on a disk is not known to be complete, because the migration's target disk may have lost
        them."""

    # ---- migration ----------------------------------------------------------------------------------

    async def move(self, ledger: int, source: Disk, target: Disk, since: list[int]) -> Moved:
        """Steps 1 to 6. If not moved, the ledger is where it was, or in doubt until ``resolve`` can ask the target."""
        async with self.lock:
            why = await self._obstacle(ledger, source, target)
            if why:
                return Moved(moved=False, why=why)
            try:
                left = await self._leave_and_copy(ledger, source, target, since)
            except (BkboxError, TimeoutError) as error:
                return await self._stay(ledger, source, error_text(error))
            try:
                if left.known:
                    commit = CommitImport(
                        ledger=ledger, commit=True, state=left.state, payload=left.payload
                    )
                    await _call(target, commit)
                await self._ask(ledger, source, target)
            except (BkboxError, TimeoutError) as error:
                return await self._resolve_one(ledger, source, target, error_text(error))
            return Moved(moved=True)

    async def _obstacle(self, ledger: int, source: Disk, target: Disk) -> str:
        """Why the migration must not begin. Empty if nothing is: then the ledger is on the source, if anywhere."""
        for disk in (source, target):
            if not disk.in_service or disk.placement_unknown:
                return f"disk {disk.path} is out of service"
        try:
            found = await _call(source, ListMigrations())
        except (BkboxError, TimeoutError) as error:
            return f"disk {source.path} does not answer: {error_text(error)}"
        assert isinstance(found, MigrationList)
        return "it is about to leave already" if str(ledger) in found.leaving else ""

    async def _leave_and_copy(
        self, ledger: int, source: Disk, target: Disk, since: list[int]
    ) -> LedgerInfo:
        """Steps 1 to 3."""
        if self.assignments is not None:
            self.assignments.pause(ledger)
        timeout_s = _RESPONSE_TIMEOUT_S if self.assignments is None else _PAUSE_TIMEOUT_S
        await self._tell_frontends(PauseLedger(ledger=ledger), timeout_s)
        left = await _call(source, SealExport(ledger=ledger, target=target.uuid))
        assert isinstance(left, LedgerInfo)
        if left.known:
            await self._copy_remaining(ledger, source, target, since)
        return left

    async def _stay(self, ledger: int, source: Disk, why: str) -> Moved:
        """End a migration that did not reach the commit: the ledger stays. Its copy on the target may still arrive."""
        with suppress(BkboxError, TimeoutError):  # a worker that is gone is asked when it is back
            await _call(source, EndExport(ledger=ledger, migrated=False))
        await self.place(ledger, source)
        return Moved(moved=False, why=why)

    async def _copy_remaining(
        self, ledger: int, source: Disk, target: Disk, since: list[int]
    ) -> None:
        """Step 3."""
        loop = asyncio.get_running_loop()
        end_s, copied = loop.time() + _FINAL_COPY_S, 0
        fd = os.memfd_create("bkbox-move")
        try:
            read = ReadLedger(ledger=ledger, since=since)
            while True:
                found = await _call(source, read, fd)
                assert isinstance(found, EntriesRead)
                if found.bad:
                    raise LedgerNotMovedError(f"entries cannot be read: {found.bad}")
                copied += found.size
                # A host that is only slow must not keep a ledger for ever whose last entries were read at once.
                if copied > _FINAL_COPY_BYTES or (found.more and loop.time() > end_s):
                    raise LedgerNotMovedError("more was written to it than can be copied at once")
                command = ImportEntries(ledger=ledger, size=found.size)
                imported = await _call(target, command, fd)
                assert isinstance(imported, EntriesImported)
                if imported.crowded:
                    raise LedgerNotMovedError("the disk that it comes to has too much to do")
                if not found.more:
                    return
                read = ReadLedger(ledger=ledger)
        finally:
            os.close(fd)

    async def _resolve_one(self, ledger: int, source: Disk, target: Disk, why: str) -> Moved:
        """Resolve a migration whose commit response was lost, or whose later steps failed."""
        try:
            return Moved(moved=await self._ask(ledger, source, target), why=why)
        except (BkboxError, TimeoutError) as error:
            log.error("ledger %d is in doubt: %s", ledger, error or "no answer in time")
            source.placement_unknown = (
                f"ledger {ledger} may be on {target.path}, which does not answer"
            )
            return Moved(moved=False, why=source.placement_unknown)

    # ---- after whatever happened --------------------------------------------------------------------

    async def resolve(self, disks: Sequence[Disk]) -> None:
        """Resolve the migrations away from these disks: find out on which disk each leaving ledger is, and finish.
        ``lock`` is held.

        A disk for which that is not possible is ``placement_unknown``.
        """
        by_name = {disk.uuid: disk for disk in disks}
        for source in disks:
            if source.child is None or not source.child.running:
                continue
            try:
                source.placement_unknown = await self._resolve_disk(source, by_name)
            except (BkboxError, TimeoutError) as error:
                source.placement_unknown = error_text(error)
            if source.placement_unknown:
                log.error("disk %s is in doubt: %s", source.path, source.placement_unknown)

    async def _resolve_disk(self, source: Disk, by_name: Mapping[str, Disk]) -> str:
        found = await _call(source, ListMigrations())
        assert isinstance(found, MigrationList)
        for text, name in found.leaving.items():
            ledger, target = int(text), by_name.get(name)
            if target is None:
                self.unresolved.add(ledger)
            elif target.child is None or not target.child.running:
                return f"ledger {ledger} may be on {target.path}, which cannot be asked"
            else:
                await self._ask(ledger, source, target)
        return ""

    async def _ask(self, ledger: int, source: Disk, target: Disk) -> bool:
        """Ask the target whether it has the ledger, and end the migration accordingly. The question ends the arrival,
        and the disk that does not have the ledger forgets it."""
        arrived = await _call(target, CommitImport(ledger=ledger, commit=False))
        assert isinstance(arrived, Arrived)
        assigned = target if arrived.assigned else source
        if not arrived.assigned and target.may_have_lost:
            self.unresolved.add(ledger)
            return False
        await self.place(ledger, assigned)
        with suppress(
            BkboxError, TimeoutError
        ):  # it is asked for its leaving ledgers when it is back
            await _call(source, EndExport(ledger=ledger, migrated=arrived.assigned))
        return arrived.assigned

    async def clear_unresolved(self, disks: Sequence[Disk]) -> None:
        """Clear ``unresolved`` marks: those ledgers are in limbo, durably, and stay where they are. ``lock`` is
        held."""
        for disk in disks if self.unresolved else ():
            if disk.child is None or not disk.child.running:
                continue
            found = await _call(disk, ListMigrations())
            assert isinstance(found, MigrationList)
            for ledger in self.unresolved & set(map(int, found.leaving)):
                await _call(disk, EndExport(ledger=ledger, migrated=False))
                await self.place(ledger, disk)
        self.unresolved.clear()

    async def place(self, ledger: int, assigned: Disk) -> None:
        """Have the front-ends route a ledger's requests to this disk. ``lock`` is held."""
        if self.assignments is not None:
            self.assignments.place(ledger, assigned)
        await self._tell_frontends(PlaceLedger(ledger=ledger, disk=assigned.uuid))

    async def _tell_frontends(
        self, message: Message, timeout_s: float = _RESPONSE_TIMEOUT_S
    ) -> None:
        """Tell every front-end. One that is gone has no requests waiting; its next process gets lists of resolved
        ledgers, as it starts while ``lock`` is held."""
        await self._frontends.call(message, timeout_s)


async def _call(disk: Disk, message: Message, *fds: int) -> Message:
    return await disk.call(message, _RESPONSE_TIMEOUT_S, fds)
