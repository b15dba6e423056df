"""Roles: the requests that an identity may make of a bookie.

``read``: entries, LACs, lists, sizes. ``write``: every request of a writer, including recoveries of its ledgers, and
those of ``read``. ``replication``: reads, and recovery and copying of ledgers, but no normal adds. ``admin``:
everything.

An identity is the kind of proof and a name, ``token/broker``: a certificate that names ``broker`` is another party
than the user ``broker`` of ``auth_users_file``. In the configuration, one text for each: ``KIND/NAME=ROLE,ROLE``.
Without a kind it is the user of that name, by token or sasl, or, if there is no such user, the certificate. ``*``
stands for each other identity that was proved. Without any such text every identity may do everything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Flag, auto

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct


class Need(Flag):
    """The rights that a request needs."""

    READ = auto()
    ADD = auto()
    RECOVER = auto()


ALL = Need.READ | Need.ADD | Need.RECOVER

ROLES = {
    "read": Need.READ,
    "write": ALL,
    "replication": Need.READ | Need.RECOVER,
    "admin": ALL,
}

CERTIFICATE = "certificate"
SASL = "sasl"
TOKEN = "token"  # noqa: S105 a name
"""Ways to prove an identity, by their names in the configuration."""

EVERYBODY = "*"
NAME_CHARACTERS_MAX = 256


@frozen_struct
class Grant:
    """The rights of one identity. ``requests_per_second``: 0 for no bound."""

    needs: Need
    requests_per_second: int = 0


FREE = Grant(ALL)


class Grants:
    """Rights by identity. ``grants`` as (KIND/NAME or NAME, needs), ``rates`` as (the same, requests per second);
    ``users``: the names of the users.
    """

    def __init__(
        self,
        grants: Sequence[tuple[str, Need]] = (),
        rates: Sequence[tuple[str, int]] = (),
        users: Collection[str] = (),
    ) -> None:
        self._needs = dict(grants)
        self._rates = dict(rates)
        self._users = users

    def of(self, identity: str) -> Grant:
        needs = ALL
        if self._needs:
            needs = self._needs.get(self._line(identity, self._needs), Need(0))
        return Grant(needs, self._rates.get(self._line(identity, self._rates), 0))

    def counts_as(self, identity: str) -> str:
        """The key under which the requests of an identity are counted: a user has one bound, whatever its kind of
        proof.
        """
        line = self._line(identity, self._rates)
        return identity if line == EVERYBODY else line

    def _line(self, identity: str, lines: Collection[str]) -> str:
        """The name in the configuration's line for this identity."""
        if identity in lines:
            return identity
        kind, _, name = identity.partition("/")
        is_user_s = kind == CERTIFICATE and name in self._users
        return name if name in lines and not is_user_s else EVERYBODY


def parse_role(text: str) -> tuple[str, Need]:
    """``NAME=ROLE,ROLE``. Raises ValueError with the reason."""
    identity, roles = _split(text, "NAME=ROLE,ROLE, for example broker=read,write")
    needs = Need(0)
    for word in roles.split(","):
        if word.strip() not in ROLES:
            raise ValueError(
                f"{quoted(text)}: {quoted(word.strip())} is none of the roles {', '.join(ROLES)}"
            )
        needs |= ROLES[word.strip()]
    return identity, needs


def parse_rate(text: str) -> tuple[str, int]:
    """``NAME=NUMBER``. Raises ValueError."""
    identity, number = _split(text, "NAME=NUMBER, for example broker=10000")
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:12]) < 10**9):
        raise ValueError(
            f"{quoted(text)}: {quoted(number[:20])} is not a number from 1 to 999999999"
        )
    return identity, int(number)


def _split(text: str, form: str) -> tuple[str, str]:
    # Names of certificates have equals signs of their own.
    identity, equals, rest = text.rpartition("=")
    identity = identity.strip()
    if not equals or not identity or len(identity) > NAME_CHARACTERS_MAX:
        raise ValueError(f"{quoted(text[:80])} is not of the form {form}")
    return identity, rest.strip()
