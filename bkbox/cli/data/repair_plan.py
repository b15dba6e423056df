"""``bkbox repair``: executes the plan made from an audit."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.audit.plan import BY_PERSONS, Step, plan_of, read_plan, write_plan
from bkbox.base.text import UNLIMITED, counted
from bkbox.cli.data.audit import DIRECTORY, OpenedTarget
from bkbox.cli.lib.engines import engine_options
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.format_failures import LedgerFailure, print_failures
from bkbox.cli.lib.options import FILE, bytes_per_second, confirm, metadata_option, yes_option
from bkbox.cli.lib.output import Format, message, output_option, print_document, print_table, prints
from bkbox.cli.lib.progress_bar import ProgressBar

_SHOWN = 20


@dataclass(frozen=True)
class RepairReport:
    """The result: ledgers that are as planned, copies that were made. ``not_shown``: ledgers whose copies were
    taken by bookies that do not show them yet; ``left_to_persons``: steps."""

    ledgers: int
    copies: int
    bytes: int
    failed: list[LedgerFailure]
    not_shown: list[LedgerFailure]
    left_to_persons: int


@dataclass(frozen=True)
class PlannedStep:
    """A row of the plan (bkbox/audit/plan.py)."""

    action: str
    ledger_id: int
    bookie: str
    first_entry: int
    last_entry: int
    entries: int
    sha256: str
    why: str


@dataclass(frozen=True)
class Plan:
    """With --dry-run."""

    steps: list[PlannedStep]


@click.command()
@metadata_option
@click.option("--from-audit", type=DIRECTORY, metavar="DIR", help="Results of `bkbox audit`.")
@click.option("--plan", "plan_file", type=FILE, metavar="FILE", help="A plan to carry out.")
@click.option(
    "--write-plan", "write_plan_to", type=FILE, metavar="FILE", help="Only write the plan, as CSV."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option(
    "--rate",
    default=UNLIMITED,
    show_default=True,
    metavar="RATE",
    help="Copy at most so much a second per task, as 50MiB/s.",
)
@yes_option
@engine_options
@output_option
@prints(RepairReport, Plan)
@click.pass_context
def repair(
    ctx: click.Context,
    metadata: str,
    from_audit: Path | None,
    plan_file: Path | None,
    write_plan_to: Path | None,
    dry_run: bool,
    rate: str,
    yes: bool,
    engine: OpenedTarget,
    output: Format,
) -> None:
    """Make the copies that an audit found missing, damaged or different.

    The plan is a table (CSV) that can be read and shortened before it is carried out. Copies are made from copies whose
    digest is right; where a bookie is gone its entries go to another, which takes its place in the metadata. What is
    found done needs nothing: a plan may be given again, also after an interruption. Orphans are left to the bookies'
    garbage collection, and copies that differ with nothing to tell which is right to operators. Exit code
    1: some ledgers are not as planned; 7: some copies were written, and their bookie does not show them yet.

    \b
    Example:
      bkbox repair --metadata zk://zk1:2181/ledgers --from-audit audit --write-plan plan.csv
      bkbox repair --metadata zk://zk1:2181/ledgers --plan plan.csv --rate 50MiB/s --yes
    """
    if (from_audit is None) == (plan_file is None):
        raise click.UsageError("give either --from-audit or --plan")
    if from_audit is not None:
        from bkbox.audit.extras import need_arrow

        need_arrow("bkbox repair --from-audit")
        steps = plan_of(from_audit)
    else:
        assert plan_file is not None
        steps = read_plan(plan_file)
    if write_plan_to is not None:
        write_plan(write_plan_to, steps)
        message(f"{counted(len(steps), 'step')}: {write_plan_to}")
        return
    able = [step for step in steps if step.action not in BY_PERSONS]
    left = len(steps) - len(able)
    if dry_run:
        _show(steps, output)
        return
    if not able:
        message(
            "nothing is to be done"
            + (f" but for {counted(left, 'step', 'that are')} left to people" if left else "")
        )
        return
    ledgers = len({step.ledger_id for step in able})
    confirm(f"Carry out {counted(len(able), 'step')} on {counted(ledgers, 'ledger')}?", yes=yes)
    found = _execute(metadata, able, left, bytes_per_second(rate), engine)
    if output != "table":
        print_document(asdict(found), output)
    else:
        message(
            f"{counted(found.ledgers, 'ledger', 'are')} as planned, {counted(found.copies, 'copy', 'were')} made, "
            f"{counted(found.bytes, 'byte')}"
        )
        print_failures([*found.failed, *found.not_shown])
    if left:
        message(f"{counted(left, 'step', 'are')} left to people: see them with --dry-run")
    if found.failed:
        ctx.exit(ExitCode.FAILED)
    if found.not_shown:
        ctx.exit(ExitCode.TRY_AGAIN)


def _execute(
    metadata: str, able: list[Step], left: int, rate: int, engine: OpenedTarget
) -> RepairReport:
    from bkbox.audit.execute import RepairJob, chunks_of

    chunks = chunks_of(able)
    done = copies = size = 0
    failed: list[LedgerFailure] = []
    not_shown: list[LedgerFailure] = []
    with ProgressBar() as progress, engine() as chosen:
        progress.stage("repairing", len({step.ledger_id for step in able}))
        for outcomes in chosen.map(RepairJob(metadata, rate), chunks):
            for each in outcomes:
                done += each.done
                copies += each.copies
                size += each.size
                if not each.done:
                    why = LedgerFailure(each.ledger_id, each.why)
                    (not_shown if each.unshown else failed).append(why)
            progress.add_progress(len(outcomes), sum(each.size for each in outcomes))
    return RepairReport(done, copies, size, failed, not_shown, left)


def _show(steps: list[Step], output: Format) -> None:
    if output != "table":
        rows = [PlannedStep(step.action.value, *step[1:]) for step in steps]
        print_document(asdict(Plan(rows)), output)
        return
    counts = Counter(step.action.value for step in steps)
    print_table(
        Step._fields,
        [(step.action.value, *step[1:]) for step in steps[:_SHOWN]],
        title=", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no steps",
    )
    if len(steps) > _SHOWN:
        message(f"and {len(steps) - _SHOWN} more: --write-plan FILE has all of them")
