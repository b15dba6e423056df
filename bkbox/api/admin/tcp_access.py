"""The TCP port of the admin API as the configuration wants it: who may come in, with which TLS, how often.

Made again whenever a file that it was made of has changed (supervisor/access_policy.py), so that a new certificate or
token needs no restart; connections keep their TLS, requests are judged by the tokens that hold now.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from socket import socket
from typing import TYPE_CHECKING

from bkbox.api.admin.access import Caller, WithToken, with_tokens
from bkbox.api.admin.problems import HttpRefusedError
from bkbox.base.token_bucket import TokenBucket
from bkbox.config.schema import Config
from bkbox.errors import AccessDeniedError, BootError
from bkbox.security.secret_files import read_secret, read_text

if TYPE_CHECKING:
    import ssl

REQUESTS_PER_SECOND = 200
"""Of all who have a token together: far more than screens, probes and scrapes ask. Who has none is refused one request
a connection, and connections come so many a second (server.py)."""


@dataclass(frozen=True, slots=True)
class TcpAccess:
    """``context``: None where TLS is not wanted."""

    access: WithToken
    context: ssl.SSLContext | None
    rate: TokenBucket

    @property
    def credentials(self) -> object:
        return self.access.credentials

    def caller(self, sock: socket, headers: Mapping[str, str]) -> Caller:
        """Who it is. Raises HttpRefusedError for somebody who may not ask, or not now."""
        found = self.access.caller(sock, headers)
        if not self.rate.take(time.monotonic()):
            raise HttpRefusedError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"more than {REQUESTS_PER_SECOND} requests a second: ask again later",
                AccessDeniedError,
            )
        return found


def door_of(config: Config) -> TcpAccess:
    """Of a configuration with ``http_listen``. Raises BootError for files that cannot be used."""
    assert config.http_token_file is not None
    access = with_tokens(
        config.http_listen,
        config.advertised_host,
        config.http_token_file,
        config.http_read_token_file,
    )
    return TcpAccess(access, _context(config), TokenBucket(REQUESTS_PER_SECOND, is_full=True))


def _context(config: Config) -> ssl.SSLContext | None:
    if config.http_tls != "required":
        return None
    certificate, key, ca = config.tls_certificate_file, config.tls_key_file, config.tls_ca_file
    if certificate is None or key is None:
        raise BootError('http_tls = "required" needs tls_certificate_file and tls_key_file')
    from bkbox.security.tls import server_context  # OpenSSL is loaded by who needs it

    return server_context(
        read_text(certificate, "tls_certificate_file"),
        read_secret(key, "tls_key_file").decode("latin-1"),
        None if ca is None else read_text(ca, "tls_ca_file"),
        config.tls_client_certificates,
    )
