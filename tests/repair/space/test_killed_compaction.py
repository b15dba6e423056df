"""A bookie is killed at random moments of collections and compactions: what is live stays, what is deleted goes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.api.admin import client as admin
from bkbox.errors import BkboxError
from bkbox.jobs.job import JobKind
from tests.harness.processes import BookieProcess
from tests.harness.raw import EIO, EOK, RawClient
from tests.harness.waiting import wait_for
from tests.repair.killing import KILLS, TIMEOUT_S, enough_met
from tests.repair.space.tidying import Cluster, log_bytes, socket_of

PAYLOADS = [b"%04d" % number * 250 for number in range(400)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, bookies=1, jobs_disk_bytes_per_second=4 << 20)
    yield found
    found.close()


def is_idle(bookie: BookieProcess) -> bool:
    """It is up, and what was interrupted does not go on: a job that had not begun yet begins after all."""
    try:
        return all(job.state.ended for job in admin.jobs(socket_of(bookie)))
    except BkboxError:
        return False


@pytest.mark.timeout(TIMEOUT_S)
def test_nothing_live_is_lost_and_nothing_deleted_stays(cluster: Cluster) -> None:
    [bookie] = cluster.bookies
    kept = cluster.write(PAYLOADS, ledgers=1)
    sizes = []
    met = 0
    for seed in range(KILLS):
        rng = random.Random(seed)
        gone, later = cluster.write(PAYLOADS, ledgers=2)
        kept.append(later)
        cluster.delete(gone)
        if len(kept) > 3:
            cluster.delete(kept.pop(rng.randrange(len(kept))))
        arguments = {"empty_trash": "true", "compact": "true"}
        admin.start_job(socket_of(bookie), JobKind.GC, arguments)
        time.sleep(rng.uniform(0.0, 2.5))
        met += not is_idle(bookie)
        bookie.kill()
        bookie.start()
        wait_for(lambda: is_idle(bookie), "the end of what was interrupted", timeout=120)
        cluster.job(JobKind.GC, empty_trash="true", compact="true")
        with RawClient(bookie.port) as client:
            for ledger in kept:
                for number, payload in enumerate(PAYLOADS):
                    answer = client.read(ledger, number)
                    assert answer.code == EOK, (seed, ledger, number, answer.code)
                    assert bytes(answer.body).endswith(payload)
            assert client.read(gone, 0).code not in (EOK, EIO)
        sizes.append(log_bytes(bookie))
    enough_met(met)
    live = 4 * len(PAYLOADS) * len(PAYLOADS[0])
    assert max(sizes) < 3 * live, "what is deleted gives its room back, whatever was interrupted"
