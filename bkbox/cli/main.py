"""The command ``bkbox``: a tree of commands, each loaded only when it is called.

Rules: data goes to standard output and messages to standard error; an error of bkbox is one line
and an exit code (exit_codes.py), never a traceback; commands reach a running bookie only through its
admin socket.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

import click

from bkbox import __version__
from bkbox.base.host.interpreter import keep_import_path_safe
from bkbox.base.host.streams import open_closed_streams
from bkbox.cli.lib.exit_codes import ExitCode, epilog, exit_code, host_error, report
from bkbox.errors import BkboxError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names, as a question after a sentence; "" if none is near."""
    from difflib import get_close_matches  # needed after a mistake only

    from bkbox.base.text import quoted

    near = get_close_matches(name, list(known))
    return f" Did you mean {' or '.join(map(quoted, near))}?" if near else ""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed.

    ``lazy`` maps a command's name to ``module:attribute`` and its one-line help, so that the list
    of commands costs no import.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, attribute = self.lazy[cmd_name][0].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the nearest commands where there is no such one: click before 8.4 names none, and later ones know those
        of a group only that are loaded."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"No such command '{name}'.{did_you_mean(name, self.lazy)}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes from the list: a key press must not import every command."""
        from click.shell_completion import CompletionItem  # needed for completion only

        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in self.lazy.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BkboxError as error:
            report(error)
            ctx.exit(exit_code(error))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader closed the pipe: click ends silently
            report(host_error(error))
            _discard_output()
            ctx.exit(ExitCode.FAILED)


COMMANDS = {
    "init": (
        "bkbox.cli.bookie.init:init",
        "Write a configuration and prepare the disks of a new bookie.",
    ),
    "run": (
        "bkbox.cli.bookie.run:run",
        "Run the bookie in the foreground until it is told to stop.",
    ),
    "scrub": (
        "bkbox.cli.disk.scrub:scrub",
        "Verify every record on the disks, and refill what is bad.",
    ),
    "status": ("bkbox.cli.bookie.status:status", "Show how the running bookie does."),
    "doctor": (
        "bkbox.cli.check.doctor:doctor",
        "Look at everything that could keep a bookie from working.",
    ),
    "selftest": (
        "bkbox.cli.check.selftest:selftest",
        "Measure what the disks do, and whether they keep what is synced.",
    ),
    "debug": ("bkbox.cli.bookie.debug:debug", "Collect what is needed to diagnose a problem."),
    "tui": (
        "bkbox.cli.bookie.tui:tui",
        "Look at a bookie on a screen of its own, in the terminal.",
    ),
    "job": (
        "bkbox.cli.bookie.job:job",
        "See the long work of a bookie, slow it down, pause, cancel.",
    ),
    "health": ("bkbox.cli.bookie.health:health", "Say whether the next bookie may be taken down."),
    "maintenance": (
        "bkbox.cli.bookie.maintenance:maintenance",
        "Ask the cluster not to repair while a bookie is down.",
    ),
    "cookie": (
        "bkbox.cli.bookie.cookie:cookie",
        "Show, verify and repair what binds disks to a bookie.",
    ),
    "takeover": (
        "bkbox.cli.bookie.takeover:takeover",
        "Make bkbox's disks of those of a stopped Java bookie.",
    ),
    "handback": (
        "bkbox.cli.bookie.takeover:handback",
        "Make Java's disks of those of a stopped bookie of bkbox's.",
    ),
    "autorecovery": (
        "bkbox.cli.cluster.autorecovery:autorecovery",
        "Bring back the copies that lost bookies had.",
    ),
    "decommission": (
        "bkbox.cli.cluster.decommission:decommission",
        "Take a bookie out of the cluster for good.",
    ),
    "disk": (
        "bkbox.cli.disk.disk:disk",
        "List disks; add, drain, replace, remove them while it runs.",
    ),
    "bookie": (
        "bkbox.cli.bookie.bookie:bookie",
        "Have a bookie take no more entries, or take them again.",
    ),
    "cluster": ("bkbox.cli.cluster.cluster:cluster", "Create a cluster, and list its bookies."),
    "ledger": (
        "bkbox.cli.ledger.ledger:ledger",
        "Create, read, write, explain, recover, end, delete ledgers.",
    ),
    "audit": (
        "bkbox.cli.data.audit:audit",
        "Look at every entry of a cluster, and say what is wrong.",
    ),
    "repair": (
        "bkbox.cli.data.repair_plan:repair",
        "Make the copies that an audit found to be made.",
    ),
    "export": ("bkbox.cli.data.export:export", "Write closed ledgers to Parquet files."),
    "import": ("bkbox.cli.data.imports:import_", "Make ledgers again out of what was exported."),
    "top": (
        "bkbox.cli.cluster.top:top",
        "Show the largest and oldest ledgers, owners, uneven bookies.",
    ),
    "log": (
        "bkbox.cli.log.log:log",
        "Write, read, follow and truncate logs over as many ledgers as it takes.",
    ),
    "placement": (
        "bkbox.cli.cluster.placement:placement",
        "Show how bookies are chosen for ledgers.",
    ),
    "gc": ("bkbox.cli.disk.gc:gc", "See and collect what deleted ledgers leave on the disks."),
    "index": ("bkbox.cli.disk.index:index", "Work on a disk's index while the bookie is stopped."),
    "config": (
        "bkbox.cli.bookie.config:config",
        "Check, explain, change and import configurations.",
    ),
    "systemd": ("bkbox.cli.bookie.systemd:systemd", "Run bookies as services of this host."),
    "discover": (
        "bkbox.cli.cluster.discover:discover",
        "List the bookies that announce themselves here.",
    ),
    "completion": ("bkbox.cli.completion:completion", "Make a shell complete bkbox's commands."),
    "schema": ("bkbox.cli.schema:schema", "Print the JSON Schema of what a command prints."),
    "man": ("bkbox.cli.completion:man", "Write the manual pages."),
    "bench": ("bkbox.cli.check.bench:bench", "Measure a bookie and the client on this machine."),
    "demo": ("bkbox.cli.check.demo:demo", "Run three bookies here, break them, and read all back."),
}

PROOF_COMMANDS = {
    "sim": ("proof.cli.sim:sim", "Run a simulated cluster through faults of all kinds."),
    "model-check": ("proof.cli.model_check:model_check", "Look at every state of the limbo model."),
    "chaos": (
        "proof.cli.chaos:chaos",
        "Run a real cluster under load, break it, judge its history.",
    ),
}
"""The commands of the package ``proof``, which is next to ``bkbox`` in a checkout and in no wheel."""


def has_proof_tools() -> bool:
    """True if this bkbox is a checkout whose package ``proof`` can be imported; imports nothing of it."""
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    spec = find_spec("proof")
    return (
        spec is not None
        and spec.origin == os.path.join(checkout, "proof", "__init__.py")
        and os.path.exists(os.path.join(checkout, "pyproject.toml"))
    )


if has_proof_tools():
    COMMANDS |= PROOF_COMMANDS


@click.group(cls=LazyGroup, lazy=COMMANDS, epilog=epilog(), no_args_is_help=True)
@click.version_option(__version__, prog_name="bkbox")
def main() -> None:
    """An Apache BookKeeper bookie for one host that keeps its promises without a journal.

    A first bookie, in two commands:

    \b
      bkbox init --config bookie.toml --disk ./disk0 \\
          --metadata sqlite:./cluster.db --listen 127.0.0.1:3181
      bkbox run --config bookie.toml

    and in another terminal:

    \b
      bkbox status --config bookie.toml
      echo hello | bkbox ledger write --metadata sqlite:./cluster.db -e 1 -w 1 -a 1
    """
    warnings.showwarning = _show_warning
    from bkbox.base import (  # not needed for `--help`, which has to be fast
        commandline,
        wait_notices,
    )
    from bkbox.base.host.descriptors import require_descriptors
    from bkbox.base.limits import DESCRIPTORS_MIN

    wait_notices.set_sink(_print_wait)
    click.get_current_context().call_on_close(commandline.set_origin)
    require_descriptors(DESCRIPTORS_MIN)
    if os.environ.get("BKBOX_CLIENT_FILE"):
        from bkbox.cli.lib import client_file  # few commands need a client

        client_file.apply(os.environ)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a Python warning as a message, without the line of code that raised it."""
    click.echo(f"warning: {message}", err=True)


def _print_wait(text: str) -> None:
    click.echo(text, err=True)


def _discard_output() -> None:
    """Discard what standard output does not take. Python would try it again at its exit, print a second error, and
    exit with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command() -> None:
    """Run ``bkbox`` as a process of its own."""
    keep_import_path_safe()
    open_closed_streams()
    try:
        main()
    except OSError as error:  # of ``--help``, as into a full disk: no command was invoked yet
        report(host_error(error))
        _discard_output()
        sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    command()
