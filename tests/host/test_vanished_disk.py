"""The folder of a disk becomes another one under a bookie: unmounted, mounted over, moved away."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.adminsocket import ask, status_of
from tests.harness.fixtures import MakeBookie
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.raw import EOK, RawClient
from tests.harness.waiting import wait_for
from tests.host.test_child_progress import health

LEDGERS = range(1, 9)


def run(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Mounts a file system of memory; whatever is left mounted is unmounted at the end."""
    folders: list[Path] = []

    def mount(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        room = os.statvfs(tmp_path)  # as large as the other, so that both get new ledgers
        size = f"size={room.f_bavail * room.f_frsize}"
        if os.geteuid() or not run("mount", "-t", "tmpfs", "-o", size, "tmpfs", folder):
            pytest.skip("needs to mount")
        folders.append(folder)

    yield mount
    for folder in reversed(folders):
        run("umount", "-l", folder)


def disk_of(bookie: BookieProcess, number: int) -> dict[str, Any]:
    found = status_of(bookie)["disks"][number]
    assert isinstance(found, dict)
    return found


def write(bookie: BookieProcess, entry: int) -> list[int]:
    with RawClient(bookie.port) as client:
        return [client.add(ledger, entry, b"entry") for ledger in LEDGERS]


def told(bookie: BookieProcess, folder: Path) -> None:
    """It says that the disk is not in service, everywhere, and leaves the folder alone."""
    wait_for(lambda: disk_of(bookie, 1)["state"] != "in service", "the status to tell")
    wait_for(lambda: not disk_of(bookie, 1)["total_bytes"], "the end of its worker")
    found = disk_of(bookie, 1)
    assert f"{folder} is not the folder of the disk any more" in found["reason"]
    assert found["free_bytes"] == 0, "not that of what is there now"
    assert found["device"] is None
    about = [each for each in bookie.status()["warnings"] if str(folder) in each["text"]]
    assert len(about) == 1, "one finding for one cause"
    assert "cookie repair" not in about[0]["text"], "nothing is lost"
    seen = json.loads(
        bkbox("doctor", "--config", str(bookie.config), "-o", "json", check=False).stdout
    )
    causes = [
        each
        for each in seen["findings"]
        if each["verdict"] != "ok" and str(folder) in each["about"] + each["why"]
    ]
    assert [each["check"] for each in causes] == ["disk"]
    status, reasons = health(bookie)
    assert status == 1
    assert any(str(folder) in reason for reason in reasons)
    assert ask(bookie, "/healthz")[0] == 503
    metrics = ask(bookie, "/metrics")[1].splitlines()
    assert f'bkbox_disk_state{{disk="{folder}",state="in service"}} 0.0' in metrics
    assert not any(line.startswith(f'bkbox_disk_free_bytes{{disk="{folder}"') for line in metrics)
    codes = write(bookie, 1)
    assert EOK in codes, "the other disk serves"
    assert set(codes) != {EOK}
    bkbox("bookie", "read-only", "on", "--config", str(bookie.config), check=False)
    bkbox("bookie", "read-only", "off", "--config", str(bookie.config), check=False)


def back(bookie: BookieProcess) -> None:
    wait_for(lambda: disk_of(bookie, 1)["state"] == "in service", "the disk to be back", 60)
    with RawClient(bookie.port) as client:
        assert {client.read(ledger, 0).code for ledger in LEDGERS} == {EOK}
    assert set(write(bookie, 2)) == {EOK}
    assert bookie.stop() == 0


def test_a_disk_is_unmounted_under_the_bookie(
    make_bookie: MakeBookie, mounted: Callable[[Path], None], tmp_path: Path
) -> None:
    folder, other = tmp_path / "bookie" / "disk2", tmp_path / "elsewhere"
    mounted(folder)
    other.mkdir()
    assert run("mount", "--bind", folder, other)
    try:
        bookie = make_bookie().start()
        assert set(write(bookie, 0)) == {EOK}
        assert run("umount", "-l", folder)
        told(bookie, folder)
        assert list(folder.iterdir()) == [], "nothing is written beneath"
        assert run("mount", "--bind", other, folder)
        back(bookie)
    finally:
        run("umount", "-l", folder)
        run("umount", "-l", other)


def test_another_file_system_is_mounted_over_a_disk(
    make_bookie: MakeBookie, mounted: Callable[[Path], None]
) -> None:
    bookie = make_bookie().start()
    assert set(write(bookie, 0)) == {EOK}
    mounted(bookie.disks[1])
    told(bookie, bookie.disks[1])
    assert list(bookie.disks[1].iterdir()) == []
    assert run("umount", bookie.disks[1])
    back(bookie)


@pytest.mark.parametrize("replaced", [True, False])
def test_the_folder_is_moved_away(make_bookie: MakeBookie, *, replaced: bool) -> None:
    bookie = make_bookie().start()
    assert set(write(bookie, 0)) == {EOK}
    folder, away = bookie.disks[1], bookie.root / "away"
    folder.rename(away)
    if replaced:
        folder.mkdir()
    told(bookie, folder)
    assert not folder.exists() or list(folder.iterdir()) == []
    if replaced:
        folder.rmdir()
    away.rename(folder)
    back(bookie)


def test_the_journal_is_moved_away(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(journal=True, ack_after="journal").start()
    assert set(write(bookie, 0)) == {EOK}
    journal, away = bookie.root / "journal", bookie.root / "away"
    journal.rename(away)
    journal.mkdir()

    def states() -> set[str]:
        return {str(disk["state"]) for disk in status_of(bookie)["disks"]}

    wait_for(lambda: "in service" not in states(), "the disks to be out of service")
    assert all(str(journal) in disk["reason"] for disk in status_of(bookie)["disks"])
    assert health(bookie)[0] == 1
    assert list(journal.iterdir()) == []
    journal.rmdir()
    away.rename(journal)
    wait_for(lambda: states() == {"in service"}, "the disks to be back", 60)
    with RawClient(bookie.port) as client:
        assert {client.read(ledger, 0).code for ledger in LEDGERS} == {EOK}
    assert set(write(bookie, 1)) == {EOK}
