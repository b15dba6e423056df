"""Options that several commands share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from bkbox.base.commandline import set_origin
from bkbox.base.host.small_files import read_small
from bkbox.base.ids import LedgerId, ledger_id
from bkbox.base.text import quoted, rate_of
from bkbox.config import find, metadata_uri
from bkbox.config import load as configuration
from bkbox.config.schema import Config
from bkbox.errors import InvalidIdError
from bkbox.wire.metadata.ledger import DigestType

URL_VARIABLE = "BKBOX_BOOKIE"
PASSWORD_VARIABLE = "BKBOX_LEDGER_PASSWORD"  # noqa: S105 - a name, not a password
FILE = click.Path(dir_okay=False, path_type=Path)

F = TypeVar("F", bound=Callable[..., Any])


def bytes_per_second(text: str) -> int:
    """Parses a rate (rate_of): 20MB/s, 20MiB/s; 0 for no limit."""
    try:
        return rate_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_DURATION = re.compile(r"(\d+)([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def duration_s(text: str) -> int:
    """Parses a duration into seconds: 90s, 10m, 2h."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{quoted(text)} is not a time: write it as 90s, 10m or 2h")
    return int(found[1]) * _SECONDS[found[2]]


def ledger_argument(command: F) -> F:
    """The argument LEDGER, an id, passed to the command as ``ledger_id``."""
    return click.argument("ledger_id", metavar="LEDGER", type=_parse_ledger)(command)


def optional_ledger_argument(command: F) -> F:
    """The same for commands that can select ledgers in another way; None: not given."""
    return click.argument("ledger_id", metavar="[LEDGER]", required=False, type=_parse_ledger)(
        command
    )


def ledgers_argument(command: F) -> F:
    """Any number of ids, passed to the command as ``ledgers``."""
    return click.argument("ledgers", metavar="[LEDGER]...", nargs=-1, type=_parse_ledger)(command)


def configuration_file(named: Path | None) -> Path:
    """The path of ``--config``, else of BKBOX_CONFIG, else the default path (bkbox/config/find.py). Raises ConfigError
    where there is none.

    Commands that are suggested from now on are about that bookie.
    """
    path = find.found(os.environ) if named is None else named
    is_found = find.leads_to(path, os.environ) and not os.environ.get(URL_VARIABLE)
    set_origin(config=os.path.abspath(path), is_found=is_found)
    return path


def configuration_of(named: Path | None) -> Config:
    """The configuration of the same file. Raises ConfigError."""
    return configuration.load(configuration_file(named), os.environ)


def config_choice(about: str) -> Callable[[F], F]:
    """``--config FILE``, passed to the command as ``config_file``: None where it is not given."""
    return click.option("--config", "config_file", type=FILE, metavar="FILE", help=about)


def config_file_option(command: F) -> F:
    """``--config FILE``, passed to the command as ``config_file``: the path that was given or found."""

    @functools.wraps(command)
    def find_first(*args: Any, config_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, config_file=configuration_file(config_file), **kwargs)

    help_text = (
        f"Configuration of the bookie [default: {find.VARIABLE}, or {find.FOLDER / find.NAME}]."
    )
    return config_choice(help_text)(find_first)  # type: ignore[return-value]


def config_option(command: F) -> F:
    """``--config FILE``, passed to the command as ``config``, the loaded configuration."""

    @functools.wraps(command)
    def load_first(*args: Any, config_file: Path, **kwargs: Any) -> Any:
        return command(*args, config=configuration.load(config_file, os.environ), **kwargs)

    return config_file_option(load_first)  # type: ignore[return-value]


def metadata_option(command: F) -> F:
    """``--metadata URI`` or ``--config FILE``, passed to the command as ``metadata``, the URI. Without both it is
    that of the configuration that is found."""

    @functools.wraps(command)
    def choose(*args: Any, metadata: str | None, config_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, metadata=metadata_of(metadata, config_file), **kwargs)

    with_config = config_choice(
        f"Take the metadata store from a bookie's configuration [default: {find.VARIABLE}, or "
        f"{find.FOLDER / find.NAME}]."
    )(choose)
    return metadata_choice(f"Metadata store of the cluster: {metadata_uri.FORMS}.")(with_config)  # type: ignore[return-value]


def metadata_choice(about: str) -> Callable[[F], F]:
    """``--metadata URI``, passed to the command as ``metadata``: None where it is not given."""
    return click.option("--metadata", metavar="URI", help=about)


def metadata_of(metadata: str | None, config_file: Path | None) -> str:
    """The URI that was given, or that of the configuration. Raises click.UsageError for both, ConfigError."""
    if metadata is None:
        return configuration_of(config_file).metadata
    if config_file is not None:
        raise click.UsageError("give either --metadata or --config")
    set_origin(metadata=metadata)
    return metadata


def password_option(command: F) -> F:
    """``--password-file FILE`` or the environment, passed as ``password``: bytes, or None."""

    @functools.wraps(command)
    def read_first(*args: Any, password_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, password=_password(password_file), **kwargs)

    return click.option(
        "--password-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help=f"File with the ledger's password (else: environment variable {PASSWORD_VARIABLE}).",
    )(read_first)  # type: ignore[return-value]


class NewLedger(NamedTuple):
    """Quorums and properties of a ledger to be created; None: the default."""

    ensemble: int
    write_quorum: int | None
    ack_quorum: int | None
    digest: DigestType
    ack_after: str | None


def quorum_options(command: Any) -> Any:
    """``-e``, ``-w``, ``-a``, ``--digest`` and ``--ack-after``, passed to the command as ``new``, a NewLedger."""

    @functools.wraps(command)
    def with_new(
        *args: Any,
        ensemble: int,
        write_quorum: int | None,
        ack_quorum: int | None,
        digest: str,
        ack_after: str | None,
        **kwargs: Any,
    ) -> Any:
        digest_type = DigestType[digest.upper()]
        new = NewLedger(ensemble, write_quorum, ack_quorum, digest_type, ack_after)
        return command(*args, new=new, **kwargs)

    decorated = with_new
    for option in (
        click.option(
            "--ack-after",
            type=click.Choice(["sync"]),
            help="Have every bookie sync an entry before it acknowledges it, whatever its own setting.",
        ),
        click.option(
            "--digest",
            type=click.Choice([kind.name for kind in DigestType], case_sensitive=False),
            default="CRC32C",
            show_default=True,
            help="How entries are protected.",
        ),
        click.option(
            "-a", "--ack-quorum", type=int, help="Answers before an entry counts [default: w//2+1]."
        ),
        click.option(
            "-w", "--write-quorum", type=int, help="Copies of each entry [default: ensemble]."
        ),
        click.option(
            "-e",
            "--ensemble",
            type=int,
            default=3,
            show_default=True,
            help="Bookies that the ledger is spread over.",
        ),
    ):
        decorated = option(decorated)
    return decorated


def dry_run_option(command: F) -> F:
    """``--dry-run``, passed as ``dry_run``: change nothing."""
    return click.option(
        "--dry-run", is_flag=True, help="Say what would be done, and change nothing."
    )(command)


def yes_option(command: F) -> F:
    """``--yes``, passed as ``yes``: skip the confirmation."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Asks for confirmation on standard error; ends the command with exit code 1 unless the answer is yes."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def _parse_ledger(text: str) -> LedgerId:
    try:
        return ledger_id(text)
    except InvalidIdError as error:
        raise click.BadParameter(str(error)) from None


def _password(file: Path | None) -> bytes | None:
    if file is not None:
        return read_small(file).removesuffix(b"\n")
    text = os.environ.get(PASSWORD_VARIABLE)
    return None if text is None else text.encode()
