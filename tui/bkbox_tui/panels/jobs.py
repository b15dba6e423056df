"""The jobs: progress, speed, time left, and what blocks them."""

from __future__ import annotations

from textual.app import ComposeResult

from bkbox.base.text import counted, rate_text
from bkbox.jobs.job import Job, JobState
from bkbox_tui.charts import bar
from bkbox_tui.formatting import Level, amount, size, span
from bkbox_tui.panels.base import Panel
from bkbox_tui.sources import Bookie
from bkbox_tui.table import Table
from bkbox_tui.view import View
from bkbox_tui.widgets import TextLabel

_BAR = 10
_BLOCKERS_MAX = 20
_LEVELS = {
    JobState.QUEUED: Level.BUSY,
    JobState.RUNNING: Level.BUSY,
    JobState.PAUSED: Level.WARNING,
    JobState.BLOCKED: Level.BAD,
    JobState.FAILED: Level.BAD,
    JobState.CANCELLED: Level.UNKNOWN,
}


class Jobs(Panel):
    """Running jobs first, then ended ones, the newest first."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._jobs: dict[str, Job] = {}
        self._source: Bookie | None = None

    def compose(self) -> ComposeResult:
        yield Table(
            ["job", "kind", "state", "done", "rate", "left", "blocked"],
            id="all-jobs",
            title="Jobs",
            fills=True,
            right={"job", "rate", "left", "blocked"},
        )
        yield TextLabel(id="job-details", classes="box", title="Job")

    def show(self, view: View) -> None:
        self._source = view.source if isinstance(view.source, Bookie) else None
        jobs = view.snapshot.jobs if view.snapshot is not None else ()
        ordered = sorted(jobs, key=lambda job: (job.state.ended, -job.id))
        self._jobs = {str(job.id): job for job in ordered}
        self.query_one("#all-jobs", Table).show(
            [(key, _row(job)) for key, job in self._jobs.items()]
        )
        self._details()

    @property
    def selected(self) -> Job | None:
        """The job under the cursor."""
        return self._jobs.get(self.query_one("#all-jobs", Table).selected or "")

    def on_table_row_selected(self, _event: object) -> None:
        self._details()

    def _details(self) -> None:
        job = self.selected
        text = "there are no jobs" if not self._jobs else ""
        if job is not None:
            text = "\n".join(_details(job, self._source))
        self.query_one("#job-details", TextLabel).set_content(text)


def _row(job: Job) -> tuple[str, ...]:
    share = None if job.percent is None else job.percent / 100
    rate = f"{size(job.rate.bytes)}/s" if job.rate.bytes else f"{amount(job.rate.entries)}/s"
    at_work = job.state is JobState.RUNNING
    return (
        str(job.id),
        job.kind.value,
        f"[{_LEVELS.get(job.state, Level.GOOD).sign}] {job.state.value}",
        bar(share, _BAR) + ("" if share is None else f" {share:.0%}"),
        rate if at_work else "-",
        span(job.eta_s) if at_work else "-",
        str(job.blocked) if job.blocked else "-",
    )


def _details(job: Job, source: Bookie | None) -> list[str]:
    arguments = ", ".join(f"{name} {value}" for name, value in job.arguments.items())
    limit = (
        "no limit of its own"
        if not job.bytes_per_second
        else f"at most {rate_text(job.bytes_per_second)}"
    )
    lines = [
        f"job {job.id}: {job.kind.value} {arguments}".rstrip() + f", {job.state.value}",
        f"{job.step or 'nothing said'}; {limit}",
        f"done: {counted(job.done.ledgers, 'ledger')}, {counted(job.done.entries, 'entry')}, {size(job.done.bytes)}",
    ]
    if job.error:
        lines.append(f"error: {job.error}")
    for blocker in job.blockers[:_BLOCKERS_MAX]:
        lines.append(f"- ledger {blocker.ledger}: {blocker.reason}")
        lines.append(f"    {blocker.what_to_do}")
    if job.blocked > len(job.blockers[:_BLOCKERS_MAX]):
        more = f"- and {job.blocked - len(job.blockers[:_BLOCKERS_MAX])} more"
        lines.append(more if source is None else f"{more}: {source.job_command(job.id)}")
    return lines
