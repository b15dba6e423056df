"""A bookie is killed at random moments of drains, one disk's after the other's, while clients write and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.jobs.job import JobKind
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.repair.killing import (
    TIMEOUT_S,
    enough_met,
    eventually,
    jobs,
    kill_within,
    seeds,
    wait_for_job,
)
from tests.supervisor.disks.drainload import Load
from tests.supervisor.disks.test_drain import QUICK, disks

LEDGERS = 30


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[BookieProcess]:
    made = BookieProcess(tmp_path, f"sqlite:{tmp_path}/cluster.db")
    # On a busy machine the adds are slow whatever the drain does, and it would have the least share all the time.
    pace = {"jobs_disk_bytes_per_second": 1 << 20, "jobs_p99_growth_max": 1e6}
    made.init(disks=2, run_dir=str(tmp_path), **pace, **QUICK)
    made.start()
    yield made
    made.ensure_gone()


@pytest.mark.timeout(TIMEOUT_S)
def test_a_drain_goes_on_where_it_was(bookie: BookieProcess) -> None:
    # However many the kills, what has to be moved at 1 MiB/s stays a matter of seconds.
    load = Load(bookie.port, LEDGERS, pause_s=0.005).start()
    wait_for(lambda: load.adds > 300, "some load", timeout=120)
    met = 0
    for seed, rng in enumerate(seeds()):
        place = seed % 2
        here = [str(bookie.disks[place]), "--config", str(bookie.config)]
        before = len(jobs(bookie, "drain"))
        bkbox("disk", "drain", *here)
        met += kill_within(bookie, rng, 1.5, JobKind.DRAIN)
        job = wait_for_job(bookie, "drain", before)
        assert (job["state"], job["error"]) == ("done", ""), seed
        views = disks(bookie)
        assert views[place]["ledgers"] == 0
        assert views[1 - place]["ledgers"] == LEDGERS
        assert load.lies == [], seed
        bkbox("disk", "drain", *here, "--undo")
        eventually(
            lambda: all(each["state"] == "in service" for each in disks(bookie)),
            "both disks to be in service",
        )
    load.stop()
    enough_met(met)
    assert load.check() > 300
    assert {each["limbo_ledgers"] for each in disks(bookie)} == {0}, "nothing was taken for lost"
