"""Who is let in: what the configuration says of TLS, of authentication and of roles, with the secrets it leads to.

Comes from the supervisor, which reads the files, and again whenever they change; connections that are there keep their
TLS, and get the roles that hold now.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bkbox.security.roles import Grants, Need

if TYPE_CHECKING:
    import ssl

    from bkbox.security.exchange import Examiner

CERTIFICATE = "certificate"
SASL = "sasl"
TOKEN = "token"  # noqa: S105 a name

OFF, OFFERED, REQUIRED = "off", "offered", "required"


class Admittance:
    """``tls``: OFF, OFFERED or REQUIRED; ``plugins``: ways to prove who one is, none where nobody has to."""

    def __init__(
        self,
        tls: str = OFF,
        context: ssl.SSLContext | None = None,
        plugins: frozenset[str] = frozenset(),
        users: Mapping[str, str] | None = None,
        grants: Grants | None = None,
    ) -> None:
        self.tls = tls
        self.context = context
        self.plugins = plugins
        self.grants = grants or Grants()
        self._users = users or {}

    @classmethod
    def from_order(cls, payload: bytes) -> Admittance:
        """From that of messages.Admit. Raises BootError."""
        said: dict[str, Any] = json.loads(payload)
        context = None
        if said["tls"] != OFF:
            from bkbox.security.tls import server_context  # OpenSSL is loaded by who needs it

            context = server_context(
                said["certificate"], said["key"], said["ca"], said["client_certificates"]
            )
        grants = Grants(
            [(identity, Need(needs)) for identity, needs in said["roles"]],
            [(identity, rate) for identity, rate in said["rates"]],
        )
        return cls(said["tls"], context, frozenset(said["plugins"]), said["users"], grants)

    @property
    def is_open(self) -> bool:
        """Whether everybody may come in as they are."""
        return self.tls == OFF and not self.plugins

    def examiner(self, plugin: str) -> Examiner | None:
        """The bookie's side of a new exchange, by the plugin's name on the wire; None where it is not offered."""
        from bkbox.security import digestmd5, tokens

        if plugin == digestmd5.PLUGIN and SASL in self.plugins:
            return digestmd5.Server(self._users, secrets.token_hex(16))
        if plugin == tokens.PLUGIN and TOKEN in self.plugins:
            return tokens.Server(self._users, secrets.token_hex(16))
        return None

    def still_knows(self, identity: str, plugin: str) -> bool:
        """Whether somebody who came in by this plugin could do so now."""
        return plugin in self.plugins and (plugin == CERTIFICATE or identity in self._users)
