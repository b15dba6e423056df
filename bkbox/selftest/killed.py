"""Checks that what a process has synced is there after it was killed, read from the device and not from memory.

A child appends numbered blocks, each with its checksum, syncs, and says on a pipe how many are synced. It is killed
in the middle of it. Every block that it has named has to be there and whole; behind them there may be some
more, and one that is torn, which its checksum has to show.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from bkbox.base.host.interpreter import module_command
from bkbox.errors import HostError

BLOCK_BYTES = 4096
_GROUP = 4
_BODY = BLOCK_BYTES - 12


@dataclass(frozen=True, slots=True)
class SurvivingBlocks:
    """Blocks that the killed writer had named as synced, and of those: ``lost``, not there or not whole. ``after``:
    whole blocks behind them; ``torn``: blocks behind them that are not. ``past_cache``: it was read from the device.
    """

    synced: int
    lost: int
    after: int
    torn: int
    past_cache: bool


def check(folder: Path, seconds: float) -> SurvivingBlocks:
    """Let a child write for so long, kill it, and look. The file is removed. OSError, HostError."""
    path = folder / "killed"
    try:
        synced = _write_and_kill(path, seconds)
        data, past_cache = _read(path)
    finally:
        path.unlink(missing_ok=True)
    return survivors_of(data, synced, past_cache=past_cache)


def survivors_of(data: bytes, synced: int, *, past_cache: bool) -> SurvivingBlocks:
    """The intact part of a killed writer's file."""
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    whole = [_is_whole(number, block) for number, block in enumerate(blocks)]
    return SurvivingBlocks(
        synced=synced,
        lost=synced - sum(whole[:synced]),
        after=sum(whole[synced:]),
        torn=len(whole[synced:]) - sum(whole[synced:]),
        past_cache=past_cache,
    )


def block(number: int, body: bytes) -> bytes:
    """A block of the file: number, body, checksum of both."""
    front = number.to_bytes(8, "big") + body
    return front + crc32c(front).to_bytes(4, "big")


def _is_whole(number: int, data: bytes) -> bool:
    return (
        len(data) == BLOCK_BYTES
        and int.from_bytes(data[:8], "big") == number
        and crc32c(data[:-4]) == int.from_bytes(data[-4:], "big")
    )


def write_until_killed(path: Path) -> None:
    """The child: after each sync, how many blocks are, as a line on standard output."""
    body = os.urandom(_BODY)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    number = 0
    while True:
        os.write(fd, b"".join(block(number + more, body) for more in range(_GROUP)))
        os.fdatasync(fd)
        number += _GROUP
        os.write(1, b"%d\n" % number)


def _write_and_kill(path: Path, seconds: float) -> int:
    child = subprocess.Popen(
        [*module_command("bkbox.selftest.writer"), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    with child:
        last = child.stdout.readline()
        end = time.monotonic() + seconds
        while last and time.monotonic() < end:
            last = child.stdout.readline()
        child.kill()
        rest = child.stdout.read().splitlines(keepends=True)
        errors = child.stderr.read().strip()
    named = [line for line in (last, *rest) if line.endswith("\n")]
    if not named:
        reason = errors.splitlines()[-1] if errors else "it ended"
        raise HostError(f"the writer in {path.parent} did not write: {reason}")
    return int(named[-1])


def _read(path: Path) -> tuple[bytes, bool]:
    """The file, and whether it came from the device. Direct reads want memory that begins with a page."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:  # a file system that has no such reads
        return path.read_bytes(), False
    try:
        data = bytearray()
        with mmap.mmap(-1, 1 << 20) as buffer:
            while got := os.preadv(fd, [buffer], len(data)):
                data += buffer[:got]
                if got % BLOCK_BYTES:
                    break
        return bytes(data), True
    finally:
        os.close(fd)
