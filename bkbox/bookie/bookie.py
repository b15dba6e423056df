"""What the bookie of one disk answers: add, recovery add, read, fencing read, batch read, list of entries.

Synchronous and deterministic: a batch of requests in, answers out, all effects through the store.

A batch is carried out in three steps, and the order is what makes the answers true:

1. Adds and fences, in the order of arrival, are admitted or refused (admission.py) against the state as it will be
   once the batch is written. Nothing is answered yet.
2. Everything admitted goes to the store in one write: first the states of ledgers (creation, fence), then the
   entries grouped by ledger, so that consecutive ones become one run of the index. The store makes durable what
   ``ack_after`` demands, and a state always. If the write fails, everything of step 1 is answered with the failure
   and the states are as before.
3. Reads are served. They come last, so that a fencing read sees every add that this batch accepted before the
   fence: an entry is never both acknowledged and denied to a recovery.

No answer is 'no such entry' or 'no such ledger' while the ledger is in limbo, and none is when the index has the entry
but its record cannot be read: that is EIO.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bkbox.bookie.admission import ABSENT, Request, Standing, admit
from bkbox.errors import DiskError, DiskFullError
from bkbox.limits import BATCH_READ_BYTES_MAX, RECORD_BODY_BYTES_MAX
from bkbox.storage.disk import DiskStore
from bkbox.storage.records import LedgerRecord, Record, entry_record, ledger_record
from bkbox.wire import v2
from bkbox.wire.availability import encode_runs
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies

log = logging.getLogger(__name__)

_BATCH_READ_HEAD_BYTES = 36
_BATCH_READ_ENTRY_BYTES = 4
_CACHED_LEDGERS = 100_000
_ANSWER_BYTES = 1 << 20
"""Answers to reads that are held at once; a batch may ask for far more than fits into memory."""

DISK_FULL = "disk full"
DISK_USAGE = "disk usage"
DISK_FAILED = "disk failed"

Incoming = tuple[int, int, memoryview]
"""Connection, number of frames, the frames."""


def standing(record: LedgerRecord | None) -> Standing:
    if record is None:
        return Standing.UNKNOWN
    if record.limbo:
        return Standing.LIMBO
    return Standing.FENCED if record.fenced else Standing.OPEN


@dataclass(slots=True)
class _Batch:
    """One batch on its way through the three steps."""

    states: dict[int, LedgerRecord] = field(default_factory=dict)
    entries: dict[int, list[memoryview]] = field(default_factory=dict)
    adds: list[tuple[int, v2.AddRequest, Code]] = field(default_factory=list)
    reads: list[tuple[int, v2.ReadRequest | v2.BatchReadRequest, Code]] = field(
        default_factory=list
    )
    answers: dict[int, list[bytes]] = field(default_factory=dict)

    def answer(self, connection: int, frame: bytes) -> None:
        self.answers.setdefault(connection, []).append(frame)

    def taken(self) -> Iterator[tuple[int, list[bytes]]]:
        answers, self.answers = self.answers, {}
        yield from answers.items()


class Bookie:
    """The ledgers of one disk."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._cache: OrderedDict[int, LedgerRecord] = OrderedDict()
        self.read_only: set[str] = set()
        """Named reasons for which ordinary adds are refused; empty: the disk is writable."""
        self.counts = {"adds": 0, "reads": 0, "unknown": 0}
        self.ledgers = self.limbo_ledgers = 0
        for _ledger, record in store.ledgers():
            self.ledgers += 1
            self.limbo_ledgers += record.limbo

    # ---- a batch ------------------------------------------------------------------------------------

    def process(self, incoming: Iterable[Incoming]) -> Iterator[tuple[int, list[bytes]]]:
        """Carry out a batch; (connection, answer frames), a connection may come more than once.

        Frames have been found whole by the front-end. Everything is written before the first answer comes; reads
        are served as their answers are taken.
        """
        batch = _Batch()
        for connection, _count, frames in incoming:
            for body in bodies(frames, len(frames)):
                self._admit(batch, connection, v2.decode_request(body))
        failure = self._write(batch)
        for connection, add, code in batch.adds:
            answer = failure if failure is not None and code is Code.EOK else code
            frame = v2.encode_response(
                v2.AddResponse(add.version, answer, add.ledger_id, add.entry_id)
            )
            batch.answer(connection, frame)
        held = 0
        for connection, read, code in batch.reads:
            if read.fencing and failure is not None and code is Code.EOK:
                code = Code.EIO
            frame = v2.encode_response(self._serve(read, code))
            batch.answer(connection, frame)
            held += len(frame)
            if held >= _ANSWER_BYTES:
                yield from batch.taken()
                held = 0
        yield from batch.taken()

    # ---- step 1 -------------------------------------------------------------------------------------

    def _admit(
        self, batch: _Batch, connection: int, request: v2.Request | v2.BadVersion | v2.BadAdd
    ) -> None:
        if isinstance(request, v2.AddRequest):
            batch.adds.append((connection, request, self._admit_add(batch, request)))
        elif isinstance(request, v2.ReadRequest | v2.BatchReadRequest):
            batch.reads.append((connection, request, self._admit_read(batch, request)))
        else:
            code = Code.EBADVERSION if isinstance(request, v2.BadVersion) else Code.EBADREQ
            refused = v2.refusal(request, code)
            if refused is not None:
                batch.answer(connection, v2.encode_response(refused))

    def _admit_add(self, batch: _Batch, add: v2.AddRequest) -> Code:
        ledger = add.ledger_id
        if ledger < 0 or add.entry_id < 0:
            return Code.EBADREQ
        if not self._takes(add):
            return Code.EREADONLY
        record = self._record(batch, ledger)
        kind = Request.RECOVERY_ADD if add.recovery else Request.ADD
        verdict = admit(
            standing(record), kind, record.master_key if record else None, add.master_key
        )
        if verdict.code is Code.EOK:
            self._keep_key(batch, ledger, record, add.master_key)
            entry = add.entry
            assert isinstance(entry, memoryview)
            batch.entries.setdefault(ledger, []).append(entry)
        return verdict.code

    def _takes(self, add: v2.AddRequest) -> bool:
        """A disk that is only over its usage bound still takes what recovery and repair write."""
        if not self.read_only:
            return True
        return bool(add.flags & v2.FLAG_HIGH_PRIORITY) and self.read_only <= {DISK_USAGE}

    def _admit_read(self, batch: _Batch, read: v2.ReadRequest | v2.BatchReadRequest) -> Code:
        if read.ledger_id < 0 or read.entry_id < -1:
            return Code.EBADREQ
        if not read.fencing:
            return Code.EOK
        if read.master_key is None:
            return Code.EUA
        record = self._record(batch, read.ledger_id)
        stored = record.master_key if record else None
        verdict = admit(standing(record), Request.FENCE, stored, read.master_key)
        if verdict.code is Code.EOK and (record is None or not record.fenced or stored is None):
            batch.states[read.ledger_id] = LedgerRecord(
                master_key=read.master_key, fenced=True, limbo=record.limbo if record else False
            )
        return verdict.code

    def _keep_key(
        self, batch: _Batch, ledger: int, record: LedgerRecord | None, key: bytes
    ) -> None:
        """Create the ledger with this key, or give its key to a ledger that was rebuilt without one."""
        if record is None:
            batch.states[ledger] = LedgerRecord(master_key=key, fenced=False, limbo=False)
        elif record.master_key is None:
            batch.states[ledger] = LedgerRecord(
                master_key=key, fenced=record.fenced, limbo=record.limbo
            )

    def _record(self, batch: _Batch, ledger: int) -> LedgerRecord | None:
        """The ledger's state as it will be once the batch is written."""
        staged = batch.states.get(ledger)
        return staged if staged is not None else self.record(ledger)

    def record(self, ledger: int) -> LedgerRecord | None:
        """The ledger's state as it is written."""
        cached = self._cache.get(ledger)
        if cached is not None:
            self._cache.move_to_end(ledger)
            return cached
        record = self._store.ledger_state(ledger)
        if record is not None:
            self._remember(ledger, record)
        return record

    def _remember(self, ledger: int, record: LedgerRecord) -> None:
        self._cache[ledger] = record
        self._cache.move_to_end(ledger)
        if len(self._cache) > _CACHED_LEDGERS:
            self._cache.popitem(last=False)

    # ---- step 2 -------------------------------------------------------------------------------------

    def _write(self, batch: _Batch) -> Code | None:
        """Write what was admitted; None, or the code with which all of it failed."""
        if not batch.states and not batch.entries:
            return None
        try:
            self._append(batch.states, batch.entries)
        except DiskFullError as error:
            self._turn_read_only(DISK_FULL, error)
            return Code.EREADONLY
        except DiskError as error:
            self._turn_read_only(DISK_FAILED, error)
            return Code.EIO
        self.counts["adds"] += sum(map(len, batch.entries.values()))
        return None

    def _append(
        self, states: dict[int, LedgerRecord], entries: dict[int, list[memoryview]]
    ) -> None:
        """One write for all of it; returns once it is as durable as ``ack_after`` demands. Raises DiskError."""
        before = {ledger: self.record(ledger) for ledger in states}
        records: list[Record] = [ledger_record(ledger, state) for ledger, state in states.items()]
        for group in entries.values():
            records.extend(map(entry_record, group))
        self._store.append(records)
        self._store.commit()
        for ledger, state in states.items():
            was = before[ledger]
            self.ledgers += was is None
            self.limbo_ledgers += state.limbo - (was is not None and was.limbo)
            self._remember(ledger, state)

    def _turn_read_only(self, reason: str, error: DiskError) -> None:
        if reason not in self.read_only:
            log.error("the disk turns read-only (%s): %s", reason, error)
        self.read_only.add(reason)

    def set_states(self, states: dict[int, LedgerRecord]) -> None:
        """Write ledger states, durably as states always are: phase one marks, repair clears. Raises DiskError."""
        if not states:
            return
        self._append(states, {})

    # ---- step 3 -------------------------------------------------------------------------------------

    def _serve(self, read: v2.ReadRequest | v2.BatchReadRequest, code: Code) -> v2.Response:
        if isinstance(read, v2.BatchReadRequest):
            code, entries = (code, ()) if code is not Code.EOK else self._read_batch(read)
            return v2.BatchReadResponse(
                read.version, on_v2(code), read.ledger_id, read.entry_id, read.request_id, entries
            )
        entry: bytes | None = None
        if code is Code.EOK:
            code, entry = self.read(read.ledger_id, read.entry_id)
        return v2.ReadResponse(read.version, on_v2(code), read.ledger_id, read.entry_id, entry)

    def read(self, ledger: int, entry_id: int) -> tuple[Code, bytes | None]:
        """One entry, or the last one for -1. In limbo what is there is served and the rest is unknown."""
        try:
            record = self.record(ledger)
            wanted = entry_id
            if wanted == -1 and record is not None:
                wanted = self._store.last_entry_id(ledger)
            entry = (
                self._store.read_entry(ledger, wanted)
                if record is not None and wanted >= 0
                else None
            )
        except DiskError as error:
            log.error("ledger %d entry %d cannot be read: %s", ledger, entry_id, error)
            self.counts["unknown"] += 1
            return Code.EIO, None
        self.counts["reads"] += 1
        if entry is not None:
            return Code.EOK, entry
        code = ABSENT[standing(record)]
        if code is Code.EUNKNOWNLEDGERSTATE:
            self.counts["unknown"] += 1
        return code, None

    def _read_batch(self, read: v2.BatchReadRequest) -> tuple[Code, tuple[bytes, ...]]:
        """Consecutive entries within the bounds of the request; only an error on the first is an answer."""
        code, entry = self.read(read.ledger_id, read.entry_id)
        if entry is None:
            return code, ()
        entries = [entry]
        limit = min(read.max_size, BATCH_READ_BYTES_MAX)
        size = _BATCH_READ_HEAD_BYTES + _BATCH_READ_ENTRY_BYTES + len(entry)
        next_id = read.entry_id + 1
        while (
            read.entry_id >= 0
            and (read.max_count <= 0 or len(entries) < read.max_count)
            and size < limit
        ):
            _code, entry = self.read(read.ledger_id, next_id)
            if entry is None:
                break
            size += _BATCH_READ_ENTRY_BYTES + len(entry)
            if size > limit:
                break
            entries.append(entry)
            next_id += 1
        return Code.EOK, tuple(entries)

    # ---- lists --------------------------------------------------------------------------------------

    def list_entries(self, ledger: int) -> tuple[Code, bytes]:
        """The entries of a ledger in the encoding of AvailabilityOfEntriesOfLedger; unknown while in limbo."""
        try:
            record = self.record(ledger)
            if record is None:
                return Code.ENOLEDGER, b""
            if record.limbo:
                return Code.EUNKNOWNLEDGERSTATE, b""
            return Code.EOK, encode_runs(self._store.entries(ledger))
        except DiskError as error:
            log.error("the entries of ledger %d cannot be listed: %s", ledger, error)
            return Code.EIO, b""

    def watch_space(self, usage_max: float, reserve_bytes: int) -> None:
        """Turn read-only before the disk is full, and writable again once there is room.

        ``usage_max`` is a share of the file system, ``reserve_bytes`` what stays free for fences and repair. A disk
        that had no room for a write is writable again when the largest entry fits.
        """
        free, total = self._store.space()
        if free < reserve_bytes or 1 - free / max(total, 1) > usage_max:
            if DISK_USAGE not in self.read_only:
                log.warning(
                    "the disk turns read-only (%s): %d of %d bytes are free",
                    DISK_USAGE,
                    free,
                    total,
                )
            self.read_only.add(DISK_USAGE)
            return
        gone = {DISK_USAGE}
        if free >= RECORD_BODY_BYTES_MAX:
            gone.add(DISK_FULL)
        if self.read_only & gone:
            self.read_only -= gone
            if not self.read_only:
                log.warning("the disk is writable again: %d of %d bytes are free", free, total)

    @property
    def failed(self) -> bool:
        """The disk takes no writes any more until the next start."""
        return DISK_FAILED in self.read_only


def on_v2(code: Code) -> Code:
    """Version 2 clients drop the connection at EUNKNOWNLEDGERSTATE; EIO says 'unknown' as well and keeps it."""
    return Code.EIO if code is Code.EUNKNOWNLEDGERSTATE else code
