"""An evening on the cluster screen: each state of a bookie is on it while it is true, and gone when it is over.

With ``-s`` the seconds of each are printed; nothing is asserted about them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.cluster import pretend_another_boot
from tests.harness.clusterscreen import Screen, says
from tests.harness.processes import BookieProcess, bkbox, put_keys
from tests.harness.waiting import wait_for
from tests.harness.zookeeper import ZooKeeper
from tests.repair.copies import Cluster, write_ledgers


@pytest.fixture(params=["sqlite", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Two bookies of one disk, the last one of two."""
    uri = None
    if request.param == "zookeeper":
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        uri = zookeeper.uri(zookeeper.new_root())
        bkbox("cluster", "init", "--metadata", uri)
    found = Cluster(tmp_path, uri)
    quick = {
        "ack_after": "write",
        "repair_retry_initial_s": 0.2,
        "repair_retry_max_s": 0.5,
        "restart_backoff_initial_s": 3,
    }
    found.start(2, **quick)
    third = BookieProcess(found.root, found.uri, name="third")
    found.bookies.append(third)
    third.init(disks=2, run_dir=found.root / "third", **quick)
    yield found
    found.close()


@pytest.fixture
def screen(cluster: Cluster) -> Iterator[Screen]:
    found = Screen(cluster.uri, cluster.bookies[0])
    yield found
    found.close()


def test_a_bookie_comes_hangs_is_killed_and_stops(cluster: Cluster, screen: Screen) -> None:
    bookie = cluster.bookies[2]
    screen.see(bookie, "down: it was never started", lambda row: row.state == "down")
    bookie.start()
    screen.see_well(bookie, "its first start")
    assert bookie.process is not None
    os.kill(bookie.process.pid, signal.SIGSTOP)
    screen.see(bookie, "a supervisor that is stopped", lambda row: row.state == "no answer")
    os.kill(bookie.process.pid, signal.SIGCONT)
    screen.see_well(bookie, "SIGCONT")
    worker = bookie.worker(0)
    worker.suspend()
    screen.see(bookie, "a worker that is stopped", says("has made no progress"))
    worker.resume()
    screen.see_well(bookie, "the worker goes on")
    worker.kill()
    screen.see(bookie, "a killed worker", says("its worker is being started"))
    screen.see_well(bookie, "its worker is back")
    bookie.kill()
    screen.see(bookie, "a killed bookie", lambda row: row.state in ("no answer", "down"))
    bookie.start()
    screen.see_well(bookie, "it is back")
    bkbox("bookie", "read-only", "on", "--config", str(bookie.config))
    screen.see(bookie, "read-only", lambda row: row.state == "read-only")
    bkbox("bookie", "read-only", "off", "--config", str(bookie.config))
    screen.see_well(bookie, "it takes writes again")
    bookie.stop()
    screen.see(bookie, "a bookie that was stopped", lambda row: row.state == "down")


def test_disks_full_lost_drained_removed_and_added(cluster: Cluster, screen: Screen) -> None:
    bookie = cluster.bookies[2].start()
    first, second = bookie.disks
    config = ("--config", str(bookie.config))
    screen.see_well(bookie, "its start")

    put_keys(bookie, disk_usage_max=0.01, disk_usage_resume=0.001)
    bkbox("config", "reload", *config)
    screen.see(bookie, "full disks", says("for lack of room: disk usage"))
    put_keys(bookie, disk_usage_max=0.99, disk_usage_resume=0.98)
    bkbox("config", "reload", *config)
    screen.see_well(bookie, "there is room again")

    second.rename(f"{second}.gone")
    screen.see(bookie, "a lost disk", lambda row: row.verdict == "fail" and says(str(second))(row))
    Path(f"{second}.gone").rename(second)
    screen.see_well(bookie, "the disk is back")

    bkbox("disk", "drain", str(second), *config)
    screen.see(bookie, "a drain", says(f"disk {second} takes no entries: draining"))
    wait_for(lambda: not bookie.status()["jobs"]["active"], "the end of the drain")
    bkbox("disk", "remove", str(second), *config)
    screen.see(bookie, "one disk less", lambda row: row.report.disks == 1)
    screen.see(bookie, "a file that names it still", says("the next start would refuse"))
    put_keys(bookie, disks=[str(first)])
    screen.see_well(bookie, "its file is put right")

    third = bookie.root / "disk3"
    third.mkdir()
    put_keys(bookie, disks=[str(first), str(third)])
    bkbox("disk", "add", str(third), *config)
    screen.see(bookie, "one disk more", lambda row: row.report.disks_in_service == 2)
    screen.see_well(bookie, "a disk is added")


def test_deleted_ledgers(cluster: Cluster, screen: Screen) -> None:
    bookie = cluster.bookies[0]
    bookie.stop()
    put_keys(bookie, gc_interval_s=1, gc_confirm_s=0, gc_trash_s=4)
    bookie.start()
    for ledger in asyncio.run(write_ledgers(cluster.uri, 3, close=True)):
        bkbox("ledger", "delete", str(ledger), "--yes", "--metadata", cluster.uri)
    screen.see(bookie, "deleted ledgers", lambda row: row.report.deleted)
    screen.see(bookie, "the trash is empty", lambda row: row.report.deleted == 0)
    screen.see_well(bookie, "their deletion")


def test_stuck_ledgers_and_a_decommission(cluster: Cluster, screen: Screen) -> None:
    one, two, gone = cluster.bookies
    there = ("--metadata", cluster.uri)
    asyncio.run(write_ledgers(cluster.uri, 3, close=False))
    for bookie in (one, two):
        bookie.kill()
        pretend_another_boot(bookie.disks)
    for bookie in (one, two):
        bookie.start(wait=False)
    for bookie in (one, two):
        bookie.wait_ready()
    screen.see(one, "ledgers in limbo", lambda row: row.report.limbo == 3)
    screen.see(one, "stuck ledgers", lambda row: row.report.stuck == 3)
    screen.see(one, "why they are stuck", says("cannot be repaired by itself"))
    bkbox("ledger", "end", "--stuck", "--accept-loss", "--yes", *there)
    screen.see(one, "no limbo", lambda row: (row.report.limbo, row.report.stuck) == (0, 0))
    screen.see_well(one, "its ledgers were ended")

    gone.start()
    screen.see_well(gone, "its start")
    asyncio.run(write_ledgers(cluster.uri, 20, close=True))
    gone.kill()
    screen.see(gone, "a lost bookie", lambda row: row.state in ("no answer", "down"))
    screen.see(gone, "the end of its registration", lambda row: row.state == "down")
    bkbox("decommission", gone.bookie_id, "--config", str(one.config), "--delete-cookie", "--yes")
    screen.wait("a decommissioned bookie is gone", lambda: screen.row(gone) is None)


@pytest.mark.parametrize("cluster", ["zookeeper"], indirect=True)
def test_zookeeper_is_away(cluster: Cluster, screen: Screen, zookeeper: ZooKeeper) -> None:
    bookie = cluster.bookies[1]
    screen.see_well(bookie, "its start")
    zookeeper.kill()
    try:
        screen.wait("the list is old", lambda: "the last list is" in screen.problem)
        screen.see(bookie, "it is not registered", says("not registered in the metadata store"))
    finally:
        zookeeper.start()
    screen.wait("the list is new", lambda: not screen.problem)
    screen.see_well(bookie, "ZooKeeper is back")
