"""A bookie that takes itself out of the cluster is killed at random moments, comes back read-only, and goes on."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from bkbox.base.ids import BookieId, LedgerId
from bkbox.jobs.job import JobKind
from tests.harness.cluster import bookies_of
from tests.harness.processes import BKBOX, bkbox
from tests.repair.copies import Cluster, hands
from tests.repair.killing import TIMEOUT_S, enough_met, jobs, kill_within, seeds, wait_for_job

LEDGERS, ENTRIES = 10, 60


@pytest.mark.timeout(TIMEOUT_S)
def test_a_decommission_goes_on_where_it_was(cluster: Cluster) -> None:
    bookies = cluster.start(
        4, jobs_network_bytes_per_second=200_000, autorecovery_open_ledger_grace_s=0
    )

    async def write() -> list[LedgerId]:
        async with hands(cluster.uri) as our:
            ledgers = [await our.closed(ENTRIES) for _ in range(LEDGERS // 2)]
            return ledgers + [await our.closed(ENTRIES, 3, 2, 2) for _ in range(LEDGERS // 2)]

    async def look(ledgers: list[LedgerId], leaver: str) -> None:
        async with hands(cluster.uri) as our:
            for ledger in ledgers:
                metadata = await our.assert_whole(ledger, ENTRIES)
                assert BookieId(leaver) not in metadata.bookies()
            assert not await our.store.under_replication.locked()
            assert await our.store.under_replication.count() == 0

    ledgers = asyncio.run(write())
    met = 0
    for seed, rng in enumerate(seeds()):
        leaver = bookies[seed % len(bookies)]
        here = ["--config", str(leaver.config)]
        before = len(jobs(leaver, "decommission"))
        start_decommission(leaver.bookie_id, here)
        met += kill_within(leaver, rng, 2.5, JobKind.DECOMMISSION)
        job = wait_for_job(leaver, "decommission", before)
        assert (job["state"], job["error"]) == ("done", ""), seed
        assert bookies_of(cluster.uri)[leaver.bookie_id], "read-only, over every kill"
        asyncio.run(look(ledgers, leaver.bookie_id))
        bkbox("bookie", "read-only", "off", *here)
    enough_met(met)


def start_decommission(bookie: str, here: list[str]) -> None:
    """The command only watches after that."""
    with subprocess.Popen(
        [*BKBOX, "decommission", bookie, *here, "--yes"], stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stderr is not None
        for line in command.stderr:
            if "it goes on if this command ends" in line:
                break
        command.kill()
