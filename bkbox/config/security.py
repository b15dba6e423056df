"""The configuration keys for access and for limits on connections. All others: schema.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bkbox.base.text import quoted
from bkbox.config.values import (
    Choice,
    File,
    Flag,
    Number,
    Text,
    Texts,
    Whole,
    is_loopback,
    key,
    split_address,
)
from bkbox.security.quotas import parse_quota, twice
from bkbox.security.roles import Need, parse_rate, parse_role

_DAY_S = 86_400.0

PLUGINS = ("certificate", "sasl", "token")


def _role_problem(text: str) -> str | None:
    try:
        parse_role(text)
    except ValueError as error:
        return str(error)
    return None


def _rate_problem(text: str) -> str | None:
    try:
        parse_rate(text)
    except ValueError as error:
        return str(error)
    return None


def _quota_problem(text: str) -> str | None:
    try:
        parse_quota(text)
    except ValueError as error:
        return str(error)
    return None


def _plugin_problem(text: str) -> str | None:
    return None if text in PLUGINS else f"{quoted(text)} is none of {', '.join(PLUGINS)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityKeys:
    """The security keys of ``Config``."""

    connections_max: int = field(
        metadata=key(
            Whole(1, 10_000_000),
            "Connections of clients at once; one more is closed. As many as the process may have descriptors, at most.",
            100_000,
            live=True,
        )
    )
    connections_per_peer_max: int = field(
        metadata=key(
            Whole(0, 10_000_000),
            "The same from one address (of IPv6: one network of 64 bits); 0 for no bound of its own.",
            0,
            live=True,
        )
    )
    handshake_timeout_s: float = field(
        metadata=key(
            Number(0.1, _DAY_S),
            "Seconds in which a connection has to be through with TLS and authentication.",
            10.0,
            live=True,
        )
    )
    frame_timeout_s: float = field(
        metadata=key(
            Number(0.0, _DAY_S),
            "Time-out, in seconds, for receiving a complete request, and for the first request; 0: none.",
            60.0,
            live=True,
        )
    )
    answers_timeout_s: float = field(
        metadata=key(
            Number(0.0, _DAY_S),
            "Time-out, in seconds, for a client to receive some of its waiting responses; 0: none.",
            60.0,
            live=True,
        )
    )
    idle_timeout_s: float = field(
        metadata=key(
            Number(0.0, _DAY_S),
            "Seconds after which a connection that asks for nothing is closed; 0: never.",
            0.0,
            live=True,
        )
    )
    tls: Literal["off", "offered", "required"] = field(
        metadata=key(
            Choice("off", "offered", "required"),
            "TLS on the bookie's port, by START_TLS or from the first byte, as the client begins.",
            "off",
            live=True,
        )
    )
    http_tls: Literal["loopback", "required", "off"] = field(
        metadata=key(
            Choice("loopback", "required", "off"),
            "TLS of http_listen, with the certificates below. loopback: none, and only an address that this host alone "
            "reaches. off: none at any address, so that tokens can be read on the network between.",
            "loopback",
            live=True,
        )
    )
    tls_certificate_file: Path | None = field(
        metadata=key(
            File(),
            "Certificate of the bookie, and those between it and its CA: PEM.",
            "",
            live=True,
        )
    )
    tls_key_file: Path | None = field(
        metadata=key(
            File(), "Its key: PEM, without a password; its mode has to be 0600.", "", live=True
        )
    )
    tls_ca_file: Path | None = field(
        metadata=key(
            File(),
            "Certificates that sign those of clients and of other bookies: PEM.",
            "",
            live=True,
        )
    )
    tls_client_certificates: Literal["none", "asked", "required"] = field(
        metadata=key(
            Choice("none", "asked", "required"),
            "Whether clients have to show a certificate that tls_ca_file has signed.",
            "none",
            live=True,
        )
    )
    auth: tuple[str, ...] = field(
        metadata=key(
            Texts(_plugin_problem, f"a list of {', '.join(PLUGINS)}"),
            "Ways in which clients authenticate: one is enough, and nothing is done before. Empty: no client has "
            "to. sasl is DIGEST-MD5, for clients of Java; it is weak.",
            [],
            live=True,
        )
    )
    auth_users_file: Path | None = field(
        metadata=key(
            File(),
            "Users for sasl and token, NAME:SECRET a line; its mode has to be 0600.",
            "",
            live=True,
        )
    )
    roles: tuple[str, ...] = field(
        metadata=key(
            Texts(_role_problem, "a list of NAME=ROLE,ROLE"),
            "Roles of clients: read, write, replication and admin. token/NAME, sasl/NAME or "
            "certificate/NAME; NAME alone is the user of that name in auth_users_file, or, where "
            "there is none, the certificate; * is every other user. Empty: an authenticated client may do "
            "everything.",
            [],
            live=True,
        )
    )
    requests_per_second: tuple[str, ...] = field(
        metadata=key(
            Texts(_rate_problem, "a list of NAME=NUMBER"),
            "How many requests a user may send, over all connections; more are answered ETOOMANYREQUESTS. Names are "
            "those of roles.",
            [],
            live=True,
        )
    )
    quotas: tuple[str, ...] = field(
        metadata=key(
            Texts(_quota_problem, "a list of OWNER=SIZE"),
            "How many bytes the ledgers of an owner may take on the disks of this bookie, with K, M, G, T or P for "
            "powers of 1024; * is each other owner. Adds to the ledgers of an owner that has more are "
            "answered ETOOMANYREQUESTS. Empty: nothing is counted.",
            [],
            live=True,
        )
    )
    quota_interval_s: float = field(
        metadata=key(
            Number(0.1, _DAY_S),
            "Seconds from one measurement of the owners' usage to the next, where there are quotas.",
            60.0,
            live=True,
        )
    )
    peers_tls: Literal["off", "start", "direct"] = field(
        metadata=key(
            Choice("off", "start", "direct"),
            "TLS when the bookie is a client of other bookies, for repair: none, by START_TLS, or from the first byte. "
            "It shows its own certificate.",
            "off",
        )
    )
    peers_tls_check_host_name: bool = field(
        metadata=key(
            Flag(), "Whether their certificates have to name the host that was asked for.", True
        )
    )
    peers_auth: Literal["none", "sasl", "token"] = field(
        metadata=key(
            Choice("none", "sasl", "token"),
            "How it authenticates to them, beside its certificate.",
            "none",
        )
    )
    peers_user: str = field(
        metadata=key(
            Text(lambda _text: None),
            "Name to authenticate as; it needs the role replication there.",
            "",
        )
    )
    peers_secret_file: Path | None = field(
        metadata=key(File(), "File with the secret of that user; its mode has to be 0600.", "")
    )

    def parsed_roles(self) -> list[tuple[str, Need]]:
        return [parse_role(text) for text in self.roles]

    def parsed_rates(self) -> list[tuple[str, int]]:
        return [parse_rate(text) for text in self.requests_per_second]


def problems(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(key, problem) pairs from checks that involve several keys; ``values`` as ``Config`` has them, without wrong
    ones."""
    found = []

    def needs(because: str, required: str, why: str) -> None:
        if values.get(required, ...) in (None, ""):
            found.append((because, f"{because} needs {required}: {why}"))

    if values.get("tls", "off") != "off":
        needs("tls", "tls_certificate_file", "the certificate of the bookie")
        needs("tls", "tls_key_file", "the key of the certificate")
    if values.get("http_listen") and values.get("http_tls") == "required":
        needs("http_tls", "tls_certificate_file", "the certificate of the bookie")
        needs("http_tls", "tls_key_file", "the key of the certificate")
    if values.get("http_listen") and values.get("http_tls") == "loopback":
        address = split_address(values["http_listen"])
        if address is not None and not is_loopback(address[0]):
            text = (
                f"http_listen {values['http_listen']} is for other hosts, too, which would send their tokens in the "
                'clear: set http_tls = "required", or listen on 127.0.0.1. http_tls = "off" does without'
            )
            found.append(("http_listen", text))
    if values.get("tls_client_certificates", "none") != "none":
        needs(
            "tls_client_certificates", "tls_ca_file", "the certificates that sign those of clients"
        )
    plugins = values.get("auth", ())
    if "sasl" in plugins or "token" in plugins:
        needs("auth", "auth_users_file", "the users")
    if "certificate" in plugins:
        if values.get("tls") == "off":
            found.append(("auth", 'auth with "certificate" needs tls: there are none without it'))
        if values.get("tls_client_certificates") == "none":
            text = 'auth with "certificate" needs tls_client_certificates = "asked" or "required"'
            found.append(("auth", text))
    for name in ("roles", "requests_per_second"):
        if values.get(name) and "auth" in values and not plugins:
            found.append((name, f"{name} needs auth: no client has a name without it"))
    owner = twice(values.get("quotas", ()))
    if owner is not None:
        found.append(("quotas", f"quotas names {quoted(owner)} twice: leave one of them"))
    if values.get("peers_auth", "none") != "none":
        needs("peers_auth", "peers_user", "the name to authenticate as")
        needs("peers_auth", "peers_secret_file", "the secret of that user")
    return found
