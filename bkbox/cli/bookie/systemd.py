"""``bkbox systemd …``: installs the systemd units, adapted to this host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bkbox.base.commandline import plain_command
from bkbox.base.text import quoted
from bkbox.cli.lib.exit_codes import ExitCode
from bkbox.cli.lib.options import FILE
from bkbox.cli.lib.output import Format, message, output_option, print_document, print_table, prints
from bkbox.config import load as configuration
from bkbox.config import metadata_uri
from bkbox.config.metadata_uri import SqliteUri
from bkbox.config.schema import Config
from bkbox.errors import ConfigError, HostError

_UNITS = Path(__file__).parents[1] / "units"
_CONFIG_FOLDER = Path("/etc/bkbox")
_UNIT_FOLDER = Path("/etc/systemd/system")
_PROGRAM_IN_UNITS = "/usr/bin/bkbox"
_PLACES = {
    "bkbox.service": _UNIT_FOLDER,
    "bkbox@.service": _UNIT_FOLDER,
    "sysusers.d/bkbox.conf": Path("/etc/sysusers.d"),
    "tmpfiles.d/bkbox.conf": Path("/etc/tmpfiles.d"),
}
_HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 not used
"""Paths that the units' sandbox hides from the service."""


_PACKAGED = tuple(map(Path, ("/usr/lib", "/lib")))
"""Folders of a package's own units: a copy in /etc would hide them, and upgrades would not change it."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file to install, and its state: new, changed, unchanged, or packaged and left alone."""

    path: Path
    text: str
    state: str


@dataclass(frozen=True, slots=True)
class FileView:
    """A file and its text; ``state``: new, changed, unchanged, or packaged and left alone."""

    path: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class InstallationReport:
    """The files that were installed, and the commands that were run for it; with ``dry_run``: would be."""

    files: tuple[FileView, ...]
    commands: tuple[str, ...]
    service: str
    dry_run: bool


@click.group(no_args_is_help=True)
def systemd() -> None:
    """Run bookies as services of this host.

    \b
    Example:
      bkbox systemd install --dry-run
    """


@systemd.command()
@click.option(
    "--config",
    "config_file",
    type=FILE,
    default=_CONFIG_FOLDER / "bkbox.toml",
    show_default=True,
    metavar="FILE",
    help="Configuration of the bookie: /etc/bkbox/NAME.toml for the service bkbox@NAME.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go where, and change nothing.")
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/"),
    metavar="DIR",
    help="Install below this folder, for an image; no program is run then.",
)
@output_option
@prints(InstallationReport)
@click.pass_context
def install(
    ctx: click.Context, config_file: Path, dry_run: bool, root: Path, output: Format
) -> None:
    """Install the units, the user bkbox and its folders, and let the service reach its disks.

    The service may write nothing but the folders that its configuration names; they go into a
    drop-in. So run it again when "disks", "journal", "metadata" or "run_dir" change. Where the
    configuration is not there yet: install, "bkbox init" as the user bkbox, install again.

    \b
    Example:
      bkbox systemd install --dry-run
      bkbox systemd install --config /etc/bkbox/second.toml
    """
    name, unit = _service_of(config_file)
    placed = _at(root, config_file)
    config = configuration.load(placed, {}) if placed.exists() else None
    files = list(_files_of(root, name, unit, config))
    commands = [] if root != Path("/") else _commands(files)
    if not dry_run:
        if root == Path("/") and os.geteuid() != 0:
            raise HostError(
                "the units go below /etc: run this as root, or look with --dry-run at what it would do"
            )
        for file in files:
            _write(file)
        for command in commands:
            _run(command)
    if output != "table":
        views = tuple(FileView(str(each.path), each.state, each.text) for each in files)
        print_document(asdict(InstallationReport(views, tuple(commands), unit, dry_run)), output)
    else:
        print_table(["file", "is"], [(file.path, file.state) for file in files])
    _advise(commands if dry_run else [], config, placed, unit)
    ctx.exit(ExitCode.OK)


def _service_of(config_file: Path) -> tuple[str, str]:
    """The name of a configuration, and of its service. Raises ConfigError."""
    name = config_file.stem
    if config_file.parent != _CONFIG_FOLDER or config_file.suffix != ".toml":
        raise ConfigError(
            [f"{config_file}: the services read {_CONFIG_FOLDER}/NAME.toml: put it there"]
        )
    if not all(character.isalnum() or character in "-_." for character in name):
        raise ConfigError([f"{config_file}: {quoted(name)} cannot be a part of a service's name"])
    return name, "bkbox.service" if name == "bkbox" else f"bkbox@{name}.service"


def _files_of(root: Path, name: str, unit: str, config: Config | None) -> Iterator[_File]:
    program = str(_program())
    for source, folder in _PLACES.items():
        text = (_UNITS / source).read_text().replace(_PROGRAM_IN_UNITS, program)
        below = folder.relative_to("/etc") / Path(source).name
        packaged = [path for each in _PACKAGED if (path := _at(root, each / below)).exists()]
        if packaged:
            yield _File(packaged[0], packaged[0].read_text(), "packaged")
        else:
            yield _file(_at(root, Path("/etc") / below), text)
    if config is not None:
        drop_in = _UNIT_FOLDER / f"{unit}.d" / "10-paths.conf"
        yield _file(_at(root, drop_in), _drop_in(name, config))


def _at(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _program() -> Path:
    """The command of this installation. Raises HostError if a service could not run it."""
    found = Path(sys.executable).parent / "bkbox"
    if not found.exists():
        raise HostError(
            f"{found} is not there: install bkbox (pipx, uv, a Debian package) instead of running it from its source"
        )
    real = {found, Path(os.path.realpath(found)), Path(os.path.realpath(sys.executable))}
    for path in sorted(real):
        if any(path.is_relative_to(folder) for folder in _HIDDEN):
            raise HostError(
                f"bkbox is installed in {path.parent}, which services do not see: install it elsewhere, for example "
                "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install WHEEL"
            )
    return found


def _drop_in(name: str, config: Config) -> str:
    """The drop-in with the folders that the service needs and may write."""
    disks = [*config.disks, *((config.journal,) if config.journal else ())]
    writable = [*disks, *((config.run_dir,) if config.run_dir else ())]
    store = metadata_uri.parse(config.metadata)
    if isinstance(store, SqliteUri):
        writable.append(store.path.parent)
    mounts = " ".join(_quoted(str(path)) for path in disks)
    # The bookie has to handle an absent disk; without the dash its service would not even start.
    paths = " ".join(_quoted(f"-{path}") for path in dict.fromkeys(writable))
    return (
        f"# Made by `bkbox systemd install` from {_CONFIG_FOLDER}/{name}.toml: make it again when paths there change.\n"
        f"[Unit]\nRequiresMountsFor={mounts}\n\n[Service]\nReadWritePaths={paths}\n"
    )


def _quoted(path: str) -> str:
    """Quotes a path for a unit file: specifiers and spaces lose their special meaning."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _file(path: Path, text: str) -> _File:
    try:
        state = "unchanged" if path.read_text() == text else "changed"
    except FileNotFoundError:
        state = "new"
    except (OSError, UnicodeDecodeError):
        state = "changed"
    return _File(path, text, state)


def _write(file: _File) -> None:
    if file.state in ("unchanged", "packaged"):
        return
    temporary = file.path.with_name(f".{file.path.name}.new")
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(file.text)
        temporary.chmod(0o644)
        temporary.replace(file.path)
    except OSError as error:
        raise HostError(f"cannot write {file.path}: {error.strerror}") from None


def _commands(files: list[_File]) -> list[str]:
    """Commands that activate the files."""
    named = {file.path.parent.name: file.path for file in files}
    return [
        f"systemd-sysusers {named['sysusers.d']}",
        f"systemd-tmpfiles --create {named['tmpfiles.d']}",
        "systemctl daemon-reload",
    ]


def _run(command: str) -> None:
    try:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    except OSError as error:
        raise HostError(f"{command}: {error.strerror}; the files are in place") from None
    if done.returncode != 0:
        reason = done.stderr.strip() or f"exit status {done.returncode}"
        raise HostError(f"{command}: {reason}; the files are in place")


def _advise(commands: list[str], config: Config | None, placed: Path, unit: str) -> None:
    for command in commands:
        message(f"would run: {command}")
    if config is None:
        message(
            f"{placed} is not there yet: make it as the user bkbox (`{plain_command('init', '--help')}` says how), "
            "then run this again"
        )
    else:
        message(f"start the bookie now and at each boot with: systemctl enable --now {unit}")
