"""Files with secrets: refused unless only their owner may read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from shlex import quote

from bkbox.base.text import quoted, reason_of
from bkbox.errors import BootError

_BYTES_MAX = 64 * 1024
"""Size limit: all of it has to fit into one control message."""

_SECRET_CHARACTERS_MIN = 8


def read_secret(path: Path, what: str) -> bytes:
    """The contents. ``what``: the name of the file in messages. Raises BootError, also for a file that other users
    may read: they may have read it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise BootError(f"{what} {path} is not a file")
            data = os.read(fd, _BYTES_MAX + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise BootError(f"{what} {path} cannot be read: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise BootError(
            f"{what} {path} has mode {stat.S_IMODE(mode):04o}: others than its owner may read it, and may have; "
            f"replace what is in it and run chmod 600 {quote(str(path))}"
        )
    if len(data) > _BYTES_MAX:
        raise BootError(f"{what} {path} has more than {_BYTES_MAX} bytes")
    return data


def read_text(path: Path, what: str) -> str:
    """The contents of a file without secrets: certificates. Raises BootError."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BootError(f"{what} {path} cannot be read: {reason_of(error)}") from error


def read_word(path: Path, what: str) -> str:
    """A secret of one line. Raises BootError."""
    parts = _text(read_secret(path, what), path, what).split()
    if len(parts) != 1 or len(parts[0]) < _SECRET_CHARACTERS_MIN:
        raise BootError(
            f"{what} {path} has to hold one word of {_SECRET_CHARACTERS_MIN} characters or more: openssl rand -hex 32 "
            "makes one"
        )
    return parts[0]


def read_users(path: Path, what: str) -> dict[str, str]:
    """Users and their secrets, ``NAME:SECRET`` a line; empty lines and lines that begin with # are ignored. Raises
    BootError, which never shows a line.
    """
    users: dict[str, str] = {}
    for number, line in enumerate(_text(read_secret(path, what), path, what).splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, colon, secret = line.partition(":")
        if not colon or not name.strip() or name in users:
            raise BootError(f"{what} {path}, line {number}: has to be NAME:SECRET, each name once")
        if len(secret) < _SECRET_CHARACTERS_MIN:
            raise BootError(
                f"{what} {path}, line {number}: the secret of {quoted(name)} has less than "
                f"{_SECRET_CHARACTERS_MIN} characters"
            )
        users[name] = secret
    if not users:
        raise BootError(
            f"{what} {path} names no user: write NAME:SECRET into it, a line for each user"
        )
    return users


def _text(data: bytes, path: Path, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BootError(f"{what} {path} is not UTF-8 at byte {error.start}") from None
