"""One row for each bookie of a cluster. Pure.

Sizes are bytes, rates per second; None is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from bkbox.api.admin.cluster_members import DOWN, READ_ONLY, WRITABLE, Member
from bkbox.api.admin.status import Status
from bkbox.checks import registry
from bkbox.checks.bookie import of_status
from bkbox.checks.causes import fold
from bkbox.checks.registry import Verdict, worst
from bkbox.jobs.job import Job, JobState

APACHE = "Apache BookKeeper"
"""The version of a bookie that says none."""
State = Literal[
    "",
    "writable",
    "read-only",
    "starting",
    "stopping",
    "stopped",
    "refused",
    "no answer",
    "being asked",
    "down",
]


@dataclass(frozen=True, slots=True)
class Report:
    """A bookie's own report. ``state``: "" if it only responds; ``problems``: what is wrong, worst first;
    ``jobs``: those at work, by kind with their progress; ``add_p99_us``: of the last minute, on its slowest disk;
    ``short``: copies that it lacks; ``deleted``: ledgers in its trash, twice if on two disks; ``garbage_bytes``:
    what a compaction would give back; ``checked_ms``: when a check last found that it lacks no copy, 0: never."""

    state: State = ""
    verdict: Verdict = "ok"
    problems: tuple[str, ...] = ()
    total_bytes: int | None = None
    free_bytes: int | None = None
    disks: int | None = None
    disks_in_service: int | None = None
    adds: float | None = None
    reads: float | None = None
    bytes: float | None = None
    add_p99_us: int | None = None
    read_p99_us: int | None = None
    limbo: int | None = None
    stuck: int | None = None
    short: int | None = None
    deleted: int | None = None
    garbage_bytes: int | None = None
    jobs: tuple[str, ...] | None = None
    checked_ms: int | None = None
    version: str | None = None

    @property
    def fill(self) -> float | None:
        """Share of the disks that is in use."""
        if not self.total_bytes or self.free_bytes is None:
            return None
        return 1 - self.free_bytes / self.total_bytes


@dataclass(frozen=True, slots=True)
class BookieRow:
    """A bookie. ``mode`` is that of the metadata store, ``state`` what is true of it now; ``silent_s``: for how long it
    has not answered, None: it does. The report of a silent bookie is its last one, without rates."""

    bookie: str
    state: State
    verdict: Verdict
    problems: tuple[str, ...]
    mode: str
    silent_s: float | None = None
    rack: str | None = None
    address: str | None = None
    admin: str | None = None
    report: Report = field(default_factory=Report)


def row_of(
    member: Member, report: Report | None, silent_s: float | None, failure: str
) -> BookieRow:
    """``report``: the last one, None: none yet; ``failure``: why there is no newer one."""
    there = (member.rack, member.address, member.admin)
    known = report or Report()
    if silent_s is not None:
        state: State = "down" if member.mode == DOWN else "no answer"
        last = replace(known, adds=None, reads=None, bytes=None, add_p99_us=None, read_p99_us=None)
        return BookieRow(
            *(member.id, state, "fail", (failure or "it does not answer",), member.mode, silent_s),
            *there,
            last,
        )
    if report is None:
        waits: State = "down" if member.mode == DOWN else "being asked"
        verdict: Verdict = "fail" if member.mode == DOWN else "warn"
        problems = ("it is not registered in the metadata store",) if member.mode == DOWN else ()
        return BookieRow(member.id, waits, verdict, problems, member.mode, None, *there)
    mode: State = "read-only" if member.mode == READ_ONLY else "writable"
    state = report.state or mode
    verdict = worst_of(report.verdict, "warn" if state != WRITABLE else "ok")
    return BookieRow(member.id, state, verdict, report.problems, member.mode, None, *there, report)


def worst_of(*verdicts: Verdict) -> Verdict:
    return max(verdicts, key=("ok", "warn", "fail").index)


def report_of(status: Status) -> Report:
    """The report of a bkbox bookie."""
    blocked = registry.BLOCKED.id
    more = (blocked, registry.UNCHECKED.id)  # no copy is known to be short before all were compared
    findings = fold(
        each
        for each in of_status(status)
        if each.verdict != "ok" and (registry.HEALTHZ in each.views or each.check in more)
    )
    findings.sort(key=lambda each: each.verdict != "fail")
    texts = [each.why for each in findings]
    texts += [each.why for found in findings for each in found.effects if each.check == blocked]
    state: State = "writable" if status.writable else "read-only"
    if status.state != "running":
        state = status.state
    sized = [disk for disk in status.disks if disk.total_bytes]
    spaces = [disk.space for disk in status.disks if disk.space is not None]
    garbage = [each.reclaimable_bytes for each in spaces if each.reclaimable_bytes is not None]
    return Report(
        state=state,
        verdict=worst(findings),
        problems=tuple(dict.fromkeys(texts)),
        total_bytes=sum(disk.total_bytes for disk in sized) if sized else None,
        free_bytes=sum(disk.free_bytes for disk in sized) if sized else None,
        disks=len(status.disks),
        disks_in_service=sum(disk.state == "in service" for disk in status.disks),
        adds=status.rates.adds,
        reads=status.rates.reads,
        bytes=status.rates.bytes,
        add_p99_us=recent_p99_us(status, "add"),
        read_p99_us=recent_p99_us(status, "read"),
        limbo=status.limbo.ledgers,
        stuck=status.limbo.stuck,
        short=status.copies.short,
        deleted=sum(each.trash_ledgers for each in spaces) if spaces else None,
        garbage_bytes=sum(garbage) if garbage else None,
        jobs=tuple(_job(job) for job in status.jobs.active if not job.standing_by),
        checked_ms=status.copies.checked_ms,
        version=f"bkbox {status.version}",
    )


def recent_p99_us(status: Status, operation: str) -> int | None:
    """The recent p99 latency of adds, or reads, on the slowest disk that answers, in microseconds; None: of none."""
    found = [
        each.recent_p99_us
        for disk in status.disks
        if disk.state == "in service"
        for each in disk.operations
        if each.operation == operation and each.recent_count
    ]
    return max(found, default=None)


def _job(job: Job) -> str:
    parts = [job.kind.value] if job.percent is None else [job.kind.value, f"{job.percent:.0f}%"]
    return " ".join(parts if job.state is JobState.RUNNING else [*parts, job.state.value])


# ---- order and selection ------------------------------------------------------------------------

_VERDICTS = ("fail", "warn", "ok")


def _largest(figure: Callable[[Report], float | None]) -> Callable[[BookieRow], tuple[float, str]]:
    def key(row: BookieRow) -> tuple[float, str]:
        found = figure(row.report)
        return (float("inf") if found is None else -found), row.bookie

    return key


ORDERS: dict[str, Callable[[BookieRow], tuple[float, str]]] = {
    "state": lambda row: (_VERDICTS.index(row.verdict), row.bookie),
    "bookie": lambda row: (0, row.bookie),
    "fill": _largest(lambda report: report.fill),
    "adds": _largest(lambda report: report.adds),
    "reads": _largest(lambda report: report.reads),
    "bytes": _largest(lambda report: report.bytes),
    "p99": _largest(lambda report: report.add_p99_us),
    "limbo": _largest(lambda report: report.limbo),
    "jobs": _largest(lambda report: None if report.jobs is None else len(report.jobs)),
    "checked": lambda row: (row.report.checked_ms or 0, row.bookie),
}
"""Sort keys by name: the worst state, the largest figure, the oldest check first; what is not known last."""


def selected(rows: Iterable[BookieRow], order: str, text: str) -> list[BookieRow]:
    """The rows in this order that contain the text, in any case."""
    needle = text.lower()
    return sorted((row for row in rows if needle in _search_text(row)), key=ORDERS[order])


def _search_text(row: BookieRow) -> str:
    report = row.report
    parts = (row.bookie, row.state, row.mode, row.rack, row.address, report.version)
    return " ".join(filter(None, (*parts, *row.problems, *(report.jobs or ())))).lower()


def summary(rows: Iterable[BookieRow]) -> str:
    """The number of bookies in each state, the best first: ``3 writable, 1 no answer``."""
    counts = Counter(str(row.state) for row in rows)
    states = dict.fromkeys((WRITABLE, READ_ONLY, *sorted(counts)))
    return ", ".join(f"{counts[state]} {state}" for state in states if counts[state])
