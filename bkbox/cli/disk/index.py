"""``bkbox index …``: a disk's index, which can always be rebuilt from its entry logs."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.base.values import as_dict
from bkbox.cli.lib.options import config_option, dry_run_option
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_table,
    prints,
    size,
)
from bkbox.config.schema import Config
from bkbox.storage.disk.lock import DiskLock
from bkbox.storage.disk.rebuild import RebuildReport, rebuild_index
from bkbox.storage.files import RealFiles


@click.group(no_args_is_help=True)
def index() -> None:
    """Work on a disk's index while the bookie is stopped.

    \b
    Example:
      bkbox index rebuild --config bookie.toml
    """


@dataclass(frozen=True, slots=True)
class RebuildSummary:
    """The result of the rebuild of a disk's index; ``unreadable``: parts of the log that it could not, in words."""

    disk: str
    records: int
    entries: int
    ledgers: int
    bytes_read: int
    unreadable: tuple[str, ...]


@index.command()
@config_option
@click.option(
    "--disk",
    "chosen",
    type=click.Path(file_okay=False, path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Only this disk; repeatable [default: all disks].",
)
@click.option("--keep-going", is_flag=True, help="Index what can be read where a log is damaged.")
@dry_run_option
@output_option
@prints(list[RebuildSummary])
def rebuild(
    config: Config, chosen: tuple[Path, ...], keep_going: bool, dry_run: bool, output: Format
) -> None:
    """Build a disk's index anew from its entry logs.

    The old index is replaced only when the new one is whole. A damaged log is reported and ends the
    command, unless --keep-going. The bookie has to be stopped.

    \b
    Example:
      bkbox index rebuild --config bookie.toml
      bkbox index rebuild --config bookie.toml --disk /data/b --keep-going
    """
    disks = _disks(config, chosen)
    if dry_run:
        for disk in disks:
            DiskLock(disk).release()  # raises while the bookie runs
            log = size(sum(each.stat().st_size for each in (disk / "entrylog").glob("*")))
            message(f"would read {log} of {disk} and make its index anew; nothing was changed")
        return
    reports = [(disk, _rebuild(disk, keep_going=keep_going)) for disk in disks]
    if output != "table":
        found = [RebuildSummary(disk=str(disk), **as_dict(report)) for disk, report in reports]
        print_document([asdict(each) for each in found], output)
        return
    print_table(
        ["disk", "ledgers", "entries", "records", "read", "unreadable"],
        [
            (disk, each.ledgers, each.entries, each.records, size(each.bytes_read), each.unreadable)
            for disk, each in reports
        ],
    )


def _disks(config: Config, chosen: tuple[Path, ...]) -> tuple[Path, ...]:
    disks = tuple(Path(os.path.abspath(disk)) for disk in chosen)
    for disk in disks:
        if disk not in config.disks:
            text = f"{disk} is not a disk of this configuration"
            raise click.BadParameter(text, param_hint="--disk")
    return disks or config.disks


def _rebuild(disk: Path, *, keep_going: bool) -> RebuildReport:
    shown = -1

    def progress(done_bytes: int, total_bytes: int) -> None:
        nonlocal shown
        percent = 100 * done_bytes // total_bytes if total_bytes else 100
        if percent // 10 != shown:
            shown = percent // 10
            message(f"{disk}: {percent} %")

    lock = DiskLock(disk)
    try:
        return rebuild_index(RealFiles(), disk, keep_going=keep_going, progress=progress)
    finally:
        lock.release()
