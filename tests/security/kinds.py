"""The kinds of abuse: what strangers do to a bookie until the time is over, each from a process of its own.

``python -m tests.security.kinds KIND --port N --tls N --http N --guarded N --seconds S`` does one of them.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields

from bkbox.security import digest_md5
from tests.harness import raw, raw3
from tests.harness.raw import RawClient
from tests.harness.raw3 import AUTH, READ, RawClient3, read_part, request
from tests.security.secured import auth_part

LARGE = 4 << 20
USER, SECRET = "bookkeeper", "sesame-opens-bookkeeper"


@dataclass(frozen=True, slots=True)
class Place:
    """Ports: of a bookie that lets everybody in, of one that offers TLS and of its admin API (TLS, with a token), and
    of one where everybody has to say who they are."""

    port: int
    tls: int
    http: int
    guarded: int


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def many(place: Place, until: float, begin: bytes, count: int = 500) -> None:
    """Connections that say so much and no more; those that are closed are opened anew."""
    socks = [dial(place.port) for _ in range(count)]
    for sock in socks:
        sock.setblocking(False)
        sock.send(begin)
    while time.monotonic() < until:
        for number, sock in enumerate(socks):
            with suppress(BlockingIOError):
                try:
                    gone = not sock.recv(1)
                except ConnectionError:
                    gone = True
                if gone:
                    sock.close()
                    socks[number] = again = dial(place.port)
                    again.setblocking(False)
                    again.send(begin)
        time.sleep(0.2)


def slow_body(place: Place, until: float) -> None:
    """Large frames, byte by byte."""
    frame = raw.add_frame(9, 0, bytes(LARGE))
    socks = [dial(place.port) for _ in range(50)]
    for sock in socks:
        sock.sendall(frame[: LARGE // 4])
    at = LARGE // 4
    while time.monotonic() < until:
        for sock in socks:
            with suppress(OSError):
                sock.send(frame[at : at + 1])
        at += 1
        time.sleep(0.1)


def never_reads(place: Place, until: float) -> None:
    """Ask for much, and take nothing."""
    with RawClient(place.port) as client:
        client.add(9, 0, bytes(1_000_000))
    while time.monotonic() < until:
        socks = [dial(place.port) for _ in range(8)]
        for sock in socks:
            sock.sendall(b"".join(raw.read_frame(9, 0) for _ in range(16)))
        time.sleep(2)
        for sock in socks:
            sock.close()


def sends(place: Place, until: float, data: bytes, pause_s: float = 0.0) -> None:
    """Send something again and again, on a new connection whenever the old one is closed."""
    while time.monotonic() < until:
        with dial(place.port) as sock, suppress(OSError):
            sock.settimeout(0.2)
            while time.monotonic() < until:
                sock.sendall(data)
                with suppress(TimeoutError):
                    if not sock.recv(1 << 20):
                        break
                time.sleep(pause_s)


def comes_and_goes(place: Place, until: float) -> None:
    while time.monotonic() < until:
        dial(place.port).close()
        time.sleep(0.001)


def elsewhere(_place: Place, until: float) -> None:
    """As many connections as ``comes_and_goes`` has, of this process with itself."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        while time.monotonic() < until:
            dial(server.getsockname()[1]).close()
            server.accept()[0].close()
            time.sleep(0.001)


_HEADER = bytes.fromhex("0a06080310021809")  # version 3, ADD, transaction 9
BOMB = (len(_HEADER) + 3_000_000).to_bytes(4, "big") + _HEADER + b"\xa0\x1f\x01" * 1_000_000


def idle(place: Place, until: float) -> None:
    """20,000 connections that say nothing, or as many as may be; from eight addresses, as one has not enough ports."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    socks: list[socket.socket] = []
    while time.monotonic() < until:
        if len(socks) >= min(20_000, most - 100):
            time.sleep(0.1)
            continue
        source = (f"127.0.0.{2 + len(socks) % 8}", 0)
        socks.append(socket.create_connection(("127.0.0.1", place.port), 10, source))


def cut_frames(place: Place, until: float) -> None:
    """Half of an add, the head of a read in the middle of another one, and gone."""
    add, read = raw.add_frame(9, 0, bytes(1000)), raw.read_frame(9, 0)
    while time.monotonic() < until:
        for data in (add[:500], read[:9] + add[:300] + read, add + read[:-1]):
            with dial(place.port) as sock, suppress(OSError):
                sock.sendall(data)


_IDS = (-1, -(1 << 63), (1 << 63) - 1, 1 << 62, -(1 << 31), 1 << 32)


def impossible_ids() -> bytes:
    """Adds and reads of ledgers and entries that nobody can have, in both versions."""
    frames = []
    for ledger in _IDS:
        for entry in _IDS:
            head = struct.pack(">qqqq", ledger, entry, -1, 1)
            body = struct.pack(">BBH", 2, 1, 0) + raw.master_key() + head + bytes(9)
            frames.append(struct.pack(">I", len(body)) + body)
            frames.append(raw.read_frame(ledger, entry))
            frames.append(request(READ, 1, read_part(ledger, entry)))
    return b"".join(frames)


def unknown_tls() -> ssl.SSLContext:
    """Of a client that believes every certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_HELLO = bytes.fromhex("16030102000100 01fc0303") + bytes(100)
"""The first record of TLS, begun."""
_OLD_HELLO = (
    bytes.fromhex("160301002f 0100002b 0301") + bytes(32) + bytes.fromhex("00 0004 002f0035 0100")
)
"""All that a client of TLS 1.0 says first."""


def handshakes(place: Place, until: float) -> None:
    """TLS and gone again, with nothing but a part of its first record, and with TLS 1.0."""
    context = unknown_tls()
    while time.monotonic() < until:
        with suppress(OSError), dial(place.tls) as sock:
            context.wrap_socket(sock).close()
        for hello in (_HELLO, _OLD_HELLO):
            with suppress(OSError), dial(place.tls) as sock:
                sock.sendall(hello)


_TO_THE_API = (
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %d\r\n\r\n",
    b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /api/v1/ledgers/..%%2f..%%2fetc%%2fpasswd/%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://example.org\r\n"
    b"Sec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
)


def api_calls(place: Place, until: float) -> None:
    """The admin API without a token, with guessed ones, by odd paths, as a browser would, and in the clear."""
    context = unknown_tls()
    number = 0
    while time.monotonic() < until:
        number += 1
        call = _TO_THE_API[number % 4]
        with suppress(OSError), dial(place.http) as sock:
            sock.settimeout(2)
            through = context.wrap_socket(sock) if number % 8 < 4 else sock
            through.sendall(call % number if b"%d" in call else call)
            through.recv(1000)
            through.close()


def strangers(place: Place, until: float) -> None:
    """Every operation of both versions by somebody who has not said who he is."""
    ops = [raw.add_frame(9, 0, b"x"), raw.read_frame(9, 0), raw.read_frame(9, 0, raw.FENCE)]
    ops += [raw.batch_frame(9, 0, 10)]
    ops += [
        request(op, 1, [(1, 9), (2, 0), (3, raw.master_key())]) for op in raw3.PART if op != AUTH
    ]
    while time.monotonic() < until:
        for data in ops:
            with suppress(OSError), dial(place.guarded) as sock:
                sock.settimeout(0.2)
                sock.sendall(data)
                sock.recv(1000)


def replays(place: Place, until: float) -> None:
    """One good answer to a challenge of DIGEST-MD5, said again to every new challenge."""
    recorded: bytes | None = None
    while time.monotonic() < until:
        with suppress(OSError, EOFError), RawClient3(place.guarded) as client:
            answer = client.ask(AUTH, auth_part(digest_md5.PLUGIN, b""))
            if recorded is None:
                challenge = bytes((answer.part or {})[2])
                recorded = digest_md5.Client(USER, SECRET, "c" * 32).step(challenge)
            client.ask(AUTH, auth_part(digest_md5.PLUGIN, recorded or b""))


KINDS: dict[str, Callable[[Place, float], None]] = {
    "silence": lambda place, until: many(place, until, b""),
    "idle connections": idle,
    "slow header": lambda place, until: many(place, until, b"\0\0"),
    "slow body": slow_body,
    "never reads": never_reads,
    "garbage": lambda place, until: sends(place, until, os.urandom(4096)),
    "cut frames": cut_frames,
    "huge lengths": lambda place, until: sends(place, until, b"\x7f\xff\xff\xff" + bytes(1000)),
    "protobuf bombs": lambda place, until: sends(place, until, BOMB, 0.05),
    "impossible ids": lambda place, until: sends(place, until, impossible_ids()),
    "authentication flood": lambda place, until: sends(
        place, until, request(AUTH, 1, [(1, b"x"), (2, b"")]) * 500
    ),
    "unknown ledgers": lambda place, until: sends(
        place, until, b"".join(request(READ, n, read_part(10**6 + n)) for n in range(500))
    ),
    "connections": comes_and_goes,
    "connections to another process": elsewhere,
    "TLS handshakes": handshakes,
    "calls of the admin API": api_calls,
    "calls of strangers": strangers,
    "replayed logins": replays,
}
AT: dict[str, str] = {
    "TLS handshakes": "tls",
    "calls of the admin API": "tls",
    "calls of strangers": "guarded",
    "replayed logins": "guarded",
}
"""Kinds that are not for the bookie that lets everybody in."""
FOR_COMPARISON = "connections to another process"
"""No bookie has anything to do with it: what it costs the client is the host's."""
PORTS = tuple(field.name for field in fields(Place))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    for port in PORTS:
        parser.add_argument(f"--{port}", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    place = Place(*(getattr(asked, port) for port in PORTS))
    KINDS[asked.kind](place, time.monotonic() + asked.seconds)


if __name__ == "__main__":
    main()
