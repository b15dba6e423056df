"""``bkbox run``: runs the bookie in the foreground, for a terminal, systemd or a container."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from bkbox import __version__
from bkbox.base import logs, wait_notices
from bkbox.base.host import descriptors
from bkbox.base.limits import BOOKIE_DESCRIPTORS_MIN, DESCRIPTORS_TARGET, FRONTEND_DESCRIPTORS
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import config_option
from bkbox.config.schema import Config
from bkbox.errors import BkboxError, BootError
from bkbox.native import kernel_in_use
from bkbox.supervisor.boot.other_writers import refuse_other_writers
from bkbox.supervisor.children.child_pool import ChildPool, frontend_name
from bkbox.supervisor.service.sd_notify import ServiceManager

if TYPE_CHECKING:
    from bkbox.api.admin.routes import Route
    from bkbox.metadata.base import MetadataStore
    from bkbox.storage.files import Files

_START_S = 1.0
"""Log lines are held back for this time: most starts take less, and the log writer is loaded afterwards."""


@click.command()
@config_option
@click.pass_context
def run(ctx: click.Context, config: Config) -> None:
    """Run the bookie in the foreground until it is told to stop.

    Prints one line, "ready HOST:PORT", on standard output as soon as it answers requests; its log
    goes to standard error. SIGTERM or SIGINT (Ctrl-C) stops it in order; SIGHUP makes it read its
    configuration again, as "bkbox config reload" does. Under systemd it says how it does (Type=notify,
    WatchdogSec).

    \b
    Example:
      bkbox run --config /etc/bkbox/bkbox.toml
    """
    wait_notices.set_sink(logging.getLogger(__name__).warning)
    refuse_other_writers(config, os.geteuid())
    os.umask(0o077)  # other users cannot read its files, whatever a folder's permissions
    log = logs.LogSettings(config.log_level, config.log_format)
    logs.begin("supervisor", log, hold_s=_START_S)
    logging.getLogger(__name__).log(
        logging.INFO if kernel_in_use() == "compiled" else logging.WARNING,
        "bkbox %s starts, with the %s kernel",
        __version__,
        kernel_in_use(),
    )
    _have_descriptors(config)
    faulthandler.enable()  # dumps the stacks if a watchdog ends it with SIGABRT
    manager = ServiceManager.from_environment(os.environ, os.getpid())
    # Before the supervisor handles these signals there is nothing to stop in order, only waiting children.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit(ExitCode.OK))
    with ChildPool(log) as child_pool:
        for disk in config.disks:
            child_pool.spawn("worker", str(disk))
        count = config.frontend_count
        for which in range(count):
            child_pool.spawn("frontend", frontend_name(config.bookie_id, count, which))
        try:
            status = _supervise(config, child_pool, manager)
        except BkboxError as error:
            manager.tell(STATUS=error)
            raise
        ctx.exit(status)


def _have_descriptors(config: Config) -> None:
    """Raises the limit of descriptors to what the configured connections need, also for the children. Raises
    BootError."""
    allowed = descriptors.allow(config.connections_max + FRONTEND_DESCRIPTORS)
    if allowed < BOOKIE_DESCRIPTORS_MIN:
        raise BootError(
            f"a bookie needs {BOOKIE_DESCRIPTORS_MIN} descriptors at least: {descriptors.too_few(allowed)}"
        )
    if allowed < min(config.connections_max + FRONTEND_DESCRIPTORS, DESCRIPTORS_TARGET):
        logging.getLogger(__name__).warning(
            "at most %d clients are served at once: %s",
            allowed - FRONTEND_DESCRIPTORS,
            descriptors.too_few(allowed),
        )


def _supervise(config: Config, child_pool: ChildPool, manager: ServiceManager) -> int:
    import asyncio

    from bkbox.supervisor import (
        supervisor,  # a slow import; the children import meanwhile
    )

    def routes_of(
        bookie: supervisor.Supervisor, store: MetadataStore, files: Files, stack: AsyncExitStack
    ) -> tuple[Route, ...]:
        from bkbox.api import table  # loaded only when a client connects

        return table.routes_of(bookie, store, files, stack)

    def ready(address: str) -> None:
        click.echo(f"ready {address}")

    return asyncio.run(supervisor.run(config, child_pool, ready, manager, routes_of))
