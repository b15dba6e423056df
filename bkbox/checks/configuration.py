"""The checks of a configuration file: its values, what it names, and the addresses that a start takes."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from bkbox.api.admin.socket_path import admin_socket_path
from bkbox.base.commandline import bookie_command
from bkbox.base.text import error_text
from bkbox.checks.registry import CONFIGURATION, LEFTOVERS, PORT, Finding
from bkbox.config import load as configuration
from bkbox.config.schema import Config
from bkbox.errors import BootError
from bkbox.supervisor.boot import trial
from bkbox.supervisor.boot.other_writers import other_writers
from bkbox.supervisor.boot.startup_resources import bind

_CONNECT_S = 3.0
_CHECKED_ELSEWHERE = frozenset({"disks", "journal", "listen", "metadata"})


def values(path: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Checks that the file can be loaded."""
    for each in configuration.validate(path, environ):
        yield CONFIGURATION.fail(each.text, each.place)


def extras(config: Config) -> Iterator[Finding]:
    """Checks that no other user can write the file, and that the libraries that it needs are installed."""
    others = other_writers(config, _user_of(config))
    for each in others:
        why, command = each.rsplit(": ", 1)
        yield CONFIGURATION.fail(why, str(config.path), command)
    if not others:
        yield CONFIGURATION.ok("no problems", str(config.path))
    if config.announce and importlib.util.find_spec("zeroconf") is None:
        yield CONFIGURATION.warn(
            "announce is on and the library zeroconf is not installed: this bookie is not announced",
            "announce",
            "pip install 'bkbox[discovery]'",
        )


def _user_of(config: Config) -> int:
    """The user that runs the bookie: the owner of its disks."""
    for folder in config.disks:
        with suppress(OSError):
            return folder.stat().st_uid
    return os.geteuid()


def openable(config: Config, *, running: bool) -> Iterator[Finding]:
    """Checks the other files that a start opens: certificates, secrets, scripts, the address of the admin API."""
    found = [
        each
        for each in trial.failures(config, config.values() if running else {})
        if each.key not in _CHECKED_ELSEWHERE
    ]
    for key, text in found:
        yield CONFIGURATION.fail(text, key)
    if not found:
        yield CONFIGURATION.ok("all that it names can be opened", "files")


def port(config: Config, listen: str | None, *, running: bool) -> Iterator[Finding]:
    """Checks that clients reach the port, or, while no bookie runs, that it is free; and whether the name that
    clients are told can be resolved. ``listen``: the address of a bookie that serves."""
    if not running:
        try:
            bind(config).close()
        except BootError as error:
            command = f"ss -ltnp 'sport = :{config.listen_port}'"
            yield PORT.fail(str(error), config.listen, command)
        else:
            yield PORT.ok("free", config.listen)
    elif listen is not None:
        yield _reached(listen)
    host = config.advertised_host
    try:
        socket.getaddrinfo(host, config.listen_port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield PORT.warn(
            f"clients are told this name (`advertised_host`), which cannot be resolved here: {error.strerror or error}",
            host,
            str(bookie_command("config", "explain", "advertised_host")),
        )


def _reached(listen: str) -> Finding:
    host, _, number = listen.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it listens on
    try:
        socket.create_connection((host.strip("[]"), int(number)), _CONNECT_S).close()
    except OSError as error:
        return PORT.fail(
            f"nothing answers there, though the bookie runs: {error_text(error)}; look for a rule of the firewall",
            listen,
            "nft list ruleset",
        )
    return PORT.ok("it answers", listen)


def admin_socket(config: Config) -> Iterator[Finding]:
    """A socket file on which nothing listens: left behind by a kill. Only while no bookie answers."""
    path = admin_socket_path(config)
    if path.is_socket():
        text = "left behind by a bookie that was killed; the next start replaces it"
        yield LEFTOVERS.warn(text, str(path), command="")
