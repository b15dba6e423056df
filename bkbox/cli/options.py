"""Options that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bkbox import config as configuration
from bkbox import metadatauri
from bkbox.errors import InvalidIdError
from bkbox.ids import LedgerId, ledger_id

PASSWORD_VARIABLE = "BKBOX_LEDGER_PASSWORD"  # noqa: S105 - a name, not a password
FILE = click.Path(dir_okay=False, path_type=Path)

F = TypeVar("F", bound=Callable[..., Any])


def ledger_argument(command: F) -> F:
    """The argument LEDGER, an id, passed to the command as ``ledger_id``."""
    return click.argument("ledger_id", metavar="LEDGER", type=_parse_ledger)(command)


def config_option(command: F) -> F:
    """``--config FILE``, passed to the command as the ``config`` that it holds."""

    @functools.wraps(command)
    def load_first(*args: Any, config_file: Path, **kwargs: Any) -> Any:
        return command(*args, config=configuration.load(config_file, os.environ), **kwargs)

    return click.option(
        "--config",
        "config_file",
        type=FILE,
        required=True,
        metavar="FILE",
        help="Configuration of the bookie.",
    )(load_first)  # type: ignore[return-value]


def metadata_option(command: F) -> F:
    """``--metadata URI`` or ``--config FILE``, passed to the command as ``metadata``, the URI."""

    @functools.wraps(command)
    def choose(*args: Any, metadata: str | None, config_file: Path | None, **kwargs: Any) -> Any:
        if (metadata is None) == (config_file is None):
            raise click.UsageError("give either --metadata or --config")
        if config_file is not None:
            metadata = configuration.load(config_file, os.environ).metadata
        return command(*args, metadata=metadata, **kwargs)

    with_config = click.option(
        "--config",
        "config_file",
        type=FILE,
        metavar="FILE",
        help="Take the metadata store from a bookie's configuration.",
    )(choose)
    return click.option(
        "--metadata",
        metavar="URI",
        help=f"Metadata store of the cluster: {metadatauri.FORMS}.",
    )(with_config)  # type: ignore[return-value]


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


def yes_option(command: F) -> F:
    """``--yes``, passed as ``yes``: do it without asking."""
    return click.option("--yes", is_flag=True, help="Do not ask.")(command)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on standard error; ends the command with exit code 1 unless the answer is yes."""
    if not yes:
        click.confirm(question, abort=True, err=True)


def _parse_ledger(text: str) -> LedgerId:
    try:
        return ledger_id(text)
    except InvalidIdError as error:
        raise click.BadParameter(str(error)) from None


def _password(file: Path | None) -> bytes | None:
    if file is not None:
        return file.read_bytes().removesuffix(b"\n")
    text = os.environ.get(PASSWORD_VARIABLE)
    return None if text is None else text.encode()
