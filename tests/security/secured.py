"""A front-end with TLS and authentication, in this process, and a raw client that goes through both by hand."""

from __future__ import annotations

import json
import ssl
from typing import Any

from bkbox.ipc.messages.frontend import SetAccessPolicy
from bkbox.security import digest_md5, tokens
from bkbox.security.exchange import Applicant
from bkbox.security.roles import parse_rate, parse_role
from tests.harness.raw3 import AUTH, EOK, START_TLS, RawClient3
from tests.security.certificates import Authority, Pair

USERS = {"bookkeeper": "a long secret", "reader": "another secret", "copier": "the third secret"}
CLIENT_NONCE = "c" * 32


def order(
    authority: Authority | None = None,
    pair: Pair | None = None,
    *,
    tls: str = "off",
    clients: str = "none",
    plugins: tuple[str, ...] = (),
    users: dict[str, str] | None = None,
    roles: tuple[str, ...] = (),
    rates: tuple[str, ...] = (),
) -> SetAccessPolicy:
    """What the supervisor would send."""
    said = {
        "tls": tls,
        "certificate": pair.certificate.read_text() if pair else "",
        "key": pair.key.read_text() if pair else "",
        "ca": authority.file.read_text() if authority else None,
        "client_certificates": clients,
        "plugins": list(plugins),
        "users": USERS if users is None else users,
        "roles": [(identity, need.value) for identity, need in map(parse_role, roles)],
        "rates": list(map(parse_rate, rates)),
    }
    return SetAccessPolicy(payload=json.dumps(said).encode())


def client_tls(
    authority: Authority, pair: Pair | None = None, *, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    if version is not None:
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = version
    return context


def auth_part(plugin: str, payload: bytes) -> list[Any]:
    return [(1, plugin.encode()), (2, payload)]


class Visitor(RawClient3):
    """A raw client of version 3 that can do what comes before the first request, step by step."""

    def begin_tls(self, context: ssl.SSLContext, host: str = "127.0.0.1") -> None:
        assert not self._buffer
        self.sock = context.wrap_socket(self.sock, server_hostname=host)

    def start_tls(self, context: ssl.SSLContext, host: str = "127.0.0.1") -> None:
        assert self.ask(START_TLS, []).status == EOK
        self.begin_tls(context, host)

    def auth(self, plugin: str, payload: bytes) -> tuple[int, str, bytes]:
        """Status, plugin and payload of the answer."""
        answer = self.ask(AUTH, auth_part(plugin, payload))
        part = answer.part or {}
        name, said = part.get(1, b""), part.get(2, b"")
        assert isinstance(name, bytes)
        assert isinstance(said, bytes)
        return answer.status, name.decode(), said

    def log_in(self, applicant: Applicant) -> int:
        """The last status."""
        payload: bytes | None = applicant.begin()
        while payload is not None:
            status, plugin, said = self.auth(applicant.plugin, payload)
            if status != EOK:
                return status
            assert plugin == applicant.plugin
            payload = applicant.step(said)
        return EOK

    def log_in_with_token(self, user: str = "bookkeeper", token: str | None = None) -> int:
        return self.log_in(tokens.Client(user, token or USERS[user], CLIENT_NONCE))

    def log_in_with_sasl(self, user: str = "bookkeeper", password: str | None = None) -> int:
        return self.log_in(digest_md5.Client(user, password or USERS[user], CLIENT_NONCE))

    def is_closed(self) -> bool:
        """Whether the bookie has closed the connection, or does so in a moment."""
        self.sock.settimeout(60)
        try:
            while self.sock.recv(1 << 16):
                pass
        except (ConnectionError, ssl.SSLError):
            return True
        except TimeoutError:
            return False
        return True
