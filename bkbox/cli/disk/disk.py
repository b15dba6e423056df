"""``bkbox disk …``: shows the disks of a bookie; adds, drains, replaces and removes them while it runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from bkbox.api.admin import disks as client
from bkbox.api.admin.disks import DiskView, DrainPlan
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.commandline import bookie_command
from bkbox.base.text import counted
from bkbox.cli.lib.options import config_option, confirm, yes_option
from bkbox.cli.lib.output import (
    Format,
    Outcome,
    message,
    outcome,
    outcome_option,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
    size,
    watch_option,
)
from bkbox.config.schema import Config
from bkbox.errors import BookieNotRunningError, DiskChangeError
from bkbox.jobs.job import Job, to_json

_disk_argument = click.argument("name", metavar="DISK")
_dry_run = click.option("--dry-run", is_flag=True, help="Say what it comes to, and change nothing.")


@click.group(no_args_is_help=True)
def disk() -> None:
    """List, add, drain, replace and remove the disks of a bookie while it runs.

    DISK is the path of a disk or its uuid. The configuration file is never written to: it has to name a new disk
    before it is added, and is to lose a disk after it was removed.

    \b
    Example:
      bkbox disk list --config bookie.toml
    """


@disk.command("list")
@config_option
@watch_option
@output_option
@prints(list[DiskView])
def list_disks(config: Config, output: Format) -> None:
    """List the disks: state, room, ledgers, and what to do where something is to be done.

    While the bookie is not running the list is made from what is on the disks.

    \b
    Example:
      bkbox disk list --config bookie.toml
    """
    try:
        found = client.disks(admin_socket_path(config))
    except BookieNotRunningError as error:
        from bkbox.supervisor.disks.offline_disks import inspect

        found = inspect(config)
        message(f"{error}; this is what is on the disks")
    if output != "table":
        print_document([asdict(each) for each in found], output)
    else:
        _print(found)


def _print(found: Sequence[DiskView]) -> None:
    print_table(
        [
            "disk",
            "uuid",
            "state",
            "ledgers",
            "limbo",
            "free",
            "of",
            "used",
            "last start",
            "read-only",
            "worker",
            "restarts",
        ],
        [
            (
                each.path,
                each.disk,
                each.state,
                each.ledgers,
                each.limbo_ledgers,
                _size(each.free_bytes),
                _size(each.total_bytes),
                _used(each),
                each.crash_class,
                each.read_only,
                each.worker_pid,
                each.restarts,
            )
            for each in found
        ],
    )
    skew = _skew(found)
    if skew is not None:
        click.echo(f"the fullest disk is {skew:.0f} percentage points fuller than the emptiest")
    for each in found:
        if each.reason:
            click.echo(f"{each.path}: {each.state}: {each.reason}")
        if each.last_start:
            click.echo(f"{each.path}: last start: {each.crash_class}: {each.last_start}")
        if each.what_to_do:
            click.echo(f"{each.path}: what to do: {each.what_to_do}")


def _size(count: int | None) -> str | None:
    return None if count is None else size(count)


def _share(each: DiskView) -> float | None:
    if each.free_bytes is None or not each.total_bytes:
        return None
    return 100.0 * (1 - each.free_bytes / each.total_bytes)


def _used(each: DiskView) -> str | None:
    share = _share(each)
    return None if share is None else f"{share:.0f} %"


def _skew(found: Sequence[DiskView]) -> float | None:
    shares = [share for share in map(_share, found) if share is not None]
    return max(shares) - min(shares) if len(shares) > 1 else None


@disk.command(no_args_is_help=True)
@click.argument("path", type=click.Path(path_type=Path))
@config_option
@_dry_run
@outcome_option
def add(path: Path, config: Config, dry_run: bool) -> None:
    """Take in the empty disk at PATH, which the configuration file names by now.

    It gets new ledgers by its share of the free bytes. Nothing is moved to it.

    \b
    Example:
      bkbox disk add /data/disk3 --config bookie.toml
    """
    path = _absolute(path)
    _require_named(config, path)
    if dry_run:
        message(f"this will write the cookies with {path}, prepare it, and start its worker")
        return
    _print_notes(client.add(_socket(config), path))
    message(f"{path} is a disk of the bookie now")


@disk.command(no_args_is_help=True)
@_disk_argument
@config_option
@_dry_run
@click.option("--undo", is_flag=True, help="Give up a drain: the disk takes new ledgers again.")
@output_option
@prints(Job, DrainPlan, Outcome)
def drain(name: str, config: Config, dry_run: bool, undo: bool, output: Format) -> None:
    """Move all ledgers of a disk to the other disks of the bookie, while they are used.

    The disk takes no new ledgers from then on, after a restart, too. The work is a job: see bkbox job.

    \b
    Example:
      bkbox disk drain /data/disk1 --config bookie.toml
      bkbox job watch --config bookie.toml
      bkbox disk remove /data/disk1 --config bookie.toml
    """
    name = _name(name)
    if undo:
        _undo(name, config, dry_run=dry_run, output=output)
        return
    if dry_run:
        plan = client.plan_drain(_socket(config), name)
        if output != "table":
            print_document(asdict(plan), output)
        else:
            print_fields(
                [
                    ("disk", plan.path),
                    ("ledgers to move", plan.ledgers),
                    ("bytes to move, at most", size(plan.bytes_at_most)),
                    ("room on the other disks", size(plan.room_bytes)),
                    ("refused, because", plan.refusal or "it is not refused"),
                ]
            )
        return
    job = client.drain(_socket(config), name)
    if output != "table":
        print_document(to_json(job), output)
    else:
        message(f"job {job.id} drains {name}: {bookie_command('job', 'watch', job.id)}")


@outcome
def _undo(name: str, config: Config, *, dry_run: bool) -> None:
    if dry_run:
        found = client.find(_socket(config), name)
        message(f"{found.path} is {found.state}; nothing was changed")
        return
    _print_notes(client.undrain(_socket(config), name))
    message(f"{name} keeps its ledgers and takes new ones")


@disk.command("read-only", no_args_is_help=True)
@_disk_argument
@config_option
@click.option("--off", is_flag=True, help="It takes entries again.")
@_dry_run
@outcome_option
def read_only(name: str, config: Config, off: bool, dry_run: bool) -> None:
    """Have a disk take no more entries, over restarts too, until --off.

    New ledgers go to the other disks; writers of ledgers that it has replace the bookie in their ensembles. Reads,
    fences, recoveries and repair go on. For a disk that is to be emptied there is "bkbox disk drain".

    \b
    Example:
      bkbox disk read-only /data/disk1 --config bookie.toml
      bkbox disk read-only /data/disk1 --off --config bookie.toml
    """
    name = _name(name)
    effect = "takes entries" if off else "takes no more entries"
    if dry_run:
        message(f"{name} would be one that {effect}; nothing was changed")
        return
    _print_notes(client.read_only(_socket(config), name, wanted=not off))
    message(f"{name} {effect}")


@disk.command(no_args_is_help=True)
@click.argument("old")
@click.argument("path", metavar="NEW", type=click.Path(path_type=Path))
@config_option
@_dry_run
@yes_option
@outcome_option
def replace(old: str, path: Path, config: Config, dry_run: bool, yes: bool) -> None:
    """Put the empty disk NEW in the place of OLD, which has failed. They may have the same path.

    The ledgers that were on OLD are fenced and in limbo until their entries are back from other bookies; those of the
    other disks are not touched.

    \b
    Example:
      bkbox disk replace /data/disk1 /data/disk4 --config bookie.toml
    """
    old, path = _name(old), _absolute(path)
    _require_named(config, path)
    found = client.find(_socket(config), old)
    # A refusal comes before the operator is asked to confirm, and with --dry-run.
    warnings = client.replace(_socket(config), old, path, dry_run=True)
    _print_notes(warnings)
    message(
        f"this will give up what is on {found.path} ({_contents(found)}; it is {found.state}) and fill {path} from "
        "other bookies"
    )
    if dry_run:
        return
    confirm("Go on?", yes=yes)
    _print_notes(
        [line for line in client.replace(_socket(config), old, path) if line not in warnings]
    )
    message(f"{path} is in the place of {old}; repair fills it: {bookie_command('job', 'list')}")


@disk.command(no_args_is_help=True)
@_disk_argument
@config_option
@_dry_run
@outcome_option
def remove(name: str, config: Config, dry_run: bool) -> None:
    """Let go of a disk that was drained and holds nothing any more.

    \b
    Example:
      bkbox disk remove /data/disk1 --config bookie.toml
    """
    name = _name(name)
    if dry_run:
        found = client.find(_socket(config), name)
        if found.state != "drained":
            raise DiskChangeError(
                f"{found.path} is {found.state} and holds {_contents(found)}: drain it first: "
                f"{bookie_command('disk', 'drain', found.path)}"
            )
        message(f"this will take {found.path} out of the bookie; it holds nothing")
        return
    notes = client.remove(_socket(config), name)
    message(f"{name} is no disk of the bookie any more")
    _print_notes(notes)


def _contents(found: DiskView) -> str:
    if found.ledgers is None:
        return "an unknown number of ledgers"
    return counted(found.ledgers, "ledger")


def _socket(config: Config) -> Path:
    return admin_socket_path(config)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _name(name: str) -> str:
    """An absolute path, as the bookie has another working folder; a uuid is returned as it is."""
    return os.path.abspath(name) if os.sep in name or Path(name).exists() else name


def _require_named(config: Config, path: Path) -> None:
    """Checked before the request is sent; the bookie reads the file again."""
    if path not in config.disks:
        line = ", ".join(f'"{one}"' for one in (*config.disks, path))
        raise DiskChangeError(
            f"{config.path} does not name {path}: put it into `disks` there first, so that the next start knows it. "
            f"For an additional disk that is: disks = [{line}]"
        )


def _print_notes(lines: Sequence[str]) -> None:
    for line in lines:
        message(line)
