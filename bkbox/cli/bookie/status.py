"""``bkbox status``: the status document of the running bookie."""

from __future__ import annotations

import click

from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.status import Copies, Limbo, Losses, Process, Quotas, Status, to_json
from bkbox.base.commandline import cluster_command
from bkbox.base.text import counted, moment, quoted
from bkbox.cli.bookie.job import print_jobs
from bkbox.cli.lib.output import (
    Format,
    output_option,
    print_document,
    print_fields,
    print_operations,
    print_stages,
    print_table,
    prints,
    size,
    watch_option,
)
from bkbox.cli.lib.target import Target, target_option


@click.command()
@target_option
@click.option("--timeout", type=float, default=5.0, show_default=True, help="Seconds to wait.")
@watch_option
@output_option
@prints(Status)
def status(target: Target, timeout: float, output: Format) -> None:
    """Show how the running bookie does.

    Asks the bookie on its admin socket, or over TCP; exit code 3 means that no bookie is running.

    \b
    Example:
      bkbox status --config bookie.toml
      bkbox status --config bookie.toml -o json
      bkbox status --bookie https://10.0.0.5:8080 --token-file token
    """
    document = fetch_status(target.address, timeout)
    if output != "table":
        print_document(to_json(document), output)
    else:
        _print(document)


def _print(document: Status) -> None:
    print_fields(
        [
            ("bookie", document.bookie_id),
            ("state", document.state),
            ("listen", document.listen),
            ("writable", document.writable),
            ("read-only reasons", document.read_only_reasons),
            ("ack_after", document.ack_after),
            ("boot", document.boot.phase),
            ("boot reasons", document.boot.reasons),
            ("instance id", document.instance_id),
            ("version", document.version),
            ("kernel", document.kernel),
            ("copies short", _copies(document.copies)),
            *([("ended with loss", _losses(document.losses))] if document.losses.ledgers else []),
            *([("quotas", _quotas(document.quotas))] if document.quotas.owners else []),
        ]
    )
    click.echo()
    print_table(
        ["disk", "state", "last start", "ledgers", "in limbo", "free", "of", "read-only", "reason"],
        [
            (
                disk.path,
                disk.state,
                disk.crash_class,
                disk.ledgers,
                disk.limbo_ledgers,
                size(disk.free_bytes),
                size(disk.total_bytes),
                disk.read_only,
                disk.reason,
            )
            for disk in document.disks
        ],
        title="disks",
    )
    _print_stages(document)
    click.echo()
    print_table(
        ["role", "name", "pid", "running", "restarts", "cpu", "memory"],
        [_of_process(process) for process in document.processes],
        title="processes",
    )
    if document.limbo.ledgers or document.limbo.done:
        _print_limbo(document.limbo)
    if document.jobs.active:
        click.echo()
        print_jobs(document.jobs.active, title="jobs")
    if document.warnings:
        click.echo()
        print_table(
            ["warning", "command"],
            [(warning.text, warning.command) for warning in document.warnings],
            title="warnings",
        )


def _of_process(process: Process) -> tuple[object, ...]:
    percent, memory = process.cpu_percent, process.memory_bytes
    return (
        process.role,
        process.name,
        process.pid,
        f"stalled for {process.stalled_s:.0f} s" if process.stalled_s else process.running,
        process.restarts,
        None if percent is None else f"{percent:.0f} %",
        None if memory is None else size(memory),
    )


def _copies(copies: Copies) -> str:
    """Entries missing here, and how far that is known."""
    short = "not known" if copies.short is None else f"{copies.short:,}"
    parts = [short, *(["being compared"] if copies.checking else [])]
    return f"{', '.join(parts)}; last complete check: {moment(copies.checked_ms)}"


def _losses(losses: Losses) -> str:
    """The number of ledgers, of entries that are known to be lost, and the last ledger."""
    last = f"; the last: ledger {losses.listed[-1].ledger}" if losses.listed else ""
    lost = cluster_command("ledger", "list", "--lost")
    entries = (
        "" if losses.entries is None else f", {counted(losses.entries, 'entry')} known to be lost"
    )
    return f"{counted(losses.ledgers or 0, 'ledger')} of the cluster{entries}{last}; {lost}"


def _quotas(quotas: Quotas) -> str:
    """The fullest owners, and all that are over their quota."""
    shown = [use for use in quotas.owners if use.exceeded] or quotas.owners[:1]
    each = ", ".join(
        f"{quoted(use.owner)} has {size(use.bytes)} of {size(use.bytes_max)}" for use in shown[:5]
    )
    total = len(quotas.owners) + quotas.unlisted_owners
    over = sum(use.exceeded for use in quotas.owners)
    return (
        f"{over} of {total} owners are over: {each}"
        if over
        else f"none of {total} owners is over: {each}"
    )


def _print_stages(document: Status) -> None:
    operations = [
        (disk.path, each) for disk in document.disks for each in disk.operations if each.count
    ]
    if operations:
        click.echo()
        print_operations(operations, "how long operations take, from request to response")
    stages = [(disk.path, stage) for disk in document.disks for stage in disk.stages if stage.count]
    if stages:
        click.echo()
        print_stages(stages, "where the time of adds goes")


def _print_limbo(limbo: Limbo) -> None:
    click.echo()
    eta = "unknown" if limbo.eta_s is None else f"{limbo.eta_s:.0f} s"
    print_fields(
        [
            ("ledgers in limbo", limbo.ledgers),
            ("ledgers repaired", limbo.done),
            ("entries checked", limbo.entries_checked),
            ("entries missing", limbo.entries_missing),
            ("entries copied", f"{limbo.entries_copied} ({size(limbo.bytes_copied)})"),
            ("time left", eta),
        ],
        title="limbo",
    )
    if limbo.blockers:
        click.echo()
        print_table(
            ["ledger", "why it stays in limbo", "what to do"],
            [(blocker.ledger, blocker.reason, blocker.what_to_do) for blocker in limbo.blockers],
            title="blocked",
        )
