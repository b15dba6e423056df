"""Every prefix of every valid frame, and every frame with one byte of it flipped.

Fuzzing (tests/fuzz) takes some of these by chance; here none is left out. Each is taken by a connection of the
front-end, whole and cut, over the compiled kernel and the interpreted one, which have to agree; what comes through is
what a worker can decode, what does not ends its connection with an error that is documented.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontend.access.test_door import run
from tests.frontend.inprocess import FRAME_BYTES_MAX, InProcessBookie
from tests.fuzz.kernels import IN_USE
from tests.fuzz.targets.frames import check_v2, check_v3, frames_of, plain_frames
from tests.fuzz.targets.frontend import check_stream, whole
from tests.harness import raw
from tests.harness.raw import RawClient
from tests.harness.raw3 import READ, read_part, request
from tests.harness.waiting import wait_for
from tests.security.secured import order
from tests.security.test_roles import OPERATIONS, OPERATIONS_2

REQUESTS = [frame for frame, _need in (*OPERATIONS.values(), *OPERATIONS_2.values())]
STORED = frames_of("wire-v2.json") + frames_of("wire-v3.json")
FLIPS = (0x01, 0x80, 0xFF)
NEXT = raw.read_frame(2, 0)
"""What the same client sends behind a frame that was damaged."""


def flipped(frame: bytes, flips: tuple[int, ...] = FLIPS) -> Iterator[bytes]:
    for at, byte in enumerate(frame):
        for flip in flips:
            yield frame[:at] + bytes((byte ^ flip,)) + frame[at + 1 :]


def prefixes(frame: bytes) -> Iterator[bytes]:
    for end in range(1, len(frame)):
        yield frame[:end]


@pytest.mark.parametrize("frame", REQUESTS, ids=[*OPERATIONS, *(f"{n} v2" for n in OPERATIONS_2)])
def test_every_prefix_waits_for_the_rest_and_does_nothing(frame: bytes) -> None:
    """However much of a frame has come, nothing is done and nothing is answered; then it is complete, and is."""
    for cut in prefixes(frame):
        connection = whole(IN_USE, cut)
        assert connection.error is None
        assert not connection.sock.sent
        assert not connection.requests()
        connection.take(frame[len(cut) :])
        assert connection.error is None
        assert connection.sock.sent or connection.requests()


def test_every_prefix_of_a_body() -> None:
    """A frame that says it ends where it was cut: its body is whole for the reader of frames, and is not."""
    for frame in (*STORED, *plain_frames()):
        for body in prefixes(frame[4:] if len(frame) < 300 else b""):
            check_v2(body)
            check_v3(body)
    for frame in REQUESTS:
        for body in prefixes(frame[4:]):
            check_stream(b"\x0b" + struct.pack(">I", len(body)) + body + NEXT)


def test_every_byte_flipped() -> None:
    for frame in REQUESTS:
        for damaged in flipped(frame):
            check_v2(damaged[4:])
            check_v3(damaged[4:])
        for damaged in flipped(frame, (0xFF,)):
            check_stream(b"\x0b" + damaged + NEXT)


def test_a_header_that_comes_byte_by_byte_is_no_progress(tmp_path: Path) -> None:
    """One byte, a pause, one byte: the time runs from the first."""

    def story(bookie: InProcessBookie) -> None:
        with socket.create_connection(("127.0.0.1", bookie.port)) as sock:
            sock.settimeout(0.05)
            began = time.monotonic()
            for byte in struct.pack(">I", 100) + bytes(60):
                try:
                    sock.sendall(bytes((byte,)))
                    time.sleep(0.2)
                    if not sock.recv(1):
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            else:
                pytest.fail("every byte was taken")
            assert time.monotonic() - began > 0.5

    run(tmp_path, order(), story, frame_timeout_s=0.5)


def test_more_of_a_batch_read_than_a_frame_may_have(tmp_path: Path) -> None:
    """Entries without number and bytes without end are asked for: the answer is one frame, and has what fits."""
    payload = bytes(700_000)

    def story(bookie: InProcessBookie) -> None:
        with RawClient(bookie.port) as client:
            for entry in range(12):
                assert client.add(1, entry, payload) == raw.EOK
            for count, size in ((2**31 - 1, 2**63 - 1), (0, FRAME_BYTES_MAX + 1), (-1, 2**40)):
                client.send(raw.batch_frame(1, 0, count, size))
                body = client.frame()
                assert 3 * len(payload) < len(body) <= FRAME_BYTES_MAX - 4
            assert client.read(1, 11).code == raw.EOK

    run(tmp_path, order(), story)


def test_a_client_whose_host_is_gone_is_asked_after_a_minute(tmp_path: Path) -> None:
    """Both ends are here, so that none can vanish: the system says what it will ask, and when."""

    def story(bookie: InProcessBookie) -> None:
        with RawClient(bookie.port) as client:
            client.send(request(READ, 1, read_part(1)))
            client.frame()
            ours, theirs = client.sock.getsockname()[1], bookie.port

            def keepalive_in() -> float | None:
                """Seconds; None while another timer of the connection runs."""
                [timer] = [
                    line.split()[5]
                    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
                    if _ports(line) == (theirs, ours)
                ]
                kind, wait = timer.split(":")
                return int(wait, 16) / 100 if kind == "02" else None

            asked_in_s = wait_for(keepalive_in, "the timer")
            assert 0 < asked_in_s <= 60

    run(tmp_path, order(), story)


def _ports(line: str) -> tuple[int, int]:
    local, remote = line.split()[1:3]
    return int(local.split(":")[1], 16), int(remote.split(":")[1], 16)
