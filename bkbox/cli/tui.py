"""``bkbox tui``: the operator's screen."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from bkbox import config as configuration
from bkbox.cli.options import FILE
from bkbox.errors import OperatorError


@click.command(no_args_is_help=True)
@click.option(
    "--config", "config_file", type=FILE, metavar="FILE", help="The bookie's configuration."
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
    config_file: Path | None, replay: Path | None, record: Path | None, headless: float | None
) -> None:
    """Look at a bookie: is it safe, what does it do, how long, what next.

    Needs the extra 'tui'. A bookie that is down is shown from the files of its disks. Press ? there for the keys.

    \b
    Example:
      bkbox tui --config bookie.toml
      bkbox tui --config bookie.toml --record night.jsonl.gz --headless 28800
      bkbox tui --replay night.jsonl.gz
    """
    if (config_file is None) == (replay is None):
        raise click.UsageError("give either --config or --replay")
    if replay is not None and (record or headless):
        raise click.UsageError("a recording cannot be recorded: leave --record and --headless out")
    if headless is not None and record is None:
        raise click.UsageError("--headless only records: say where with --record")
    try:
        from bkbox_tui import start
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("textual", "bkbox_tui"):
            raise
        raise OperatorError(
            "the screen needs Textual, which is not installed: pip install 'bkbox[tui]'"
        ) from None
    config = None if config_file is None else configuration.load(config_file, os.environ)
    start.run(config, replay, record, headless, wall_ms=lambda: time.time_ns() // 1_000_000)
