"""A bookie whose disk was lost is killed at random moments of phase two, and of the phase one before it."""

from __future__ import annotations

import shutil

import pytest

from bkbox.jobs.job import JobKind
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness import raw
from tests.harness.processes import bkbox
from tests.repair.killing import KILLS, TIMEOUT_S, enough_met, kill_within, seeds
from tests.repair.limbo.phasetwo import (
    StartCluster,
    expected,
    fill,
    in_recovery,
    ledger_over,
    limbo_of,
    payload,
    start_cluster,
    wait_until_repaired,
)

__all__ = ["start_cluster"]

ENTRIES = 40


@pytest.mark.timeout(TIMEOUT_S)
def test_phase_two_goes_on_where_it_was(start_cluster: StartCluster) -> None:
    a, b, c = bookies = start_cluster(3, restart_backoff_initial_s=0.05)
    closed = LedgerState.CLOSED
    ledgers = [
        *(ledger_over(n, (0, bookies), state=closed, last_entry=ENTRIES - 1) for n in range(1, 9)),
        ledger_over(
            9, (0, bookies), (11, [c, a, b]), write_quorum=2, state=closed, last_entry=ENTRIES - 1
        ),
    ]
    for metadata in ledgers:
        fill(bookies, metadata, ENTRIES)
    from_nothing = met = 0
    for seed, rng in enumerate(seeds()):
        for number in (2 * seed, 2 * seed + 1):  # what is not closed is closed by each round
            metadata = ledger_over(100 + number, (0, bookies))
            metadata = in_recovery(metadata) if number % 2 else metadata
            ledgers.append(metadata)
            fill(bookies, metadata, ENTRIES)
        a.kill()
        shutil.rmtree(a.disks[0])
        a.disks[0].mkdir()
        bkbox("cookie", "repair", "--config", str(a.config), "--yes")
        a.start(environment={"BKBOX_JOBS_NETWORK_BYTES_PER_SECOND": "25000"})
        met += kill_within(a, rng, 1.5, JobKind.LIMBO)
        with raw.RawClient(a.port) as client:
            for metadata in ledgers:
                for entry in expected(metadata, a, ENTRIES):
                    code = client.read(metadata.ledger_id, entry).code
                    assert code in (raw.EOK, raw.EIO), (seed, metadata.ledger_id, entry, code)
        wait_until_repaired(a)
        copied = limbo_of(a)["entries_copied"]
        assert isinstance(copied, int)
        from_nothing += copied >= sum(len(expected(each, a, ENTRIES)) for each in ledgers)
        with raw.RawClient(a.port) as client:
            for metadata in ledgers:
                for entry in expected(metadata, a, ENTRIES):
                    answer = client.read(metadata.ledger_id, entry)
                    assert answer.code == raw.EOK, (seed, metadata.ledger_id, entry)
                    assert raw.payload_of(answer.body) == payload(metadata.ledger_id, entry)
        del ledgers[9:]
    enough_met(met)
    if KILLS > 20:
        assert from_nothing < KILLS, "the last run never had less to copy than all"
