"""A disk that rests: active ledgers are unmarked, the log proves its own end, the tail is marked, and then there is
quiet. Whatever ends it in between, only ledgers that are marked active can lack an entry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkbox.bookie.bookie import Bookie
from bkbox.errors import BugError
from bkbox.storage.files import RealFiles
from bkbox.storage.log.records import AckAfter, Kind, LedgerRecord, decode_ledger
from bkbox.storage.log.scan import read_segment
from bkbox.storage.log.segment import ScannedRecord
from bkbox.storage.log.tail import read_tail
from bkbox.worker.commit_groups import CommitGroups
from bkbox.worker.stages import Stages
from tests.bookie.bench import add3, bookie_of, read3, statuses
from tests.harness import raw
from tests.harness.faultyfiles import Crash
from tests.harness.raw3 import EFENCED, EOK, FENCE
from tests.storage.bench import KEY, Host, entry, segment_name
from tests.storage.conftest import ram_path
from tests.worker.bench import Bench

__all__ = ["ram_path"]

SECOND_US = 1_000_000
MODES = list(AckAfter)


class Worker:
    """Groups over the disk of a host that can be lost, and a clock that goes on when the test says so."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.now_us = 0
        self.begin()

    def begin(self) -> None:
        """After a start of the disk."""
        ticks: Callable[[], int] = lambda: self.now_us  # noqa: E731
        self.store = self.host.store
        self.bookie: Bookie = bookie_of(self.store)
        self.groups = CommitGroups(self.store, self.bookie, Stages(0, ticks), ticks, lambda _: None)

    def add(self, ledger: int, *entries: int, payload: bytes = b"x", **options: bool) -> list[int]:
        frames = (add3(ledger, number, payload, key=KEY, **options) for number in entries)
        found = statuses(self.bookie, *frames)
        self.groups.go_on()
        return found

    def finish(self) -> None:
        """Wait for what is under way behind."""
        while any(task.future is not None for task in self.groups._tasks()):
            for task in self.groups._tasks():
                if task.future is not None:
                    task.future.exception(30)
            self.groups.on_background_done()

    def turn(self) -> bool:
        """Wait until the groups have something to do, and let them; whether they had."""
        self.finish()
        wait_us = self.groups.idle_wait_us
        if wait_us is None:
            return False
        self.now_us += wait_us
        self.groups.on_idle()
        self.finish()
        return True

    def prove_idle(self) -> None:
        for _ in range(50):
            if not self.turn():
                return
        raise AssertionError("it is never done")

    def active(self) -> set[int]:
        return {ledger for ledger, record in self.store.ledgers() if record.active}

    def marks(self, ledger: int) -> list[bool]:
        """Whether it is active, by each record of its state in the log, in order."""
        found: list[bool] = []

        def note(record: ScannedRecord) -> None:
            if record.kind is Kind.LEDGER and decode_ledger(record.body)[0] == ledger:
                found.append(decode_ledger(record.body)[1].active)

        for number in self.store.log.segments():
            path = self.host.disk.segment(number)
            read_segment(RealFiles(), path, segment_name(number), 0, note)
        return found

    def end(self) -> None:
        self.host.files.stop()
        self.groups.close()

    def kill(self) -> None:
        """The process; the next one."""
        self.end()
        self.host.kill()
        self.begin()

    def lose(self) -> None:
        """The host; the next one."""
        self.end()
        self.host.lose()
        self.begin()


Make = Callable[..., Worker]


@pytest.fixture
def make(ram_path: Path) -> Iterator[Make]:
    made: list[Worker] = []

    def one(mode: AckAfter = AckAfter.WRITE, seed: int = 1) -> Worker:
        made.append(Worker(Host(ram_path / str(len(made)), mode, seed)))
        return made[-1]

    yield one
    for worker in made:
        worker.end()
        worker.store.abandon()


# ---- active ledgers ------------------------------------------------------------------------------


def test_a_mark_is_durable_before_the_first_answer_that_no_sync_waits_for(make: Make) -> None:
    worker = make()
    for ledger in (1, 2):  # one that is known, and a new one
        before = worker.host.files.syncs
        assert worker.add(ledger, 0) == [EOK]
        assert worker.host.files.syncs == before + 1
        assert worker.add(ledger, 1, 2, deferred=True) == [EOK] * 2
        assert worker.add(ledger, 3) == [EOK]
        assert worker.host.files.syncs == before + 1
    worker.lose()
    assert worker.active() == {1, 2}
    assert worker.host.report.intact
    assert not worker.host.report.trusted


@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.JOURNAL])
def test_where_every_answer_waits_for_a_sync_no_ledger_is_active(
    make: Make, mode: AckAfter
) -> None:
    worker = make(mode)
    assert worker.add(1, 0, 1) == [EOK] * 2
    assert not worker.bookie.has_active
    assert worker.marks(1) == [False]


def test_nothing_is_marked_twice_and_a_rest_unmarks(make: Make) -> None:
    worker = make()
    for entry_id in range(5):
        worker.add(1, entry_id)
        worker.add(2, entry_id)
    assert (worker.marks(1), worker.marks(2)) == ([False, True], [True])
    worker.prove_idle()
    assert not worker.bookie.has_active
    assert worker.active() == set()
    for entry_id in range(5, 10):
        worker.add(1, entry_id)
    assert worker.active() == {1}
    assert (worker.marks(1), worker.marks(2)) == ([False, True, False, True], [True, False])
    worker.prove_idle()
    worker.lose()
    assert worker.host.report.intact
    assert worker.active() == set()
    assert statuses(worker.bookie, *(read3(1, n) for n in range(10))) == [EOK] * 10


def test_a_state_that_changes_keeps_the_mark(make: Make) -> None:
    worker = make()
    worker.add(1, 0)
    assert statuses(worker.bookie, read3(1, flag=FENCE, key=KEY)) == [EOK]
    assert worker.marks(1) == [False, True, True]
    worker.bookie.set_states({1: LedgerRecord(KEY, fenced=True, limbo=True, active=True)})
    worker.groups.go_on()
    worker.prove_idle()
    assert worker.store.ledger_state(1) == LedgerRecord(KEY, fenced=True, limbo=True)
    assert worker.add(1, 1) == [EFENCED]
    assert worker.active() == set(), "what is refused needs no mark"
    assert worker.add(1, 1, recovery=True) == [EOK]
    assert worker.active() == {1}


def test_marks_of_a_run_that_was_killed_end_with_the_next_rest(make: Make) -> None:
    worker = make()
    worker.add(1, 0)
    worker.add(2, 0)
    worker.kill()
    assert worker.host.report.trusted
    assert worker.bookie.has_active
    worker.prove_idle()
    assert worker.active() == set()


@pytest.mark.parametrize("mode", [AckAfter.WRITE, AckAfter.SYNC])
def test_after_a_lost_host_marks_stay_until_it_is_settled(make: Make, mode: AckAfter) -> None:
    """Phase one asks which ledgers are active, however long it waited for the metadata store, and whatever
    ``ack_after`` is now.
    """
    worker = make()
    worker.add(1, 0)
    worker.add(2, 0)
    worker.host.mode = mode
    worker.lose()
    assert worker.host.report.intact
    for _ in range(5):
        worker.now_us += 10 * SECOND_US
        worker.groups.on_idle()
        worker.finish()
    worker.groups.unmark_all()
    assert worker.groups.idle_wait_us is None
    assert worker.active() == {1, 2}
    worker.store.resolve_losses()
    worker.groups.go_on()
    worker.prove_idle()
    assert worker.active() == set()


def test_under_load_only_quiet_ledgers_are_unmarked(make: Make) -> None:
    worker = make()
    worker.add(1, 0)
    worker.add(2, 0)
    for number in range(1, 120):
        worker.now_us += SECOND_US // 10
        worker.add(1, number)
        worker.finish()
    assert worker.active() == {1}
    assert worker.marks(1) == [False, True], "one that is busy is never unmarked"


def test_an_add_while_the_sync_is_under_way_keeps_its_ledger_marked(make: Make) -> None:
    worker = make()
    worker.add(1, 0)
    worker.add(2, 0)
    assert worker.bookie.begin_unmark(everything=True)
    sync = worker.store.begin_sync()
    sync.run()
    assert worker.add(1, 1) == [EOK]
    worker.store.end_sync(sync)
    worker.bookie.unmark()
    assert worker.active() == {1}


# ---- proofs and marks ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_rest_ends_and_leaves_nothing_to_write(make: Make, mode: AckAfter) -> None:
    worker = make(mode)
    for ledger in range(1, 20):
        assert worker.add(ledger, 0, 1) == [EOK] * 2
    turns = 0
    while worker.turn():
        turns += 1
    assert turns < 12
    assert worker.store.is_durable
    assert worker.store.is_proven
    assert worker.store.tail_marks.due is None
    calls = worker.host.files.calls
    for _ in range(1_000):
        worker.now_us += SECOND_US
        assert worker.groups.idle_wait_us is None
        worker.groups.on_idle()
        worker.groups.on_background_done()
        worker.finish()
    assert worker.host.files.calls == calls
    mark = read_tail(RealFiles(), worker.host.disk.path)
    assert mark is not None
    if mode is not AckAfter.JOURNAL:
        assert (mark.segment, mark.offset) == worker.store.log.position[:2]
    worker.lose()
    assert worker.host.report.intact


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_to_which_nothing_was_ever_written_rests(make: Make, mode: AckAfter) -> None:
    worker = make(mode)
    worker.prove_idle()
    worker.kill()
    worker.prove_idle()
    calls = worker.host.files.calls
    worker.now_us += 100 * SECOND_US
    assert not worker.turn()
    assert worker.host.files.calls == calls


def test_states_are_proved_sooner_than_entries(make: Make) -> None:
    worker = make(AckAfter.SYNC)
    assert worker.add(1, 0) == [EOK]
    worker.prove_idle()
    assert statuses(worker.bookie, read3(1, flag=FENCE, key=KEY)) == [EOK]
    worker.groups.go_on()
    assert not worker.store.is_proven
    assert worker.groups.idle_wait_us == 10_000
    worker.now_us += 9_999
    worker.groups.on_idle()
    assert not worker.store.is_proven
    worker.now_us += 1
    worker.groups.on_idle()
    assert worker.store.is_proven
    assert worker.store.is_durable
    assert worker.groups.idle_wait_us == 490_000


def test_nothing_is_proved_that_is_not_durable(make: Make) -> None:
    worker = make()
    worker.store.append([entry(1, 0)])
    worker.store.index_appended()
    with pytest.raises(BugError, match="durable"):
        worker.store.prove()
    sync = worker.store.begin_sync()
    with pytest.raises(BugError, match="durable"):
        worker.store.prove()
    sync.run()
    worker.store.end_sync(sync)
    worker.store.prove()
    assert worker.store.is_proven


@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.WRITE])
def test_the_end_of_the_log_is_noted_within_ten_milliseconds(make: Make, mode: AckAfter) -> None:
    worker = make(mode)
    for number in range(3):
        assert worker.add(1, number) == [EOK]
        assert worker.groups.idle_wait_us in range(10_001)
        worker.now_us += worker.groups.idle_wait_us or 0
        worker.groups.on_idle()
        worker.finish()
        mark = read_tail(RealFiles(), worker.host.disk.path, written=True)
        assert mark is not None
        assert mark.offset == worker.store.position.offset


def test_while_a_sync_is_under_way_nothing_is_appended(tmp_path: Path) -> None:
    now = [0]
    bench = Bench(tmp_path, ticks=lambda: now[0])
    try:
        bench.send(raw.add_frame(1, 0, b"first"))
        bench.until(lambda: bench.codes() == [raw.EOK])
        bench.files.gate.clear()
        bench.send(raw.add_frame(1, 1, bytes(200_000)))
        appends = bench.files.appends
        for _ in range(10):
            now[0] += SECOND_US
            bench.groups.on_idle()
            assert bench.groups.idle_wait_us is None
        assert bench.files.appends == appends
        bench.files.gate.set()
        bench.until(lambda: bench.codes() == [raw.EOK])
        now[0] += SECOND_US
        bench.until(lambda: bool(bench.groups.on_idle()) or bench.groups._idle_at is not None)
        assert bench.store.is_proven
    finally:
        bench.close()


# ---- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 10, 60, 150, 250])
@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_is_full_rests_later(make: Make, mode: AckAfter, room: int) -> None:
    worker = make(mode)
    worker.add(1, 0)
    worker.add(2, 0)
    worker.host.files.budget = room
    worker.prove_idle()
    assert worker.store.health.failed_reason is None
    calls = worker.host.files.calls
    worker.now_us += 100 * SECOND_US
    assert not worker.turn(), "it is not tried for ever"
    assert worker.host.files.calls == calls
    worker.host.files.budget = None
    assert worker.add(1, 1) == [EOK]
    worker.prove_idle()
    assert worker.store.is_proven
    assert worker.store.tail_marks.due is None
    assert worker.active() == set()
    worker.lose()
    assert worker.host.report.intact
    assert statuses(worker.bookie, read3(1, 0), read3(1, 1), read3(2, 0)) == [EOK] * 3


@pytest.mark.parametrize("mode", MODES)
def test_a_disk_that_fails_at_rest_is_a_failed_disk(make: Make, mode: AckAfter) -> None:
    syncs = 0
    while True:
        worker = make(mode)
        worker.add(1, 0)
        syncs += 1
        worker.host.files.fail_sync(syncs)
        worker.prove_idle()
        if worker.store.health.failed_reason is None:
            break
        assert worker.groups.idle_wait_us is None
        assert worker.add(1, 1) != [EOK]
    assert syncs > 3, "each of the syncs of a rest has to fail once"


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_crash_at_each_step_of_a_rest_loses_nothing_that_is_not_active(
    make: Make, mode: AckAfter, lost: bool
) -> None:
    steps = 0
    while True:
        worker = make(mode, seed=steps)
        for ledger in (1, 2):
            assert worker.add(ledger, 0) == [EOK]
            assert worker.add(ledger, 1, payload=b"y" * 3_000) == [EOK]
        steps += 1
        worker.host.files.crash_at(steps)
        try:
            worker.prove_idle()
        except Crash:
            pass
        else:
            break
        worker.lose() if lost else worker.kill()
        assert worker.host.report.intact
        may_lack = worker.active() if lost and mode is AckAfter.WRITE else set()
        for ledger in {1, 2} - may_lack:
            assert statuses(worker.bookie, read3(ledger, 0), read3(ledger, 1)) == [EOK] * 2
        if mode is not AckAfter.WRITE:
            assert worker.host.report.trusted
        worker.store.resolve_losses()
        worker.groups.go_on()
        worker.prove_idle()
        assert worker.active() == set()
    assert steps > 4


@pytest.mark.parametrize("seed", range(60))
def test_only_active_ledgers_lack_anything_whenever_the_host_is_lost(make: Make, seed: int) -> None:
    rng = random.Random(seed)
    worker = make(AckAfter.WRITE, seed)
    acked: dict[int, list[int]] = {ledger: [] for ledger in range(1, 5)}
    fenced: set[int] = set()
    worker.host.files.crash_at(rng.randint(1, 150))
    try:
        while True:
            worker.now_us += rng.choice((1_000, 10_000, 100_000, 600_000, 6 * SECOND_US))
            ledger = rng.choice((1, 1, 1, 2, 3, 4))
            draw = rng.random()
            if draw < 0.55 and ledger not in fenced:
                number = len(acked[ledger])
                payload = rng.randbytes(rng.choice((5, 300, 2_000)))
                assert worker.add(ledger, number, payload=payload) == [EOK]
                acked[ledger].append(number)
            elif draw < 0.6 and acked[ledger]:
                assert statuses(worker.bookie, read3(ledger, flag=FENCE, key=KEY)) == [EOK]
                worker.groups.go_on()
                fenced.add(ledger)
            elif draw < 0.65:
                worker.finish()
                worker.store.checkpoint()
            elif draw < 0.9:
                worker.turn()
            else:
                worker.kill()
                worker.host.files.crash_at(rng.randint(1, 150))
            if len(fenced) == len(acked):
                raise Crash
    except Crash:
        pass
    worker.lose()
    assert worker.host.report.intact
    active = worker.active()
    for ledger, entries in acked.items():
        found = statuses(worker.bookie, *(read3(ledger, number) for number in entries))
        assert ledger in active or set(found) <= {EOK}
        if ledger in fenced:
            state = worker.store.ledger_state(ledger)
            assert state is not None
            assert state.fenced
