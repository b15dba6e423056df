"""`bkbox gc` and `bkbox scrub` on a bookie that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkbox.cli.lib.exit_codes import ExitCode
from tests.harness.processes import bkbox
from tests.repair.space.tidying import Cluster

PAYLOADS = [b"%04d" % number * 250 for number in range(300)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, bookies=1)
    yield found
    found.close()


def test_an_operator_frees_a_disk(cluster: Cluster) -> None:
    def run(*words: str) -> Any:
        done = bkbox(*words, "--config", str(cluster.bookies[0].config), "-o", "json")
        return json.loads(done.stdout)

    def text(*words: str) -> str:
        done = bkbox(*words, "--config", str(cluster.bookies[0].config))
        return done.stdout + done.stderr

    gone, kept = cluster.write(PAYLOADS, ledgers=2)
    shown = text("gc", "status")
    assert "not known yet" in shown
    [disk] = run("gc", "status")["disks"]
    assert disk["active_segments"] >= 1
    assert disk["active_bytes"] > 0
    cluster.delete(gone)
    text("job", "watch", str(run("gc", "run", "--dry-run")["id"]))
    [disk] = run("gc", "status")["disks"]
    assert (disk["ledgers"], disk["trash_ledgers"]) == (2, 0)
    assert "done" in text("job", "watch", str(run("gc", "run", "--empty-trash")["id"]))
    found = run("gc", "status")
    [disk] = found["disks"]
    assert (disk["trash_ledgers"], disk["emptied_ledgers"]) == (0, 1)
    assert found["jobs"][-1]["counts"]["segments_removed"] >= 1
    assert disk["reclaimable_bytes"] is not None
    [explained] = run("gc", "explain", "1")
    assert explained["state"] == "removed"
    last = disk["scrub_segment"]
    assert last == 0
    assert "never" in text("scrub", "status")
    assert "done" in text("job", "watch", str(run("scrub", "run")["id"]))
    [disk] = run("scrub", "status")["disks"]
    assert disk["scrub_completed_ms"] > 0
    words = ("gc", "explain", "99999", "--config", str(cluster.bookies[0].config))
    for output in ("table", "json"):
        done = bkbox(*words, "-o", output, check=False)
        assert (done.returncode, done.stdout) == (ExitCode.NOT_FOUND, "")
        assert "no disk in service has a segment 99999" in done.stderr
    assert kept
