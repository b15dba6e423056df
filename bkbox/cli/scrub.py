"""``bkbox scrub …``: reading every record before somebody needs one that has gone bad."""

from __future__ import annotations

from dataclasses import asdict

import click

from bkbox.admin import client
from bkbox.admin import space as admin
from bkbox.admin.paths import admin_socket_path
from bkbox.cli.gc import last_jobs, moment, told
from bkbox.cli.job import print_jobs
from bkbox.cli.options import config_option
from bkbox.cli.output import Format, output_option, print_json, print_table
from bkbox.config import Config
from bkbox.jobs.job import JobKind, to_json


@click.group(no_args_is_help=True)
def scrub() -> None:
    """Verify every record on the disks, and refill what is bad from other bookies.

    A scrub runs by itself once in scrub_interval_s, and goes on where it was interrupted.

    \b
    Example:
      bkbox scrub status --config bookie.toml
    """


@scrub.command(no_args_is_help=True)
@config_option
@click.option("--restart", is_flag=True, help="From the beginning, wherever the last one has come.")
@output_option
def run(config: Config, restart: bool, output: Format) -> None:
    """Start a scrub of all disks, or go on with one. It is a job: see "bkbox job watch".

    \b
    Example:
      bkbox scrub run --config bookie.toml
    """
    arguments = {"restart": "true"} if restart else {}
    told(client.start_job(admin_socket_path(config), JobKind.SCRUB, arguments), config, output)


@scrub.command(no_args_is_help=True)
@config_option
@output_option
def status(config: Config, output: Format) -> None:
    """Show when each disk was last read whole, and what was found.

    \b
    Example:
      bkbox scrub status --config bookie.toml
    """
    path = admin_socket_path(config)
    disks = admin.space(path)
    jobs = last_jobs(client.jobs(path), JobKind.SCRUB)
    if output == "json":
        print_json(
            {"disks": [asdict(disk) for disk in disks], "jobs": [to_json(job) for job in jobs]}
        )
        return
    print_table(
        ["disk", "last complete", "under way since", "segments with bad parts"],
        [
            (
                disk.path,
                moment(disk.scrub_completed_ms),
                f"{moment(disk.scrub_began_ms)}, at segment {disk.scrub_segment}"
                if disk.scrub_segment
                else "",
                ", ".join(map(str, disk.quarantined)),
            )
            for disk in disks
        ],
    )
    if jobs:
        print_jobs(jobs, title="last runs")
