"""``bkbox ledger recover`` and ``explain``: closes a ledger, or shows what it lacks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click

from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.commandline import cluster_command
from bkbox.base.ids import LedgerId
from bkbox.cli.ledger.format_ledger import Ledger, print_ledger
from bkbox.cli.lib.options import dry_run_option, ledger_argument, metadata_option, password_option
from bkbox.cli.lib.output import (
    Format,
    output_option,
    print_document,
    print_fields,
    print_started,
    print_table,
    prints,
)
from bkbox.client import connect
from bkbox.client.ledger.ledger_inspection import LedgerInspection
from bkbox.config import load as configuration
from bkbox.jobs.job import Job, JobKind
from bkbox.protocol.diagnosis import Diagnosis, RecoveryOutlook
from bkbox.protocol.events import NoResponse
from bkbox.protocol.force_close_plan import text_of
from bkbox.protocol.inspection import Report, coverage, fragments_of, highest_entry
from bkbox.wire.metadata.ledger import LedgerMetadata
from bkbox.wire.metadata.loss import losses_of


@click.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@password_option
@click.option(
    "--job", "as_job", is_flag=True, help="Have the bookie of --config do it, until it is done."
)
@dry_run_option
@output_option
@click.pass_context
@prints(Ledger, dict[str, object], Job)
def recover(
    ctx: click.Context,
    ledger_id: LedgerId,
    metadata: str,
    password: bytes | None,
    as_job: bool,
    dry_run: bool,
    output: Format,
) -> None:
    """Recover a ledger: fence its writer off, find its last entry, close it.

    Changes nothing in a ledger that is closed. Where too many bookies cannot tell, nothing is
    closed, the exit code is 7, and the command may be repeated; with --job a running bookie
    repeats it. With --dry-run the writer is not fenced: entries that the writer still adds can make the
    end another one.

    \b
    Example:
      bkbox ledger recover 7 --metadata sqlite:cluster.db --dry-run
      bkbox ledger recover 7 --metadata sqlite:cluster.db
      bkbox ledger recover 7 --config bookie.toml --job
    """

    async def inspect() -> LedgerInspection:
        async with connect(metadata) as client:
            return await client.inspect_ledger(ledger_id, password)

    async def go() -> LedgerMetadata:
        async with connect(metadata) as client:
            return await client.recover(ledger_id, password)

    if as_job and not dry_run:
        file = ctx.params["config_file"]
        if file is None or password is not None:
            raise click.UsageError("--job goes with --config, and with the ledger's own password")
        # Loaded here: no other command of this file asks a supervisor.
        from bkbox.api.admin import client as admin

        config = configuration.load(file, os.environ)
        arguments = {"ledger": str(ledger_id)}
        print_started(
            admin.start_job(admin_socket_path(config), JobKind.RECOVERY, arguments), config, output
        )
        return
    if not dry_run:
        print_ledger(asyncio.run(go()), output)
        return
    found = asyncio.run(inspect()).diagnosis
    if output != "table":
        print_document(_recovery(found), output)
    else:
        print_fields(list(_recovery(found).items()))


@click.command(no_args_is_help=True)
@ledger_argument
@metadata_option
@password_option
@output_option
@prints(dict[str, object])
def explain(ledger_id: LedgerId, metadata: str, password: bytes | None, output: Format) -> None:
    """Show which bookie has what of a ledger, what keeps it from being recovered, and what to do.

    Asks every bookie that the metadata names and changes nothing. A bookie that does not answer in
    time is unknown, never without the entry. Java's bookies do not say whether the ledger is fenced
    there.

    \b
    Example:
      bkbox ledger explain 7 --metadata sqlite:cluster.db
    """

    async def go() -> LedgerInspection:
        async with connect(metadata) as client:
            return await client.inspect_ledger(ledger_id, password)

    found = asyncio.run(go())
    if output != "table":
        print_document(inspection_view(found), output)
    else:
        _print_inspection(found)


# ---- recovery -------------------------------------------------------------------------------------------


def _recovery(found: Diagnosis) -> dict[str, object]:
    return {
        "state": found.metadata.state.name,
        "recovery": found.prospect.value,
        "last_add_confirmed": found.lac,
        "entries_to_write_back": len(found.found),
        "end": found.end,
        "reason": found.reason or None,
        "what_to_do": found.what_to_do or None,
    }


# ---- explain --------------------------------------------------------------------------------------------


def inspection_view(found: LedgerInspection) -> dict[str, object]:
    """The whole inspection, as `explain` prints it with -o json."""
    metadata, reports = found.metadata, found.reports
    fragments = []
    for entries, ensemble in fragments_of(metadata, highest_entry(metadata, reports)):
        counted = coverage(metadata, reports, entries)
        fragments.append(
            {
                "first_entry": entries.start,
                "last_entry": entries.stop - 1 if entries else None,
                "ensemble": list(ensemble),
                "entries": len(entries),
                "below_ack_quorum": counted.fewer_than(metadata.ack_quorum),
                "below_write_quorum": counted.fewer_than(metadata.write_quorum),
                "on_no_bookie": pairs(counted.lost),
                "not_known_to_be_anywhere": pairs(counted.uncertain),
                "copies": {str(copies): count for copies, count in sorted(counted.copies.items())},
            }
        )
    return {
        "ledger_id": metadata.ledger_id,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "fragments": fragments,
        "bookies": [bookie(report) for report in reports.values()],
        **_recovery(found.diagnosis),
        "answers": responses(found, _decisive_entries(found)),
        "advice": _advice(found),
        "losses": [asdict(record) for record in losses_of(metadata)],
    }


def _print_inspection(found: LedgerInspection) -> None:
    metadata, shown = found.metadata, inspection_view(found)
    print_fields(
        [
            ("ledger", metadata.ledger_id),
            ("state", metadata.state.name),
            ("E WQ AQ", f"{metadata.ensemble_size} {metadata.write_quorum} {metadata.ack_quorum}"),
            ("last entry", found.diagnosis.end),
            ("last add confirmed", found.diagnosis.lac),
            *(("loss", record.text) for record in losses_of(metadata)),
        ]
    )
    click.echo()
    rows = [
        (
            each["first_entry"], each["last_entry"], each["below_write_quorum"], each["below_ack_quorum"],
            text_of(tuple(range(a, b + 1) for a, b in each["on_no_bookie"])) or "-",
            text_of(tuple(range(a, b + 1) for a, b in each["not_known_to_be_anywhere"])) or "-",
            each["ensemble"],
        )
        for each in _listed(shown["fragments"])
    ]  # fmt: skip
    columns = ["first", "last", "< WQ copies", "< AQ copies", "on no bookie", "unknown", "ensemble"]
    print_table(columns, rows, title="fragments")
    click.echo()
    keys = ("bookie", "answers", "limbo", "fenced", "entries", "last_entry")
    rows = [tuple(each[key] for key in keys) for each in _listed(shown["bookies"])]
    print_table(
        ["bookie", "answers", "limbo", "fenced", "entries", "last entry"],
        [tuple("unknown" if cell is None else cell for cell in row) for row in rows],
        title="bookies",
    )
    print_responses(found, _decisive_entries(found))
    click.echo()
    print_fields(
        [
            ("recovery", found.diagnosis.prospect.value),
            ("blocked by", found.diagnosis.reason or None),
            ("what to do", _advice(found)),
        ]
    )


def bookie(report: Report) -> dict[str, object]:
    """One bookie's report on a ledger; None for unknown values."""
    response = report.status
    listed = report.listed
    return {
        "bookie": report.bookie,
        "alive": report.alive,
        "answers": response.value if isinstance(response, NoResponse) else response.name,
        "limbo": report.limbo,
        "fenced": report.fenced,
        "entries": 0
        if report.can_deny and listed is None
        else None
        if listed is None
        else listed.total,
        "last_entry": report.last if report.last >= 0 else None,
        "last_add_confirmed": report.lac if report.lac >= 0 else None,
    }


def _decisive_entries(found: LedgerInspection) -> list[int]:
    """The entries whose responses tell most: those at which recovery stops or closes the ledger."""
    diagnosis = found.diagnosis
    if diagnosis.prospect is RecoveryOutlook.NOTHING:
        return []
    if diagnosis.entry is not None:
        return [diagnosis.entry]
    return [(diagnosis.lac if diagnosis.end is None else diagnosis.end) + 1]


def responses(found: LedgerInspection, entries: Iterable[int]) -> list[dict[str, object]]:
    """The response of each bookie of their write sets about these entries."""
    return [
        {"entry": entry, "bookie": bookie, "says": found.reports[bookie].describe_entry(entry)}
        for entry in entries
        for bookie in found.write_set(entry)
    ]


def print_responses(found: LedgerInspection, entries: Iterable[int]) -> None:
    """The same as a table; nothing without entries."""
    rows = [tuple(each.values()) for each in responses(found, entries)]
    if rows:
        click.echo()
        print_table(["entry", "bookie", "says"], rows, title="answers")


def _advice(found: LedgerInspection) -> str:
    if found.diagnosis.stuck:
        return found.diagnosis.what_to_do
    number = found.metadata.ledger_id
    if found.diagnosis.prospect is RecoveryOutlook.CLOSES:
        return f"nothing if its writer lives, else: {cluster_command('ledger', 'recover', number)}"
    counts = [
        coverage(found.metadata, found.reports, entries)
        for entries, _ in fragments_of(found.metadata, found.metadata.last_entry)
    ]
    unresponsive = [str(report.bookie) for report in found.reports.values() if not report.alive]
    limbo = [str(report.bookie) for report in found.reports.values() if report.limbo]
    if any(each.uncertain for each in counts) and unresponsive:
        return f"bring back {', '.join(unresponsive)}: entries are unknown without"
    if any(each.lost or each.uncertain for each in counts):
        end = cluster_command("ledger", "end", number, "--accept-loss", "--plug", "--dry-run")
        return f"entries are nowhere to be found: `{end}` shows what it means to give them up"
    if limbo:
        return f"nothing: {', '.join(limbo)} will copy what is missing there and leave limbo"
    if any(each.fewer_than(found.metadata.write_quorum) for each in counts):
        return "nothing is lost, some copies are missing: re-replication brings them back"
    return "nothing"


def pairs(ranges: Iterable[range]) -> list[tuple[int, int]]:
    """(first, last), both included."""
    return [(each.start, each.stop - 1) for each in ranges]


def _listed(value: object) -> list[dict[str, Any]]:
    assert isinstance(value, list)
    return value
