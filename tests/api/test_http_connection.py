"""HTTP as clients may speak it: what is kept open, what is closed and when, over real sockets."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from bkbox.api.admin import application, http_connection
from bkbox.api.admin.http_connection import HttpConnection
from tests.api.serving import TOKEN, Serving

BEARER = f"Authorization: Bearer {TOKEN}\r\n"
AUTH = f"Host: 127.0.0.1\r\n{BEARER}"
BODY = '{"count": 3}'
TYPED = "Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with Serving() as found:
        yield found


def caller(serving: Serving) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", serving.port), timeout=60))


def all_of(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def answered(serving: Serving, *requests: str) -> list[int]:
    """The status of each response to what is sent at once; the client sends no more after it."""
    with caller(serving) as sock:
        sock.sendall("".join(requests).encode())
        sock.shutdown(socket.SHUT_WR)
        found = all_of(sock)
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+) ", found)]


def get(path: str, more: str = "", method: str = "GET", version: str = "1.1") -> str:
    return f"{method} {path} HTTP/{version}\r\n{AUTH}{more}\r\n"


def post(body: str, more: str = "") -> str:
    length = f"Content-Length: {len(body)}\r\n"
    return f"POST /change HTTP/1.1\r\n{AUTH}{TYPED}{length}{more}\r\n{body}"


def test_requests_follow_one_another(serving: Serving) -> None:
    chunked = f"POST /change HTTP/1.1\r\n{AUTH}{TYPED}Transfer-Encoding: chunked\r\n\r\n"
    pieces = f"5\r\n{BODY[:5]}\r\n7\r\n{BODY[5:]}\r\n0\r\n\r\n"
    found = answered(
        serving,
        get("/read/a"),
        post(BODY),
        get("/nothing"),
        chunked + pieces,
        post("{"),
        get("/change"),
        get("/read/a", "Connection: close\r\n"),
        get("/read/never"),
    )
    assert found == [200, 200, 404, 200, 400, 405, 200]


def test_a_head_comes_without_a_body(serving: Serving) -> None:
    with caller(serving) as sock:
        sock.sendall((get("/read/a", method="HEAD") + get("/read/a")).encode())
        sock.shutdown(socket.SHUT_WR)
        first, second, body = all_of(sock).split(b"\r\n\r\n")
    assert b"HTTP/1.1 405 " in first
    assert b"\r\nAllow: GET" in first
    assert int(re.findall(rb"Content-Length: (\d+)", first)[0]) > 0
    assert second.startswith(b"HTTP/1.1 200 ")
    assert body.startswith(b"{")


def test_a_target_with_its_host_is_that_hosts(serving: Serving) -> None:
    assert answered(serving, get("http://127.0.0.1/read/a?n=3")) == [200]
    assert answered(serving, get("http://evil.example/read/a")) == [421]
    assert answered(serving, get("http://[/read/a")) == [400]


def test_paths_are_decoded_segment_by_segment(serving: Serving) -> None:
    assert serving.ask("GET", "/read/a%2Fb%20c")[1]["name"] == "a/b c"
    assert serving.ask("GET", "/r%65ad/a")[0] == 200
    for path in ("/read/", "/read", "/read/a/", "//read/a", "/read%2Fa", "/read/a/b"):
        assert serving.ask("GET", path)[0] == 404, path
    assert serving.ask("GET", "/read/%ff")[1]["name"] == "%ff"
    assert serving.ask("GET", "/read/a?n=%ff")[0] == 400
    assert serving.ask("GET", "/read/a?" + "n=1&" * 200)[0] == 400


def test_a_body_that_waits_to_be_asked_for_is_asked_for(serving: Serving) -> None:
    with caller(serving) as sock:
        request = post(BODY, "Expect: 100-continue\r\n")
        sock.sendall(request.removesuffix(BODY).encode())
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        sock.sendall(BODY.encode())
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


def test_a_compressed_body_is_refused(serving: Serving) -> None:
    assert answered(serving, post(BODY, "Content-Encoding: gzip\r\n")) == [415]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("GET / HTTP/9.9\r\n\r\n", 505),
        ("nothing of the kind\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\n{AUTH}X: {'y' * 20_000}\r\n\r\n", 431),
        (f"GET /read/a HTTP/1.1\r\n{AUTH}Transfer-Encoding: gzip\r\n\r\n", 501),
        (f"POST /change HTTP/1.1\r\n{AUTH}{TYPED}Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (f"POST /change HTTP/1.1\r\n{AUTH}{TYPED}Content-Length: 9\r\n\r\n{{", 400),
    ],
)
def test_what_is_malformed_is_told_and_the_last(serving: Serving, text: str, status: int) -> None:
    assert answered(serving, text) == [status]
    if "Content-Length" not in text:
        assert answered(serving, text, get("/read/a")) == [status]


def test_a_response_is_not_lost_with_what_was_not_read(serving: Serving) -> None:
    """A socket that is closed with unread data is reset."""
    with caller(serving) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        head = f"POST /change HTTP/1.1\r\n{AUTH}{TYPED}Content-Length: 900000\r\n\r\n"
        sock.sendall(head.encode() + b" " * 900_000)
        found = all_of(sock)
    assert found.startswith(b"HTTP/1.1 413 ")
    assert b"the body is larger" in found
    assert b"\r\nConnection: close\r\n" in found


def test_old_clients_get_what_they_understand(serving: Serving) -> None:
    with caller(serving) as sock:
        sock.sendall(get("/read/a", version="1.0").encode())
        assert all_of(sock).startswith(b"HTTP/1.1 200 ")
    with caller(serving) as sock:
        sock.sendall(get("/stream", version="1.0").encode())
        told = b""
        while told.count(b"tick") < 3:
            told += sock.recv(1 << 16)
    assert b"chunked" not in told
    assert b"tick\ntick\n" in told


def test_a_client_that_receives_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_SEND_TIMEOUT_S", 0.3)
    left = threading.Event()
    abort = HttpConnection.abort

    with Serving() as serving:
        deaf = socket.socket()

        def leave(connection: HttpConnection) -> None:
            is_open = connection.socket.fileno() >= 0
            is_of_deaf = is_open and connection.socket.getpeername() == deaf.getsockname()
            abort(connection)
            if is_of_deaf:
                left.set()

        monkeypatch.setattr(HttpConnection, "abort", leave)
        with closing(deaf):
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", serving.port))
            deaf.sendall(get("/much").encode())
            assert left.wait(60)
            deaf.settimeout(60)
            assert len(all_of(deaf)) < 30_000_000
        assert serving.ask("GET", "/read/a")[0] == 200


@pytest.mark.parametrize("path", ["/broken-stream", "/late-stream"])
def test_a_stream_that_breaks_is_cut_and_in_the_log(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Serving() as serving, caller(serving) as sock:
        sock.sendall(get(path).encode())
        told = all_of(sock)
    assert b"tick" in told
    assert not told.endswith(b"0\r\n\r\n"), "it has no end that the client could take for one"
    assert [record.getMessage() for record in caplog.records] == ["a response ended early"]


def test_an_end_waits_for_no_client() -> None:
    with Serving() as ending, caller(ending) as idle, caller(ending) as stream:
        idle.sendall(get("/read/a").encode())
        assert idle.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        stream.sendall(get("/stream").encode())
        assert stream.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        ending.stop()
        assert idle.recv(1) == b""
        all_of(stream)


def test_a_request_in_hand_is_answered_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "_END_S", 60)
    with Serving() as ending, caller(ending) as waiting:
        waiting.sendall(get("/soon").encode())
        assert ending.asked.wait(60)
        ending.stop()
        assert waiting.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
