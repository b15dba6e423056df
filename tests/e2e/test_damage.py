"""Damaged and full disks under a real bookie: clear errors, 'unknown' and never 'no', nothing acknowledged lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bkbox.errors import DamagedError
from bkbox.ipc.messages.disk import OpenDisk
from bkbox.storage.files import RealFiles
from bkbox.storage.index.ordered_store import LevelStore
from bkbox.worker.disk_startup import Opening
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import (
    EFENCED,
    EIO,
    ENOENTRY,
    EOK,
    EREADONLY,
    FENCE,
    RawClient,
    add_frame,
    batch_frame,
    payload_of,
    read_frame,
)
from tests.harness.two_ledgers import (
    ENTRIES,
    FENCED_LEDGER,
    OPEN_LEDGER,
    assert_entries,
    fill,
    payload,
)
from tests.harness.waiting import wait_for


def assert_whole(bookie: BookieProcess) -> None:
    with RawClient(bookie.port) as client:
        assert_entries(client)
        for ledger in (FENCED_LEDGER, OPEN_LEDGER):
            assert client.read(ledger, ENTRIES).code == ENOENTRY
        assert client.add(FENCED_LEDGER, ENTRIES, b"late") == EFENCED


def flip(disk: Path, ledger: int, entry: int) -> None:
    """One bit in the payload of this entry, wherever in the entry log it is."""
    (segment,) = (
        path
        for path in (disk / "entrylog").iterdir()
        if payload(ledger, entry) in path.read_bytes()
    )
    data = bytearray(segment.read_bytes())
    data[data.index(payload(ledger, entry)) + 7] ^= 4
    segment.write_bytes(data)


# ---- the index ----------------------------------------------------------------------------------------


def test_a_damaged_index_is_made_anew_by_the_start(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    index = bookie.disks[0] / "index"
    for damage in (remove, remove_current, empty_manifests, cut_in_half):
        assert bookie.stop() == 0
        damage(index)
        bookie.start()
        status = bookie.status()
        found = (status["disks"][0]["crash_class"], status["limbo"]["ledgers"])
        assert found == ("clean", 0), damage
        assert any(
            "made anew" in reason and str(index) in reason for reason in status["boot"]["reasons"]
        ), damage
        wait_for(lambda: "its index is rebuilt from the entry log" in bookie.stderr, "the line")
        assert_whole(bookie)
    assert bookie.stop() == 0
    assert "made anew" not in str(bookie.start().status()["boot"]["reasons"])


def remove(index: Path) -> None:
    shutil.rmtree(index)


def remove_current(index: Path) -> None:
    (index / "CURRENT").unlink()


def empty_manifests(index: Path) -> None:
    for path in index.glob("MANIFEST*"):
        path.write_bytes(b"")


def cut_in_half(index: Path) -> None:
    for path in index.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_table_of_zeros_is_not_an_index_without_ledgers(make_bookie: MakeBookie) -> None:
    """No other table has a ledger: LevelDB finds nothing behind the one that cannot be read."""
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    bookie.start()
    assert bookie.stop() == 0
    index = bookie.disks[0] / "index"
    table = max(index.glob("*.ldb"), key=lambda path: path.stat().st_size)
    table.write_bytes(bytes(table.stat().st_size))
    bookie.start()
    wait_for(lambda: "its index is rebuilt from the entry log" in bookie.stderr, "the line")
    assert bookie.status()["limbo"]["ledgers"] == 0
    assert_whole(bookie)


def test_a_start_with_neither_an_index_nor_all_of_the_log_denies_nothing(
    make_bookie: MakeBookie,
) -> None:
    """The index is made of what can be read; because of the rest the ledgers go to limbo."""
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    flip(bookie.disks[0], OPEN_LEDGER, ENTRIES - 1)
    shutil.rmtree(bookie.disks[0] / "index")
    bookie.start()
    status = bookie.status()
    assert status["disks"][0]["crash_class"] == "host crash"
    with RawClient(bookie.port) as client:
        assert client.read(OPEN_LEDGER, ENTRIES - 1).code == EIO
        assert payload_of(client.read(OPEN_LEDGER, 3).body) == payload(OPEN_LEDGER, 3)
        assert client.add(FENCED_LEDGER, ENTRIES, b"late") == EFENCED


def test_every_file_of_the_index_removed_or_cut(make_bookie: MakeBookie, tmp_path: Path) -> None:
    """After a clean stop, and after a kill with two checkpoints before it: whatever is damaged, all is there."""
    bookie = make_bookie(disks=1, checkpoint_bytes=65_536).start()
    fill(bookie)
    assert bookie.stop() == 0
    bookie.start()
    with RawClient(bookie.port) as client:
        for entry in range(3):
            assert client.add(3, entry, bytes(70_000)) == EOK
        assert client.fence(4).code == ENOENTRY
    bookie.kill()
    copy = tmp_path / "copy"
    for disk in (tmp_path / "killed", tmp_path / "stopped"):
        if disk.name == "stopped":
            bookie.start()
            assert bookie.stop() == 0
        shutil.copytree(bookie.disks[0], disk, ignore=shutil.ignore_patterns("*.sock"))
        names = sorted(path.name for path in (disk / "index").iterdir())
        assert any(name.startswith("MANIFEST") for name in names)
        assert any(name.endswith(".ldb") for name in names)
        for name in names:
            size = (disk / "index" / name).stat().st_size
            for kept in [None, *sorted({0, size // 2, size - 1} & set(range(size)))]:
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(disk, copy)
                if kept is None:
                    (copy / "index" / name).unlink()
                else:
                    os.truncate(copy / "index" / name, kept)
                is_clean = disk.name == "stopped"
                assert_all_there(copy, is_clean, f"{name}: {kept} of {size} bytes left")


def assert_all_there(disk: Path, is_clean: bool, what: str) -> None:
    order = OpenDisk(
        path=str(disk),
        journal="",
        ack_after="sync",
        host_crash=False,
        is_clean=is_clean,
        generation=1,
        seen=[0, 0, 0],
        segment_bytes_max=1 << 30,
        checkpoint_bytes=1 << 30,
        slow_operation_ms=1000,
        disk_usage_max=1.0,
        disk_reserve_bytes=0,
    )
    opened = Opening(RealFiles(), order, lambda: 0, lambda: 0).run(lambda _done, _total: None)
    store = opened.store
    try:
        assert opened.report.trusted, what
        for ledger, fenced in ((FENCED_LEDGER, True), (OPEN_LEDGER, False), (3, False), (4, True)):
            state = store.ledger_state(ledger)
            assert state is not None, what
            assert state.fenced == fenced, what
        for ledger in (FENCED_LEDGER, OPEN_LEDGER):
            for entry in range(ENTRIES):
                found = store.read_entry(ledger, entry)
                assert found is not None, what
                assert payload_of(found) == payload(ledger, entry), what
        assert [store.read_entry(3, entry) is not None for entry in range(4)] == [True] * 3 + [
            False
        ]
    finally:
        store.abandon()


def test_a_disk_whose_index_is_gone_when_its_worker_ends_comes_back_by_itself(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie(restart_backoff_initial_s=0.05, restart_backoff_max_s=0.2).start()
    with RawClient(bookie.port) as client:
        for ledger in (1, 2):
            assert client.add(ledger, 0, b"%d" % ledger) == EOK
        shutil.rmtree(bookie.disks[0] / "index")
        bookie.worker(0).kill()
        wait_for(lambda: both_read(client), "the disk to be back in service", 10)
    assert bookie.status()["limbo"]["ledgers"] == 0
    assert bookie.stop() == 0


def both_read(client: RawClient) -> bool:
    """Whether entry 0 of ledgers 1 and 2 can be read; meanwhile they are unknown, never denied."""
    codes = [client.read(ledger, 0).code for ledger in (1, 2)]
    assert set(codes) <= {EOK, EIO}
    return codes == [EOK, EOK]


def test_an_index_that_turns_out_to_be_damaged_is_made_anew(make_bookie: MakeBookie) -> None:
    """A flipped bit in a table is seen when something in it is asked for: the worker ends, and makes the index anew."""
    bookie = make_bookie(disks=1, restart_backoff_initial_s=0.05, restart_backoff_max_s=0.2).start()
    with RawClient(bookie.port) as client:
        client.send(b"".join(add_frame(ledger, 0, b"%d" % ledger) for ledger in range(400)))
        assert {client.answer().code for _ in range(400)} == {EOK}
    assert bookie.stop() == 0
    flip_in_runs(bookie.disks[0] / "index")
    bookie.start()
    assert "made anew" not in bookie.stderr
    with RawClient(bookie.port) as client:

        def all_read() -> bool:
            codes = {client.read(ledger, 0).code for ledger in range(400)}
            assert codes <= {EOK, EIO}
            return codes == {EOK}

        assert not all_read()
        wait_for(all_read, "the index to be made anew", 20)
    wait_for(
        lambda: "this worker ends, and the next one rebuilds the index" in bookie.stderr, "the line"
    )
    assert bookie.status()["limbo"]["ledgers"] == 0


def flip_in_runs(index: Path) -> None:
    """A bit in a table, where there are runs of entries and no states of ledgers: these are read by every start."""
    table = max(index.glob("*.ldb"), key=lambda path: path.stat().st_size)
    data = table.read_bytes()
    for at in range(0, len(data), 97):
        table.write_bytes(data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :])
        with suppress(DamagedError):
            store = LevelStore(index)
            try:
                states = len(list(store.iterate(b"L", b"M")))
                with pytest.raises(DamagedError):
                    list(store.iterate(b"R", b"S"))
                assert states == 400
            except pytest.fail.Exception:
                continue
            finally:
                store.close()
            return
    pytest.fail("no such place")


# ---- the entry log ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "write"])
def test_a_log_that_is_gone_after_a_kill_denies_nothing(make_bookie: MakeBookie, mode: str) -> None:
    """At once, before a tail mark was synced: the one that was written says that there was a log."""
    bookie = make_bookie(disks=1, ack_after=mode).start()
    fill(bookie)
    bookie.kill()
    for segment in (bookie.disks[0] / "entrylog").iterdir():
        segment.unlink()
    bookie.start()
    assert bookie.status()["disks"][0]["crash_class"] == "host crash"
    with RawClient(bookie.port) as client:
        for ledger in (FENCED_LEDGER, OPEN_LEDGER):
            assert {client.read(ledger, entry).code for entry in range(ENTRIES)} == {EIO}
        assert client.add(FENCED_LEDGER, ENTRIES, b"late") != EOK


def test_a_flipped_bit_is_an_io_error_for_that_entry_only(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    flip(bookie.disks[0], OPEN_LEDGER, 20)
    bookie.start()
    with RawClient(bookie.port) as client:
        for entry in range(ENTRIES):
            answer = client.read(OPEN_LEDGER, entry)
            if entry == 20:
                assert answer.code == EIO
                assert answer.body == b""
            else:
                assert (answer.code, payload_of(answer.body)) == (EOK, payload(OPEN_LEDGER, entry))
        client.send(batch_frame(OPEN_LEDGER, 20, 5))
        assert client.answer().code == EIO
        client.send(batch_frame(OPEN_LEDGER, 18, 5))
        assert client.answer().code == EOK
        assert client.fence(FENCED_LEDGER, 0).code == EOK
        # Written again by repair it is whole again.
        assert client.add(OPEN_LEDGER, 20, payload(OPEN_LEDGER, 20)) == EOK
    assert_whole(bookie)


def test_a_flipped_bit_in_the_last_entry_is_an_io_error_for_minus_one(
    make_bookie: MakeBookie,
) -> None:
    """The last entry that can be read is not the last entry: a recovery must not end there."""
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    flip(bookie.disks[0], FENCED_LEDGER, ENTRIES - 1)
    bookie.start()
    with RawClient(bookie.port) as client:
        assert client.read(FENCED_LEDGER, -1).code == EIO
        assert client.fence(FENCED_LEDGER).code == EIO


@pytest.mark.parametrize(
    ("ack_after", "entry"),
    [
        ("sync", 10),
        ("write", ENTRIES - 1),
        pytest.param("sync", ENTRIES - 1, marks=pytest.mark.slow),
        pytest.param("write", 10, marks=pytest.mark.slow),
        pytest.param("journal", 10, marks=pytest.mark.slow),
        pytest.param("journal", ENTRIES - 1, marks=pytest.mark.slow),
    ],
)
def test_a_flipped_bit_found_by_the_replay_is_limbo(
    make_bookie: MakeBookie, ack_after: str, entry: int
) -> None:
    """Behind the checkpoint the index may not know the entry: only limbo keeps it from being denied."""
    bookie = make_bookie(disks=1, ack_after=ack_after, journal=ack_after == "journal").start()
    fill(bookie)
    bookie.kill()
    flip(bookie.disks[0], OPEN_LEDGER, entry)
    bookie.start()
    (disk,) = bookie.status()["disks"]
    assert disk["crash_class"] == "host crash"
    assert disk["limbo_ledgers"] == 2
    with RawClient(bookie.port) as client:
        assert client.read(OPEN_LEDGER, entry).code in (EIO, EOK)
        assert client.read(OPEN_LEDGER, 1000).code == EIO
        for other in set(range(ENTRIES)) - {entry}:
            assert payload_of(client.read(OPEN_LEDGER, other).body) == payload(OPEN_LEDGER, other)
        assert client.add(OPEN_LEDGER, ENTRIES, b"late") == EFENCED
    bookie.kill()
    bookie.start()
    with RawClient(bookie.port) as client:
        assert client.read(OPEN_LEDGER, entry).code in (EIO, EOK)
        assert client.read(OPEN_LEDGER, 1000).code == EIO


def test_a_segment_that_is_gone_is_limbo(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(disks=1, segment_bytes_max=4096, checkpoint_bytes=4096).start()
    fill(bookie)
    assert bookie.stop() == 0
    segments = sorted((bookie.disks[0] / "entrylog").iterdir())
    assert len(segments) > 2
    segments[-1].unlink()
    process = bookie.start(wait=False).process
    assert process is not None
    line = process.stdout.readline() if process.stdout else ""
    if line.startswith("ready"):
        with RawClient(bookie.port) as client:
            codes = {client.read(OPEN_LEDGER, entry).code for entry in range(ENTRIES)}
            assert codes <= {EOK, EIO}
            assert client.read(OPEN_LEDGER, 1000).code == EIO
    else:
        assert process.wait(20) not in (0, 2)
        wait_for(lambda: segments[-1].name in bookie.stderr, "the line")


# ---- a full disk ------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("reserve", [0, 4 << 20])
def test_a_full_disk_refuses_adds_serves_reads_and_comes_back(
    small_disk: Path, tmp_path: Path, reserve: int
) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/metadata.db")
    bookie.disks = [small_disk / "disk"]
    arguments = ["init", "--config", str(bookie.config), "--metadata", bookie.metadata]
    arguments += ["--listen", f"127.0.0.1:{bookie.port}", "--disk", str(bookie.disks[0])]
    for setting in (f"disk_reserve_bytes={reserve}", "disk_usage_max=1.0", f"run_dir={tmp_path}"):
        arguments += ["--set", setting]
    bkbox(*arguments)
    try:
        bookie.start()
        fill_up_and_free(bookie, small_disk / "other", reserve)
    finally:
        bookie.ensure_gone()


def fill_up_and_free(bookie: BookieProcess, other: Path, reserve: int) -> None:
    """Somebody else's file takes most of the room, the bookie the rest, and then the file goes."""
    other.write_bytes(bytes(12 << 20))
    chunk = b"C" * 100_000
    acked = []
    with RawClient(bookie.port) as client:
        assert client.add(2, 0, b"before") == EOK
        for entry in range(400):
            code = client.add(1, entry, chunk)
            if code != EOK:
                break
            acked.append(entry)
        assert code == EREADONLY
        assert acked
        assert client.add(3, 0, chunk) == EREADONLY
        for entry in acked:
            answer = client.read(1, entry)
            assert (answer.code, payload_of(answer.body) == chunk) == (EOK, True)
        assert client.read(1, acked[-1] + 1).code == ENOENTRY
        fenced = client.fence(2).code
        # What is kept back is kept back for fences. Without it a fence is durable or it is refused.
        assert fenced == EOK if reserve else fenced in (EOK, EIO)
        if fenced == EOK:
            assert client.add(2, 1, b"late") in (EFENCED, EREADONLY)
    wait_for(lambda: not bookie.status()["writable"], "the status to say so")

    bookie.kill()
    bookie.start()
    with RawClient(bookie.port) as client:
        for entry in acked:
            answer = client.read(1, entry)
            assert (answer.code, payload_of(answer.body) == chunk) == (EOK, True)
        assert payload_of(client.read(2, 0).body) == b"before"

    other.unlink()
    wait_for(lambda: bookie.status()["writable"], "the bookie to be writable again")
    with RawClient(bookie.port) as client:
        assert client.add(1, acked[-1] + 1, chunk) == EOK
        assert client.add(2, 1, b"x") == (EFENCED if fenced == EOK else EOK)
        client.send(read_frame(1, -1, FENCE))
        assert client.answer().code == EOK
    assert bookie.stop() == 0
