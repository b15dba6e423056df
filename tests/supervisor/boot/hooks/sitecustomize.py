"""On the path of a bookie by test_start.py: writes down what each of its processes does, as it does it.

``START_SIDE`` is a folder; ``ROLE.log`` there gets a line ``import NAME`` for each module and ``sync PATH`` for each
file or folder that is synced.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path


def _role() -> str:
    names = [name for name in sys.orig_argv if name.startswith("bkbox.")]
    return names[0].removeprefix("bkbox.") if names else "other"


class _Watch:
    """The first of the finders: finds nothing, and sees what is looked for."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        _note(f"import {name}")
        return None


def _note(line: str) -> None:
    os.write(_log, line.encode() + b"\n")


def _noted(sync: object) -> object:
    def noted(fd: int) -> None:
        sync(fd)  # type: ignore[operator]
        _note(f"sync {os.readlink(f'/proc/self/fd/{fd}')}")

    return noted


if "START_SIDE" in os.environ:
    _log = os.open(
        Path(os.environ["START_SIDE"], f"{_role()}.log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT
    )
    sys.meta_path.insert(0, _Watch())  # type: ignore[arg-type]
    os.fsync = _noted(os.fsync)  # type: ignore[assignment]
    os.fdatasync = _noted(os.fdatasync)  # type: ignore[assignment]
