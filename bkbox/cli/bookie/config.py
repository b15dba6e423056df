"""``bkbox config …``: the configuration in the file, and the one that the bookie runs with."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bkbox.api.admin.client import ask
from bkbox.api.admin.socket_path import CONFIG_URL, admin_socket_path
from bkbox.base.commandline import bookie_command
from bkbox.base.host.small_files import read_small
from bkbox.base.host.writers import create
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import FILE, config_choice, config_file_option, config_option
from bkbox.cli.lib.output import (
    Format,
    message,
    output_option,
    print_document,
    print_fields,
    print_table,
    prints,
)
from bkbox.config import find
from bkbox.config import load as configuration
from bkbox.config.schema import SCHEMA, Config, is_live, kind_of
from bkbox.config.values import REQUIRED
from bkbox.errors import BookieNotRunningError, ConfigError, EncodingError

if TYPE_CHECKING:
    from bkbox.config.java_import import Remark


@click.group(no_args_is_help=True)
def config() -> None:
    """Check a configuration, show what it means, change it while the bookie runs.

    \b
    Example:
      bkbox config validate --config bookie.toml
    """


@config.command()
@config_file_option
@output_option
@prints(list[str])
@click.pass_context
def validate(ctx: click.Context, config_file: Path, output: Format) -> None:
    """Report every problem of a configuration, each with its line.

    Opens what a start opens (files of certificates and secrets, folders, addresses, scripts, an embedded metadata
    store), as a start does: run it as the user that runs the bookie. What is on the disks is looked at by "bkbox
    doctor". Exit code 0 means that there is no problem, 2 that there are some.

    \b
    Example:
      bkbox config validate --config bookie.toml
    """
    found = configuration.validate(config_file, os.environ)
    if not found:
        from bkbox.supervisor.boot import trial  # not needed if the file is already wrong

        config = configuration.load(config_file, os.environ)
        found = trial.problems(config, _running(config) or {})
    problems = [str(problem) for problem in found]
    if output != "table":
        print_document(problems, output)
    for problem in problems if output == "table" else ():
        click.echo(problem)
    if problems:
        ctx.exit(ExitCode.USAGE)
    message(f"{config_file}: no problems")


@config.command()
@config_option
@output_option
@prints(dict[str, dict[str, object]])
def show(config: Config, output: Format) -> None:
    """Show every key, its value, and where the value comes from.

    \b
    Example:
      bkbox config show --config bookie.toml -o json
    """
    rows = [(key, value, config.provenance[key]) for key, value in config.values().items()]
    if output != "table":
        print_document(
            {key: {"value": value, "from": source} for key, value, source in rows}, output
        )
    else:
        print_table(["key", "value", "from"], rows)


def _complete_key(_ctx: click.Context, _param: click.Parameter, start: str) -> list[str]:
    return [key for key in SCHEMA if key.startswith(start)]


@config.command(no_args_is_help=True)
@click.argument("key", shell_complete=_complete_key)
@config_choice("Show also what it is there.")
@output_option
@prints(dict[str, object])
def explain(key: str, config_file: Path | None, output: Format) -> None:
    """Say what a key does, what it can be, and whether a running bookie takes over a change.

    \b
    Example:
      bkbox config explain ack_after
      bkbox config explain disk_usage_max --config bookie.toml -o json
    """
    if key not in SCHEMA:
        raise ConfigError([configuration.unknown_key(key)])
    item = SCHEMA[key]
    default = item.metadata["default"]
    fields: dict[str, object] = {
        "key": key,
        "meaning": item.metadata["doc"],
        "value": kind_of(item).permitted(),
        "default": None if default is REQUIRED else default,
        "required": default is REQUIRED,
        "variable": configuration.ENVIRONMENT_PREFIX + key.upper(),
        "changes": f"while the bookie runs: `{bookie_command('config', 'reload')}`"
        if is_live(item)
        else "at a start",
    }
    file = config_file or find.of_variable(os.environ) or find.of_default_path()
    if file is not None:
        found = configuration.load(file, os.environ)
        fields |= {"here": found.values()[key], "from": found.provenance[key]}
    if output != "table":
        print_document(fields, output)
    else:
        print_fields(list(fields.items()))


@config.command()
@config_option
@output_option
@prints(list[dict[str, object]])
def diff(config: Config, output: Format) -> None:
    """Show the keys that are not at their default, or that the running bookie has otherwise.

    Where the bookie runs, a key that differs from what it runs with needs "bkbox config reload", or
    a restart.

    \b
    Example:
      bkbox config diff --config bookie.toml
    """
    running = _running(config)
    found = []
    for key, value in config.values().items():
        default = SCHEMA[key].metadata["default"]
        at_default = config.provenance[key] == "default" or value == default
        pending = running is not None and running.get(key) != value
        if at_default and not pending:
            continue
        found.append(
            {
                "key": key,
                "value": value,
                "default": None if default is REQUIRED else default,
                "running": None if running is None else running.get(key),
                "takes effect": _takes_effect(key, pending=pending),
            }
        )
    if output != "table":
        print_document(found, output)
    else:
        columns = ["key", "value", "default", "running", "takes effect"]
        print_table(columns, [[row[column] for column in columns] for row in found])
    if running is None:
        message("no bookie is running with this configuration: compared with the defaults only")


def _takes_effect(key: str, *, pending: bool) -> str:
    if not pending:
        return ""
    return (
        f"with `{bookie_command('config', 'reload')}`" if is_live(SCHEMA[key]) else "with a restart"
    )


def _running(config: Config) -> Mapping[str, Any] | None:
    """The running configuration by key; None if no bookie runs."""
    try:
        found = ask(admin_socket_path(config), "GET", CONFIG_URL)
    except BookieNotRunningError:
        return None
    match found:
        case dict():
            return {key: item["value"] for key, item in found.items()}
    raise EncodingError("the bookie answered something that is no configuration")


@config.command()
@config_option
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@output_option
@prints(list[dict[str, object]])
def reload(config: Config, dry_run: bool, output: Format) -> None:
    """Let the running bookie read its configuration again, as SIGHUP does.

    Keys that cannot change while it runs make it refuse all of it and name them: "bkbox config
    explain KEY" says which can. The environment is that of the bookie, not of this command.

    \b
    Example:
      bkbox config reload --config bookie.toml
    """
    path = admin_socket_path(config)
    changes = ask(path, "POST", f"{CONFIG_URL}/reload", {"dry_run": dry_run})
    if not isinstance(changes, list):
        raise EncodingError("the bookie answered something that is no list of changes")
    if output != "table":
        print_document(changes, output)
    elif changes:
        columns = ["key", "before", "after", "from"]
        print_table(columns, [[change[column] for column in columns] for change in changes])
    if not changes:
        message("the configuration has not changed")
    elif dry_run:
        message("nothing was changed")


@dataclass(frozen=True, slots=True)
class JavaKey:
    """A key of the old file, where it is there, and what became of it."""

    key: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class ImportedConfig:
    """The new configuration, and what became of every key of the old one. ``written``: the file that holds it; None
    without --to."""

    settings: dict[str, object]
    taken_over: list[JavaKey]
    no_counterpart: list[JavaKey]
    written: str | None


@config.command("import", no_args_is_help=True)
@click.argument("file", type=FILE)
@click.option(
    "--host",
    default="",
    metavar="HOST",
    help="Name or address under which the others reach the bookie, where the file does not say.",
)
@click.option(
    "--to",
    type=FILE,
    metavar="NEW",
    help="File to write, which must not exist; else it is printed.",
)
@output_option
@prints(ImportedConfig)
def import_(file: Path, host: str, to: Path | None, output: Format) -> None:
    """Make a configuration of the bk_server.conf of one of Apache's bookies.

    Every key is accounted for: those that are taken over, and why the others have no counterpart. It
    is said in messages, and again in comments at the end of what is made. Data is taken over by
    "bkbox takeover". With -o json or yaml it is all printed as one document.

    \b
    Example:
      bkbox config import bk_server.conf --host bookie-1.example.com --to bookie.toml
    """
    from bkbox.config.java_import import convert  # needed by this command only
    from bkbox.config.java_properties import parse

    try:
        text = read_small(file).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{file}: byte {error.start} is not UTF-8"]) from None
    found = convert(parse(text, str(file)), str(file), host)
    remarks = [
        f"{file}:{each.property.line}: {each.property.key}: "
        f"{'taken over: ' if each.imported else 'no counterpart: '}{each.text}"
        for each in found.remarks
    ]
    made = configuration.render(found.values) + _as_comments(remarks)
    _require_valid(made)
    if to is not None:
        _write_new(to, made)
    elif output == "table":
        click.echo(made, nl=False)
    for remark in remarks:
        message(remark)
    if output != "table":
        document = ImportedConfig(
            dict(found.values),
            _keys(each for each in found.remarks if each.imported),
            _keys(each for each in found.remarks if not each.imported),
            None if to is None else str(to),
        )
        print_document(asdict(document), output)


def _keys(remarks: Iterable[Remark]) -> list[JavaKey]:
    return [JavaKey(each.property.key, each.property.line, each.text) for each in remarks]


def _as_comments(remarks: Iterable[str]) -> str:
    return "\n# What became of the keys of Java's bookie:\n" + "".join(
        f"# {remark}\n" for remark in remarks
    )


def _require_valid(text: str) -> None:
    """Raises ConfigError for problems that involve several keys, such as a journal within a disk."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bkbox.toml")
        file.write_text(text)
        problems = [problem.text for problem in configuration.validate(file, {})]
    if problems:
        raise ConfigError([f"the configuration that would come of it: {each}" for each in problems])


def _write_new(path: Path, text: str) -> None:
    try:
        create(path, text)
    except FileExistsError:
        raise ConfigError([f"{path} exists already: remove it or choose another name"]) from None
    except OSError as error:
        raise ConfigError([f"cannot write {path}: {error.strerror}"]) from None
    message(f"wrote {path}")
