"""Where Java's bookie falls short of BP-46, row by row: what a boot, a fence, a cookie, a marker or an answer decides.

The rows about repair (8, 13, 14, 15, 17, 19) are in test_repair_rows.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path

import pytest

from bkbox.base.ids import LedgerId
from bkbox.client.client import connect
from bkbox.metadata import connect as connect_store
from bkbox.storage.disk import dirty_marker as markers
from bkbox.storage.disk.dirty_marker import Incarnation
from bkbox.storage.log.records import AckAfter
from bkbox.wire.codes import Code
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness.cluster import NOBODY, create_ledgers, empty, ledger_of, pretend_another_boot
from tests.harness.faultyfiles import CrashableFiles
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import (
    EFENCED,
    EIO,
    ENOENTRY,
    ENOLEDGER,
    EOK,
    HIGH_PRIORITY,
    RECOVERY,
    RawClient,
    payload_of,
)
from tests.harness.waiting import wait_for

FAILING = Path(__file__).parents[1] / "harness" / "failing"


def repair_cookie(bookie: BookieProcess) -> None:
    bkbox("cookie", "repair", "--config", str(bookie.config), "--yes")


def lose_disk(bookie: BookieProcess) -> None:
    """Stopped, emptied, repaired by command and started again."""
    bookie.stop()
    empty(bookie.disks[0])
    repair_cookie(bookie)
    bookie.start()


def contents(disk: Path) -> dict[str, bytes]:
    """All files but LOCK, which everybody who looks has to take."""
    return {p.name: p.read_bytes() for p in disk.iterdir() if p.is_file() and p.name != "LOCK"}


def test_row_01_phase_one_is_complete_before_the_port_opens(make_bookie: MakeBookie) -> None:
    """Java starts the check and serves at once; here the first connection finds every ledger marked."""
    bookie = make_bookie(disks=1).start()
    ledgers = range(1, 1001)
    create_ledgers(bookie.metadata, (ledger_of(n, [bookie.bookie_id, NOBODY]) for n in ledgers))
    bookie.stop()
    empty(bookie.disks[0])
    repair_cookie(bookie)
    bookie.start(wait=False)

    def connected() -> RawClient | None:
        try:
            return RawClient(bookie.port)
        except ConnectionRefusedError:
            return None

    with wait_for(connected, "the port to open", pause=0.001) as client:
        assert {client.read(ledger, 0).code for ledger in ledgers} == {EIO}
        assert {client.add(ledger, 0, b"late") for ledger in ledgers} == {EFENCED}
    bookie.wait_ready()


def test_row_02_limbo_and_fences_of_phase_one_survive_a_crash_and_a_clean_stop(
    make_bookie: MakeBookie,
) -> None:
    """Java keeps them in memory until an entry is flushed and loses them either way; here they are on disk first."""
    bookie = make_bookie(disks=1).start()
    create_ledgers(bookie.metadata, [ledger_of(1, [bookie.bookie_id, NOBODY])])
    lose_disk(bookie)
    for end in (bookie.kill, bookie.stop, bookie.kill):
        with RawClient(bookie.port) as client:
            assert client.read(1, 0).code == EIO
            assert client.add(1, 0, b"late") == EFENCED
        end()
        bookie.start()
    with RawClient(bookie.port) as client:
        assert client.read(1, 0).code == EIO
        assert client.add(1, 0, b"late") == EFENCED


def test_row_03_closed_ledgers_and_those_that_left_this_bookie_are_fenced(
    make_bookie: MakeBookie,
) -> None:
    """Java fences open ledgers of the last ensemble only; here a stale writer finds none of its ledgers open."""
    bookie = make_bookie(disks=1).start()
    us, other = bookie.bookie_id, "127.0.0.1:2"
    closed = LedgerState.CLOSED
    create_ledgers(
        bookie.metadata,
        [
            ledger_of(1, [us, NOBODY], state=closed, last_entry=4),
            ledger_of(2, [us, NOBODY], [other, NOBODY]),
            ledger_of(3, [us, NOBODY], [other, NOBODY], state=LedgerState.IN_RECOVERY),
            ledger_of(4, [other, NOBODY], state=closed, last_entry=4),
            ledger_of(5, [other, NOBODY], state=LedgerState.IN_RECOVERY),
            ledger_of(6, [other, NOBODY]),
        ],
    )
    lose_disk(bookie)
    with RawClient(bookie.port) as client:
        assert [client.add(ledger, 0, b"late") for ledger in range(1, 6)] == [EFENCED] * 5
        assert [client.read(ledger, 0).code for ledger in (1, 2, 3)] == [EIO] * 3
        assert client.read(6, 0).code == ENOLEDGER
        assert client.add(6, 0, b"nobody has fenced this one") == EOK


def test_row_04_limbo_outlasts_recovery_until_the_entries_are_back(make_bookie: MakeBookie) -> None:
    """Java clears limbo when the ledger is closed, before it copies; here it stays until nothing is missing."""
    quick = {"disks": 1, "repair_retry_initial_s": 0.2, "repair_retry_max_s": 0.5}
    first, second = (make_bookie(name, **quick).start() for name in ("first", "second"))
    ensemble = [first.bookie_id, second.bookie_id]
    metadata = ledger_of(1, ensemble, state=LedgerState.CLOSED, last_entry=4)
    create_ledgers(first.metadata, [metadata])
    for bookie in (first, second):
        with RawClient(bookie.port) as client:
            assert [client.add(1, entry, b"%d" % entry) for entry in range(5)] == [EOK] * 5
    second.stop()
    lose_disk(first)
    with RawClient(first.port) as client:
        wait_for(lambda: first.status()["limbo"]["blockers"], "repair to be stuck")
        assert [client.read(1, entry).code for entry in range(6)] == [EIO] * 6
        second.start()
        wait_for(lambda: first.status()["limbo"]["ledgers"] == 0, "limbo to be empty", timeout=60)
        # Never a negative in between is what tests/crash shows; here: the end of it.
        answers = [client.read(1, entry) for entry in range(5)]
        assert [payload_of(answer.body) for answer in answers] == [b"0", b"1", b"2", b"3", b"4"]
        assert client.read(1, 5).code == ENOENTRY
        assert client.add(1, 5, b"late") == EFENCED


def test_row_05_a_failed_sync_leaves_the_marker_and_the_next_start_knows(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    """Java clears the mark after failed shutdowns, too; here a disk that failed is never called clean."""
    bookie = make_bookie(disks=1)
    trigger = tmp_path / "fail"
    paths = f"{FAILING}:{os.getcwd()}"
    bookie.start(environment={"PYTHONPATH": paths, "FAILING_SYNC": str(trigger)})
    create_ledgers(bookie.metadata, [ledger_of(1, [bookie.bookie_id, NOBODY])])
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"acked") == EOK
        trigger.touch()
        assert client.add(1, 1, b"not acked") == EIO
        trigger.unlink()
        # Never retried as if nothing had happened: the pages may be gone though the next sync succeeds.
        assert client.add(1, 2, b"refused") != EOK
        assert client.fence(2).code == EIO
        assert payload_of(client.read(1, 0).body) == b"acked"
    wait_for(lambda: bookie.status()["disks"][0]["state"] == "failed", "the status to say so")
    assert not bookie.status()["writable"]
    assert bookie.stop() == 1
    assert (bookie.disks[0] / "DIRTY").exists()
    bookie.start()
    (disk,) = bookie.status()["disks"]
    assert (disk["crash_class"], disk["limbo_ledgers"]) == ("host crash", 1)
    with RawClient(bookie.port) as client:
        assert payload_of(client.read(1, 0).body) == b"acked"
        assert client.read(1, 1).code in (EIO, EOK)
        assert client.read(1, 2).code == EIO


@pytest.mark.parametrize("seed", range(10))
def test_row_06_the_marker_survives_a_lost_host(tmp_path: Path, seed: int) -> None:
    """Java's mark is an unsynced file; here file and name are synced before anything else is written."""
    rng = random.Random(seed)
    files = CrashableFiles(tmp_path, rng)
    run = Incarnation("boot", AckAfter.WRITE, "run")
    assert markers.begin_run(files, tmp_path, run) is None
    files.lose_host()
    assert markers.read_marker(files, tmp_path) == markers.Marker(runs=(run,))


def test_row_07_a_crash_without_a_journal_counts_with_the_journal_back_on(
    make_bookie: MakeBookie,
) -> None:
    """Java looks at the mode of the next boot; here the marker holds the mode of the run that crashed."""
    bookie = make_bookie(disks=1, journal=True, ack_after="write").start()
    create_ledgers(bookie.metadata, [ledger_of(1, [bookie.bookie_id, NOBODY])])
    with RawClient(bookie.port) as client:
        assert client.add(1, 0, b"acked") == EOK
    bookie.kill()
    pretend_another_boot(bookie.disks)
    text = bookie.config.read_text()
    bookie.config.write_text(text.replace('ack_after = "write"', 'ack_after = "journal"'))
    bookie.start()
    status = bookie.status()
    assert (status["ack_after"], status["limbo"]["ledgers"]) == ("journal", 1)
    with RawClient(bookie.port) as client:
        assert client.read(1, 1).code == EIO


def test_row_09_a_command_repairs_the_cookies(make_bookie: MakeBookie) -> None:
    """Java has none where automatic fixing is off; here the refusal names it, and it asks before it does anything."""
    bookie = make_bookie(disks=1)
    empty(bookie.disks[0])
    command = ["cookie", "repair", "--config", str(bookie.config)]
    refused = bkbox("run", "--config", str(bookie.config), check=False)
    assert refused.returncode == 4
    assert "bkbox " + " ".join(command) in refused.stderr
    asked = bkbox(*command, check=False, input="n\n")
    assert asked.returncode != 0
    assert "replacement of a lost disk" in asked.stderr
    assert not (bookie.disks[0] / "DISK").exists()
    bkbox(*command, input="y\n")
    bookie.start()


def test_row_10_the_code_for_unknown() -> None:
    """BP-46 names it EUNKNOWN, Java EUNKNOWNLEDGERSTATE; here it has Java's name and numbers."""
    assert (Code.EUNKNOWNLEDGERSTATE.v2, Code.EUNKNOWNLEDGERSTATE.v3) == (107, 507)


def test_row_11_limbo_serves_what_is_there(make_bookie: MakeBookie) -> None:
    """Java refuses reads of the LAC in limbo; here whatever is there is an answer, and only its absence is unknown."""
    bookie = make_bookie(disks=1, ack_after="write").start()
    create_ledgers(bookie.metadata, [ledger_of(1, [bookie.bookie_id, NOBODY])])
    with RawClient(bookie.port) as client:
        assert [client.add(1, entry, b"%d" % entry) for entry in range(3)] == [EOK] * 3
    bookie.kill()
    pretend_another_boot(bookie.disks)
    bookie.start()
    with RawClient(bookie.port) as client:
        answer = client.read(1, -1)
        assert (answer.code, payload_of(answer.body)) == (EOK, b"2")
        answer = client.fence(1)
        assert (answer.code, payload_of(answer.body)) == (EOK, b"2")
        assert client.read(1, 3).code == EIO
        assert client.add(1, 3, b"copied", RECOVERY | HIGH_PRIORITY) == EOK
        assert payload_of(client.read(1, -1).body) == b"copied"


def test_row_12_one_copy_is_enough_for_recovery_and_is_written_back(
    make_bookie: MakeBookie,
) -> None:
    """BP-46 asks for AQ positive answers, Java for one; one is safe here, too, because it is written back to AQ.

    A 'no' that came first would be as right: nobody was told that the entry is there. So it has to come second.
    """
    bookies = [make_bookie(name, disks=1).start() for name in ("first", "second")]
    first, second = bookies
    create_ledgers(first.metadata, [ledger_of(1, [first.bookie_id, second.bookie_id])])
    with RawClient(first.port) as client:
        assert client.add(1, 0, b"on one of two") == EOK

    silent = second.children("frontend")

    async def recover() -> None:
        async with connect(first.metadata) as client:
            for process in silent:
                process.suspend()
            recovery = asyncio.ensure_future(client.recover(LedgerId(1)))
            with RawClient(first.port) as writer:
                while await asyncio.to_thread(writer.add, 1, 0, b"on one of two") != EFENCED:
                    assert not recovery.done()
            await asyncio.sleep(1)  # for its answer to the read that comes next
            for process in silent:
                process.resume()
            await recovery

    async def last_entry() -> tuple[LedgerState, int]:
        async with await connect_store(first.metadata) as store:
            found = (await store.read_ledger(LedgerId(1))).value
            return found.state, found.last_entry

    asyncio.run(recover())
    assert asyncio.run(last_entry()) == (LedgerState.CLOSED, 0)
    for bookie in bookies:
        with RawClient(bookie.port) as client:
            assert payload_of(client.read(1, 0).body) == b"on one of two"


def test_row_16_disks_of_others_are_never_stamped_over(make_bookie: MakeBookie) -> None:
    """Java's automatic fix overwrites any cookie that differs; here only what is ours or empty is ever written to."""
    bookie = make_bookie("ours", disks=2, auto_fix_cookies="true")
    other = make_bookie("other", disks=1)
    disk = bookie.disks[0]
    strange = {"somebody else's": b"holiday pictures"}
    for source in (other.disks[0], None):
        shutil.rmtree(disk)
        if source is not None:
            shutil.copytree(source, disk)
        else:
            disk.mkdir()
            for name, data in strange.items():
                (disk / name).write_bytes(data)
        before = contents(disk)
        assert bkbox("run", "--config", str(bookie.config), check=False).returncode == 4
        repaired = bkbox("cookie", "repair", "--config", str(bookie.config), "--yes", check=False)
        assert repaired.returncode != 0
        assert contents(disk) == before


def worker_is_back(bookie: BookieProcess, restarts: int) -> bool:
    status = bookie.status()
    (worker,) = (each for each in status["processes"] if each["role"] == "worker")
    (disk,) = status["disks"]
    return (worker["restarts"], disk["state"]) == (restarts, "in service")


def test_row_18_repair_survives_the_end_of_a_disk_s_worker(make_bookie: MakeBookie) -> None:
    """Java's integrity service polls a storage that was closed and kills the JVM; here a dead worker is waited for."""
    bookie = make_bookie(
        disks=1,
        repair_retry_initial_s=0.05,
        repair_retry_max_s=0.1,
        restart_backoff_initial_s=0.05,
    ).start()
    create_ledgers(bookie.metadata, [ledger_of(1, [bookie.bookie_id, NOBODY])])
    lose_disk(bookie)
    (repair,) = bookie.children("repair")
    with RawClient(bookie.port) as client:
        for deaths in range(1, 4):
            bookie.worker(0).kill()
            wait_for(lambda n=deaths: worker_is_back(bookie, n), "the disk to be back")
            assert client.read(1, 0).code == EIO
    assert repair.is_running()
    wait_for(lambda: bookie.status()["limbo"]["blockers"], "repair to be at work again")
    roles = {each["role"]: each["restarts"] for each in bookie.status()["processes"]}
    assert (roles["repair"], roles["worker"]) == (0, 3)


@pytest.mark.parametrize("ack_after", ["sync", "write", "journal"])
def test_row_20_there_is_one_storage_and_every_mode_has_limbo(
    make_bookie: MakeBookie, ack_after: str
) -> None:
    """Java's limbo works with one of three storages, unchecked; here no configuration is without it."""
    bookie = make_bookie(disks=1, ack_after=ack_after, journal=ack_after == "journal").start()
    create_ledgers(bookie.metadata, [ledger_of(1, [bookie.bookie_id, NOBODY])])
    lose_disk(bookie)
    with RawClient(bookie.port) as client:
        assert client.read(1, 0).code == EIO
        assert client.add(1, 0, b"late") == EFENCED


@pytest.mark.parametrize("ack_after", ["sync", "write"])
def test_row_20_data_never_goes_to_a_journal_that_is_not_used(
    make_bookie: MakeBookie, ack_after: str
) -> None:
    """Java's journal can be bypassed; here one that is configured, and not acknowledged after, does not grow."""
    bookie = make_bookie(disks=1, journal=True, ack_after=ack_after).start()

    def journal_bytes() -> int:
        return sum(
            path.stat().st_size
            for path in (bookie.root / "journal").rglob("*")
            if path.is_file() and path.name != "LOCK"
        )

    before = journal_bytes()
    with RawClient(bookie.port) as client:
        assert {client.add(1, entry, bytes(10_000)) for entry in range(50)} == {EOK}
    assert journal_bytes() == before
    assert bookie.stop() == 0
    assert journal_bytes() == before
