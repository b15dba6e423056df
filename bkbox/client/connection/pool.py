"""The ways to all bookies: which request goes over which connection, in which version.

With ``protocol="v2"`` a bookie gets up to four connections, each made when it is first needed:

- adds and reads;
- fencing reads. Version 2 answers name only (opcode, ledger, entry): on a shared connection the 'no
  such entry' of a plain read, older than the fence, could pass for that of a fencing read, and a
  recovery would end the ledger before an acknowledged entry;
- batch reads: a bookie that does not know them closes the connection, with all that is outstanding;
- version 3, for what version 2 does not have: adds with deferred sync and forces, adds that ask for a
  sync, long polls, LAC writes and reads, lists of entries, sizes.

With ``protocol="v3"`` all goes over the last but batch reads, which exist in version 2 alone.

Source: PerChannelBookieClient.java, DefaultPerChannelBookieClientPool.java.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from bkbox.base.ids import NO_ENTRY, BookieId
from bkbox.client.connection.adds import Add, AddFrames, AddPacker, AddSend, Numbers, OnAnswer
from bkbox.client.connection.bookie_connection import BookieLink, RequestPriority, Resolve
from bkbox.client.connection.bookie_health import BookieHealth
from bkbox.client.connection.flush_batcher import FlushBatcher
from bkbox.client.connection.handshake import Greeting
from bkbox.client.connection.response_matcher import Reply
from bkbox.client.options import ClientOptions
from bkbox.errors import EncodingError
from bkbox.protocol.events import Answer, NoAnswer
from bkbox.wire import availability, v2, v3
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager
from bkbox.wire.v3_format import Operation

__all__ = ["Add", "BookiePool", "DiskSpace", "Listing", "Reply"]

ADD_FRAME_OVERHEAD_BYTES = {"v2": 28, "v3": 128}
"""What the frame of an add has beside the entry, at most."""


_BATCH_ENTRIES_MAX = 2**31 - 1
"""What the count of a batch read can say."""


class DiskSpace(NamedTuple):
    """Sums over the file systems of a bookie's disks."""

    total_bytes: int
    free_bytes: int


class Listing(NamedTuple):
    """Which entries of a ledger a bookie has, None where it does not say; the connection as in Reply."""

    answer: Answer
    available: Availability | None
    connection: int


class BookiePool:
    """The ways to all bookies. ``resolve`` says where one listens, None if that is not known.

    Replies are futures; cancelling one forgets the request.
    """

    def __init__(self, resolve: Resolve, options: ClientOptions, rng: random.Random) -> None:
        self._resolve = resolve
        self._options = options
        self._rng = rng
        self.turn_end = FlushBatcher()
        self.health = BookieHealth(_now, options.quarantine_failures, options.quarantine_s)
        self._links: dict[tuple[BookieId, RequestPriority], BookieLink] = {}
        self._numbers = Numbers()
        self._is_v3 = options.protocol == "v3"
        self._is_closed = False
        self._greeting: Greeting | None = None
        if options.tls != "off" or options.auth != "none":
            self._greeting = Greeting(options)

    @property
    def takes_v2_adds(self) -> bool:
        """Whether ``add_run`` is for frames of version 2, where it is not told otherwise."""
        return not self._is_v3

    def packer(
        self,
        digests: DigestManager,
        master_key: bytes,
        *,
        recovery: bool = False,
        deferred_sync: bool = False,
        synced: bool = False,
    ) -> AddPacker:
        """What makes the frames for ``add_run``."""
        numbers = self._numbers if self._is_v3 or deferred_sync or synced else None
        return AddPacker(
            digests,
            master_key,
            numbers,
            recovery=recovery,
            deferred_sync=deferred_sync,
            synced=synced,
        )

    def add_run(
        self,
        bookie: BookieId,
        frames: AddFrames,
        on_answer: OnAnswer,
        *,
        needs_v3: bool = False,
    ) -> None:
        """Send adds; ``needs_v3`` where the packer was told of deferred sync, or of adds that are to
        be synced. Those share their connection with ``force``."""
        lane = RequestPriority.V3 if self._is_v3 or needs_v3 else RequestPriority.V2
        self._link(bookie, lane).send(AddSend(frames, on_answer), self._options.add_timeout_s)

    def add(self, bookie: BookieId, add: Add) -> asyncio.Future[Reply]:
        """Send one add."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answered(_first: int, _last: int, answer: Answer, connection: int) -> None:
            if not reply.done():
                reply.set_result(Reply(answer, None, connection))

        self.add_packaged(bookie, (add,), answered)
        return reply

    def add_packaged(self, bookie: BookieId, adds: Sequence[Add], on_answer: OnAnswer) -> None:
        """Send adds of one ledger that are packaged already, by ascending entry id, as one run; those of one run are
        alike but for their entries."""
        needs_v3 = adds[0].needs_v3
        entries = tuple(add.entry_id for add in adds)
        if self._is_v3 or needs_v3:
            number = self._numbers.take(len(adds))
            keys = tuple(range(number, number + len(adds)))
            frames = [add.v3_frame(key) for add, key in zip(adds, keys, strict=True)]
        else:
            keys = entries
            frames = [add.v2_frame() for add in adds]
        offsets = [0, *accumulate(map(len, frames))]
        self.add_run(
            bookie,
            AddFrames(adds[0].ledger_id, b"".join(frames), offsets, entries, keys),
            on_answer,
            needs_v3=needs_v3,
        )

    def read(
        self, bookie: BookieId, ledger_id: int, entry_id: int, fence_key: bytes | None
    ) -> asyncio.Future[Reply]:
        """Read an entry (-1: the last one); with the master key, fence the ledger first."""
        fencing = fence_key is not None
        urgent = fencing and entry_id >= 0
        if self._is_v3:
            priority = v3.HIGH_PRIORITY if urgent else 0
            header = self._header(Operation.READ_ENTRY, priority)
            return self._ask(
                bookie, v3.ReadRequest(header, ledger_id, entry_id, fence_key, fencing=fencing)
            )
        flags = v2.FLAG_DO_FENCING * fencing | v2.FLAG_HIGH_PRIORITY * urgent
        request = v2.ReadRequest(v2.CURRENT_VERSION, flags, ledger_id, entry_id, fence_key)
        return self._link(
            bookie, RequestPriority.V2_FENCING if fencing else RequestPriority.V2
        ).request(
            (v2.OP_READ, ledger_id, entry_id),
            v2.encode_request(request),
            self._options.read_timeout_s,
        )

    def read_batch(
        self, bookie: BookieId, ledger_id: int, first: int, max_count: int, max_bytes: int
    ) -> asyncio.Future[Reply]:
        """Read consecutive entries, at most so many and, beyond one, no more than fit into a frame
        of ``max_bytes``; the response is the body of the answer, which may be short."""
        number = self._numbers.take()
        max_count = min(max_count, _BATCH_ENTRIES_MAX)
        max_bytes = min(max_bytes, self._options.frame_bytes_max)
        request = v2.BatchReadRequest(
            v2.CURRENT_VERSION, 0, ledger_id, first, number, max_count, max_bytes, None
        )
        return self._link(bookie, RequestPriority.V2_BATCH).request(
            (v2.OP_BATCH_READ, number), v2.encode_request(request), self._options.read_timeout_s
        )

    def long_poll(
        self, bookie: BookieId, ledger_id: int, previous_lac: int, wait_s: float
    ) -> asyncio.Future[Reply]:
        """Have the bookie wait for a LAC above ``previous_lac`` and answer with the entry after
        it; the response is a v3.ReadResponse."""
        request = v3.ReadRequest(
            self._header(Operation.READ_ENTRY),
            ledger_id,
            NO_ENTRY,
            piggyback=True,
            previous_lac=previous_lac,
            timeout_ms=int(wait_s * 1000),
        )
        return self._ask(bookie, request, wait_s)

    def force(self, bookie: BookieId, ledger_id: int) -> asyncio.Future[Reply]:
        """Have the bookie sync all that it answered before."""
        return self._ask(bookie, v3.ForceRequest(self._header(Operation.FORCE_LEDGER), ledger_id))

    def write_lac(
        self, bookie: BookieId, ledger_id: int, lac: int, master_key: bytes, packet: bytes
    ) -> asyncio.Future[Reply]:
        """Have the bookie keep an explicit LAC (``DigestManager.package_lac``)."""
        header = self._header(Operation.WRITE_LAC)
        return self._ask(bookie, v3.WriteLacRequest(header, ledger_id, lac, master_key, packet))

    def read_lac(
        self, bookie: BookieId, ledger_id: int, *, persisted: bool = False
    ) -> asyncio.Future[Reply]:
        """Read the explicit LAC and the last entry; the response is a v3.ReadLacResponse.

        ``persisted``: what the bookie had answered has to be on disk first, which it then says; a
        bookie that is not bkbox's answers as ever.
        """
        header = self._header(Operation.READ_LAC)
        return self._ask(bookie, v3.ReadLacRequest(header, ledger_id, persisted))

    async def list_entries(self, bookie: BookieId, ledger_id: int) -> Availability | Answer:
        """Which entries of the ledger the bookie has, or why it does not say."""
        listing = await self.listing(bookie, ledger_id)
        if listing.answer is not Code.EOK or listing.available is None:
            return listing.answer
        return listing.available

    async def listing(self, bookie: BookieId, ledger_id: int) -> Listing:
        """The same with what a bookie in limbo has, who says EUNKNOWNLEDGERSTATE of the rest."""
        header = self._header(Operation.GET_LIST_OF_ENTRIES_OF_LEDGER)
        reply = await self._ask(bookie, v3.ListEntriesRequest(header, ledger_id))
        found = reply.response
        if not isinstance(found, v3.ListEntriesResponse) or (
            found.availability is None and reply.answer is not Code.EOK
        ):
            return Listing(reply.answer, None, reply.connection)
        try:
            listed = availability.decode(found.availability or b"")
        except EncodingError:
            return Listing(NoAnswer.NOT_UNDERSTOOD, None, reply.connection)
        return Listing(reply.answer, listed, reply.connection)

    async def bookie_info(self, bookie: BookieId) -> DiskSpace | Answer:
        """How large the bookie's disks are and what is free, or why it does not say."""
        request = v3.BookieInfoRequest(self._header(Operation.GET_BOOKIE_INFO))
        reply = await self._ask(bookie, request)
        match reply:
            case Reply(
                Code.EOK, response=v3.BookieInfoResponse(total_bytes=total, free_bytes=free)
            ):
                if total is None or free is None:
                    return NoAnswer.NOT_UNDERSTOOD
                return DiskSpace(total, free)
        return reply.answer

    def suspects(self) -> frozenset[BookieId]:
        """Bookies in quarantine, and those that could not be reached a moment ago, except for batch
        reads: one that does not know them drops the connection and is well."""
        return self.health.quarantined() | frozenset(
            bookie
            for (bookie, lane), link in self._links.items()
            if lane is not RequestPriority.V2_BATCH and link.suspect
        )

    async def close(self) -> None:
        """Close all connections; what is outstanding on them is answered CONNECTION_LOST."""
        self._is_closed = True
        for link in tuple(self._links.values()):
            await link.close()

    # ---- shared ---------------------------------------------------------------------------------

    def _header(self, operation: Operation, priority: int = 0) -> v3.Header:
        return v3.Header(operation, self._numbers.take(), priority)

    def _ask(
        self, bookie: BookieId, request: v3.Request, wait_s: float = 0.0
    ) -> asyncio.Future[Reply]:
        header = request.header
        return self._link(bookie, RequestPriority.V3).request(
            (header.operation, header.txn_id),
            v3.encode_request(request),
            wait_s + self._options.read_timeout_s,
        )

    def _link(self, bookie: BookieId, lane: RequestPriority) -> BookieLink:
        link = self._links.get((bookie, lane))
        if link is None:
            link = BookieLink(
                bookie,
                lane,
                self._resolve,
                self._options,
                self._rng,
                self.turn_end,
                self._greeting,
            )
            self._links[bookie, lane] = link
            if self._is_closed:
                link.refuse()
        return link


def _now() -> float:
    return asyncio.get_running_loop().time()
