"""``bkbox health`` and ``bkbox maintenance`` on a real bookie."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.metadata import connect
from tests.harness.processes import BKBOX, BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.jobs.lostdisks import closed_ledger, lose_disk


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[list[BookieProcess]]:
    """Two of one disk each, with ledger 1 on both and ledger 2 on the first alone."""
    uri = f"sqlite:{tmp_path}/metadata.db"
    made = [BookieProcess(tmp_path, uri, name=f"bookie{number}") for number in range(2)]
    try:
        for bookie in made:
            quick = {"repair_retry_initial_s": 0.2, "repair_retry_max_s": 0.5}
            bookie.init(disks=1, ack_after="write", **quick).start(wait=False)
        for bookie in made:
            bookie.wait_ready()
        closed_ledger(1, made, 3)
        closed_ledger(2, made[:1], 3)
        yield made
    finally:
        for bookie in made:
            bookie.ensure_gone()


def health(bookie: BookieProcess, *options: str) -> tuple[int, list[str]]:
    done = bkbox("health", "--config", str(bookie.config), "-o", "json", *options, check=False)
    document = json.loads(done.stdout)
    assert document["healthy"] == (done.returncode == 0)
    return done.returncode, document["waits_for"]


def mark(bookie: BookieProcess, ledger: int, *, missing: bool) -> None:
    async def go() -> None:
        async with await connect(bookie.metadata) as store:
            tree = store.under_replication
            if missing:
                await tree.mark(ledger, ["gone:3181"], 1)  # type: ignore[arg-type]
            else:
                task = await tree.acquire(ledger, "here")  # type: ignore[arg-type]
                assert task is not None
                await tree.finish(task)

    asyncio.run(go())


def test_a_bookie_is_healthy_once_nothing_is_missing(bookies: list[BookieProcess]) -> None:
    first, second = bookies
    assert health(first) == (0, [])

    mark(first, 2, missing=True)
    status, waits_for = health(first)
    assert (status, len(waits_for)) == (1, 1)
    assert "ledger 2 lacks replicas" in waits_for[0]
    assert health(second) == (0, []), "ledger 2 does not name it"
    waiting = subprocess.Popen(
        [*BKBOX, "health", "--config", str(first.config), "--exit-when-healthy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    try:
        assert "ledger 2 lacks replicas" in waiting.stderr.readline()
        mark(first, 2, missing=False)
        assert waiting.wait(30) == 0
    finally:
        waiting.kill()
        waiting.communicate()

    lose_disk(first)
    wait_for(lambda: "1 ledger is in limbo" in str(health(first)), "ledger 1 to be repaired")
    status, waits_for = health(first, "--exit-when-healthy", "--timeout", "2s")
    assert status == 1
    assert "in limbo" in waits_for[0], "nobody else has ledger 2"
    second.kill()
    assert health(second)[0] == 3
    refused = bkbox("health", "--config", str(first.config), "--timeout", "soon", check=False)
    assert refused.returncode == 2
    assert "write it as 90s, 10m or 2h" in refused.stderr


def test_a_bookie_rests_for_a_while(bookies: list[BookieProcess]) -> None:
    first, second = bookies

    def maintenance(bookie: BookieProcess, *words: str) -> str:
        return bkbox("maintenance", *words, "--config", str(bookie.config)).stderr

    def resting() -> list[str]:
        done = bkbox("maintenance", "status", "--config", str(first.config), "-o", "json")
        return [item["bookie"] for item in json.loads(done.stdout)]

    assert "nothing was changed" in maintenance(first, "on", "--for", "30m", "--dry-run")
    assert resting() == []
    assert "nothing to do" in maintenance(first, "off")
    assert first.bookie_id in maintenance(first, "on", "--for", "30m")
    first.kill()  # what it is for
    maintenance(second, "on", "--for", "1s")
    wait_for(lambda: resting() == [first.bookie_id], "the short one to end by itself")
    maintenance(first, "off")
    assert resting() == []
    for time in ("0s", "48h"):
        refused = bkbox(
            "maintenance", "on", "--for", time, "--config", str(first.config), check=False
        )
        assert refused.returncode == 2
        assert "24 h at most" in refused.stderr
