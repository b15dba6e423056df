"""Groups that overlap with syncs and checkpoints: what is answered when, and what a start finds afterwards."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkbox.bookie.response_writer import ResponseWriter
from bkbox.storage.log.records import AckAfter
from bkbox.worker import commit_groups
from bkbox.worker.checkpoint_pace import CheckpointPace
from tests.harness import raw
from tests.harness.waiting import wait_for
from tests.worker.bench import Bench

LARGE = bytes(50_000)
MODES = list(AckAfter)

Make = Callable[..., Bench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Bench] = []

    def one(*arguments: object, **options: object) -> Bench:
        made.append(Bench(tmp_path, *arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for bench in made:
        bench.close(clean=False)


def adds(ledger: int, first: int, count: int, payload: bytes = LARGE) -> list[bytes]:
    return [raw.add_frame(ledger, first + i, payload) for i in range(count)]


def opened(make: Make, *arguments: object, **options: object) -> Bench:
    """With ledger 1, which has entry 0."""
    bench = make(*arguments, **options)
    bench.send(raw.add_frame(1, 0, b"first"))
    bench.until(lambda: bench.codes() == [raw.EOK])
    return bench


def test_nothing_is_acknowledged_before_it_is_synced_and_reads_wait_for_no_sync(make: Make) -> None:
    bench = opened(make, ticks=lambda: 0)  # the disk never rests
    bench.files.gate.clear()
    bench.send(*adds(1, 1, 3))
    bench.send(*adds(1, 4, 2))
    bench.send(raw.read_frame(1, 5), raw.read_frame(1, 0))
    assert bench.codes() == [raw.EOK] * 2, "only the reads"
    syncs = bench.files.syncs
    bench.files.gate.set()
    found: list[int] = []
    bench.until(lambda: found.extend(bench.codes()) or len(found) == 5)  # type: ignore[func-returns-value]
    assert found == [raw.EOK] * 5
    assert bench.files.syncs == syncs + 1, (
        "the second group came while the first one's sync was under way"
    )


def test_a_sync_covers_all_groups_that_came_while_the_one_before_was_under_way(make: Make) -> None:
    bench = opened(make, ticks=lambda: 0)  # the disk never rests
    bench.files.gate.clear()
    bench.send(*adds(1, 1, 2))
    syncs = bench.files.syncs
    for group in range(5):
        bench.send(*adds(1, 10 * group + 10, 2))
    bench.files.gate.set()
    found: list[int] = []
    bench.until(lambda: found.extend(bench.codes()) or len(found) == 12)  # type: ignore[func-returns-value]
    assert bench.files.syncs - syncs <= 2


def test_a_slow_disk_syncs_on_another_thread_however_little_there_is(make: Make) -> None:
    now_us = [0]
    took_us = [3_000, 0, 0]
    runs_here: list[bool] = []
    here = threading.current_thread()
    bench = opened(make, ticks=lambda: now_us[0])

    def before_sync(_number: int) -> None:
        now_us[0] += took_us[len(runs_here)]
        runs_here.append(threading.current_thread() is here)

    bench.files.before_sync = before_sync
    for entry in (1, 2, 3):
        bench.send(raw.add_frame(1, entry, b"little"))
        assert codes_until(bench, 1) == [raw.EOK]
    assert runs_here == [True, False, True], "the sync after the slow one, until one is fast again"


def with_a_sync_in_flight(make: Make) -> tuple[Bench, int]:
    """It waits at the gate, and has this number; two adds wait for it."""
    bench = opened(make, ticks=lambda: 0)  # the disk never rests
    bench.files.gate.clear()
    number = bench.files.syncs + 1
    bench.send(*adds(1, 1, 2))
    wait_for_sync(bench, number)
    return bench, number


def wait_for_sync(bench: Bench, number: int) -> None:
    """While the worker does nothing."""
    wait_for(lambda: bench.files.syncs == number, f"sync {number}", 30.0, 0.001)


def test_the_next_sync_starts_where_the_one_before_ends_whatever_the_worker_does(
    make: Make,
) -> None:
    bench, syncs = with_a_sync_in_flight(make)
    bench.send(*adds(1, 3, 1))
    bench.send(*adds(1, 4, 1))
    bench.files.gate.set()
    wait_for_sync(bench, syncs + 1)
    assert codes_until(bench, 4) == [raw.EOK] * 4


def test_a_sync_covers_nothing_that_was_written_after_it_started(make: Make) -> None:
    gates = {number: threading.Event() for number in range(20)}
    bench = opened(make, ticks=lambda: 0)  # the disk never rests
    syncs = bench.files.syncs
    bench.files.before_sync = lambda number: wait_for(gates[number - syncs].is_set, "its gate")
    try:
        bench.send(*adds(1, 1, 2))
        wait_for_sync(bench, syncs + 1)
        bench.send(*adds(1, 3, 2))
        bench.send(*adds(1, 5, 2))
        gates[1].set()
        wait_for_sync(bench, syncs + 2)
        assert codes_until(bench, 2) == [raw.EOK] * 2
        bench.send(*adds(1, 7, 2))
        bench.groups.on_background_done()
        assert bench.codes() == []
        gates[2].set()
        wait_for_sync(bench, syncs + 3)
        assert codes_until(bench, 4) == [raw.EOK] * 4
        bench.groups.on_background_done()
        assert bench.codes() == []
        gates[3].set()
        assert codes_until(bench, 2) == [raw.EOK] * 2
    finally:
        for gate in gates.values():
            gate.set()


def test_a_sync_that_waits_covers_the_segments_that_are_left_meanwhile(make: Make) -> None:
    bench = opened(make, segment_bytes_max=1 << 17, ticks=lambda: 0)  # the disk never rests
    gate, here = threading.Event(), threading.current_thread()
    bench.files.before_sync = lambda _number: wait_for(
        lambda: gate.is_set() or threading.current_thread() is here,  # the creation of a segment
        "the gate",
    )
    bench.send(*adds(1, 1, 2))
    for group in range(5):
        bench.send(*adds(1, 3 + 2 * group, 2))
    assert bench.store.log.position.segment > 3
    gate.set()
    assert codes_until(bench, 12) == [raw.EOK] * 12
    assert bench.store.is_durable
    bench.close(clean=False)
    again = Bench(bench.disk.parent)
    try:
        assert again.report.trusted
        assert again.store.entries(1) == [(0, 12)]
    finally:
        again.close()


def test_no_sync_runs_after_one_that_failed_and_none_is_taken_for_good(make: Make) -> None:
    """The next one could succeed: the kernel reports the failure once."""
    bench, syncs = with_a_sync_in_flight(make)
    bench.send(*adds(1, 3, 2))
    bench.files.fail = True
    bench.files.gate.set()
    wait_for(lambda: len(bench.groups._syncs._ended) == 2, "two syncs to end", 30.0, 0.001)
    bench.files.fail = False
    bench.send(*adds(1, 5, 2))  # before the worker knows of it
    assert codes_until(bench, 6) == [raw.EIO] * 6
    assert bench.files.syncs == syncs
    assert bench.store.health.failed_reason is not None


def test_a_checkpoint_begins_although_a_sync_is_always_in_flight(make: Make) -> None:
    bench = opened(make, checkpoint_bytes=1 << 19)
    permits = threading.Semaphore(0)
    bench.files.before_sync = lambda _number: permits.acquire(timeout=30)
    expected = bench.files.syncs + 1
    bench.send(*adds(1, 1, 2))
    for group in range(1, 20):
        bench.until(lambda expected=expected: bench.files.syncs == expected)  # type: ignore[misc]
        bench.send(*adds(1, 1 + 2 * group, 2))  # while the sync of the group before is in flight
        permits.release()
        expected += 1
        bench.codes()
    begun = bench.groups._checkpoint is not None
    permits.release(100)
    assert begun or bench.store.checkpoints.last.number > 1


def test_a_failed_sync_acknowledges_nothing_that_waited_for_it_or_came_after(make: Make) -> None:
    bench = opened(make)
    bench.files.gate.clear()
    bench.files.fail = True
    bench.send(*adds(1, 1, 3))
    bench.send(*adds(1, 4, 2))
    bench.files.gate.set()
    found: list[int] = []
    bench.until(lambda: found.extend(bench.codes()) or len(found) == 5)  # type: ignore[func-returns-value]
    assert found == [raw.EIO] * 5
    bench.send(*adds(1, 6, 1), raw.read_frame(1, 0))
    assert sorted(bench.codes()) == [raw.EOK, raw.EREADONLY]
    assert bench.store.health.failed_reason is not None


@pytest.mark.parametrize("mode", [AckAfter.SYNC, AckAfter.JOURNAL])
def test_who_waits_for_a_sync_that_cannot_begin_is_told(make: Make, mode: AckAfter) -> None:
    """Found by seed 982203622414: a write that failed where a sync fills the log ahead ended the worker."""
    bench = make(mode)
    bench.files.fail_fill = True
    bench.send(*adds(1, 0, 3, b"small"))
    assert codes_until(bench, 3) == [raw.EIO] * 3
    assert bench.store.health.failed_reason is not None
    bench.send(*adds(1, 3, 1))
    assert codes_until(bench, 1) == [raw.EREADONLY]


def codes_until(bench: Bench, count: int) -> list[int]:
    found: list[int] = []
    bench.until(lambda: found.extend(bench.codes()) or len(found) >= count)  # type: ignore[func-returns-value]
    return found


def cold(make: Make, **options: object) -> Bench:
    """With ledger 1, of which nothing is in memory, and a disk that does not answer."""
    bench = opened(make, **options)
    bench.send(*adds(1, 1, 4, b"second"))
    assert codes_until(bench, 4) == [raw.EOK] * 4
    bench.files.cold = True
    bench.files.read_gate.clear()
    bench.end.done = 0
    return bench


def test_a_read_that_waits_for_the_disk_holds_up_nobody_else(make: Make) -> None:
    bench = cold(make)
    bench.send(raw.read_frame(1, 0), raw.add_frame(1, 5, b"x"), raw.read_frame(1, 77))
    bench.send(raw.batch_frame(1, 1, 3, 1 << 20), raw.add_frame(1, 6, b"x"))
    bench.send(raw.add_frame(1, 7, b"x"))
    assert sorted(codes_until(bench, 4)) == sorted([raw.ENOENTRY, *[raw.EOK] * 3])
    assert bench.done == 1, "only the third one was answered whole"
    bench.files.read_gate.set()
    answers: list[bytes] = []
    bench.until(lambda: answers.extend(bench.answers()) or len(answers) == 2)  # type: ignore[func-returns-value]
    assert answers[0].endswith(b"first")
    assert answers[1].count(b"second") == 3
    assert bench.done == 3


def test_late_reads_are_answered_before_a_call_that_waits_for_all(make: Make) -> None:
    bench = cold(make)
    bench.send(raw.read_frame(1, 0))
    bench.send(raw.read_frame(1, 1))
    bench.files.read_gate.set()
    bench.groups.drain()
    assert bench.codes() == [raw.EOK] * 2
    assert bench.done == 2


def test_a_late_read_of_a_front_end_that_is_gone_is_answered_to_nobody(make: Make) -> None:
    bench = cold(make)
    bench.send(raw.read_frame(1, 0), raw.add_frame(1, 5, b"x"))
    assert codes_until(bench, 1) == [raw.EOK]
    bench.groups.detach(bench.link)
    bench.files.read_gate.set()
    bench.groups.drain()
    assert bench.answers() == []
    assert bench.store.read_entry(1, 5) is not None


@pytest.mark.parametrize("slots", [0, 1])
def test_reads_of_a_front_end_that_is_gone_are_not_answered_by_the_next_one(
    make: Make, slots: int
) -> None:
    """Its connections have the same numbers as those of the next one."""
    bench = cold(make)
    left = [
        memoryview(bytearray(100))
    ] * slots  # where one entry fits, or three answers without one

    def more(used: int) -> memoryview:
        if not left:
            raise EOFError("gone")
        return left.pop()

    frames = b"".join(raw.read_frame(1, entry) for entry in (0, 77, 78, 79, 80))
    work = bench.bookie.append(memoryview(frames), [(7, 5, 0, len(frames))])
    with pytest.raises(EOFError):
        bench.bookie.serve_reads(work, ResponseWriter(more))
    bench.bookie.forget_connections(range(1 << 32))
    bench.send(raw.read_frame(1, 4))
    bench.files.read_gate.set()
    answers: list[bytes] = []
    bench.until(lambda: answers.extend(bench.answers()) or bench.done == 1)  # type: ignore[func-returns-value]
    assert [int.from_bytes(body[16:24], "big") for body in answers] == [4]


def test_a_late_read_that_fails_is_no_missing_entry(make: Make) -> None:
    bench = cold(make)
    bench.send(raw.read_frame(1, 0))
    path = bench.disk / "entrylog" / "0000000001.log"
    at = path.read_bytes().index(b"first")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"wrong")
    bench.files.read_gate.set()
    assert codes_until(bench, 1) == [raw.EIO]


def test_a_fence_is_answered_when_it_is_durable_and_stops_adds_at_once(make: Make) -> None:
    bench = opened(make)
    bench.files.gate.clear()
    bench.send(*adds(1, 1, 3))
    bench.send(raw.read_frame(1, -1, raw.FENCE))
    bench.send(*adds(1, 4, 1, b"late"))
    assert bench.answers() == []
    bench.files.gate.set()
    found: list[int] = []
    bench.until(lambda: found.extend(bench.codes()) or len(found) == 5)  # type: ignore[func-returns-value]
    assert found == [raw.EOK] * 3 + [raw.EOK, raw.EFENCED]


def test_a_ledger_of_which_the_creation_is_not_durable_yet_keeps_its_key(make: Make) -> None:
    bench = opened(make)
    bench.files.gate.clear()
    bench.send(*adds(2, 0, 2))
    bench.send(raw.add_frame(2, 2, LARGE, key=raw.master_key(b"other")))
    bench.files.gate.set()
    found: list[int] = []
    bench.until(lambda: found.extend(bench.codes()) or len(found) == 3)  # type: ignore[func-returns-value]
    assert sorted(found) == [raw.EOK, raw.EOK, raw.EUA]


@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_go_on_behind_and_a_killed_process_finds_everything_again(
    make: Make, mode: AckAfter
) -> None:
    bench = opened(make, mode, checkpoint_bytes=1 << 19, segment_bytes_max=1 << 20)
    for group in range(40):
        ledger = 2 + group
        bench.send(*adds(ledger, 0, 2), *adds(1, 1 + group, 1))
        found: list[int] = []
        bench.until(lambda found=found: found.extend(bench.codes()) or len(found) == 3)
        assert found == [raw.EOK] * 3
    assert bench.store.checkpoints.last.number > 1
    bench.close(clean=False)
    again = Bench(bench.disk.parent, mode)
    try:
        assert again.report.trusted
        assert again.report.entries < 121, "what lay before the checkpoint was not read again"
        assert again.store.entries(1) == [(0, 40)]
        for group in range(40):
            assert again.store.entries(2 + group) == [(0, 1)]
            assert again.store.ledger_state(2 + group) is not None
        assert len(list(again.store.ledgers())) == 41
    finally:
        again.close()


def test_with_a_journal_nobody_waits_for_a_checkpoint(make: Make) -> None:
    bench = opened(make, AckAfter.JOURNAL, checkpoint_bytes=1 << 18)
    bench.files.log_gate.clear()
    for group in range(10):
        bench.send(*adds(1, 1 + 2 * group, 2))
        found: list[int] = []
        bench.until(lambda found=found: found.extend(bench.codes()) or len(found) == 2)
    assert bench.groups._checkpoint is not None, "it is under way all the time"


def test_a_checkpoint_takes_no_rest_once_its_end_is_waited_for_or_the_next_one_is_near(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_rest, go_on = threading.Event(), threading.Event()
    urgent: list[bool] = []

    class Watched(CheckpointPace):
        def rest(self) -> None:
            in_rest.set()
            assert go_on.wait(30)
            urgent.append(self._is_urgent())

    monkeypatch.setattr(commit_groups, "CheckpointPace", Watched)
    bench = opened(make, AckAfter.JOURNAL, checkpoint_bytes=1 << 20)

    def until_it_rests(first: int) -> None:
        urgent.clear()
        in_rest.clear()
        go_on.clear()
        for entry in itertools.count(first):
            if in_rest.is_set():
                return
            bench.send(*adds(1, entry, 1))
            bench.until(lambda: bool(bench.answers()))

    until_it_rests(1)
    go_on.set()
    bench.until(lambda: bench.groups._checkpoint is None)
    assert urgent
    assert not any(urgent)

    until_it_rests(1_000)
    bench.send(*adds(1, 2_000, 11))
    go_on.set()
    bench.until(lambda: bench.groups._checkpoint is None)
    assert urgent
    assert all(urgent), "half of the next one has come in"

    until_it_rests(3_000)
    threading.Timer(0.1, go_on.set).start()
    bench.groups.drain()
    assert urgent
    assert all(urgent), "somebody waits"

    until_it_rests(5_000)
    bench.groups.hurry()
    go_on.set()
    bench.until(lambda: bench.groups._checkpoint is None)
    assert urgent
    assert all(urgent), "the worker ends"


def test_nobody_waits_for_the_removal_of_files(make: Make) -> None:
    bench = opened(make, AckAfter.JOURNAL, checkpoint_bytes=1 << 18)
    bench.files.removal_gate.clear()
    number = bench.store.checkpoints.last.number
    for group in range(20):
        bench.send(*adds(1, 1 + 2 * group, 2))
        found: list[int] = []
        bench.until(lambda found=found: found.extend(bench.codes()) or len(found) == 2)  # type: ignore[misc]
    bench.until(lambda: bench.store.checkpoints.last.number > number + 2)
    journal = sorted((bench.disk.parent / "journal").rglob("*.log"))
    assert len(journal) > 3, "none is removed yet"
    bench.groups.drain()
    assert bench.groups._removing.future is not None
    bench.files.removal_gate.set()
    bench.until(lambda: not journal[2].exists())


def test_a_checkpoint_waits_for_states_that_are_not_durable(make: Make) -> None:
    """It would forget them: it lies behind their records, and the index it stores does not have them."""
    bench = opened(make, checkpoint_bytes=1 << 18)
    bench.files.gate.clear()
    bench.send(*adds(1, 1, 6))  # due, and under way
    bench.send(*adds(5, 0, 1))  # creates a ledger
    bench.files.gate.set()
    found: list[int] = []
    bench.until(lambda: found.extend(bench.codes()) or len(found) == 7)  # type: ignore[func-returns-value]
    bench.groups.drain()
    bench.close(clean=False)
    again = Bench(bench.disk.parent)
    try:
        assert again.store.ledger_state(5) is not None
        assert again.store.entries(5) == [(0, 0)]
    finally:
        again.close()


def test_a_front_end_that_goes_takes_its_answers_with_it_and_nothing_else(make: Make) -> None:
    bench = opened(make)
    bench.files.gate.clear()
    bench.send(*adds(3, 0, 3))
    bench.groups.detach(bench.link)
    bench.files.gate.set()
    bench.groups.drain()
    assert bench.store.ledger_state(3) is not None
    assert bench.store.entries(3) == [(0, 2)]
    assert bench.answers() == []


def test_a_slow_group_is_logged_once_a_second_with_its_stages(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    bench = opened(make, slow_us=1)
    for entry in range(1, 4):
        bench.send(raw.add_frame(1, entry, b"x"))
    lines = [record.getMessage() for record in caplog.records if "slow:" in record.getMessage()]
    assert len(lines) == 1
    assert all(f"{stage} " in lines[0] for stage in ("queue", "append", "index", "fsync", "reply"))
    assert bench.stages.values()["fsync"]["count"] == 4


# ---- what a thousand adds cost ----------------------------------------------------------------------

GROUPS = 10
EACH = 100


def thousand(bench: Bench, ledgers: int) -> None:
    entries = dict.fromkeys(range(1, ledgers + 1), 0)
    bench.send(
        *(raw.add_frame(ledger, 0, b"first") for ledger in entries)
    )  # so that they are known
    bench.until(lambda: len(bench.codes()) == ledgers)
    bench.files.appends = bench.files.syncs = bench.files.bytes = bench.end.sent = 0
    for group in range(GROUPS):
        frames = []
        for number in range(EACH):
            ledger = 1 + (group * EACH + number) % ledgers
            entries[ledger] += 1
            frames.append(raw.add_frame(ledger, entries[ledger], bytes(1_000)))
        bench.send(*frames)
        found: list[int] = []
        bench.until(lambda found=found: found.extend(bench.codes()) or len(found) == EACH)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("mode", "appends", "syncs"), [("sync", 1, 1), ("write", 1, 0), ("journal", 2, 1)]
)
def test_calls_for_a_thousand_adds(make: Make, mode: str, appends: int, syncs: int) -> None:
    """One write to each log, one sync and one message to the front-end for a group, however many adds it has."""
    bench = make(AckAfter(mode), ticks=lambda: 0)  # the disk never rests
    thousand(bench, 16)
    assert bench.files.appends == GROUPS * appends
    assert bench.files.syncs == GROUPS * syncs
    assert bench.sent == GROUPS


def test_bytes_written_for_a_byte(make: Make) -> None:
    """An entry of 1,000 bytes and its header, once, with no more than a record's header around it."""
    bench = make(ticks=lambda: 0)
    thousand(bench, 16)
    assert bench.files.bytes <= 1_000 * (1_000 + 32 + 20 + 16) + GROUPS * 48


@pytest.mark.parametrize(("ledgers", "keys"), [(1, 2), (16, 16), (100, 100)])
def test_index_keys_for_a_thousand_adds(make: Make, ledgers: int, keys: int) -> None:
    """A key for each ledger and each thousand entries of it, however they were interleaved."""
    bench = make()
    thousand(bench, ledgers)
    bench.groups.drain()
    bench.store.checkpoint()
    stored = bench.store.index._stored
    assert sum(len(list(stored.runs(ledger))) for ledger in range(1, ledgers + 1)) <= keys
