"""Attributes of this process that the kernel keeps: prctl(2)."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


def die_with_parent(parent: int, name: str) -> None:
    """From now on the kernel kills this process when its parent is gone, however that ended.

    ``parent``: its pid; ``name``: what it is called. The pid is compared after the signal is set: raises SystemExit
    where the parent died before.
    """
    _set(_PR_SET_PDEATHSIG, signal.SIGKILL, "PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        raise SystemExit(f"{name} was gone before this process began")


def forbid_new_privileges() -> None:
    """No program that this process executes may gain privileges."""
    _set(_PR_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")


def _set(option: int, value: int, name: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({name})")
