"""Bits that rot on the disks of a real bookie: no reader sees them, and scrub brings every entry back from a peer."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.jobs.job import JobKind, JobState
from tests.harness.raw import EIO, EOK, RawClient
from tests.repair.space.tidying import Cluster, entries_in, log_of, settle

FLIPS = int(os.environ.get("SCRUB_FLIPS", "40"))
ENTRIES = max(400, 2 * FLIPS)
PAYLOADS = [b"%05d" % number * 100 for number in range(ENTRIES)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path, bookies=2)
    yield found
    found.close()


class Readers:
    """Clients that read entries at random until they are told to stop; ``codes``: what they were answered."""

    def __init__(self, port: int, ledgers: list[int]) -> None:
        self.codes: set[int] = set()
        self.wrong = 0
        self._ledgers = ledgers
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(port, seed), daemon=True) for seed in (1, 2)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, port: int, seed: int) -> None:
        rng = random.Random(seed)
        with RawClient(port) as client:
            while not self._stop.is_set():
                number = rng.randrange(ENTRIES)
                answer = client.read(rng.choice(self._ledgers), number)
                self.codes.add(answer.code)
                if answer.code == EOK and not bytes(answer.body).endswith(PAYLOADS[number]):
                    self.wrong += 1

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)


def test_every_flipped_bit_is_found_and_mended_under_readers(cluster: Cluster) -> None:
    ledgers = cluster.write(PAYLOADS, ledgers=4)
    bookie = cluster.bookies[0]
    settle(bookie)
    rng = random.Random(7)
    records = [(path, record) for path in log_of(bookie) for record in entries_in(bookie, path)]
    readers = Readers(bookie.port, ledgers)
    try:
        chosen = rng.sample(records, FLIPS)
        for path, (_ledger, _entry, offset, length) in chosen:
            with path.open("r+b") as file:
                at = offset + rng.randrange(16 + length)
                file.seek(at)
                [byte] = file.read(1)
                file.seek(at)
                file.write(bytes((byte ^ 1 << rng.randrange(8),)))
        job = cluster.job(JobKind.SCRUB)
    finally:
        readers.stop()
    assert readers.codes <= {EOK, EIO}
    assert EOK in readers.codes
    assert readers.wrong == 0
    assert job.counts["entries_unreadable"] == job.counts["entries_refilled"] == FLIPS
    with RawClient(bookie.port) as client:
        for ledger in ledgers:
            for number, payload in enumerate(PAYLOADS):
                answer = client.read(ledger, number)
                assert (answer.code, bytes(answer.body).endswith(payload)) == (EOK, True), number
    again = cluster.job(JobKind.SCRUB)
    assert "entries_unreadable" not in again.counts
    # what is bad is left behind with its segments, but for the one that is written to
    assert cluster.job(JobKind.COMPACTION).counts["segments_removed"] >= 1
    last = cluster.job(JobKind.SCRUB)
    assert last.counts.get("bad_regions", 0) < FLIPS / 2


def test_a_lost_segment_is_refilled(cluster: Cluster) -> None:
    ledgers = cluster.write(PAYLOADS, ledgers=3)
    bookie = cluster.bookies[0]
    settle(bookie)
    first = log_of(bookie)[0]
    lost = entries_in(bookie, first)
    first.unlink()
    with RawClient(bookie.port) as client:
        assert client.read(*lost[0][:2]).code == EIO
    job = cluster.job(JobKind.SCRUB)
    assert job.counts["entries_refilled"] == len(lost)
    with RawClient(bookie.port) as client:
        for ledger in ledgers:
            for number in range(ENTRIES):
                assert client.read(ledger, number).code == EOK


def test_what_no_peer_has_is_reported_and_stays_unknown(cluster: Cluster) -> None:
    [ledger] = cluster.write(PAYLOADS)
    bookie, peer = cluster.bookies
    settle(bookie)
    path = log_of(bookie)[0]
    _ledger, entry, offset, _length = entries_in(bookie, path)[3]
    data = bytearray(path.read_bytes())
    data[offset + 40] ^= 4
    path.write_bytes(data)
    peer.kill()
    job = cluster.job(JobKind.SCRUB)
    assert job.state is JobState.DONE
    [blocker] = job.blockers
    assert blocker.ledger == ledger
    assert f"entry {entry}" in blocker.reason
    with RawClient(bookie.port) as client:
        assert client.read(ledger, entry).code == EIO
    peer.start()
    assert cluster.job(JobKind.SCRUB).counts["entries_refilled"] == 1
    with RawClient(bookie.port) as client:
        assert client.read(ledger, entry).code == EOK
