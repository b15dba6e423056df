"""``bkbox demo``: demonstrates bkbox on this machine."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import click
from rich.console import Console

from bkbox.base.commandline import plain_command
from bkbox.cli.lib.signals import end_in_order
from bkbox.demo import source as sources
from bkbox.demo.cluster import Cluster
from bkbox.demo.output import Output, PlainOutput, TerminalOutput
from bkbox.demo.source import Source
from bkbox.demo.steps import run_steps
from bkbox.errors import BkboxError


@click.command()
@click.option(
    "--input",
    "input_path",
    metavar="PATH",
    help="File or folder to write, - for standard input [default: Python's standard library].",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Work in this new folder and leave it there, instead of a temporary one.",
)
@click.option("--plain", is_flag=True, help="Lines without colours and bars, every checksum.")
def demo(input_path: str | None, keep: Path | None, plain: bool) -> None:
    """Run three bookies here, break them, and read everything back.

    Writes real data to a ledger; kills a bookie in the middle; takes a disk away from another; fences
    off a writer that hangs; and reads all of it back, byte for byte. Takes less than a minute,
    listens on 127.0.0.1 only, and leaves no process and no file behind unless --keep is given.

    \b
    Example:
      bkbox demo
      bkbox demo --input ~/documents
    """
    output = _output_for(plain)
    end_in_order()
    rng = random.Random()  # noqa: S311 - ports, samples and pauses
    with Cluster(keep, rng) as cluster:
        try:
            asyncio.run(run_steps(cluster, output, _source(input_path, cluster, output), rng))
        except BkboxError:
            for bookie in cluster.bookies:
                click.echo(bookie.log_tail(), err=True)
            raise
    if keep is not None:
        output.explain(
            f"Everything is still in {keep}: configurations, disks, logs, metadata. "
            f"`{plain_command('run', '--config', keep.absolute() / 'bookie1.toml')}` starts a bookie again."
        )


def _output_for(plain: bool) -> Output:
    console = Console(highlight=False)
    if plain or not console.is_terminal or console.is_dumb_terminal or os.environ.get("NO_COLOR"):
        return PlainOutput()
    return TerminalOutput(console)


def _source(input_path: str | None, cluster: Cluster, output: Output) -> Source:
    if input_path is None:
        return sources.standard_library()
    path, copy = Path(input_path), cluster.root / "input"
    if input_path != "-" and not path.is_fifo():
        return sources.from_path(path)
    output.explain("The input is read to its end first, to know where its middle is.")
    if input_path == "-":
        return sources.from_stream(sys.stdin.buffer, copy)
    with path.open("rb") as stream:
        return sources.from_stream(stream, copy)
