"""Serves the reads of one disk: entries, batches, LACs, lists of entries.

The response for a ledger in limbo is never 'no such entry' or 'no such ledger'. An entry that the index has but whose
record cannot be read gets EIO. Three responses differ from Java's bookie on purpose. In limbo an entry that exists is
served with EOK, without the LAC, which is not known. In limbo a request about the LAC or the whole ledger gets
EUNKNOWNLEDGERSTATE, together with the present data. An explicit LAC is EOK with or without an entry.

Source: protocol of versions 2 and 3 (READ_ENTRY, BATCH_READ_ENTRY, READ_LAC, GET_LIST_OF_ENTRIES_OF_LEDGER),
ReadEntryProcessorV3.java, LongPollReadEntryProcessorV3.java, ReadLacProcessorV3.java.

Most reads of existing entries take the fast path (bookie/read_group.py), which passes all others to this module.
Reads of entries that are not in the page cache are deferred as cold reads, so that a background thread waits for the
disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bkbox.base.ids import MAX_ID
from bkbox.base.limits import BATCH_READ_BYTES_MAX, FRAME_BYTES_MAX
from bkbox.base.logs.rate_limited import RateLimited
from bkbox.bookie.admission import ABSENT, LedgerStatus
from bkbox.bookie.lac import KnownLacs
from bkbox.bookie.ledgers import Ledgers, status_of
from bkbox.bookie.plain_responses import Request, bare, on_v2
from bkbox.bookie.read_group import ReadBatch
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import DiskError
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.entries.entry_reader import COLD, FETCHED, Range
from bkbox.wire import v2, v3
from bkbox.wire.availability import encode_folded, encode_runs
from bkbox.wire.codes import Code
from bkbox.wire.v3_fast_path import NO_LAC
from bkbox.wire.v3_format import Operation

log = logging.getLogger(__name__)

_BATCH_READ_HEAD_BYTES = 36
_BATCH_READ_ENTRY_BYTES = 4
_LIST_BYTES_MAX = FRAME_BYTES_MAX - 128
"""Space for a list of entries in its response frame, bytes."""


class ColdReads:
    """The cold reads of one group. ``batches``: connections and their batch reads."""

    __slots__ = ("batch_ranges", "batches", "fast_reads")

    def __init__(self, fast_reads: ReadBatch) -> None:
        self.fast_reads = fast_reads
        self.batches: list[tuple[int, v2.BatchReadRequest]] = []
        self.batch_ranges: list[Range] = []

    def __bool__(self) -> bool:
        return len(self.fast_reads) > 0 or bool(self.batches)

    @property
    def ranges(self) -> list[Range]:
        """The byte ranges that are not in the page cache."""
        return self.fast_reads.ranges + self.batch_ranges


class Reader:
    """Serves the reads of one disk."""

    def __init__(
        self, store: DiskStore, ledgers: Ledgers, lacs: KnownLacs, now_s: Callable[[], float]
    ) -> None:
        self._limited_log = RateLimited(log, now_s)
        self._store = store
        self._ledgers = ledgers
        self._lacs = lacs
        self._one_by_one = self.unknown = 0
        self._fetch = store.fetch()
        self.fast_reads = self._batch_of_reads()
        """Collects fast-path reads and serves them."""
        self._responders: dict[type[Request], Callable[..., bytes]] = {
            v2.ReadRequest: self._entry_v2,
            v2.BatchReadRequest: self._batch_v2,
            v3.ReadRequest: self._entry_v3,
            v3.ReadLacRequest: self._lac_v3,
            v3.ListEntriesRequest: self._list_v3,
        }

    @property
    def reads(self) -> int:
        """Entries that were requested since the start; for ``unknown`` of them the result was unknown."""
        return self._one_by_one + self.fast_reads.served

    def _batch_of_reads(self) -> ReadBatch:
        return ReadBatch(self._store.finder, self._fetch, self._fast_path_lac, self._slow_response)

    def new_cold_reads(self) -> ColdReads:
        """An empty collection of cold reads."""
        return ColdReads(self._batch_of_reads())

    def serve_cold_reads(self, cold_reads: ColdReads, out: ResponseWriter) -> None:
        """Serve cold reads; waits for the disk for data that is still not in the page cache. Raises EOFError."""
        cold_reads.fast_reads.serve(out)
        for connection, request in cold_reads.batches:
            self.put_response(out, connection, request, Code.EOK)

    def put_response(
        self,
        out: ResponseWriter,
        connection: int,
        request: Request,
        code: Code,
        cold_reads: ColdReads | None = None,
    ) -> None:
        """As ``response``, into a response slot, or deferred as a cold read (``cold_reads`` None: waits for the disk).
        Raises EOFError.
        """
        if (
            code is Code.EOK
            and isinstance(request, v2.BatchReadRequest)
            and request.version == v2.CURRENT_VERSION
            and request.entry_id >= 0
        ):
            ranges: list[Range] | None = None if cold_reads is None else []
            done = self.fast_reads.serve_batch(
                out,
                connection,
                request.ledger_id,
                request.entry_id,
                request.request_id,
                request.max_count,
                min(request.max_size, BATCH_READ_BYTES_MAX),
                ranges,
            )
            if done == COLD and cold_reads is not None and ranges is not None:
                cold_reads.batches.append((connection, request))
                cold_reads.batch_ranges += ranges
                return
            if done == FETCHED:
                return
        out.put(connection, self.response(request, code), 1)

    def response(self, request: Request, code: Code) -> bytes:
        """The response to a read that is not a long poll, admitted (EOK) or refused with ``code``."""
        return self._responders[type(request)](request) if code is Code.EOK else bare(request, code)

    # ---- entries ------------------------------------------------------------------------------------

    def entry(self, ledger: int, entry_id: int) -> tuple[Code, bytes | None]:
        """Read one entry; -1 reads the last one. In limbo an existing entry is served and the rest is unknown."""
        try:
            record = self._ledgers.record(ledger)
            target = entry_id
            if target == -1 and record is not None:
                target = self._store.last_entry_id(ledger)
            entry = (
                self._store.read_entry(ledger, target)
                if record is not None and target >= 0
                else None
            )
        except DiskError as error:
            self._limited_log.log(
                logging.ERROR,
                "entry",
                "ledger %d entry %d cannot be read: %s",
                ledger,
                entry_id,
                error,
            )
            self.unknown += 1
            return Code.EIO, None
        self._one_by_one += 1
        if entry is not None:
            return Code.EOK, entry
        code = ABSENT[status_of(record)]
        if code is Code.EUNKNOWNLEDGERSTATE:
            self.unknown += 1
        return code, None

    def _entry_v2(self, read: v2.ReadRequest) -> bytes:
        code, entry = self.entry(read.ledger_id, read.entry_id)
        return v2.encode_response(
            v2.ReadResponse(read.version, on_v2(code), read.ledger_id, read.entry_id, entry)
        )

    def _entry_v3(self, read: v3.ReadRequest) -> bytes:
        code, entry = self.entry(read.ledger_id, read.entry_id)
        lac = None if entry is None or read.fencing else self._lac_if_known(read.ledger_id)
        return v3.encode_response(
            v3.ReadResponse(read.header.txn_id, code, read.ledger_id, read.entry_id, entry, lac)
        )

    def _lac_if_known(self, ledger: int) -> int | None:
        """The known LAC, for a response that is also right without it."""
        try:
            if status_of(self._ledgers.record(ledger)) is LedgerStatus.LIMBO:
                return None
            return self._lacs.known(ledger)
        except DiskError as error:
            self._limited_log.log(
                logging.ERROR, "LAC", "the LAC of ledger %d cannot be read: %s", ledger, error
            )
            return None

    def _batch_v2(self, read: v2.BatchReadRequest) -> bytes:
        code, entries = self._batch(read)
        return v2.encode_response(
            v2.BatchReadResponse(
                read.version, on_v2(code), read.ledger_id, read.entry_id, read.request_id, entries
            )
        )

    def _batch(self, read: v2.BatchReadRequest) -> tuple[Code, tuple[bytes, ...]]:
        """Consecutive entries within the bounds of the request. Only an error on the first entry makes the response an
        error."""
        code, entry = self.entry(read.ledger_id, read.entry_id)
        if entry is None:
            return code, ()
        entries = [entry]
        limit = min(read.max_size, BATCH_READ_BYTES_MAX)
        size = _BATCH_READ_HEAD_BYTES + _BATCH_READ_ENTRY_BYTES + len(entry)
        next_id = read.entry_id + 1
        while (
            read.entry_id >= 0
            and next_id <= MAX_ID
            and (read.max_count <= 0 or len(entries) < read.max_count)
            and size < limit
        ):
            _code, entry = self.entry(read.ledger_id, next_id)
            if entry is None:
                break
            size += _BATCH_READ_ENTRY_BYTES + len(entry)
            if size > limit:
                break
            entries.append(entry)
            next_id += 1
        return Code.EOK, tuple(entries)

    # ---- fast-path reads ----------------------------------------------------------------------------

    def _slow_response(self, version: int, txn: int, ledger: int, entry: int) -> bytes:
        """The response to a fast-path read that needs the slow path: mostly 'no such entry'."""
        code = Code.EOK if ledger >= 0 and entry >= -1 else Code.EBADREQ
        if version < v3.CURRENT_VERSION:
            return self.response(v2.ReadRequest(version, 0, ledger, entry, None), code)
        header = v3.Header(Operation.READ_ENTRY, txn)
        return self.response(v3.ReadRequest(header, ledger, entry), code)

    def _fast_path_lac(self, ledger: int) -> int:
        lac = self._lac_if_known(ledger)
        return NO_LAC if lac is None else lac

    # ---- long polls -----------------------------------------------------------------------------------

    def must_wait(self, poll: v3.ReadRequest) -> bool:
        """True if a long poll must wait."""
        assert poll.previous_lac is not None
        try:
            if self._poll_refusal(poll) is not Code.EOK:
                return False
            lac = self._lacs.known(poll.ledger_id)
        except DiskError:
            return False
        return lac is None or lac <= poll.previous_lac

    def _poll_refusal(self, poll: v3.ReadRequest) -> Code:
        """The code that refuses a poll at once because no wait can help; EOK if one can. DiskError."""
        if poll.ledger_id < 0 or poll.entry_id < -1 or (poll.piggyback and poll.entry_id != -1):
            return Code.EBADREQ
        code = ABSENT[status_of(self._ledgers.record(poll.ledger_id))]
        return Code.EOK if code is Code.ENOENTRY else code

    def poll_response(self, poll: v3.ReadRequest, advanced_ms: int | None) -> bytes:
        """The response to a long poll whose wait is over.

        ``advanced_ms``: when the advance of the LAC that ended it came, ms since 1970; None if something else ended it.
        """
        assert poll.previous_lac is not None
        try:
            code = self._poll_refusal(poll)
            if code is not Code.EOK:
                return bare(poll, code)
            if not poll.piggyback:
                return self._entry_v3(poll)
            lac = self._lacs.known(poll.ledger_id)
        except DiskError as error:
            self._limited_log.log(
                logging.ERROR,
                "LAC",
                "the LAC of ledger %d cannot be read: %s",
                poll.ledger_id,
                error,
            )
            return bare(poll, Code.EIO)
        if lac is None:
            return bare(poll, Code.ENOENTRY)
        entry_id, entry = -1, None
        if lac > poll.previous_lac >= -1:
            code, entry = self.entry(poll.ledger_id, poll.previous_lac + 1)
            if code is Code.EOK:
                entry_id = poll.previous_lac + 1
            elif code is not Code.ENOENTRY:
                return bare(poll, code)
        moved = advanced_ms if lac > poll.previous_lac else None
        return v3.encode_response(
            v3.ReadResponse(
                poll.header.txn_id, Code.EOK, poll.ledger_id, entry_id, entry, lac, moved
            )
        )

    # ---- a ledger as a whole --------------------------------------------------------------------------

    def _lac_v3(self, read: v3.ReadLacRequest) -> bytes:
        return self.lac_response(read, None)

    def lac_response(self, read: v3.ReadLacRequest, durable_entry: int | None) -> bytes:
        """``durable_entry`` -1: the ledger had no entry here, or its last entry is unknown."""
        packet = None
        code, last = self.entry(read.ledger_id, -1)
        if code in (Code.EOK, Code.ENOENTRY):
            code, packet = self._explicit_lac(read.ledger_id, code)
        if code is Code.ENOLEDGER:
            code = Code.ENOENTRY  # Java's bookie does not distinguish them here
        if code is Code.EIO:
            return bare(read, code)
        record = self._ledgers.record(read.ledger_id)
        return v3.encode_response(
            v3.ReadLacResponse(
                read.header.txn_id,
                code,
                read.ledger_id,
                packet,
                last,
                durable_entry,
                None if record is None else record.fenced,
                None if record is None else record.limbo,
            )
        )

    def last_entry(self, ledger: int) -> int:
        """The last entry of a ledger, -1 if it has none or it is unknown."""
        try:
            return self._store.last_entry_id(ledger)
        except DiskError as error:
            self._limited_log.log(
                logging.ERROR,
                "last entry",
                "the last entry of ledger %d cannot be found: %s",
                ledger,
                error,
            )
            return -1

    def _explicit_lac(self, ledger: int, code: Code) -> tuple[Code, bytes | None]:
        """The explicit LAC packet; without one the code is the result of the look-up of the last entry."""
        try:
            packet = self._store.explicit_lac(ledger)
            if status_of(self._ledgers.record(ledger)) is LedgerStatus.LIMBO:
                return Code.EUNKNOWNLEDGERSTATE, packet
        except DiskError as error:
            self._limited_log.log(
                logging.ERROR, "LAC", "the LAC of ledger %d cannot be read: %s", ledger, error
            )
            return Code.EIO, None
        return (code if packet is None else Code.EOK), packet

    def _list_v3(self, request: v3.ListEntriesRequest) -> bytes:
        code, data = self.list_entries(request.ledger_id)
        if code not in (Code.EOK, Code.EUNKNOWNLEDGERSTATE):
            return bare(request, code)
        return v3.encode_response(
            v3.ListEntriesResponse(request.header.txn_id, code, request.ledger_id, data)
        )

    def list_entries(self, ledger: int) -> tuple[Code, bytes]:
        """The entries of a ledger in the encoding of AvailabilityOfEntriesOfLedger; in limbo those that exist.

        EIO if the list does not fit into a frame in either encoding.
        """
        try:
            record = self._ledgers.record(ledger)
            if record is None:
                return Code.ENOLEDGER, b""
            if record.emptied:
                return Code.ENOLEDGER, b""
            runs = self._store.entries(ledger)
        except DiskError as error:
            self._limited_log.log(
                logging.ERROR,
                "list",
                "the entries of ledger %d cannot be listed: %s",
                ledger,
                error,
            )
            return Code.EIO, b""
        data = encode_runs(runs)
        if len(data) > _LIST_BYTES_MAX:
            data = encode_folded(runs)
        if len(data) > _LIST_BYTES_MAX:
            self._limited_log.log(
                logging.ERROR,
                "long list",
                "the list of the entries of ledger %d has %d bytes",
                ledger,
                len(data),
            )
            return Code.EIO, b""
        return Code.EUNKNOWNLEDGERSTATE if record.limbo else Code.EOK, data
