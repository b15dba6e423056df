"""A recovery that is a job: it goes on until enough bookies can tell, and says for whom it waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkbox.client.client import connect
from bkbox.wire.metadata.ledger import LedgerState
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[list[BookieProcess]]:
    uri = f"sqlite:{tmp_path}/metadata.db"
    made = [BookieProcess(tmp_path, uri, name=f"bookie{number}") for number in range(3)]
    for bookie in made:
        bookie.init(disks=1, repair_retry_initial_s=0.2, repair_retry_max_s=0.5)
        bookie.start(wait=False)
    for bookie in made:
        bookie.wait_ready()
    yield made
    for bookie in made:
        bookie.ensure_gone()


def test_a_recovery_waits_for_whoever_can_tell(bookies: list[BookieProcess]) -> None:
    async def write() -> int:
        async with connect(bookies[0].metadata) as client:
            writer = await client.create_ledger(3, 3, 2)
            await writer.append_many([b"x"] * 20)
            await writer.abort()
            return int(writer.ledger_id)

    async def state(ledger: int) -> tuple[LedgerState, int]:
        async with connect(bookies[0].metadata) as client:
            found = await client.metadata(ledger)
            return found.state, found.last_entry

    ledger = asyncio.run(write())
    here = ["--config", str(bookies[0].config)]
    wrong = bkbox(
        "ledger", "recover", str(ledger), "--job", "--metadata", bookies[0].metadata, check=False
    )
    assert (wrong.returncode, "--job goes with --config" in wrong.stderr) == (2, True)
    for bookie in bookies[1:]:
        bookie.kill()
    started = json.loads(
        bkbox("ledger", "recover", str(ledger), "--job", *here, "-o", "json").stdout
    )

    def job() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            bkbox("job", "show", str(started["id"]), *here, "-o", "json").stdout
        )
        return found

    blocked = wait_for(lambda: (found := job())["blockers"] and found, "it to be stuck", timeout=60)
    [blocker] = blocked["blockers"]
    assert blocker["ledger"] == ledger
    assert blocker["reason"]
    assert blocker["what_to_do"]
    assert (asyncio.run(state(ledger)))[0] is not LedgerState.CLOSED
    for bookie in bookies[1:]:
        bookie.start()
    wait_for(lambda: job()["state"] == "done", "its end", timeout=60, pause=0.2)
    assert asyncio.run(state(ledger)) == (LedgerState.CLOSED, 19)
    again = json.loads(bkbox("ledger", "recover", str(ledger), "--job", *here, "-o", "json").stdout)
    started["id"] = again["id"]
    wait_for(lambda: job()["state"] == "done", "the end of one that has nothing to do")
