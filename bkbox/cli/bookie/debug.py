"""``bkbox debug …``: data for the analysis of a fault."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.bundle.archive import collect, write
from bkbox.bundle.parts import journal, log_file
from bkbox.cli.lib.options import FILE, config_option
from bkbox.cli.lib.output import Format, message, output_option, print_document, print_table, prints
from bkbox.config.schema import Config


@click.group(no_args_is_help=True)
def debug() -> None:
    """Collect what is needed to diagnose a problem.

    \b
    Example:
      bkbox debug bundle --config bookie.toml
    """


@dataclass(frozen=True, slots=True)
class BundleReport:
    """The bundle's path (None: --dry-run), its files with their bytes, and what is missing and why."""

    written: str | None
    files: dict[str, int]
    missing: dict[str, str]


@debug.command()
@config_option
@click.option(
    "--to",
    type=FILE,
    metavar="FILE",
    help="File to write [default: bkbox-debug-TIME.tar.gz here].",
)
@click.option(
    "--log", "logs", type=FILE, multiple=True, metavar="FILE", help="Put this log in, too."
)
@click.option(
    "--unit",
    default="bkbox",
    show_default=True,
    metavar="NAME",
    help="Service whose journal is put in; '' for none.",
)
@click.option(
    "--since",
    default="-24h",
    show_default=True,
    metavar="TIME",
    help="How far back, as journalctl takes it.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be in it, and write nothing.")
@output_option
@prints(BundleReport)
def bundle(
    config: Config,
    to: Path | None,
    logs: tuple[Path, ...],
    unit: str,
    since: str,
    dry_run: bool,
    output: Format,
) -> None:
    """Write one file with all that is known of the bookie, its disks and its host.

    Status, jobs, the doctor's findings, resolved configuration, cookies, stages of adds, threads, versions, logs.
    Passwords, tokens, keys and names in URIs are removed; no entry of any ledger is in it. Look it through all the
    same before you give it away. Works whether the bookie runs or not: what cannot be had is listed in manifest.json.

    \b
    Example:
      bkbox debug bundle --config bookie.toml
      bkbox debug bundle --config bookie.toml --to here.tar.gz --log bookie.log --unit ''
    """
    readers: dict[str, Callable[[], str]] = {}
    if unit:
        readers["journal.txt"] = functools.partial(journal, unit, since)
    for number, path in enumerate(logs):
        readers[f"{number}-{path.name}"] = functools.partial(log_file, path)
    made = collect(config, os.environ, logs=readers)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = to or Path(f"bkbox-debug-{stamp}.tar.gz")
    if not dry_run:
        write(made, path, f"bkbox-debug-{stamp}", int(time.time()))
    sizes = {
        name: len(text.encode("utf-8", "replace")) for name, text in sorted(made.files.items())
    }
    if output == "table":
        print_table(["file", "bytes"], list(sizes.items()))
    else:
        written = None if dry_run else str(path)
        print_document(asdict(BundleReport(written, sizes, made.problems)), output)
    for name, problem in made.problems.items():
        message(f"{name} is missing: {problem}")
    if not dry_run:
        message(f"wrote {path}")
