"""``bkbox selftest``: tests the disks under the load of a bookie."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from bkbox.base.host.files import HostFiles
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import config_choice, configuration_of
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
    size,
)
from bkbox.cli.lib.signals import end_in_order
from bkbox.config import metadata_uri
from bkbox.config.schema import Config
from bkbox.selftest.disk import DiskReport, test, warnings
from bkbox.selftest.latency import Latency

_BAR = 40


@click.command()
@config_choice("Test the disks of this bookie.")
@click.option(
    "--folder",
    "folders",
    type=click.Path(file_okay=False, path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Test this folder; more than one may be given.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=3600),
    default=10.0,
    show_default=True,
    help="How long to test each disk.",
)
@output_option
@prints(list[DiskReport])
@click.pass_context
def selftest(
    ctx: click.Context,
    config_file: Path | None,
    folders: tuple[Path, ...],
    seconds: float,
    output: Format,
) -> None:
    """Measure how long a sync takes on each disk, and look whether what was synced is kept.

    Writes up to 128 MiB into a folder of its own on each disk and removes it. The bookie may run meanwhile; then the
    figures are those of a disk that has other work, too. Warns of file systems that do not keep what was synced: ext4
    without a journal, mounts without barriers, memory, network; also of that of an embedded metadata store. Says what
    cannot be known without cutting the power. Exit code 0: passed; 1: synced data was lost, or a disk was seen not to
    flush.

    \b
    Example:
      bkbox selftest --config bookie.toml
      bkbox selftest --folder /data/a --seconds 60 -o json
    """
    if config_file is not None and folders:
        raise click.UsageError("give either --config or --folder")
    if not folders:
        config = configuration_of(config_file)
        folders = (*config.disks, *((config.journal,) if config.journal else ()))
        _warn_of_metadata(config)
    end_in_order()
    reports = []
    for folder in folders:
        message(f"testing {folder} for {seconds:g} s")
        reports.append(test(folder, seconds, HostFiles(), time.monotonic_ns))
    if output == "table":
        for report in reports:
            _print(report)
    else:
        print_document([asdict(report) for report in reports], output)
    if not all(report.passed for report in reports):
        ctx.exit(ExitCode.FAILED)


def _warn_of_metadata(config: Config) -> None:
    """Warns about the file system of an embedded metadata store, which is not written to."""
    uri = metadata_uri.parse(config.metadata)
    if isinstance(uri, metadata_uri.SqliteUri):
        for text in warnings(HostFiles(), uri.path):
            message(f"warning: metadata store {uri.path}: {text}")


def _print(report: DiskReport) -> None:
    device, kept = report.device, report.kept
    where = (
        "from the device"
        if kept.past_cache
        else "from memory: this file system does not allow more"
    )
    print_fields(
        [
            ("folder", report.path),
            ("device", None if device is None else device.name),
            ("volatile cache", None if device is None else device.volatile_cache),
            ("flushing", f"{report.flushing.verdict}: {report.flushing.why}"),
            (
                "killed writer",
                f"{kept.synced} blocks synced, {kept.lost} of them lost, {kept.torn} torn behind them (read {where})",
            ),
            ("device does not tear", _untorn(report)),
            ("passed", report.passed),
        ]
    )
    click.echo()
    print_table(
        ["write and sync", "syncs", "p50 ms", "p99 ms", "p99.9 ms", "max ms"],
        [
            (
                f"{each.way} {size(each.size)}",
                each.count,
                *(_ms(us) for us in (each.p50_us, each.p99_us, each.p999_us, each.max_us)),
            )
            for each in report.latency
        ],
    )
    click.echo()
    _print_histogram(report.latency[0])
    click.echo()
    for text in report.warnings:
        click.echo(f"warning: {text}")
    for text in report.cannot_know:
        click.echo(f"cannot be known: {text}")
    click.echo()


def _print_histogram(latency: Latency) -> None:
    most = max(bucket.count for bucket in latency.buckets)
    rows = [
        (f"< {_ms(bucket.below_us)}", bucket.count, "#" * -(-bucket.count * _BAR // most))
        for bucket in latency.buckets
    ]
    print_table(["ms", "syncs", ""], rows, title=f"{latency.way} {size(latency.size)}")


def _untorn(report: DiskReport) -> str:
    device = report.device
    if device is None:
        return "not known"
    if device.atomic_write:
        return f"writes of up to {size(device.atomic_write)}, it says"
    if device.logical_block:
        return f"it promises nothing beyond a block of {size(device.logical_block)}"
    return "not known"


def _ms(us: int) -> str:
    return f"{us / 1000:.3f}"
