"""``bkbox init``: creates a new bookie. A known bookie is brought back by ``bkbox cookie repair``."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import click

from bkbox.base.commandline import bookie_command
from bkbox.base.host.writers import create
from bkbox.cli.lib.options import FILE, configuration_file, dry_run_option
from bkbox.cli.lib.output import message, outcome_option
from bkbox.config import find, metadata_uri
from bkbox.config import load as configuration
from bkbox.config.schema import SCHEMA, Config
from bkbox.errors import BkboxError, ConfigError
from bkbox.supervisor.boot import init_bookie, power_domain

_OWN_OPTIONS = {
    "disks": "--disk",
    "journal": "--journal",
    "metadata": "--metadata",
    "listen": "--listen",
}
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(no_args_is_help=True)
@click.option(
    "--config",
    "config_file",
    type=FILE,
    required=True,
    envvar=find.VARIABLE,
    metavar="FILE",
    help=f"Configuration to write; must not exist yet (else: {find.VARIABLE}).",
)
@click.option(
    "--disk",
    "disks",
    type=_FOLDER,
    multiple=True,
    required=True,
    metavar="DIR",
    help="Folder of one data disk; once per disk.",
)
@click.option("--journal", type=_FOLDER, metavar="DIR", help="Folder of the journal.")
@click.option(
    "--metadata", required=True, metavar="URI", help=f"Metadata store: {metadata_uri.FORMS}."
)
@click.option(
    "--listen", required=True, metavar="HOST:PORT", help="Where clients reach the bookie."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any other key of the configuration; repeatable. A list as A;B, one of paths as A:B.",
)
@dry_run_option
@outcome_option
def init(
    config_file: Path,
    disks: tuple[Path, ...],
    journal: Path | None,
    metadata: str,
    listen: str,
    settings: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Write a configuration and prepare the disks of a new bookie.

    Paths are written absolute. Refuses disks that hold something, and a bookie that the metadata
    store knows: to bring such a one back is the task of "bkbox cookie repair".

    \b
    Example:
      bkbox init --config bookie.toml --disk /data/a --disk /data/b \\
          --metadata sqlite:/var/lib/bkbox/cluster.db --listen 10.0.0.5:3181 \\
          --set ack_after=write
    """
    values: dict[str, object] = {
        "listen": listen,
        "metadata": _absolute_uri(metadata),
        "disks": [os.path.abspath(disk) for disk in disks],
    }
    if journal is not None:
        values["journal"] = os.path.abspath(journal)
    for text in settings:
        key, value = configuration.parse_set(text)
        if key in _OWN_OPTIONS:
            raise click.UsageError(f"{key} is given by {_OWN_OPTIONS[key]}, not by --set")
        values[key] = value

    text = configuration.render(values)
    problems = configuration.validate_new(text, config_file, os.environ)
    if problems:
        raise ConfigError([f"{_option(each.place)}: {each.text}" for each in problems])
    if dry_run:
        _print_dry_run(config_file, text)
        return
    is_new = _write(config_file, text)
    configuration_file(config_file)
    try:
        config = configuration.load(config_file, os.environ)
        asyncio.run(init_bookie.initialise(config))
    except BaseException:
        if is_new:
            config_file.unlink()
        raise
    message(f"wrote {config_file}")
    _warn_of_power(config, asyncio.run(_shared_power(config)))
    message(f"start the bookie with: {bookie_command('run')}")


def _option(place: str) -> str:
    """The option that set the key."""
    return _OWN_OPTIONS.get(place, f"--set {place}" if place in SCHEMA else place)


def _print_dry_run(path: Path, text: str) -> None:
    """Prints the steps of an init. Raises ConfigError if init would refuse the folders as they are."""
    if os.path.lexists(path):
        raise ConfigError([f"{path} exists already: remove it or choose another name"])
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder, path.name)
        trial.write_text(text)
        config = configuration.load(trial, os.environ)
    for disk in (*config.disks, *((config.journal,) if config.journal else ())):
        if disk.is_dir() and set(os.listdir(disk)) - {"lost+found"}:
            raise ConfigError([f"{disk} is not empty"])
        message(f"would prepare {disk}")
    _warn_of_power(config, power_domain.of_store(config))
    message(f"would enter bookie {config.bookie_id} in {config.metadata}")
    message(f"would write {path}; nothing was changed")


async def _shared_power(config: Config) -> str:
    """Why one power cut takes all bookies; empty if it does not, or the metadata store cannot tell."""
    try:
        return await power_domain.check(config, config.metadata_wait_s)
    except BkboxError:
        return ""


def _warn_of_power(config: Config, found: str) -> None:
    if found:
        message(f"warning: {found}. What to do: {power_domain.what_to_do(config)}")


def _absolute_uri(uri: str) -> str:
    scheme, _, path = uri.partition(":")
    return f"sqlite:{os.path.abspath(path)}" if scheme == "sqlite" and path else uri


def _write(path: Path, text: str) -> bool:
    """Creates the file; True if it did not exist.

    An existing file with the same text is from an interrupted init, which may be repeated; any other file
    belongs to the operator and is not changed.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        create(path, text)
    except OSError as error:
        if path.is_symlink() and not path.exists():
            link = (
                f"{path} is a symbolic link to {os.readlink(path)}, which is not there: remove it"
            )
            raise ConfigError([link]) from None
        if not path.exists():
            raise ConfigError([f"cannot write {path}: {error.strerror}"]) from None
        if path.is_file() and path.read_bytes() == text.encode():
            return False
        raise ConfigError([f"{path} exists already: remove it or choose another name"]) from None
    return True
