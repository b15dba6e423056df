"""One disk that cannot be opened keeps the others neither from starting nor from serving, and denies nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.storage.disk import dirty_marker
from bkbox.storage.disk.reserve import RESERVE_NAME, START_BYTES, free_reserve_if_full
from bkbox.storage.files import RealFiles, Space
from tests.harness.cluster import create_ledgers, ledger_of
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import EIO, EOK, RawClient
from tests.harness.waiting import wait_for
from tests.repair.space.fulldisk import fill_to_the_last_byte

HOOKS = Path(__file__).parent / "hooks"
LEDGERS = range(1, 13)
NEW = 100


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Every disk on a small file system of its own."""
    mounted = []
    for number in range(1, 4):
        path = tmp_path / "bookie" / f"disk{number}"
        path.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(path)]
        if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("mounting a tmpfs is not allowed here")
        mounted.append(path)
    yield tmp_path
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def bookie(root: Path) -> Iterator[BookieProcess]:
    """With entry 0 of each ledger, on all of its disks."""
    made = BookieProcess(root, f"sqlite:{root}/metadata.db").init(
        disks=3,
        run_dir=root,
        disk_reserve_bytes=0,
        segment_bytes_max=4 << 20,
        ack_after="write",
        restart_backoff_initial_s=0.1,
        restart_backoff_max_s=0.3,
    )
    create_ledgers(made.metadata, [ledger_of(each, [made.bookie_id]) for each in LEDGERS])
    try:
        made.start()
        with RawClient(made.port) as client:
            assert {client.add(ledger, 0, b"entry") for ledger in LEDGERS} == {EOK}
        made.kill()
        yield made
    finally:
        made.ensure_gone()


def codes(bookie: BookieProcess) -> dict[int, int]:
    with RawClient(bookie.port) as client:
        return {ledger: client.read(ledger, 0).code for ledger in LEDGERS}


def states(bookie: BookieProcess) -> list[str]:
    return [disk["state"] for disk in bookie.status()["disks"]]


def fill(disk: Path) -> None:
    (disk / "other").touch()
    fill_to_the_last_byte(disk)


def test_a_full_disk_is_out_of_service_and_the_others_serve(bookie: BookieProcess) -> None:
    fill(bookie.disks[1])
    for _ in range(2):
        bookie.start()
        assert states(bookie) == ["in service", "out of service", "in service"]
        found = codes(bookie)
        away = [ledger for ledger, code in found.items() if code == EIO]
        there = [ledger for ledger, code in found.items() if code == EOK]
        assert away, "what is on the full disk is not denied"
        assert there
        assert len(away) + len(there) == len(LEDGERS)
        with RawClient(bookie.port) as client:
            assert {client.add(ledger, 1, b"entry") for ledger in there} == {EOK}
            assert client.add(away[0], 1, b"entry") == EIO
            assert client.add(NEW, 0, b"entry") == EIO, "it could be on the full disk"
        status = bookie.status()
        assert not status["writable"]
        assert "a disk is out of service" in status["read_only_reasons"]
        said = {each["command"]: each["text"] for each in status["warnings"]}
        assert "No space left" in said[f"df -h {bookie.disks[1]}"]
        bookie.kill()

    bookie.start()
    (bookie.disks[1] / "other").unlink()
    wait_for(lambda: states(bookie) == ["in service"] * 3, "the disk to come back")
    assert set(codes(bookie).values()) == {EOK}
    wait_for(lambda: bookie.status()["writable"], "the bookie to be writable")
    with RawClient(bookie.port) as client:
        assert client.add(NEW, 0, b"entry") == EOK
    assert bookie.stop() == 0


def test_a_disk_that_cannot_be_opened_is_out_of_service(bookie: BookieProcess) -> None:
    log = bookie.disks[0] / "entrylog"
    log.rename(log.with_name("away"))
    log.touch()
    bookie.start()
    assert states(bookie) == ["failed", "in service", "in service"]
    assert set(codes(bookie).values()) == {EIO, EOK}
    view = bkbox("disk", "list", "--config", str(bookie.config), "-o", "json")
    assert "bkbox disk replace" in json.loads(view.stdout)[0]["what_to_do"]
    log.unlink()
    log.with_name("away").rename(log)
    wait_for(lambda: states(bookie) == ["in service"] * 3, "the disk to come back")
    assert set(codes(bookie).values()) == {EOK}
    assert bookie.stop() == 0


def test_a_sync_that_fails_while_a_disk_is_opened_is_noted_elsewhere(
    bookie: BookieProcess, tmp_path: Path
) -> None:
    """The disk itself does not take the note, and opens without an error the next time."""
    failed = tmp_path / "failed"
    bookie.start(environment={"FAILED_SYNC": str(failed), "PYTHONPATH": str(HOOKS)})
    wait_for(lambda: states(bookie) == ["in service"] * 3, "the disk to come back")
    assert failed.exists()
    classes = sorted(disk["crash_class"] for disk in bookie.status()["disks"])
    assert classes == ["host crash", "process crash", "process crash"]
    assert set(codes(bookie).values()) <= {EOK, EIO}


def test_a_disk_that_may_have_lost_something_waits_for_the_one_that_is_away(
    bookie: BookieProcess,
) -> None:
    """A ledger on no list may have been lost there, or be on the other: so neither is said."""
    bookie.start()
    held = [disk["ledgers"] for disk in bookie.status()["disks"]]
    bookie.kill()
    fill(bookie.disks[1])
    dirty_marker.record_failure(RealFiles(), bookie.disks[0], "a sync failed")
    bookie.start()
    assert states(bookie) == ["out of service", "out of service", "in service"]
    assert "it waits for that disk" in bookie.status()["disks"][0]["reason"]
    assert set(codes(bookie).values()) == {EIO, EOK}
    assert "phase one" not in str(bookie.status()["boot"]["reasons"])
    (bookie.disks[1] / "other").unlink()
    wait_for(lambda: states(bookie) == ["in service"] * 3, "both disks to come back")
    assert set(codes(bookie).values()) == {EOK}
    assert f"{held[0]} in limbo, of {len(LEDGERS)} seen" in str(
        bookie.status()["boot"]["reasons"]
    ), "what the first disk held, and nothing else"


def test_no_disk_can_be_opened(bookie: BookieProcess) -> None:
    for disk in bookie.disks:
        fill(disk)
    bookie.start(wait=False)
    assert bookie.process is not None
    assert bookie.process.wait(60) == 4
    wait_for(lambda: "error: disk" in bookie.stderr, "what it says")
    (said,) = [line for line in bookie.stderr.splitlines() if line.startswith("error:")]
    for disk in bookie.disks:
        assert f"Make room on its file system: df -h {disk}" in said


class FullFiles(RealFiles):
    """On a disk without room."""

    def space(self, path: Path) -> Space:
        return super().space(path)._replace(free=0)


def test_a_start_leaves_some_of_the_reserve_for_the_next(tmp_path: Path) -> None:
    files = FullFiles()
    reserve = tmp_path / RESERVE_NAME
    reserve.write_bytes(bytes(8 * START_BYTES))
    sizes = [8 * START_BYTES]
    while reserve.exists():
        free_reserve_if_full(files, tmp_path)
        sizes.append(reserve.stat().st_size if reserve.exists() else 0)
        assert 0 < sizes[-2] - sizes[-1] <= START_BYTES
    assert len(sizes) > 20
    free_reserve_if_full(files, tmp_path)
