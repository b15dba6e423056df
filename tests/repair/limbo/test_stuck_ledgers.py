"""A power cut of all hosts under `ack_after = write`: what is stuck is listed, ended together, and leaves limbo."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkbox.cli.lib.exit_codes import ExitCode
from tests.harness.processes import bkbox
from tests.harness.waiting import wait_for
from tests.repair.copies import Cluster, write_ledgers


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    settings = {"ack_after": "write", "repair_retry_initial_s": 0.2, "repair_retry_max_s": 0.5}
    found.start(2, unsafe="stays-active", **settings)
    yield found
    found.close()


def test_all_that_a_power_cut_leaves_stuck_is_ended_together(cluster: Cluster) -> None:
    stuck = asyncio.run(write_ledgers(cluster.uri, 3, close=False))
    closed = asyncio.run(write_ledgers(cluster.uri, 1, close=True))
    cluster.lose_power()
    there = ("--metadata", cluster.uri)

    def listed() -> list[dict[str, Any]]:
        dry = bkbox("ledger", "end", "--stuck", "--dry-run", *there, "-o", "json")
        found: list[dict[str, Any]] = json.loads(dry.stdout)["ledgers"]
        return found

    # A bookie that has just started may not respond in time to a client of a busy machine.
    wait_for(lambda: len(listed()) == len(stuck), "every stuck ledger to be listed")
    shown = listed()
    assert [each["ledger_id"] for each in shown] == stuck
    assert all("is in limbo and cannot tell" in each["reason"] for each in shown)
    refused = bkbox("ledger", "end", "--stuck", *there, check=False)
    assert (refused.returncode, "--accept-loss" in refused.stderr) == (ExitCode.USAGE, True)
    report = json.loads(
        bkbox("ledger", "end", "--stuck", "--accept-loss", "--yes", *there, "-o", "json").stdout
    )
    assert report["not_ended"] == []
    assert {each["record"]["end"] for each in report["ledgers"]} == {4}
    assert {each["record"]["unknown_after"] for each in report["ledgers"]} == {4}
    for bookie in cluster.bookies:
        wait_for(
            lambda bookie=bookie: bookie.status()["limbo"]["ledgers"] == 0,  # type: ignore[misc]
            "limbo to end",
            timeout=60,
        )
    for number in (*stuck, *closed):
        assert bkbox("ledger", "read", str(number), *there).stdout == "01234"
    lost = json.loads(bkbox("ledger", "list", "--lost", *there, "-o", "json").stdout)
    assert [each["ledger_id"] for each in lost] == stuck
