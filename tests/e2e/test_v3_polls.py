"""Long polls on real processes: what wakes them, what they do not hold up, and who dies while they wait."""

from __future__ import annotations

import signal
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.harness import raw
from tests.harness.processes import BookieProcess
from tests.harness.raw import RawClient, make_entry, master_key
from tests.harness.raw3 import EIO, ENOLEDGER, EOK, ETOOMANY, Answer, RawClient3
from tests.harness.waiting import wait_for

ENTRY, BODY, MAX_LAC, MOVED = 3, 4, 5, 6
LONG_MS = 250_000
"""Longer than any test may take: what is answered was woken."""
LEDGERS = range(1, 5)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    """One bookie with two disks, two of the ledgers on each."""
    root = tmp_path_factory.mktemp("polls")
    made = BookieProcess(root, f"sqlite:{root}/metadata.db")
    made.init(restart_backoff_initial_s=0.2, repair_retry_initial_s=600, repair_retry_max_s=600)
    made.start()
    with RawClient3(made.port) as client:
        for ledger in LEDGERS:
            assert client.add3(ledger, 0, b"%d" % ledger) == EOK
    yield made
    assert made.stop() == 0


@pytest.fixture
def bookie(running: BookieProcess) -> BookieProcess:
    """The bookie with all its processes up."""

    def whole() -> bool:
        status = running.status()
        return all(process["running"] for process in status["processes"]) and all(
            disk["state"] == "in service" for disk in status["disks"]
        )

    wait_for(whole, "every process to be up")
    return running


@pytest.fixture
def reader(bookie: BookieProcess) -> Iterator[RawClient3]:
    with RawClient3(bookie.port, timeout=60) as made:
        yield made


@pytest.fixture
def writer(bookie: BookieProcess) -> Iterator[RawClient3]:
    with RawClient3(bookie.port, timeout=60) as made:
        yield made


def add_v2(port: int, ledger: int, entry: int, lac: int) -> None:
    with RawClient(port) as client:
        body = struct.pack(">BBH", 2, 1, 0) + master_key() + make_entry(ledger, entry, b"", lac)
        client.send(struct.pack(">I", len(body)) + body)
        assert client.answer().code == raw.EOK


def part(answer: Answer) -> dict[int, int | bytes]:
    assert answer.status == EOK
    return answer.without_status()


@pytest.mark.parametrize("how", ["add of version 2", "add of version 3", "explicit LAC"])
def test_an_advance_of_the_lac_wakes(
    reader: RawClient3, writer: RawClient3, bookie: BookieProcess, how: str
) -> None:
    ledger = {"add of version 2": 101, "add of version 3": 102, "explicit LAC": 103}[how]
    assert writer.add3(ledger, 0, b"zero") == EOK
    txn = reader.poll(ledger, -1, LONG_MS)
    reader.settle(ledger)
    assert writer.add3(ledger, 1, b"no advance", lac=-1) == EOK
    if how == "add of version 2":
        add_v2(bookie.port, ledger, 2, lac=1)
    elif how == "add of version 3":
        assert writer.add3(ledger, 2, b"two", lac=1) == EOK
    else:
        assert writer.write_lac(ledger, 1) == EOK
    answer = reader.answer3()
    found = part(answer)
    assert answer.txn == txn
    assert (found[ENTRY], found[BODY], found[MAX_LAC]) == (0, make_entry(ledger, 0, b"zero"), 1)
    assert int(found[MOVED]) > 1_700_000_000_000


def test_a_fence_wakes_and_nothing_moved(reader: RawClient3, writer: RawClient3) -> None:
    assert writer.add3(111, 0) == EOK
    reader.poll(111, 7, LONG_MS)
    reader.settle(111)
    assert writer.fence3(111).status == EOK
    assert part(reader.answer3()) == {2: 111, ENTRY: -1, MAX_LAC: -1}


def test_the_time_out_wakes(reader: RawClient3, writer: RawClient3) -> None:
    assert writer.add3(112, 0, lac=-1) == EOK
    for timeout_ms in (300, 100, 1, 0):
        reader.poll(112, 3, timeout_ms)
    for _ in range(4):
        assert part(reader.answer3()) == {2: 112, ENTRY: -1, MAX_LAC: -1}
    txn = reader.poll(113, -1, LONG_MS)
    answer = reader.answer3()
    assert (answer.txn, answer.status) == (txn, ENOLEDGER)


def test_a_thousand_wait_while_adds_go_on(
    reader: RawClient3, writer: RawClient3, bookie: BookieProcess
) -> None:
    """Each add wakes those that have waited for it, in step with the writer."""
    ledger, count = 120, 1000
    assert writer.add3(ledger, 0) == EOK
    polls = {reader.poll(ledger, n, LONG_MS): n for n in range(count)}
    reader.settle(ledger)
    answers: list[Answer] = []
    taker = threading.Thread(target=lambda: answers.extend(reader.answer3() for _ in polls))
    taker.start()
    for entry in range(1, count + 2):
        assert writer.add3(ledger, entry, b"%d" % entry, lac=entry - 1) == EOK
    taker.join(60)
    assert len(answers) == count
    for answer in answers:
        previous, found = polls.pop(answer.txn), part(answer)
        assert found[ENTRY] == previous + 1
        assert int(found[MAX_LAC]) > previous
    assert reader.read3(ledger, 0).status == EOK


def test_polls_of_a_killed_worker_are_answered_unknown_once(
    reader: RawClient3, writer: RawClient3, bookie: BookieProcess
) -> None:
    polls = {reader.poll(ledger, 9, LONG_MS): ledger for ledger in LEDGERS for _ in range(3)}
    for ledger in LEDGERS:
        reader.settle(ledger)
    bookie.worker(0).kill()
    away = [reader.answer3() for _ in range(6)]
    assert {answer.status for answer in away} == {EIO}
    there = set(LEDGERS) - {polls.pop(answer.txn) for answer in away}
    assert len(polls) == 6
    assert len(there) == 2
    # The others still wait, nothing comes twice, and the disk that is away has no waiting.
    for ledger in there:
        assert writer.write_lac(ledger, 10) == EOK
    assert {reader.answer3().txn for _ in range(6)} == set(polls)
    for ledger in set(LEDGERS) - there:
        txn = reader.poll(ledger, 9, LONG_MS)
        wait_for(lambda ledger=ledger: writer.write_lac(ledger, 10) == EOK, "the disk to be back")
        assert reader.answer3().txn == txn


def test_a_worker_that_stands_still_is_asked_for_long_when_it_goes_on(
    reader: RawClient3, writer: RawClient3, bookie: BookieProcess
) -> None:
    workers = [bookie.worker(0), bookie.worker(1)]
    for worker in workers:
        worker.send_signal(signal.SIGSTOP)
    polls = [reader.poll(ledger, 20, LONG_MS) for ledger in LEDGERS]
    with RawClient3(bookie.port) as gone:
        for ledger in LEDGERS:
            gone.poll(ledger, 20, LONG_MS)
    for worker in workers:
        worker.send_signal(signal.SIGCONT)
    for ledger in LEDGERS:
        assert writer.write_lac(ledger, 30) == EOK
    assert sorted(reader.answer3().txn for _ in polls) == polls


def test_a_killed_frontend_leaves_no_polls_behind(bookie: BookieProcess) -> None:
    """Connections are counted from one again: a poll of before must not be answered to a stranger."""
    with RawClient3(bookie.port) as before:
        for ledger in LEDGERS:
            before.poll(ledger, 40, LONG_MS)
        for ledger in LEDGERS:
            before.settle(ledger)
        bookie.kill_frontends()
        with pytest.raises(EOFError):
            before.frame()
    with RawClient3(bookie.port, timeout=60) as after:
        for ledger in LEDGERS:
            wait_for(lambda ledger=ledger: after.write_lac(ledger, 50) == EOK, "the disk")
            assert after.read3(ledger, 0).status == EOK


def test_large_entries_that_nobody_takes_are_put_off(
    reader: RawClient3, writer: RawClient3
) -> None:
    """A client that asks and does not read has them only up to a bound."""
    large = b"L" * 4_000_000
    assert writer.add3(130, 0, large) == EOK
    for _ in range(60):
        reader.poll(130, -1, LONG_MS)
    reader.settle(130)
    assert writer.write_lac(130, 0) == EOK
    assert writer.read3(130, -1).status == EOK
    found = [reader.answer3().status for _ in range(60)]
    assert set(found) == {EOK, ETOOMANY}
    assert reader.read3(130, 0).status == EOK
