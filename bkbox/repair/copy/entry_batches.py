"""Batches of entries in flight from one bookie to others, with the bytes that their writer made.

A batch that a bookie returned is checked and turned into frames of recovery adds by the kernel, without an object for
each entry. Entries that were read one by one, or that the target has to sync, go as single adds.

A run is as long as suits the network. It is sent in parts, as the job's rate limit allows (``round_robin``), so that a
pause, a cancel and another rate take effect within a second also for entries that were read already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from bkbox.base.backoff import backoff_s
from bkbox.base.ids import BookieId
from bkbox.client.connection.adds import AddFrames, OnAddResponse
from bkbox.client.connection.pool import ADD_FRAME_OVERHEAD_BYTES, Add, BookiePool
from bkbox.client.connection.response_matcher import BATCH_ENTRIES_AT
from bkbox.errors import DigestError, MetadataError
from bkbox.jobs.context import JobContext
from bkbox.protocol.events import RequestStatus
from bkbox.repair.copy import entry_relay
from bkbox.wire import v2
from bkbox.wire.codes import Code
from bkbox.wire.digest import IN_KERNEL, DigestManager, master_key
from bkbox.wire.metadata.ledger import LedgerMetadata

BATCH_BYTES = 1 << 20
"""Bytes requested at once, where nothing bounds the rate."""

FIRST_ENTRIES = 4
"""Entries that are sent first, alone. They show how large entries are; and a worker that has accepted some entries of
a ledger accepts those that follow on its fast path (bookie/dispatch.py).
"""

_TRIES_WHEN_CROWDED = 6
_CROWDED_PAUSE_S = 0.2
"""The first wait for an overloaded bookie; it doubles with each further try."""

_RECOVERY = v2.FLAG_RECOVERY_ADD | v2.FLAG_HIGH_PRIORITY


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Ascending entries with the adds to send for them: ``frames``, or else ``adds``. ``size``: their bytes."""

    entries: Sequence[int]
    size: int
    largest: int
    frames: AddFrames | None
    adds: Sequence[Add] = ()

    def part(self, start: int, stop: int) -> EntryBatch:
        """The entries from position ``start`` to before ``stop``, at least one; not for a run that is itself a part."""
        if stop - start == len(self.entries):
            return self
        entries = self.entries[start:stop]
        if self.frames is None:
            adds = self.adds[start:stop]
            return EntryBatch(
                entries, sum(len(add.entry) for add in adds), self.largest, None, adds
            )
        frames = self.frames.of(entries)
        overhead = ADD_FRAME_OVERHEAD_BYTES["v2"] * len(entries)
        size = frames.offsets[-1] - frames.offsets[0] - overhead
        return EntryBatch(entries, size, self.largest, frames)

    def send(self, pool: BookiePool, target: BookieId, on_response: OnAddResponse) -> None:
        if self.frames is not None:
            pool.add_run(target, self.frames, on_response)
        else:
            pool.add_packaged(target, self.adds, on_response)


class AddBatchBuilder:
    """Checks entries of one ledger and builds runs from them."""

    def __init__(self, metadata: LedgerMetadata, pool: BookiePool) -> None:
        """Raises MetadataError for metadata without digest type or password: nothing could be checked."""
        if metadata.digest_type is None or metadata.password is None:
            raise MetadataError(
                f"the metadata of ledger {metadata.ledger_id} has no digest type or no password: nothing that is "
                f"copied could be checked"
            )
        self._ledger = metadata.ledger_id
        self._synced = metadata.synced
        self._key = master_key(metadata.password)
        self._digests = DigestManager(metadata.ledger_id, metadata.digest_type, metadata.password)
        self._as_frames = pool.accepts_v2_adds and not metadata.synced

    def is_right(self, data: memoryview | bytes, entry: int) -> bool:
        """True if these are the bytes of that entry, by its digest."""
        try:
            self._digests.verify(data, entry)
        except DigestError:
            return False
        return True

    def of_batch(self, body: bytes, entries: range) -> EntryBatch | None:
        """The entries of a batch read's response, up to the first that is not right; None if there are none."""
        count = self._count_right(body, entries)
        if not count:
            return None
        frames, offsets = entry_relay.add_frames(
            body, BATCH_ENTRIES_AT, count, self._key, _RECOVERY
        )
        some = entries[:count]
        overhead = ADD_FRAME_OVERHEAD_BYTES["v2"]
        largest = max(offsets[at + 1] - offsets[at] for at in range(count)) - overhead
        size = len(frames) - overhead * count
        if self._as_frames:
            return EntryBatch(
                some, size, largest, AddFrames(self._ledger, frames, offsets, some, some)
            )
        view = memoryview(frames)
        return self.of_entries(
            some, [view[offsets[at] + overhead : offsets[at + 1]] for at in range(count)]
        )

    def _count_right(self, body: bytes, entries: range) -> int:
        digests, at = self._digests, BATCH_ENTRIES_AT
        if digests.digest_type not in IN_KERNEL:
            return len(digests.verify_batch(body, at, entries.start, len(entries)))
        return entry_relay.count_right(
            body, at, self._ledger, entries.start, len(entries), digests.digest_size
        )

    def of_entries(self, entries: Sequence[int], found: Sequence[memoryview | bytes]) -> EntryBatch:
        """A run of entries that were read one by one and are right."""
        adds = [
            Add(self._ledger, entry, self._key, data, recovery=True, synced=self._synced)
            for entry, data in zip(entries, found, strict=True)
        ]
        sizes = list(map(len, found))
        return EntryBatch(entries, sum(sizes), max(sizes), None, adds)


def batch_bytes(work: JobContext) -> int:
    """Bytes to request from a bookie at once: no more than the present rate gives in a second."""
    allowance = work.allowance()
    return BATCH_BYTES if allowance is None else min(allowance, BATCH_BYTES)


def batch_entries(work: JobContext, largest: int, most: int) -> int:
    """The same in entries, at most ``most`` and at least one; ``largest``: upper bound on an entry's bytes."""
    allowance = work.allowance()
    return most if allowance is None else max(1, min(most, allowance // largest))


async def round_robin(
    run: EntryBatch, work: JobContext, *, disk: int, network: int
) -> AsyncIterator[EntryBatch]:
    """The parts of a run, each when it may be sent; ``disk`` and ``network``: how many times its bytes pass each.
    Raises JobCancelledError.
    """
    done, count = 0, len(run.entries)
    while done < count:
        left = run.part(done, count).size
        given = await work.checkpoint(
            pieces=count - done, disk_bytes=disk * left, network_bytes=network * left
        )
        yield run.part(done, done + given)
        done += given


async def store(pool: BookiePool, target: BookieId, run: EntryBatch) -> dict[int, RequestStatus]:
    """Write a run to a bookie; returns its responses for the entries that it did not store. An overloaded bookie is
    given some time.
    """
    for tries in range(_TRIES_WHEN_CROWDED):
        if tries:
            await asyncio.sleep(backoff_s(tries - 1, _CROWDED_PAUSE_S))
        refused = await _send(pool, target, run)
        if Code.ETOOMANYREQUESTS not in refused.values():
            break
    return refused


async def _send(pool: BookiePool, target: BookieId, run: EntryBatch) -> dict[int, RequestStatus]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(run.entries)
    refused: dict[int, RequestStatus] = {}

    def completed(first: int, last: int, status: RequestStatus, _connection: int) -> None:
        nonlocal left
        left -= last - first + 1
        if status is not Code.EOK:
            refused.update(dict.fromkeys(run.entries[first : last + 1], status))
        if left == 0 and not done.done():
            done.set_result(None)

    run.send(pool, target, completed)
    await done
    return refused
