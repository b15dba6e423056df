"""Access to a bookie's admin API: identifies callers and decides what they may request.

- Over the unix socket: root, and the user that runs the bookie. The kernel identifies the caller (SO_PEERCRED).
- Over TCP: callers with a token, in each request as ``Authorization: Bearer TOKEN``. One token permits everything;
  another, if configured, permits reads only. Tokens are compared in constant time.
- Never on behalf of a web page. A request that a browser sends for one (Origin, Sec-Fetch-Site) is refused, and so is a
  request over TCP whose Host header names another host, as after DNS rebinding (a name made to point to this host).
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from bkbox.api.admin.problems import HttpRefusedError
from bkbox.api.admin.socket_path import CREDENTIALS
from bkbox.base.text import quoted
from bkbox.config.values import split_address
from bkbox.errors import AccessDeniedError, BootError
from bkbox.security.secret_files import read_secret

_TOKEN_BYTES_MIN = 16
_TOKEN_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, as a label for the log, and its permission to change things."""

    name: str
    may_change: bool


class Access(Protocol):
    """Access control of one listener. ``credentials``: what callers are authenticated with; an event stream ends when
    they change."""

    @property
    def credentials(self) -> object: ...

    def caller(self, sock: socket.socket, headers: Mapping[str, str]) -> Caller:
        """Identifies the caller. ``headers``: by name in lower case. Raises HttpRefusedError for a caller without any
        permission."""


class OwnerOnly:
    """Access over the unix socket."""

    credentials: object = None

    def caller(self, sock: socket.socket, headers: Mapping[str, str]) -> Caller:
        refuse_browsers(headers)
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, _gid = CREDENTIALS.unpack(raw)
        if uid not in (0, os.geteuid()):
            raise HttpRefusedError(
                HTTPStatus.FORBIDDEN,
                f"user {uid} may not ask this bookie: run this as the user that runs it, {os.geteuid()}",
                AccessDeniedError,
            )
        return Caller(f"user {uid} (process {pid})", may_change=True)


@dataclass(frozen=True, slots=True)
class WithToken:
    """Access over TCP. ``hosts``: names of this host, in addition to all addresses. ``read_token``: None if there is
    none."""

    token: bytes
    read_token: bytes | None
    hosts: frozenset[str]

    @property
    def credentials(self) -> object:
        return self.token, self.read_token

    def caller(self, sock: socket.socket, headers: Mapping[str, str]) -> Caller:
        refuse_browsers(headers)
        self._refuse_other_hosts(headers.get("host", ""))
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise HttpRefusedError(
                HTTPStatus.UNAUTHORIZED,
                "this needs a token: send it as 'Authorization: Bearer TOKEN'; it is in the bookie's http_token_file",
                AccessDeniedError,
            )
        found = given.strip().encode("utf-8", "surrogateescape")
        peer = sock.getpeername()
        name = f"{peer[0]}:{peer[1]}"
        may_change = hmac.compare_digest(found, self.token)
        may_read = self.read_token is not None and hmac.compare_digest(found, self.read_token)
        if may_change or may_read:
            return Caller(name, may_change=may_change)
        raise HttpRefusedError(
            HTTPStatus.UNAUTHORIZED, "the token is not the one of this bookie", AccessDeniedError
        )

    def _refuse_other_hosts(self, host: str) -> None:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name.strip("[]").lower() in self.hosts or _is_address(name.strip("[]")):
            return
        raise HttpRefusedError(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"this host is not called {quoted(name[:80])}: use its address, or the name in the bookie's http_listen or "
            "advertised_host",
            AccessDeniedError,
        )


def with_tokens(
    listen: str, advertised_host: str, token_file: Path, read_token_file: Path | None
) -> WithToken:
    """The access control of the TCP port. Raises BootError for a token file that cannot be used."""
    address = split_address(listen)
    names = {advertised_host, socket.gethostname(), "localhost", address[0] if address else ""}
    return WithToken(
        read_token(token_file),
        None if read_token_file is None else read_token(read_token_file),
        frozenset(name.lower() for name in names if name),
    )


def refuse_browsers(headers: Mapping[str, str]) -> None:
    """Raises HttpRefusedError for a request that a browser sends for a web page."""
    for name in ("Origin", "Sec-Fetch-Site"):
        if name.lower() in headers:
            raise HttpRefusedError(
                HTTPStatus.FORBIDDEN,
                f"requests of web pages are refused (this one has the header {name})",
                AccessDeniedError,
            )


def read_token(path: Path) -> bytes:
    """The token in a file. Raises BootError, also for a file that other users can read: the token may have leaked."""
    token = read_secret(path, "the token file").strip()
    if not _TOKEN_BYTES_MIN <= len(token) <= _TOKEN_BYTES_MAX or not _is_printable(token):
        raise BootError(
            f"the token file {path} has to hold one word of {_TOKEN_BYTES_MIN} to {_TOKEN_BYTES_MAX} printable ASCII "
            f"characters: openssl rand -hex 32 makes one"
        )
    return token


def _is_printable(token: bytes) -> bool:
    return all(0x21 <= byte <= 0x7E for byte in token)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
