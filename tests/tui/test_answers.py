"""Is it safe, what is it doing, how long, what next: the worst that is true decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bkbox_tui.answers import answers_of
from bkbox_tui.formatting import Level
from bkbox_tui.snapshot import DiskFiles, Snapshot

from bkbox.api.admin.status import Status
from bkbox.jobs.job import JobState
from tests.tui.screens import LOSSES, healthy, in_limbo, limbo_job

FAILED = replace(healthy(), disks=(replace(healthy().disks[0], state="failed"), healthy().disks[1]))
AWAY = replace(
    healthy(), disks=(replace(healthy().disks[0], state="out of service"), healthy().disks[1])
)
FULL = replace(healthy(), writable=False, read_only_reasons=("disk_full",))
ENDED = replace(healthy(), losses=LOSSES)
STARTING = replace(healthy(), state="starting", writable=False)


@pytest.mark.parametrize(
    ("status", "level", "words"),
    [
        (healthy(), Level.GOOD, "nothing is missing"),
        (ENDED, Level.GOOD, "1 ledger ended with loss accepted"),
        (FAILED, Level.BAD, "/data/a failed"),
        (AWAY, Level.WARNING, "/data/a out of service"),
        (in_limbo(blocked=0), Level.WARNING, "17 ledgers in limbo"),
        (in_limbo(blocked=2), Level.BAD, "2 ledgers cannot be repaired without help"),
        (FULL, Level.WARNING, "read-only: disk_full"),
        (STARTING, Level.BUSY, "starting"),
        (replace(FAILED, limbo=in_limbo().limbo), Level.BAD, "/data/a failed"),
    ],
)
def test_is_it_safe(status: Status, level: Level, words: str) -> None:
    answers = answers_of(Snapshot(0, status))
    assert answers.level is level
    assert words in answers.safe


def test_a_bookie_that_is_down_is_not_safe_and_its_disks_are_named() -> None:
    files = (DiskFiles("/data/a", "", "", 0, 0, "it cannot be looked at: No such file"),)
    answers = answers_of(Snapshot(0, None, (), "no bookie is running", files))
    assert answers.level is Level.BAD
    assert answers.next_steps[0][0].startswith("/data/a: it cannot be looked at")


def test_nothing_is_known_before_the_first_answer() -> None:
    assert answers_of(None).level is Level.UNKNOWN


def test_how_long_is_what_the_slowest_says_and_unknown_where_one_does_not_know() -> None:
    jobs = (limbo_job(), replace(limbo_job(number=4), eta_s=300.0))
    assert answers_of(Snapshot(0, healthy(), jobs)).how_long == "time left: 5 min"
    jobs = (*jobs, replace(limbo_job(number=5), eta_s=None))
    assert answers_of(Snapshot(0, healthy(), jobs)).how_long == "time left: unknown"
    assert answers_of(Snapshot(0, healthy())).how_long == "nothing to wait for"


def test_what_is_stuck_comes_before_warnings() -> None:
    steps = answers_of(Snapshot(0, in_limbo(blocked=1))).next_steps
    assert steps[0] == (
        "ledger 1: 1 entry is missing: 10.0.0.2:3181 is away",
        "bring back 10.0.0.2:3181",
    )
    assert steps[1][1] == "bkbox job watch 3 --config bookie.toml"


def test_paused_work_is_named_as_that() -> None:
    answers = answers_of(Snapshot(0, healthy(), (limbo_job(JobState.PAUSED),)))
    assert answers.doing == "serving, and limbo (15 %, paused)"


def test_a_job_that_stands_by_is_no_work_and_nothing_to_wait_for() -> None:
    replication = replace(limbo_job(), standing_by=True, percent=None, eta_s=None)
    answers = answers_of(Snapshot(0, healthy(), (replication,)))
    assert answers.doing == "serving; no other work"
    assert answers.how_long == "nothing to wait for"
    both = answers_of(Snapshot(0, healthy(), (replication, limbo_job(number=4))))
    assert both.doing == "serving, and limbo (15 %)"


def test_a_process_that_makes_no_progress_is_not_safe() -> None:
    front = replace(healthy().processes[1], stalled_s=7.0, stall="it is stopped")
    answers = answers_of(Snapshot(0, replace(healthy(), processes=(front,))))
    assert answers.level is Level.BAD
    assert "has made no progress for 7 s: it is stopped" in answers.safe
