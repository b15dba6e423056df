"""Collections, compactions and scrubs that are cancelled at any moment: nothing is half done, and the next one ends."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bkbox.api.admin import client as admin
from bkbox.errors import JobRefusedError
from bkbox.jobs.job import JobAction, JobKind, JobState
from tests.harness.raw import EOK, RawClient
from tests.harness.waiting import wait_for
from tests.repair.space.tidying import Cluster, socket_of

PAYLOADS = [b"%04d" % number * 250 for number in range(300)]
CANCELS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, bookies=2, jobs_disk_bytes_per_second=3 << 20)
    yield found
    found.close()


def check(cluster: Cluster, ledger: int) -> None:
    for bookie in cluster.bookies:
        with RawClient(bookie.port) as client:
            for number, payload in enumerate(PAYLOADS):
                answer = client.read(ledger, number)
                assert (answer.code, bytes(answer.body).endswith(payload)) == (EOK, True), number


@pytest.mark.parametrize(
    "kind",
    [
        JobKind.SCRUB,
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in (JobKind.GC, JobKind.COMPACTION)),
    ],
)
def test_what_was_cancelled_leaves_nothing_half_done(cluster: Cluster, kind: JobKind) -> None:
    path = socket_of(cluster.bookies[0])
    kept, *gone = cluster.write(PAYLOADS, ledgers=4)
    cluster.delete(*gone)
    if kind is not JobKind.GC:
        cluster.job(JobKind.GC, empty_trash="true")
    arguments = {"empty_trash": "true", "compact": "true"} if kind is JobKind.GC else {}
    rng = random.Random(kind.value)
    cancelled = 0
    for _ in range(CANCELS):
        number = admin.start_job(path, kind, arguments).id
        time.sleep(rng.uniform(0.0, 0.8))
        with suppress(JobRefusedError):  # it has ended already
            admin.control_job(path, number, JobAction.CANCEL)
        job = wait_for(
            lambda number=number: found if (found := admin.job(path, number)).state.ended else None,
            "the end of the job",
            timeout=20,
        )
        assert job.state in (JobState.CANCELLED, JobState.DONE), job.error
        cancelled += job.state is JobState.CANCELLED
        check(cluster, kept)
    assert cancelled >= 1
    cluster.job(kind, **arguments)
    check(cluster, kept)
    with RawClient(cluster.bookies[0].port) as client:
        assert {client.read(ledger, 0).code for ledger in gone}.isdisjoint({EOK})
