"""The verdict of ``bkbox chaos`` on a history, as a document and as text."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from bkbox.cli.lib.output import Format, print_document, print_fields, print_table
from proof.chaos.history_checker import Verdict, Violation


@dataclass(frozen=True, slots=True)
class RecoveryTimes:
    """The time until the target of a fault, or a started bookie, served again, if it did: median and maximum."""

    median_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class FaultCount:
    """A kind of fault: how often there was one, and how often it was drawn but not allowed then."""

    fault: str
    times: int
    not_allowed: int
    back: RecoveryTimes | None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The summary of a history. ``complete``: the run came to its end; ``operations``: how often each had which
    outcome; ``boots``: how long starts of bookies took."""

    seed: int
    complete: bool
    seconds: float
    faults: list[FaultCount]
    operations: dict[str, dict[str, int]]
    boots: RecoveryTimes | None
    entries_read: int
    restarts: int
    limbo_cleared: int
    violations: list[Violation]


def print_verdict(verdict: Verdict, output: Format) -> None:
    """As one document, or in tables."""
    result = _check_result(verdict)
    if output != "table":
        print_document(asdict(result), output)
    else:
        _show(result)


def _check_result(verdict: Verdict) -> CheckResult:
    operations: dict[str, dict[str, int]] = {}
    for (operation, outcome), count in sorted(verdict.done.items()):
        operations.setdefault(operation, {})[outcome] = count
    return CheckResult(
        seed=verdict.seed,
        complete=verdict.complete,
        seconds=verdict.seconds,
        faults=[
            FaultCount(
                name, verdict.faults[name], verdict.skipped[name], _back(verdict.back_s[name])
            )
            for name in sorted(verdict.faults.keys() | verdict.skipped.keys())
        ],
        operations=operations,
        boots=_back(verdict.back_s["boot"]),
        entries_read=verdict.entries_read,
        restarts=verdict.restarts,
        limbo_cleared=verdict.limbo_cleared,
        violations=verdict.violations,
    )


def _back(times_s: list[float]) -> RecoveryTimes | None:
    return RecoveryTimes(sorted(times_s)[len(times_s) // 2], max(times_s)) if times_s else None


def _show(result: CheckResult) -> None:
    rows = []
    for each in result.faults:
        back = each.back
        times = ("-", "-") if back is None else (f"{back.median_s:.1f}", f"{back.max_s:.1f}")
        rows.append((each.fault, each.times, each.not_allowed, *times))
    print_table(("fault", "times", "not allowed then", "back after s", "at most s"), rows)
    boots = result.boots

    def done(operation: str, outcome: str = "ok") -> str:
        return f"{result.operations.get(operation, {}).get(outcome, 0):,}"

    click.echo()
    print_fields(
        [
            ("seconds", f"{result.seconds:.0f}"),
            ("faults", f"{sum(each.times for each in result.faults):,}"),
            ("ledgers created", done("create")),
            ("adds acknowledged", done("add")),
            ("adds refused, unknown", f"{done('add', 'refused')}, {done('add', 'unknown')}"),
            ("entries read", f"{result.entries_read:,}"),
            ("ledgers closed by writers", done("close")),
            ("recoveries", done("recover")),
            ("ledgers deleted", done("delete")),
            ("starts of bookies", done("boot")),
            ("processes restarted", f"{result.restarts:,}"),
            ("ledgers out of limbo", f"{result.limbo_cleared:,}"),
            (
                "start of a bookie, s",
                "-" if boots is None else f"{boots.median_s:.1f}, at most {boots.max_s:.1f}",
            ),
            ("came to its end", result.complete),
            ("violations", len(result.violations)),
        ]
    )
    for violation in result.violations:
        click.echo(f"violation: {violation}")
        for fault in violation.near:
            click.echo(f"  near: {fault}")
