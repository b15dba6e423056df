"""The access policy of client connections: TLS, authentication and roles as configured, with the secrets they need.

The supervisor reads the files and sends the policy, and sends it again whenever they change. Open connections keep
their TLS and get the roles that are valid now. A connection is closed if what admitted it has changed: the user's
secret, or the certificates that signed the client's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bkbox.security.roles import CERTIFICATE, SASL, TOKEN, Grants, Need

if TYPE_CHECKING:
    import ssl

    from bkbox.security.exchange import Examiner

_CERTIFICATES = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")

OFF, OFFERED, REQUIRED = "off", "offered", "required"


class AccessPolicy:
    """The access policy. ``tls``: OFF, OFFERED or REQUIRED. ``plugins``: the accepted authentication methods; empty
    where authentication is off."""

    def __init__(
        self,
        tls: str = OFF,
        context: ssl.SSLContext | None = None,
        plugins: frozenset[str] = frozenset(),
        users: Mapping[str, str] | None = None,
        grants: Grants | None = None,
        signers: frozenset[str] = frozenset(),
        *,
        every_client_is_signed: bool = False,
        vouches: bool = False,
    ) -> None:
        """``signers``: the certificates that sign client certificates. ``vouches``: the metadata store is queried
        before a client creates a ledger."""
        self.tls = tls
        self.context = context
        self.plugins = plugins
        self.grants = grants or Grants()
        self.every_client_is_signed = every_client_is_signed
        self.vouches = vouches
        self._users = users or {}
        self._signers = signers

    @classmethod
    def from_order(cls, payload: bytes) -> AccessPolicy:
        """Decodes the payload of messages.SetAccessPolicy. Raises BootError."""
        fields: dict[str, Any] = json.loads(payload)
        context = None
        if fields["tls"] != OFF:
            from bkbox.security.tls import server_context  # OpenSSL is loaded only where TLS is on

            context = server_context(
                fields["certificate"], fields["key"], fields["ca"], fields["client_certificates"]
            )
        grants = Grants(
            [(identity, Need(needs)) for identity, needs in fields["roles"]],
            [(identity, rate) for identity, rate in fields["rates"]],
            fields["users"],
        )
        return cls(
            fields["tls"],
            context,
            frozenset(fields["plugins"]),
            fields["users"],
            grants,
            frozenset(_CERTIFICATES.findall(fields["ca"] or "")),
            every_client_is_signed=fields["tls"] != OFF
            and fields["client_certificates"] == "required",
            vouches=fields.get("vouches", False),
        )

    @property
    def is_open(self) -> bool:
        """True if clients need neither TLS nor authentication."""
        return self.tls == OFF and not self.plugins

    def examiner(self, plugin: str) -> Examiner | None:
        """The bookie's side of a new authentication exchange, by the plugin's name on the wire; None if it is not
        offered."""
        from bkbox.security import digest_md5, tokens

        if plugin == digest_md5.PLUGIN and SASL in self.plugins:
            return digest_md5.Server(self._users, os.urandom(16).hex())
        if plugin == tokens.PLUGIN and TOKEN in self.plugins:
            return tokens.Server(self._users, os.urandom(16).hex())
        return None

    def still_admits(self, plugin: str, name: str, before: AccessPolicy) -> bool:
        """True if a client that was admitted under the policy ``before``, by this plugin and under this name, would be
        admitted now with the credentials it showed then."""
        if plugin not in self.plugins:
            return False
        if plugin == CERTIFICATE:
            return self.trusts_signers_of(before)
        secret, secret_before = self._users.get(name), before._users.get(name)
        return secret is not None and secret == secret_before

    def trusts_signers_of(self, before: AccessPolicy) -> bool:
        """True if every certificate that the policy ``before`` trusted is still trusted."""
        return before._signers <= self._signers
