"""Damaged and full disks under a real bookie: clear errors, 'unknown' and never 'no', nothing acknowledged lost."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.errors import BootError, DamagedError
from bkbox.storage.disk import DiskStore
from bkbox.storage.files import RealFiles
from bkbox.storage.records import AckAfter
from tests.harness.cluster import NOBODY, create_ledgers, ledger_of
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox, wait_for
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

FENCED_LEDGER, OPEN_LEDGER = 1, 2
ENTRIES = 50


def payload(ledger: int, entry: int) -> bytes:
    return b"<%d/%d>" % (ledger, entry) * 20


def fill(bookie: BookieProcess) -> None:
    """Two ledgers that metadata knows, one of them fenced."""
    ensemble = [bookie.bookie_id, NOBODY]
    create_ledgers(bookie.metadata, [ledger_of(n, ensemble) for n in (FENCED_LEDGER, OPEN_LEDGER)])
    with RawClient(bookie.port) as client:
        for ledger in (FENCED_LEDGER, OPEN_LEDGER):
            client.send(b"".join(add_frame(ledger, n, payload(ledger, n)) for n in range(ENTRIES)))
            assert {client.answer().code for _ in range(ENTRIES)} == {EOK}
        assert client.fence(FENCED_LEDGER).code == EOK


def assert_whole(bookie: BookieProcess) -> None:
    with RawClient(bookie.port) as client:
        for ledger in (FENCED_LEDGER, OPEN_LEDGER):
            for entry in range(ENTRIES):
                answer = client.read(ledger, entry)
                assert (answer.code, payload_of(answer.body)) == (EOK, payload(ledger, entry))
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


@pytest.mark.parametrize("damage", ["gone", "no CURRENT", "empty MANIFEST", "all cut in half"])
def test_a_damaged_index_is_named_and_rebuilt(make_bookie: MakeBookie, damage: str) -> None:
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    index = bookie.disks[0] / "index"
    if damage == "gone":
        shutil.rmtree(index)
    elif damage == "no CURRENT":
        (index / "CURRENT").unlink()
    elif damage == "empty MANIFEST":
        for path in index.glob("MANIFEST*"):
            path.write_bytes(b"")
    else:
        for path in index.iterdir():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = bkbox("run", "--config", str(bookie.config), check=False)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert any("bkbox index rebuild" in line and str(index) in line for line in errors), done.stderr
    bkbox("index", "rebuild", "--config", str(bookie.config))
    bookie.start()
    assert_whole(bookie)


def test_no_cut_of_any_index_file_is_taken_for_an_empty_ledger(
    make_bookie: MakeBookie, tmp_path: Path
) -> None:
    """Every file of the index, cut at several places after a clean stop: all entries are found, or it says so."""
    bookie = make_bookie(disks=1).start()
    fill(bookie)
    assert bookie.stop() == 0
    whole, copy = bookie.disks[0], tmp_path / "copy"
    names = [path.name for path in (whole / "index").iterdir() if path.stat().st_size]
    assert any(name.startswith("MANIFEST") for name in names)
    for name in sorted(names):
        size = (whole / "index" / name).stat().st_size
        for kept in sorted({0, 1, size // 4, size // 2, size - 1}):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            with (copy / "index" / name).open("r+b") as file:
                file.truncate(kept)
            assert_found_or_said(copy, f"{name} cut to {kept} of {size} bytes")


def assert_found_or_said(disk: Path, what: str) -> None:
    store = DiskStore.open(
        RealFiles(),
        disk,
        ack_after=AckAfter.SYNC,
        journal_dir=None,
        segment_bytes_max=1 << 30,
        checkpoint_bytes=1 << 30,
        now_ms=lambda: 0,
    )
    try:
        store.replay(host_crash=False)
        for ledger in (FENCED_LEDGER, OPEN_LEDGER):
            state = store.ledger_state(ledger)
            assert state is not None, what
            assert state.fenced == (ledger == FENCED_LEDGER), what
            for entry in range(ENTRIES):
                found = store.read_entry(ledger, entry)
                assert found is not None, what
                assert payload_of(found) == payload(ledger, entry), what
    except (DamagedError, BootError):
        return
    finally:
        store.abandon()


def test_a_disk_whose_index_is_damaged_while_it_runs_stays_out_of_service(
    make_bookie: MakeBookie,
) -> None:
    bookie = make_bookie(restart_backoff_initial_s=0.05, restart_backoff_max_s=0.2).start()
    with RawClient(bookie.port) as client:
        for ledger in (1, 2):
            assert client.add(ledger, 0, b"%d" % ledger) == EOK
        shutil.rmtree(bookie.disks[0] / "index")
        bookie.worker(0).kill()

        def told() -> bool:
            warnings = bookie.status()["warnings"]
            return any("bkbox index rebuild" in warning["text"] for warning in warnings)

        wait_for(told, "the status to name the command")
        assert sorted(client.read(ledger, 0).code for ledger in (1, 2)) == [EOK, EIO]
    assert bookie.stop() == 1
    bkbox("index", "rebuild", "--config", str(bookie.config))
    bookie.start()
    assert bookie.status()["limbo"]["ledgers"] == 0
    with RawClient(bookie.port) as client:
        assert [payload_of(client.read(ledger, 0).body) for ledger in (1, 2)] == [b"1", b"2"]


# ---- the entry log ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("entry", [10, ENTRIES - 1])
@pytest.mark.parametrize("ack_after", ["sync", "write", "journal"])
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
        assert segments[-1].name in bookie.stderr


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
