"""The copy engine of repair: reads the entries of one ledger from its bookies, and adds them to target bookies.

The bookie that the job runs on is a target like any other. Entries are sent on with the bytes that the writer made, as
recovery adds. A window bounds the bytes in flight, so that the network is busy whatever the size of entries. The first
group goes alone: it shows how large entries are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from bkbox.base.ids import BookieId
from bkbox.jobs.context import JobContext
from bkbox.protocol.events import RequestStatus
from bkbox.protocol.rereplication import Transfer
from bkbox.repair.copy.byte_semaphore import ByteWindow
from bkbox.repair.copy.entry_batches import (
    BATCH_BYTES,
    FIRST_ENTRIES,
    EntryBatch,
    batch_bytes,
    batch_entries,
    round_robin,
    store,
)
from bkbox.repair.copy.entry_source import EntrySource, ReadFailure

_GROUP_ENTRIES = 64
_FIRST_GUESS_BYTES = 64 << 10
"""Assumed size of an entry, in bytes, before one was seen."""

_ENTRY_OVERHEAD_BYTES = 4_096
"""Overhead, in bytes, of an entry in flight: it bounds how many small ones wait in a bookie's queue."""


class Failures(Protocol):
    """Decides about entries that cannot be copied: a method that raises ends the copy, otherwise it goes on."""

    def unread(self, entry: int, failure: ReadFailure) -> None:
        """No bookie returned the entry."""

    def refused(self, target: BookieId, refusals: Mapping[int, RequestStatus]) -> None:
        """A target did not store these entries."""


class CopyGroup(NamedTuple):
    """Entries that go to the same bookies together: a run, or scattered ones, ascending."""

    entries: range | list[int]
    targets: tuple[BookieId, ...]


class CopyEngine:
    """Copies entries of one ledger. ``holders``: the bookies that should have an entry, in the order to ask them;
    ``run_entries``: the most entries of a group; ``local``: the target whose adds are charged to the disks' rate
    limit, those to other bookies are charged to the network's.
    """

    def __init__(
        self,
        source: EntrySource,
        holders: Callable[[int], Iterable[BookieId]],
        failures: Failures,
        work: JobContext,
        window: ByteWindow,
        *,
        run_entries: int,
        local: BookieId | None = None,
    ) -> None:
        self._source = source
        self._holders = holders
        self._failures = failures
        self._work = work
        self._window = window
        self._run_entries = run_entries
        self._local = local
        self._largest = _FIRST_GUESS_BYTES
        self._was_seen = False
        self._has_started = False

    async def copy(self, needed: Iterable[Transfer]) -> None:
        """Copy everything, or raise the first error. Raises JobCancelledError, and what ``failures`` raises."""
        in_flight: dict[asyncio.Task[None], int] = {}
        errors: list[BaseException] = []

        def ended(task: asyncio.Task[None]) -> None:
            # The window is given back here: a task that is cancelled may never have started.
            self._window.release(in_flight.pop(task))
            if not task.cancelled() and (error := task.exception()) is not None:
                errors.append(error)

        try:
            for group in self._groups(needed):
                size = self._window_bytes(group)
                await self._window.acquire(size, self._work.allowance())
                if errors:
                    self._window.release(size)
                    break
                task = asyncio.ensure_future(self._copy_group(group))
                in_flight[task] = size
                task.add_done_callback(ended)
                if not self._has_started:
                    await asyncio.wait({task})
                    self._has_started = True
            if in_flight and not errors:
                await asyncio.wait(set(in_flight), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            left = set(in_flight)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if errors:
            raise errors[0]

    # ---- groups ---------------------------------------------------------------------------------

    def _groups(self, needed: Iterable[Transfer]) -> Iterator[CopyGroup]:
        """Cut long runs, and combine single entries for the same bookies."""
        waiting: dict[tuple[BookieId, ...], list[int]] = {}
        for entries, targets in needed:
            if len(entries) > 1:
                while entries:
                    count = self._most_entries()
                    yield CopyGroup(entries[:count], targets)
                    entries = entries[count:]
                continue
            group = waiting.setdefault(targets, [])
            group.append(entries.start)
            if len(group) >= self._most_scattered():
                yield CopyGroup(waiting.pop(targets), targets)
        for targets, group in waiting.items():
            yield CopyGroup(group, targets)

    def _most_entries(self) -> int:
        most = self._run_entries if self._has_started else min(FIRST_ENTRIES, self._run_entries)
        return batch_entries(self._work, self._largest, most)

    def _most_scattered(self) -> int:
        """They are read all at once, not batch by batch: no more than a batch has."""
        in_a_batch = max(1, BATCH_BYTES // self._entry_bytes())
        return min(self._most_entries(), _GROUP_ENTRIES, in_a_batch)

    def _window_bytes(self, group: CopyGroup) -> int:
        """Estimated bytes that a group has in flight; of a run that is one batch at a time."""
        size = len(group.entries) * self._entry_bytes()
        if isinstance(group.entries, range):
            return min(size, max(BATCH_BYTES, self._entry_bytes()))
        return size

    def _entry_bytes(self) -> int:
        return self._largest + _ENTRY_OVERHEAD_BYTES

    # ---- one group ------------------------------------------------------------------------------

    async def _copy_group(self, group: CopyGroup) -> None:
        entries, targets = group
        while entries:
            if isinstance(entries, range):
                candidates = self._candidates(entries.start, targets)
                size = batch_bytes(self._work)
                found = await self._source.read_run(candidates, entries, size)
            else:
                found = await self._source.read_each(
                    {entry: self._candidates(entry, targets) for entry in entries}
                )
            for entry, failure in found.failed.items():
                self._failures.unread(entry, failure)
            if found.batch is not None:
                await self._store(found.batch, targets)
            entries = entries[found.finished :]

    def _candidates(self, entry: int, targets: Sequence[BookieId]) -> list[BookieId]:
        return self._source.order(each for each in self._holders(entry) if each not in targets)

    async def _store(self, batch: EntryBatch, targets: Sequence[BookieId]) -> None:
        self._largest = max(batch.largest, self._largest) if self._was_seen else batch.largest
        self._was_seen = True
        disk = targets.count(self._local) if self._local is not None else 0
        network = 1 + len(targets) - disk
        async for part in round_robin(batch, self._work, disk=disk, network=network):
            refusals = await asyncio.gather(
                *(store(self._source.pool, each, part) for each in targets)
            )
            stored = len(part.entries) * len(targets)
            for target, refused in zip(targets, refusals, strict=True):
                if refused:
                    self._failures.refused(target, refused)
                    stored -= len(refused)
            self._work.add_progress(entries=stored, size=part.size * stored // len(part.entries))
