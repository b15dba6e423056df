"""What ``doctor``, ``selftest`` and ``init`` say of what a power cut would take, beyond the disks themselves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkbox.base.ids import BookieId
from bkbox.client.placement.topology import DEFAULT_RACK
from bkbox.supervisor.boot.power_domain import assess
from tests.harness.fixtures import MakeBookie
from tests.harness.mounts import MakeMount, run
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.zookeeper import ZooKeeper, zookeeper

__all__ = ["zookeeper"]


def findings(bookie: BookieProcess, check: str, about: str = "") -> list[dict[str, Any]]:
    done = bkbox(
        *("doctor", "--config", str(bookie.config), "--wait", "5", "-o", "json"), check=False
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    found += [effect for each in found for effect in each["effects"]]
    return [each for each in found if (each["check"], each["about"]) == (check, about)]


def init(folder: Path, metadata: str, port: int, *words: str) -> str:
    """What it says; without waiting for anything."""
    return bkbox(
        *("init", "--config", str(folder / f"{port}.toml"), "--disk", str(folder / f"disk{port}")),
        *("--metadata", metadata, "--listen", f"127.0.0.1:{port}", *words),
    ).stderr


# ---- file systems ----------------------------------------------------------------------------------------


def test_ext4_without_a_journal_under_a_disk_and_the_metadata(
    make_bookie: MakeBookie, make_mount: MakeMount
) -> None:
    point = make_mount("^has_journal", size=320 << 20)
    bookie = make_bookie(name=f"{point.name}/bookie", metadata=f"{point.name}/metadata.db")
    for about in (*bookie.disks, point / "metadata.db"):
        (found,) = findings(bookie, "file system", str(about))
        assert found["verdict"] == "warn"
        assert "has no journal" in found["why"]
        assert "tune2fs -O has_journal" in found["command"]
    words = ("selftest", "--config", str(bookie.config), "--seconds", "0.1", "-o", "json")
    done = bkbox(*words)
    assert "warning: metadata store" in done.stderr
    for report in json.loads(done.stdout):
        (warning,) = report["warnings"]
        assert "has no journal" in warning
        assert "What to do: stop the bookie" in warning


def test_a_journal_folder_without_barriers(make_bookie: MakeBookie, make_mount: MakeMount) -> None:
    point = make_mount(options="nobarrier")
    bookie = make_bookie()
    text = bookie.config.read_text().replace("ack_after", "# ack_after")
    shutil.copytree(bookie.disks[0], point / "journal")
    bookie.config.write_text(f'{text}\njournal = "{point}/journal"\nack_after = "journal"\n')
    (found,) = findings(bookie, "file system", str(point / "journal"))
    assert "without barriers (nobarrier)" in found["why"]
    assert f"mount -o remount,barrier {point}" in found["command"]


def test_a_killed_bookie_whose_file_system_was_mounted_anew(
    make_bookie: MakeBookie, make_mount: MakeMount
) -> None:
    point = make_mount(size=128 << 20)
    bookie = make_bookie(name=f"{point.name}/bookie").start()
    bookie.kill()
    where = str(bookie.disks[0])
    assert "processes were killed" in findings(bookie, "last stop", where)[0]["why"]
    run("umount", point)
    run("mount", "-o", "loop", point.with_name("image"), point)
    assert "mounted anew" in findings(bookie, "last stop", where)[0]["why"]


def test_its_own_files_are_not_strange(make_bookie: MakeBookie) -> None:
    bookie = make_bookie().start()
    assert findings(bookie, "leftovers", str(bookie.disks[0])) == []


# ---- one power cut for all -------------------------------------------------------------------------------

A, B, C = BookieId("a:1"), BookieId("b:1"), BookieId("c")


@pytest.mark.parametrize(
    ("hosts", "racks", "text"),
    [
        ({A: "a"}, {}, "no other bookie is known"),
        ({A: "a", B: "a"}, {}, "all 2 bookies are on host a"),
        ({A: "a", B: "b"}, {}, ""),
        ({A: "a", B: "b", C: "c"}, {A: "/r1", B: "/r1", C: "/r1"}, "all 3 bookies are in rack /r1"),
        ({A: "a", B: "b", C: "c"}, {A: "/r1", B: "/r2", C: "/r1"}, ""),
        ({A: "a", B: "b"}, {A: DEFAULT_RACK, B: DEFAULT_RACK}, ""),
    ],
)
def test_who_loses_power_together(
    hosts: dict[BookieId, str], racks: dict[BookieId, str], text: str
) -> None:
    found = assess(hosts, racks or dict.fromkeys(hosts, DEFAULT_RACK))
    assert bool(found) == bool(text)
    assert text in found


def test_write_with_sqlite(make_bookie: MakeBookie, tmp_path: Path) -> None:
    (found,) = findings(make_bookie(ack_after="write"), "power")
    assert found["verdict"] == "warn"
    assert "SQLite" in found["why"]
    assert 'ack_after = "sync"' in found["command"]
    assert findings(make_bookie(name="other"), "power") == []

    metadata = f"sqlite:{tmp_path}/cluster.db"
    write = ("--set", "ack_after=write")
    assert "warning: ack_after = write with SQLite" in init(tmp_path, metadata, 1, *write)
    assert "warning" in init(tmp_path, metadata, 2, *write, "--dry-run")
    assert "warning" not in init(tmp_path, metadata, 3)


@pytest.fixture
def cluster(zookeeper: ZooKeeper) -> str:
    uri = zookeeper.uri()
    bkbox("cluster", "init", "--metadata", uri)
    return uri


def test_write_in_a_cluster(cluster: str, tmp_path: Path) -> None:
    write = ("--set", "ack_after=write")
    assert "no other bookie is known" in init(tmp_path, cluster, 1, *write)
    assert "all 2 bookies are on host 127.0.0.1" in init(tmp_path, cluster, 2, *write)
    assert "warning" not in init(tmp_path, cluster, 3)
    away = ("--set", "advertised_host=localhost")
    assert "warning" not in init(tmp_path, cluster, 4, *write, *away)
    racks = tmp_path / "racks.json"
    ids = [*(f"127.0.0.1:{port}" for port in range(1, 6)), "localhost:4"]
    racks.write_text(json.dumps({"g": {bookie: {"rack": "/r1"} for bookie in ids}}))
    said = init(tmp_path, cluster, 5, *write, "--set", f"rack_map={racks}")
    assert "all 5 bookies are in rack /r1" in said
