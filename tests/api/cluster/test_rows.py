"""What a cluster's rows make of reports: the worst wins, nothing is dropped, what is not known is not guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bkbox.api.admin.cluster_members import DOWN, READ_ONLY, WRITABLE, Member
from bkbox.api.admin.status import Copies, Jobs, Metadata, Rates, Status
from bkbox.api.cluster.rows import (
    ORDERS,
    BookieRow,
    Report,
    report_of,
    row_of,
    selected,
    summary,
)
from bkbox.jobs.job import JobState
from tests.tui.screens import healthy, in_limbo, limbo_job

REGISTERED = Metadata("sqlite:c.db", registered=True)


def member(number: int = 1, mode: str = WRITABLE) -> Member:
    name = f"10.0.0.{number}:3181"
    return Member(name, None if mode == DOWN else name, mode)


def whole() -> Status:
    """Healthy, and registered in a metadata store."""
    return replace(healthy(), metadata=REGISTERED, rates=Rates(20.0, 4096.0, 7.0))


def row(status: Status, mode: str = WRITABLE) -> BookieRow:
    return row_of(member(mode=mode), report_of(status), None, "")


def test_a_healthy_bookie_has_figures_and_no_problem() -> None:
    found = row(whole())
    report = found.report
    assert (found.state, found.verdict, found.problems, found.silent_s) == (
        "writable",
        "ok",
        (),
        None,
    )
    assert (report.adds, report.bytes, report.reads) == (20.0, 4096.0, 7.0)
    assert (report.add_p99_us, report.read_p99_us) == (3_100, 210)
    assert report.fill == 0.5
    assert (report.disks, report.disks_in_service, report.limbo, report.jobs) == (2, 2, 0, ())
    assert (report.short, report.checked_ms) == (None, 0), "there was no check"
    assert report.version == "bkbox 0.1.0"


def changed(status: Status, **disk: object) -> Status:
    first, *others = status.disks
    return replace(status, disks=(replace(first, **disk), *others))


@pytest.mark.parametrize(
    ("status", "state", "verdict", "problem"),
    [
        (replace(whole(), state="starting", writable=False), "starting", "fail", "starting"),
        (changed(whole(), state="failed", reason="EIO"), "writable", "fail", "failed: EIO"),
        (
            replace(whole(), writable=False, read_only_reasons=("disk full",)),
            "read-only",
            "warn",
            "disk full",
        ),
        (
            replace(whole(), metadata=Metadata("zk://z", unregistered_s=12)),
            "writable",
            "fail",
            "not registered in the metadata store, for 12 s",
        ),
        (replace(in_limbo(), metadata=REGISTERED), "writable", "warn", "17 ledgers are in limbo"),
        (replace(in_limbo(), metadata=REGISTERED), "writable", "warn", "10.0.0.2:3181 is away"),
    ],
)
def test_trouble_has_a_verdict_and_a_reason(
    status: Status, state: str, verdict: str, problem: str
) -> None:
    found = row(status)
    assert (found.state, found.verdict) == (state, verdict)
    assert any(problem in each for each in found.problems), found.problems


def test_the_worst_problem_comes_first() -> None:
    found = row(changed(replace(in_limbo(), metadata=REGISTERED), state="failed", reason="EIO"))
    assert "failed" in found.problems[0]
    assert "limbo" in found.problems[1]


def test_jobs_at_work_are_told_and_idle_ones_are_not() -> None:
    active = (
        limbo_job(),
        limbo_job(JobState.BLOCKED),
        replace(limbo_job(), percent=None),
        replace(limbo_job(), standing_by=True),
    )
    found = row(replace(whole(), jobs=Jobs(active)))
    assert found.report.jobs == ("limbo 15%", "limbo 15% blocked", "limbo")


def test_copies_that_are_short_and_the_last_complete_check() -> None:
    found = row(replace(whole(), copies=Copies(short=7, checked_ms=3_000)))
    assert (found.report.short, found.report.checked_ms) == (7, 3_000)
    assert found.verdict == "warn"
    assert any("copies are short" in problem for problem in found.problems)


def test_a_bookie_that_still_compares_its_copies_is_not_called_well() -> None:
    compares = replace(whole(), copies=Copies(short=0, checking=True))
    found = report_of(compares)
    assert (found.verdict, found.short) == ("warn", 0)
    assert "still compares" in found.problems[0]
    assert report_of(replace(compares, copies=Copies(short=0, checked_ms=5))).verdict == "ok"


def test_limbo_and_why_it_stays_are_both_told() -> None:
    found = report_of(replace(in_limbo(17, 2), metadata=REGISTERED))
    assert found.stuck == 2
    assert "17 ledgers are in limbo, 2 of them stuck" in found.problems[0]
    assert sum("cannot be repaired by itself" in each for each in found.problems) == 2


def test_a_silent_bookie_keeps_what_it_said_last_without_rates() -> None:
    found = row_of(member(), report_of(whole()), 12.5, "connection refused")
    assert (found.state, found.verdict, found.silent_s) == ("no answer", "fail", 12.5)
    assert found.problems == ("connection refused",)
    assert found.report.fill == 0.5
    assert (found.report.adds, found.report.add_p99_us) == (None, None)
    assert row_of(member(mode=DOWN), None, 3.0, "").state == "down"


def test_before_its_first_answer_a_bookie_is_neither_well_nor_silent() -> None:
    assert row_of(member(), None, None, "").state == "being asked"
    down = row_of(member(mode=DOWN), None, None, "")
    assert (down.state, down.verdict) == ("down", "fail")


def test_a_bookie_that_only_tells_its_space_has_the_mode_of_the_metadata_store() -> None:
    space = Report(verdict="warn", problems=("no token",), total_bytes=10, free_bytes=5)
    assert row_of(member(mode=READ_ONLY), space, None, "").state == "read-only"
    assert row_of(member(), space, None, "").verdict == "warn"


ROWS = [
    row_of(member(1), Report(adds=5.0, limbo=0, checked_ms=7), None, ""),
    row_of(member(2, READ_ONLY), Report(adds=9.0, limbo=3, checked_ms=0), None, ""),
    row_of(member(3), None, 2.0, "no route"),
]


@pytest.mark.parametrize(
    ("order", "first"), [("bookie", 1), ("state", 3), ("adds", 2), ("limbo", 2), ("checked", 2)]
)
def test_rows_are_sorted(order: str, first: int) -> None:
    found = selected(ROWS, order, "")
    assert next(row.bookie for row in found) == member(first).id
    assert len(found) == 3


def test_every_order_takes_every_row() -> None:
    for order in ORDERS:
        assert sorted(row.bookie for row in selected(ROWS, order, "")) == [
            member(number).id for number in (1, 2, 3)
        ]


def test_rows_are_filtered_by_any_text() -> None:
    assert [row.bookie for row in selected(ROWS, "bookie", "NO ROUTE")] == [member(3).id]
    assert [row.bookie for row in selected(ROWS, "bookie", "read-only")] == [member(2).id]
    assert selected(ROWS, "bookie", "nothing like it") == []


def test_the_summary_counts_states() -> None:
    assert summary(ROWS) == "1 writable, 1 read-only, 1 no answer"
    assert summary([]) == ""
