"""``bkbox gc …``: garbage collection: shows what can be reclaimed, reclaims it, and explains what cannot."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import click

from bkbox.api.admin import client
from bkbox.api.admin import space as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.api.admin.space import NO_SUCH_SEGMENT, DiskSpace
from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted
from bkbox.cli.bookie.job import print_jobs
from bkbox.cli.lib.options import config_option
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_started,
    print_table,
    prints,
    size,
    watch_option,
)
from bkbox.config.schema import Config
from bkbox.errors import NoSuchSegmentError
from bkbox.jobs.job import Job, JobKind

_SHOWN_JOBS = 6


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """The disks, and the last jobs that had to do with their room."""

    disks: tuple[DiskSpace, ...]
    jobs: tuple[Job, ...]


@click.group(no_args_is_help=True)
def gc() -> None:
    """See and collect what deleted ledgers leave on the disks.

    Collection finds ledgers that were deleted (see "bkbox ledger delete"), and compaction gives their room back. Both
    run by themselves (gc_interval_s, compaction_interval_s).

    \b
    Example:
      bkbox gc status --config bookie.toml
    """


@gc.command()
@config_option
@watch_option
@output_option
@prints(SpaceReport)
def status(config: Config, output: Format) -> None:
    """Show what could be freed on each disk, the trash, damaged segments, and the last runs.

    \b
    Example:
      bkbox gc status --config bookie.toml
    """
    report = space_report(config, JobKind.GC, JobKind.COMPACTION)
    if output != "table":
        print_document(asdict(report), output)
        return
    print_table(
        [
            *("disk", "sealed segments", "active", "used", "reclaimable"),
            *("ledgers", "trash", "remembered", "reserve"),
        ],
        [_row(disk) for disk in report.disks],
    )
    for disk in report.disks:
        if disk.quarantined:
            names = ", ".join(map(str, disk.quarantined))
            message(f"{disk.path}: segments with parts that cannot be read: {names}")
        for segment, why in disk.kept.items():
            message(f"{disk.path}: segment {segment} is kept: {why}")
    if report.jobs:
        print_jobs(report.jobs, title="last runs")


def _row(disk: DiskSpace) -> tuple[object, ...]:
    reclaimable = (
        "not known yet" if disk.reclaimable_bytes is None else size(disk.reclaimable_bytes)
    )
    reserve = "whole" if disk.reserve_bytes >= disk.reserve_bytes_max else size(disk.reserve_bytes)
    return (
        disk.path,
        disk.segments,
        disk.active_segments,
        size(disk.segment_bytes + disk.active_bytes),
        reclaimable,
        disk.ledgers,
        disk.trash_ledgers,
        disk.emptied_ledgers,
        reserve,
    )


@gc.command()
@config_option
@click.option("--dry-run", is_flag=True, help="Only count the ledgers that would be collected.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Look at every ledger, whether this bookie is still to hold it.",
)
@click.option(
    "--empty-trash", is_flag=True, help="Do not wait for gc_trash_s: what is deleted goes now."
)
@click.option("--compact/--no-compact", default=True, help="Give the room back afterwards.")
@output_option
@prints(Job)
def run(
    config: Config,
    dry_run: bool,
    everything: bool,
    empty_trash: bool,
    compact: bool,
    output: Format,
) -> None:
    """Start a collection, and a compaction after it. They are jobs: see "bkbox job watch".

    \b
    Example:
      bkbox gc run --config bookie.toml --dry-run
      bkbox gc run --config bookie.toml --empty-trash
    """
    chosen = {"dry_run": dry_run, "all": everything, "empty_trash": empty_trash}
    if compact and not dry_run:
        chosen["compact"] = True
    arguments = {name: "true" for name, is_set in chosen.items() if is_set}
    started = client.start_job(admin_socket_path(config), JobKind.GC, arguments)
    print_started(started, config, output)


@gc.command(no_args_is_help=True)
@click.argument("segment", type=click.IntRange(min=1))
@config_option
@output_option
@prints(list[dict[str, object]])
def explain(segment: int, config: Config, output: Format) -> None:
    """Say why a segment is kept: what is live in it, whose it is, what stands in the way.

    Exit code 6: no disk in service has or had such a segment.

    \b
    Example:
      bkbox gc explain 17 --config bookie.toml
    """
    found = admin.explain_segment(admin_socket_path(config), segment)
    if all(item["state"] == NO_SUCH_SEGMENT for item in found):
        raise NoSuchSegmentError(
            f"no disk in service has a segment {segment}; `{bookie_command('gc', 'status')}` shows how many there are"
        )
    if output != "table":
        print_document(found, output)
        return
    for item in found:
        _explain(item)


def _explain(item: dict[str, Any]) -> None:
    pairs: list[tuple[str, object]] = [("state", item["state"])]
    if "bytes" in item:
        pairs.append(("size", size(item["bytes"])))
    if "live_bytes" in item:
        ratio = 1 - item["live_bytes"] / max(item["bytes"], 1)
        pairs += [
            ("live", f"{size(item['live_bytes'])} in {counted(item['live_entries'], 'entry')}"),
            ("garbage", f"{ratio:.0%}"),
        ]
    elif item["state"] == "sealed":
        pairs.append(("live", "not known before the first compaction since the start"))
    if item.get("ledgers") is not None:
        pairs.append(("ledgers", item["ledgers"]))
    elif item["state"] == "sealed":
        pairs.append(("ledgers", "its footers cannot be read: it is kept"))
    if item.get("bad_regions"):
        pairs.append(
            (
                "cannot be read",
                f"{counted(len(item['bad_regions']), 'part')}; `{bookie_command('scrub', 'run')}` refills them",
            )
        )
    if item.get("kept"):
        pairs.append(("kept", item["kept"]))
    print_fields(pairs, title=item["path"])
    if item.get("largest"):
        print_table(
            ["ledger", "entries", "size", "is"],
            [
                (each["ledger"], each["entries"], size(each["bytes"]), each["is"])
                for each in item["largest"]
            ],
        )


def space_report(config: Config, *kinds: JobKind) -> SpaceReport:
    """The disks of a running bookie, and its last jobs of these kinds."""
    path = admin_socket_path(config)
    jobs = [job for job in client.jobs(path) if job.kind in kinds]
    return SpaceReport(tuple(admin.space(path)), tuple(jobs[-_SHOWN_JOBS:]))
