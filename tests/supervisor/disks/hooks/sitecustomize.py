"""On the path of a bookie by test_drain.py: kills its processes at named points of a move; and by test_sidelined.py.

``MOVE_POINTS`` is a folder with a file ``points``: lines of ``ROLE WHEN MESSAGE [DISK]``, taken one after the other. A
process of that role (a worker: that of a disk whose path ends so) kills itself ``before`` or ``after`` it has done what
such a message asks; of the supervisor: has asked for it. A file ``done-N`` says that the N-th was taken.

``FAILED_SYNC`` is a file: the worker that creates it has a sync of its entry log fail. No worker can write a marker.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def _role() -> str:
    names = [name for name in sys.orig_argv if name.startswith("bkbox.")]
    role = names[0].removeprefix("bkbox.") if names else ""
    return "supervisor" if role == "cli.main" and "run" in sys.orig_argv else role


def _reach(when: str, message: object) -> None:
    name = type(message).__name__
    if name == "CommitImport":
        name = "Commit" if message.commit else "CommitImport"  # type: ignore[attr-defined]
    lines = (_folder / "points").read_text().splitlines()
    number = next((n for n in range(len(lines)) if not (_folder / f"done-{n}").exists()), None)
    if number is None:
        return
    role, wanted_when, wanted, *disks = lines[number].split()
    if (role, wanted_when, wanted) != (_role_here, when, name):
        return
    if disks and not any(text.endswith(disks[0]) for text in sys.orig_argv):
        return
    os.close(os.open(_folder / f"done-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    os.kill(os.getpid(), signal.SIGKILL)


def _around(real: Callable[..., Any], place: int) -> Callable[..., Any]:
    """``place``: of the message among the arguments."""

    def plain(*values: Any, **named: Any) -> Any:
        _reach("before", values[place])
        answer = real(*values, **named)
        _reach("after", values[place])
        return answer

    return plain


def _around_async(real: Callable[..., Any], place: int) -> Callable[..., Any]:
    async def waiting(*values: Any, **named: Any) -> Any:
        _reach("before", values[place])
        answer = await real(*values, **named)
        _reach("after", values[place])
        return answer

    return waiting


def _fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _fail_once(real: Callable[[int], None]) -> Callable[[int], None]:
    def failing(fd: int) -> None:
        if "/entrylog/" in os.readlink(f"/proc/self/fd/{fd}"):
            with suppress(FileExistsError):
                os.close(os.open(os.environ["FAILED_SYNC"], os.O_CREAT | os.O_EXCL))
                _fail()
        real(fd)

    return failing


def _fail_markers(real: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def failing(source: Any, target: Any) -> None:
        if Path(target).name == "DIRTY":
            _fail()
        real(source, target)

    return failing


if "FAILED_SYNC" in os.environ and _role() == "worker":
    os.fdatasync = _fail_once(os.fdatasync)  # type: ignore[assignment,arg-type]
    os.rename = _fail_markers(os.rename)  # type: ignore[assignment]

if "MOVE_POINTS" in os.environ:
    _folder = Path(os.environ["MOVE_POINTS"])
    _role_here = _role()
    if _role_here in ("worker", "frontend"):
        from bkbox.ipc.handlers import Handlers

        Handlers.handle = _around(Handlers.handle, 1)  # type: ignore[method-assign]
    elif _role_here == "repair":
        from bkbox.repair.drain import _Drainer

        _Drainer.call = _around_async(_Drainer.call, 1)  # type: ignore[method-assign]
    elif _role_here == "supervisor":
        from bkbox.supervisor.disks import ledger_migration

        ledger_migration._call = _around_async(ledger_migration._call, 1)
        ledger_migration.LedgerMigrator._tell_frontends = _around_async(
            ledger_migration.LedgerMigrator._tell_frontends, 1
        )  # type: ignore[method-assign]
