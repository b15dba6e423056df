"""The token plugin: both sides against each other, and what is refused."""

from __future__ import annotations

import json

import pytest

from bkbox.errors import AuthenticationError
from bkbox.security.tokens import Client, Server

TOKENS = {"broker": "t" * 40, "ünï": "u" * 40}
S, C = "s" * 32, "c" * 32


def first_steps(client: Client, server: Server) -> bytes:
    """The client's proof."""
    proof = client.step(server.step(client.begin()).payload)
    assert proof is not None
    return proof


@pytest.mark.parametrize("user", TOKENS)
def test_both_sides(user: str) -> None:
    client, server = Client(user, TOKENS[user], C), Server(TOKENS, S)
    step = server.step(first_steps(client, server))
    assert step.identity == user
    assert client.step(step.payload) is None


@pytest.mark.parametrize(("user", "token"), [("broker", "x" * 40), ("nobody", S)])
def test_a_wrong_token_and_a_user_that_is_not_there(user: str, token: str) -> None:
    client, server = Client(user, token, C), Server(TOKENS, S)
    with pytest.raises(AuthenticationError, match="wrong"):
        server.step(first_steps(client, server))


def test_what_was_recorded_is_worth_nothing_later() -> None:
    client, server = Client("broker", TOKENS["broker"], C), Server(TOKENS, S)
    proof = first_steps(client, server)
    server.step(proof)
    with pytest.raises(AuthenticationError, match="over"):
        server.step(proof)
    later = Server(TOKENS, "z" * 32)
    later.step(client.begin())
    with pytest.raises(AuthenticationError, match="wrong"):
        later.step(proof)


def test_a_bookie_that_sends_back_what_it_was_sent() -> None:
    client = Client("broker", TOKENS["broker"], C)
    server = Server(TOKENS, S)
    proof = first_steps(client, server)
    with pytest.raises(AuthenticationError, match="does not know"):
        client.step(proof)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 5000,
        b'{"user": "broker"}',
        b'{"user": 1, "nonce": "cccccccccccccccccccc"}',
        b'{"user": "broker", "nonce": "short"}',
        b'{"user": "broker", "nonce": "cccccccccccccccccccc", "more": ""}',
        b'{"user": "\\ud800", "nonce": "cccccccccccccccccccc"}',
        json.dumps({"user": "broker", "nonce": "c" * 2000}).encode(),
    ],
)
def test_first_messages_that_are_none(payload: bytes) -> None:
    with pytest.raises(AuthenticationError):
        Server(TOKENS, S).step(payload)
