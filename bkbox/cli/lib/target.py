"""Selects the bookie that a command talks to: one of this host, by its configuration, or any, by its admin API's
address."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from bkbox.api.admin.client import Address
from bkbox.api.admin.remote import Remote, remote
from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.cli.lib.options import FILE, URL_VARIABLE, config_choice, configuration_of
from bkbox.config import find
from bkbox.config.schema import Config

TOKEN_FILE_VARIABLE = "BKBOX_TOKEN_FILE"  # noqa: S105 - a name, not a token

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """The selected bookie. ``config``: None for a bookie reached over TCP."""

    address: Address
    config: Config | None


def target_option(command: F) -> F:
    """``--config FILE``, or ``--bookie URL`` and ``--token-file FILE``, passed to the command as ``target``. The
    variables BKBOX_BOOKIE and BKBOX_TOKEN_FILE are the defaults of the last two if --config is not given."""

    @functools.wraps(command)
    def choose(
        *args: Any,
        config_file: Path | None,
        url: str | None,
        token_file: Path | None,
        plain_text: bool,
        **kwargs: Any,
    ) -> Any:
        found = target_of(config_file, url, token_file, plain_text=plain_text)
        return command(*args, target=found, **kwargs)

    about = f"Configuration of the bookie [default: {find.VARIABLE}, or {find.FOLDER / find.NAME}]."
    return config_choice(about)(remote_options(choose))  # type: ignore[return-value]


def remote_options(command: F) -> F:
    """``--bookie``, ``--token-file`` and ``--plain-text``, passed as ``url``, ``token_file`` and ``plain_text``."""
    for option in (
        click.option(
            "--plain-text", is_flag=True, help="Send the token in the clear to another host."
        ),
        click.option(
            "--token-file",
            type=FILE,
            envvar=TOKEN_FILE_VARIABLE,
            metavar="FILE",
            help=f"Token of that bookie; its mode has to be 0600 (else: {TOKEN_FILE_VARIABLE}).",
        ),
        click.option(
            "--bookie",
            "url",
            envvar=URL_VARIABLE,
            metavar="URL",
            help=f"A bookie on any host: https://HOST:PORT, its http_listen (else: {URL_VARIABLE}).",
        ),
    ):
        command = option(command)
    return command


def target_of(
    config_file: Path | None, url: str | None, token_file: Path | None, *, plain_text: bool
) -> Target:
    """The bookie of the options; else of BKBOX_BOOKIE; else of the configuration that is found. Raises
    click.UsageError, ConfigError, OperatorError."""
    if config_file is not None and (is_given("url") or is_given("token_file")):
        raise click.UsageError("give either --config or --bookie with --token-file")
    if url is None or config_file is not None:
        config = configuration_of(config_file)
        return Target(admin_socket_path(config), config)
    return Target(remote_of(url, token_file, plain_text=plain_text), None)


def remote_of(url: str, token_file: Path | None, *, plain_text: bool) -> Remote:
    """Raises click.UsageError, OperatorError, ConfigError."""
    if token_file is None:
        raise click.UsageError("--bookie needs --token-file: the token of that bookie")
    return remote(url, token_file, plain_text=plain_text)


def is_given(name: str) -> bool:
    """True if an option was given on the command line, and not by the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE
