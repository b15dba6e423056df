"""Deleted ledgers leave the disks of real bookies, and what is live stays readable all the time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.jobs.job import JobKind
from tests.harness import raw, raw3
from tests.harness.raw import EFENCED, EIO, ENOENTRY, ENOLEDGER, EOK, RawClient
from tests.harness.raw3 import RawClient3
from tests.harness.waiting import wait_for
from tests.repair.space.tidying import Cluster, log_bytes, settle

PAYLOADS = [b"%04d" % number * 250 for number in range(400)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, bookies=2)
    yield found
    found.close()


def read_all(cluster: Cluster, ledger: int, bookie: int = 0) -> None:
    with RawClient(cluster.bookies[bookie].port) as client:
        for number, payload in enumerate(PAYLOADS):
            answer = client.read(ledger, number)
            assert (answer.code, bytes(answer.body).endswith(payload)) == (EOK, True), number


def test_a_deleted_ledger_goes_and_the_others_stay(cluster: Cluster) -> None:
    gone, kept = cluster.write(PAYLOADS, ledgers=2)
    bookie = cluster.bookies[0]
    cluster.delete(gone)
    full = log_bytes(bookie)

    assert cluster.job(JobKind.GC, dry_run="true").counts == {"ledgers_gone": 1}
    counts = cluster.job(JobKind.GC).counts
    assert counts["ledgers_trash"] == 1
    read_all(cluster, gone)  # it is all still there
    with RawClient(bookie.port) as client:
        assert client.add(gone, 1_000, b"late") == EFENCED
        assert client.read(gone, 1_000).code == ENOENTRY

    counts = cluster.job(JobKind.GC).counts
    assert counts["ledgers_empty"] == 1
    counts = cluster.job(JobKind.COMPACTION).counts
    assert counts["segments_removed"] >= 2
    assert log_bytes(bookie) < 0.8 * full
    for how in ("", "killed", "stopped"):
        if how == "killed":
            bookie.kill()
            bookie.start()
        elif how == "stopped":
            settle(bookie)
        read_all(cluster, kept)
        with RawClient(bookie.port) as client:
            assert client.read(gone, 0).code == ENOLEDGER
            assert client.add(gone, 1_000, b"late") == EFENCED
            assert client.read(gone, 0, raw.FENCE).code == ENOLEDGER
        with RawClient3(bookie.port) as client3:
            assert client3.add3(gone, 1_000) == raw3.EFENCED, "as Java's bookie answers"
            assert client3.fence3(gone).status == raw3.ENOLEDGER
            assert client3.write_lac(gone, 1_000) == raw3.ENOLEDGER
            assert client3.read3(gone, 0).status == raw3.ENOLEDGER
    read_all(cluster, gone, bookie=1)


def test_a_ledger_that_the_metadata_names_again_leaves_the_trash(cluster: Cluster) -> None:
    """As after a backup of the metadata was brought back: nothing of it is lost."""
    [ledger] = cluster.write(PAYLOADS)
    metadata = cluster.run(lambda client: client.metadata(ledger))
    cluster.delete(ledger)
    cluster.job(JobKind.GC)
    cluster.create(metadata)
    assert cluster.job(JobKind.GC).counts["ledgers_restore"] == 1
    read_all(cluster, ledger)
    assert cluster.job(JobKind.GC).counts["ledgers_gone"] == 0
    # and where its entries were gone already, they are brought back from the other bookie, and not denied meanwhile
    cluster.delete(ledger)
    cluster.job(JobKind.GC)
    cluster.job(JobKind.GC)
    with RawClient(cluster.bookies[0].port) as client:
        assert client.read(ledger, 0).code == ENOLEDGER
    cluster.create(metadata)
    assert cluster.job(JobKind.GC).counts["ledgers_restore"] == 1
    with RawClient(cluster.bookies[0].port) as client:
        assert client.read(ledger, 0).code in (EOK, EIO)  # v2 has no other word for it
    wait_for(lambda: not cluster.bookies[0].status()["limbo"]["ledgers"], "the end of limbo", 60)
    read_all(cluster, ledger)
