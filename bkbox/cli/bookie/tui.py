"""``bkbox tui``: the operator's screen."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bkbox.base.commandline import bookie_command, plain_command
from bkbox.cli.lib.options import FILE, config_choice
from bkbox.cli.lib.target import is_given, remote_of, remote_options, target_of
from bkbox.errors import OperatorError

if TYPE_CHECKING:
    from bkbox_tui.sources import Source

_LISTEN_S = 3


@click.command()
@config_choice("Configuration of the bookie.")
@remote_options
@click.option(
    "--discover",
    metavar="ID",
    help="The bookie with this id that announces itself on this network (see bkbox discover).",
)
@click.option("--replay", type=FILE, metavar="FILE", help="Show a recording instead of a bookie.")
@click.option("--record", type=FILE, metavar="FILE", help="Record from the beginning on.")
@click.option(
    "--headless",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Only record, for so long, without a screen.",
)
def tui(
    config_file: Path | None,
    url: str | None,
    token_file: Path | None,
    plain_text: bool,
    discover: str | None,
    replay: Path | None,
    record: Path | None,
    headless: float | None,
) -> None:
    """Look at a bookie: is it safe, what does it do, how long, what next.

    Needs the extra 'tui'. A bookie that is down is shown from the files of its disks. Press ? there for the keys.

    \b
    Example:
      bkbox tui --config bookie.toml
      bkbox tui --bookie https://10.0.0.5:8080 --token-file token
      bkbox tui --config bookie.toml --record night.jsonl.gz --headless 28800
      bkbox tui --replay night.jsonl.gz
    """
    if replay is not None or discover is not None:
        exclusive = {"--replay": replay, "--discover": discover, "--config": config_file}
        given = [option for option, value in exclusive.items() if value is not None]
        if len(given) > 1 or is_given("url"):
            raise click.UsageError("give one of --config, --bookie, --discover and --replay")
    if replay is not None and (record or headless):
        raise click.UsageError("a recording cannot be recorded: leave --record and --headless out")
    if headless is not None and record is None:
        raise click.UsageError("--headless only records: say where with --record")
    try:
        from bkbox_tui import glyphs, sources, start

        from bkbox.api.cluster.asking import Reach
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("textual", "bkbox_tui"):
            raise
        raise OperatorError(
            "the screen needs Textual, which is not installed: pip install 'bkbox[tui]'"
        ) from None
    reach = None if token_file is None else Reach(token_file, plain_text)
    source: Source
    if replay is not None:
        source = sources.Recording(replay)
    elif discover is not None:
        there = remote_of(_announced(discover), token_file, plain_text=plain_text)
        source = sources.Bookie(there, None, _wall_ms, reach)
    else:
        target = target_of(config_file, url, token_file, plain_text=plain_text)
        source = sources.Bookie(target.address, target.config, _wall_ms, reach)
    if headless is None:
        _require_terminal()
    plain = glyphs.is_plain(os.environ, sys.stderr.encoding)
    start.run(source, record, headless, _wall_ms, plain=plain)


def _require_terminal() -> None:
    """Raises OperatorError without a terminal: keys come from standard input, the screen is drawn on standard error."""
    if all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return
    raise OperatorError(
        "the screen needs a terminal as standard input and standard error; without one: "
        f"{bookie_command('status', '--watch')}, or "
        f"{bookie_command('tui', '--record', 'FILE', '--headless', 60)}"
    )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _announced(name: str) -> str:
    """The admin API's address of a bookie announced by mDNS. Raises OperatorError, HostError."""
    from bkbox.cli.cluster.discover import found_here  # loads zeroconf

    found = [each for each in asyncio.run(found_here(_LISTEN_S, None)) if each["id"] == name]
    if not found:
        raise OperatorError(
            f"no bookie {name} announces itself here: see `{plain_command('discover')}`"
        )
    if not found[0]["admin"].startswith(("http://", "https://")):
        raise OperatorError(
            f"bookie {name} has no admin API for other hosts: set http_listen in its configuration"
        )
    return found[0]["admin"]
