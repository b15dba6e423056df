"""Every change is an event once; what stays is none."""

from __future__ import annotations

import itertools
from dataclasses import replace

from bkbox_tui.events import EVENTS_MAX, Severity, changes
from bkbox_tui.snapshot import Snapshot
from bkbox_tui.view import View

from bkbox.api.admin.status import StatusWarning
from bkbox.jobs.job import JobState
from tests.tui.screens import Script, healthy, in_limbo, limbo_job


def said(before: Snapshot | None, after: Snapshot) -> list[tuple[Severity, str]]:
    return [(event.severity, event.text) for event in changes(before, after)]


def test_the_same_twice_is_no_event() -> None:
    snapshot = Snapshot(1, in_limbo(), (limbo_job(),))
    assert changes(snapshot, replace(snapshot, taken_ms=2)) == []


def test_a_bookie_that_goes_and_comes() -> None:
    up, down = Snapshot(1, healthy()), Snapshot(2, None, (), "no bookie is running")
    assert said(up, down) == [(Severity.ERROR, "the bookie does not answer: no bookie is running")]
    assert changes(down, replace(down, taken_ms=3)) == []
    assert said(down, up) == [(Severity.INFO, "the bookie answers; it is running")]


def test_disks_limbo_processes_and_jobs() -> None:
    one, two = healthy().disks
    failed = replace(
        in_limbo(),
        disks=(
            replace(one, state="failed", reason="Input/output error"),
            replace(two, read_only=("disk_full",)),
        ),
        processes=(healthy().processes[0], replace(healthy().processes[1], restarts=1)),
    )
    before = Snapshot(1, healthy(), (limbo_job(),))
    blocked = replace(limbo_job(JobState.BLOCKED), blocked=2)
    found = dict(reversed(item) for item in said(before, Snapshot(2, failed, (blocked,))))
    assert found["disk /data/a is failed: Input/output error"] is Severity.ERROR
    assert found["disk /data/b: read-only: disk_full"] is Severity.WARNING
    assert found["frontend 10.0.0.1:3181 ended and was started again"] is Severity.ERROR
    assert found["17 more ledgers are in limbo, 17 in all"] is Severity.WARNING
    assert found["job 3 (limbo) is blocked by 2 ledgers"] is Severity.WARNING


def test_a_ledger_that_stays_stuck_is_told_of_once() -> None:
    """A job tries it again and again, and looks to be at work in between."""
    runs, blocked = (
        replace(limbo_job(state), blocked=1) for state in (JobState.RUNNING, JobState.BLOCKED)
    )
    looks = [limbo_job(), *(30 * (runs, blocked))]
    told = [
        item
        for one, two in itertools.pairwise(looks)
        for item in said(Snapshot(0, healthy(), (one,)), Snapshot(1, healthy(), (two,)))
    ]
    assert told == [(Severity.WARNING, "job 3 (limbo) is blocked by 1 ledger")]


def test_a_warning_whose_number_changes_is_no_news() -> None:
    def warned(count: int) -> Snapshot:
        return Snapshot(
            count, replace(healthy(), warnings=(StatusWarning(f"{count} ledgers wait"),))
        )

    assert said(Snapshot(0, healthy()), warned(7)) == [(Severity.WARNING, "7 ledgers wait")]
    assert changes(warned(7), warned(8)) == []


def test_events_are_bounded() -> None:
    view = View(Script([]))
    for number in range(EVENTS_MAX):
        view.update(Snapshot(2 * number, healthy()))
        view.update(Snapshot(2 * number + 1, None, (), "gone"))
    assert len(view.events) == EVENTS_MAX
    assert view.events[-1].text == "the bookie does not answer: gone"
