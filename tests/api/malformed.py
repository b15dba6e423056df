"""Requests to the admin port that are no HTTP, or not all of one; `python -m tests.api.malformed --seconds 60` sends
200 of them a second to a bookie of its own and counts the bytes of its log."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import click

from tests.harness.processes import BookieProcess, bkbox, free_port

_CALLERS = 8

TOKEN = "t" * 32
_BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
_HOST = b"Host: 127.0.0.1\r\n"
_JSON = b"Content-Type: application/json\r\n"
_GET = b"GET /healthz HTTP/1.1\r\n"
_POST = b"POST /api/v1/jobs HTTP/1.1\r\n"
_ZIPPED = b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde"

REQUESTS = (
    b"\x00\x01\x02 nothing of the kind\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"G@T / HTTP/1.1\r\n\r\n",
    b"CONNECT x HTTP/1.1\r\n\r\n\x00\x01",
    b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET //[ HTTP/1.1\r\nHost: [\r\n\r\n",
    b"GET /%ff%fe\xff HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    _GET + _HOST + b"X-Long: " + b"y" * 9000 + b"\r\n\r\n",
    _GET + _HOST + b"Two Words: x\r\n\r\n",
    _GET + _HOST + b"Cookie: \x7f=;=\r\n" + _BEARER + b"\r\n",
    _GET + _HOST + b"Content-Length: -1\r\n\r\n",
    _GET + _HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    _GET + _HOST + b"Expect: nonsense\r\n\r\n",
    _GET + _HOST + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n\x00garbage",
    _GET + b"Host: elsewhere.example.com\r\n" + _BEARER + b"\r\n",
    _GET + _HOST + b"Origin: http://evil.example\r\n" + _BEARER + b"\r\n",
    _GET + _HOST + b"\r\n",
    _POST + _HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    _POST + _HOST + _BEARER + _JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    _POST + _HOST + _ZIPPED,
    _POST + _HOST + _BEARER + _JSON + _ZIPPED,
    _POST + _HOST + b"Content-Encoding: br\r\nContent-Length: 5\r\n\r\nabcde",
    _POST + _HOST + b"Content-Length: 50\r\n\r\nabcde",
    _POST + _HOST + _BEARER + _JSON + b"Content-Length: 3\r\n\r\n{x}",
    _POST + _HOST + _BEARER + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
)


@contextlib.contextmanager
def bookie_with_port(root: Path) -> Iterator[tuple[BookieProcess, int]]:
    """A bookie, and the port of its admin API."""
    port = free_port()
    token = root / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    bookie = BookieProcess(root, f"sqlite:{root}/metadata.db").init(
        disks=1, http_listen=f"127.0.0.1:{port}", http_token_file=token
    )
    try:
        yield bookie.start(), port
    finally:
        bookie.ensure_gone()


def send(port: int, requests: Iterator[bytes]) -> int:
    """One connection for each, which is closed when the answer begins; how many that were."""
    count = 0
    for request in requests:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=20) as caller,
        ):
            caller.sendall(request)
            caller.shutdown(socket.SHUT_WR)
            caller.recv(1)
            count += 1
    return count


@click.command()
@click.option("--seconds", type=float, default=60.0)
@click.option("--per-second", type=int, default=200)
def main(seconds: float, per_second: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        bookie_with_port(Path(folder)) as (bookie, port),
    ):
        before, began_s = len(bookie.stderr), time.monotonic()

        def one(number: int) -> int:
            sent, requests = 0, cycle((*REQUESTS[number:], *REQUESTS[:number]))
            while (gone_s := time.monotonic() - began_s) < seconds:
                sent += send(port, islice(requests, 10))
                time.sleep(max(0.0, sent * _CALLERS / per_second - gone_s))
            return sent

        with ThreadPoolExecutor(_CALLERS) as callers:
            sent = sum(callers.map(one, range(_CALLERS)))
        gone_s = time.monotonic() - began_s
        said = bookie.stderr[before:]
        bkbox("health", "--config", str(bookie.config), check=False)
        click.echo(
            f"{sent} requests in {gone_s:.0f} s: {len(said)} bytes of log, {said.count(chr(10))} lines, "
            f"{said.count('Traceback')} tracebacks"
        )


if __name__ == "__main__":
    main()
