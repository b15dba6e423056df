"""``bkbox job …`` and what stands behind it, on real bookies: paused, slowed down, gone on with after a kill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import raw
from tests.harness.processes import BookieProcess, bkbox
from tests.harness.waiting import wait_for
from tests.jobs.lostdisks import (
    closed_ledger,
    job,
    lose_disk,
    only_job,
    payload,
    wait_for_state,
)

ENTRIES = 400
SLOW = 8000
"""Bytes a second: some twenty of the entries."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[BookieProcess]]:
    """Two bookies of one disk with a ledger on both; the first has lost its disk, and repair is slow."""
    uri = f"sqlite:{tmp_path}/metadata.db"
    bookies = [BookieProcess(tmp_path, uri, name=f"bookie{number}") for number in range(2)]
    try:
        for bookie in bookies:
            bookie.init(
                disks=1,
                ack_after="write",
                jobs_network_bytes_per_second=SLOW,
                repair_entries_in_flight=1,
                repair_retry_initial_s=0.2,
                repair_retry_max_s=0.5,
            ).start(wait=False)
        for bookie in bookies:
            bookie.wait_ready()
        closed_ledger(1, bookies, ENTRIES)
        lose_disk(bookies[0])
        yield bookies
    finally:
        for bookie in bookies:
            bookie.ensure_gone()


def copied(bookie: BookieProcess) -> int:
    return int(only_job(bookie)["done"]["entries"])


def all_there(bookie: BookieProcess) -> bool:
    with raw.RawClient(bookie.port) as client:
        answers = [client.read(1, entry) for entry in range(ENTRIES)]
    return [raw.payload_of(answer.body) for answer in answers] == [
        payload(1, entry) for entry in range(ENTRIES)
    ]


def test_the_limbo_job_is_paused_slowed_down_and_let_go(pair: list[BookieProcess]) -> None:
    bookie = pair[0]
    number = str(only_job(bookie)["id"])
    wait_for(lambda: copied(bookie) >= 3, "some entries to be copied")

    job(bookie, "pause", number)
    paused = wait_for_state(bookie, int(number), "paused")
    assert paused["asked"] == "pause"
    time.sleep(1.5)  # what was under way
    before = copied(bookie)
    assert before < ENTRIES
    time.sleep(2.0)
    assert copied(bookie) == before, "a job that is paused does nothing"

    refused = bkbox("job", "cancel", number, "--config", str(bookie.config), check=False)
    assert refused.returncode == 2
    assert f"bkbox job pause {number}" in refused.stderr

    bkbox("job", "rate", "--all", "unlimited", "--config", str(bookie.config))
    slowed = job(bookie, "rate", number, "1KiB")
    assert slowed["bytes_per_second"] == 1024
    job(bookie, "resume", number)
    began = time.monotonic()
    wait_for_state(bookie, int(number), "running")
    time.sleep(2.0)
    # A bucket that is full, one piece that passes before it is paid for, and what the command takes.
    most = 1024 * (time.monotonic() - began + 3.0) / len(payload(1, 100))
    assert copied(bookie) - before <= most

    job(bookie, "rate", number, "unlimited")
    ended = wait_for_state(bookie, int(number), "done")
    assert ended["percent"] == 100.0
    assert ended["done"]["ledgers"] == 1
    assert bookie.status()["limbo"]["ledgers"] == 0
    assert all_there(bookie)
    assert bkbox("job", "watch", number, "--config", str(bookie.config)).returncode == 0

    again = bkbox("job", "pause", number, "--config", str(bookie.config), check=False)
    assert again.returncode == 2
    assert "has ended already" in again.stderr
    missing = bkbox("job", "show", "999", "--config", str(bookie.config), check=False)
    assert missing.returncode == 6
    assert "no job 999" in missing.stderr


def test_a_bookie_killed_in_phase_two_goes_on_with_its_job(pair: list[BookieProcess]) -> None:
    bookie = pair[0]
    first = only_job(bookie)
    for _ in range(2):
        before = wait_for(lambda: copied(bookie), "an entry to be copied")
        assert before < ENTRIES
        bookie.kill()
        bookie.start()
        assert only_job(bookie)["id"] == first["id"], "the history survives, and the job with it"
    job(bookie, "pause", str(first["id"]))
    wait_for_state(bookie, first["id"], "paused")
    bookie.kill()
    bookie.start()
    wait_for_state(bookie, first["id"], "paused")
    bkbox("job", "rate", "--all", "unlimited", "--config", str(bookie.config))
    job(bookie, "resume", str(first["id"]))
    ended = wait_for_state(bookie, first["id"], "done")
    assert ended["done"]["entries"] < ENTRIES, "what was copied before was not copied again"
    assert all_there(bookie)

    assert bookie.stop() == 0
    bookie.start()
    found = only_job(bookie)
    assert (found["id"], found["state"]) == (first["id"], "done")
    assert bookie.status()["jobs"]["done"] >= 1


def test_a_job_that_is_stuck_says_where_and_what_to_do(tmp_path: Path) -> None:
    bookie = BookieProcess(tmp_path, f"sqlite:{tmp_path}/metadata.db")
    quick = {"repair_retry_initial_s": 0.5, "repair_retry_max_s": 20.0}
    try:
        bookie.init(disks=1, ack_after="write", **quick).start()
        closed_ledger(7, [bookie], 3)
        lose_disk(bookie)
        found = wait_for_state(bookie, only_job(bookie)["id"], "blocked")
        assert (found["blocked"], found["eta_s"], found["percent"]) == (1, None, 0.0)
        [blocker] = found["blockers"]
        assert blocker["ledger"] == 7
        assert "no other bookie" in blocker["reason"]
        status = bookie.status()
        assert found["id"] in [each["id"] for each in status["jobs"]["active"]]
        commands = [
            each["command"] for each in status["warnings"] if "cannot go on" in each["text"]
        ]
        assert commands == [f"bkbox job show {found['id']} --config {bookie.config}"]
        shown = bkbox(*commands[0].split()[1:]).stdout
        assert blocker["what_to_do"] in shown
    finally:
        bookie.ensure_gone()
