"""Who may ask what, over real sockets: tokens, roles, users, browsers, other hosts; and requests that are wrong."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bkbox.api.admin import application, client
from bkbox.api.admin.access import OwnerOnly, read_token, with_tokens
from bkbox.api.admin.problems import HttpRefusedError
from bkbox.api.admin.remote import Remote, remote
from bkbox.errors import (
    AccessDeniedError,
    BadRequestError,
    BkboxError,
    BookieNotRunningError,
    BootError,
    BugError,
    JobRefusedError,
    NoSuchRouteError,
    OperatorError,
    RequestTimeoutError,
)
from tests.api.serving import READ_TOKEN, TOKEN, Serving, door
from tests.harness.waiting import wait_for


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with Serving() as found:
        yield found


JSON = {"Content_Type": "application/json"}


def test_who_has_the_token_may_read_and_change(serving: Serving) -> None:
    assert serving.ask("GET", "/read/a?n=3&b=true") == (
        200,
        {"name": "a", "query": {"n": 3, "b": True}},
    )
    assert serving.ask("POST", "/change", b'{"count": 3}', **JSON)[0] == 200
    assert serving.done[-1] == "3 none"


def test_the_read_token_may_only_read(serving: Serving) -> None:
    assert serving.ask("GET", "/read/a", token=READ_TOKEN)[0] == 200
    before = list(serving.done)
    status, problem = serving.ask("POST", "/change", b'{"count": 4}', token=READ_TOKEN, **JSON)
    assert (status, problem["error"]) == (403, "AccessDeniedError")
    assert "may only read" in problem["detail"]
    assert serving.done == before


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "t", "\xff" * 32])
@pytest.mark.parametrize("path", ["/read/a", "/change", "/nothing-there"])
def test_without_the_token_nothing_is_told(serving: Serving, token: str | None, path: str) -> None:
    status, problem = serving.ask("GET", path, token=token)
    assert (status, problem["error"]) == (401, "AccessDeniedError")


def test_another_scheme_than_bearer_is_refused(serving: Serving) -> None:
    status, problem = serving.ask("GET", "/read/a", token=None, Authorization=f"Basic {TOKEN}")
    assert status == 401
    assert "Bearer" in problem["detail"]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}],
)
def test_a_web_page_is_refused_even_with_the_token(
    serving: Serving, headers: dict[str, str]
) -> None:
    before = list(serving.done)
    status, problem = serving.ask("POST", "/change", b'{"count": 5}', **JSON, **headers)
    assert status == 403
    assert "web page" in problem["detail"]
    assert serving.done == before


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("[::1]:8080", 200),
        ("10.0.0.1", 200),
        ("bookie.example.com", 200),
        ("BOOKIE.example.com:8080", 200),
        ("evil.example", 421),
        ("evil.example:8080", 421),
        ("", 421),
    ],
)
def test_requests_for_other_hosts_are_refused(serving: Serving, host: str, status: int) -> None:
    assert serving.ask("GET", "/read/a", Host=host)[0] == status


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "count is missing"),
        (b"{", "not JSON"),
        (b"[1]", "expected an object, found a list"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 30_000 + b"]" * 30_000, "body: nested too deeply"),
        (b"[" * 900 + b"]" * 900, "body"),
        (b'{"count": "3"}', "body.count: '3' is not a whole number"),
        (b'{"count": true}', "body.count: true is not a whole number"),
        (b'{"count": 1.5}', "body.count: 1.5 is not a whole number"),
        (b'{"count": null}', "body.count: null is not a whole number"),
        (b'{"count": 3, "text": "a\\u0000b"}', "body.text: 'a\\x00b' has a character"),
        (b'{"count": 3, "text": "a\\ud800b"}', "body.text: 'a\\ud800b' has a character"),
        (b'{"count": 3, "\\u0000": 1}', "body: a name: '\\x00' has a character"),
        (b'{"count": 3, "colour": 1}', "unknown field 'colour'; there are count, text"),
    ],
)
def test_a_wrong_body_is_named_with_its_place(serving: Serving, body: bytes, says: str) -> None:
    before = list(serving.done)
    status, problem = serving.ask("POST", "/change", body, **JSON)
    assert (status, problem["error"]) == (400, "BadRequestError")
    assert says in problem["detail"]
    assert serving.done == before


def test_what_http_has_words_for(serving: Serving) -> None:
    assert serving.ask("POST", "/change", b'{"count": 3}', Content_Type="text/plain")[0] == 415
    assert serving.ask("POST", "/change", b" " * 70_000 + b'{"count": 3}', **JSON)[0] == 413
    assert serving.ask("GET", "/change")[0] == 405
    assert serving.ask("OPTIONS", "/change")[0] == 405
    assert serving.ask("GET", "/nothing")[1]["error"] == "NoSuchRouteError"
    assert serving.ask("GET", "/read/a", b"{}", **JSON)[0] == 400
    assert "path: name" in serving.ask("GET", "/read/a%00b")[1]["detail"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("m=1", "unknown parameter 'm'; it takes n, b"),
        ("n=x", "n 'x' is not a whole number"),
        ("n=-1", "not a whole number"),
        ("n=" + "9" * 5_000, "not a whole number"),
        (f"n={2**63}", "is more than"),
        ("n=1&n=2", "given twice"),
        ("b=maybe", "true or false"),
    ],
)
def test_a_wrong_query_is_named(serving: Serving, query: str, says: str) -> None:
    status, problem = serving.ask("GET", f"/read/a?{query}")
    assert status == 400
    assert says in problem["detail"]


def test_the_client_raises_what_the_bookie_met(serving: Serving) -> None:
    there = Remote("127.0.0.1", serving.port, TOKEN)
    assert client.ask(there, "POST", "/change", {"count": 6}) == {"count": 6}
    for method, path, error in (
        ("POST", "/refuse", JobRefusedError),
        ("GET", "/late", RequestTimeoutError),
        ("GET", "/defect", BugError),
        ("GET", "/cut", BugError),
        ("GET", "/nothing", NoSuchRouteError),
        ("GET", "/read/a?x=1", BadRequestError),
    ):
        with pytest.raises(error):
            client.ask(there, method, path)  # type: ignore[arg-type]
    with pytest.raises(AccessDeniedError, match="not the one"):
        client.ask(Remote("127.0.0.1", serving.port, "x" * 32), "GET", "/read/a")
    with pytest.raises(BookieNotRunningError):
        client.ask(Remote("127.0.0.1", 1, TOKEN), "GET", "/read/a")


def test_slow_clients_keep_nobody_waiting(serving: Serving) -> None:
    slow = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(50)]
    try:
        for each in slow:
            each.sendall(b"POST /change HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
        assert serving.ask("GET", "/read/a")[0] == 200
    finally:
        for each in slow:
            each.close()


def test_who_does_not_come_to_an_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_IDLE_S", 0.5)
    monkeypatch.setattr(application, "_BODY_TIMEOUT_S", 0.5)
    with Serving() as serving:
        with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as half:
            half.sendall(b"POST /change HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le")
            assert half.recv(1) == b"", "no whole request came"
        with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as half:
            half.sendall(
                b"POST /change HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Authorization: Bearer " + TOKEN.encode() + b"\r\nContent-Length: 12\r\n\r\n{"
            )
            assert b" 408 " in half.recv(100)
        assert serving.done == []


def test_more_connections_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application, "_CONNECTIONS_MAX", 5)
    with Serving() as serving:
        assert serving.ask("GET", "/read/a")[0] == 200
        idle = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(8)]
        try:
            wait_for(lambda: serving.ask("GET", "/read/a")[0] == 503, "it to be full")
        finally:
            for each in idle:
                each.close()
        wait_for(lambda: serving.ask("GET", "/read/a")[0] == 200, "room again")


def test_more_requests_than_there_may_be() -> None:
    with Serving(door(per_second=5)) as serving:
        found = [serving.ask("GET", "/read/a")[0] for _ in range(20)]
        assert found[:5] == [200] * 5
        assert found.count(429) >= 10
        assert serving.ask("GET", "/read/a", token="guessed")[0] == 401, (
            "who has no token takes none of it"
        )
        wait_for(lambda: serving.ask("GET", "/read/a")[0] == 200, "the next second")


def test_what_is_refused_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="bkbox.refused"), Serving() as serving:
        for _ in range(3):
            serving.ask("GET", "/read/a", token="guessed")
        serving.ask("POST", "/refuse", token=READ_TOKEN)
        serving.ask("POST", "/refuse")  # allowed, and not possible
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" for ")[0] for text in said] == [
        "refused: admin API, 401 Unauthorized",
        "refused: admin API, 403 Forbidden",
    ]
    assert not any("guessed" in text for text in said)


def test_a_stream_ends_with_the_token_that_began_it() -> None:
    with (
        Serving() as serving,
        socket.create_connection(("127.0.0.1", serving.port), timeout=20) as caller,
    ):
        caller.sendall(
            f"GET /stream HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        told = b""
        while told.count(b"tick") < 3:
            told += caller.recv(1 << 16)
        serving.door = door()  # read anew, and as it was
        while told.count(b"tick") < 9:
            told += caller.recv(1 << 16)
        serving.door = door("n" * 32)
        while chunk := caller.recv(1 << 16):
            told = chunk
        assert told.endswith(b"0\r\n\r\n")


def test_who_guesses_tokens_needs_a_connection_for_each(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as guesser:
        request = b"GET /read/a HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %d\r\n\r\n"
        guesser.sendall(request % 1 + request % 2)
        answers = b"".join(iter(lambda: guesser.recv(1 << 16), b""))
        assert answers.count(b"HTTP/1.1 401") == 1


def test_another_user_may_not_ask_over_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert OwnerOnly().caller(ours, {}).may_change
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        if os.getuid() == 0:  # root may ask any bookie; so somebody else has to
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(socket.socket, "getsockopt", lambda *_: b"\1\0\0\0\2\0\0\0\2\0\0\0")
                with pytest.raises(HttpRefusedError, match="user 2 may not"):
                    OwnerOnly().caller(ours, {})
        else:
            with pytest.raises(HttpRefusedError, match="may not ask"):
                OwnerOnly().caller(ours, {})


# ---- token files ------------------------------------------------------------------------------------


def token_file(folder: Path, content: bytes = TOKEN.encode() + b"\n", mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_token_file(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    assert read_token(path) == TOKEN.encode()
    assert with_tokens("127.0.0.1:8080", "h", path, None).read_token is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610])
def test_a_token_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(BootError, match=f"mode {mode:04o}.*chmod 600"):
        read_token(token_file(tmp_path, mode=mode))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short", b"two words of a token", b"\xff" * 40, b"x" * 5_000]
)
def test_a_token_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BootError, match="one word of 16 to 4096"):
        read_token(token_file(tmp_path, content))


def test_no_token_file(tmp_path: Path) -> None:
    with pytest.raises(BootError, match="cannot be read: No such file"):
        read_token(tmp_path / "missing")
    with pytest.raises(BootError, match="is not a file"):
        read_token(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        *("", "bookie1", "127.0.0.1:8080", "http://b", "http://b:x", "ftp://b:1"),
        *("http://u@b:8080", "http://b:8080/path", "http://b:8080?q=1", "http://[::1"),
    ],
)
def test_an_address_that_is_none_is_named(tmp_path: Path, url: str) -> None:
    with pytest.raises(OperatorError, match="https://HOST:PORT"):
        remote(url, token_file(tmp_path))


def test_an_address(tmp_path: Path) -> None:
    found = remote("http://[::1]:8080/", token_file(tmp_path))
    assert (found.host, found.port, str(found)) == ("::1", 8080, "http://[::1]:8080")
    assert TOKEN not in f"{found} {found!r}"
    assert str(remote("https://b:8080", token_file(tmp_path))) == "https://b:8080"
    assert issubclass(BootError, BkboxError)
