"""``bkbox run``: the bookie in the foreground, for a terminal, systemd or a container."""

from __future__ import annotations

import logging
import signal
import sys

import click

from bkbox import __version__
from bkbox.cli.exits import ExitCode
from bkbox.cli.options import config_option
from bkbox.config import Config
from bkbox.kernel import kernel_in_use
from bkbox.supervisor.nursery import Nursery


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
    logging.getLogger(__name__).log(
        logging.INFO if kernel_in_use() == "compiled" else logging.WARNING,
        "bkbox %s starts, with the %s kernel",
        __version__,
        kernel_in_use(),
    )
    # Until the supervisor knows an ordered stop there is nothing to stop but the children that wait.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit(ExitCode.OK))
    with Nursery() as nursery:
        for disk in config.disks:
            nursery.begin("worker", str(disk))
        nursery.begin("frontend", config.bookie_id)
        ctx.exit(_supervise(config, nursery))


def _supervise(config: Config, nursery: Nursery) -> int:
    import asyncio

    from bkbox.supervisor import (
        supervisor,  # what takes a while here, while the children do the same
    )

    return asyncio.run(
        supervisor.run(config, nursery, lambda address: click.echo(f"ready {address}"))
    )
