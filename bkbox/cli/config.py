"""``bkbox config …``: the configuration as the bookie would read it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bkbox import config as configuration
from bkbox.cli.exits import ExitCode
from bkbox.cli.options import FILE, config_option
from bkbox.cli.output import Format, message, output_option, print_json, print_table
from bkbox.config import Config


@click.group(no_args_is_help=True)
def config() -> None:
    """Check a configuration and show what it means.

    \b
    Example:
      bkbox config validate --config bookie.toml
    """


@config.command(no_args_is_help=True)
@click.option("--config", "file", type=FILE, required=True, metavar="FILE", help="File to check.")
@output_option
@click.pass_context
def validate(ctx: click.Context, file: Path, output: Format) -> None:
    """Report every problem of a configuration, each with its line.

    Exit code 0 means that there is none, 2 that there are some.

    \b
    Example:
      bkbox config validate --config bookie.toml
    """
    problems = [str(problem) for problem in configuration.validate(file, os.environ)]
    if output == "json":
        print_json(problems)
    for problem in problems if output == "table" else ():
        click.echo(problem)
    if problems:
        ctx.exit(ExitCode.USAGE)
    message(f"{file}: no problems")


@config.command(no_args_is_help=True)
@config_option
@output_option
def show(config: Config, output: Format) -> None:
    """Show every key, its value, and where the value comes from.

    \b
    Example:
      bkbox config show --config bookie.toml -o json
    """
    rows = [(key, value, config.provenance[key]) for key, value in config.values().items()]
    if output == "json":
        print_json({key: {"value": value, "from": source} for key, value, source in rows})
    else:
        print_table(["key", "value", "from"], rows)
