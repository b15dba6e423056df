"""Any sequence of requests and restarts against a real bookie over a real disk store, beside a small model of one.

The model: entries, keys, fences, limbo and explicit LACs in dicts. Whatever it says has to be answered, in both
versions of the protocol, in every mode, before and after clean stops, kills and starts that take the host for crashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bkbox.storage.index.ordered_store import MemoryStore
from bkbox.storage.log.records import AckAfter, LedgerRecord
from bkbox.wire import v2, v3
from bkbox.wire.availability import decode
from bkbox.wire.codes import Code
from bkbox.wire.v3_format import Operation
from tests.bookie.bench import bookie_of
from tests.fuzz.targets.disks import carried_out, new_disk, opened
from tests.harness.raw import make_entry, master_key
from tests.harness.raw3 import lac_packet

RIGHT, WRONG = master_key(), master_key(b"another")
OPEN, FENCED, LIMBO = "open", "fenced", "limbo"
ABSENT = {
    None: Code.ENOLEDGER,
    OPEN: Code.ENOENTRY,
    FENCED: Code.ENOENTRY,
    LIMBO: Code.EUNKNOWNLEDGERSTATE,
}
MAX = 2**63 - 1

LEDGERS = st.sampled_from((0, 1, 2, MAX))
ENTRIES = st.sampled_from((0, 1, 2, 3, 4, 7, 8, 5_000_000_000, MAX))
KEYS = st.sampled_from((RIGHT, RIGHT, RIGHT, WRONG))
PAYLOADS = st.binary(max_size=40)
LACS = st.sampled_from((-1, 0, 1, 5, 6, MAX))


@dataclass
class Ledger:
    """What the model knows of one ledger."""

    standing: str = OPEN
    entries: dict[int, bytes] = field(default_factory=dict)
    lac: int | None = None

    @property
    def last(self) -> int:
        return max(self.entries, default=-1)


class BookieMachine(RuleBasedStateMachine):
    """The real one is ``bookie``, the model is ``model``. Every ledger has the key RIGHT."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[int, Ledger] = {}
        self.txn = 0

    @initialize(ack_after=st.sampled_from(AckAfter))
    def start(self, ack_after: AckAfter) -> None:
        self.files, self.index, self.ack_after = new_disk(), MemoryStore(), ack_after
        self._open(host_crash=False)

    def _open(self, *, host_crash: bool) -> None:
        self.store = opened(self.files, self.index, self.ack_after)
        report = self.store.replay(host_crash)
        assert not report.damaged
        assert report.dropped_entries == report.bytes_cut == 0
        self.bookie = bookie_of(self.store)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.abandon()

    # ---- asking ---------------------------------------------------------------------------------

    def _header(self, operation: Operation) -> v3.Header:
        self.txn += 1
        return v3.Header(operation, self.txn)

    def _ask(self, *requests: v2.Request | v3.Request) -> Iterator[v2.Response | v3.Response]:
        frames = [
            v3.encode_request(request) if hasattr(request, "header") else v2.encode_request(request)  # type: ignore[arg-type]
            for request in requests
        ]
        area = memoryview(b"".join(frames))
        answers = carried_out(self.bookie, area, (7, len(frames), 0, len(area)))
        assert len(answers) == len(requests)
        for request, body in zip(requests, answers, strict=True):
            if not hasattr(request, "header"):
                yield v2.decode_response(body)
                continue
            answer = v3.decode_response(body)
            assert getattr(answer, "txn_id", None) in (None, request.header.txn_id)
            yield answer

    def _read_request(
        self, three: bool, ledger: int, entry: int, key: bytes | None
    ) -> v2.Request | v3.Request:
        if three:
            header = self._header(Operation.READ_ENTRY)
            return v3.ReadRequest(header, ledger, entry, key, key is not None)
        return v2.ReadRequest(2, int(key is not None), ledger, entry, key)

    # ---- what the model says --------------------------------------------------------------------

    def _admit(self, ledger: int, key: bytes, *, ordinary_add: bool) -> Code:
        found = self.model.get(ledger)
        if found is None:
            self.model[ledger] = Ledger()
            return Code.EOK
        if key != RIGHT:
            return Code.EUA
        return Code.EFENCED if ordinary_add and found.standing != OPEN else Code.EOK

    def _found(self, ledger: int, entry: int) -> tuple[Code, bytes | None]:
        known = self.model.get(ledger)
        body = None
        if known is not None:
            body = known.entries.get(known.last if entry == -1 else entry)
        absent = ABSENT[None if known is None else known.standing]
        return (absent, None) if body is None else (Code.EOK, body)

    def _same(
        self, answer: object, code: Code, body: bytes | None = None, *, refused: bool = False
    ) -> None:
        three = isinstance(answer, v3.ReadResponse | v3.AddResponse | v3.Refused)
        if code is Code.EUNKNOWNLEDGERSTATE and not three:
            code = Code.EIO
        assert answer.code is code, (answer, code)  # type: ignore[attr-defined]
        if code is Code.EOK and body is not None:
            assert bytes(answer.entry) == body  # type: ignore[attr-defined]

    # ---- rules ----------------------------------------------------------------------------------

    @rule(
        adds=st.lists(
            st.tuples(
                st.booleans(), LEDGERS, ENTRIES, PAYLOADS, KEYS, st.sampled_from((0, 0, 0, 1))
            ),
            min_size=1,
            max_size=6,
        )
    )
    def add(self, adds: list[tuple[bool, int, int, bytes, bytes, int]]) -> None:
        """One group of adds, ordinary and of recoveries. A ledger is created by the first, with its key."""
        requests: list[v2.Request | v3.Request] = []
        codes = []
        for three, ledger, entry, payload, key, recovery in adds:
            if ledger not in self.model:
                key = RIGHT
            body = make_entry(ledger, entry, payload)
            if three:
                header = self._header(Operation.ADD_ENTRY)
                requests.append(
                    v3.AddRequest(header, ledger, entry, key, body, bool(recovery), False)
                )
            else:
                requests.append(v2.AddRequest(2, 2 * recovery, key, body))
            codes.append(self._admit(ledger, key, ordinary_add=not recovery))
            if codes[-1] is Code.EOK:
                self.model[ledger].entries[entry] = body
        for answer, code in zip(self._ask(*requests), codes, strict=True):
            self._same(answer, code)

    @rule(three=st.booleans(), ledger=LEDGERS, entry=st.one_of(st.just(-1), ENTRIES))
    def read(self, three: bool, ledger: int, entry: int) -> None:
        """A plain read of an entry, or of the last one."""
        [answer] = self._ask(self._read_request(three, ledger, entry, None))
        self._same(answer, *self._found(ledger, entry))

    @rule(three=st.booleans(), ledger=LEDGERS, entry=st.one_of(st.just(-1), ENTRIES), key=KEYS)
    def fence(self, three: bool, ledger: int, entry: int, key: bytes) -> None:
        """A fencing read: of an unknown ledger, too."""
        if ledger not in self.model:
            key = RIGHT
        [answer] = self._ask(self._read_request(three, ledger, entry, key))
        code = self._admit(ledger, key, ordinary_add=False)
        if code is not Code.EOK:
            self._same(answer, code)
            return
        if self.model[ledger].standing == OPEN:
            self.model[ledger].standing = FENCED
        self._same(answer, *self._found(ledger, entry))

    @rule(ledger=LEDGERS, first=ENTRIES, count=st.sampled_from((0, 1, 2, 100)))
    def read_batch(self, ledger: int, first: int, count: int) -> None:
        """Consecutive entries, as many as there are; 0: no bound."""
        request = v2.BatchReadRequest(2, 0, ledger, first, 5, count, 1 << 20, None)
        [answer] = self._ask(request)
        code, body = self._found(ledger, first)
        self._same(answer, code)
        expected = []
        while body is not None and (count == 0 or len(expected) < count):
            expected.append(body)
            body = self.model[ledger].entries.get(first + len(expected))
        assert isinstance(answer, v2.BatchReadResponse)
        assert [bytes(each) for each in answer.entries] == expected

    @rule(ledger=LEDGERS, lac=LACS, key=KEYS)
    def write_lac(self, ledger: int, lac: int, key: bytes) -> None:
        """An explicit LAC, which only grows; a fence does not stop it."""
        if ledger not in self.model:
            key = RIGHT
        header = self._header(Operation.WRITE_LAC)
        packet = lac_packet(ledger, lac)
        [answer] = self._ask(v3.WriteLacRequest(header, ledger, lac, key, packet))
        code = self._admit(ledger, key, ordinary_add=False)
        self._same(answer, code)
        known = self.model[ledger]
        if code is Code.EOK:
            known.lac = lac if known.lac is None else max(known.lac, lac)

    @rule(ledger=LEDGERS)
    def read_lac(self, ledger: int) -> None:
        """The explicit LAC, and the last entry beside it."""
        [answer] = self._ask(v3.ReadLacRequest(self._header(Operation.READ_LAC), ledger))
        known = self.model.get(ledger)
        if known is None or (known.lac is None and not known.entries and known.standing != LIMBO):
            assert answer.code is Code.ENOENTRY  # type: ignore[union-attr]
        elif known.standing == LIMBO:
            assert answer.code is Code.EUNKNOWNLEDGERSTATE  # type: ignore[union-attr]
        else:
            assert isinstance(answer, v3.ReadLacResponse)
            packet = None if known.lac is None else lac_packet(ledger, known.lac)
            assert (None if answer.lac_body is None else bytes(answer.lac_body)) == packet
            last = known.entries.get(known.last)
            assert (None if answer.last_entry is None else bytes(answer.last_entry)) == last

    @rule(ledger=LEDGERS)
    def list_entries(self, ledger: int) -> None:
        """All entries, or none of them while something may be missing."""
        operation = Operation.GET_LIST_OF_ENTRIES_OF_LEDGER
        [answer] = self._ask(v3.ListEntriesRequest(self._header(operation), ledger))
        known = self.model.get(ledger)
        if known is None:
            assert answer.code is Code.ENOLEDGER  # type: ignore[union-attr]
        elif known.standing == LIMBO:
            assert answer.code is Code.EUNKNOWNLEDGERSTATE  # type: ignore[union-attr]
        else:
            assert isinstance(answer, v3.ListEntriesResponse)
            assert list(decode(answer.availability)) == sorted(known.entries)

    @rule(ledger=LEDGERS)
    def set_limbo(self, ledger: int) -> None:
        """What phase one does, to ledgers that it has never seen, too."""
        self.bookie.set_states({ledger: LedgerRecord(RIGHT, fenced=True, limbo=True)})
        self.model.setdefault(ledger, Ledger()).standing = LIMBO

    @precondition(lambda self: any(known.standing == LIMBO for known in self.model.values()))
    @rule()
    def clear_limbo(self) -> None:
        """What repair does. The fence stays."""
        for ledger, known in self.model.items():
            if known.standing == LIMBO:
                self.bookie.set_states({ledger: LedgerRecord(RIGHT, fenced=True, limbo=False)})
                known.standing = FENCED

    @rule()
    def checkpoint(self) -> None:
        """Everything into the stored index."""
        self.store.checkpoint()

    @rule(clean=st.booleans(), host_crash=st.booleans())
    def restart(self, clean: bool, host_crash: bool) -> None:
        """A clean stop or a kill, and a start that takes it for what it was or for a lost host. Nothing is lost."""
        if clean:
            self.store.close()
        else:
            self.store.abandon()
        self._open(host_crash=host_crash and not clean)

    @rule()
    def count(self) -> None:
        """What the bookie tells of itself."""
        assert self.bookie.ledgers.total == len(self.model)
        limbo = sum(known.standing == LIMBO for known in self.model.values())
        assert self.bookie.ledgers.limbo == limbo


@pytest.mark.parametrize("examples", [40])
def test_a_bookie_answers_as_its_model(examples: int) -> None:
    run_state_machine_as_test(
        BookieMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
