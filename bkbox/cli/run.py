"""``bkbox run``: the bookie in the foreground, for a terminal, systemd or a container."""

from __future__ import annotations

import asyncio
import logging
import sys

import click

from bkbox.cli.options import config_option
from bkbox.config import Config
from bkbox.supervisor import supervisor


@click.command(no_args_is_help=True)
@config_option
@click.pass_context
def run(ctx: click.Context, config: Config) -> None:
    """Run the bookie in the foreground until it is told to stop.

    Prints one line, "ready HOST:PORT", on standard output as soon as it answers requests; its log
    goes to standard error. SIGTERM or SIGINT (Ctrl-C) stops it in order.

    \b
    Example:
      bkbox run --config /etc/bkbox/bkbox.toml
    """
    logging.basicConfig(
        level=config.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    ctx.exit(asyncio.run(supervisor.run(config, lambda address: click.echo(f"ready {address}"))))
