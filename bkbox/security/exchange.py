"""What authentication plugins have in common: messages that go to and fro until one side knows the other."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple, Protocol

from bkbox.base.words import quoted


class Step(NamedTuple):
    """``payload``: what the bookie answers; ``identity``: who the client is, None as long as that is not known."""

    payload: bytes
    identity: str | None


class Examiner(Protocol):
    """The bookie's side of one exchange."""

    plugin: str

    def step(self, payload: bytes) -> Step:
        """Raises AuthenticationError; nothing more is asked then."""


class Applicant(Protocol):
    """The client's side of one exchange."""

    plugin: str

    def begin(self) -> bytes:
        """The first message."""

    def step(self, payload: bytes) -> bytes | None:
        """The next message; None: this side knows enough. Raises AuthenticationError."""


def shown(user: str, users: Container[str]) -> str:
    """A user in the log. A name that no user has is not shown: secrets get typed where the name belongs."""
    return f"user {quoted(user)}" if user in users else "the user"
