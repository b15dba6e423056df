"""The access policy of the bookie's port (sent to the front-end as one message) and of the admin API's port. Files with
certificates and secrets are read only here.

They are read again when they change, so a new certificate needs no restart. Files that cannot be used are logged, and
the previous policy stays in force.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bkbox.config.schema import Config
from bkbox.errors import BootError
from bkbox.frontend.access.access_policy import OFF, AccessPolicy
from bkbox.ipc.channel import MESSAGE_BYTES_MAX
from bkbox.ipc.messages.frontend import SetAccessPolicy
from bkbox.security.secret_files import read_secret, read_text, read_users

if TYPE_CHECKING:
    from bkbox.api.admin.tcp_access import TcpAccess

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 5.0


def order_of(config: Config) -> SetAccessPolicy:
    """Raises BootError for files that cannot be used."""
    if "sasl" in config.auth:
        log.warning(
            "auth = sasl is DIGEST-MD5, which is weak: use it inside TLS, and token for clients of bkbox"
        )
    order = {
        "tls": config.tls,
        "certificate": "",
        "key": "",
        "ca": None,
        "users": {},
        **{name: read() for name, (_key, read) in files_of(config).items()},
        "client_certificates": config.tls_client_certificates,
        "plugins": list(config.auth),
        "roles": [(identity, needs.value) for identity, needs in config.parsed_roles()],
        "rates": config.parsed_rates(),
        "vouches": bool(config.auth),
    }
    payload = json.dumps(order).encode()
    if len(payload) > MESSAGE_BYTES_MAX - 1024:
        raise BootError(
            f"certificates and users come to {len(payload)} bytes: {MESSAGE_BYTES_MAX - 1024} are allowed"
        )
    AccessPolicy.from_order(payload)  # raises for what the front-end could not use
    return SetAccessPolicy(payload=payload)


def files_of(config: Config) -> dict[str, tuple[str, Callable[[], object]]]:
    """The parts of the access policy that are read from files. Maps each part's name in the message to its
    configuration key and the function that reads the file, which raises BootError."""
    found: dict[str, tuple[str, Callable[[], object]]] = {}
    if config.tls != OFF:
        found["certificate"] = (
            "tls_certificate_file",
            lambda: _text(config.tls_certificate_file, "tls_certificate_file"),
        )
        found["key"] = "tls_key_file", lambda: _key(config.tls_key_file)
        if config.tls_ca_file is not None:
            found["ca"] = "tls_ca_file", lambda: _text(config.tls_ca_file, "tls_ca_file")
    if {"sasl", "token"} & set(config.auth):
        found["users"] = "auth_users_file", lambda: _users(config.auth_users_file)
    return found


def _text(path: Path | None, key: str) -> str:
    assert path is not None
    return read_text(path, key)


def _key(path: Path | None) -> str:
    assert path is not None
    return read_secret(path, "tls_key_file").decode("latin-1")


def _users(path: Path | None) -> dict[str, str]:
    assert path is not None
    return read_users(path, "auth_users_file")


def _tcp_access_of(config: Config) -> TcpAccess | None:
    if not config.http_listen:
        return None
    from bkbox.api.admin.tcp_access import tcp_access_of

    return tcp_access_of(config)


class Credentials:
    """The last usable access policies: ``order`` for the front-end, ``tcp_access`` for the admin API's TCP port, None
    without one."""

    def __init__(self) -> None:
        self.order = SetAccessPolicy()
        self.tcp_access: TcpAccess | None = None
        self._seen: dict[Path, _State] = {}
        self._next_s = 0.0

    def load(self, config: Config) -> None:
        """Read the files that this configuration names. On BootError nothing has changed."""
        seen = _seen(config)
        self.order, self.tcp_access = order_of(config), _tcp_access_of(config)
        self._seen = seen

    def reload_if_changed(self, config: Config, now_s: float) -> bool:
        """Read the files again if one has changed, checked every few seconds. Returns True if new ones were put in
        force."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + _CHECK_EVERY_S
        seen = _seen(config)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self.order, self.tcp_access = order_of(config), _tcp_access_of(config)
        except BootError as error:
            log.error("what was there before stays in use: %s", error)
            return False
        log.warning("certificates, users and tokens were read anew, because a file has changed")
        return True


_State = tuple[int, int, int]


def _seen(config: Config) -> dict[Path, _State]:
    files = (
        config.tls_certificate_file,
        config.tls_key_file,
        config.tls_ca_file,
        config.auth_users_file,
        config.http_token_file,
        config.http_read_token_file,
    )
    return {path: _state(path) for path in files if path is not None}


def _state(path: Path) -> _State:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns
