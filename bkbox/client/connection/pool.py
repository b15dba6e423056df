"""The connections to all bookies: which request uses which connection, in which version.

With ``protocol="v2"`` a bookie gets up to four connections, each made when it is first needed:

- adds and reads;
- fencing reads. Version 2 responses name only (opcode, ledger, entry). On a shared connection the 'no such entry' of
  a plain read, older than the fence, could pass for that of a fencing read, and a recovery would end the ledger
  before an acknowledged entry;
- batch reads: a bookie that does not know them closes the connection, with everything outstanding on it;
- version 3, for what version 2 does not have: adds with deferred sync and forces, adds that ask for a sync, long
  polls, LAC writes and reads, lists of entries, sizes.

With ``protocol="v3"`` everything but batch reads uses the last one; batch reads exist in version 2 alone.

Source: PerChannelBookieClient.java, DefaultPerChannelBookieClientPool.java.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from bkbox.base.ids import NO_ENTRY, BookieId
from bkbox.client.connection.adds import Add, AddFrames, AddPacker, AddSend, Numbers, OnAddResponse
from bkbox.client.connection.bookie_connection import BookieLink, RequestPriority, Resolve
from bkbox.client.connection.bookie_health import BookieHealth
from bkbox.client.connection.flush_batcher import FlushBatcher
from bkbox.client.connection.handshake import ClientHandshake
from bkbox.client.connection.response_matcher import Reply
from bkbox.client.options import ClientOptions
from bkbox.errors import EncodingError
from bkbox.protocol.events import NoResponse, RequestStatus
from bkbox.wire import availability, v2, v3
from bkbox.wire.availability import Availability
from bkbox.wire.codes import Code
from bkbox.wire.digest import DigestManager
from bkbox.wire.v3_format import Operation

__all__ = ["Add", "BookiePool", "DiskSpace", "Listing", "Reply"]

ADD_FRAME_OVERHEAD_BYTES = {"v2": 28, "v3": 128}
"""Bytes of an add's frame beside the entry, at most."""


_BATCH_ENTRIES_MAX = 2**31 - 1
"""The largest count that a batch read can carry."""


class DiskSpace(NamedTuple):
    """Sums over the file systems of a bookie's disks."""

    total_bytes: int
    free_bytes: int


class Listing(NamedTuple):
    """The entries of a ledger that a bookie has, None where it does not list them; the connection as in Reply."""

    status: RequestStatus
    available: Availability | None
    connection: int


class BookiePool:
    """The connections to all bookies. ``resolve`` gives a bookie's address, None if it is unknown.

    Replies are futures; cancelling one forgets the request.
    """

    def __init__(self, resolve: Resolve, options: ClientOptions, rng: random.Random) -> None:
        self._resolve = resolve
        self._options = options
        self._rng = rng
        self.flush_batcher = FlushBatcher()
        self.health = BookieHealth(_now, options.quarantine_failures, options.quarantine_s)
        self._links: dict[tuple[BookieId, RequestPriority], BookieLink] = {}
        self._numbers = Numbers()
        self._is_v3 = options.protocol == "v3"
        self._is_closed = False
        self._greeting: ClientHandshake | None = None
        if options.tls != "off" or options.auth != "none":
            self._greeting = ClientHandshake(options)

    @property
    def accepts_v2_adds(self) -> bool:
        """True if ``add_run`` takes frames of version 2 by default."""
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
        """The packer of frames for ``add_run``."""
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
        on_response: OnAddResponse,
        *,
        needs_v3: bool = False,
    ) -> None:
        """Send adds; ``needs_v3`` if the packer was made for deferred sync, or for adds with a sync. Those share
        their connection with ``force``.
        """
        priority = RequestPriority.V3 if self._is_v3 or needs_v3 else RequestPriority.V2
        self._link(bookie, priority).send(AddSend(frames, on_response), self._options.add_timeout_s)

    def add(self, bookie: BookieId, add: Add) -> asyncio.Future[Reply]:
        """Send one add."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def completed(_first: int, _last: int, status: RequestStatus, connection: int) -> None:
            if not reply.done():
                reply.set_result(Reply(status, None, connection))

        self.add_packaged(bookie, (add,), completed)
        return reply

    def add_packaged(
        self, bookie: BookieId, adds: Sequence[Add], on_response: OnAddResponse
    ) -> None:
        """Send packaged adds of one ledger, by ascending entry id, as one batch. The adds of a batch differ only in
        their entries.
        """
        needs_v3 = adds[0].needs_v3
        entries = tuple(add.entry_id for add in adds)
        if self._is_v3 or needs_v3:
            number = self._numbers.reserve(len(adds))
            keys = tuple(range(number, number + len(adds)))
            frames = [add.v3_frame(key) for add, key in zip(adds, keys, strict=True)]
        else:
            keys = entries
            frames = [add.v2_frame() for add in adds]
        offsets = [0, *accumulate(map(len, frames))]
        self.add_run(
            bookie,
            AddFrames(adds[0].ledger_id, b"".join(frames), offsets, entries, keys),
            on_response,
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
        """Read consecutive entries, at most ``max_count`` and, beyond one, no more than fit into a frame of
        ``max_bytes``. The response is the body, which may hold fewer.
        """
        number = self._numbers.reserve()
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
        """Have the bookie wait for a LAC above ``previous_lac`` and return the entry after it; the response is a
        v3.ReadResponse.
        """
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
        """Have the bookie sync everything that it acknowledged before."""
        return self._ask(bookie, v3.ForceRequest(self._header(Operation.FORCE_LEDGER), ledger_id))

    def write_lac(
        self, bookie: BookieId, ledger_id: int, lac: int, master_key: bytes, packet: bytes
    ) -> asyncio.Future[Reply]:
        """Store an explicit LAC on the bookie (``DigestManager.package_lac``)."""
        header = self._header(Operation.WRITE_LAC)
        return self._ask(bookie, v3.WriteLacRequest(header, ledger_id, lac, master_key, packet))

    def read_lac(
        self, bookie: BookieId, ledger_id: int, *, persisted: bool = False
    ) -> asyncio.Future[Reply]:
        """Read the explicit LAC and the last entry; the response is a v3.ReadLacResponse.

        ``persisted``: everything that the bookie acknowledged has to be on disk first, which a bkbox bookie then
        confirms. Java's bookie ignores it.
        """
        header = self._header(Operation.READ_LAC)
        return self._ask(bookie, v3.ReadLacRequest(header, ledger_id, persisted))

    async def list_entries(self, bookie: BookieId, ledger_id: int) -> Availability | RequestStatus:
        """The entries of the ledger that the bookie has, or its reason not to list them."""
        listing = await self.listing(bookie, ledger_id)
        if listing.status is not Code.EOK or listing.available is None:
            return listing.status
        return listing.available

    async def listing(self, bookie: BookieId, ledger_id: int) -> Listing:
        """The same, with the entries of a bookie in limbo, which responds EUNKNOWNLEDGERSTATE for the rest."""
        header = self._header(Operation.GET_LIST_OF_ENTRIES_OF_LEDGER)
        reply = await self._ask(bookie, v3.ListEntriesRequest(header, ledger_id))
        found = reply.response
        if not isinstance(found, v3.ListEntriesResponse) or (
            found.availability is None and reply.status is not Code.EOK
        ):
            return Listing(reply.status, None, reply.connection)
        try:
            listed = availability.decode(found.availability or b"")
        except EncodingError:
            return Listing(NoResponse.NOT_UNDERSTOOD, None, reply.connection)
        return Listing(reply.status, listed, reply.connection)

    async def bookie_info(self, bookie: BookieId) -> DiskSpace | RequestStatus:
        """The size of the bookie's disks and their free space, or its reason not to report them."""
        request = v3.BookieInfoRequest(self._header(Operation.GET_BOOKIE_INFO))
        reply = await self._ask(bookie, request)
        match reply:
            case Reply(
                Code.EOK, response=v3.BookieInfoResponse(total_bytes=total, free_bytes=free)
            ):
                if total is None or free is None:
                    return NoResponse.NOT_UNDERSTOOD
                return DiskSpace(total, free)
        return reply.status

    def suspects(self) -> frozenset[BookieId]:
        """Bookies in quarantine, and those that could not be reached recently, except for batch reads: a bookie that
        does not know batch reads drops the connection and is healthy.
        """
        return self.health.quarantined() | frozenset(
            bookie
            for (bookie, priority), link in self._links.items()
            if priority is not RequestPriority.V2_BATCH and link.suspect
        )

    async def close(self) -> None:
        """Close all connections; requests outstanding on them end with CONNECTION_LOST."""
        self._is_closed = True
        for link in tuple(self._links.values()):
            await link.close()

    # ---- shared ---------------------------------------------------------------------------------

    def _header(self, operation: Operation, priority: int = 0) -> v3.Header:
        return v3.Header(operation, self._numbers.reserve(), priority)

    def _ask(
        self, bookie: BookieId, request: v3.Request, wait_s: float = 0.0
    ) -> asyncio.Future[Reply]:
        header = request.header
        return self._link(bookie, RequestPriority.V3).request(
            (header.operation, header.txn_id),
            v3.encode_request(request),
            wait_s + self._options.read_timeout_s,
        )

    def _link(self, bookie: BookieId, priority: RequestPriority) -> BookieLink:
        link = self._links.get((bookie, priority))
        if link is None:
            link = BookieLink(
                bookie,
                priority,
                self._resolve,
                self._options,
                self._rng,
                self.flush_batcher,
                self._greeting,
            )
            self._links[bookie, priority] = link
            if self._is_closed:
                link.refuse()
        return link


def _now() -> float:
    return asyncio.get_running_loop().time()
