"""The common interface of authentication plugins: messages go back and forth until one side knows the other."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple, Protocol

from bkbox.base.text import quoted


class Step(NamedTuple):
    """``payload``: the bookie's response; ``identity``: that of the client, None while unknown."""

    payload: bytes
    identity: str | None


class Examiner(Protocol):
    """The bookie's side of one exchange."""

    plugin: str

    def step(self, payload: bytes) -> Step:
        """Handle one message. Raises AuthenticationError, which ends the exchange."""


class Applicant(Protocol):
    """The client's side of one exchange."""

    plugin: str

    def begin(self) -> bytes:
        """The first message."""

    def step(self, payload: bytes) -> bytes | None:
        """The next message; None: this side is satisfied. Raises AuthenticationError."""


def shown(user: str, users: Container[str]) -> str:
    """A user name for the log. A name that no user has is not shown: secrets get typed where the name belongs."""
    return f"user {quoted(user)}" if user in users else "the user"
