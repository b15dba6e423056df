"""Finds files that a user other than root and one given user could change: by writing them, or by replacing them in
their folder.

A configuration can name executables, and files with secrets: a party that may write it has the bookie's rights.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from shlex import quote


def writable_by_others(path: Path, user: int) -> list[str]:
    """The problems and their remedies; none for a file that only this user and root can change, or that does not
    exist.
    """
    places = {path: None, path.parent: None}
    real = Path(os.path.realpath(path))
    places |= {real: None, real.parent: None}
    return [problem for place in places for problem in _problems(place, user)]


def _problems(path: Path, user: int) -> Iterator[str]:
    try:
        found = os.stat(path)
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return
    except OSError:
        return  # opening it will report that
    mode = stat.S_IMODE(found.st_mode)
    what = "folder" if stat.S_ISDIR(found.st_mode) else "file"
    if found.st_uid not in (0, user):
        yield (
            f"{path}: this {what} belongs to user {_user(found.st_uid)}, who can change what the bookie runs with: "
            f"chown {_user(user)} {quote(str(path))}"
        )
    if stat.S_ISDIR(found.st_mode) and mode & stat.S_ISVTX:
        return  # as /tmp: other users can add files, and replace none
    if mode & stat.S_IWOTH:
        yield f"{path}: every user may write this {what} (mode {mode:04o}): chmod go-w {quote(str(path))}"
    elif mode & stat.S_IWGRP and not _is_private(path, found):
        yield (
            f"{path}: group {_group(found.st_gid)} may write this {what} (mode {mode:04o}): "
            f"chmod g-w {quote(str(path))}"
        )


def _is_private(path: Path, found: os.stat_result) -> bool:
    """True if its group contains its owner and no other user, as most systems make one for each user."""
    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid)
    except KeyError:
        return False
    return (
        group.gr_name == owner.pw_name
        and group.gr_gid == owner.pw_gid
        and set(group.gr_mem) <= {owner.pw_name}
        and not _has_acl(path)
    )


def _has_acl(path: Path) -> bool:
    """True if the file has an ACL: the group bits then stand for other users, too."""
    try:
        os.getxattr(path, "system.posix_acl_access")
    except OSError:
        return False
    return True


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def create(path: Path, text: str) -> None:
    """Create a file that its owner alone may write, whatever the umask; after an error there is none. Raises OSError,
    FileExistsError among them."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
    except BaseException:
        path.unlink()
        raise
