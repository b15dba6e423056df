"""``bkbox scrub …``: reads every record, to find damaged ones before a client needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import click

from bkbox.api.admin import client
from bkbox.api.admin import space as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.space import DiskSpace
from bkbox.base.text import moment
from bkbox.cli.bookie.job import print_jobs
from bkbox.cli.disk.gc import SpaceReport, space_report
from bkbox.cli.lib.options import config_option
from bkbox.cli.lib.output import (
    Format,
    output_option,
    print_document,
    print_started,
    print_table,
    prints,
    size,
    watch_option,
)
from bkbox.config.schema import Config
from bkbox.jobs.job import Job, JobKind


@click.group(no_args_is_help=True)
def scrub() -> None:
    """Verify every record on the disks, and refill what is bad from other bookies.

    A scrub runs by itself once in scrub_interval_s, and goes on where it was interrupted.

    \b
    Example:
      bkbox scrub status --config bookie.toml
    """


@dataclass(frozen=True, slots=True)
class ScrubPlan:
    """The bytes that a scrub of a disk would read, and where it would resume."""

    disk: str
    segments: int
    bytes: int
    ledgers: int
    from_segment: int


@scrub.command()
@config_option
@click.option("--restart", is_flag=True, help="From the beginning, wherever the last one has come.")
@click.option("--disks-only", is_flag=True, help="Do not compare with what other bookies have.")
@click.option("--dry-run", is_flag=True, help="Say how much there is to read; start nothing.")
@output_option
@prints(Job, list[ScrubPlan])
def run(config: Config, restart: bool, disks_only: bool, dry_run: bool, output: Format) -> None:
    """Start a scrub of all disks, or go on with one. It is a job: see "bkbox job watch".

    Every record is read and its checksum verified; then every entry of a closed ledger is compared with the copies of
    the other bookies.

    \b
    Example:
      bkbox scrub run --config bookie.toml
    """
    if dry_run:
        _print_plan(admin.space(admin_socket_path(config)), restart=restart, output=output)
        return
    chosen = {"restart": restart, "disks_only": disks_only}
    arguments = {name: "true" for name, is_set in chosen.items() if is_set}
    print_started(
        client.start_job(admin_socket_path(config), JobKind.SCRUB, arguments), config, output
    )


def _print_plan(disks: Sequence[DiskSpace], *, restart: bool, output: Format) -> None:
    plan = [
        ScrubPlan(
            disk=disk.path,
            segments=disk.segments,
            bytes=disk.segment_bytes,
            ledgers=disk.ledgers,
            from_segment=0 if restart else disk.scrub_segment,
        )
        for disk in disks
    ]
    if output != "table":
        print_document([asdict(each) for each in plan], output)
        return
    print_table(
        ["disk", "segments", "to read, at most", "ledgers to compare", "goes on at segment"],
        [
            (
                each.disk,
                each.segments,
                size(each.bytes),
                each.ledgers,
                each.from_segment or "the first",
            )
            for each in plan
        ],
    )


@scrub.command()
@config_option
@watch_option
@output_option
@prints(SpaceReport)
def status(config: Config, output: Format) -> None:
    """Show when each disk was last read whole, and what was found.

    \b
    Example:
      bkbox scrub status --config bookie.toml
    """
    report = space_report(config, JobKind.SCRUB)
    if output != "table":
        print_document(asdict(report), output)
        return
    print_table(
        ["disk", "last complete", "under way since", "segments with bad parts"],
        [
            (
                disk.path,
                moment(disk.scrub_completed_ms),
                _progress_of(disk),
                ", ".join(map(str, disk.quarantined)),
            )
            for disk in report.disks
        ],
    )
    if report.jobs:
        print_jobs(report.jobs, title="last runs")


def _progress_of(disk: DiskSpace) -> str:
    if not disk.scrub_segment:
        return ""
    began = moment(disk.scrub_began_ms)
    if disk.scrub_ledger:
        return f"{began}, comparing, at ledger {disk.scrub_ledger}"
    return f"{began}, at segment {disk.scrub_segment}"
