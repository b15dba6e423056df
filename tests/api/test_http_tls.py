"""TLS of the admin API: nobody who is not meant is spoken to, and no token leaves in the clear."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bkbox.api.admin import client, server
from bkbox.api.admin.remote import remote
from bkbox.cli.lib import client_file
from bkbox.client import options
from bkbox.config import load as configuration
from bkbox.errors import (
    AccessDeniedError,
    AuthenticationError,
    BkboxError,
    BookieNotRunningError,
    ConfigError,
    OperatorError,
)
from bkbox.security.tls import server_context
from tests.api.serving import TOKEN, Serving, door
from tests.security.certificates import Authority, Pair, secret_file
from tests.security.secured import client_tls

HOUR = datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def known_as(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """What the file says that BKBOX_CLIENT_FILE names."""
    before = dict(options._OF_THIS_PROCESS)

    def say(**values: Path) -> None:
        file = tmp_path / "client.toml"
        file.write_text("".join(f'{key} = "{value}"\n' for key, value in values.items()))
        options._OF_THIS_PROCESS.clear()
        client_file.apply({client_file.VARIABLE: str(file)})

    yield say
    options._OF_THIS_PROCESS.clear()
    options._OF_THIS_PROCESS.update(before)


def context_of(authority: Authority, pair: Pair, clients: str = "none") -> ssl.SSLContext:
    return server_context(
        pair.certificate.read_text(), pair.key.read_text(), authority.file.read_text(), clients
    )


def ask(port: int, folder: Path, *, scheme: str = "https", token: str = TOKEN) -> object:
    there = remote(f"{scheme}://127.0.0.1:{port}", secret_file(folder / "token", token))
    return client.ask(there, "GET", "/read/a")


def test_through_tls(authority: Authority, tmp_path: Path, known_as: Callable[..., None]) -> None:
    known_as(tls_ca_file=authority.file)
    with Serving(door(context=context_of(authority, authority.issue("bookie")))) as serving:
        assert ask(serving.port, tmp_path) == {"name": "a", "query": {}}
        with pytest.raises(AccessDeniedError, match="not the one"):
            ask(serving.port, tmp_path, token="x" * 32)


@pytest.mark.parametrize(
    ("issued", "says"),
    [
        ({"hosts": ["other.example"]}, "IP address mismatch|doesn't match"),
        ({"lasts": -HOUR}, "expired"),
    ],
)
def test_a_certificate_that_is_not_right(
    authority: Authority,
    tmp_path: Path,
    known_as: Callable[..., None],
    issued: dict[str, Any],
    says: str,
) -> None:
    known_as(tls_ca_file=authority.file)
    pair = authority.issue("bookie", file="wrong", **issued)
    with Serving(door(context=context_of(authority, pair))) as serving:
        with pytest.raises(AuthenticationError, match=says):
            ask(serving.port, tmp_path)
        assert serving.done == []


def test_the_certificate_of_a_stranger(
    authority: Authority, tmp_path: Path, known_as: Callable[..., None]
) -> None:
    other = Authority(tmp_path / "other", "other")
    known_as(tls_ca_file=authority.file)
    with Serving(door(context=context_of(other, other.issue("bookie")))) as serving:
        with pytest.raises(AuthenticationError, match="BKBOX_CLIENT_FILE"):
            ask(serving.port, tmp_path)
        known_as()  # the system's authorities do not know it either
        with pytest.raises(AuthenticationError, match="not accepted"):
            ask(serving.port, tmp_path)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_no_way_back_from_tls(
    authority: Authority, tmp_path: Path, known_as: Callable[..., None]
) -> None:
    """Who is to speak TLS and does not gets no token, and a server that speaks it answers nothing else."""
    known_as(tls_ca_file=authority.file)
    with _listening() as (port, heard), pytest.raises(BkboxError):
        ask(port, tmp_path)
    assert heard
    assert TOKEN.encode() not in b"".join(heard)
    with Serving() as plain, pytest.raises(AuthenticationError, match="no TLS with what answers"):
        ask(plain.port, tmp_path)
    with Serving(door(context=context_of(authority, authority.issue("bookie")))) as serving:
        with pytest.raises(BookieNotRunningError, match="https://"):
            ask(serving.port, tmp_path, scheme="http")
        with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as raw:
            raw.sendall(b"GET /read/a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"HTTP/1.1" not in b"".join(iter(lambda: _received(raw), b""))
        old = client_tls(authority, version=ssl.TLSVersion.TLSv1_1)
        with (
            socket.create_connection(("127.0.0.1", serving.port), timeout=20) as raw,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            old.wrap_socket(raw, server_hostname="127.0.0.1")
        assert ask(serving.port, tmp_path) == {"name": "a", "query": {}}


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1 << 16)
    except ConnectionError:
        return b""


@contextmanager
def _listening() -> Iterator[tuple[int, list[bytes]]]:
    """Somebody who takes what comes and answers as a plain server would."""
    heard: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            found, _ = listener.accept()
            with found:
                heard.append(found.recv(1 << 16))
                found.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], heard
        thread.join(20)


def test_a_certificate_of_the_client_where_that_is_wanted(
    authority: Authority, tmp_path: Path, known_as: Callable[..., None]
) -> None:
    mine = authority.issue("operator")
    context = context_of(authority, authority.issue("bookie"), "required")
    with Serving(door(context=context)) as serving:
        known_as(tls_ca_file=authority.file)
        with pytest.raises(BkboxError):
            ask(serving.port, tmp_path)
        known_as(
            tls_ca_file=authority.file,
            tls_certificate_file=mine.certificate,
            tls_key_file=mine.key,
        )
        assert ask(serving.port, tmp_path) == {"name": "a", "query": {}}


def test_an_old_token_and_an_old_certificate_are_worth_nothing(
    authority: Authority, tmp_path: Path, known_as: Callable[..., None]
) -> None:
    """What is read anew holds for the next request, also on a connection that is there."""
    known_as(tls_ca_file=authority.file)
    with Serving(door(context=context_of(authority, authority.issue("bookie")))) as serving:
        assert ask(serving.port, tmp_path) == {"name": "a", "query": {}}
        other = Authority(tmp_path / "other", "other")
        serving.door = door("n" * 32, context_of(other, other.issue("bookie")))
        with pytest.raises(AuthenticationError):
            ask(serving.port, tmp_path)
        known_as(tls_ca_file=other.file)
        with pytest.raises(AccessDeniedError):
            ask(serving.port, tmp_path)
        assert ask(serving.port, tmp_path, token="n" * 32) == {"name": "a", "query": {}}


def test_who_says_nothing_keeps_nobody_waiting(
    authority: Authority,
    tmp_path: Path,
    known_as: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known_as(tls_ca_file=authority.file)
    monkeypatch.setattr(server, "_HANDSHAKE_S", 1.0)
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", 40)
    with Serving(door(context=context_of(authority, authority.issue("bookie")))) as serving:
        silent = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(30)]
        try:
            assert ask(serving.port, tmp_path) == {"name": "a", "query": {}}
            silent[0].settimeout(20)
            assert _received(silent[0]) == b"", "it did not begin with TLS in time"
            more = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(60)]
            silent += more
            more[-1].settimeout(20)
            assert _received(more[-1]) == b"", "there are too many"
        finally:
            for each in silent:
                each.close()


# ---- what is refused before anything is sent -------------------------------------------------------


@pytest.mark.parametrize("host", ["10.0.0.5", "bookie.example.com", "127.example.com", "[fd00::1]"])
def test_a_token_goes_to_another_host_over_tls_only(tmp_path: Path, host: str) -> None:
    file = secret_file(tmp_path / "token", TOKEN)
    with pytest.raises(OperatorError, match=r"in the clear.*https://.*--plain-text"):
        remote(f"http://{host}:8080", file)
    assert remote(f"http://{host}:8080", file, plain_text=True).tls is None
    assert remote(f"https://{host}:8080", file).tls is not None


CONFIG = """
listen = "127.0.0.1:3181"
metadata = "sqlite:c.db"
disks = ["d"]
http_token_file = "token"
"""


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('http_listen = "127.0.0.1:1"', None),
        ('http_listen = "[::1]:1"', None),
        ('http_listen = "10.0.0.5:1"', "for other hosts, too"),
        ('http_listen = "0.0.0.0:1"', "for other hosts, too"),
        ('http_listen = "127.example.com:1"', "for other hosts, too"),
        ('http_listen = "10.0.0.5:1"\nhttp_tls = "off"', None),
        ('http_listen = "10.0.0.5:1"\nhttp_tls = "required"', "needs tls_certificate_file"),
        ('http_listen = "10.0.0.5:1"\nhttp_tls = "yes"', "has to be one of"),
    ],
)
def test_what_a_configuration_may_ask_for(tmp_path: Path, lines: str, problem: str | None) -> None:
    file = tmp_path / "bookie.toml"
    file.write_text(CONFIG + lines + "\n")
    if problem is None:
        assert configuration.load(file, {}).http_listen
    else:
        with pytest.raises(ConfigError, match=problem):
            configuration.load(file, {})
