"""DIGEST-MD5: the example of the RFC, both sides against each other, and what is refused."""

from __future__ import annotations

import pytest

from bkbox.errors import AuthenticationError
from bkbox.security import digest_md5
from bkbox.security.digest_md5 import Client, Server

USERS = {"bookkeeper": "a long secret", "jürgen": "größer", "снег": "пароль-пароль"}
NONCE = "0123456789abcdef"


def through(server: Server, client: Client) -> str | None:
    """Run an exchange; who the server says that it is."""
    payload: bytes | None = client.begin()
    identity = None
    while payload is not None:
        step = server.step(payload)
        identity = step.identity
        payload = client.step(step.payload)
    return identity


def test_the_example_of_the_rfc() -> None:
    said = {
        "username": "chris",
        "realm": "elwood.innosoft.com",
        "nonce": "OA6MG9tEQGm2hh",
        "nc": "00000001",
        "cnonce": "OA6MHXh6VqTrRk",
        "digest-uri": "imap/elwood.innosoft.com",
    }
    session = digest_md5._session("chris", "secret", said)
    proof = digest_md5._response(session, said, "AUTHENTICATE:")
    assert proof == "d388dad90d4bbd760a152321f2143af7"
    assert digest_md5._response(session, said, ":") == "ea40f60335c427b5527b84dbabcdfffd"


@pytest.mark.parametrize("user", USERS)
def test_both_sides(user: str) -> None:
    assert through(Server(USERS, NONCE), Client(user, USERS[user], "c" * 16)) == user


@pytest.mark.parametrize(("user", "password"), [("bookkeeper", "wrong"), ("nobody", NONCE)])
def test_a_wrong_password_and_a_user_that_is_not_there(user: str, password: str) -> None:
    with pytest.raises(AuthenticationError, match="wrong"):
        through(Server(USERS, NONCE), Client(user, password, "c" * 16))


def test_what_was_recorded_is_worth_nothing_later() -> None:
    client = Client("bookkeeper", USERS["bookkeeper"], "c" * 16)
    first = Server(USERS, NONCE)
    recorded = client.step(first.step(client.begin()).payload)
    assert recorded is not None
    assert first.step(recorded).identity == "bookkeeper"
    with pytest.raises(AuthenticationError, match="over"):
        first.step(recorded)
    second = Server(USERS, "f" * 16)
    second.step(b"")
    with pytest.raises(AuthenticationError, match="nonce"):
        second.step(recorded)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"nc=00000001", b"nc=00000002"),
        (b'realm="bookkeeper"', b'realm="other"'),
        (b"qop=auth", b"qop=auth-int"),
        (b'digest-uri="bookkeeper/bookkeeper"', b'digest-uri="imap/host"'),
        (b"charset=utf-8,", b"charset=utf-8,charset=utf-8,"),
        (b"charset=utf-8,", b'charset=utf-8,authzid="admin",'),
        (b"response=", b"answer="),
        (b"maxbuf=65536", b'maxbuf="65536'),
        (b"charset=utf-8", b"\xff" * 5),
        (b"charset=utf-8", b"x" * 5000),
        (b"cnonce", b"cnonse"),
    ],
)
def test_an_answer_that_is_not_quite_right(old: bytes, new: bytes) -> None:
    client, server = Client("bookkeeper", USERS["bookkeeper"], "c" * 16), Server(USERS, NONCE)
    answer = client.step(server.step(client.begin()).payload)
    assert answer is not None
    assert old in answer
    with pytest.raises(AuthenticationError):
        server.step(answer.replace(old, new))
    with pytest.raises(AuthenticationError, match="over"):
        server.step(answer)  # there is no second attempt


def test_a_bookie_that_does_not_know_the_password() -> None:
    client = Client("bookkeeper", "a long secret", "c" * 16)
    client.step(Server(USERS, NONCE).step(client.begin()).payload)
    with pytest.raises(AuthenticationError, match="does not know"):
        client.step(b"rspauth=" + b"0" * 32)


@pytest.mark.parametrize(
    "payload", [b"", b"nonce=x", b'algorithm=md5-sess,nonce=""', b'nonce="a"x']
)
def test_challenges_that_are_none(payload: bytes) -> None:
    client = Client("bookkeeper", "a long secret", "c" * 16)
    client.begin()
    with pytest.raises(AuthenticationError):
        client.step(payload)


def test_a_first_message_that_says_something() -> None:
    with pytest.raises(AuthenticationError):
        Server(USERS, NONCE).step(b"x")
