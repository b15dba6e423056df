"""``bkbox ledger end --stuck``: closes all ledgers that wait for bookies in limbo, with one record of the possible
loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import click

from bkbox.base.commandline import cluster_command
from bkbox.base.text import counted
from bkbox.cli.lib.output import Format, print_document, print_fields, print_table
from bkbox.client.ledger.force_close import record_of
from bkbox.errors import BkboxError, MetadataUnavailableError
from bkbox.protocol.force_close_plan import text_of
from bkbox.repair.limbo.stuck import StuckLedgers
from bkbox.wire.metadata.loss import LossRecord, losses_of, unknown_beyond


@dataclass(frozen=True, slots=True)
class LedgerLoss:
    """The entries that one ledger loses or has lost, and why recovery could not end it."""

    ledger_id: int
    reason: str
    record: LossRecord


@dataclass(frozen=True, slots=True)
class LedgerLeft:
    """A ledger that was not ended, and why."""

    ledger_id: int
    reason: str
    what_to_do: str


@dataclass(frozen=True, slots=True)
class StuckReport:
    """One record of all. ``run``: as each ledger's record has it, empty after a dry run; ``entries_lost``: those that
    are known to have been acknowledged; ``ledgers_unknown``: ledgers of which it is not known how far the loss goes.
    ``recovered``: recovery could close these after all. ``not_ended``: they were to be ended, and are not."""

    run: str
    at_ms: int
    by: str
    entries_lost: int
    ledgers_unknown: int
    ledgers: tuple[LedgerLoss, ...]
    recovered: tuple[int, ...]
    not_ended: tuple[LedgerLeft, ...]
    left_alone: tuple[LedgerLeft, ...]


def report_of(found: StuckLedgers, at_ms: int, by: str, run: str) -> StuckReport:
    """The report that closing all of them would give."""
    losses = [
        LedgerLoss(
            each.plan.metadata.ledger_id,
            each.plan.diagnosis.reason,
            record_of(each.plan, each.inspection, at_ms, by, run),
        )
        for each in found.stuck
    ]
    left = [
        LedgerLeft(each.metadata.ledger_id, each.reason, each.what_to_do) for each in found.waiting
    ]
    left += [
        LedgerLeft(ledger, why, str(cluster_command("ledger", "show", ledger)))
        for ledger, why in found.unread
    ]
    return _report(run, at_ms, by, losses, (), (), left)


async def end_stuck(found: StuckLedgers, at_ms: int, by: str, run: str) -> StuckReport:
    """Closes them one after the other; a failure of one does not stop the rest. Raises MetadataUnavailableError only if
    no ledger was closed yet."""
    planned = report_of(found, at_ms, by, run)
    losses: list[LedgerLoss] = []
    recovered: list[int] = []
    failed: list[LedgerLeft] = []
    for stuck, plan in zip(found.stuck, planned.ledgers, strict=True):
        try:
            done = await stuck.force_close.end(stuck.plan, at_ms, by, run)
        except BkboxError as error:
            if isinstance(error, MetadataUnavailableError) and not (losses or recovered):
                raise
            again = cluster_command("ledger", "end", plan.ledger_id, "--accept-loss", "--dry-run")
            failed.append(LedgerLeft(plan.ledger_id, str(error), str(again)))
            continue
        # Without a record of this run, recovery or another operator has closed it.
        record = done.record or next(reversed(losses_of(done.metadata)), None)
        if record is None:
            recovered.append(plan.ledger_id)
        else:
            losses.append(replace(plan, record=record))
    return _report(run, at_ms, by, losses, recovered, failed, planned.left_alone)


def _report(
    run: str,
    at_ms: int,
    by: str,
    losses: Iterable[LedgerLoss],
    recovered: Iterable[int],
    failed: Iterable[LedgerLeft],
    left: Iterable[LedgerLeft],
) -> StuckReport:
    ledgers = tuple(losses)
    return StuckReport(
        run,
        at_ms,
        by,
        sum(each.record.lost_entries for each in ledgers),
        sum(each.record.unknown_after is not None for each in ledgers),
        ledgers,
        tuple(recovered),
        tuple(failed),
        tuple(left),
    )


# ---- printing -------------------------------------------------------------------------------------------


def print_stuck(found: StuckLedgers) -> None:
    """Prints each ledger, the loss if it were closed, and why recovery cannot close it."""
    plans = [each.plan for each in found.stuck]
    if not plans:
        click.echo("no ledger waits for bookies in limbo alone")
    else:
        print_table(
            ["ledger", "state", "LAC", "would end at", "lost", "perhaps lost", "dropped", "may be lost as well"],
            [
                (
                    plan.metadata.ledger_id,
                    plan.metadata.state.name,
                    plan.diagnosis.lac,
                    plan.end,
                    text_of(plan.acknowledged) or None,
                    text_of(plan.maybe_acknowledged) or None,
                    text_of(plan.dropped) or None,
                    None if plan.unknown_after is None else unknown_beyond(plan.unknown_after),
                )
                for plan in plans
            ],
            title=f"{counted(len(plans), 'ledger')} that only an operator can end",
        )  # fmt: skip
        click.echo()
        rows = [(plan.metadata.ledger_id, plan.diagnosis.reason) for plan in plans]
        print_table(["ledger", "why recovery cannot end it"], rows, title="reasons")
    left = report_of(found, 0, "", "").left_alone
    if left:
        click.echo()
        _print_left(left, "left alone")


def print_report(report: StuckReport, output: Format) -> None:
    """Prints the record."""
    if output != "table":
        print_document(asdict(report), output)
        return
    print_fields(
        [
            ("run", report.run),
            ("by", report.by),
            ("ended", len(report.ledgers)),
            ("recovered after all", len(report.recovered)),
            ("entries known to be lost", report.entries_lost),
            ("ledgers with an unknown loss", report.ledgers_unknown),
        ]
    )
    click.echo()
    rows = [(each.ledger_id, each.record.end, each.record.losses) for each in report.ledgers]
    print_table(["ledger", "end", "what is lost"], rows, title="ended with loss accepted")
    for title, left in (("not ended", report.not_ended), ("left alone", report.left_alone)):
        if left:
            click.echo()
            _print_left(left, title)


def _print_left(left: Iterable[LedgerLeft], title: str) -> None:
    rows = [(each.ledger_id, each.reason, each.what_to_do) for each in left]
    print_table(["ledger", "why", "what to do"], rows, title=title)
