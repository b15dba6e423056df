"""The collection job: removes ledgers that are deleted, or that this bookie is not to hold any more.

A ledger on this bookie is collected only if one of these is seen twice, ``gc_confirm_s`` apart:

- it was deleted: the list of all ledgers of the cluster, requested after the ledgers of this bookie were listed, does
  not name it, and a linearizable read says that there is no such ledger;
- it is closed, no ensemble names this bookie, and it is not marked for re-replication. It may be in limbo: a ledger
  on a suspect disk that the metadata does not assign to this bookie leaves limbo by being collected.

Any error of the metadata store ends the run before anything was done. So does a list without a single ledger while
there is one, and a store of another cluster.

Then a ledger goes into the trash: it is fenced for good, and all its entries are still there. A ledger in the trash
that the metadata names again, or to which a recovery add comes, is restored. After ``gc_trash_s``, and the same
proofs in another scan, its entries are removed. The deletion is remembered for ``gc_remember_s``, also across
restarts: a writer that goes on gets the error "fenced". The space is freed when the segments are compacted.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bkbox.base.ids import LedgerId
from bkbox.base.text import counted
from bkbox.errors import MetadataError, NoSuchLedgerError
from bkbox.ipc.async_channel import AsyncChannel
from bkbox.ipc.messages.disk import ListLedgers
from bkbox.ipc.messages.items import DELETED_ITEM, LEDGER_ID_ITEM, LEDGER_ITEM
from bkbox.ipc.messages.message import Page
from bkbox.ipc.messages.space import Changed, ChangeLedgers, GetSpace, ListDeleted, Space
from bkbox.jobs.context import JobContext
from bkbox.repair.context import Environment
from bkbox.repair.space.compaction import compact
from bkbox.repair.space.segment_calls import ask
from bkbox.wire.metadata.ledger import LedgerMetadata, LedgerState

log = logging.getLogger(__name__)

_CHANGE_AT_ONCE = 256
_POLL_INTERVAL_S = 0.5


@dataclass(slots=True)
class _Disk:
    """The ledgers of one disk: all of them, ascending; the deleted ones, each with the time of its deletion (ms) and
    whether its entries are removed.
    """

    channel: AsyncChannel
    ledgers: array[int] = field(default_factory=lambda: array("Q"))
    trash: dict[int, int] = field(default_factory=dict)
    emptied: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Scan:
    """The result of one scan: ledgers that are gone (deleted, or not for this bookie any more), and ledgers in the
    trash, or emptied, that are needed again.
    """

    gone: set[int] = field(default_factory=set)
    needed: set[int] = field(default_factory=set)


async def collect(work: JobContext, environment: Environment, arguments: dict[str, str]) -> None:
    """Collect ledgers. ``dry_run``: only count. ``all``: check for every ledger whether this bookie is still to hold
    it. ``empty_trash``: do not wait for ``gc_trash_s``. ``compact``: free the space afterwards.
    """
    order = environment.order
    for again in range(1 + ("empty_trash" in arguments)):
        run = _Run(work, environment, everything="all" in arguments or again > 0)
        await run.list_disks()
        first = await run.scan(None)
        work.count("ledgers_gone", len(first.gone) if not again else 0)
        if "dry_run" in arguments:
            return
        if first.gone or first.needed:
            await _pause(work, order.gc_confirm_s)
            second = await run.scan(first.gone | first.needed)
            trash_s = 0.0 if "empty_trash" in arguments else order.gc_trash_s
            await run.apply(_Scan(first.gone & second.gone, first.needed & second.needed), trash_s)
        await run.forget_old()
    if "compact" in arguments:
        await compact(work, environment, {})


async def _pause(work: JobContext, seconds: float) -> None:
    work.set_step(f"looking again in {seconds:.0f} s")
    while seconds > 0:
        await work.checkpoint()
        await asyncio.sleep(min(seconds, _POLL_INTERVAL_S))
        seconds -= _POLL_INTERVAL_S


class _Run:
    """One run over all disks. Invariant: the list of local ledgers is older than every read from the metadata store."""

    def __init__(self, work: JobContext, environment: Environment, *, everything: bool) -> None:
        self._work = work
        self._environment = environment
        self._everything = everything
        self._disks: list[_Disk] = []

    # ---- what is here -------------------------------------------------------------------------------

    async def list_disks(self) -> None:
        """List the ledgers of every disk. MetadataError where a disk is of another cluster than the metadata store."""
        self._work.set_step("listing the ledgers that are here")
        instance = await self._environment.store.instance_id()
        for name, channel in self._environment.disks.items():
            if channel.closed:
                continue
            values = (await ask(channel, GetSpace(), Space)).values
            if values["instance_id"] != instance:
                raise MetadataError(
                    f"disk {name} belongs to the cluster {values['instance_id']}, and the metadata store is that of "
                    f"{instance}: nothing is deleted; look at `metadata` in the configuration"
                )
            disk = _Disk(channel)
            await self._list(disk)
            self._disks.append(disk)

    async def _list(self, disk: _Disk) -> None:
        more = True
        while more:
            await self._work.checkpoint()
            after = disk.ledgers[-1] if disk.ledgers else -1
            page = await ask(disk.channel, ListLedgers(after=after), Page)
            for ledger, _flags in LEDGER_ITEM.iter_unpack(page.payload):
                disk.ledgers.append(ledger)
            more = page.more
        after, more = -1, True
        while more:
            page = await ask(disk.channel, ListDeleted(after=after), Page)
            for ledger, emptied, since_ms in DELETED_ITEM.iter_unpack(page.payload):
                (disk.emptied if emptied else disk.trash)[ledger] = since_ms
                after = ledger
            more = page.more

    # ---- what the metadata says ---------------------------------------------------------------------

    async def scan(self, only: set[int] | None) -> _Scan:
        """Scan the metadata. ``only``: ignore all other ledgers. MetadataError: no result is possible."""
        work, store = self._work, self._environment.store
        work.set_step("listing all ledgers of the cluster")
        listed: list[int] = []
        unlisted: list[int] = []
        total = 0
        here = self._here(only)
        ahead = next(here, None)
        async for page in store.ledger_ranges():
            await work.checkpoint(metadata_calls=1)
            total += len(page)
            for ledger in page:
                while ahead is not None and ahead < ledger:
                    unlisted.append(ahead)
                    ahead = next(here, None)
                if ahead == ledger:
                    listed.append(ledger)
                    ahead = next(here, None)
        while ahead is not None:
            unlisted.append(ahead)
            ahead = next(here, None)
        found = _Scan()
        await self._find_deleted(unlisted, found, nothing_listed=total == 0)
        await self._find_strays(listed, found, everything=only is not None or self._everything)
        return found

    def _here(self, only: set[int] | None) -> Iterator[int]:
        """The ledgers on this bookie, ascending, each once."""
        ledgers: Iterable[int] = sorted({each for disk in self._disks for each in disk.ledgers})
        return iter(ledgers if only is None else sorted(only))

    def _of(self, name: str) -> dict[int, int]:
        return {ledger: ms for disk in self._disks for ledger, ms in getattr(disk, name).items()}

    async def _find_deleted(
        self, unlisted: list[int], found: _Scan, *, nothing_listed: bool
    ) -> None:
        emptied = self._of("emptied")
        to_read = [ledger for ledger in unlisted if ledger not in emptied]
        self._work.set_step(
            f"reading the metadata of {counted(len(to_read), 'ledger', 'that are')} in no list"
        )
        exists = []
        for ledger in to_read:
            if await self._read(ledger) is None:
                found.gone.add(ledger)
            else:
                exists.append(ledger)
        if nothing_listed and exists:
            raise MetadataError(
                f"the metadata store lists no ledger at all, and has ledger {exists[0]}: its list is wrong, and "
                "nothing is deleted"
            )
        if nothing_listed and to_read:
            log.warning(
                "the metadata store has none of the %d ledgers that are here, and no others",
                len(to_read),
            )

    async def _find_strays(self, listed: list[int], found: _Scan, *, everything: bool) -> None:
        """Existing ledgers that this bookie is not to hold any more, and deleted ones that it is to hold after all."""
        trash, emptied = self._of("trash"), self._of("emptied")
        chosen = [
            each
            for each in listed
            if each in trash or each in emptied or everything or self._is_due(each)
        ]
        if not chosen:
            return
        self._work.set_step(f"reading the metadata of {counted(len(chosen), 'ledger')}")
        marked = await self._environment.store.underreplicated()
        for ledger in chosen:
            metadata = await self._read(ledger)
            if metadata is None:
                continue  # it was deleted a moment ago: the next run sees that
            named = self._environment.me in metadata.bookies()
            stray = metadata.state is LedgerState.CLOSED and not named and ledger not in marked
            if ledger in emptied:
                if named:
                    found.needed.add(ledger)
            elif stray:
                found.gone.add(ledger)
            elif ledger in trash:
                found.needed.add(ledger)

    def _is_due(self, ledger: int) -> bool:
        """True if a ledger is checked in this run: each once in ``gc_overreplicated_s``."""
        order = self._environment.order
        if order.gc_overreplicated_s <= 0:
            return False
        runs = max(1, round(order.gc_overreplicated_s / max(order.gc_interval_s, 1.0)))
        run = int(self._environment.wall_ms() / 1000 / max(order.gc_interval_s, 1.0))
        return ledger % runs == run % runs

    async def _read(self, ledger: int) -> LedgerMetadata | None:
        await self._work.checkpoint(metadata_calls=1)
        try:
            return (
                await self._environment.store.read_ledger(LedgerId(ledger), linearizable=True)
            ).value
        except NoSuchLedgerError:
            return None

    # ---- what is done -------------------------------------------------------------------------------

    async def apply(self, found: _Scan, trash_s: float) -> None:
        """Act on what was seen twice. Whatever ``trash_s`` is, a ledger goes through the trash first."""
        now_ms = self._environment.wall_ms()
        for disk in self._disks:
            deleted = disk.trash.keys() | disk.emptied.keys()
            ripe = {each for each, ms in disk.trash.items() if now_ms - ms >= trash_s * 1000}
            here = set(disk.ledgers)
            await self._change(disk, "restore", found.needed & deleted)
            await self._change(disk, "empty", found.gone & ripe)
            await self._change(disk, "trash", (found.gone & here) - deleted)

    async def forget_old(self) -> None:
        """Delete the records of ledgers that were deleted more than ``gc_remember_s`` ago."""
        age_ms = self._environment.order.gc_remember_s * 1000
        now_ms = self._environment.wall_ms()
        for disk in self._disks:
            old = {ledger for ledger, ms in disk.emptied.items() if now_ms - ms >= age_ms}
            await self._change(disk, "forget", old)

    async def _change(self, disk: _Disk, action: str, ledgers: set[int]) -> None:
        chosen = sorted(ledgers)
        for start in range(0, len(chosen), _CHANGE_AT_ONCE):
            some = chosen[start : start + _CHANGE_AT_ONCE]
            await self._work.checkpoint(disk_bytes=64 * len(some))
            payload = b"".join(LEDGER_ID_ITEM.pack(ledger) for ledger in some)
            call = ChangeLedgers(action=action, now_ms=self._environment.wall_ms(), payload=payload)
            done = (await ask(disk.channel, call, Changed)).ledgers
            self._work.add_progress(ledgers=done)
            self._work.count(f"ledgers_{action}", done)
            log.warning("%s: %d ledgers, the first is %d", action, done, some[0])
