"""What the bookie of one disk answers, both protocol versions alike: a batch of requests in, answers out.

Synchronous and deterministic; all effects go through the store, and the time is passed in.

A batch is carried out in three steps, and the order is what makes the answers true:

1. Adds, explicit LACs and fences, in the order of arrival, are admitted or refused (admission.py) against the state as
   it will be once the batch is written. Nothing is answered yet.
2. Everything admitted goes to the store in one write: first the states of ledgers (creation, fence), then the
   entries grouped by ledger, so that consecutive ones become one run of the index, then the explicit LACs. The store
   makes durable what ``ack_after`` demands, and a state always; entries that all asked for a deferred sync it only
   writes. If the write fails, everything of step 1 is answered with the failure and the states are as before. A force
   then syncs whatever is not: all that was answered before it, and the adds of its own batch.
3. Reads are served (reading.py). They come last, so that a fencing read sees every add that this batch accepted
   before the fence: an entry is never both acknowledged and denied to a recovery.

Long polls (longpoll.py) are no part of this: each is answered by ``polled``, at once or when its wait is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct

from bkbox.bookie import admission
from bkbox.bookie.admission import admit
from bkbox.bookie.answers import Request, bare
from bkbox.bookie.lac import KnownLacs, lac_field
from bkbox.bookie.ledgers import Ledgers, standing
from bkbox.bookie.longpoll import LongPolls, Poll
from bkbox.bookie.reading import Reader
from bkbox.bookie.readonly import DISK_FAILED, DISK_FULL, ReadOnly
from bkbox.errors import DiskError, DiskFullError
from bkbox.limits import EXPLICIT_LAC_BYTES_MAX, LONG_POLL_MS_MAX
from bkbox.storage.disk import DiskStore
from bkbox.storage.records import (
    LAC_PACKET,
    Buffer,
    LedgerRecord,
    Record,
    entry_record,
    lac_of,
    lac_record,
    ledger_record,
)
from bkbox.wire import v2, v3
from bkbox.wire.codes import Code
from bkbox.wire.frames import bodies

_ENTRY_BYTES_MIN = 24
_ENTRY_IDS = Struct(">qq")
_ANSWER_BYTES = 1 << 20
"""Answers to reads that are held at once; a batch may ask for far more than fits into memory."""

Incoming = tuple[int, int, memoryview]
"""Connection, number of frames, the frames. No frame at all: the connection is closed."""

Answers = tuple[int, list[bytes]]
"""Connection, whole frames."""

Add = v2.AddRequest | v3.AddRequest
Read = v2.ReadRequest | v2.BatchReadRequest | v3.ReadRequest


@dataclass(slots=True)
class _Batch:
    """One batch on its way through the three steps."""

    states: dict[int, LedgerRecord] = field(default_factory=dict)
    entries: dict[int, list[memoryview]] = field(default_factory=dict)
    deferred: int = 0
    """Number of entries that need no sync."""
    packets: list[Buffer] = field(default_factory=list)
    writes: list[tuple[int, Request, Code]] = field(default_factory=list)
    forces: list[tuple[int, Request]] = field(default_factory=list)
    fences: list[tuple[int, Request, Code]] = field(default_factory=list)
    reads: list[tuple[int, Request, Code]] = field(default_factory=list)
    polls: list[tuple[int, v3.ReadRequest]] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    """Connections that were closed behind all that they sent."""
    answers: dict[int, list[bytes]] = field(default_factory=dict)

    def answer(self, connection: int, frame: bytes) -> None:
        self.answers.setdefault(connection, []).append(frame)

    def taken(self) -> Iterator[Answers]:
        answers, self.answers = self.answers, {}
        yield from answers.items()


class Bookie:
    """The ledgers of one disk."""

    def __init__(
        self, store: DiskStore, *, wall_ms: Callable[[], int], ticks_ms: Callable[[], int]
    ) -> None:
        """``wall_ms``: ms since 1970; ``ticks_ms``: ms of a clock that only goes forward, for waits."""
        self._store = store
        self._wall_ms = wall_ms
        self._ticks_ms = ticks_ms
        self._lacs = KnownLacs(store)
        self._polls = LongPolls()
        self._over: deque[tuple[int, v3.ReadRequest, int | None]] = deque()
        self._adds = 0
        self._admissions: dict[type[Request], Callable[..., None]] = {
            v2.AddRequest: self._take_add,
            v2.ReadRequest: self._take_read,
            v2.BatchReadRequest: self._take_read,
            v2.BadAdd: _refuse(Code.EBADREQ),
            v2.BadVersion: _refuse(Code.EBADVERSION),
            v3.AddRequest: self._take_add_v3,
            v3.ReadRequest: self._take_read_v3,
            v3.WriteLacRequest: self._take_lac,
            v3.ForceRequest: self._take_force,
            v3.ReadLacRequest: self._take_question,
            v3.ListEntriesRequest: self._take_question,
        }
        self.ledgers = Ledgers(store)
        self.reader = Reader(store, self.ledgers, self._lacs)
        self.read_only = ReadOnly()

    @property
    def counts(self) -> dict[str, int]:
        return {"adds": self._adds, "reads": self.reader.reads, "unknown": self.reader.unknown}

    # ---- a batch ------------------------------------------------------------------------------------

    def process(self, incoming: Iterable[Incoming]) -> Iterator[Answers]:
        """Carry out a batch; (connection, answer frames), a connection may come more than once.

        Frames have been found whole and decodable by the front-end. Everything is written before the first answer
        comes; reads are served as their answers are taken. Take what ``polled`` has afterwards.
        """
        batch = _Batch()
        for connection, count, frames in incoming:
            if not count:
                batch.gone.append(connection)
            for body in bodies(frames, len(frames)):
                wire = v2 if body[0] < v3.FIRST_BYTE_MIN else v3
                request = wire.decode_request(body)
                self._admissions[type(request)](batch, connection, request)
        failure = self._write(batch)
        for connection, request, code in batch.writes:
            answer = failure if failure is not None and code is Code.EOK else code
            batch.answer(connection, bare(request, answer))
        if batch.forces:
            code = self._force(failure)
            for connection, request in batch.forces:
                batch.answer(connection, bare(request, code))
        for connection, poll in batch.polls:
            self._begin_poll(connection, poll)
        for connection in batch.gone:
            self._polls.drop(connection)
        if failure is not None:
            batch.fences = [
                (connection, request, Code.EIO if code is Code.EOK else code)
                for connection, request, code in batch.fences
            ]
        held = 0
        for connection, request, code in (*batch.fences, *batch.reads):
            frame = self.reader.answer(request, code)
            batch.answer(connection, frame)
            held += len(frame)
            if held >= _ANSWER_BYTES:
                yield from batch.taken()
                held = 0
        yield from batch.taken()

    # ---- step 1 -------------------------------------------------------------------------------------

    def _take_add(self, batch: _Batch, connection: int, add: Add) -> None:
        batch.writes.append((connection, add, self._admit_add(batch, add)))

    def _take_add_v3(self, batch: _Batch, connection: int, add: v3.AddRequest) -> None:
        """The entry is stored by the ids that are in it, so those beside it must be the same."""
        beside = add.ledger_id, add.entry_id
        if len(add.entry) < _ENTRY_BYTES_MIN or _ENTRY_IDS.unpack_from(add.entry) != beside:
            code = Code.EBADREQ
        else:
            code = self._admit_add(batch, add)
            batch.deferred += add.deferred_sync and not add.recovery and code is Code.EOK
        batch.writes.append((connection, add, code))

    def _admit_add(self, batch: _Batch, add: Add) -> Code:
        ledger = add.ledger_id
        if ledger < 0 or add.entry_id < 0:
            return Code.EBADREQ
        if self.read_only and not self.read_only.allows(high_priority=add.high_priority):
            return Code.EREADONLY
        kind = admission.Request.RECOVERY_ADD if add.recovery else admission.Request.ADD
        code = self._admit(batch, ledger, kind, add.master_key)
        if code is Code.EOK:
            entry = add.entry
            assert isinstance(entry, memoryview)
            batch.entries.setdefault(ledger, []).append(entry)
        return code

    def _take_lac(self, batch: _Batch, connection: int, write: v3.WriteLacRequest) -> None:
        batch.writes.append((connection, write, self._admit_lac(batch, write)))

    def _admit_lac(self, batch: _Batch, write: v3.WriteLacRequest) -> Code:
        """What counts is the LAC in the packet, which is also what readers get to see."""
        if not LAC_PACKET.size <= len(write.body) <= EXPLICIT_LAC_BYTES_MAX:
            return Code.EBADREQ
        ledger, lac = LAC_PACKET.unpack_from(write.body)
        if ledger != write.ledger_id or ledger < 0 or lac < -1:
            return Code.EBADREQ
        if self.read_only:
            return Code.EREADONLY
        code = self._admit(batch, ledger, admission.Request.WRITE_LAC, write.master_key)
        if code is Code.EOK:
            batch.packets.append(write.body)
        return code

    def _take_read(self, batch: _Batch, connection: int, read: Read) -> None:
        code = Code.EOK
        if read.ledger_id < 0 or read.entry_id < -1:
            code = Code.EBADREQ
        elif read.fencing:
            key = read.master_key
            kind = admission.Request.FENCE
            code = Code.EUA if key is None else self._admit(batch, read.ledger_id, kind, key)
        (batch.fences if read.fencing else batch.reads).append((connection, read, code))

    def _take_read_v3(self, batch: _Batch, connection: int, read: v3.ReadRequest) -> None:
        if read.long_poll:
            batch.polls.append((connection, read))
        else:
            self._take_read(batch, connection, read)

    def _take_question(
        self, batch: _Batch, connection: int, request: v3.ReadLacRequest | v3.ListEntriesRequest
    ) -> None:
        code = Code.EBADREQ if request.ledger_id < 0 else Code.EOK
        batch.reads.append((connection, request, code))

    def _take_force(self, batch: _Batch, connection: int, force: v3.ForceRequest) -> None:
        batch.forces.append((connection, force))

    def _admit(self, batch: _Batch, ledger: int, kind: admission.Request, key: bytes) -> Code:
        """Look at the ledger as it will be once the batch is written, and note what the request makes of it."""
        record = batch.states.get(ledger) or self.ledgers.record(ledger)
        stored = None if record is None else record.master_key
        verdict = admit(standing(record), kind, stored, key)
        if verdict.code is Code.EOK:
            fences = kind is admission.Request.FENCE
            if record is None:
                batch.states[ledger] = LedgerRecord(key, fenced=fences)
            elif stored is None or (fences and not record.fenced):
                # A ledger that was rebuilt without its key gets it now.
                batch.states[ledger] = LedgerRecord(key, record.fenced or fences, record.limbo)
        return verdict.code

    # ---- step 2 -------------------------------------------------------------------------------------

    def _write(self, batch: _Batch) -> Code | None:
        """Write what was admitted; None, or the code with which all of it failed."""
        if not (batch.states or batch.entries or batch.packets):
            return None
        try:
            self._append(batch)
        except DiskFullError as error:
            self.read_only.turn(DISK_FULL, error)
            return Code.EREADONLY
        except DiskError as error:
            self.read_only.turn(DISK_FAILED, error)
            return Code.EIO
        self._adds += sum(map(len, batch.entries.values()))
        return None

    def _append(self, batch: _Batch) -> None:
        """One write for all of it; returns once it is as durable as it has to be. Raises DiskError."""
        before = {ledger: self.ledgers.record(ledger) for ledger in batch.states}
        records: list[Record] = [ledger_record(*state) for state in batch.states.items()]
        for group in batch.entries.values():
            records.extend(map(entry_record, group))
        records.extend(map(lac_record, batch.packets))
        self._store.append(records)
        deferred = batch.deferred and batch.deferred == sum(map(len, batch.entries.values()))
        self._store.commit(deferred=bool(deferred))
        for ledger, group in batch.entries.items():
            if ledger in self._lacs or ledger in self._polls:
                self._advanced(ledger, max(map(lac_field, group)))
        for packet in batch.packets:
            self._advanced(LAC_PACKET.unpack_from(packet)[0], lac_of(packet))
        for ledger, after in batch.states.items():
            was = before[ledger] or LedgerRecord()
            self.ledgers.changed(ledger, before[ledger], after)
            if after.fenced > was.fenced or after.limbo > was.limbo:
                self._end_polls(self._polls.disturbed(ledger), None)

    def _force(self, failure: Code | None) -> Code:
        """Sync what is not. A disk that was only full has written nothing, and can sync what was there before."""
        if failure is Code.EIO:
            return Code.EIO
        try:
            self._store.commit(durable=True)
        except DiskError as error:
            self.read_only.turn(DISK_FAILED, error)
            return Code.EIO
        return Code.EOK

    def set_states(self, states: dict[int, LedgerRecord]) -> None:
        """Write ledger states, durably as states always are: phase one marks, repair clears. Raises DiskError."""
        if states:
            self._append(_Batch(states=states))

    # ---- long polls ---------------------------------------------------------------------------------

    def _begin_poll(self, connection: int, poll: v3.ReadRequest) -> None:
        wait_ms = min(poll.timeout_ms or 0, LONG_POLL_MS_MAX)
        if (
            wait_ms <= 0
            or not self.reader.must_wait(poll)
            or not self._polls.park(connection, poll, self._ticks_ms() + wait_ms)
        ):
            self._over.append((connection, poll, None))

    def _advanced(self, ledger: int, lac: int) -> None:
        self._lacs.seen(ledger, lac)
        if ledger in self._polls:
            self._end_polls(self._polls.advanced(ledger, lac), self._wall_ms())

    def _end_polls(self, polls: Iterable[Poll], advanced_ms: int | None) -> None:
        self._over.extend((poll.connection, poll.request, advanced_ms) for poll in polls)

    def polled(self) -> Iterator[Answers]:
        """Answers to the long polls whose wait is over by now; each is made as it is taken."""
        self._end_polls(self._polls.expired(self._ticks_ms()), None)
        while self._over:
            connection, poll, advanced_ms = self._over.popleft()
            yield connection, [self.reader.answer_poll(poll, advanced_ms)]

    @property
    def polls_wait_ms(self) -> int | None:
        """How long until ``polled`` has more to say if nothing happens; None: for ever."""
        deadline = self._polls.next_deadline_ms
        return None if deadline is None else max(0, deadline - self._ticks_ms())

    def forget_polls(self) -> None:
        """The front-end is gone, and with it all connections."""
        self._polls = LongPolls()
        self._over.clear()

    def watch_space(self, usage_max: float, reserve_bytes: int) -> None:
        """See ReadOnly.watch."""
        self.read_only.watch(self._store.space(), usage_max, reserve_bytes)


def _refuse(code: Code) -> Callable[[_Batch, int, Request], None]:
    def refuse(batch: _Batch, connection: int, request: Request) -> None:
        batch.answer(connection, bare(request, code))

    return refuse
