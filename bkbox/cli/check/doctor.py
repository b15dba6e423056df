"""``bkbox doctor``: all checks of a bookie, its disks and its host."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.base.host.files import HostFiles
from bkbox.base.text import counted
from bkbox.checks.doctor import examine
from bkbox.checks.registry import Finding, Verdict, worst
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import config_file_option
from bkbox.cli.lib.output import Format, message, output_option, print_document, print_table, prints

_SIGNS = {"ok": "[+] ok", "warn": "[!] warn", "fail": "[X] fail"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The worst of all findings, and those that are shown."""

    verdict: Verdict
    findings: tuple[Finding, ...]


@click.command()
@config_file_option
@click.option("--quiet", is_flag=True, help="Leave out what is in order.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds to wait for the metadata store.",
)
@output_option
@prints(Diagnosis)
@click.pass_context
def doctor(ctx: click.Context, config_file: Path, quiet: bool, wait: float, output: Format) -> None:
    """Look at everything that could keep a bookie from working, and say what to do.

    Configuration, disks, cookies, locks, ports, metadata store, limits, memory and clock of the host; and what the
    bookie says of itself, where it runs. One cause is one finding: what follows from it is listed under it. Changes
    nothing, and works whether the bookie runs or not: run it as the user that runs the bookie. Exit code 0: nothing
    failed (there may be warnings); 1: something did.

    \b
    Example:
      bkbox doctor --config bookie.toml
      bkbox doctor --config bookie.toml --quiet -o json
    """
    found = examine(config_file, os.environ, host=HostFiles(), wait_s=wait)
    shown = [finding for finding in found if finding.verdict != "ok" or not quiet]
    if output == "table":
        _print(shown)
    else:
        verdict = worst(found)
        print_document(asdict(Diagnosis(verdict, tuple(shown))), output)
    if worst(found) == "fail":
        ctx.exit(ExitCode.FAILED)


def _print(findings: list[Finding]) -> None:
    rows = []
    for f in findings:
        rows.append((_SIGNS[f.verdict], f.check, f.about, f.why, f.command))
        rows += [("", f"  so: {e.check}", e.about, e.why, e.command) for e in f.effects]
    if rows:
        print_table(["", "check", "of", "why", "what to do"], rows)
    counts = {verdict: sum(f.verdict == verdict for f in findings) for verdict in ("fail", "warn")}
    message(f"{counts['fail']} failed, {counted(counts['warn'], 'warning')}")
