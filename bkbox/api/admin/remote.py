"""The admin API of a bookie on another host, or of another user: its address and the token for it.

A token is sent over TLS, and only to a server with the right certificate. It is sent in the clear only to this host, or
if the operator asks for that. There is no fallback from https to plain HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bkbox.base.text import quoted
from bkbox.config.values import is_loopback, join_address
from bkbox.errors import OperatorError

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Remote:
    """Address and credentials of a bookie. ``token``: the content of its http_token_file or http_read_token_file, ""
    for none; left out of the repr. ``tls``: None for plain HTTP."""

    host: str
    port: int
    token: str = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{join_address(self.host, self.port)}"


def remote(url: str, token_file: Path | None, *, plain_text: bool = False) -> Remote:
    """A Remote from an operator's options; without ``token_file`` no token is sent, as to Apache's bookies;
    ``plain_text``: permits plain HTTP with a token to other hosts. TLS is configured as for
    the clients of this process (tls_ca_file and the rest of client/options.py). Raises OperatorError, also for a token
    file that other users can read, and ConfigError."""
    from bkbox.api.admin.access import read_token  # few commands need it

    problem = OperatorError(
        f"{quoted(url)} is not the address of a bookie's admin API: it is https://HOST:PORT, or http://HOST:PORT "
        "without TLS, as in http_listen of its configuration"
    )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise problem from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise problem
    if parts.username or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise problem
    in_the_clear = parts.scheme == "http" and token_file is not None
    if in_the_clear and not plain_text and not is_loopback(parts.hostname):
        raise OperatorError(
            f"{url} would send the token in the clear over the network: use https://, which needs "
            'http_tls = "required" in that bookie\'s configuration, or say --plain-text'
        )
    tls = _context() if parts.scheme == "https" else None
    token = "" if token_file is None else read_token(token_file).decode()
    return Remote(parts.hostname, port, token, tls)


def _context() -> ssl.SSLContext:
    # Commands that only talk to bookies of this host need no client.
    from bkbox.client.connection.handshake import tls_context
    from bkbox.client.options import ClientOptions

    return tls_context(ClientOptions())
