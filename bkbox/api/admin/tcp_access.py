"""Access over the admin API's TCP port, from the configuration: callers, TLS and rate limit.

It is rebuilt whenever one of its files changes (supervisor/access_policy.py), so a new certificate or token needs no
restart. Open connections keep their TLS session; each request is checked against the tokens in force now.
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
"""Rate limit of all callers with a token together: far above what screens, probes and scrapers need. A caller without
one is refused one request per connection, and connections are accepted at a bounded rate (server.py)."""


@dataclass(frozen=True, slots=True)
class TcpAccess:
    """Access and TLS of the TCP port. ``context``: None without TLS."""

    access: WithToken
    context: ssl.SSLContext | None
    rate: TokenBucket

    @property
    def credentials(self) -> object:
        return self.access.credentials

    def caller(self, sock: socket, headers: Mapping[str, str]) -> Caller:
        """Identifies the caller. Raises HttpRefusedError for a caller without permission, or over the rate limit."""
        found = self.access.caller(sock, headers)
        if not self.rate.try_acquire(time.monotonic()):
            raise HttpRefusedError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"more than {REQUESTS_PER_SECOND} requests a second: ask again later",
                AccessDeniedError,
            )
        return found


def tcp_access_of(config: Config) -> TcpAccess:
    """The access of a configuration with ``http_listen``. Raises BootError for files that cannot be used."""
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
    from bkbox.security.tls import server_context  # OpenSSL is loaded only if needed

    return server_context(
        read_text(certificate, "tls_certificate_file"),
        read_secret(key, "tls_key_file").decode("latin-1"),
        None if ca is None else read_text(ca, "tls_ca_file"),
        config.tls_client_certificates,
    )
