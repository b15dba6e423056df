"""A disk that is full to the last byte: nothing dies, nothing is lost, and a collection makes room again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.jobs.job import JobKind
from tests.harness.cluster import create_ledgers, ledger_of
from tests.harness.raw import (
    ENOLEDGER,
    EOK,
    EREADONLY,
    HIGH_PRIORITY,
    RECOVERY,
    RawClient,
    add_frame,
    payload_of,
)
from tests.harness.waiting import wait_for
from tests.repair.space.fulldisk import Load, content, fill_to_the_last_byte
from tests.repair.space.tidying import Cluster

KEPT, DELETED = 1, 2


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB where the bookie has its disk."""
    path = tmp_path / "bookie0" / "disk1"
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(cluster: Cluster) -> list[tuple[int, int]]:
    """Add to two ledgers in turn, also where only repair may, until nothing is taken; what was acknowledged."""
    acked: list[tuple[int, int]] = []
    refused = 0
    with RawClient(cluster.bookies[0].port) as client:
        for entry in range(2_000):
            ledger = KEPT if entry % 8 == 0 else DELETED
            client.send(add_frame(ledger, entry, content(ledger, entry), RECOVERY | HIGH_PRIORITY))
            if client.answer().code == EOK:
                acked.append((ledger, entry))
            else:
                refused += 1
            if refused == 20:
                break
    assert refused == 20
    return acked


def check(cluster: Cluster, acked: list[tuple[int, int]], ledger: int) -> None:
    with RawClient(cluster.bookies[0].port) as client:
        for each, entry in acked:
            if each == ledger:
                answer = client.read(each, entry)
                assert (answer.code, payload_of(answer.body) == content(each, entry)) == (EOK, True)


def cluster_on(root: Path) -> Cluster:
    return Cluster(
        root,
        bookies=1,
        segment_bytes_max=4 << 20,
        checkpoint_bytes=2 << 20,
        disk_reserve_bytes=4 << 20,
        run_dir=root,
    )


def begin(cluster: Cluster, disk: Path, ledgers: list[int]) -> None:
    me = [cluster.bookies[0].bookie_id]
    create_ledgers(cluster.uri, [ledger_of(ledger, me) for ledger in ledgers])
    wait_for(lambda: reserved(disk) == 4 << 20, "the reserve")


def reserved(disk: Path) -> int:
    return (disk / "RESERVE").stat().st_size if (disk / "RESERVE").exists() else 0


@pytest.mark.parametrize("killed", [True, False])
def test_a_full_disk_is_collected_and_takes_writes_again(
    full_disk: Path, tmp_path: Path, killed: bool
) -> None:
    cluster = cluster_on(tmp_path)
    bookie = cluster.bookies[0]
    try:
        begin(cluster, full_disk, [KEPT, DELETED])
        worker = bookie.worker(0).pid
        acked = fill(cluster)
        fill_to_the_last_byte(full_disk)
        assert os.statvfs(full_disk).f_bavail <= 1
        check(cluster, acked, KEPT)
        check(cluster, acked, DELETED)
        assert bookie.worker(0).pid == worker

        if killed:  # a full disk does not keep a bookie from its start
            bookie.kill()
            bookie.start()
        check(cluster, acked, KEPT)
        check(cluster, acked, DELETED)
        wait_for(lambda: not bookie.status()["writable"], "the bookie to be read-only")

        cluster.delete(DELETED)
        cluster.job(JobKind.GC, empty_trash="true", compact="true")
        check(cluster, acked, KEPT)
        with RawClient(bookie.port) as client:
            assert client.read(DELETED, acked[-1][1]).code == ENOLEDGER
        wait_for(lambda: bookie.status()["writable"], "the bookie to be writable again")
        with RawClient(bookie.port) as client:
            assert client.add(KEPT, 5_000, b"again") in (EOK, EREADONLY)
            wait_for(lambda: client.add(KEPT, 5_001, b"again") == EOK, "an add that is taken")
        wait_for(lambda: reserved(full_disk) == 4 << 20, "the reserve, again")
        assert bookie.stop() == 0
    finally:
        cluster.close()


def test_a_disk_fills_up_under_many_clients(full_disk: Path, tmp_path: Path) -> None:
    """Four write and four read all the time: while the disk fills up, while it is full, and while it is collected."""
    stays, goes = [11, 12, 13, 14], [21, 22, 23, 24]
    cluster = cluster_on(tmp_path)
    bookie = cluster.bookies[0]
    try:
        begin(cluster, full_disk, stays + goes)
        worker = bookie.worker(0).pid
        load = Load(bookie.port, stays, goes, readers=4)

        def more_reads(count: int) -> bool:
            before = list(load.reads)

            def enough() -> bool:
                each = zip(before, load.reads, strict=True)
                return bool(load.wrong) or all(now - then >= count for then, now in each)

            return wait_for(enough, f"{count} more reads of each", 120)

        load.start()
        try:
            wait_for(lambda: load.wrong or load.refused > 100, "adds to be refused", 120)
            for _ in range(3):  # what is freed meanwhile is taken, too
                fill_to_the_last_byte(full_disk)
                more_reads(50)
            assert os.statvfs(full_disk).f_bavail <= 1
            assert load.wrong == []
            wait_for(lambda: not bookie.status()["writable"], "the bookie to be read-only")
            load.let_go()
            more_reads(2)
            stored = load.stored
            cluster.delete(*goes)
            cluster.job(JobKind.GC, empty_trash="true", compact="true")
            wait_for(lambda: load.wrong or load.stored > stored + 50, "adds that are taken", 120)
        finally:
            load.stop()
        assert load.wrong == []
        for ledger in stays:
            check(cluster, [(ledger, entry) for entry in load.acked[ledger]], ledger)
        assert bookie.worker(0).pid == worker
        assert bookie.stop() == 0
    finally:
        cluster.close()
