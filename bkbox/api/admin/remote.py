"""The admin API of a bookie on another host, or of another user: its address and the token for it.

A token is sent over TLS only, to who shows the right certificate; in the clear to this host, or where the operator says
so. There is no way back from https: who speaks no TLS there is not spoken to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bkbox.base.words import quoted
from bkbox.config.values import is_loopback, join_address
from bkbox.errors import OperatorError

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class Remote:
    """``token``: what is in the bookie's http_token_file, or in its http_read_token_file. Shown without it. ``tls``:
    None for plain HTTP."""

    host: str
    port: int
    token: str = field(repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{join_address(self.host, self.port)}"


def remote(url: str, token_file: Path, *, plain_text: bool = False) -> Remote:
    """From what an operator gives; ``plain_text``: over plain HTTP also to other hosts. TLS is as the clients of this
    process do it (tls_ca_file and the rest of client/options.py). Raises OperatorError, also for a token file that
    others may read, and ConfigError."""
    from bkbox.api.admin.access import read_token  # hardly any command needs it

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
    if parts.scheme == "http" and not plain_text and not is_loopback(parts.hostname):
        raise OperatorError(
            f"{url} would send the token in the clear over the network: use https://, which needs "
            'http_tls = "required" in that bookie\'s configuration, or say --plain-text'
        )
    tls = _context() if parts.scheme == "https" else None
    return Remote(parts.hostname, port, read_token(token_file).decode(), tls)


def _context() -> ssl.SSLContext:
    # Who asks bookies of this host alone needs no client.
    from bkbox.client.connection.handshake import tls_context
    from bkbox.client.options import ClientOptions

    return tls_context(ClientOptions())
