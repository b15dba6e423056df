"""``bkbox bookie …``: operators' requests for a bookie as a whole."""

from __future__ import annotations

from typing import Literal

import click

from bkbox.api.admin import client
from bkbox.api.admin import disks as admin
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.cli.lib.options import config_option
from bkbox.cli.lib.output import message, outcome_option
from bkbox.config.schema import Config


@click.group(no_args_is_help=True)
def bookie() -> None:
    """Have a running bookie take no more entries, or take them again.

    \b
    Example:
      bkbox bookie read-only on --config bookie.toml
    """


@bookie.command("read-only", no_args_is_help=True)
@click.argument("wanted", type=click.Choice(["on", "off"]))
@config_option
@click.option("--dry-run", is_flag=True, help="Say what it comes to, and change nothing.")
@outcome_option
def read_only(wanted: Literal["on", "off"], config: Config, dry_run: bool) -> None:
    """Have the bookie take no more entries, over restarts too, until "off".

    It is registered as read-only, so that no new ledger names it, and writers of open ledgers put another bookie in
    its place. Reads, fences, recoveries and repair go on. "off" takes back what a decommission wanted, too; a disk
    that is full, or that was made read-only by itself, stays read-only.

    \b
    Example:
      bkbox bookie read-only on --config bookie.toml
      bkbox bookie read-only off --config bookie.toml
    """
    socket = admin_socket_path(config)
    before = client.fetch_status(socket)
    if dry_run:
        mode = (
            "writable" if before.writable else f"read-only ({_reasons(before.read_only_reasons)})"
        )
        message(f"{before.bookie_id} is {mode}; nothing was changed")
        return
    for line in admin.read_only(socket, None, wanted=wanted == "on"):
        message(line)
    after = client.fetch_status(socket)
    if after.writable:
        message(f"{after.bookie_id} takes entries")
    else:
        message(f"{after.bookie_id} takes no entries: {_reasons(after.read_only_reasons)}")


def _reasons(reasons: tuple[str, ...]) -> str:
    return ", ".join(reasons) or "no disk does"
