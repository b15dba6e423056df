"""Each kind of process killed, stopped and hung: what goes out of service, what stays, and what comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BKBOX, BookieProcess, bkbox
from tests.harness.raw import EIO, ENOENTRY, EOK, RawClient, add_frame, payload_of, read_frame
from tests.harness.waiting import wait_for

LEDGERS = range(1, 9)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieProcess]:
    """One bookie with two disks and ledgers on both; what is killed in it takes about a second to come back."""
    root = tmp_path_factory.mktemp("processes")
    made = BookieProcess(root, f"sqlite:{root}/metadata.db")
    made.init(restart_backoff_initial_s=0.7, repair_retry_initial_s=600, repair_retry_max_s=600)
    made.start()
    with RawClient(made.port) as client:
        for ledger in LEDGERS:
            assert client.add(ledger, 0, b"%d" % ledger) == EOK
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


def codes(client: RawClient) -> dict[int, int]:
    return {ledger: client.read(ledger, 0).code for ledger in LEDGERS}


def a_disk_is_away(client: RawClient) -> dict[int, int]:
    found = codes(client)
    return found if EIO in found.values() else {}


def restarts(bookie: BookieProcess, role: str) -> list[int]:
    return [p["restarts"] for p in bookie.status()["processes"] if p["role"] == role]


def test_a_killed_worker_takes_only_its_disk_out_of_service(bookie: BookieProcess) -> None:
    before = restarts(bookie, "worker")
    with RawClient(bookie.port) as client:
        bookie.worker(0).kill()
        found = wait_for(lambda: a_disk_is_away(client), "a disk to be away")
        away = [ledger for ledger, code in found.items() if code == EIO]
        here = [ledger for ledger in LEDGERS if ledger not in away]
        assert len(away) == len(here) == 4
        assert {client.read(ledger, 99).code for ledger in away} == {EIO}
        assert {client.add(ledger, 1, b"x") for ledger in away} == {EIO}
        assert {client.fence(ledger).code for ledger in away} == {EIO}
        assert {client.read(ledger, 0).code for ledger in here} == {EOK}
        assert {client.add(ledger, 1, b"x") for ledger in here} == {EOK}
        assert client.add(1001, 0, b"a new ledger goes to the disk that is there") == EOK
        wait_for(lambda: set(codes(client).values()) == {EOK}, "the disk to be back")
        assert {client.read(ledger, 1).code for ledger in away} == {ENOENTRY}
        assert {client.add(ledger, 1, b"not fenced") for ledger in away} == {EOK}
        assert client.read(1001, 0).code == EOK
    assert restarts(bookie, "worker") == [before[0] + 1, before[1]]
    disk = bookie.status()["disks"][0]
    assert (disk["crash_class"], disk["limbo_ledgers"]) == ("process crash", 0)


def test_a_disk_is_in_service_once_its_requests_are_served(bookie: BookieProcess) -> None:
    """A front-end that has not read the list of a worker that is back refuses its requests."""

    def disk() -> tuple[str, str]:
        found = bookie.status()["disks"][0]
        return found["state"], found["reason"]

    stopped = bookie.children("frontend")
    for each in stopped:
        each.suspend()
    try:
        bookie.worker(0).kill()
        listing = ("out of service", "its ledgers are being listed")
        wait_for(lambda: disk() == listing, "the worker to be back")
    finally:
        for each in stopped:
            each.resume()
    wait_for(lambda: disk()[0] == "in service", "the disk to be back")
    with RawClient(bookie.port) as client:
        assert set(codes(client).values()) == {EOK}


def test_requests_that_a_killed_worker_had_are_answered_unknown(bookie: BookieProcess) -> None:
    with RawClient(bookie.port) as client:
        for worker in (bookie.worker(0), bookie.worker(1)):
            worker.suspend()
        frames = [add_frame(ledger, entry, b"x") for ledger in LEDGERS for entry in range(10, 20)]
        frames += [read_frame(ledger, 0) for ledger in LEDGERS]
        client.send(b"".join(frames))
        client.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.frame()
        client.sock.settimeout(20)
        for worker in (bookie.worker(0), bookie.worker(1)):
            worker.kill()
        assert {client.answer().code for _ in frames} == {EIO}
        wait_for(lambda: set(codes(client).values()) == {EOK}, "both disks to be back")


def test_a_killed_frontend_resets_connections_and_comes_back(bookie: BookieProcess) -> None:
    before = restarts(bookie, "frontend")
    with RawClient(bookie.port) as client:
        assert client.read(1, 0).code == EOK
        bookie.kill_frontends()
        with pytest.raises(EOFError):
            client.frame()
    # The supervisor keeps the port: connections wait and are served, none is refused.
    with RawClient(bookie.port, timeout=30) as client:
        assert set(codes(client).values()) == {EOK}
        assert client.add(1002, 0, b"new") == EOK
    wait_for(
        lambda: restarts(bookie, "frontend") == [each + 1 for each in before], "one restart of each"
    )


def test_a_frontend_that_comes_back_without_a_disk_denies_nothing(bookie: BookieProcess) -> None:
    """It does not know what is on the disk that has not been listed: no ledger is denied or created elsewhere."""
    for _ in range(2):  # a longer wait before the worker is back
        bookie.worker(0).kill()
        bookie.kill_frontends()
        with RawClient(bookie.port, timeout=30) as client:
            seen = set()
            found = codes(client)
            while EIO in found.values():
                seen.add(client.read(4711, 0).code)
                seen.add(client.add(4712, 0, b"elsewhere?"))
                found = codes(client)
            assert set(found.values()) == {EOK}
            assert seen <= {EIO, 1, 0}
    with RawClient(bookie.port) as client:
        for ledger in LEDGERS:
            assert payload_of(client.read(ledger, 0).body) == b"%d" % ledger


def test_a_killed_repair_worker_comes_back_and_nobody_notices(bookie: BookieProcess) -> None:
    before = restarts(bookie, "repair")
    (repair,) = bookie.children("repair")
    with RawClient(bookie.port) as client:
        repair.kill()
        assert set(codes(client).values()) == {EOK}
        wait_for(lambda: restarts(bookie, "repair") == [before[0] + 1], "it to be started again")
        wait_for(lambda: bookie.children("repair") not in ([], [repair]), "it to be back")
        assert set(codes(client).values()) == {EOK}


def test_repeated_deaths_wait_longer(bookie: BookieProcess) -> None:
    """Three deaths in a row: each is counted, and the disk comes back from the last, too."""
    before = restarts(bookie, "worker")
    with RawClient(bookie.port) as client:
        for _ in range(2):
            wait_for(lambda: len(bookie.children("worker")) == 2, "the worker to be back")
            bookie.worker(1).kill()
            wait_for(lambda: EIO in codes(client).values(), "the disk to be away")
        wait_for(lambda: set(codes(client).values()) == {EOK}, "the disk to be back")
    assert restarts(bookie, "worker") == [before[0], before[1] + 2]


# ---- the end of all of it -------------------------------------------------------------------------------


def gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=10)[1]


def test_children_die_with_the_supervisor(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"acked") == EOK
    children = bookie.children()
    assert len(children) == 3 + len(bookie.children("frontend"))
    # What they share has no name that a kill could leave behind.
    maps = [region.path for child in children for region in child.memory_maps()]
    assert not [path for path in maps if path.startswith("/dev/shm")]
    assert bookie.process is not None
    bookie.process.kill()
    assert gone(children)
    bookie.ensure_gone()
    bookie.start()
    assert [disk["crash_class"] for disk in bookie.status()["disks"]] == ["process crash"] * 2
    with RawClient(bookie.port) as client:
        assert payload_of(client.read(1, 0).body) == b"acked"


@pytest.mark.parametrize(
    "how", ["SIGTERM", "SIGINT", "SIGTERM to the group", "SIGINT to the group"]
)
def test_an_ordered_stop_under_load(make_bookie: MakeBookie, how: str) -> None:
    """Exit status 0, no marker, no process left; what was acknowledged is there, and the next start is a clean one."""
    bookie = make_bookie(ack_after="write").start(new_session=True)
    acked: list[int] = []

    def load() -> None:
        with RawClient(bookie.port) as client:
            try:
                for entry in range(100_000):
                    if client.add(1, entry, b"%d" % entry) == EOK:
                        acked.append(entry)
            except (EOFError, OSError):
                return

    writer = threading.Thread(target=load)
    writer.start()
    wait_for(lambda: len(acked) > 50, "some load")
    children = bookie.children()
    assert bookie.process is not None
    number = signal.SIGTERM if "TERM" in how else signal.SIGINT
    if "group" in how:
        os.killpg(bookie.process.pid, number)
    else:
        bookie.process.send_signal(number)
    assert bookie.process.wait(30) == 0, bookie.stderr
    writer.join(30)
    assert gone(children)
    assert not any((disk / "DIRTY").exists() for disk in bookie.disks)
    bookie.ensure_gone()
    bookie.start()
    assert [disk["crash_class"] for disk in bookie.status()["disks"]] == ["clean", "clean"]
    with RawClient(bookie.port) as client:
        client.send(b"".join(read_frame(1, entry) for entry in acked))
        assert {client.answer().code for _ in acked} == {EOK}


def test_a_stop_while_it_starts(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start(wait=False)
    wait_for(lambda: len(bookie.children()) >= 1, "the first child", pause=0.01)
    children = bookie.children()
    status = bookie.stop()
    assert gone(children)
    # 1: a disk that was still being opened is not called clean.
    assert status in (0, 1), bookie.stderr
    assert (status == 1) == any((disk / "DIRTY").exists() for disk in bookie.disks)
    bookie.start()
    status_document = bookie.status()
    assert status_document["limbo"]["ledgers"] == 0
    expected = "clean" if status == 0 else "process crash"
    assert expected in [disk["crash_class"] for disk in status_document["disks"]]


def test_a_hung_worker_is_killed_in_the_end_and_its_disk_stays_dirty(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie(stop_timeout_s=1).start()
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"acked") == EOK
    children = bookie.children()
    bookie.worker(0).suspend()
    assert bookie.stop() == 1
    assert gone(children)
    assert [(disk / "DIRTY").exists() for disk in bookie.disks] == [True, True]
    bookie.start()
    disks = bookie.status()["disks"]
    assert [disk["crash_class"] for disk in disks] == ["process crash"] * 2
    with RawClient(bookie.port) as client:
        assert payload_of(client.read(1, 0).body) == b"acked"


def test_the_status_of_a_stopped_bookie(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    for output in ("json", "table"):
        done = bkbox("status", "--config", str(bookie.config), "-o", output, check=False)
        assert done.returncode == 3
        assert done.stdout == ""
        assert "no bookie is running" in done.stderr


def test_children_cannot_be_started_by_hand(tmp_path: Path) -> None:
    for role in ("worker", "frontend", "repair"):
        command = [BKBOX[0], "-m", f"bkbox.{role}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 2
        assert (
            "started by the bkbox supervisor only" in done.stdout + done.stderr
            or "usage" in done.stderr
        )
