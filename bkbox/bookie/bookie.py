"""The bookie of one disk, for both protocol versions: groups of requests in, responses out.

Synchronous and deterministic: all effects go through the store, and the time is passed in. Fast-path requests
(bookie/dispatch.py) are handled without a Python call; slow-path requests arrive here one by one.

A group is carried out in three steps. Their order makes the responses true:

1. ``append`` admits or refuses adds, explicit LACs and fences in the order of arrival (admission.py), against the
   state as it will be once everything before them is durable. Everything admitted goes to the store in one write:
   first the states of ledgers (creation, fence), then the entries grouped by ledger, so that consecutive ones become
   one extent of the index, then the explicit LACs. Entries can be read from here on; states and LACs become visible
   with step 3. If the write fails, everything admitted gets the failure as its response and the states are as before.
2. ``serve_reads`` serves reads that fence nothing. Reads never wait for a sync. Reads that need the disk are deferred
   to ``serve_cold_reads``, after the disk was waited for. Equal reads have equal responses, so their order is free.
3. ``commit`` and ``respond`` follow once everything that the group waits for is durable (``waits``). The store
   determines what ``ack_after`` demands; states and explicit LACs are always waited for; entries that all asked for a
   deferred sync are not; a force waits for everything that was acknowledged before it. The states take effect,
   responses to writes go out in the order of arrival, then forces, and last the fencing reads. These see every add that
   was accepted before the fence, so an entry is never both acknowledged and denied to a recovery.

Groups overlap: others may begin before one ends. They end in the order in which they began.

Long polls (longpoll.py) are not part of a group: ``pop_ready_polls`` has the response of each at once or when its wait
is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from struct import Struct

from bkbox.base.limits import EXPLICIT_LAC_BYTES_MAX, HOT_LEDGERS_MAX, LONG_POLL_MS_MAX
from bkbox.base.values import field, replaced, struct
from bkbox.bookie import admission
from bkbox.bookie.active import ActiveLedgers
from bkbox.bookie.add_group import ENTRY_BYTES_MIN, AddBatch, AdmittedLedger
from bkbox.bookie.admission import LedgerStatus, admit
from bkbox.bookie.dispatch import FrameDispatcher
from bkbox.bookie.lac import KnownLacs
from bkbox.bookie.ledgers import Ledgers, brought_back, status_of
from bkbox.bookie.longpoll import LongPolls, Poll
from bkbox.bookie.plain_responses import Request, bare
from bkbox.bookie.reading import ColdReads, Reader
from bkbox.bookie.readonly import DISK_FAILED, DISK_FULL, ReadOnly
from bkbox.bookie.response_writer import ResponseWriter
from bkbox.errors import DiskError, DiskFullError
from bkbox.storage.disk.disk import DiskStore
from bkbox.storage.entries.entry_log import Part
from bkbox.storage.log.records import (
    LAC_PACKET,
    AckAfter,
    Buffer,
    LedgerRecord,
    lac_of,
    lac_record,
    ledger_record,
)
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code

_ENTRY_IDS = Struct(">qq")

_ADDS = (admission.Request.ADD, admission.Request.RECOVERY_ADD)

_EOK = Code.EOK
"""Local copies: a look-up of a member in its class takes longer than all other work for a small group."""

Segment = tuple[int, int, int, int]
"""Connection, number of frames, start and end of the frames in the area. Without frames: the connection was closed."""

ConnectionResponses = tuple[int, list[bytes]]
"""Connection, complete response frames."""

Add = v2.AddRequest | v3.AddRequest
Read = v2.ReadRequest | v2.BatchReadRequest | v3.ReadRequest


@struct
class SlowPathRequests:
    """The slow-path requests of a group."""

    states: dict[int, LedgerRecord] = field(default_factory=dict)
    packets: list[Buffer] = field(default_factory=list)
    deferred: int = 0
    """Number of entries that need no sync (deferred sync)."""
    synced: int = 0
    """Number of entries that need a sync in every mode."""
    recovered: int = 0
    """Number of entries from recovery adds, that is from recoveries and repair, not from writers."""
    groups: dict[int, AdmittedLedger] = field(default_factory=dict)
    """Ledgers on the slow path that have entries in the group."""
    writes: list[tuple[Request, Code]] = field(default_factory=list)
    """Writes with slow-path responses, by the numbers of their marks."""
    forces: list[tuple[int, Request]] = field(default_factory=list)
    persisted: list[tuple[int, v3.ReadLacRequest, int]] = field(default_factory=list)
    """Requests for what is durable, each with the last entry of its ledger when the request came."""
    fences: list[tuple[int, Request, Code]] = field(default_factory=list)
    reads: list[tuple[int, Request, Code]] = field(default_factory=list)
    polls: list[tuple[int, v3.ReadRequest]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    """Connections that were closed after everything that they sent."""


_NOTHING = SlowPathRequests()
"""Shared by all groups without slow-path requests, nearly all of them; never modified."""


class CommitGroup:
    """One group in flight through the steps. ``waits``: something must be durable before the group ends.
    ``cold_reads``: its cold reads, which wait for the disk; None once they are served.
    """

    __slots__ = (
        "adds",
        "advanced",
        "cold_reads",
        "failure",
        "indexed_us",
        "received_us",
        "responded",
        "slow_path",
        "waits",
        "written_us",
    )

    def __init__(self, adds: AddBatch, received_us: int) -> None:
        self.adds = adds
        self.slow_path = _NOTHING
        self.received_us = self.written_us = self.indexed_us = received_us
        """Times at which the group was received, written and indexed, in microseconds."""
        self.waits = self.responded = False
        self.failure: Code | None = None
        self.cold_reads: ColdReads | None = None
        self.advanced: Sequence[tuple[int, int]] = ()
        """Ledgers with long polls, each with the LAC that the group brought."""

    def ensure_slow_path(self) -> None:
        """Give the group slow-path requests of its own, before anything is put into them."""
        if self.slow_path is _NOTHING:
            self.slow_path = SlowPathRequests()

    @property
    def has_changes(self) -> bool:
        """True if the group holds any request to change something, refused or not."""
        slow_path = self.slow_path
        return bool(len(self.adds) or slow_path.forces or slow_path.persisted or slow_path.fences)

    @property
    def is_written(self) -> bool:
        """True if the group has something to write."""
        return bool(self.adds.entries or self.slow_path.states or self.slow_path.packets)


class Bookie:
    """The ledgers of one disk."""

    def __init__(
        self, store: DiskStore, *, wall_ms: Callable[[], int], ticks_us: Callable[[], int]
    ) -> None:
        """``wall_ms``: ms since 1970; ``ticks_us``: microseconds of a clock that only goes forward."""
        self.store = store
        self._wall_ms = wall_ms
        self._ticks_us = ticks_us
        self._lacs = KnownLacs(store)
        self._polls = LongPolls()
        self._ready_polls: deque[tuple[int, v3.ReadRequest, int | None]] = deque()
        self._dispatcher = FrameDispatcher()
        self._free_batches: list[AddBatch] = []
        self._pending: dict[int, LedgerRecord] = {}
        self._adds = self._add_bytes = 0
        self._admissions: dict[type[Request], Callable[..., None]] = {
            v2.AddRequest: self._on_add,
            v2.ReadRequest: self._on_read,
            v2.BatchReadRequest: self._on_read,
            v2.BadAdd: partial(self._record_write, code=Code.EBADREQ),
            v2.BadVersion: partial(self._record_write, code=Code.EBADVERSION),
            v3.AddRequest: self._on_add_v3,
            v3.ReadRequest: self._on_read_v3,
            v3.WriteLacRequest: self._on_write_lac,
            v3.ForceRequest: self._on_force,
            v3.ReadLacRequest: self._on_read_lac,
            v3.ListEntriesRequest: self._on_query,
        }
        self.ledgers = Ledgers(store)
        self._marks_active = store.ack_after is AckAfter.WRITE
        self._active = ActiveLedgers(self.ledgers.active)
        self.reader = Reader(store, self.ledgers, self._lacs, lambda: ticks_us() / 1e6)
        self._cold_reads = self.reader.new_cold_reads()
        self.read_only = ReadOnly()

    @property
    def counts(self) -> dict[str, int]:
        """Counters since the start; ``bytes`` counts the records of entries."""
        return {
            "adds": self._adds,
            "bytes": self._add_bytes,
            "reads": self.reader.reads,
            "unknown": self.reader.unknown,
        }

    # ---- a group ------------------------------------------------------------------------------------

    def append(self, area: memoryview, segments: Iterable[Segment]) -> CommitGroup:
        """Step 1 of a group. Its frames lie in ``area`` until the group has ended.

        The front-end has checked that the frames are complete and decodable.
        """
        adds = self._free_batches.pop() if self._free_batches else AddBatch()
        adds.begin(area)
        work = CommitGroup(adds, self._ticks_us())
        fast_adds = None if self.read_only or self.store.is_backpressured else adds
        reads = self.reader.fast_reads

        def slow(connection: int, start: int, end: int) -> None:
            work.ensure_slow_path()
            body = area[start:end]
            wire = v2 if body[0] < v3.FIRST_BYTE_MIN else v3
            request = wire.decode_request(body)
            self._admissions[type(request)](work, connection, request)

        for connection, count, start, end in segments:
            if count:
                self._dispatcher.dispatch(area, start, end, connection, fast_adds, reads, slow)
            else:
                work.ensure_slow_path()
                work.slow_path.closed.append(connection)
        self._write(work)
        return work

    def has_reads(self, work: CommitGroup) -> bool:
        """True if step 2 has anything to do."""
        return bool(work.slow_path.reads) or len(self.reader.fast_reads) > 0

    def serve_reads(self, work: CommitGroup, out: ResponseWriter) -> None:
        """Step 2; the reads it defers are in ``cold_reads``. Raises EOFError."""
        cold_reads = self._cold_reads
        self.reader.fast_reads.serve(out, cold_reads.fast_reads)
        for connection, request, code in work.slow_path.reads:
            self.reader.put_response(out, connection, request, code, cold_reads)
        if cold_reads:
            work.cold_reads = cold_reads
            self._cold_reads = self.reader.new_cold_reads()

    def serve_cold_reads(self, work: CommitGroup, out: ResponseWriter) -> None:
        """The deferred part of step 2, at any time; ``cold_reads`` is None afterwards. Raises EOFError."""
        cold_reads, work.cold_reads = work.cold_reads, None
        assert cold_reads is not None
        self.reader.serve_cold_reads(cold_reads, out)

    def respond(self, work: CommitGroup, out: ResponseWriter) -> None:
        """Send the responses of step 3, after ``commit``; the caller then calls ``pop_ready_polls``. Raises
        EOFError."""
        code = work.failure or _EOK
        work.adds.respond(out, code.v2, code.v3, lambda number: self._written(work, number))
        self._free_batches.append(work.adds)
        for connection, request in work.slow_path.forces:
            out.put(connection, bare(request, _EOK if code is not Code.EIO else code), 1)
        for connection, query, last in work.slow_path.persisted:
            failed = code is Code.EIO
            response = bare(query, code) if failed else self.reader.lac_response(query, last)
            out.put(connection, response, 1)
        for connection, poll in work.slow_path.polls:
            self._begin_poll(connection, poll)
        for connection in work.slow_path.closed:
            self._polls.drop(connection)
        for connection, request, verdict in work.slow_path.fences:
            failed = verdict is Code.EOK and work.failure is not None
            response = self.reader.response(request, Code.EIO if failed else verdict)
            out.put(connection, response, 1)

    def _written(self, work: CommitGroup, number: int) -> bytes:
        request, code = work.slow_path.writes[number]
        if code is Code.EOK and work.failure is not None:
            code = work.failure
        return bare(request, code)

    # ---- step 1 -------------------------------------------------------------------------------------

    def _record_write(
        self, work: CommitGroup, connection: int, request: Request, code: Code
    ) -> None:
        work.adds.mark(connection, len(work.slow_path.writes))
        work.slow_path.writes.append((request, code))

    def _on_add(self, work: CommitGroup, connection: int, add: Add) -> None:
        self._record_write(work, connection, add, self._admit_add(work, add))

    def _on_add_v3(self, work: CommitGroup, connection: int, add: v3.AddRequest) -> None:
        """Admit a version 3 add. The entry is stored by the ids inside it, so the ids outside must be equal."""
        ids = add.ledger_id, add.entry_id
        if len(add.entry) < ENTRY_BYTES_MIN or _ENTRY_IDS.unpack_from(add.entry) != ids:
            code = Code.EBADREQ
        else:
            code = self._admit_add(work, add)
            work.slow_path.deferred += add.deferred_sync and not add.recovery and code is Code.EOK
            work.slow_path.synced += add.synced and code is Code.EOK
        self._record_write(work, connection, add, code)

    def _admit_add(self, work: CommitGroup, add: Add) -> Code:
        ledger = add.ledger_id
        if ledger < 0 or add.entry_id < 0:
            return Code.EBADREQ
        if self.read_only and not self.read_only.allows(high_priority=add.high_priority):
            return Code.EREADONLY
        if self.store.is_backpressured:
            return Code.ETOOMANYREQUESTS
        kind = admission.Request.RECOVERY_ADD if add.recovery else admission.Request.ADD
        code = self._admit(work, ledger, kind, add.master_key)
        if code is Code.EOK:
            group = work.slow_path.groups.get(ledger)
            if group is None:
                group = work.slow_path.groups[ledger] = AdmittedLedger(
                    ledger, bytes(v2.MASTER_KEY_BYTES)
                )
            work.adds.put(group, add.entry)
            work.slow_path.recovered += add.recovery
        return code

    def _on_write_lac(self, work: CommitGroup, connection: int, write: v3.WriteLacRequest) -> None:
        self._record_write(work, connection, write, self._admit_lac(work, write))

    def _admit_lac(self, work: CommitGroup, write: v3.WriteLacRequest) -> Code:
        """Admit an explicit LAC. The LAC in the packet counts: it is also the one that readers get."""
        if not LAC_PACKET.size <= len(write.body) <= EXPLICIT_LAC_BYTES_MAX:
            return Code.EBADREQ
        ledger, lac = LAC_PACKET.unpack_from(write.body)
        if ledger != write.ledger_id or ledger < 0 or lac < -1:
            return Code.EBADREQ
        if self.read_only:
            return Code.EREADONLY
        code = self._admit(work, ledger, admission.Request.WRITE_LAC, write.master_key)
        if code is Code.EOK:
            work.slow_path.packets.append(write.body)
        return code

    def _on_read(self, work: CommitGroup, connection: int, read: Read) -> None:
        code = Code.EOK
        if read.ledger_id < 0 or read.entry_id < -1:
            code = Code.EBADREQ
        elif read.fencing:
            key = read.master_key
            kind = admission.Request.FENCE
            code = Code.EUA if key is None else self._admit(work, read.ledger_id, kind, key)
        (work.slow_path.fences if read.fencing else work.slow_path.reads).append(
            (connection, read, code)
        )

    def _on_read_v3(self, work: CommitGroup, connection: int, read: v3.ReadRequest) -> None:
        if read.long_poll:
            work.slow_path.polls.append((connection, read))
        else:
            self._on_read(work, connection, read)

    def _on_query(
        self, work: CommitGroup, connection: int, request: v3.ReadLacRequest | v3.ListEntriesRequest
    ) -> None:
        code = Code.EBADREQ if request.ledger_id < 0 else Code.EOK
        work.slow_path.reads.append((connection, request, code))

    def _on_read_lac(self, work: CommitGroup, connection: int, request: v3.ReadLacRequest) -> None:
        """A request for what is durable is a force with a longer response: it waits for everything that was
        acknowledged before.
        """
        if request.persisted and request.ledger_id >= 0:
            last = self.reader.last_entry(request.ledger_id)
            work.slow_path.persisted.append((connection, request, last))
        else:
            self._on_query(work, connection, request)

    def _on_force(self, work: CommitGroup, connection: int, force: v3.ForceRequest) -> None:
        work.slow_path.forces.append((connection, force))

    def _admit(self, work: CommitGroup, ledger: int, kind: admission.Request, key: bytes) -> Code:
        """Decide a request by the ledger's state once all before it is durable, and record the state it leads to."""
        record = (
            work.slow_path.states.get(ledger)
            or self._pending.get(ledger)
            or self.ledgers.record(ledger)
        )
        stored = None if record is None else record.master_key
        verdict = admit(status_of(record), kind, stored, key)
        if verdict.code is Code.EOK:
            fences = kind is admission.Request.FENCE
            changed = record
            if record is None:
                changed = LedgerRecord(key, fenced=fences)
            elif kind is admission.Request.RECOVERY_ADD and record.deleted_ms:
                changed = brought_back(replaced(record, master_key=key))
            elif stored is None or (fences and not record.fenced):
                # A ledger that was rebuilt without its key gets it now.
                changed = replaced(record, master_key=key, fenced=record.fenced or fences)
            if self._marks_active and kind in _ADDS:
                self._active.touched(ledger)
                if changed is not None and not changed.active:
                    changed = replaced(changed, active=True)
            if changed is not None and changed is not record:
                self._change(work, ledger, changed)
        return verdict.code

    def _change(self, work: CommitGroup, ledger: int, state: LedgerRecord) -> None:
        """Record a new state; the ledger's adds take the slow path until it is durable, and perhaps for good."""
        work.slow_path.states[ledger] = state
        self._cool(ledger)

    def _write(self, work: CommitGroup) -> None:
        """Write what was admitted, and set whether the group must wait."""
        try:
            if work.is_written:
                self._append(work)
        except DiskFullError as error:
            self.read_only.turn(DISK_FULL, error)
            work.failure = Code.EREADONLY
        except DiskError as error:
            self.read_only.turn(DISK_FAILED, error)
            work.failure = Code.EIO
        forces = bool(work.slow_path.forces or work.slow_path.persisted)
        if forces and self.store.health.failed_reason is not None:
            work.failure = Code.EIO
        work.adds.ungroup()
        work.indexed_us = self._ticks_us()
        if work.failure is None:
            work.waits = self.store.must_sync(
                work.adds.entries > work.slow_path.deferred,
                bool(work.slow_path.states or work.slow_path.packets),
                forces or work.slow_path.synced > 0,
            )
        elif forces and work.failure is not Code.EIO:
            # A disk that was only full has written nothing, and can sync earlier data.
            work.waits = self.store.must_sync(False, False, True)

    def _append(self, work: CommitGroup) -> None:
        """Append the whole group in one write. Raises DiskError."""
        parts: list[Part] = [ledger_record(*state) for state in work.slow_path.states.items()]
        if work.adds.entries:
            parts.append(work.adds)
        parts.extend(map(lac_record, work.slow_path.packets))
        self.store.append(parts)
        work.written_us = self._ticks_us()
        self.store.index_appended()
        self._pending.update(work.slow_path.states)
        if self._lacs or self._polls:
            work.advanced = [
                (group.ledger, group.lac)
                for group in work.adds.groups
                if group.ledger in self._lacs or group.ledger in self._polls
            ]
        self._adds += work.adds.entries
        self._add_bytes += work.adds.record_bytes

    # ---- step 3 -------------------------------------------------------------------------------------

    def commit(self, work: CommitGroup, error: DiskError | None = None) -> None:
        """The wait is over: the group takes effect. ``error``: the failure of the sync that it waited for."""
        if error is not None:
            self.read_only.turn(DISK_FAILED, error)
            work.failure = Code.EIO
        if work.failure is not None:
            # A state that is not durable must not decide a later request. A second fence would change nothing, wait for
            # nothing, and be acknowledged too early.
            for ledger, after in work.slow_path.states.items():
                if self._pending.get(ledger) is after:
                    del self._pending[ledger]
            return
        for ledger, after in work.slow_path.states.items():
            before = self.ledgers.record(ledger)
            self.store.show(ledger_record(ledger, after))
            if self._pending.get(ledger) is after:
                del self._pending[ledger]
            self.ledgers.changed(ledger, before, after)
            self._active.changed(ledger, after.active)
            was = before or LedgerRecord()
            if after.fenced > was.fenced or after.limbo > was.limbo:
                self._end_polls(self._polls.disturbed(ledger), None)
        for packet in work.slow_path.packets:
            self.store.show(lac_record(packet))
            self._advanced(LAC_PACKET.unpack_from(packet)[0], lac_of(packet))
        for ledger, lac in work.advanced:
            self._advanced(ledger, lac)
        for ledger in work.slow_path.groups:
            self._warm(ledger)

    def _warm(self, ledger: int) -> None:
        """Put the ledger's normal adds on the fast path, if it is open and no change is in flight. If it is fenced or
        in limbo, and not deleted, its recovery adds take the fast path.
        """
        record = self.ledgers.record(ledger)
        if (
            ledger in self._pending
            or record is None
            or record.master_key is None
            or len(record.master_key) != v2.MASTER_KEY_BYTES
            or (self._marks_active and not record.active)
        ):
            return
        now = status_of(record)
        if now is LedgerStatus.OPEN:
            warm = self._dispatcher.hot
        elif now in (LedgerStatus.FENCED, LedgerStatus.LIMBO) and not record.deleted_ms:
            warm = self._dispatcher.filled
        else:
            return
        if len(warm) >= HOT_LEDGERS_MAX:
            warm.clear()
        warm[ledger] = AdmittedLedger(ledger, record.master_key)

    def _cool(self, ledger: int) -> None:
        """Put the ledger's adds on the slow path."""
        self._dispatcher.hot.pop(ledger, None)
        self._dispatcher.filled.pop(ledger, None)

    def set_states(self, states: dict[int, LedgerRecord]) -> None:
        """Write ledger states durably: phase one marks, repair clears. No group may be in flight. Raises DiskError."""
        if not states:
            return
        work = CommitGroup(AddBatch(), self._ticks_us())
        work.ensure_slow_path()
        work.slow_path.states = states
        for ledger in states:
            self._cool(ledger)
        self._append(work)
        try:
            self.store.sync()
        except DiskError as error:
            self.commit(work, error)
            raise
        self.commit(work)

    # ---- active ledgers -----------------------------------------------------------------------------

    @property
    def has_active(self) -> bool:
        """True if a ledger may have acknowledged entries that are not durable (active.py)."""
        return bool(self._active)

    def begin_unmark(self, *, everything: bool) -> bool:
        """Before a sync: choose the active ledgers that ``unmark`` will unmark; False if there are none."""
        found = self._active.select_idle(*self.store.log.counts(), everything=everything)
        for ledger in found:
            self._cool(ledger)
        return bool(found)

    def unmark(self) -> None:
        """After the sync: unmark the chosen ledgers that had no add since. Raises DiskError."""
        records = {}
        for ledger in self._active.pop_idle():
            record = self.ledgers.record(ledger)
            if record is None:
                self._active.changed(ledger, active=False)
            elif ledger not in self._pending:
                records[ledger] = replaced(record, active=False)
        if not records:
            return
        self.store.append([ledger_record(*each) for each in records.items()])
        self.store.index_appended()
        for ledger, record in records.items():
            # Not synced: if this is lost the ledger still counts as active, which does no harm.
            before = self.ledgers.record(ledger)
            self.store.show(ledger_record(ledger, record))
            self.ledgers.changed(ledger, before, record)
            self._active.changed(ledger, active=False)

    def newest_state(self, ledger: int) -> LedgerRecord | None:
        """The ledger state that was written last, visible or not."""
        return self._pending.get(ledger) or self.ledgers.record(ledger)

    def empty(self, ledgers: dict[int, LedgerRecord]) -> None:
        """Remove the entries of ledgers durably, and leave these states, which say so (``emptied``). No group may be in
        flight. Raises DiskError.
        """
        for ledger in ledgers:
            self.disturb(ledger)
            self._lacs.forget(ledger)
        self.set_states(ledgers)

    def disturb(self, ledger: int) -> None:
        """End the long polls of a ledger before it is changed; ``pop_ready_polls`` has their responses."""
        self._end_polls(self._polls.disturbed(ledger), None)

    def forget(self, ledger: int) -> None:
        """Remove a ledger durably: entries, state, and everything cached of it here. No group may be in flight.
        Raises DiskError.
        """
        before = self.ledgers.record(ledger)
        self.disturb(ledger)
        self._cool(ledger)
        self.store.forget(ledger)
        self._lacs.forget(ledger)
        self.ledgers.forgotten(ledger, before)
        self._active.changed(ledger, active=False)

    # ---- long polls ---------------------------------------------------------------------------------

    def _begin_poll(self, connection: int, poll: v3.ReadRequest) -> None:
        wait_ms = min(poll.timeout_ms or 0, LONG_POLL_MS_MAX)
        if (
            wait_ms <= 0
            or not self.reader.must_wait(poll)
            or not self._polls.park(connection, poll, self._ticks_us() // 1000 + wait_ms)
        ):
            self._ready_polls.append((connection, poll, None))

    def _advanced(self, ledger: int, lac: int) -> None:
        self._lacs.seen(ledger, lac)
        if ledger in self._polls:
            self._end_polls(self._polls.advanced(ledger, lac), self._wall_ms())

    def _end_polls(self, polls: Iterable[Poll], advanced_ms: int | None) -> None:
        self._ready_polls.extend((poll.connection, poll.request, advanced_ms) for poll in polls)

    def pop_ready_polls(self) -> Iterator[ConnectionResponses]:
        """Responses to the long polls whose wait is over; each is made when the iterator reaches it."""
        self._end_polls(self._polls.expired(self._ticks_us() // 1000), None)
        while self._ready_polls:
            connection, poll, advanced_ms = self._ready_polls.popleft()
            yield connection, [self.reader.poll_response(poll, advanced_ms)]

    @property
    def has_polls(self) -> bool:
        """True if a long poll waits, so that ``pop_ready_polls`` has a response now or later."""
        return bool(self._ready_polls) or bool(self._polls)

    @property
    def polls_wait_ms(self) -> int | None:
        """Milliseconds until ``pop_ready_polls`` has a response if nothing happens; None: no deadline."""
        deadline = self._polls.next_deadline_ms
        return None if deadline is None else max(0, deadline - self._ticks_us() // 1000)

    def forget_connections(self, connections: range) -> None:
        """Drop the long polls of these connections, because their front-end is gone. Connections of its next process
        may reuse the numbers, and must not get these responses.
        """
        self._polls.drop_all(connections)
        ready = [poll for poll in self._ready_polls if poll[0] not in connections]
        self._ready_polls = deque(ready)
        self.reader.fast_reads.clear()
        self._cold_reads = self.reader.new_cold_reads()

    def watch_space(self, usage_max: float, reserve_bytes: int, usage_resume: float = 0.0) -> None:
        """See ReadOnly.watch. A disk that cannot report its free space is gone. One that was remounted read-only has
        failed: the kernel remounts a file system that it cannot write to. Neither accepts anything more.
        """
        try:
            space = self.store.health.space()
            self.store.health.require_writable(space)
        except DiskError as error:
            self.read_only.turn(DISK_FAILED, error)
        else:
            self.read_only.watch(space, usage_max, reserve_bytes, usage_resume)
