"""The admin server and its client over real unix sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bkbox.api.admin import server
from bkbox.api.admin.client import fetch_status
from bkbox.api.admin.socket_path import SOCKET_NAME, short_address
from bkbox.api.admin.status import Boot, Status
from bkbox.errors import (
    AuthenticationError,
    BkboxError,
    BookieNotRunningError,
    BookieRunningError,
    BookieUnresponsiveError,
    BootError,
    EncodingError,
    PeerError,
)

STATUS = Status("0.1.0", "b:1", "i", "b:1", "running", True, "sync", Boot("done"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A socket path far longer than the kernel takes."""
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    return folder / SOCKET_NAME


def serve(path: Path, status: server.StatusSource, use: Callable[[], None]) -> None:
    """Run ``use`` in a thread while a server listens."""

    async def go() -> None:
        running = await server.start(path, status)
        try:
            await asyncio.to_thread(use)
        finally:
            await running.close()

    asyncio.run(go())


def test_the_client_gets_what_the_source_says_now(path: Path) -> None:
    answers = iter([STATUS, replace(STATUS, state="stopping")])

    def use() -> None:
        assert fetch_status(path) == STATUS
        assert fetch_status(path).state == "stopping"

    serve(path, lambda: next(answers), use)


def test_the_source_may_be_a_coroutine(path: Path) -> None:
    async def status() -> Status:
        await asyncio.sleep(0)
        return STATUS

    source: Callable[[], Awaitable[Status]] = status
    seen: list[Status] = []
    serve(path, source, lambda: seen.append(fetch_status(path)))
    assert seen == [STATUS]


def test_only_the_owner_may_open_the_socket_and_close_removes_it(path: Path) -> None:
    modes: list[int] = []
    serve(path, lambda: STATUS, lambda: modes.append(path.lstat().st_mode))
    assert stat.S_ISSOCK(modes[0])
    assert stat.S_IMODE(modes[0]) == 0o600
    assert not path.exists()


def test_a_socket_left_by_a_dead_process_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left, short_address(path) as address:
        left.bind(address)
    assert path.exists()
    serve(path, lambda: STATUS, lambda: check(fetch_status(path) == STATUS))


def test_a_second_server_is_refused_and_the_first_goes_on(path: Path) -> None:
    def use() -> None:
        with pytest.raises(BookieRunningError, match="already"):
            asyncio.run(start_and_close(path))
        assert fetch_status(path) == STATUS

    serve(path, lambda: STATUS, use)


def test_close_leaves_a_socket_that_is_not_its_own(path: Path) -> None:
    def use() -> None:
        path.unlink()
        path.write_text("somebody else's")

    serve(path, lambda: STATUS, use)
    assert path.read_text() == "somebody else's"


def test_a_file_in_the_way_is_named_and_kept(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(BootError, match="is not a socket"):
        asyncio.run(start_and_close(path))
    assert path.read_text() == "precious"


def test_a_folder_that_is_not_there(path: Path) -> None:
    with pytest.raises(BootError, match="cannot make the admin socket"):
        asyncio.run(start_and_close(path.parent / "missing" / SOCKET_NAME))


def test_nobody_there(path: Path) -> None:
    with pytest.raises(BookieNotRunningError, match="no bookie is running"):
        fetch_status(path)
    with pytest.raises(BookieNotRunningError, match="no bookie is running"):
        fetch_status(path.parent / "missing" / SOCKET_NAME)
    with socket.socket(socket.AF_UNIX) as left, short_address(path) as address:
        left.bind(address)
    with pytest.raises(BookieNotRunningError, match="no bookie is running"):
        fetch_status(path)


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n", PeerError, "500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes", EncodingError, "not JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", EncodingError, "schema"),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"schema": 1}',
            EncodingError,
            "of an older bkbox .*restart the bookie",
        ),
        (b"", BookieNotRunningError, "no answer"),
    ],
)
def test_an_answer_that_is_not_a_status(
    path: Path, answer: bytes, error: type[BkboxError], says: str
) -> None:
    with socket.socket(socket.AF_UNIX) as listener, short_address(path) as address:
        listener.bind(address)
        listener.listen()

        def once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=once)
        thread.start()
        try:
            with pytest.raises(error, match=says):
                fetch_status(path)
        finally:
            thread.join()


def test_a_bookie_that_hangs_is_given_up(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, short_address(path) as address:
        listener.bind(address)
        listener.listen()
        with pytest.raises(BookieUnresponsiveError, match=f"ps .* -p {os.getpid()}$"):
            fetch_status(path, timeout=0.05)


def test_a_socket_of_another_user_is_told(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, short_address(path) as address:
        listener.bind(address)
        listener.listen()
        path.chmod(0)
        with not_as_root(), pytest.raises(BkboxError, match="not allowed"):
            fetch_status(path)


@contextmanager
def not_as_root() -> Iterator[None]:
    """Root may open everything."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


async def start_and_close(path: Path) -> None:
    await (await server.start(path, lambda: STATUS)).close()


def check(fact: bool) -> None:
    assert fact


_STRANGER = 65534
_LISTEN = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.setuid(int(sys.argv[2]))
listener.listen()
print("listens", flush=True)
while True:
    told, _ = listener.accept()
    told.settimeout(5)
    data = told.recv(1)
    if data:
        print("heard", flush=True)
        told.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_s_socket_is_told_nothing(tmp_path: Path) -> None:
    path = tmp_path / SOCKET_NAME
    words = [sys.executable, "-c", _LISTEN, str(path), str(_STRANGER)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "listens\n"
            with pytest.raises(AuthenticationError, match=f"of user {_STRANGER} answers there"):
                fetch_status(path)
            os.chown(tmp_path, _STRANGER, -1)  # and now it is the user of that folder
            with pytest.raises(BookieNotRunningError):
                fetch_status(path)
            assert stranger.stdout.readline() == "heard\n", "the second time only"
        finally:
            os.chown(tmp_path, 0, -1)
            stranger.kill()
