"""A disk is drained while clients write, read and fence: and processes are killed at every point of a move.

Real processes. Clients may be told that something is not known now (EIO), or nothing at all; never that what they were
promised does not exist. In the end it is all there, on the other disks, and the drained one is removed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.processes import BookieProcess, bkbox, is_dead
from tests.harness.waiting import wait_for
from tests.supervisor.disks.drainload import Load

HOOKS = Path(__file__).parent / "hooks"

QUICK: dict[str, object] = {
    "restart_backoff_initial_s": 0.01,
    "restart_backoff_max_s": 0.1,
    "repair_retry_initial_s": 0.2,
    "repair_retry_max_s": 0.5,
    "checkpoint_bytes": 131_072,
}

OF_WORKERS = [
    f"worker {when} {message} {disk}"
    for disk, names in (
        ("disk1", ("ReadLedger", "SealExport", "EndExport")),
        ("disk2", ("StartImport", "ImportEntries", "Commit")),
    )
    for message in names
    for when in ("before", "after")
]
OF_OTHERS = [
    f"{role} {when} {message}"
    for role, message in (
        ("frontend", "PauseLedger"),
        ("frontend", "PlaceLedger"),
        ("repair", "MoveLedger"),
    )
    for when in ("before", "after")
]
OF_SUPERVISOR = [
    f"supervisor {when} {message}"
    for message in (
        "PauseLedger",
        "SealExport",
        "ImportEntries",
        "Commit",
        "PlaceLedger",
        "EndExport",
    )
    for when in ("before", "after")
]


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db")
    yield made
    made.ensure_gone()


def command(bookie: BookieProcess, *arguments: str, check: bool = True) -> Any:
    return bkbox(*arguments, "--config", str(bookie.config), check=check)


def disks(bookie: BookieProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command(bookie, "disk", "list", "-o", "json").stdout)
    return found


def jobs(bookie: BookieProcess) -> list[dict[str, Any]]:
    done = command(bookie, "job", "list", "--all", "-o", "json", check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    return found


def drained(bookie: BookieProcess) -> bool:
    return any(job["kind"] == "drain" and job["state"] == "done" for job in jobs(bookie))


def remove_from_config(bookie: BookieProcess, *left: Path) -> None:
    lines = bookie.config.read_text().splitlines()
    named = f"disks = {json.dumps([str(disk) for disk in left])}"
    bookie.config.write_text(
        "\n".join(named if line.startswith("disks = ") else line for line in lines) + "\n"
    )


@pytest.mark.slow
def test_processes_die_at_every_point_of_moves(bookie: BookieProcess, tmp_path: Path) -> None:
    points = tmp_path / "points"
    points.mkdir()
    wanted = [
        each for pair in itertools.zip_longest(OF_WORKERS, OF_OTHERS) for each in pair if each
    ]
    (points / "points").write_text("\n".join(wanted))
    bookie.init(disks=2, **QUICK)
    hooks = {"MOVE_POINTS": str(points), "PYTHONPATH": str(HOOKS)}
    bookie.start(environment=hooks)
    load = Load(bookie.port, 30).start()
    wait_for(lambda: load.adds > 600, "some load")
    command(bookie, "disk", "drain", str(bookie.disks[0]))
    wait_for(lambda: drained(bookie), "the end of the drain", timeout=240, pause=0.5)
    load.stop()
    assert len(list(points.glob("done-*"))) == len(wanted), "a point was never reached"
    assert load.check() > 600
    said = command(bookie, "disk", "remove", str(bookie.disks[0])).stderr
    assert f'disks = ["{bookie.disks[1]}"]' in said
    assert load.check() > 600
    refused = bookie.disks[0] / "DRAINING"
    assert refused.exists()
    assert bookie.stop() == 0
    remove_from_config(bookie, bookie.disks[1])
    bookie.start()
    assert [disk["state"] for disk in disks(bookie)] == ["in service"]
    assert load.check() > 600, "nothing but the disk's name was lost with it"


@pytest.mark.slow
def test_the_bookie_dies_at_every_point_of_moves(bookie: BookieProcess, tmp_path: Path) -> None:
    points = tmp_path / "points"
    points.mkdir()
    (points / "points").write_text("\n".join(OF_SUPERVISOR))
    bookie.init(disks=2, **QUICK)
    hooks = {"MOVE_POINTS": str(points), "PYTHONPATH": str(HOOKS)}
    bookie.start(environment=hooks)
    load = Load(bookie.port, 30).start()
    wait_for(lambda: load.adds > 600, "some load")
    command(bookie, "disk", "drain", str(bookie.disks[0]))
    deaths = 0
    while True:
        wait_for(lambda: ended(bookie) or drained(bookie), "an end", timeout=60, pause=0.2)
        if not ended(bookie):
            break
        deaths += 1
        bookie.ensure_gone()
        wait_for(lambda: not orphans(bookie), "the end of its children")
        with contextlib.suppress(AssertionError):  # it may die once more before it is ready
            bookie.start(environment=hooks)
    load.stop()
    assert deaths == len(OF_SUPERVISOR)
    assert load.check() > 600
    [of_drain] = [job for job in jobs(bookie) if job["kind"] == "drain"]
    assert of_drain["state"] == "done", "one job, which went on by itself each time"
    first, second = disks(bookie)
    assert (first["state"], first["ledgers"]) == ("drained", 0)
    assert (second["ledgers"], second["limbo_ledgers"]) == (30, 0), "nothing was taken for lost"


def orphans(bookie: BookieProcess) -> list[psutil.Process]:
    """Workers whose supervisor is gone, and that are not yet."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(bookie.disks[0]) in (process.info["cmdline"] or ()) and not is_dead(process):
            found.append(process)
    return found


def ended(bookie: BookieProcess) -> bool:
    assert bookie.process is not None
    return bookie.process.poll() is not None
